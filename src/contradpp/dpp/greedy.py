"""Sets that grow by one item at a time, and the greedy most probable set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svdvals

from contradpp._types import Array, Codes, Flags
from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import factor, scoring
from contradpp.dpp.normalizer import MAX_DENSE_ITEMS
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

MOST_PAIRED = 2000  # items up to which all pairs are looked at where no single item may join


class GrowingSet:
    """A set A of items, with the score det L_{A∪j} / det L_A of every item j.

    The kernel given A is L − Eᵀ U, with a row of E and of U for every item of A. When item i joins,
    its column and its row of that kernel, divided by its score, become the new rows. That takes one
    product with X, and O(|A| M) besides. If L is symmetric both rows are V q, with q the direction
    that the item adds to those of the set.

    Attributes
    ----------
    codes : list of int
        The items in the order of their arrival.
    scores : ndarray (M,)
        Next-item scores: exactly 0 for an impossible set, −inf for the items of the set.
    """

    def __init__(self, kernel: Kernel, given: ArrayLike = ()) -> None:
        self.kernel = kernel
        codes = np.asarray(given, dtype=np.int32).reshape(-1)
        self.codes: list[int] = codes.tolist()
        self._E: NDArray[np.floating] = np.empty((0, kernel.n_items))
        self._U: NDArray[np.floating] = self._E
        self.scores: Array = kernel.squared_norms.copy()
        self._sizes = self.scores.copy()  # the sum of the sizes of the terms of each score
        if len(codes):
            factors = self._factors(codes.tolist())
            self._E, self._U = scoring.products(kernel, Sets.one(codes), factors)
            terms = self._E * self._U.astype(np.float64)
            self.scores -= terms.sum(axis=0)
            self._sizes += np.abs(terms).sum(axis=0)
            self._refresh_scores(factors)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def open_to(self) -> Flags:
        """The items outside of the set, as flags."""
        free = np.ones(self.kernel.n_items, dtype=bool)
        free[self.codes] = False
        return free

    def add(self, code: int) -> None:
        """Put an item into the set; raise `RankError` if the set would have probability zero."""
        kernel = self.kernel
        score = self.scores[code]
        if not score > 0:
            raise RankError(f"item {code} cannot join: the set would have probability zero")
        factors = self._factors([*self.codes, int(code)])
        if isinstance(factors, factor.Bases):
            V = kernel.vectors
            e = u = (V @ factors.rows[-1].astype(V.dtype, copy=False)).astype(
                np.float64, copy=False
            )
        else:
            e = self._row_of_kernel(kernel.right[code], code, -1.0) - self._U[:, code] @ self._E
            row = self._row_of_kernel(kernel.left[code], code, 1.0)
            u = (row - self._E[:, code] @ self._U) / score
            self._E = np.vstack([self._E, e])
            self._U = np.vstack([self._U, u])
        self.scores -= e * u
        self._sizes += np.abs(e * u)
        self.codes.append(int(code))
        self._refresh_scores(factors)

    def _factors(self, codes: list[int]) -> factor.Bases | factor.Inverses:
        """Factorize a set; raise `RankError` if it has probability zero."""
        if len(codes) <= self.kernel.largest_set:
            found = factor.factorize(self.kernel, Sets.one(codes))
            if np.isfinite(found.logs[0]):
                return found
        raise RankError(
            "the basket has probability zero: it has more items than the kernel's components and "
            "links allow, or its items are linearly dependent"
        )

    def _row_of_kernel(self, row: Array, code: int, sign: float) -> Array:
        """Return the item's column or row of L, except for its own entry."""
        skew = self.kernel.skew
        line: Array = self.kernel.X @ row
        entries = slice(int(skew.indptr[code]), int(skew.indptr[code + 1]))
        line[skew.indices[entries]] += sign * skew.values[entries]
        return line

    def _refresh_scores(self, factors: factor.Bases | factor.Inverses) -> None:
        """Set the scores of the set's items, and recompute those that rounding may have spoiled."""
        self.scores[self.codes] = -np.inf
        clear = factor.clear_share(self.kernel, factors.worst)[0] * self._sizes
        unclear = np.flatnonzero(
            (self.scores <= clear) & (self.scores > -np.inf) & (self._sizes > 0)
        )
        if len(unclear):
            copies = take_sets(Sets.one(self.codes), np.zeros(len(unclear), dtype=np.int64))
            logs = np.repeat(factors.logs, len(unclear))
            self.scores[unclear] = factor.scores_by_definition(self.kernel, copies, logs, unclear)


