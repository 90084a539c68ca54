"""A basket that grows item by item, with the score of every further item; and greedy completion, which is its use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.data.sets import Sets, take_sets
from contradpp.dpp import condition, factor
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
MOST_PAIRED = 2000  # items up to which all pairs are looked at where no single item may join


class GrowingSet:
    """The items of a set, what it takes to condition on them, and det L_{A∪j} / det L_A for every j.

    The kernel given A is L − Eᵀ U, with a row of E and of U for every item of A. When item i joins, its column and
    its row of that kernel, divided by its score, become the new rows: one product with X, and O(|A| M) besides. Where L
    is symmetric both are V q, q the direction that the item adds to those of the set.

    Attributes
    ----------
    codes : list of int
        The items, in the order in which they came.
    scores : ndarray (M,)
        The next-item scores, 0 exactly where a set would have probability zero; −inf for the items of the set.
    """

    def __init__(self, kernel: Kernel, given: ArrayLike = ()) -> None:
        self.kernel = kernel
        codes = np.asarray(given, dtype=np.int32).reshape(-1)
        self.codes: list[int] = codes.tolist()
        self._E: NDArray[np.floating] = np.empty((0, kernel.n_items))
        self._U: NDArray[np.floating] = self._E
        self.scores: Array = kernel.squared_norms.copy()
        self._sizes: Array = kernel.squared_norms.copy()  # the sum of the sizes of the terms of each score
        if len(codes):
            factors = self._factors(codes.tolist())
            self._E, self._U = condition.products(kernel, Sets.one(codes), factors)
            terms = self._E * self._U.astype(np.float64)
            self.scores -= terms.sum(axis=0)
            self._sizes += np.abs(terms).sum(axis=0)
            self._settle(factors)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def open_to(self) -> NDArray[np.bool_]:
        """Which items are not in the set."""
        free = np.ones(self.kernel.n_items, dtype=bool)
        free[self.codes] = False
        return free

    def add(self, code: int) -> None:
        """Put an item into the set; `RankError` if the set would have probability zero then."""
        kernel, score = self.kernel, self.scores[code]
        if not score > 0:
            raise RankError(f"item {code} cannot join: the set would have probability zero")
        factors = self._factors([*self.codes, int(code)])
        if isinstance(factors, factor.Bases):
            V = kernel.vectors
            e = u = (V @ factors.rows[-1].astype(V.dtype, copy=False)).astype(np.float64, copy=False)
        else:
            e = self._line(kernel.right[code], code, -1.0) - self._U[:, code] @ self._E
            u = (self._line(kernel.left[code], code, 1.0) - self._E[:, code] @ self._U) / score
            self._E, self._U = np.vstack([self._E, e]), np.vstack([self._U, u])
        self.scores -= e * u
        self._sizes += np.abs(e * u)
        self.codes.append(int(code))
        self._settle(factors)

    def _factors(self, codes: list[int]) -> factor.Bases | factor.Inverses:
        """Those of a set, or `RankError` if it has probability zero."""
        if len(codes) <= self.kernel.largest_set:
            found = factor.factorise(self.kernel, Sets.one(codes))
            if np.isfinite(found.logs[0]):
                return found
        raise RankError(
            "the basket has probability zero: it has more items than the kernel's components and links allow, or its "
            "items are linearly dependent"
        )

    def _line(self, row: Array, code: int, sign: float) -> Array:
        """X row, with the item's entries of S: its column or its row of L, but for its own entry."""
        skew = self.kernel.skew
        line: Array = self.kernel.wide @ row
        partners = slice(int(skew.indptr[code]), int(skew.indptr[code + 1]))
        line[skew.indices[partners]] += sign * skew.values[partners]
        return line

    def _settle(self, factors: factor.Bases | factor.Inverses) -> None:
        """Make scores zero that are, and compute those anew that rounding may have spoiled."""
        self.scores[self.codes] = -np.inf
        clear = factor.clear_share(self.kernel, factors.worst)[0] * self._sizes
        unclear = np.flatnonzero((self.scores <= clear) & (self.scores > -np.inf) & (self._sizes > 0))
        if len(unclear):
            copies = take_sets(Sets.one(self.codes), np.zeros(len(unclear), dtype=np.int64))
            logs = np.repeat(factors.logs, len(unclear))
            self.scores[unclear] = factor.scores_by_definition(self.kernel, copies, logs, unclear)


def greedy_completion(
    kernel: Kernel, given: NDArray[np.int32], size: int, *, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """The given items, then again and again the item (or two that need each other) that raises det L the most.

    A step costs one product with the factors. Finding the true maximum is NP-hard; greedy is what can be done (Chen,
    Zhang and Zhou 2018 for the same recursion).

    Parameters
    ----------
    allowed : bool array (M,), optional
        Which items may be added.
    """
    if size > kernel.largest_set:
        raise RankError(condition.too_large(size, kernel.largest_set))
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
                f"no other item can join the {len(chosen)} that were chosen greedily, so there is no set of {size}; "
                f"try size={len(chosen)}"
            )
        chosen = kernel.grow([*chosen.codes, *pair])
    return np.array(chosen.codes, dtype=np.int32)


def _best_pair(kernel: Kernel, chosen: GrowingSet, allowed: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The two items that raise det L the most where neither may join alone, as two that only attract each other."""
    if kernel.symmetric or kernel.n_items > MOST_PAIRED:
        return None
    given, rest = kernel.condition(np.array(chosen.codes, dtype=np.int32))
    L, free = given.matrix(), allowed[rest]
    weights = np.diagonal(L)
    gains = np.outer(weights, weights) - L * L.T
    gains[~free], gains[:, ~free] = -np.inf, -np.inf
    np.fill_diagonal(gains, -np.inf)
    first, second = np.unravel_index(int(np.argmax(gains)), gains.shape)
    pair = int(rest[first]), int(rest[second])
    possible = gains[first, second] > 0 and np.isfinite(kernel.log_det(Sets.one([*chosen.codes, *pair]))[0])
    return pair if possible else None
