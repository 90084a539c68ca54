"""What a DPP given a basket says of every item, as far as rounding allows: the scores that others weigh and rank by.

They are the next scores of `condition`, but no item is ruled out, no basket is refused, and no score need be told from
zero; so that squares will do for L = D + V Vᵀ + S, too, but for partners of the basket. Prefixes of a basket, and a
basket without each of its items in turn, take one factorisation each.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, frozen, pointers, prefixes, runs, sums_over_sets, take_sets, without_each
from contradpp.dpp import compiled, factor
from contradpp.dpp.condition import COLUMNS_PER_TILE, ROWS_PER_BLOCK, product_tiles, rows_of_sets, tiles

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]

# A basket of probability zero is ranked as if L_A, scaled to entries of at most 1, had this much more on its diagonal.
RIDGE = 1e-6
# Where 1/W_ii is further than this factor from L_ii, the closed form loses more than rounding: leave out one by one.
NEARLY_DEPENDENT = 1e-6
# Entries of a set of a symmetric kernel that are left out by a factorisation each, which never squares a condition.
MOST_LEFT_OUT = 100
# Items of which a dense matrix may be made for one answer.
MOST_ELIMINATED = 2000
# Numbers of a table of one set's members and their partners.
MOST_LINKED = 2**20


def scores_given(kernel: Kernel, sets: Sets, *, n_jobs: int = 1) -> Array:
    """L_jj − L_jA W L_Aj for every set and item, nothing ruled out, as far as rounding allows (n_sets, M).

    What a set of probability zero says is what its independent items say, or with a skew part those of a `RIDGE`.
    """
    scores: Array = np.empty((sets.count, kernel.n_items))
    write_scores_given(kernel, sets, scores, n_jobs=n_jobs)
    return scores


@blas_threads(1)
def write_scores_given(kernel: Kernel, sets: Sets, scores: Array, *, n_jobs: int = 1) -> None:
    """Write `scores_given`."""
    for first, last in runs(sets.indptr, ROWS_PER_BLOCK // 2):
        part, out = take_sets(sets, np.arange(first, last)), scores[first:last]
        given = (
            factor.bases(kernel, part, n_jobs=n_jobs)
            if kernel.symmetric
            else factor.inverses(kernel, part, ridge=RIDGE, n_jobs=n_jobs)
        )
        if isinstance(given, factor.Inverses) and kernel.plain and _have_few_partners(kernel, part):
            _write_by_squares(kernel, part, given, out)
            continue
        for columns, E, U in tiles(kernel, part, given):
            _write_what_is_left(kernel.squared_norms[columns], E, U, part.indptr, out[:, columns])


def _write_what_is_left(
    norms: Array, E: NDArray[np.floating], U: NDArray[np.floating], indptr: NDArray[np.int64], out: Array
) -> None:
    """Write norms − Σ_a E_aj U_aj over the rows a of every set, as far as rounding allows."""
    tile, never = np.ascontiguousarray(out), np.full(len(out), -np.inf)  # of one set it is `out`
    tile[:] = norms
    compiled.kernels.subtract_products(tile, E, U, indptr, never)
    if tile is not out:
        out[:] = tile


def _have_few_partners(kernel: Kernel, sets: Sets) -> bool:
    """Whether tables of a set's members and all of their partners are small."""
    starts = kernel.skew.indptr
    partners = sums_over_sets((starts[sets.indices + 1] - starts[sets.indices]).astype(np.float64), sets)
    return bool((partners * sets.sizes).max(initial=0.0) <= MOST_LINKED)


def _write_by_squares(kernel: Kernel, sets: Sets, given: factor.Inverses, scores: Array) -> None:
    """Write `scores_given` where G is the identity.

    Of an item that S does not link to A, x_jᵀ X_Aᵀ W X_A x_j is subtracted, for which only the symmetric part of W
    counts. That has no negative eigenvalue, as that of L_A has none, so that |C x_j|² is the same: C has half of the
    rows of E and U, and no more than X has columns. The few items that are linked follow by definition.

    Members are scaled to L_ii = 1 first: a factor of W as it is would know those that sell little only as far as the
    rounding of those that W makes most of.
    """
    X, norms, roots = kernel.wide, kernel.squared_norms, []
    members = [sets.indices[first:last] for first, last in itertools.pairwise(sets.indptr.tolist())]
    for s, codes in enumerate(members):
        scales = np.sqrt(np.where(norms[codes] > 0, norms[codes], 1.0))
        own, W = X[codes] / scales[:, None], given.of(s) * scales[:, None] * scales
        narrow = len(codes) <= X.shape[1]
        half = W if narrow else own.T @ (W @ own)
        values, vectors = np.linalg.eigh(half + half.T)
        root = np.sqrt(np.maximum(values, 0.0) / 2)[:, None] * vectors.T
        roots.append(root @ own if narrow else root)
    indptr = frozen(pointers(np.minimum(sets.sizes, X.shape[1])))  # as those of sets are: one kernel is enough
    for columns, Y in product_tiles(np.concatenate(roots), kernel.by_column):
        _write_what_is_left(norms[columns], Y, Y, indptr, scores[:, columns])
    for s, codes in enumerate(members):
        owner, partners, values = kernel.skew.entries(codes)
        near, place = np.unique(partners, return_inverse=True)
        S = np.zeros((len(codes), len(near)))
        S[owner, place] = values
        both = X[codes] @ X[near].T
        scores[s, near] = norms[near] - ((both - S) * (given.of(s) @ (both + S))).sum(axis=0)


