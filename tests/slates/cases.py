"""The definition of a slate in plain NumPy, made-up questions with rules, and a check that an answer keeps them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

import contradpp as cd
from contradpp import SlateRules, SlidingWindow
from contradpp.errors import ParameterError

RIDGE, TIE = 1e-3, 1e-9
RULES = ("categories", "at_most", "at_least", "window", "fixed")


def rerank(*args: Any, **arguments: Any) -> Any:
    """Call `cd.rerank` with the rules among these arguments."""
    rules = {name: arguments.pop(name) for name in RULES if name in arguments}
    return cd.rerank(*args, rules=SlateRules(**rules), **arguments)


# -- The definition ----------------------------------------------------------------------------------


def relevance(scores: np.ndarray, scale: str, *, additive: bool) -> np.ndarray:
    """Return ℓ, or r for an additive method."""
    s = np.asarray(scores, dtype=float)
    if scale == "rank":
        rank = 1 + (s[:, None] < s).sum(axis=1)
        return 1 / rank if additive else -np.log(rank)
    if scale == "linear" and s.max() == s.min():
        return np.zeros(len(s))
    if scale == "linear":
        return (s - s.min()) / (s.max() - s.min()) if additive else (s - s.mean()) / s.std()
    if scale == "log":
        share = np.maximum(s / s.max(), 1e-12) if s.max() > 0 else np.ones(len(s))
        return share if additive else np.log(share)
    return s


def correlations(vectors: np.ndarray) -> np.ndarray:
    """Return Φ."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    phi = unit @ unit.T
    np.fill_diagonal(phi, 1 + RIDGE)
    return phi


def log_det(phi: np.ndarray, sets: list[list[int]]) -> np.ndarray:
    """Return log det Φ_Y of sets of one size."""
    rows = np.array(sets, dtype=int).reshape(len(sets), -1)
    return np.linalg.slogdet(phi[rows[:, :, None], rows[:, None, :]])[1]


def variety(phi: np.ndarray, shown: list[int], free: list[int], method: str | SlidingWindow, pairs: int) -> np.ndarray:
    """Return what each free candidate adds, by determinants and pairs."""
    if method == "dpp" or isinstance(method, SlidingWindow):
        near = shown if method == "dpp" else shown[-method.size :]
        return log_det(phi, [[*near, j] for j in free]) - log_det(phi, [near])[0]
    cosines = phi[np.ix_(free, shown)]
    if method == "mmr":
        return -cosines.max(axis=1) if shown else np.ones(len(free))
    return 2 * (1 - cosines).sum(axis=1) / max(pairs - 1, 1)


def define(
    scores: np.ndarray,
    phi: np.ndarray,
    k: int,
    delta: float,
    *,
    method: str | SlidingWindow = "dpp",
    scale: str = "rank",
    n_given: int = 0,
) -> list[int]:
    """Return the greedy slate; the rows of `phi` after the candidates are the given items."""
    n = len(scores)
    base = (1 - delta) * relevance(scores, scale, additive=method in ("mmr", "msd"))
    order = np.argsort(-np.asarray(scores), kind="stable")
    shown = list(range(n, n + n_given))
    chosen: list[int] = []
    while len(chosen) < min(k, n):
        free = [j for j in order if j not in chosen]  # by score, so that the first of equals is the right one
        gains = base[free] + delta * variety(phi, shown, free, method, k + n_given)
        best = free[int(np.flatnonzero(gains >= gains.max() - TIE)[0])]
        chosen.append(best)
        shown.append(best)
    return chosen


