"""A set of a nonsymmetric DPP that grows item by item: all next-item scores, kept up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Array
from contradpp.errors import RankError

if TYPE_CHECKING:
    from contradpp.dpp.nonsymmetric import NonsymmetricKernel

# A score below this share of L_jj is rounding.
TINY = 1e-12


class GrowingSkewSet:
    """The items of a set, what it takes to condition on them, and det L_{A∪j} / det L_A for every j.

    The kernel given A is L − Eᵀ U, with a row of E and of U for every item of A. When item i joins, its column and
    its row of that kernel, the latter divided by its score, become the new rows: O((r + |A|) M) per item.

    Attributes
    ----------
    codes : list of int
        The items, in the order in which they came.
    scores : ndarray (M,)
        The next-item scores; meaningless for the items of the set.
    """

    def __init__(self, kernel: NonsymmetricKernel, given: ArrayLike = ()) -> None:
        self.kernel = kernel
        self.codes: list[int] = np.asarray(given, dtype=np.int32).reshape(-1).tolist()
        self.scores: Array = kernel.squared_norms.copy()
        self._E: list[Array] = []  # columns of L given the earlier items
        self._U: list[Array] = []  # rows of it
        self.take_afresh()

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
        column, row = self._column(code), self._row(code)
        if code in self.codes or not column[code] > TINY * self._size(code):
            raise RankError(f"item {code} cannot join: the set would have probability zero")
        row /= column[code]
        self.scores -= column * row
        self._E.append(column)
        self._U.append(row)
        self.codes.append(int(code))

    def take_afresh(self) -> None:
        """Compute all scores from the inverse of L_A, and set to zero those that are only rounding."""
        codes = np.array(self.codes, dtype=np.int32)
        inverses = self.kernel.inverses(Sets.one(codes))
        if len(codes) > self.kernel.rank or len(inverses.singular):
            raise RankError(
                "the basket has probability zero: it has more items than the kernel's components and links allow, or "
                "its items are linearly dependent"
            )
        W, X = inverses.W.reshape(len(codes), len(codes)), self.kernel.factors
        S = self.kernel.skew.matrix()[codes].toarray() if len(codes) else np.zeros((0, len(X)))
        E = self.kernel.right[codes] @ X.T - S
        U = W @ (self.kernel.left[codes] @ X.T + S)
        terms = E * U
        self.scores = self.kernel.squared_norms - terms.sum(axis=0)
        self.scores[self.scores <= TINY * (self.kernel.squared_norms + np.abs(terms).sum(axis=0))] = 0.0
        self._E, self._U = list(E), list(U)

    def can_join(self, code: int) -> bool:
        """Whether the set would still have positive probability with this item."""
        return bool(self._column(code)[code] > TINY * self._size(code))

    def _size(self, code: int) -> float:
        """The size of the terms that the score of an item is made of."""
        taken = sum(abs(float(e[code] * u[code])) for e, u in zip(self._E, self._U, strict=True))
        return float(self.kernel.squared_norms[code]) + taken

    def _column(self, code: int) -> Array:
        """L_:i given the set."""
        column: Array = self.kernel.factors @ self.kernel.right[code]
        self._add_partners(column, code, -1.0)
        for e, u in zip(self._E, self._U, strict=True):
            column -= e * u[code]
        return column

    def _row(self, code: int) -> Array:
        """L_i: given the set."""
        row: Array = self.kernel.factors @ self.kernel.left[code]
        self._add_partners(row, code, 1.0)
        for e, u in zip(self._E, self._U, strict=True):
            row -= u * e[code]
        return row

    def _add_partners(self, values: Array, code: int, sign: float) -> None:
        skew = self.kernel.skew
        partners = slice(int(skew.indptr[code]), int(skew.indptr[code + 1]))
        values[skew.indices[partners]] += sign * skew.values[partners]
