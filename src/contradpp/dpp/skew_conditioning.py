"""A nonsymmetric DPP given what is already in the basket: next items, their sum, and the kernel of the rest.

Given A, the kernel is L^A = L − L_:A W L_A:, W = L_A⁻¹, and the next item is j with probability ∝ L^A_jj. One matrix
product gives L_:Aᵀ and W L_A: of a block of baskets, but for the few entries of S that concern them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, runs, take_sets
from contradpp.dpp.conditioning import refuse_full, rule_out_members
from contradpp.dpp.interface import Block
from contradpp.dpp.kernel import Array
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.nonsymmetric import Inverses, NonsymmetricKernel

# Entries of one block: each has two rows of M products in memory.
ENTRIES_PER_BLOCK = 256


def next_scores(
    kernel: NonsymmetricKernel, sets: Sets, *, candidates: NDArray[np.int64] | None = None
) -> Iterator[Block]:
    """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block.

    `candidates` are codes in ascending order. `RankError` if a set has probability zero, or leaves no room.
    """
    refuse_full(kernel, sets)
    for first, last in runs(sets.indptr, ENTRIES_PER_BLOCK, most=ENTRIES_PER_BLOCK):
        part = take_sets(sets, np.arange(first, last))
        inverses = kernel.inverses(part)
        if len(inverses.singular):
            refuse_impossible(first + int(inverses.singular[0]))
        with blas_threads(kernel.n_jobs):
            scores = scores_given(kernel, part, inverses, candidates=candidates)
        np.maximum(scores, 0.0, out=scores)
        rule_out_members(scores, part, candidates)
        yield Block(first, last, scores)


def scores_given(
    kernel: NonsymmetricKernel, sets: Sets, inverses: Inverses, *, candidates: NDArray[np.int64] | None = None
) -> Array:
    """L_jj − L_jA W L_Aj for every set and candidate, nothing ruled out (n_sets, candidates)."""
    from contradpp.dpp.compiled import skew_kernels

    X, norms, skew = kernel.factors, kernel.squared_norms, kernel.skew
    if candidates is not None:
        X, norms = X[candidates], norms[candidates]
        skew = skew.take_columns(candidates) if skew.n_entries else skew
    scores: Array = np.tile(norms, (sets.count, 1))
    if len(sets.indices) and scores.shape[1]:
        rows = np.empty((2 * len(sets.indices), kernel.n_components))
        skew_kernels.rows_of_sets(
            kernel.left, kernel.right, sets.indptr, sets.indices, inverses.offsets, inverses.W, rows
        )
        products = rows @ X.T  # (2 · entries, candidates)
        skew_kernels.add_partners(products, 0, *skew, sets.indptr, sets.indices, inverses.offsets, inverses.W)
        skew_kernels.subtract_products(scores, products, sets.indptr)
    return scores


def next_totals(kernel: NonsymmetricKernel, sets: Sets) -> Array:
    """Σ_j det L_{A∪j} / det L_A for every set: the sum of all scores."""
    totals = np.empty(sets.count)
    for block in next_scores(kernel, sets):
        totals[block.first : block.last] = np.maximum(block.scores, 0.0).sum(axis=1)
    return totals


def condition(kernel: NonsymmetricKernel, given: NDArray[np.int32]) -> tuple[NonsymmetricKernel, NDArray[np.int64]]:
    """The kernel of the remaining items given that `given` is in the set, and which items remain.

    With Z = S_:A on the remaining items, a = G X_Aᵀ and bᵀ = X_A G, the kernel L_:: − (X a + Z) W (bᵀ Xᵀ − Zᵀ) is of
    the same form: X' = [X Z], G' = [[G − a W bᵀ, a W], [−W bᵀ, W]], and S of the remaining items.
    """
    from contradpp.dpp.nonsymmetric import NonsymmetricKernel

    rest = np.setdiff1d(np.arange(kernel.n_items), given)
    if not len(given):
        return kernel, rest
    inverses = kernel.inverses(Sets.one(given))
    if len(given) > kernel.rank or len(inverses.singular):
        raise RankError(
            f"the {len(given)} given items have probability zero as a set: they are linearly dependent, or more than "
            "the kernel's components and not linked"
        )
    W = inverses.W.reshape(len(given), -1)
    a, b = kernel.right[given].T, kernel.left[given]  # (r, k), (k, r)
    X, G = kernel.factors[rest], kernel.gain - a @ W @ b
    linked = np.flatnonzero(np.diff(kernel.skew.indptr)[given])  # Z has a column only for these
    if len(linked):
        Z = kernel.skew.matrix()[given[linked]][:, rest].toarray().T * -1.0  # S_:A = −(S_A:)ᵀ
        W_to, W_from = W[:, linked], W[linked]
        X = np.hstack([X, Z])
        G = np.block([[G, a @ W_to], [-W_from @ b, W[np.ix_(linked, linked)]]])
    return NonsymmetricKernel(X, G, kernel.skew.take(rest), n_jobs=kernel.n_jobs), rest


def refuse_impossible(basket: int) -> None:
    """Raise the error for a basket that has probability zero."""
    raise RankError(
        f"basket {basket} has probability zero: its items are more than the kernel's components and not linked, or "
        "their factors are linearly dependent; pass fewer items, or train with more components"
    )
