"""A DPP given what is in the basket: next items, their best, their sum, and the kernel of the rest.

Given A, the kernel is L^A = L − L_:A W L_A:, W = L_A⁻¹, and the next item is j with probability ∝ L^A_jj. One matrix
product gives what is subtracted, for a block of baskets at once: with orthonormal rows Q that span A, the squares of
Q Vᵀ where L is symmetric; else the products of L_:Aᵀ and W L_A:, to which the few entries of S that concern the basket
are added.

`next_scores` is exact about zeros, and refuses baskets of probability zero. `scores_given` rules nothing out and takes
what rounding leaves: the scores that others weigh and rank by.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr, solve_triangular
from scipy.sparse import csr_array

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, frozen, pointers, prefixes, runs, sums_over_sets, take_sets, without_each
from contradpp.dpp import compiled, factor
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

Number = TypeVar("Number", bound=np.floating)
Candidates = NDArray[np.int64] | None  # codes in ascending order; None for all items

# Rows of one block of products: enough for the matrix product to run at full speed, small in memory.
ROWS_PER_BLOCK = 512
# Numbers of such a block: 0.5 GB, which catalogues of more than 131,072 items reach with fewer rows.
MOST_NUMBERS = 2**26
# A tile of the products (rows × columns) stays in the cache of one core until it has been used.
COLUMNS_PER_TILE, NUMBERS_PER_TILE = 256, 2**15
# A sum of scores below this share of its terms is added up score by score, and so is that of sets worse than this.
_CANCELLED = 1e-6
_CLEAR_TOTAL = 1e4
# A basket of probability zero is ranked as if L_A, scaled to entries of at most 1, had this much more on its diagonal.
RIDGE = 1e-6
# Where 1/W_ii is further than this factor from L_ii, the closed form loses more than rounding: leave out one by one.
NEARLY_DEPENDENT = 1e-6
# Items of which a dense matrix may be made for one answer.
MOST_ELIMINATED = 2000
# Numbers of a table of one set's members and their partners.
MOST_LINKED = 2**20
BOUNDED_FROM = 20_000  # candidates from which on bounds are worth their trouble
FIRST_LOOK, MOST_AT_ONCE = 1024, 2**16  # how many are scored at first, then twice as many, up to these
FEW = 100  # up to which the best of a row are kept in order while it is read
_ROUNDING = 1e-14  # of a score by way of an inverse, over its bound and the square of |A| and of the worst entry


class Block(NamedTuple):
    """The scores of a run of baskets."""

    first: int
    last: int
    scores: Array  # (last − first, number of candidates)


def next_scores(kernel: Kernel, sets: Sets, *, candidates: Candidates = None) -> Iterator[Block]:
    """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block.

    A score is 0 exactly where log det L_{A∪j} is −inf.

    Raises
    ------
    RankError
        If a set has probability zero, or no item can join it.
    """
    rows = _rows_per_block(kernel, kernel.n_items if candidates is None else len(candidates))
    for first, last in runs(sets.indptr, rows, most=rows):
        numbers = np.arange(first, last)
        yield Block(first, last, score_block(kernel, take_sets(sets, numbers), numbers, candidates))


def score_block(kernel: Kernel, part: Sets, numbers: NDArray[np.int64], candidates: Candidates) -> Array:
    """The scores of `next_scores` of a few baskets, whose numbers are for messages."""
    scores = _scores(kernel, part, numbers, candidates)
    _refuse_full(kernel, part, numbers, scores, candidates)
    return scores


def _rows_per_block(kernel: Kernel, n_columns: int) -> int:
    """How many entries a block of products has; without symmetry there are two rows for each."""
    rows = max(min(ROWS_PER_BLOCK, MOST_NUMBERS // max(n_columns, 1)), 2)
    return rows if kernel.symmetric else rows // 2


def _scores(kernel: Kernel, part: Sets, numbers: NDArray[np.int64], candidates: Candidates) -> Array:
    """The scores of one block of baskets, whose numbers are for messages."""
    norms, sizes = kernel.squared_norms if candidates is None else kernel.squared_norms[candidates], part.sizes
    scores: Array = np.tile(norms, (part.count, 1))
    rule_out_members(scores, part, candidates)
    if sizes.min() == 0 or sizes.max() >= min(kernel.largest_set, kernel.n_items):
        some = np.flatnonzero((sizes > 0) & (sizes < kernel.n_items))
        full = some[sizes[some] >= kernel.largest_set]
        if len(full):
            raise RankError(_no_room(kernel, int(numbers[full[0]]), int(sizes[full[0]])))
        if len(some):  # of the others nothing is to be subtracted, or nothing is left to score
            scores[some] = _scores(kernel, take_sets(part, some), numbers[some], candidates)
        return scores
    given = factor.factorise(kernel, part)
    if given.logs.min() == -np.inf:
        raise RankError(
            f"basket {numbers[np.argmin(given.logs)]} has probability zero: its items are linearly dependent, or more "
            "than the kernel's components and not linked; pass fewer items, or train with more components"
        )
    if sizes.max() > factor.LARGE:  # what may be rounding stays: by definition it would take a factorisation each
        with blas_threads(1):
            left: Array = np.empty((part.count, kernel.n_items))
            _write_what_is_left_of_all(kernel, part, given, left)
        np.maximum(left if candidates is None else left[:, candidates], 0.0, out=scores, where=scores > -np.inf)
    elif scores.shape[1]:
        E, U = products(kernel, part, given, candidates)
        if compiled.kernels.subtract_products(scores, E, U, part.indptr, factor.clear_share(kernel, given.worst)):
            rows, columns = np.nonzero(np.isnan(scores))
            items = columns if candidates is None else candidates[columns]
            unclear = take_sets(part, rows)
            scores[rows, columns] = factor.scores_by_definition(kernel, unclear, given.logs[rows], items)
    return scores


def products(
    kernel: Kernel, sets: Sets, given: factor.Bases | factor.Inverses, candidates: Candidates = None
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """E and U (entries, candidates) with L^A_jj = L_jj − Σ_a E_aj U_aj over the entries of A, for every j outside A."""
    if isinstance(given, factor.Bases):
        V = kernel.vectors if candidates is None else kernel.vectors[candidates]
        with blas_threads(kernel.n_jobs):
            Y = given.rows.astype(V.dtype, copy=False) @ V.T
        return Y, Y
    X, skew, which, n = kernel.wide, kernel.skew, sets.indices, len(sets.indices)
    if candidates is not None:
        X, skew, which = X[candidates], skew.part(which, candidates), np.arange(n, dtype=np.int32)
    rows = rows_of_sets(kernel, sets, given)
    with blas_threads(kernel.n_jobs):
        both: Array = rows @ X.T
    compiled.kernels.add_partners(both, 0, *skew, sets.indptr, which, given.offsets, given.W)
    return both[:n], both[n:]


def rows_of_sets(kernel: Kernel, sets: Sets, given: factor.Inverses, parts: int = 2) -> Array:
    """What a product with Xᵀ turns into E, U and, as a third part, Wᵀ L_:Aᵀ, but for S."""
    n = len(sets.indices)
    rows = np.empty((parts * n, kernel.wide.shape[1]))
    if sets.count == 1 and n > factor.LARGE:
        left, right, W = kernel.left[sets.indices], kernel.right[sets.indices], given.of(0)
        with blas_threads(1):
            rows[:n], rows[n : 2 * n] = right, W @ left
            if parts == 3:
                rows[2 * n :] = W.T @ right
        return rows
    compiled.kernels.rows_of_sets(kernel.left, kernel.right, *sets, given.offsets, given.W, rows)
    return rows


def product_tiles(rows: NDArray[np.floating], V: NDArray[Number]) -> Iterator[tuple[slice, NDArray[Number]]]:
    """`rows` Vᵀ, a few columns at a time, each in the memory of the one before: it is in the cache.

    The caller holds BLAS to one thread: to do so for every tile takes as long as a small product.
    """
    n_items, rows = len(V), rows.astype(V.dtype, copy=False)
    width = min(max(COLUMNS_PER_TILE, NUMBERS_PER_TILE // max(len(rows), 1)), n_items)
    room = np.empty((len(rows), width), dtype=V.dtype)
    for offset in range(0, n_items, width):
        columns = slice(offset, min(offset + width, n_items))
        Y = room if offset + width <= n_items else np.empty((len(rows), columns.stop - offset), dtype=V.dtype)
        yield columns, np.matmul(rows, V[columns].T, out=Y)


def tiles(
    kernel: Kernel, sets: Sets, given: factor.Bases | factor.Inverses
) -> Iterator[tuple[slice, NDArray[np.floating], NDArray[np.floating]]]:
    """The `products` of all items, a few columns at a time; the caller holds BLAS to one thread."""
    if isinstance(given, factor.Bases):
        for columns, Y in product_tiles(given.rows, kernel.vectors):
            yield columns, Y, Y
        return
    n = len(sets.indices)
    for columns, both in product_tiles(rows_of_sets(kernel, sets, given), kernel.by_column):
        compiled.kernels.add_partners(both, columns.start, *kernel.skew, *sets, given.offsets, given.W)
        yield columns, both[:n], both[n:]


def next_totals(kernel: Kernel, sets: Sets) -> Array:
    """Σ_j det L_{A∪j} / det L_A for every set, without a loop over items unless the sum cancels.

    For L = V Vᵀ it is ‖R‖² − Σ_q ‖R q‖², with RᵀR = VᵀV; for others see `_total`.
    """
    totals: Array = np.empty(sets.count)
    for first, last in runs(sets.indptr, factor.ENTRIES_PER_CHUNK, most=factor.ENTRIES_PER_CHUNK):
        numbers = np.arange(first, last)
        totals[first:last] = _totals(kernel, take_sets(sets, numbers), numbers)
    return totals


def _totals(kernel: Kernel, sets: Sets, numbers: NDArray[np.int64]) -> Array:
    """`next_totals` of a few sets, whose numbers are for messages."""
    if kernel.symmetric and not kernel.has_diagonal:
        rows, R = factor.bases(kernel, sets).rows, kernel.root
        whole = float(np.square(R).sum())
        totals: Array = whole - sums_over_sets(np.square(rows @ R.T).sum(axis=1), sets)
        left = np.flatnonzero(totals <= _CANCELLED * whole)
    else:
        given = factor.inverses(kernel, sets)
        with blas_threads(1):  # the matrices are small
            found = [_total(kernel, take_sets(sets, np.array([s])).indices, given.of(s)) for s in range(sets.count)]
        totals, sizes = np.array(found).reshape(-1, 2).T
        clear = (given.worst <= _CLEAR_TOTAL) & (totals > _CANCELLED * sizes)
        left = np.flatnonzero(~clear)
    chosen = take_sets(sets, left)
    rows_at_once = min(ROWS_PER_BLOCK // 2, _rows_per_block(kernel, kernel.n_items))
    for first, last in runs(chosen.indptr, rows_at_once, most=rows_at_once):
        scores = _scores(kernel, take_sets(chosen, np.arange(first, last)), numbers[left[first:last]], None)
        totals[left[first:last]] = np.maximum(scores, 0.0).sum(axis=1)
    return totals


def _total(kernel: Kernel, codes: NDArray[np.int32], W: Array) -> tuple[float, float]:
    """tr L − tr(W (L²)_A) = Σ_j L_jj − L_jA W L_Aj for one set, and the sum of the sizes of its terms.

    With a = X_A G, bᵀ = G X_Aᵀ, C = XᵀX and Z = S_A: X, (L²)_A is D_A L_A + L_A D_A − D_A² +
    a C bᵀ − a Zᵀ + Z bᵀ − S_A: S_A:ᵀ; of the first two, W leaves 2 Σ_A d.
    """
    a, b, d = kernel.left[codes], kernel.right[codes], kernel.diagonal[codes]
    owner, columns, values = kernel.skew.entries(codes)
    partners, place = np.unique(columns, return_inverse=True)
    S: Any = csr_array((values, (owner, place)), shape=(len(codes), len(partners)))
    S = S.toarray() if len(codes) <= factor.LARGE else S
    Z = S @ kernel.wide[partners]
    square = a @ kernel.dual @ b.T - a @ Z.T + Z @ b.T - S @ S.T
    terms = np.concatenate([[kernel.trace], -2.0 * d, np.diagonal(W) * d**2, -(W * square.T).ravel()])
    return float(terms.sum()), float(np.abs(terms).sum())


def condition(kernel: Kernel, given: NDArray[np.int32]) -> tuple[Kernel, NDArray[np.int64]]:
    """The kernel of the remaining items given that `given` is in the set, and which items remain.

    Of L = V Vᵀ it is V N, the columns of N spanning what is orthogonal to V_A. Else, with Z = S_:A on the remaining
    items, a = G X_Aᵀ and bᵀ = X_A G, the kernel L − (X a + Z) W (bᵀ Xᵀ − Zᵀ) is of the same form: X' = [X Z],
    G' = [[G − a W bᵀ, a W], [−W bᵀ, W]], and D and S of the remaining items. All of G' is in `bordered_inverse`.
    """
    rest = np.setdiff1d(np.arange(kernel.n_items), given)
    if not len(given):
        return kernel, rest
    refuse_impossible(kernel, given)
    if kernel.symmetric and not kernel.has_diagonal:
        V = kernel.vectors
        N = qr(V[given].T.astype(np.float64))[0][:, len(given) :]
        if not N.shape[1]:  # the given items exhaust the rank: nothing can join them
            N = np.zeros((V.shape[1], 1))
        factors = V[rest] @ N.astype(V.dtype)
        spanned = np.square(factors).sum(axis=1) <= factor.tolerance(V) ** 2 * kernel.squared_norms[rest]
        factors[spanned] = 0.0
        return type(kernel).trusted(factors, n_jobs=kernel.n_jobs), rest
    F, k, r = factor.bordered_inverse(kernel, given)[0], len(given), kernel.n_components
    X, G = kernel.wide[rest], kernel.gain @ F[k:, :r]
    linked = np.flatnonzero(np.diff(kernel.skew.indptr)[given])  # Z has a column only for these
    if len(linked):
        Z = kernel.skew.matrix()[given[linked]][:, rest].toarray().T * -1.0  # S_:A = −(S_A:)ᵀ
        X = np.hstack([X, Z])
        G = np.block([[G, -kernel.gain @ F[k:, r + linked]], [-F[linked, :r], F[np.ix_(linked, r + linked)]]])
    G, skew, d = _with_positive_part(G), kernel.skew.take(rest), kernel.diagonal[rest]
    return type(kernel).trusted(X, G, skew, d, n_jobs=kernel.n_jobs), rest


def _with_positive_part(G: Array) -> Array:
    """G with the positive part of its symmetric part: rounding may have made it a little less than semi-definite."""
    own = np.abs(np.diagonal(G))
    scales = np.sqrt(np.where(own > 0, own, 1.0))  # so that large entries do not spoil small ones
    even, odd = (G + G.T) / 2 / scales[:, None] / scales, (G - G.T) / 2
    values, vectors = eigh(even) if len(even) else (np.zeros(0), even)
    if not len(values) or values[0] >= 0:
        return G
    positive = scales[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return positive @ positive.T + odd


def refuse_impossible(kernel: Kernel, given: NDArray[np.int32]) -> None:
    """Raise `RankError` if a set has probability zero."""
    if len(given) > kernel.largest_set:
        raise RankError(too_large(len(given), kernel.largest_set))
    if np.isneginf(factor.log_det(kernel, Sets.one(given))[0]):
        raise RankError(
            f"the {len(given)} given items have probability zero together: their factors are linearly dependent"
        )


def _refuse_full(kernel: Kernel, part: Sets, numbers: NDArray[np.int64], scores: Array, candidates: Candidates) -> None:
    """Raise `RankError` if a set leaves no room for a further item."""
    best = scores.max(axis=1, initial=-np.inf)
    if best.min() > 0:
        return
    full = np.flatnonzero((best <= 0) & (part.sizes < kernel.n_items))
    if candidates is not None and len(full):
        full = full[next_totals(kernel, take_sets(part, full)) <= 0]
    if len(full):
        raise RankError(_no_room(kernel, int(numbers[full[0]]), int(part.sizes[full[0]])))


def _no_room(kernel: Kernel, basket: int, size: int) -> str:
    return (
        f"basket {basket} has {size} items, and a kernel of rank {kernel.rank} gives every "
        f"larger set probability zero: pass fewer than {kernel.rank} items, or train with more components"
    )


def too_large(size: int, most: int) -> str:
    """The message for a set that is larger than the kernel's shape allows."""
    return (
        f"a set of {size} items has probability zero under a kernel of {most} components: "
        f"use at most {most} items, or train with n_components of {size} or more"
    )


