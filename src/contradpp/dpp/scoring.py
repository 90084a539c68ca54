"""Next items of a DPP given a basket: scores, the best, their sum, and the kernel of the rest.

Given A and W = L_A⁻¹, the kernel of the other items is

    L^A = L − L_:A W L_A:

and the next item is j with probability ∝ L^A_jj. One matrix product yields what is subtracted, for
a block of baskets at once. For a symmetric L it is the squares of Q Vᵀ, where the orthonormal rows
Q span A. Otherwise it is the product of L_:Aᵀ and W L_A:, to which the few entries of S in rows A
are added.

`next_scores` is exact about zeros and refuses baskets of probability zero. `scores_given` rules no
item out and keeps what rounding leaves; models that weigh and rank scores use it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr, solve_triangular
from scipy.sparse import csr_array

from contradpp._threads import blas_threads, run_blocks
from contradpp._types import Array, Codes, Flags, Ints
from contradpp.data.sets import (
    Sets,
    frozen,
    pointers,
    runs,
    sums_over_sets,
    take_sets,
    without_each,
)
from contradpp.dpp import compiled, factor
from contradpp.dpp.factor import Bases, Factors, Inverses
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel
    from contradpp.dpp.mixture import Mixture

Number = TypeVar("Number", bound=np.floating)
Candidates = Ints | None  # ascending codes; None for all items

ROWS_PER_BLOCK = 512  # of a block of products: enough for a matrix product at full speed
MAX_NUMBERS = 2**26  # of such a block, 0.5 GB; catalogs of more than 131,072 items get fewer rows
# A tile of a block (rows × columns) stays in the cache of one core until it has been used.
COLUMNS_PER_TILE = 256
COLUMNS_PER_BLOCK = 2048  # of one thread at a time
NUMBERS_PER_TILE = 2**15
# A sum of scores below this share of its terms, or of sets worse than this, is added score by
# score.
CANCELLED_SHARE = 1e-6
CLEAR_TOTAL = 1e4
# Added to the diagonal of a singular L_A, scaled to entries of at most 1, to rank by it
# nevertheless.
RIDGE = 1e-6
# Where 1/W_ii and L_ii differ by more than this factor, the closed form without i loses digits.
NEARLY_DEPENDENT = 1e-6
MAX_LINKED = 2**20  # numbers of a table of the members of one set and their neighbors in S
BOUNDED_FROM = 20_000  # candidates from which on bounds pay
FIRST_SCORED = 1024  # items scored at first by `_best_of_order`, doubled each time
MAX_SCORED_AT_ONCE = 2**16
MAX_INSERTED = 100  # up to this n, `top_n` keeps the best of a row in order while it reads the row
# Rounding of a score by an inverse, relative to L_jj times the square of |A| times `worst`.
INVERSE_ROUNDING = 1e-14


class Block(NamedTuple):
    """The scores of a run of baskets."""

    first: int
    last: int
    scores: Array  # (last − first, number of candidates)


# -- Exact scores ----------------------------------------------------------------------------------


def next_scores(kernel: Kernel, sets: Sets, *, candidates: Candidates = None) -> Iterator[Block]:
    """Return det L_{A∪j} / det L_A for every set A and candidate j, block by block.

    The score is −inf for j in A, and 0 exactly where log det L_{A∪j} is −inf.

    Raises
    ------
    RankError
        If a set has probability zero, or no item can join it.
    """
    rows = _sets_per_block(kernel, kernel.n_items if candidates is None else len(candidates))
    for first, last in runs(sets.indptr, rows, most=rows):
        numbers = np.arange(first, last)
        yield Block(first, last, score_block(kernel, take_sets(sets, numbers), numbers, candidates))


def score_block(kernel: Kernel, part: Sets, numbers: Ints, candidates: Candidates) -> Array:
    """Return the `next_scores` of a few baskets, whose numbers appear in error messages."""
    scores = _scores(kernel, part, numbers, candidates)
    best = scores.max(axis=1, initial=-np.inf)
    full = np.flatnonzero((best <= 0) & (part.sizes < kernel.n_items))
    if candidates is not None and len(full):
        full = full[next_totals(kernel, take_sets(part, full)) <= 0]
    if len(full):
        raise RankError(_no_room(kernel, int(numbers[full[0]]), int(part.sizes[full[0]])))
    return scores


def _sets_per_block(kernel: Kernel, n_columns: int) -> int:
    """Return the entries of a block of products; without symmetry each entry has two rows."""
    rows = max(min(ROWS_PER_BLOCK, MAX_NUMBERS // max(n_columns, 1)), 2)
    return rows if kernel.symmetric else rows // 2


def _scores(kernel: Kernel, part: Sets, numbers: Ints, candidates: Candidates) -> Array:
    norms = kernel.squared_norms if candidates is None else kernel.squared_norms[candidates]
    sizes = part.sizes
    scores: Array = np.tile(norms, (part.count, 1))
    rule_out_members(scores, part, candidates)
    if sizes.min() == 0 or sizes.max() >= min(kernel.largest_set, kernel.n_items):
        # Nothing is subtracted for an empty set; nothing is left to score beside all items.
        some = np.flatnonzero((sizes > 0) & (sizes < kernel.n_items))
        full = some[sizes[some] >= kernel.largest_set]
        if len(full):
            raise RankError(_no_room(kernel, int(numbers[full[0]]), int(sizes[full[0]])))
        if len(some):
            scores[some] = _scores(kernel, take_sets(part, some), numbers[some], candidates)
        return scores
    given = factor.factorize(kernel, part)
    if given.logs.min() == -np.inf:
        raise RankError(
            f"basket {numbers[np.argmin(given.logs)]} has probability zero: its items are linearly "
            "dependent, or more than the kernel's components and not linked; "
            "pass fewer items, or train with more components"
        )
    if sizes.max() > factor.LARGE:
        # Scores that may be rounding stay: their definition would take a factorization for each.
        with blas_threads(1):
            all_scores: Array = np.empty((part.count, kernel.n_items))
            _write_scores(kernel, part, given, all_scores)
        found = all_scores if candidates is None else all_scores[:, candidates]
        np.maximum(found, 0.0, out=scores, where=scores > -np.inf)
    elif scores.shape[1]:
        E, U = products(kernel, part, given, candidates)
        clear = factor.clear_share(kernel, given.worst)
        if compiled.kernels.subtract_products(scores, E, U, part.indptr, clear):
            rows, columns = np.nonzero(np.isnan(scores))
            items = columns if candidates is None else candidates[columns]
            scores[rows, columns] = factor.scores_by_definition(
                kernel, take_sets(part, rows), given.logs[rows], items
            )
    return scores


def products(
    kernel: Kernel, sets: Sets, given: Factors, candidates: Candidates = None
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return E, U (entries, candidates) with L^A_jj = L_jj − Σ_{a∈A} E_aj U_aj, j outside A."""
    if isinstance(given, Bases):
        V = kernel.vectors if candidates is None else kernel.vectors[candidates]
        Y = _all_products(given.rows.astype(V.dtype, copy=False), V, kernel.n_jobs)
        return Y, Y
    n = len(sets.indices)
    X = kernel.X
    skew = kernel.skew
    skew_rows = sets.indices
    if candidates is not None:
        X = X[candidates]
        skew = skew.block(skew_rows, candidates)
        skew_rows = np.arange(n, dtype=np.int32)
    rows = rows_of_sets(kernel, sets, given)
    both = _all_products(rows, X, kernel.n_jobs)
    compiled.kernels.add_skew(both, 0, *skew, sets.indptr, skew_rows, given.offsets, given.W)
    return both[:n], both[n:]


