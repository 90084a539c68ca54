"""How likely a slate is: the k-DPP with kernel diag(q) Φ diag(q), whose greedy mode `slates` chooses.

log P(Y | |Y| = k) = Σ_{j∈Y} log q_j² + log det Φ_Y − log e_k, where e_k, the sum over all sets of k items, is the
coefficient of zᵏ in det(I + z diag(q) Φ diag(q)). With Φ = D + R Rᵀ, D = diag(1 + 10⁻³ − ‖r_j‖²) and w = q², that is
Π(1 + z w_j d_j) · det(I + z Rᵀ diag(w/(1 + z w d)) R). It is asked for on a circle through the saddle point, where the
terms hardly cancel. Items of small weight, which are nearly all of a large catalogue, enter by a few moments, once for
all z.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads, run_blocks
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import compiled
from contradpp.dpp.slates import Trade, Vectors

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

_SMALL = 1e-3  # |z w d| below which a series replaces an item
_TERMS = 4  # of that series: what is left out is 10⁻¹² of a term
_LEAST = 1e-6  # of the sum on the circle: below, the circle is too small


def next_log_likelihoods(
    vectors: Vectors, sets: Sets, shares_of_sets: Iterable[tuple[int, int, Array]], slates: Sets, trade: Trade,
    *, n_jobs: int = 1,
) -> Array:  # fmt: skip
    """log P(slate) given every set, with relevance as `rank.next_shares` gives it, by the rule of scale "log"."""
    out = np.empty(sets.count)
    power = (1.0 - trade.diversity) / trade.diversity
    for first, last, shares in shares_of_sets:
        numbers = np.arange(first, last)
        part = take_sets(sets, numbers)
        best = np.maximum(shares.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        worth = power * np.log(np.maximum(shares / best, compiled.slates.LOWEST))
        worth[np.repeat(np.arange(part.count), part.sizes), part.indices] = -np.inf
        out[first:last] = slate_log_likelihoods(vectors, worth, take_sets(slates, numbers), n_jobs=n_jobs)
    return out


def slate_log_likelihoods(vectors: Vectors, worth: Array, sets: Sets, *, n_jobs: int = 1) -> Array:
    """log P(set) among all sets of its size, for every set; −inf for one that cannot be.

    Parameters
    ----------
    vectors : Vectors
        R, a row per item; without rows Φ is the identity (but for its ridge).
    worth : array (n_sets, M)
        log q_j², −inf for items that cannot be chosen.
    sets : Sets
    """
    out = np.empty(sets.count)
    R = np.asarray(vectors.of_rows(np.arange(worth.shape[1])), dtype=np.float64)
    R = R[:, :0] if not R.any() else R
    one = 1.0 + compiled.slates.RIDGE  # what Φ has on its diagonal
    diagonal = one - np.square(R).sum(axis=1)

    def work(number: int) -> None:
        codes = sets.indices[sets.indptr[number] : sets.indptr[number + 1]]
        row = worth[number]
        free = np.flatnonzero(row > -np.inf)
        if len(codes) > len(free) or not np.isfinite(row[codes]).all():
            out[number] = -np.inf
            return
        within = R[codes] @ R[codes].T
        np.fill_diagonal(within, one)
        top = float(row.max(initial=0.0, where=row > -np.inf)) if len(free) else 0.0
        sums = log_sum_of_sets(np.exp(row[free] - top), R[free], diagonal[free], len(codes))
        out[number] = float((row[codes] - top).sum() + np.linalg.slogdet(within)[1] - sums)

    with blas_threads(1):
        run_blocks(work, sets.count, n_jobs)
    return out


def log_sum_of_sets(w: Array, R: Array, d: Array, k: int) -> float:
    """log Σ_{|Y| = k} Π_{j∈Y} w_j · det(D + R Rᵀ)_Y."""
    if k == 0:
        return 0.0
    n = 2 * k + 32  # points: sizes that far beyond k have no weight on the circle
    radius = _saddle(w, k)
    while True:
        turns = 2j * np.pi * np.arange(n // 2 + 1) / n
        logs = _log_dets(radius * np.exp(turns), w, R, d)
        at = float(logs[0].real)
        share = float(np.fft.irfft(np.exp(np.conj(logs) - at), n)[k])
        if share > _LEAST or radius > 1e200:
            return at + float(np.log(max(share, 1e-300))) - k * float(np.log(radius))
        radius *= 2.0  # items repel each other: sets of k are rarer than they would be by chance


def _saddle(w: Array, k: int) -> float:
    """The z at which independent items with odds z w are k on average (or nearly all there are)."""
    aim = min(float(k), len(w) - 0.5)
    t = np.log(aim / w.sum())
    for _ in range(60):
        share = 1.0 / (1.0 + np.exp(-t) / w)
        off = aim - share.sum()
        if abs(off) < 1e-6:
            break
        t += np.clip(off / max(float((share * (1 - share)).sum()), 1e-12), -2.0, 2.0)
    return float(np.exp(t))


def _log_dets(z: Complex, w: Array, R: Array, d: Array) -> Complex:
    """log det(I + zL) for every z, all of one modulus."""
    odds = w * d
    small = abs(z[0]) * odds < _SMALL
    head, tail = np.flatnonzero(~small), np.flatnonzero(small)
    logs = np.log1p(z[:, None] * odds[head]).sum(axis=1)
    inner = np.zeros((len(z), R.shape[1], R.shape[1]), dtype=np.complex128)
    powers, most = odds[tail], R[tail]
    weights = w[tail].copy()
    for p in range(_TERMS):
        sign = (-1.0) ** p
        logs = logs + sign * z ** (p + 1) / (p + 1) * np.sum(powers ** (p + 1))
        if R.shape[1]:
            inner += (sign * z**p)[:, None, None] * (most.T @ (most * weights[:, None]))
            weights *= powers
    if not R.shape[1]:
        return np.asarray(logs, dtype=np.complex128)
    X = R[head]
    rates = w[head] / (1.0 + z[:, None] * odds[head])  # (points, head)
    for point in range(len(z)):
        inner[point] += X.T @ (X * rates[point][:, None])
    sign, size = np.linalg.slogdet(np.eye(R.shape[1]) + z[:, None, None] * inner)
    return np.asarray(logs + size + np.log(sign), dtype=np.complex128)