def rule_out_members(scores: Array, sets: Sets, candidates: Candidates) -> None:
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


# -- Scores with nothing ruled out -----------------------------------------------------------------------


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
        _write_what_is_left_of_all(kernel, part, given, out)


def _write_what_is_left(
    norms: Array, E: NDArray[np.floating], U: NDArray[np.floating], indptr: NDArray[np.int64], out: Array
) -> None:
    """Write norms − Σ_a E_aj U_aj over the rows a of every set, as far as rounding allows."""
    tile, never = np.ascontiguousarray(out), np.full(len(out), -np.inf)  # of one set it is `out`
    tile[:] = norms
    compiled.kernels.subtract_products(tile, E, U, indptr, never)
    if tile is not out:
        out[:] = tile


def _write_what_is_left_of_all(kernel: Kernel, sets: Sets, given: factor.Bases | factor.Inverses, out: Array) -> None:
    """Write L_jj − L_jA W L_Aj for every set and item, as far as rounding allows."""
    for columns, E, U in tiles(kernel, sets, given):
        _write_what_is_left(kernel.squared_norms[columns], E, U, sets.indptr, out[:, columns])


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


@blas_threads(1)
def write_scores_without_each(kernel: Kernel, sets: Sets, out: Array) -> None:
    """Write `scores_given` of every set without each of its entries in turn (nnz, M), on the thread that asks.

    One factorisation per set is enough (docs/theory.md), but for sets that are nearly dependent, with or without an
    entry. With U = W L_A: and Q = Wᵀ L_:Aᵀ the score of j given A∖i is c_j + Q_ij U_ij / W_ii, c_j that given all of A.
    Where L is symmetric that is c_j + (q_iᵀ v_j)², q_i the direction of the span of A that is orthogonal to the others.
    """
    n, norms = len(sets.indices), kernel.squared_norms
    given: factor.Bases | factor.Inverses
    if kernel.symmetric:
        given = factor.bases(kernel, sets, directions=True, n_jobs=1)
        scores, factors = given.scores, np.ones(n)
        rows, V = given.rows, kernel.vectors
    else:
        given = factor.inverses(kernel, sets, ridge=RIDGE, n_jobs=1)
        with np.errstate(divide="ignore"):
            scores = factors = 1.0 / given.diagonals(sets)
        rows, V = rows_of_sets(kernel, sets, given, parts=3), kernel.by_column
    for columns, product in product_tiles(rows, V):
        Y = product.astype(np.float64, copy=False)
        if isinstance(given, factor.Inverses):
            compiled.kernels.add_partners(Y, columns.start, *kernel.skew, *sets, given.offsets, given.W)
            parts = Y[:n], Y[n : 2 * n], Y[2 * n :], Y[n : 2 * n]
        else:
            along = _along_directions(given, sets, Y)
            parts = Y, Y, along, along
        compiled.kernels.scores_without_each(norms[columns], *parts, factors, sets.indptr, out[:, columns])
    hard = np.flatnonzero(nearly_dependent(scores, norms[sets.indices], sets))
    if len(hard):
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        out[np.isin(owner, hard)] = scores_given(kernel, without_each(take_sets(sets, hard)))


