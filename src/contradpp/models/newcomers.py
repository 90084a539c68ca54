"""What features add to a model of several voices: items without sales are judged by them, and others steadied.

`models/kin.py` says how: signs s of an item j given a basket A, and weights of them. With g for what the voices say,
an item with n sales has the logit

    (1 − μ) (g + λ ηᵀ(log lift, cosine)) + μ ϑᵀs

μ is 1 without sales, 0 for items that were there when the model was fitted, and 2/(2 + n) for those that came later:
the more they sell, the more the voices speak for them. λ = κ/(κ + n): where little was seen, the items that are alike
count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._threads import run_blocks
from contradpp.data.features import Matrix, Turned
from contradpp.data.sets import Sets, pointers, runs, take_sets, without_each
from contradpp.models.kin import Alike, Array, Kin, find_kin, learn_sales
from contradpp.models.questions import Questions, learn_weights
from contradpp.models.relevance import MOST_WEIGHT, PRIOR, SCORES_PER_BLOCK, Relevance, Weights, log_sizes
from contradpp.models.rows import indicator
from contradpp.models.scores import softmax

Entries = NDArray[np.int64]

N_SIGNS = 5  # one, log p̂, log p̃, log lift, cosine
START = np.array([[0.0, 0.5, 0.5, 1.0, 0.0], [0.0] * N_SIGNS])  # ϑ before any data
STEADY = (3, 4)  # the signs that steady items with sales
FADES = (10.0, 30.0, 100.0)  # κ that are tried
ARRIVED = 2.0  # sales at which the voices speak as loud as features for an item that came later
LEAST_SHARE = 0.1  # λ and μ below this count as nothing
_MOCK = 73  # key of a random stream


class Judgement(NamedTuple):
    """How features are heard: learned once, and kept as items and sales arrive."""

    theta: Array = START  # (2, 5): ϑ₀ and ϑ₁
    steady: Array = np.zeros((2, 2))  # η₀ and η₁
    fade: float = 0.0  # κ; 0: features say nothing of items that sell
    n_fitted: int = 0  # items that were there when the model was fitted
    rank: float = float("nan")  # MPR of held-out items that were judged as though they had no sales, among such items

    def shares(self, counts: Array) -> tuple[Array, Array]:
        """λ and μ of items with these sales."""
        steady = self.fade / (self.fade + np.maximum(counts, 1.0))
        late = np.where(np.arange(len(counts)) >= self.n_fitted, ARRIVED / (ARRIVED + counts), 0.0)
        alone = np.where(counts > 0, late, 1.0)
        return np.where(steady < LEAST_SHARE, 0.0, steady), np.where(alone < LEAST_SHARE, 0.0, alone)


@dataclass
class Newcomers:
    """The items that features speak for, wholly or in part, and how."""

    judgement: Judgement
    n_known: int  # items that the voices know; those behind them came later
    codes: Entries  # ascending
    steady: Array  # λ of each
    alone: Array  # μ of each
    alike: Alike
    log_shares: Array  # log p̂ of each
    usual: Array  # (n_known,): the share of every known item in all sales
    matrix: Matrix = field(repr=False)  # features of all items

    @classmethod
    def of(cls, kin: Kin, counts: Array, judgement: Judgement, n_jobs: int = 1) -> Newcomers:
        """Newcomers among items with these sales, all of which the voices know."""
        steady, alone = judgement.shares(counts)
        codes = np.flatnonzero((steady > 0) | (alone > 0))
        alike = find_kin(kin.matrix.take(codes), kin.matrix, counts, codes, n_jobs=n_jobs)
        usual, log_shares = counts / max(counts.sum(), 1.0), kin.log_shares[codes]
        return cls(judgement, len(counts), codes, steady[codes], alone[codes], alike, log_shares, usual, kin.matrix)

    def add(self, rows: Matrix, alike: Alike, log_shares: Array) -> Newcomers:
        """With items that came just now."""
        n, new = len(self.matrix), len(rows)
        return Newcomers(
            self.judgement, self.n_known, np.concatenate([self.codes, np.arange(n, n + new)]),
            np.concatenate([self.steady, np.zeros(new)]), np.concatenate([self.alone, np.ones(new)]),
            Alike(np.vstack([self.alike.codes, alike.codes]), np.vstack([self.alike.weights, alike.weights])),
            np.concatenate([self.log_shares, log_shares]), self.usual, self.matrix.append(rows),
        )  # fmt: skip

    def contents(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a model file holds of it, besides the features."""
        tensors: dict[str, NDArray[Any]] = {"newcomers.kin": self.alike.codes, "newcomers.weights": self.alike.weights}
        tensors |= {"newcomers.theta": self.judgement.theta, "newcomers.steady": self.judgement.steady}
        told = {"fade": self.judgement.fade, "n_fitted": self.judgement.n_fitted, "n_known": self.n_known}
        rank = self.judgement.rank
        return tensors, told | {"rank": rank if np.isfinite(rank) else None}

    @classmethod
    def restored(
        cls, tensors: Mapping[str, NDArray[Any]], told: Mapping[str, Any], kin: Kin, counts: Array
    ) -> Newcomers:
        """From a model file, or ValueError if it is damaged."""
        theta, steadying = (tensors[f"newcomers.{name}"].astype(np.float64) for name in ("theta", "steady"))
        n_known = int(told["n_known"])
        rank = float("nan") if told["rank"] is None else float(told["rank"])
        judgement = Judgement(theta, steadying, float(told["fade"]), int(told["n_fitted"]), rank)
        if not 0 <= judgement.fade < np.inf:
            raise ValueError(f"what it knows of new items fades by {judgement.fade}")
        steady, alone = judgement.shares(counts)
        steady[n_known:] = 0.0  # of items that no voice knows yet
        codes = np.flatnonzero((steady > 0) | (alone > 0))
        alike = Alike(tensors["newcomers.kin"].astype(np.int32), tensors["newcomers.weights"].astype(np.float32))
        fits = alike.codes.shape == alike.weights.shape and alike.codes.shape[:1] == codes.shape
        fits = fits and alike.codes.ndim == 2 and theta.shape == (2, N_SIGNS) and 0 < n_known <= len(counts)
        fits = fits and steadying.shape == (2, len(STEADY)) and bool(np.isfinite(steadying).all())
        inside = not alike.codes.size or 0 <= alike.codes.min() <= alike.codes.max() < n_known
        fits = fits and not (alike.weights < 0).any()
        fair = np.abs(theta).max(initial=0.0) <= MOST_WEIGHT and np.isfinite(alike.weights).all()
        if not fits or not inside or not fair:
            raise ValueError("what it knows of new items does not fit its items")
        usual, log_shares = (counts / max(counts.sum(), 1.0))[:n_known], kin.log_shares[codes]
        return cls(judgement, n_known, codes, steady[codes], alone[codes], alike, log_shares, usual, kin.matrix)

    # -- Baskets that hold items without sales ---------------------------------------------------------

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """Which items no voice can hear, because they never sold (M,)."""
        silent = np.zeros(len(self.matrix), dtype=bool)
        silent[self.codes[self.alone == 1.0]] = True
        return silent

    def heard(self, sets: Sets) -> Sets:
        """The sets with the closest kin that is not in the set in the place of every item without sales."""
        if not self.silent[sets.indices].any():
            return sets
        rows = [self.stand_ins(sets.indices[a:b]) for a, b in zip(sets.indptr, sets.indptr[1:], strict=False)]
        kept = [row[row >= 0] for row in rows]
        return Sets(pointers([len(row) for row in kept]), np.concatenate([*kept, np.zeros(0, dtype=np.int32)]))

    def stand_ins(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The items as the voices hear them, −1 for one that has no kin."""
        taken = set(codes[~self.silent[codes]].tolist())
        heard = codes.astype(np.int32).copy()
        for place in np.flatnonzero(self.silent[codes]).tolist():
            row = int(np.searchsorted(self.codes, codes[place]))
            kin = self.alike.codes[row][self.alike.weights[row] > 0].tolist()
            heard[place] = next((code for code in kin if code not in taken), -1)
            taken.add(int(heard[place]))
        return heard

    # -- Logits ------------------------------------------------------------------------------------------

    def write_logits(self, relevance: Relevance, sets: Sets, out: Array, *, each: bool = False) -> None:
        """As `Relevance.write_logits`, for all items: those that the voices know, and those that came later."""
        if each and self.silent[sets.indices].any():
            sets, each = without_each(sets), False
        known = np.empty((len(out), self.n_known))
        relevance.write_logits(self.heard(sets), known, each=each)
        known -= log_sums(known)[:, None]
        own = self.codes < self.n_known
        voiced = np.zeros((len(out), len(self.codes)))
        voiced[:, own] = known[:, self.codes[own]]
        out[:, : self.n_known] = known
        asked = without_each(sets) if each else sets
        out[:, self.codes] = self.mixed(voiced, self.company(asked, known), asked.sizes)

    def mixed(self, voiced: Array, company: Array, sizes: Entries) -> Array:
        """The logits of newcomers from what the voices say of them, and from their lift and cosine (n_sets, C)."""
        alone, steadying = (self._weights(sizes, steady=steady) for steady in (False, True))
        logits = voiced
        for sign, weights in zip(company, steadying.T, strict=True):
            logits += weights[:, None] * (self.steady * sign)
        logits *= 1.0 - self.alone
        which = np.flatnonzero(self.alone > 0)
        told = alone[:, :3] @ self._own_signs[:, which]
        for sign, weights in zip(company, alone[:, 3:].T, strict=True):
            told += weights[:, None] * sign[:, which]
        logits[:, which] += self.alone[which] * told
        return logits

    def _weights(self, sizes: Entries, *, steady: bool) -> Array:
        """η(n) or ϑ(n) for sets of these sizes."""
        first, second = self.judgement.steady if steady else self.judgement.theta
        weights: Array = first + log_sizes(sizes)[:, None] * second
        return weights

    def signs(self, sets: Sets, known: Array) -> Array:
        """g of every sign, set and newcomer, given the logits of known items, which are overwritten (5, n_sets, C)."""
        signs = np.empty((N_SIGNS, sets.count, len(self.codes)))
        signs[:3] = self._own_signs[:, None]
        signs[3:] = self.company(sets, known)
        return signs

    def company(self, sets: Sets, known: Array) -> Array:
        """The signs that depend on the basket, lift and cosine, as `signs` has them (2, n_sets, C)."""
        softmax(known)
        floor, shares = usual_floor(self.usual), self._kin_shares
        signs = np.empty((2, sets.count, len(self.codes)))
        np.add((self._mix @ known.T).T, floor, out=signs[0])
        signs[0] /= shares + floor
        np.log(signs[0], out=signs[0])
        signs[0][:, shares == 0] = 0.0
        signs[1] = self._turned.products(basket_means(self.matrix, sets))
        return signs

    @cached_property
    def _own_signs(self) -> Array:
        """The signs that do not depend on the basket (3, C)."""
        floor, shares = usual_floor(self.usual), self._kin_shares
        by_kin = np.log(np.where(shares > 0, shares, floor) / floor)
        return np.stack([np.ones(len(shares)), self.log_shares - np.log(floor), by_kin])

    @cached_property
    def _kin_shares(self) -> Array:
        return self.alike.mean(self.usual)

    def explain(
        self, relevance: Relevance, codes: NDArray[np.int32], items: NDArray[np.int64]
    ) -> tuple[Array, Array, Array]:
        """1 − μ of every item (m,), and what features say whatever the basket holds (m,) and by its items (m, n).

        What an item says is what it would say alone, over the size of the basket, and an equal part of what only the
        whole basket says.
        """
        n, m = len(codes), len(items)
        voiced, alone, parts = np.ones(m), np.zeros(m), np.zeros((m, n))
        places = np.searchsorted(self.codes, items)
        found = np.append(self.codes, -1)[places] == items
        if not found.any():
            return voiced, alone, parts
        sets = Sets(pointers([n, *[1] * n]), np.concatenate([codes, codes]))
        known = np.empty((n + 1, self.n_known))
        relevance.write_logits(self.heard(sets), known)
        signs = self.signs(sets, known)  # (5, n + 1, C)
        lone, steady = (self._weights(np.array([n]), steady=kind)[0] for kind in (False, True))
        for row in np.flatnonzero(found).tolist():
            place = places[row]
            own = float(self.alone[place])
            theta = own * lone
            theta[list(STEADY)] += (1.0 - own) * self.steady[place] * steady
            single = theta[3:] @ signs[3:, 1:, place] / n
            rest = (theta[3:] @ signs[3:, 0, place] - single.sum()) / n
            voiced[row], alone[row], parts[row] = 1.0 - own, theta[:3] @ signs[:3, 0, place], single + rest
        return voiced, alone, parts

    @cached_property
    def _mix(self) -> Any:
        return self.alike.mix(self.n_known)

    @cached_property
    def _turned(self) -> Turned:
        return self.matrix.take(self.codes).turned()


def usual_floor(usual: Array) -> float:
    """Twice the share of a usual item: what keeps the lift of rare kin from being luck."""
    sold = usual[usual > 0]
    return 2.0 * float(np.median(sold)) if len(sold) else 1.0


def basket_means(matrix: Matrix, sets: Sets) -> Matrix:
    """The mean features of every set's items."""
    mix = indicator(sets, len(matrix))
    mix.data = mix.data / np.repeat(np.maximum(sets.sizes, 1), sets.sizes)
    return matrix.mixed(mix.astype(np.float32))


# -- Learning ϑ and κ ------------------------------------------------------------------------------------


def learn_judgement(
    relevance: Relevance, sets: Sets, questions: Questions | None, matrix: Matrix, counts: Array, seed: int, n_jobs: int
) -> Judgement:
    """ϑ from held-out items, half of the catalogue judged as though it had no sales; then η and κ."""
    if questions is None:
        return Judgement(n_fitted=len(counts))
    everyone = np.arange(len(counts))
    alike = find_kin(matrix, matrix, counts, everyone, n_jobs=n_jobs)
    all_new = Newcomers(Judgement(), len(counts), everyone, np.zeros(len(counts)), np.ones(len(counts)), alike,
                        learn_sales(matrix, counts).log_shares, counts / max(counts.sum(), 1.0), matrix)  # fmt: skip
    signs, log_totals = ask_signs(relevance, sets, questions.codes, all_new, n_jobs)
    warm = questions.logits(relevance.theta(questions.given), n_jobs) - log_totals[:, None]
    mock = stream(seed, _MOCK).random(len(counts)) < 0.5
    judged = mock[questions.codes]
    offset = np.where(judged, 0.0, warm) + questions.log_counts
    by_size = questions.given[:, :2]
    asked = Questions(signs * judged[..., None], offset.astype(np.float32), by_size, questions.codes)
    precision = np.diag(np.tile(np.square(asked.spread(n_jobs)), 2)) * PRIOR
    found = learn_weights(asked, Weights(START, precision), n_jobs).theta
    cold = np.einsum("ncf,nf->nc", signs, by_size @ found)
    rank = _mean_rank(cold, questions.log_counts, judged)
    steady, fade = _learn_steadying(signs[..., list(STEADY)], warm, questions, counts)
    return Judgement(found, steady, fade, len(counts), rank)


def ask_signs(
    relevance: Relevance, sets: Sets, codes: NDArray[np.int32], newcomers: Newcomers, n_jobs: int
) -> tuple[NDArray[np.float32], Array]:
    """The signs of the items of every question, all judged as newcomers (N, C, 5), and log Σ exp of all logits (N,)."""
    M = newcomers.n_known
    signs, log_totals = np.empty((*codes.shape, N_SIGNS), dtype=np.float32), np.empty(len(codes))
    blocks = list(runs(sets.indptr, max(SCORES_PER_BLOCK // M, 1)))

    def work(block: int) -> None:
        first, last = blocks[block]
        part, start = take_sets(sets, np.arange(first, last)), int(sets.indptr[first])
        known = np.empty((len(part.indices), M))
        relevance.write_logits(part, known, each=True)
        log_totals[start : start + len(known)] = log_sums(known)
        told = newcomers.signs(without_each(part), known)
        for entry in range(len(known)):
            signs[start + entry] = told[:, entry, codes[start + entry]].T

    run_blocks(work, len(blocks), n_jobs)
    return signs, log_totals


def log_sums(logits: Array) -> Array:
    """log Σ exp of every row."""
    top = logits.max(axis=1)
    sums: Array = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return sums


def _mean_rank(cold: Array, log_counts: NDArray[np.floating], judged: NDArray[np.bool_]) -> float:
    """MPR of the first item among the others that are judged alike, each of which stands for several."""
    weights = np.where(judged, np.exp(log_counts), 0.0)[:, 1:]
    ahead = (cold[:, :1] > cold[:, 1:]) + 0.5 * (cold[:, :1] == cold[:, 1:])
    totals = weights.sum(axis=1)
    usable = judged[:, 0] & (totals > 0)
    if not usable.any():
        return float("nan")
    return float(100.0 * ((weights * ahead).sum(axis=1)[usable] / totals[usable]).mean())


def _learn_steadying(
    signs: NDArray[np.float32], voiced: Array, questions: Questions, counts: Array
) -> tuple[Array, float]:
    """η and κ under which held-out items are likeliest, learned on one half and judged on the other.

    Nothing, unless that is better than the voices alone by more than a standard error.
    """
    offset = (voiced + questions.log_counts).astype(np.float32)
    nothing = Weights(np.zeros((2, len(STEADY))), np.empty((0, 0)))
    half = np.arange(len(offset)) * 2 // max(len(offset), 1)

    def asked(fade: float, rows: Any) -> Questions:
        share = fade / (fade + np.maximum(counts, 1.0))
        steadied = np.where(share < LEAST_SHARE, 0.0, share)[questions.codes[rows]].astype(np.float32)
        return Questions(signs[rows] * steadied[..., None], offset[rows], questions.given[rows, :2])

    def learned(part: Questions) -> Array:
        precision = np.diag(np.tile(np.square(part.spread()), 2)) * PRIOR
        return learn_weights(part, Weights(nothing.theta, precision)).theta

    def gains(fade: float) -> Array:
        found = np.empty(len(offset))
        for h in (0, 1):
            theta, part = learned(asked(fade, half != h)), asked(fade, half == h)
            found[half == h] = log_likelihoods(part, theta) - log_likelihoods(part, nothing.theta)
        return found

    found = {fade: gains(fade) for fade in FADES}
    best = max(found, key=lambda fade: float(found[fade].mean()))
    if not found[best].mean() > found[best].std() / np.sqrt(len(offset)):
        return nothing.theta, 0.0
    return learned(asked(best, slice(None))), best


def log_likelihoods(questions: Questions, theta: Array) -> Array:
    """log P(held-out item) of every question."""
    logits = questions.logits(questions.given @ theta) + questions.log_counts
    found: Array = logits[:, 0] - log_sums(logits)
    return found