def scores_given_prefixes(kernel: Kernel, codes: NDArray[np.int32], items: NDArray[np.int64]) -> Array:
    """`scores_given` of some items, given the first 0, 1, ..., n of these codes (n + 1, m).

    Elimination of one code after the other leaves the kernel given those before it: one pass for all prefixes. Where
    one of them is nearly dependent on those before it, each is looked at on its own; of many codes it is passed over.
    """
    if len(codes) > factor.LARGE:
        with blas_threads(1):
            return _eliminated_in_blocks(kernel, codes, items)
    kept = np.unique(np.append(codes, items).astype(np.int64))
    small, asked, order = kernel.take(kept), np.searchsorted(kept, items), np.searchsorted(kept, codes)
    one_by_one = len(kept) > MOST_ELIMINATED
    if not one_by_one:
        L = small.matrix()
        least = NEARLY_DEPENDENT * np.diagonal(L)
        scores = [L[asked, asked]]
        for code in order.tolist():
            one_by_one = not L[code, code] > least[code]
            if one_by_one:
                break
            L -= np.outer(L[:, code] / L[code, code], L[code])
            scores.append(L[asked, asked])
    return scores_given(small, prefixes(order.astype(np.int32)))[:, asked] if one_by_one else np.array(scores)


def _eliminated_in_blocks(kernel: Kernel, codes: NDArray[np.int32], items: NDArray[np.int64]) -> Array:
    """The scores of `scores_given_prefixes` of many codes by L U, a block of rows at a time.

    With L_AA = N U, N with a unit diagonal, the score of j given the first t codes is L_jj − Σ_{s≤t} (L_jA U⁻¹)_s
    (N⁻¹ L_Aj)_s.
    """
    n, both = len(codes), np.concatenate([codes, items]).astype(np.int32)
    L = factor.submatrix(kernel, both)  # the codes first, in their order
    scores, least = np.empty((n + 1, len(items))), NEARLY_DEPENDENT * np.diagonal(L)
    scores[0] = np.diagonal(L)[n:]
    for first in range(0, n, ROWS_PER_BLOCK // 4):
        last = min(first + ROWS_PER_BLOCK // 4, n)
        block, rest = slice(first, last), slice(last, None)
        D, none = _eliminated(L[block, block], least[block])
        L[block, rest] = solve_triangular(D, L[block, rest], lower=True, unit_diagonal=True)
        L[rest, block] = solve_triangular(D, L[rest, block].T, trans="T").T
        L[first + none, last:], L[last:, first + none] = 0.0, 0.0
        terms = L[n:, block].T * L[block, n:]
        scores[first + 1 : last + 1] = scores[first] - np.cumsum(terms, axis=0)
        L[rest, rest] -= L[rest, block] @ L[block, rest]
    return scores


def _eliminated(A: Array, least: Array) -> tuple[Array, NDArray[np.int64]]:
    """N and U of a small matrix in one, and the rows that were passed over: their pivots were at most `least`."""
    A, none = A.copy(), []
    for k in range(len(A)):
        if not A[k, k] > least[k]:
            none.append(k)
            A[k, k:], A[k + 1 :, k] = 0.0, 0.0
            A[k, k] = 1.0
            continue
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A, np.array(none, dtype=np.int64)


def write_scores_without_each(kernel: Kernel, sets: Sets, out: Array) -> None:
    """Write `scores_given` of every set without each of its entries in turn (nnz, M), on the thread that asks.

    With a skew part, or a diagonal and many entries, one factorisation per set is enough (docs/theory.md), but for
    sets that are nearly dependent, with or without an entry.
    """
    if not kernel.symmetric:
        _write_by_inverses(kernel, sets, out)
        return
    many = (sets.sizes > MOST_LEFT_OUT) & kernel.has_diagonal
    few = take_sets(sets, np.flatnonzero(~many))
    out[~np.repeat(many, sets.sizes)] = scores_given(kernel, without_each(few))
    for s in np.flatnonzero(many).tolist():
        one = take_sets(sets, np.array([s]))
        _write_by_inverses(kernel, one, out[sets.indptr[s] : sets.indptr[s + 1]])


def _write_by_inverses(kernel: Kernel, sets: Sets, out: Array) -> None:
    norms = kernel.squared_norms
    given = factor.inverses(kernel, sets, ridge=RIDGE, n_jobs=1)
    with np.errstate(divide="ignore"):
        scores = 1.0 / given.diagonals(sets)
    rows = rows_of_sets(kernel, sets, given, parts=3)
    for offset in range(0, kernel.n_items, COLUMNS_PER_TILE):
        columns = slice(offset, offset + COLUMNS_PER_TILE)
        Y = rows @ kernel.wide[columns].T
        compiled.kernels.add_partners(Y, offset, *kernel.skew, sets.indptr, sets.indices, given.offsets, given.W)
        compiled.kernels.scores_without_each(Y, norms[columns], scores, sets.indptr, out[:, columns])
    hard = np.flatnonzero(nearly_dependent(scores, norms[sets.indices], sets))
    if len(hard):
        part = take_sets(sets, hard)
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        out[np.isin(owner, hard)] = scores_given(kernel, without_each(part))


def nearly_dependent(scores: Array, sizes: Array, sets: Sets) -> NDArray[np.bool_]:
    """Which sets have an entry whose score 1/W_ii is so far from L_ii that closed forms lose more than rounding."""
    clear = (scores > NEARLY_DEPENDENT * sizes) & (scores * NEARLY_DEPENDENT < sizes)
    unclear: NDArray[np.bool_] = np.zeros(sets.count, dtype=bool)
    some = sets.sizes > 0
    unclear[some] = np.logical_or.reduceat(~clear, sets.indptr[:-1][some]) if some.any() else False
    return unclear