def _along_directions(given: factor.Bases, sets: Sets, Y: Array) -> Array:
    """Products with the directions of entries off the others of their sets, from those with orthonormal rows."""
    out = np.empty_like(Y)
    for first, last in itertools.pairwise(sets.indptr.tolist()):
        np.matmul(given.weights[first:last, : last - first], Y[first:last], out=out[first:last])
    return out


def nearly_dependent(scores: Array, sizes: Array, sets: Sets) -> NDArray[np.bool_]:
    """Which sets have an entry whose score 1/W_ii is so far from L_ii that closed forms lose more than rounding."""
    clear = (scores > NEARLY_DEPENDENT * sizes) & (scores * NEARLY_DEPENDENT < sizes)
    unclear: NDArray[np.bool_] = np.zeros(sets.count, dtype=bool)
    some = sets.sizes > 0
    unclear[some] = np.logical_or.reduceat(~clear, sets.indptr[:-1][some]) if some.any() else False
    return unclear


# -- The best ------------------------------------------------------------------------------------------


def best_next(
    kernel: Kernel, sets: Sets, n: int, *, candidates: Codes | None, banned: NDArray[np.int32]
) -> tuple[Codes, Array]:
    """The codes of the n best next items of every set, −1 where fewer are left, and P(next = i | A).

    With `candidates` (ascending codes) only those are scored; the probabilities still refer to the whole
    catalogue, because the sum over it has a closed form. The result is as wide as its longest row.
    """
    many = (kernel.n_items if candidates is None else len(candidates)) >= BOUNDED_FROM
    if many and (kernel.plain or kernel.symmetric):
        return _best_by_bounds(kernel, sets, n, candidates, banned)
    columns = np.arange(kernel.n_items) if candidates is None else candidates
    n = min(n, len(columns))
    codes = np.full((sets.count, n), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, n))
    for first, last, scores in kernel.next_scores(sets, candidates=candidates) if n else ():
        if candidates is None:
            totals = np.maximum(scores, 0.0).sum(axis=1)
        else:
            totals = kernel.next_totals(take_sets(sets, np.arange(first, last)))
        scores[:, np.isin(columns, banned)] = -np.inf
        best = top_n(scores, n)
        values = np.take_along_axis(scores, best, axis=1)
        there = values >= 0
        codes[first:last] = np.where(there, columns[best], -1)
        np.divide(values, totals[:, None], out=probabilities[first:last], where=there & (totals[:, None] > 0))
    return without_blanks(codes, probabilities)