# -- Rules -------------------------------------------------------------------------------------------


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a list of up to 14 candidates with all kinds of rules, some of them impossible to keep."""
    n, k = draw(st.integers(0, 14)), draw(st.integers(1, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    categories = [None, "a", "b", "c", "d"]
    caps = st.integers(0, 4)
    items = [f"i{number}" for number in range(n)]
    query: dict[str, Any] = {
        "candidates": items, "scores": rng.integers(0, 6, n).astype(float), "k": k,
        "vectors": rng.integers(-2, 3, (n, 3)).astype(draw(st.sampled_from([np.float32, np.float64]))),
        "diversity": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "method": draw(st.sampled_from(["dpp", "mmr", "msd", SlidingWindow()])),
        "categories": [categories[number] for number in rng.integers(0, 5, n)],
        "at_most": draw(st.none() | caps | st.dictionaries(st.sampled_from("abcd"), caps)),
        "at_least": draw(st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=2)),
        "window": draw(st.none() | st.integers(1, 4)),
    }  # fmt: skip
    if n:
        some = st.sampled_from(items)
        query["fixed"] = draw(st.dictionaries(some, st.integers(0, k - 1), max_size=3))
        query["given"] = draw(st.lists(some, max_size=2))
    return query


def broken(query: dict[str, Any], slate: list[str]) -> list[str]:
    """Return the rules that a slate breaks."""
    found = []
    category_of = dict(zip(query["candidates"], query["categories"], strict=True))
    held = Counter(category_of[item] for item in slate)
    at_most, at_least = query["at_most"], query["at_least"] or {}
    for name in "abcd":
        cap = at_most.get(name, 99) if isinstance(at_most, dict) else 99 if at_most is None else at_most
        if held[name] > cap:
            found.append(f"{held[name]} of {name}, at most {cap}")
        if held[name] < at_least.get(name, 0):
            found.append(f"{held[name]} of {name}, at least {at_least[name]}")
        places = [place for place, item in enumerate(slate) if category_of[item] == name]
        if any(later - earlier < (query["window"] or 1) for earlier, later in pairwise(places)):
            found.append(f"{name} at {places} with a window of {query['window']}")
    if len(set(slate)) < len(slate) or len(slate) > query["k"]:
        found.append("doubled or too long")
    if set(slate) & set(query.get("given", ())):
        found.append("chosen again")
    for item, place in query.get("fixed", {}).items():
        at = slate.index(item) if item in slate else None
        if len(slate) == query["k"] and at != place:
            found.append(f"{item} at {at} instead of {place} although the slate is whole")
        if at is None and not (query["window"] or 1) > 1:
            found.append(f"{item} left out")
        if at is not None and at > place:
            found.append(f"{item} at {at}, after {place}")
    return found


def possible(query: dict[str, Any]) -> tuple[bool, int]:
    """Tell if `at_least` can be kept and how long a slate can be, without window and fixed."""
    free = [
        category
        for item, category in zip(query["candidates"], query["categories"], strict=True)
        if item not in query.get("given", ())
    ]
    offered, at_most = Counter(free), query["at_most"]
    caps = {s: at_most.get(s, 99) if isinstance(at_most, dict) else 99 if at_most is None else at_most for s in "abcd"}
    needs = query["at_least"] or {}
    can = all(need <= min(caps[s], offered[s]) for s, need in needs.items()) and sum(needs.values()) <= query["k"]
    return can, min(query["k"], offered[None] + sum(min(caps[s], offered[s]) for s in "abcd"))


def check(query: dict[str, Any]) -> str:
    """Fail if a rule is broken, or if a query is refused or short without need; return the outcome."""
    simple = not query.get("fixed") and (query["window"] or 1) == 1
    try:
        items, scores, info = rerank(**query, return_info=True)
    except ParameterError as error:
        if not (query["at_least"] or query.get("fixed")) or (simple and possible(query)[0]):
            raise AssertionError("refused without need") from error
        return "refused"
    assert broken(query, items.tolist()) == []
    assert (info.reason is None) == (len(items) == query["k"])
    assert not simple or len(items) == possible(query)[1]
    assert scores.tolist() == [query["scores"][query["candidates"].index(item)] for item in items]
    assert [query["candidates"][position] for position in info.positions] == items.tolist()
    return "whole" if info.reason is None else "short"
