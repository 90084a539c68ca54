"""Tables of recommendations, as RecTools and most others give them: a row for each user and item, with a score."""

from __future__ import annotations

from typing import Any

import numpy as np

from contradpp.errors import DataError
from contradpp.slates.rerank import rerank


def rerank_frame(
    frame: Any, k: int = 10, *, user: str = "user_id", item: str = "item_id", score: str = "score",
    rank: str | None = "rank", **how: Any,
) -> Any:  # fmt: skip
    """Choose the k of each user's items that are relevant and unlike each other, as a pandas data frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        What `recommend` of a RecTools model gives, with more items than k for each user.
    user, item, score, rank : str
        Its columns; `rank`, if it is not None, is written anew, from 1.
    **how
        That of `contradpp.rerank`: `kernel`, `vectors` (by item), `diversity`, `categories`, `at_most`, ...
    """
    for name in (user, item, score):
        if name not in frame.columns:
            raise DataError(f"the frame has no column {name!r}: it has {', '.join(map(str, frame.columns))}")
    if not len(frame):
        return frame.copy()
    places = list(frame.groupby(user, sort=False).indices.values())
    candidates = [frame[item].to_numpy()[rows] for rows in places]
    scores = [frame[score].to_numpy(dtype=np.float64)[rows] for rows in places]
    *_, infos = rerank(candidates, scores, k, **how, return_info=True)
    chosen = [rows[info.positions] for rows, info in zip(places, infos, strict=True)]
    out = frame.iloc[np.concatenate(chosen)].reset_index(drop=True)
    if rank is not None:
        out[rank] = np.concatenate([np.arange(1, len(rows) + 1) for rows in chosen])
    return out