def _best_by_bounds(
    kernel: Kernel, sets: Sets, n: int, candidates: Codes | None, banned: NDArray[np.int32]
) -> tuple[Codes, Array]:
    """As `best_next`, but only items that may be among the best are scored."""
    allowed = None
    if candidates is not None or len(banned):
        allowed = np.full(kernel.n_items, candidates is None)
        allowed[() if candidates is None else candidates] = True
        allowed[banned] = False
    n = min(n, kernel.n_items if candidates is None else len(candidates))
    codes, scores = np.full((sets.count, n), -1, dtype=np.int64), np.zeros((sets.count, n))
    totals, large = np.empty((sets.count, 1)), sets.sizes > factor.LARGE
    for s in range(sets.count if n else 0):
        A = take_sets(sets, np.array([s]))
        if large[s]:
            found, values, totals[s] = _best_of_all(kernel, A, s, n, allowed)
        else:
            found, values = _best_of_order(kernel, A, s, n, allowed)
        codes[s, : len(found)], scores[s, : len(found)] = found, values
    totals[~large, 0] = kernel.next_totals(take_sets(sets, np.flatnonzero(~large)))
    return without_blanks(codes, np.divide(scores, totals, out=np.zeros_like(scores), where=totals > 0))


def _best_of_all(
    kernel: Kernel, A: Sets, number: int, n: int, allowed: NDArray[np.bool_] | None
) -> tuple[Codes, Array, float]:
    """The n best next items of one large basket, their scores, and the sum of all, by one factorisation."""
    scores = score_block(kernel, A, np.array([number]), None)
    total = float(np.maximum(scores, 0.0).sum())
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    best = top_n(scores, n)[0]
    best = best[scores[0, best] >= 0]
    return best, scores[0, best], total


