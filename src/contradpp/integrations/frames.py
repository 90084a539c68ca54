"""Tables of recommendations as of RecTools: a row for each user and item, with a score."""

from __future__ import annotations

from typing import Any

import numpy as np

from contradpp.errors import DataError
from contradpp.slates.rerank import rerank


def rerank_frame(
    frame: Any,
    k: int = 10,
    *,
    user: str = "user_id",
    item: str = "item_id",
    score: str = "score",
    rank: str | None = "rank",
    **options: Any,
) -> Any:
    """Choose k items of each user that are relevant and unlike each other.

    Parameters
    ----------
    frame : pandas.DataFrame
        The result of `recommend` of a RecTools model, with more items than k for each user.
    user, item, score, rank : str
        Its columns. Ranks are written again, from 1, unless `rank` is None.
    **options
        Options of `contradpp.rerank`: `kernel`, `vectors` (by item), `diversity`, `rules`, ...

    Returns
    -------
    pandas.DataFrame
        The chosen rows, in the order of each user's slate.
    """
    for name in (user, item, score):
        if name not in frame.columns:
            raise DataError(
                f"the frame has no column {name!r}: it has {', '.join(map(str, frame.columns))}"
            )
    if not len(frame):
        return frame.copy()
    rows_of_users = list(frame.groupby(user, sort=False).indices.values())
    candidates = [frame[item].to_numpy()[rows] for rows in rows_of_users]
    scores = [frame[score].to_numpy(dtype=np.float64)[rows] for rows in rows_of_users]
    *_, infos = rerank(candidates, scores, k, **options, return_info=True)
    chosen = [rows[info.positions] for rows, info in zip(rows_of_users, infos, strict=True)]
    out = frame.iloc[np.concatenate(chosen)].reset_index(drop=True)
    if rank is not None:
        out[rank] = np.concatenate([np.arange(1, len(rows) + 1) for rows in chosen])
    return out
