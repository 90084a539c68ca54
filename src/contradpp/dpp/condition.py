"""A DPP given what is already in the basket: next items, their sum, and the kernel of the rest.

Given A, the kernel is L^A = L − L_:A W L_A:, W = L_A⁻¹, and the next item is j with probability ∝ L^A_jj. One matrix
product gives what is subtracted, for a block of baskets at once: with orthonormal rows Q that span A, the squares of
Q Vᵀ where L is symmetric; else the products of L_:Aᵀ and W L_A:, to which the few entries of S that concern the basket
are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr
from scipy.sparse import csr_array

from contradpp._threads import blas_threads
from contradpp.data.sets import Sets, runs, sums_over_sets, take_sets
from contradpp.dpp import compiled, factor
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
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
    if sizes.max() > factor.LARGE:
        with blas_threads(1):
            _subtract_large(kernel, part, given, candidates, scores)
    elif scores.shape[1]:
        E, U = products(kernel, part, given, candidates)
        if compiled.kernels.subtract_products(scores, E, U, part.indptr, factor.clear_share(kernel, given.worst)):
            rows, columns = np.nonzero(np.isnan(scores))
            items = columns if candidates is None else candidates[columns]
            unclear = take_sets(part, rows)
            scores[rows, columns] = factor.scores_by_definition(kernel, unclear, given.logs[rows], items)
    return scores


def _subtract_large(
    kernel: Kernel, part: Sets, given: factor.Bases | factor.Inverses, candidates: Candidates, scores: Array
) -> None:
    """Subtract from the scores of one large set, a few columns at a time; what may be rounding is as it is.

    By definition, each such score would take a factorisation of its own.
    """
    columns = np.arange(kernel.n_items) if candidates is None else candidates
    never = np.full(1, -np.inf)
    for these, E, U in tiles(kernel, part, given):
        mine = slice(*np.searchsorted(columns, [these.start, these.stop]))
        chosen, tile = columns[mine] - these.start, np.ascontiguousarray(scores[:, mine])
        if len(chosen):
            compiled.kernels.subtract_products(
                tile, np.ascontiguousarray(E[:, chosen]), np.ascontiguousarray(U[:, chosen]), part.indptr, never
            )
            scores[:, mine] = np.where(np.isneginf(tile), tile, np.maximum(tile, 0.0))


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