def _best_of_order(
    kernel: Kernel, A: Sets, number: int, n: int, allowed: NDArray[np.bool_] | None
) -> tuple[Codes, Array]:
    """The n best next items of one basket, and their scores: items by descending L_jj, until no other can be better.

    The score of an item that is no partner of the basket is L_jj − (V_A v_j)ᵀ W (V_A v_j) ≤ L_jj: the symmetric part of
    W = L_A⁻¹ is positive semi-definite, as that of L_A is. Partners may have more, so that all of them are scored.
    """
    order, most = kernel.by_weight, 1.0
    if not kernel.symmetric and len(A.indices):
        most += _ROUNDING * (len(A.indices) * float(factor.inverses(kernel, A).worst[0])) ** 2
    partners = np.unique(kernel.skew.entries(A.indices)[1])
    codes, scores = np.empty(0, dtype=np.int64), np.empty(0)
    first, step = 0, max(FIRST_LOOK, 2 * n)
    while first < len(order):
        block = order[first : first + step]
        new = np.union1d(block, partners) if not first else np.setdiff1d(block, partners)  # ascending
        new = new if allowed is None else new[allowed[new]]
        told = score_block(kernel, A, np.array([number]), new)[0]
        codes, scores = np.append(codes, new[told >= 0]), np.append(scores, told[told >= 0])
        best = np.lexsort((codes, -scores))[:n]  # of equal scores the lower code
        codes, scores = codes[best], scores[best]
        first, step = first + step, min(2 * step, MOST_AT_ONCE)
        if len(codes) == n and first < len(order) and scores[-1] > most * kernel.squared_norms[order[first]]:
            break
    return codes, scores