def greedy_completion(
    kernel: Kernel, given: Codes, size: int, *, allowed: Flags | None = None
) -> Codes:
    """Complete a set greedily by the item that raises det L most, or by two that need each other.

    A step costs one product with the factors. The true maximum is NP-hard to find; Chen, Zhang and
    Zhou (2018) use the same greedy recursion.

    Parameters
    ----------
    allowed : bool array (M,), optional
        The items that may be added.
    """
    if size > kernel.largest_set:
        raise RankError(scoring.too_large(size, kernel.largest_set))
    chosen = kernel.grow(given)
    allowed = np.ones(kernel.n_items, dtype=bool) if allowed is None else allowed
    while len(chosen) < size:
        scores = np.where(allowed, chosen.scores, -np.inf)
        best = int(np.argmax(scores))  # the first of equals
        if scores[best] > 0:
            chosen.add(best)
            continue
        pair = _best_pair(kernel, chosen, allowed) if size - len(chosen) >= 2 else None
        if pair is None:
            raise RankError(
                f"no other item can join the {len(chosen)} that were chosen greedily, so there is "
                f"no set of {size}; try size={len(chosen)}"
            )
        chosen = kernel.grow([*chosen.codes, *pair])
    return np.array(chosen.codes, dtype=np.int32)


def most_probable_set(kernel: Kernel, given: Codes) -> Codes:
    """Add the item that raises det L most to a set, for as long as it raises it."""
    chosen = kernel.grow(given)
    while len(chosen) < kernel.largest_set:
        best = int(np.argmax(chosen.scores))
        if not chosen.scores[best] > 1:
            break
        chosen.add(best)
    return np.array(chosen.codes, dtype=np.int32)


def log_det_bounds(kernel: Kernel) -> Array:
    """Return bounds of log det L_A for every |A| = 0, 1, ..., M, by eigenvalues and by Hadamard.

    Eigenvalues of a principal submatrix interlace with those of L, and singular values of any
    submatrix do not exceed those of L.
    """
    M = kernel.n_items
    lengths = kernel.squared_norms
    if not kernel.symmetric:  # rows are no longer than their parts are together
        squares = np.einsum("ik,ik->i", kernel.left @ kernel.dual, kernel.left)
        skew = np.square(kernel.skew.matrix()).sum(axis=1)
        lengths = np.sqrt(squares) + np.sqrt(skew) + kernel.diagonal
    values = lengths
    if kernel.is_low_rank or (kernel.symmetric and M <= MAX_DENSE_ITEMS):
        found = np.abs(kernel.eigenvalues)
        rounding = M * np.finfo(np.float64).eps * found.max(initial=0.0)
        values = np.concatenate([found, np.full(max(M - len(found), 0), rounding)])[:M]
    elif M <= MAX_DENSE_ITEMS:
        values = svdvals(kernel.matrix())
    with np.errstate(divide="ignore"):
        logs = [np.cumsum(np.log(np.sort(one)[::-1])) for one in (lengths, values)]
    return np.append(0.0, np.minimum(*logs))


def _best_pair(kernel: Kernel, chosen: GrowingSet, allowed: Flags) -> tuple[int, int] | None:
    """Return the two items that raise det L most if no single item may join."""
    if kernel.symmetric or kernel.n_items > MOST_PAIRED:
        return None
    given, rest = kernel.condition(np.array(chosen.codes, dtype=np.int32))
    L = given.matrix()
    free = allowed[rest]
    weights = np.diagonal(L)
    minors = np.outer(weights, weights) - L * L.T
    minors[~free] = -np.inf
    minors[:, ~free] = -np.inf
    np.fill_diagonal(minors, -np.inf)
    first, second = np.unravel_index(int(np.argmax(minors)), minors.shape)
    pair = int(rest[first]), int(rest[second])
    possible = minors[first, second] > 0 and np.isfinite(
        kernel.log_det(Sets.one([*chosen.codes, *pair]))[0]
    )
    return pair if possible else None
