"""A DPP given what is already in the basket: next items, leave-one-out, conditional marginals.

Everything rests on one fact: given A, the kernel is L^A = V Z Vᵀ, Z = I − QᵀQ the projection off the rows Q
that span V_A. The next item is j with probability ∝ L^A_jj = ‖v_j‖² − ‖Q v_j‖².
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.dpp.interface import Block, Kernel
from contradpp.dpp.kernel import Array, LowRankKernel
from contradpp.dpp.linalg import safe_cholesky
from contradpp.errors import RankError

# Rows of one block of products Q Vᵀ: enough for the matrix product to run at full speed, small in memory.
ROWS_PER_BLOCK = 512


def next_scores(kernel: LowRankKernel, sets: Sets, *, candidates: NDArray[np.int64] | None = None) -> Iterator[Block]:
    """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block.

    `candidates` are codes in ascending order.

    Raises
    ------
    RankError
        If a set has as many items as the kernel's rank: no larger set is possible then.
    """
    from contradpp.dpp.compiled import kernels

    refuse_full(kernel, sets)
    V = kernel.factors if candidates is None else kernel.factors[candidates]
    norms = kernel.squared_norms if candidates is None else kernel.squared_norms[candidates]
    for first, last in runs(sets.indptr, ROWS_PER_BLOCK, most=ROWS_PER_BLOCK):
        part = take_sets(sets, np.arange(first, last))
        scores = np.tile(norms, (last - first, 1))
        if len(part.indices):
            rows = kernel.bases(part).rows.astype(V.dtype, copy=False)
            with blas_threads(kernel.n_jobs):
                products = rows @ V.T  # (entries, candidates)
            kernels.subtract_squares(scores, products, part.indptr)
        np.maximum(scores, 0.0, out=scores)
        rule_out_members(scores, part, candidates)
        yield Block(first, last, scores)


def next_totals(kernel: LowRankKernel, sets: Sets) -> Array:
    """Σ_j det L_{A∪j} / det L_A for every set, without a loop over items: tr C − Σ_q qᵀ C q."""
    rows = kernel.bases(sets).rows
    taken = np.einsum("ak,ak->a", rows @ kernel.dual, rows)
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    used = np.bincount(owner, weights=taken, minlength=sets.count)
    totals: Array = np.maximum(np.trace(kernel.dual) - used, 0.0)
    return totals


def leave_one_out(kernel: LowRankKernel, codes: NDArray[np.int32]) -> Array:
    """Row a: the next-item scores given the basket without its a-th item, from one factorisation (|A|, M).

    With W = L_A⁻¹, U = W V_A Vᵀ and c_j the score given all of A, the score of j given A∖i is
    c_j + U_ij² / W_ii. Items whose factors are dependent have no W; then each is left out in turn.
    """
    if len(codes) > kernel.n_components:
        raise RankError(too_large(len(codes), kernel.n_components))
    V, V_A = kernel.factors, kernel.factors[codes].astype(np.float64)
    if not np.isfinite(kernel.log_det(Sets.one(codes))[0]):
        return _one_by_one(kernel, codes)
    Q, R = qr(V_A.T, mode="economic")  # V_Aᵀ = Q R, so that W = R⁻¹ R⁻ᵀ
    Y = Q.T @ V.T  # (|A|, M)
    U = solve_triangular(R, Y)
    W_diagonal = np.square(solve_triangular(R, np.eye(len(codes)))).sum(axis=1)
    given_all = np.maximum(kernel.squared_norms - np.square(Y).sum(axis=0), 0.0)
    scores: Array = given_all + U**2 / W_diagonal[:, None]
    inside = np.zeros((len(codes), len(codes)))
    np.fill_diagonal(inside, 1.0 / W_diagonal)
    scores[:, codes] = inside
    return scores


def _one_by_one(kernel: LowRankKernel, codes: NDArray[np.int32]) -> Array:
    scores = np.empty((len(codes), kernel.n_items))
    for row, left_out in enumerate(codes):
        rest = codes[codes != left_out]
        Q = kernel.bases(Sets.one(rest)).rows
        scores[row] = np.maximum(kernel.squared_norms - np.square(Q @ kernel.factors.T).sum(axis=0), 0.0)
        scores[row, rest] = 0.0
    return scores


def marginals(kernel: LowRankKernel, given: NDArray[np.int32]) -> Array:
    """P(i ∈ Y | given ⊆ Y) for every item, 1 for the given: v_iᵀ Z (I + Z C Z)⁻¹ Z v_i."""
    N = complement(kernel, given)  # (K, r): Z = N Nᵀ
    R = safe_cholesky(np.eye(N.shape[1]) + N.T @ kernel.dual @ N, what="I + C")
    half = solve_triangular(R, N.T, lower=True)  # (r, K)
    inside: Array = np.minimum(np.square(kernel.factors @ half.T).sum(axis=1, dtype=np.float64), 1.0)
    inside[given] = 1.0
    return inside


def condition(kernel: LowRankKernel, given: NDArray[np.int32]) -> tuple[LowRankKernel, NDArray[np.int64]]:
    """The kernel of the remaining items given that `given` is in the set, and which items remain."""
    rest = np.setdiff1d(np.arange(kernel.n_items), given)
    N = complement(kernel, given)
    if not N.shape[1]:  # the given items exhaust the rank: nothing can join them
        N = np.zeros((kernel.n_components, 1))
    factors = kernel.factors[rest] @ N.astype(kernel.factors.dtype)
    return LowRankKernel(factors, n_jobs=kernel.n_jobs), rest


def complement(kernel: LowRankKernel, given: NDArray[np.int32]) -> Array:
    """Orthonormal columns that span what is orthogonal to the factors of `given` (K, K − |given|).

    Raises `RankError` where the given items are more than the rank, or dependent: their probability is 0.
    """
    K = kernel.n_components
    if not len(given):
        return np.eye(K)
    if len(given) > K:
        raise RankError(too_large(len(given), K))
    if not np.isfinite(kernel.log_det(Sets.one(given))[0]):
        raise RankError("the given items have probability zero together: their factors are linearly dependent")
    full: Array = qr(kernel.factors[given].T.astype(np.float64))[0]
    return full[:, len(given) :]


def refuse_full(kernel: Kernel, sets: Sets) -> None:
    """Raise `RankError` if a set leaves no room for a further item."""
    full = np.flatnonzero((sets.sizes >= kernel.rank) & (sets.sizes < kernel.n_items))
    if len(full):
        raise RankError(
            f"basket {full[0]} has {int(sets.sizes[full[0]])} items, and a kernel of rank {kernel.rank} gives every "
            f"larger set probability zero: pass fewer than {kernel.rank} items, or train with more components"
        )


def too_large(size: int, n_components: int) -> str:
    """The message for a set that is larger than the rank."""
    return (
        f"a set of {size} items has probability zero under a kernel of {n_components} components: "
        f"use at most {n_components} items, or train with n_components of {size} or more"
    )


def rule_out_members(scores: Array, sets: Sets, candidates: NDArray[np.int64] | None) -> None:
    """Give the items that are already in the basket the score −inf."""
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    column = sets.indices.astype(np.int64)
    if candidates is not None and len(candidates) == 0:
        return
    if candidates is not None:
        column = np.minimum(np.searchsorted(candidates, sets.indices), len(candidates) - 1)
        found = candidates[column] == sets.indices
        owner, column = owner[found], column[found]
    scores[owner, column] = -np.inf
