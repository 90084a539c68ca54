"""A linear model of every item on its nearest items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import Baskets
from contradpp.dpp import files as persist
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline, check_at_least, tie_break
from contradpp.experts.statistics import STORED_ROWS, BasketStatistics, Rows


@dataclass(eq=False, repr=False)
class RidgeNeighbors(Baseline):
    """A linear model of every item on its nearest items: EASE restricted to neighbors.

    It is sparse at any size. The score of j is Σ_{a∈A} B[a, j], with

    B_Nj = (C_NN + λI)⁻¹ C_Nj,  C = XᵀX,

    where N are the n items that are nearest to j by cosine, among those that it was ever bought
    with: the ridge regression of column j of the baskets × items matrix X.

    Parameters
    ----------
    n_neighbors : int
        n. The work is n³ per item; with all items for neighbors it is EASE.
    ridge : float
        λ > 0.
    dropout : float
        δ in [0, 1): δ/(1 − δ) n_i is added to λ on the diagonal, as if a share δ of every basket
        were missing when the rest is predicted (Steck 2020). It helps where baskets are short.
    n_jobs : int, optional
        Threads; None for all cores. The result does not depend on it.

    Examples
    --------
    >>> model = RidgeNeighbors(ridge=1.0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5)
    >>> model.recommend(["tea"], N=1)[0].tolist()
    ['milk']
    """

    ARRAYS: ClassVar[persist.Schema] = STORED_ROWS
    n_neighbors: int = 100
    ridge: float = 50.0
    dropout: float = 0.0
    n_jobs: int | None = None

    def _fit(self, statistics: BasketStatistics) -> None:
        check_at_least(1, n_neighbors=self.n_neighbors)
        if not 0 < self.ridge < np.inf:
            raise ParameterError(f"ridge must be positive, got {self.ridge!r}")
        if not 0 <= self.dropout < 1:
            raise ParameterError(f"dropout must lie in [0, 1), got {self.dropout!r}")
        train = statistics.train
        diagonal = self.ridge + self.dropout / (1 - self.dropout) * statistics.counts
        n_jobs = resolve_n_jobs(self.n_jobs)
        self._set(train, statistics.regress(diagonal, self.n_neighbors, n_jobs))

    def arrays(self) -> persist.Tensors:
        return persist.stored_arrays(self.item_weights_._asdict(), self.ARRAYS)

    def set_arrays(self, train: Baskets, arrays: persist.Tensors) -> None:
        self._set(train, Rows.restored(train.n_items, arrays))

    def _set(self, train: Baskets, rows: Rows) -> None:
        self.item_weights_: Rows = rows
        self.bias_ = tie_break(train, rows.values)
