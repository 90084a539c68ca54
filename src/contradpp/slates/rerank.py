"""`rerank`: a varied short list from anyone's candidates and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._threads import resolve_n_jobs
from contradpp.dpp.slates import Array, Ints, Lists, Rules, Slates, Trade, choose, reason_of
from contradpp.errors import ParameterError
from contradpp.slates.inputs import (
    Candidates,
    read_candidates,
    read_fixed,
    read_given,
    read_labels,
    read_likeness,
)


class SlateInfo(NamedTuple):
    """More of a slate: where its items stood among the candidates, what each gained, and why it is short, if it is."""

    positions: Ints
    gains: Array
    reason: str | None


def rerank(
    candidates: Any,
    scores: Any,
    k: int = 10,
    *,
    kernel: Any = None,
    vectors: Mapping[Any, ArrayLike] | Any = None,
    diversity: float = 0.5,
    categories: Mapping[Any, Any] | Any = None,
    at_most: int | Mapping[Any, int] | None = None,
    at_least: Mapping[Any, int] | None = None,
    window: int | None = None,
    fixed: Mapping[Any, int] | Sequence[Mapping[Any, int]] | None = None,
    given: Iterable[Any] = (),
    method: str = "dpp",
    scale: str = "rank",
    reach: int = 5,
    unknown: str = "error",
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    """Choose and order k of the candidates of any recommender, so that they are relevant and unlike each other.

    The DPP takes, place by place, the candidate j of the largest (1 − δ) ℓ_j + δ log c_j: ℓ_j is the log of its
    relevance, c_j = det Φ_{Y∪j} / det Φ_Y what the chosen ones Y have left of it, δ the `diversity`. That is the greedy
    most likely slate of the DPP with kernel diag(q) Φ diag(q), q_j² = exp(ℓ_j (1 − δ)/δ). Φ holds the cosines of the
    items' vectors, and 1 + 10⁻³ on its diagonal: what is left of an exact copy is 2 · 10⁻³. Of equal gains (to 10⁻⁹,
    with float32 vectors 10⁻⁴) the one with the higher score comes first, then the one that stands first.

    Parameters
    ----------
    candidates : sequence of items, or several
        One list, or a batch: a 2-D array, or a list of lists, which may differ in length. None is left out, with which
        `recommend` ends short rows. An item is a string, a number or a tuple of them.
    scores : sequence of numbers, or several
        In the shape of the candidates, the higher the better.
    k : int
        How many to choose. If the candidates or the rules allow fewer, exactly those.
    kernel : model, optional
        A fitted DPP: alike is what its own slates take for alike, as learned from slates or by the symmetric part of
        its kernel (attraction is a matter of relevance). Or any model with `item_factors_` or `item_factors` and,
        unless its items are 0, 1, ..., `items_`.
    vectors : array (n, d) in the order of the candidates, or mapping of item to vector, optional
        What is alike by cosine, in float32 or float64; a vector of zeros is like nothing. For a batch also
        (lists, n, d) or a list of arrays. With `kernel`, Φ is the mean of both.
    diversity : float
        0: relevance only, exactly the k best by score, ties in their order. 1: variety only, scores break ties.
        In between the choice is as above; with ½ relevance and variety count as they are.
    categories : mapping of item to category, or array in the order of the candidates, optional
        What the next three count. An item without a category (None, or not in the mapping) is free of them.
    at_most : int or mapping of category to int, optional
        The most of each category, or of those in the mapping.
    at_least : mapping of category to int, optional
        The fewest of these categories.
    window : int, optional
        Any `window` places in a row hold a category at most once: 2 keeps neighbours apart. The selection is greedy:
        a list may end, or an `at_least` be refused, although some other order would do.
    fixed : mapping of item to place, or one for every list, optional
        Candidates whose place, from 0, is settled; they repel from the start. Where nothing may stand before one, the
        list ends with what is fixed, moved up (or left out, if the window forbids it there).
    given : iterable of items, or one for every list, optional
        What is on screen or in the basket already: it repels, and is not chosen again. It does not count in the rules.
    method : {"dpp", "mmr", "msd", "window"}
        "mmr" (maximal marginal relevance) takes the largest (1 − δ) r_j − δ max cos(i, j) over the shown i (−1 if
        nothing is shown). "msd" (max-sum dispersion) is greedy for the mean relevance times 1 − δ plus the mean
        distance 1 − cos of pairs times δ. "window" is the DPP in which only the last `reach` places repel, for long
        lists.
    scale : {"rank", "linear", "log", "raw"}
        What scores mean. "rank": ℓ = −log rank, r = 1/rank, equal scores of equal rank. Any increasing change of
        the scores leaves the choice as it is, so probabilities, their logarithms and raw scores are all the same;
        candidates that are worse than all chosen ones do not matter, however many; and shares of attention do fall
        like 1/rank. "linear": ℓ is the score in standard deviations from the mean, r runs from 0 for the
        lowest to 1; differences count, shift and unit do not. "log", for probabilities: ℓ = log p, r = p/max p,
        where p below 10⁻¹² of the largest counts as that. "raw": ℓ = r = score, for scores that are logs of
        relevance, or cosines for MMR.
    reach : int
        See "window" above; not the rule of that name.
    unknown : {"error", "ignore"}
        What to do with items, given ones too, that the model or the mapping does not know: raise `UnknownItemError`,
        or let them be unlike everything.
    n_jobs : int, optional
        Threads for a batch; None for all cores. Results do not depend on it.
    return_info : bool
        Also return a `SlateInfo` (a list of them for a batch): positions, gains, and why a slate is short.

    Returns
    -------
    items, scores : arrays of shape (k,), or (lists, k) for a batch
        The slate in its order with the scores that were passed. Short slates are shorter; in a batch they end in None
        with a score of NaN.

    Raises
    ------
    DataError
        Scores that are not finite, a candidate twice, shapes that do not agree.
    ParameterError
        Arguments out of range, rules that contradict each other, or an `at_least` that a list cannot give.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]])
    >>> rerank(["tea", "green tea", "milk"], [0.9, 0.8, 0.5], k=2, vectors=vectors)[0].tolist()
    ['tea', 'milk']
    """
    trade = Trade(k=k, diversity=diversity, method=method, scale=scale, reach=reach)
    if unknown not in ("error", "ignore"):
        raise ParameterError(f"unknown must be 'error' or 'ignore', got {unknown!r}")
    if kernel is None and vectors is None and diversity > 0:
        raise ParameterError(
            "rerank has to know what is alike: pass kernel= or vectors=, or diversity=0 for the order of the scores",
            parameters=("vectors", "kernel", "diversity"),
        )
    lists = read_candidates(candidates, scores)
    if scale == "log" and len(lists.scores) and lists.scores.min() < 0:
        raise ParameterError('scale="log" is for probabilities, but a score is negative: use "raw" for logarithms')
    shown = read_given(given, lists)
    jobs = resolve_n_jobs(n_jobs)
    alike = read_likeness(kernel, vectors, lists, shown, unknown=unknown, n_jobs=jobs)
    left, rows = lists, alike.rows
    if shown:
        open_to = np.flatnonzero(_not_given(lists, shown))
        left, rows = lists.take(open_to), rows[open_to]
    labels = read_labels(categories, left)
    rules = Rules.of(labels, len(left.ids), k, at_most=at_most, at_least=at_least, window=window)
    settled = read_fixed(fixed, left, k, rules)
    slates = choose(
        alike.vectors, Lists(left.indptr, left.scores, rows, alike.given_ptr, alike.given, *settled), trade, rules,
        n_jobs=jobs,
    )  # fmt: skip
    return _answer(left, slates, return_info)


def _not_given(lists: Candidates, shown: list[list[Any]]) -> NDArray[np.bool_]:
    """Which candidates are not on screen already."""
    free = np.ones(len(lists.ids), dtype=bool)
    for number, items in enumerate(shown):
        if items:
            first, last = lists.indptr[number : number + 2].tolist()
            taken = set(items)
            free[first:last] = [item not in taken for item in lists.ids[first:last].tolist()]
    return free


def _answer(lists: Candidates, slates: Slates, return_info: bool) -> Any:
    """Items, scores and, if asked for, the rest, in the shape of the question."""
    width = int(slates.counts.max(initial=0))
    flat = (slates.positions + lists.indptr[:-1, None])[:, :width]
    if slates.counts.min(initial=width) == width:
        items, scores = lists.ids[flat], lists.scores[flat]
    else:
        there = slates.positions[:, :width] >= 0
        items, scores = np.full(there.shape, None, dtype=object), np.full(there.shape, np.nan)
        items[there], scores[there] = lists.ids[flat[there]], lists.scores[flat[there]]
    answer = (items[0], scores[0]) if lists.single else (items, scores)
    if not return_info:
        return answer
    sizes = np.diff(lists.indptr).tolist()
    infos = []
    for number, (count, end) in enumerate(zip(slates.counts.tolist(), slates.ends.tolist(), strict=True)):
        where = lists.places[flat[number, :count]] - lists.passed[number]
        infos.append(SlateInfo(where, slates.gains[number, :count], reason_of(end, count, sizes[number])))
    return (*answer, infos[0] if lists.single else infos)