def next_shares(kernel: Kernel, sets: Sets) -> Iterator[tuple[int, int, Array]]:
    """P(next = i | A) of every set and item, block by block: first set, last set (excluded), shares (sets, M).

    The shares of a set sum to 1, or are all zero if it is the whole catalogue.
    """
    for first, last, scores in kernel.next_scores(sets):
        shares = np.maximum(scores, 0.0)
        totals = shares.sum(axis=1, keepdims=True)
        totals[totals == 0] = 1.0  # only a set of the whole catalogue: `next_scores` refuses any other without scores
        yield first, last, shares / totals


def without_blanks(codes: NDArray[np.int64], values: Array) -> tuple[Codes, Array]:
    """Both only as wide as the longest row, which ends where codes are −1."""
    width = int((codes >= 0).sum(axis=1).max(initial=0))
    return codes[:, :width], values[:, :width]


def best_columns(scores: Array, values: Array, n: int) -> tuple[Codes, Array]:
    """The columns of the n best scores of every row, −1 where fewer are above −inf, and the values there, else 0."""
    best = top_n(scores, n)
    there = np.take_along_axis(scores, best, axis=1) > -np.inf
    return np.where(there, best, -1), np.where(there, np.take_along_axis(values, best, axis=1), 0.0)


def top_n(scores: Array, n: int, rounding: Array | None = None) -> NDArray[np.int64]:
    """The columns of the n largest scores of every row, best first, ties in the order of the columns.

    Entries of −inf are never chosen before others; the caller cuts them off. Of a few, scores tie that differ by no
    more than the `rounding` of their columns.
    """
    n = min(n, scores.shape[1])
    if n == 0:
        return np.empty((len(scores), 0), dtype=np.int64)
    if n == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    if n <= FEW:
        best = np.empty((len(scores), n), dtype=np.int64)
        slacks = np.zeros(scores.shape[1]) if rounding is None else rounding
        compiled.kernels.best_of_rows(np.ascontiguousarray(scores, dtype=np.float64), slacks, best)
        return best
    columns = np.argpartition(scores, scores.shape[1] - n, axis=1)[:, -n:]
    lowest = np.take_along_axis(scores, columns, axis=1).min(axis=1)
    for row in np.flatnonzero((scores >= lowest[:, None]).sum(axis=1) > n):  # a tie at the cut
        columns[row] = np.argsort(-scores[row], kind="stable")[:n]
    columns.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
