"""The probability of a slate among all slates of its length, by the k-DPP diag(q) Φ diag(q)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from contradpp import slates as package
from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Complex
from contradpp.data.sets import Sets, take_sets
from contradpp.errors import ParameterError
from contradpp.slates.greedy import Vectors, check_diversity

SMALL = 1e-3  # items with |z w d| below this enter by a series
N_TERMS = 4  # of the series; the rest is 10⁻¹² of a term
LEAST_SHARE = 1e-6  # of the sum on the circle; with less, the circle is too small


def next_log_likelihoods(
    vectors: Vectors,
    sets: Sets,
    probabilities_of_sets: Iterable[tuple[int, int, Array]],
    slates: Sets,
    diversity: float,
    *,
    n_jobs: int = 1,
) -> Array:
    """Return log P(slate) given every set, with relevance on the scale "log".

    Parameters
    ----------
    vectors : Vectors
        A row per item.
    probabilities_of_sets : iterable
        The blocks of `next_probabilities`.
    slates : Sets
        A slate for every set.
    diversity : float
        Above 0.
    """
    check_diversity(diversity)
    if not diversity:
        raise ParameterError("score_slates needs a diversity above 0", parameters=("diversity",))
    out = np.empty(sets.count)
    tau = (1.0 - diversity) / diversity
    for first, last, block in probabilities_of_sets:
        numbers = np.arange(first, last)
        part = take_sets(sets, numbers)
        best = np.maximum(block.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        log_weights = tau * np.log(np.maximum(block / best, package.compiled.LOWEST))
        log_weights[part.owners, part.indices] = -np.inf
        out[first:last] = slate_log_likelihoods(
            vectors, log_weights, take_sets(slates, numbers), n_jobs=n_jobs
        )
    return out


def slate_log_likelihoods(
    vectors: Vectors, log_weights: Array, sets: Sets, *, n_jobs: int = 1
) -> Array:
    """Return log P(set) among all sets of its size, −inf for an impossible one.

    Parameters
    ----------
    vectors : Vectors
        R, a row per item; without rows Φ is the identity plus its ridge.
    log_weights : array (n_sets, M)
        log q_j², −inf for items that cannot be chosen.
    sets : Sets
        A set for every row of weights.
    """
    out = np.empty(sets.count)
    R = np.asarray(vectors.of_rows(np.arange(log_weights.shape[1])), dtype=np.float64)
    if not R.any():
        R = R[:, :0]
    diagonal_of_phi = 1.0 + package.compiled.RIDGE
    diagonal = diagonal_of_phi - np.square(R).sum(axis=1)

    def work(number: int) -> None:
        codes = sets.indices[sets.indptr[number] : sets.indptr[number + 1]]
        row = log_weights[number]
        free = np.flatnonzero(row > -np.inf)
        if len(codes) > len(free) or not np.isfinite(row[codes]).all():
            out[number] = -np.inf
            return
        phi = R[codes] @ R[codes].T
        np.fill_diagonal(phi, diagonal_of_phi)
        top = float(row.max(initial=0.0, where=row > -np.inf)) if len(free) else 0.0
        sums = log_sum_of_sets(np.exp(row[free] - top), R[free], diagonal[free], len(codes))
        out[number] = float((row[codes] - top).sum() + np.linalg.slogdet(phi)[1] - sums)

    with blas_threads(1):
        run_blocks(work, sets.count, n_jobs)
    return out


def log_sum_of_sets(w: Array, R: Array, d: Array, k: int) -> float:
    """Return log Σ_{|Y| = k} Π_{j∈Y} w_j · det(D + R Rᵀ)_Y, with D = diag(d).

    The sum is the coefficient of z^k in det(I + zL), found by a Fourier sum on a circle.
    """
    if k == 0:
        return 0.0
    n_points = 2 * k + 32  # larger sizes have no weight on the circle
    radius = _saddle_point(w, k)
    while True:
        turns = 2j * np.pi * np.arange(n_points // 2 + 1) / n_points
        logs = _log_dets(radius * np.exp(turns), w, R, d)
        top = float(logs[0].real)
        share = float(np.fft.irfft(np.exp(np.conj(logs) - top), n_points)[k])
        if share > LEAST_SHARE or radius > 1e200:
            return top + float(np.log(max(share, 1e-300))) - k * float(np.log(radius))
        radius *= 2.0  # repulsion makes sets of k rarer than independent items would


def _saddle_point(w: Array, k: int) -> float:
    """Return the z at which independent items with odds z w have a mean size of (about) k."""
    target = min(float(k), len(w) - 0.5)
    log_z = np.log(target / w.sum())
    for _ in range(60):
        p = 1.0 / (1.0 + np.exp(-log_z) / w)
        error = target - p.sum()
        if abs(error) < 1e-6:
            break
        log_z += np.clip(error / max(float((p * (1 - p)).sum()), 1e-12), -2.0, 2.0)
    return float(np.exp(log_z))


def _log_dets(z: Complex, w: Array, R: Array, d: Array) -> Complex:
    """Return log det(I + zL) for every z, all of one modulus."""
    odds = w * d
    is_small = abs(z[0]) * odds < SMALL
    head = np.flatnonzero(~is_small)
    tail = np.flatnonzero(is_small)
    logs = np.log1p(z[:, None] * odds[head]).sum(axis=1)
    inner = np.zeros((len(z), R.shape[1], R.shape[1]), dtype=np.complex128)
    tail_odds = odds[tail]
    tail_rows = R[tail]
    weights = w[tail].copy()
    for p in range(N_TERMS):
        sign = (-1.0) ** p
        logs = logs + sign * z ** (p + 1) / (p + 1) * np.sum(tail_odds ** (p + 1))
        if R.shape[1]:
            product = tail_rows.T @ (tail_rows * weights[:, None])
            inner += (sign * z**p)[:, None, None] * product
            weights *= tail_odds
    if not R.shape[1]:
        return np.asarray(logs, dtype=np.complex128)
    head_rows = R[head]
    rates = w[head] / (1.0 + z[:, None] * odds[head])  # (points, head)
    for point in range(len(z)):
        inner[point] += head_rows.T @ (head_rows * rates[point][:, None])
    sign, log_size = np.linalg.slogdet(np.eye(R.shape[1]) + z[:, None, None] * inner)
    return np.asarray(logs + log_size + np.log(sign), dtype=np.complex128)