def _all_products(rows: NDArray[Number], V: NDArray[Number], n_jobs: int) -> NDArray[Number]:
    """Return `rows` Vᵀ, a fixed number of columns at a time."""
    found = np.empty((len(rows), len(V)), dtype=V.dtype)

    def work(block: int) -> None:
        columns = slice(block * COLUMNS_PER_BLOCK, (block + 1) * COLUMNS_PER_BLOCK)
        np.matmul(rows, V[columns].T, out=found[:, columns])

    with blas_threads(1):
        run_blocks(work, -(-len(V) // COLUMNS_PER_BLOCK), n_jobs)
    return found


def rows_of_sets(kernel: Kernel, sets: Sets, given: Inverses, parts: int = 2) -> Array:
    """Return rows whose product with Xᵀ is, up to S, L_:Aᵀ, W L_A: and, third, Wᵀ L_:Aᵀ."""
    n = len(sets.indices)
    rows = np.empty((parts * n, kernel.n_components))
    if sets.count == 1 and n > factor.LARGE:
        left = kernel.left[sets.indices]
        right = kernel.right[sets.indices]
        W = given.of(0)
        with blas_threads(1):
            rows[:n] = right
            rows[n : 2 * n] = W @ left
            if parts == 3:
                rows[2 * n :] = W.T @ right
        return rows
    compiled.kernels.rows_of_sets(kernel.left, kernel.right, *sets, given.offsets, given.W, rows)
    return rows


def product_tiles(
    rows: NDArray[np.floating], V: NDArray[Number]
) -> Iterator[tuple[slice, NDArray[Number]]]:
    """Compute `rows` Vᵀ a few columns at a time, all in the same memory, which stays in the cache.

    The caller holds BLAS to one thread: doing so for every tile takes as long as a small product.
    """
    n_items = len(V)
    rows = rows.astype(V.dtype, copy=False)
    width = min(max(COLUMNS_PER_TILE, NUMBERS_PER_TILE // max(len(rows), 1)), n_items)
    tile = np.empty((len(rows), width), dtype=V.dtype)
    for start in range(0, n_items, width):
        columns = slice(start, min(start + width, n_items))
        if columns.stop - start < width:
            tile = np.empty((len(rows), columns.stop - start), dtype=V.dtype)
        yield columns, np.matmul(rows, V[columns].T, out=tile)


def tiles(
    kernel: Kernel, sets: Sets, given: Factors
) -> Iterator[tuple[slice, NDArray[np.floating], NDArray[np.floating]]]:
    """Compute the `products` of all items by `product_tiles`: a slice of columns, E and U."""
    if isinstance(given, Bases):
        for columns, Y in product_tiles(given.rows, kernel.vectors):
            yield columns, Y, Y
        return
    n = len(sets.indices)
    for columns, Y in product_tiles(rows_of_sets(kernel, sets, given), kernel.by_column):
        _add_skew(Y, columns, kernel, sets, given)
        yield columns, Y[:n], Y[n:]


def _add_skew(Y: Array, columns: slice, kernel: Kernel, sets: Sets, given: Inverses) -> None:
    compiled.kernels.add_skew(Y, columns.start, *kernel.skew, *sets, given.offsets, given.W)


def next_totals(kernel: Kernel, sets: Sets) -> Array:
    """Return Σ_j det L_{A∪j} / det L_A for every set, without a loop over items unless it cancels.

    For L = V Vᵀ it is ‖R‖² − Σ_q ‖R q‖², with RᵀR = VᵀV and q the orthonormal rows of A.
    """
    totals: Array = np.empty(sets.count)
    for first, last in runs(sets.indptr, factor.ENTRIES_PER_CHUNK, most=factor.ENTRIES_PER_CHUNK):
        numbers = np.arange(first, last)
        totals[first:last] = _totals(kernel, take_sets(sets, numbers), numbers)
    return totals


def _totals(kernel: Kernel, sets: Sets, numbers: Ints) -> Array:
    if kernel.is_low_rank:
        rows = factor.bases(kernel, sets).rows
        R = kernel.root
        trace = float(np.square(R).sum())
        totals: Array = trace - sums_over_sets(np.square(rows @ R.T).sum(axis=1), sets)
        unclear = np.flatnonzero(totals <= CANCELLED_SHARE * trace)
    else:
        given = factor.inverses(kernel, sets)
        with blas_threads(1):  # the matrices are small
            found = [
                _total(kernel, take_sets(sets, np.array([s])).indices, given.of(s))
                for s in range(sets.count)
            ]
        totals, sizes = np.array(found).reshape(-1, 2).T
        clear = (given.worst <= CLEAR_TOTAL) & (totals > CANCELLED_SHARE * sizes)
        unclear = np.flatnonzero(~clear)
    chosen = take_sets(sets, unclear)
    rows_at_once = min(ROWS_PER_BLOCK // 2, _sets_per_block(kernel, kernel.n_items))
    for first, last in runs(chosen.indptr, rows_at_once, most=rows_at_once):
        part = take_sets(chosen, np.arange(first, last))
        scores = _scores(kernel, part, numbers[unclear[first:last]], None)
        totals[unclear[first:last]] = np.maximum(scores, 0.0).sum(axis=1)
    return totals


def _total(kernel: Kernel, codes: Codes, W: Array) -> tuple[float, float]:
    """Return tr L − tr(W (L²)_A) = Σ_j L_jj − L_jA W L_Aj, and the sum of the sizes of its terms.

    With a = X_A G, bᵀ = G X_Aᵀ, C = XᵀX and Z = S_A: X,

        (L²)_A = D_A L_A + L_A D_A − D_A² + a C bᵀ − a Zᵀ + Z bᵀ − S_A: S_A:ᵀ.

    W turns the first two terms into 2 Σ_A d.
    """
    a = kernel.left[codes]
    b = kernel.right[codes]
    d = kernel.diagonal[codes]
    owner, columns, values = kernel.skew.entries(codes)
    neighbors, place = np.unique(columns, return_inverse=True)
    S = csr_array((values, (owner, place)), shape=(len(codes), len(neighbors)))
    S = S.toarray() if len(codes) <= factor.LARGE else S
    Z = S @ kernel.X[neighbors]
    square = a @ kernel.dual @ b.T - a @ Z.T + Z @ b.T - S @ S.T
    terms = np.concatenate(
        [[kernel.trace], -2.0 * d, np.diagonal(W) * d**2, -(W * square.T).ravel()]
    )
    return float(terms.sum()), float(np.abs(terms).sum())


def condition(kernel: Kernel, given: Codes) -> tuple[Kernel, Ints]:
    """Return the kernel of the remaining items given that `given` ⊆ Y, and their codes.

    For L = V Vᵀ it has the factors V N, where the columns of N span what is orthogonal to V_A.
    Otherwise, with Z = S_:A of the remaining items, a = G X_Aᵀ and bᵀ = X_A G, it is
    L − (X a + Z) W (bᵀ Xᵀ − Zᵀ), which has the same form with D and S of the remaining items and

        X' = [X Z],  G' = [[G − a W bᵀ, a W], [−W bᵀ, W]].

    All of G' is in `factor.bordered_inverse`.
    """
    rest = np.setdiff1d(np.arange(kernel.n_items), given)
    if not len(given):
        return kernel, rest
    refuse_impossible(kernel, given)
    if kernel.is_low_rank:
        V = kernel.vectors
        N = qr(V[given].T.astype(np.float64))[0][:, len(given) :]
        if not N.shape[1]:  # the given items exhaust the rank: nothing can join them
            N = np.zeros((V.shape[1], 1))
        factors = V[rest] @ N.astype(V.dtype)
        limit = factor.tolerance(V) ** 2 * kernel.squared_norms[rest]
        factors[np.square(factors).sum(axis=1) <= limit] = 0.0
        return type(kernel).trusted(factors, n_jobs=kernel.n_jobs), rest
    F = factor.bordered_inverse(kernel, given)[0]
    k = len(given)
    r = kernel.n_components
    X = kernel.X[rest]
    G = kernel.inner @ F[k:, :r]
    linked = np.flatnonzero(np.diff(kernel.skew.indptr)[given])  # other columns of Z are zero
    if len(linked):
        Z = kernel.skew.matrix()[given[linked]][:, rest].toarray().T * -1.0  # S_:A = −(S_A:)ᵀ
        X = np.hstack([X, Z])
        aW = -kernel.inner @ F[k:, r + linked]
        G = np.block([[G, aW], [-F[linked, :r], F[np.ix_(linked, r + linked)]]])
    skew = kernel.skew.restrict(rest)
    d = kernel.diagonal[rest]
    return type(kernel).trusted(X, _semidefinite(G), skew, d, n_jobs=kernel.n_jobs), rest


def _semidefinite(G: Array) -> Array:
    """Set negative eigenvalues of the symmetric part of G to 0: they come from rounding."""
    own = np.abs(np.diagonal(G))
    scales = np.sqrt(np.where(own > 0, own, 1.0))  # so that large entries do not spoil small ones
    symmetric = (G + G.T) / 2 / scales[:, None] / scales
    if not len(symmetric):
        return G
    values, vectors = eigh(symmetric)
    if values[0] >= 0:
        return G
    half = scales[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(half @ half.T + (G - G.T) / 2)


def refuse_impossible(kernel: Kernel, given: Codes) -> None:
    """Raise `RankError` if a set has probability zero."""
    if len(given) > kernel.largest_set:
        raise RankError(too_large(len(given), kernel.largest_set))
    if np.isneginf(factor.log_det(kernel, Sets.one(given))[0]):
        raise RankError(
            f"the {len(given)} given items have probability zero together: "
            "their factors are linearly dependent"
        )


def _no_room(kernel: Kernel, basket: int, size: int) -> str:
    return (
        f"basket {basket} has {size} items, and a kernel of rank {kernel.rank} gives every "
        f"larger set probability zero: pass fewer than {kernel.rank} items, "
        "or train with more components"
    )


def too_large(size: int, most: int) -> str:
    """Return the message for a set that is larger than the kernel's shape allows."""
    return (
        f"a set of {size} items has probability zero under a kernel of {most} components: "
        f"use at most {most} items, or a kernel with n_components of {size} or more"
    )


def rule_out_members(scores: Array, sets: Sets, candidates: Candidates) -> None:
    """Set the scores of items that are already in the basket to −inf."""
    owner = sets.owners
    column = sets.indices.astype(np.int64)
    if candidates is not None:
        if not len(candidates):
            return
        column = np.minimum(np.searchsorted(candidates, sets.indices), len(candidates) - 1)
        found = candidates[column] == sets.indices
        owner = owner[found]
        column = column[found]
    scores[owner, column] = -np.inf


# -- Scores with no item ruled out -----------------------------------------------------------------


def scores_given(kernel: Kernel, sets: Sets) -> Array:
    """Return L_jj − L_jA W L_Aj for every set A and item j, as far as rounding allows (n_sets, M).

    A set of probability zero is scored by its independent items, or with S by W of a `RIDGE`.
    """
    scores: Array = np.empty((sets.count, kernel.n_items))
    write_scores_given(kernel, sets, scores)
    return scores


@blas_threads(1)
def write_scores_given(kernel: Kernel, sets: Sets, scores: Array) -> None:
    """Write `scores_given` to an array."""
    for first, last in runs(sets.indptr, ROWS_PER_BLOCK // 2):
        part = take_sets(sets, np.arange(first, last))
        if kernel.symmetric:
            _write_scores(kernel, part, factor.bases(kernel, part, n_jobs=1), scores[first:last])
            continue
        given = factor.inverses(kernel, part, ridge=RIDGE, n_jobs=1)
        if kernel.has_identity_inner and _have_few_neighbors(kernel, part):
            _write_by_squares(kernel, part, given, scores[first:last])
        else:
            _write_scores(kernel, part, given, scores[first:last])


def _write_scores(kernel: Kernel, sets: Sets, given: Factors, out: Array) -> None:
    """Write L_jj − Σ_{a∈A} E_aj U_aj for every set and item, as far as rounding allows."""
    for columns, E, U in tiles(kernel, sets, given):
        _write_differences(kernel.squared_norms[columns], E, U, sets.indptr, out[:, columns])


def _write_differences(
    norms: Array, E: NDArray[np.floating], U: NDArray[np.floating], indptr: Ints, out: Array
) -> None:
    tile = np.ascontiguousarray(out)  # of one set it is `out`
    tile[:] = norms
    compiled.kernels.subtract_products(tile, E, U, indptr, np.full(len(out), -np.inf))
    if tile is not out:
        out[:] = tile


def _have_few_neighbors(kernel: Kernel, sets: Sets) -> bool:
    """Return whether tables of every set's members and their neighbors in S are small."""
    starts = kernel.skew.indptr
    degrees = (starts[sets.indices + 1] - starts[sets.indices]).astype(np.float64)
    return bool((sums_over_sets(degrees, sets) * sets.sizes).max(initial=0.0) <= MAX_LINKED)


def _write_by_squares(kernel: Kernel, sets: Sets, given: Inverses, scores: Array) -> None:
    """Write `scores_given` where G is the identity.

    For an item without an entry of S in the rows A, the score is L_jj − x_jᵀ X_Aᵀ W X_A x_j. Only
    the symmetric part of W counts, which is positive semi-definite as that of L_A is, so that the
    score is L_jj − |C x_j|² for a root C. C has half as many rows as E and U together, and at most
    r. The few items with an entry follow by definition.

    Members are scaled to L_ii = 1 first. Otherwise a root would know the least popular members only
    up to the rounding of the largest entries of W.
    """
    X = kernel.X
    norms = kernel.squared_norms
    members = [sets.indices[first:last] for first, last in itertools.pairwise(sets.indptr.tolist())]
    roots = []
    for s, codes in enumerate(members):
        scales = np.sqrt(np.where(norms[codes] > 0, norms[codes], 1.0))
        own = X[codes] / scales[:, None]
        W = given.of(s) * scales[:, None] * scales
        narrow = len(codes) <= X.shape[1]
        half = W if narrow else own.T @ (W @ own)
        values, vectors = np.linalg.eigh(half + half.T)
        root = np.sqrt(np.maximum(values, 0.0) / 2)[:, None] * vectors.T
        roots.append(root @ own if narrow else root)
    # Frozen as the pointers of sets are, so that one compiled form of the kernel is enough.
    indptr = frozen(pointers(np.minimum(sets.sizes, X.shape[1])))
    for columns, Y in product_tiles(np.concatenate(roots), kernel.by_column):
        _write_differences(norms[columns], Y, Y, indptr, scores[:, columns])
    for s, codes in enumerate(members):
        owner, columns_of_S, values = kernel.skew.entries(codes)
        neighbors, place = np.unique(columns_of_S, return_inverse=True)
        S = np.zeros((len(codes), len(neighbors)))
        S[owner, place] = values
        XX = X[codes] @ X[neighbors].T
        subtracted = ((XX - S) * (given.of(s) @ (XX + S))).sum(axis=0)
        scores[s, neighbors] = norms[neighbors] - subtracted


@blas_threads(1)
def scores_given_prefixes(kernel: Kernel, codes: Codes, items: Ints) -> Array:
    """Return `scores_given` of some items, given the first 0, 1, ..., n of these codes (n + 1, m).

    One elimination L_AA = N U serves all prefixes, a block of rows at a time. With N of unit
    diagonal, the score of j given the first t codes is

        L_jj − Σ_{s≤t} (L_jA U⁻¹)_s (N⁻¹ L_Aj)_s.

    A code that is nearly dependent on earlier ones is passed over.
    """
    n = len(codes)
    used, place = np.unique(np.append(codes, items).astype(np.int32), return_inverse=True)
    L = factor.submatrix(kernel, used)[np.ix_(place, place)]
    least = NEARLY_DEPENDENT * np.diagonal(L)
    scores = np.empty((n + 1, len(items)))
    scores[0] = np.diagonal(L)[n:]
    for first in range(0, n, ROWS_PER_BLOCK // 4):
        last = min(first + ROWS_PER_BLOCK // 4, n)
        block = slice(first, last)
        rest = slice(last, None)
        NU, skipped = _eliminated(L[block, block], least[block])
        L[block, rest] = solve_triangular(NU, L[block, rest], lower=True, unit_diagonal=True)
        L[rest, block] = solve_triangular(NU, L[rest, block].T, trans="T").T
        L[first + skipped, last:] = 0.0
        L[last:, first + skipped] = 0.0
        terms = L[n:, block].T * L[block, n:]
        scores[first + 1 : last + 1] = scores[first] - np.cumsum(terms, axis=0)
        L[rest, rest] -= L[rest, block] @ L[block, rest]
    return scores


def _eliminated(A: Array, least: Array) -> tuple[Array, Ints]:
    """Return N and U of a small matrix in one array, and the rows skipped for pivots ≤ `least`."""
    A = A.copy()
    skipped = []
    for k in range(len(A)):
        if not A[k, k] > least[k]:
            skipped.append(k)
            A[k, k:] = 0.0
            A[k + 1 :, k] = 0.0
            A[k, k] = 1.0
            continue
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A, np.array(skipped, dtype=np.int64)


@blas_threads(1)
def write_scores_without_each(kernel: Kernel, sets: Sets, out: Array) -> None:
    """Write `scores_given` of every set without each of its entries (nnz, M), on one thread.

    One factorization per set is enough (docs/theory.md). With U = W L_A:, Q = Wᵀ L_:Aᵀ and c_j the
    score of j given all of A, the score given A∖i is

        c_j + Q_ij U_ij / W_ii,

    which for a symmetric L is c_j + (q_iᵀ v_j)², q_i the direction of i off the others. Sets that
    are nearly dependent, with or without an entry, are scored one by one.
    """
    n = len(sets.indices)
    norms = kernel.squared_norms
    given: Factors
    if kernel.symmetric:
        given = factor.bases(kernel, sets, directions=True, n_jobs=1)
        scores = given.scores
        weights = np.ones(n)
        rows = given.rows
        V = kernel.vectors
    else:
        given = factor.inverses(kernel, sets, ridge=RIDGE, n_jobs=1)
        with np.errstate(divide="ignore"):
            scores = weights = 1.0 / given.diagonals(sets)
        rows = rows_of_sets(kernel, sets, given, parts=3)
        V = kernel.by_column
    for columns, product in product_tiles(rows, V):
        Y = product.astype(np.float64, copy=False)
        if isinstance(given, Inverses):
            _add_skew(Y, columns, kernel, sets, given)
            parts = Y[:n], Y[n : 2 * n], Y[2 * n :], Y[n : 2 * n]
        else:
            along = np.empty_like(Y)
            for first, last in itertools.pairwise(sets.indptr.tolist()):
                directions = given.weights[first:last, : last - first]
                np.matmul(directions, Y[first:last], out=along[first:last])
            parts = Y, Y, along, along
        compiled.kernels.scores_without_each(
            norms[columns], *parts, weights, sets.indptr, out[:, columns]
        )
    hard = np.flatnonzero(nearly_dependent(scores, norms[sets.indices], sets))
    if len(hard):
        out[np.isin(sets.owners, hard)] = scores_given(kernel, without_each(take_sets(sets, hard)))


def nearly_dependent(scores: Array, norms: Array, sets: Sets) -> Flags:
    """Return which sets have an entry whose 1/W_ii is too far from L_ii for closed forms."""
    clear = (scores > NEARLY_DEPENDENT * norms) & (scores * NEARLY_DEPENDENT < norms)
    unclear: Flags = np.zeros(sets.count, dtype=bool)
    some = sets.sizes > 0
    unclear[some] = np.logical_or.reduceat(~clear, sets.indptr[:-1][some]) if some.any() else False
    return unclear


# -- The best items --------------------------------------------------------------------------------


def best_next(
    kernel: Kernel, sets: Sets, n: int, *, candidates: Candidates, banned: Codes
) -> tuple[Ints, Array]:
    """Return the codes of the n best next items of every set, and P(next = i | A).

    Parameters
    ----------
    candidates : ascending codes, optional
        Only these are scored. Probabilities still refer to all items: their sum has a closed form.
    banned : codes
        Items that are not returned.

    Returns
    -------
    codes, probabilities : arrays (n_sets, at most n)
        As wide as the longest row; shorter rows end in −1 and 0.
    """
    n_columns = kernel.n_items if candidates is None else len(candidates)
    n = min(n, n_columns)
    bounded = n_columns >= BOUNDED_FROM and (kernel.has_identity_inner or kernel.symmetric)
    if bounded and sets.sizes.max(initial=0) <= factor.LARGE:
        return _best_by_bounds(kernel, sets, n, candidates, banned)
    columns = np.arange(n_columns) if candidates is None else candidates
    codes = np.full((sets.count, n), -1, dtype=np.int64)
    probabilities = np.zeros((sets.count, n))
    for first, last, scores in next_scores(kernel, sets, candidates=candidates) if n else ():
        if candidates is None:
            totals = np.maximum(scores, 0.0).sum(axis=1)
        else:
            totals = next_totals(kernel, take_sets(sets, np.arange(first, last)))
        scores[:, np.isin(columns, banned)] = -np.inf
        best = top_n(scores, n)
        values = np.take_along_axis(scores, best, axis=1)
        found = values >= 0
        codes[first:last] = np.where(found, columns[best], -1)
        where = found & (totals[:, None] > 0)
        np.divide(values, totals[:, None], out=probabilities[first:last], where=where)
    return without_blanks(codes, probabilities)


def _best_by_bounds(
    kernel: Kernel, sets: Sets, n: int, candidates: Candidates, banned: Codes
) -> tuple[Ints, Array]:
    """Return the same as `best_next`, scoring only items that may be among the best."""
    allowed = None
    if candidates is not None or len(banned):
        allowed = np.full(kernel.n_items, candidates is None)
        allowed[() if candidates is None else candidates] = True
        allowed[banned] = False
    codes = np.full((sets.count, n), -1, dtype=np.int64)
    scores = np.zeros((sets.count, n))
    for s in range(sets.count if n else 0):
        found, values = _best_of_order(kernel, take_sets(sets, np.array([s])), s, n, allowed)
        codes[s, : len(found)] = found
        scores[s, : len(found)] = values
    totals = next_totals(kernel, sets)[:, None]
    probabilities = np.divide(scores, totals, out=np.zeros_like(scores), where=totals > 0)
    return without_blanks(codes, probabilities)


def _best_of_order(
    kernel: Kernel, A: Sets, number: int, n: int, allowed: Flags | None
) -> tuple[Ints, Array]:
    """Return the n best items of one basket and their scores, reading items by descending L_jj.

    An item without an entry of S in the rows A has the score L_jj − (V_A v_j)ᵀ W (V_A v_j) ≤ L_jj,
    because the symmetric part of W is positive semi-definite. Reading stops where L_jj is below the
    n-th best score. Neighbors of A in S may exceed L_jj, so that all of them are scored first.
    """
    order = kernel.by_weight
    bound_factor = 1.0
    if not kernel.symmetric and len(A.indices):
        worst = float(factor.inverses(kernel, A).worst[0])
        bound_factor += INVERSE_ROUNDING * (len(A.indices) * worst) ** 2
    neighbors = np.unique(kernel.skew.entries(A.indices)[1])
    codes = np.empty(0, dtype=np.int64)
    scores = np.empty(0)
    first = 0
    step = max(FIRST_SCORED, 2 * n)
    while first < len(order):
        block = order[first : first + step]
        new = np.setdiff1d(block, neighbors) if first else np.union1d(block, neighbors)
        new = new if allowed is None else new[allowed[new]]
        new_scores = score_block(kernel, A, np.array([number]), new)[0]
        codes = np.append(codes, new[new_scores >= 0])
        scores = np.append(scores, new_scores[new_scores >= 0])
        best = np.lexsort((codes, -scores))[:n]  # of equal scores the lower code
        codes = codes[best]
        scores = scores[best]
        first += step
        step = min(2 * step, MAX_SCORED_AT_ONCE)
        next_bound = bound_factor * kernel.squared_norms[order[min(first, len(order) - 1)]]
        if len(codes) == n and scores[-1] > next_bound:
            break
    return codes, scores


def next_probabilities(
    distribution: Kernel | Mixture, sets: Sets
) -> Iterator[tuple[int, int, Array]]:
    """Return P(next = i | A) of every set and item, block by block: first, last, probabilities.

    A row sums to 1, or is all zero if its set has all items.
    """
    for first, last, scores in distribution.next_scores(sets):
        probabilities = np.maximum(scores, 0.0)
        totals = probabilities.sum(axis=1, keepdims=True)
        totals[totals == 0] = 1.0  # a set of all items: `next_scores` refuses others
        yield first, last, probabilities / totals


def without_blanks(codes: Ints, values: Array) -> tuple[Ints, Array]:
    """Cut both arrays to the width of the longest row, where rows end in codes of −1."""
    width = int((codes >= 0).sum(axis=1).max(initial=0))
    return codes[:, :width], values[:, :width]


def best_columns(scores: Array, values: Array, n: int) -> tuple[Ints, Array]:
    """Return the columns of the n best scores of every row and their values.

    Rows with fewer scores above −inf end in −1 and 0.
    """
    best = top_n(scores, n)
    found = np.take_along_axis(scores, best, axis=1) > -np.inf
    best_values = np.take_along_axis(values, best, axis=1)
    return np.where(found, best, -1), np.where(found, best_values, 0.0)


def top_n(scores: Array, n: int, rounding: Array | None = None) -> Ints:
    """Return the columns of the n largest scores of every row, best first, ties by column.

    Parameters
    ----------
    scores : array (rows, columns)
        Entries of −inf come last; the caller cuts them off.
    n : int
        The number of columns to return, at most that of `scores`.
    rounding : array (columns,), optional
        Scores tie that differ by no more than this. It counts for n up to `MAX_INSERTED`.
    """
    n_columns = scores.shape[1]
    n = min(n, n_columns)
    if n == 0:
        return np.empty((len(scores), 0), dtype=np.int64)
    if n == n_columns:
        return np.argsort(-scores, axis=1, kind="stable")
    if n <= MAX_INSERTED:
        best = np.empty((len(scores), n), dtype=np.int64)
        rounding = np.zeros(n_columns) if rounding is None else rounding
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        compiled.kernels.best_of_rows(scores, rounding, best)
        return best
    columns = np.argpartition(scores, n_columns - n, axis=1)[:, -n:]
    lowest = np.take_along_axis(scores, columns, axis=1).min(axis=1)
    for row in np.flatnonzero((scores >= lowest[:, None]).sum(axis=1) > n):  # a tie at the cut
        columns[row] = np.argsort(-scores[row], kind="stable")[:n]
    columns.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
