"""The definition of a slate in plain NumPy, made-up questions with rules, and a check that an answer keeps them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

import contradpp as cd
from contradpp.errors import ParameterError

RIDGE, TIE = 1e-3, 1e-9


# -- The definition ----------------------------------------------------------------------------------


def worth(scores: np.ndarray, scale: str, *, additive: bool) -> np.ndarray:
    """ℓ, or r for an additive trade."""
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
    """Φ."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    phi = unit @ unit.T
    np.fill_diagonal(phi, 1 + RIDGE)
    return phi


def log_det(phi: np.ndarray, sets: list[list[int]]) -> np.ndarray:
    """log det Φ_Y of sets of one size."""
    rows = np.array(sets, dtype=int).reshape(len(sets), -1)
    return np.linalg.slogdet(phi[rows[:, :, None], rows[:, None, :]])[1]


def variety(phi: np.ndarray, shown: list[int], free: list[int], method: str, reach: int, pairs: int) -> np.ndarray:
    """What each free candidate adds, by determinants and pairs."""
    if method in ("dpp", "window"):
        near = shown[-reach:] if method == "window" else shown
        return log_det(phi, [[*near, j] for j in free]) - log_det(phi, [near])[0]
    cosines = phi[np.ix_(free, shown)]
    if method == "mmr":
        return -cosines.max(axis=1) if shown else np.ones(len(free))
    return 2 * (1 - cosines).sum(axis=1) / max(pairs - 1, 1)


def define(
    scores: np.ndarray, phi: np.ndarray, k: int, delta: float, *, method: str = "dpp", scale: str = "rank",
    reach: int = 5, n_given: int = 0,
) -> list[int]:  # fmt: skip
    """The greedy slate; the rows of `phi` after the candidates are the given items."""
    n = len(scores)
    base = (1 - delta) * worth(scores, scale, additive=method in ("mmr", "msd"))
    order = np.argsort(-np.asarray(scores), kind="stable")
    shown = list(range(n, n + n_given))
    chosen: list[int] = []
    while len(chosen) < min(k, n):
        free = [j for j in order if j not in chosen]  # by score, so that the first of equals is the right one
        gains = base[free] + delta * variety(phi, shown, free, method, reach, k + n_given)
        best = free[int(np.flatnonzero(gains >= gains.max() - TIE)[0])]
        chosen.append(best)
        shown.append(best)
    return chosen


# -- Rules -------------------------------------------------------------------------------------------


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """A list of up to 14 candidates with all kinds of rules, some of them impossible to keep."""
    n, k = draw(st.integers(0, 14)), draw(st.integers(1, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shelves = [None, "a", "b", "c", "d"]
    caps = st.integers(0, 4)
    items = [f"i{number}" for number in range(n)]
    asked: dict[str, Any] = {
        "candidates": items, "scores": rng.integers(0, 6, n).astype(float), "k": k,
        "vectors": rng.integers(-2, 3, (n, 3)).astype(draw(st.sampled_from([np.float32, np.float64]))),
        "diversity": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "method": draw(st.sampled_from(["dpp", "mmr", "msd", "window"])),
        "categories": [shelves[number] for number in rng.integers(0, 5, n)],
        "at_most": draw(st.none() | caps | st.dictionaries(st.sampled_from("abcd"), caps)),
        "at_least": draw(st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=2)),
        "window": draw(st.none() | st.integers(1, 4)),
    }  # fmt: skip
    if n:
        some = st.sampled_from(items)
        asked["fixed"] = draw(st.dictionaries(some, st.integers(0, k - 1), max_size=3))
        asked["given"] = draw(st.lists(some, max_size=2))
    return asked


def broken(asked: dict[str, Any], slate: list[str]) -> list[str]:
    """The rules that a slate breaks."""
    found = []
    shelf = dict(zip(asked["candidates"], asked["categories"], strict=True))
    held = Counter(shelf[item] for item in slate)
    at_most, at_least = asked["at_most"], asked["at_least"] or {}
    for name in "abcd":
        cap = at_most.get(name, 99) if isinstance(at_most, dict) else 99 if at_most is None else at_most
        if held[name] > cap:
            found.append(f"{held[name]} of {name}, at most {cap}")
        if held[name] < at_least.get(name, 0):
            found.append(f"{held[name]} of {name}, at least {at_least[name]}")
        places = [place for place, item in enumerate(slate) if shelf[item] == name]
        if any(later - earlier < (asked["window"] or 1) for earlier, later in pairwise(places)):
            found.append(f"{name} at {places} with a window of {asked['window']}")
    if len(set(slate)) < len(slate) or len(slate) > asked["k"]:
        found.append("doubled or too long")
    if set(slate) & set(asked.get("given", ())):
        found.append("chosen again")
    for item, place in asked.get("fixed", {}).items():
        at = slate.index(item) if item in slate else None
        if len(slate) == asked["k"] and at != place:
            found.append(f"{item} at {at} instead of {place} although the slate is whole")
        if at is None and not (asked["window"] or 1) > 1:
            found.append(f"{item} left out")
        if at is not None and at > place:
            found.append(f"{item} at {at}, after {place}")
    return found


def possible(asked: dict[str, Any]) -> tuple[bool, int]:
    """Without window and fixed: whether `at_least` can be kept, and how many items a slate can have."""
    free = [
        shelf
        for item, shelf in zip(asked["candidates"], asked["categories"], strict=True)
        if item not in asked.get("given", ())
    ]
    offered, at_most = Counter(free), asked["at_most"]
    caps = {s: at_most.get(s, 99) if isinstance(at_most, dict) else 99 if at_most is None else at_most for s in "abcd"}
    needs = asked["at_least"] or {}
    can = all(need <= min(caps[s], offered[s]) for s, need in needs.items()) and sum(needs.values()) <= asked["k"]
    return can, min(asked["k"], offered[None] + sum(min(caps[s], offered[s]) for s in "abcd"))


def check(asked: dict[str, Any]) -> str:
    """Ask, and fail if a rule is broken, or if it is refused or short without need; says what happened."""
    simple = not asked.get("fixed") and (asked["window"] or 1) == 1
    try:
        items, scores, info = cd.rerank(**asked, return_info=True)
    except ParameterError as error:
        if not (asked["at_least"] or asked.get("fixed")) or (simple and possible(asked)[0]):
            raise AssertionError("refused without need") from error
        return "refused"
    assert broken(asked, items.tolist()) == []
    assert (info.reason is None) == (len(items) == asked["k"])
    assert not simple or len(items) == possible(asked)[1]
    assert scores.tolist() == [asked["scores"][asked["candidates"].index(item)] for item in items]
    assert [asked["candidates"][position] for position in info.positions] == items.tolist()
    return "whole" if info.reason is None else "short"
