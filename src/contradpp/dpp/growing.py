"""A basket that grows item by item: all next-item scores, kept up to date by one product with V per item."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Array, LowRankKernel
from contradpp.dpp.linalg import DEPENDENT
from contradpp.errors import RankError


class GrowingSet:
    """The items of a set, orthonormal directions that span their factors, and det L_{A∪j} / det L_A for every j.

    When item i joins, the score of j falls by (v_j · q)², q the direction that i adds: a rank-one update.

    Attributes
    ----------
    codes : list of int
        The items, in the order in which they came.
    scores : ndarray (M,)
        The next-item scores; meaningless for the items of the set.
    """

    def __init__(self, kernel: LowRankKernel, given: ArrayLike = ()) -> None:
        self.kernel = kernel
        codes = np.asarray(given, dtype=np.int32).reshape(-1)
        bases = kernel.bases(Sets.one(codes))
        if len(codes) > kernel.n_components or not bases.pivots.all():
            raise RankError(
                "the basket has probability zero: it has more items than the kernel has components, or the factors of "
                "its items are linearly dependent"
            )
        self.codes = codes.tolist()
        self._directions = np.empty((kernel.n_components, kernel.n_components))
        self._directions[: len(codes)] = bases.rows
        products = kernel.factors @ bases.rows.T.astype(kernel.factors.dtype)
        self.scores: Array = kernel.squared_norms - np.square(products).sum(axis=1, dtype=np.float64)
        eps = float(np.finfo(kernel.factors.dtype).eps)
        self._tiny = max(4.0 * eps * kernel.n_components, DEPENDENT) ** 2

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
        residual = self._off(self.kernel.factors[code])
        if code in self.codes or residual @ residual <= self._tiny * self.kernel.squared_norms[code]:
            raise RankError(f"item {code} cannot join: the set would have probability zero")
        direction = residual / np.linalg.norm(residual)
        self._directions[len(self.codes)] = direction
        V = self.kernel.factors
        self.scores -= np.square(V @ direction.astype(V.dtype), dtype=np.float64)
        self.codes.append(int(code))

    def take_afresh(self) -> None:
        """Compute all scores from the factors, and set to zero those that are only rounding."""
        self.scores = np.square(self._off(self.kernel.factors)).sum(axis=1)
        self.scores[self.scores <= self._tiny * self.kernel.squared_norms] = 0.0

    def can_join(self, code: int) -> bool:
        """Whether the set would still have positive probability with this item."""
        residual = self._off(self.kernel.factors[code])
        return bool(residual @ residual > self._tiny * self.kernel.squared_norms[code])

    def _off(self, rows: NDArray[np.floating]) -> Array:
        """What is left of the rows off the directions; a second pass removes what rounding left."""
        directions = self._directions[: len(self.codes)]
        left = rows.astype(np.float64)
        for _ in range(2):
            left = left - (left @ directions.T) @ directions
        return left
