"""An adapter for models of the `implicit` package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp._types import Array
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline
from contradpp.experts.statistics import BasketStatistics, Rows, indicator


@dataclass(eq=False, repr=False)
class Implicit(Baseline):
    """A model of the `implicit` package; a basket takes the place of a user.

    A basket is not one of the users that the model was fitted to. It is scored by the first of
    these that the model has: an item-item `similarity` (nearest neighbors), `recalculate_user`
    (ALS), or the mean of the basket's item factors (BPR, logistic factorization). In the last case
    a column that is the same for every user, such as the 1 that goes with the item biases, keeps
    its value.

    Parameters
    ----------
    model : object
        For instance `implicit.als.AlternatingLeastSquares(factors=64)`; `fit` fits it.
    """

    model: Any

    def _fit(self, statistics: BasketStatistics) -> None:
        for name in ("fit", "recommend"):
            if not hasattr(self.model, name):
                raise ParameterError(
                    f"{self.model!r} is no model of the implicit package: it has no {name}"
                )
        from scipy.sparse import csr_matrix

        self.model.fit(csr_matrix(statistics.train.to_csr(), dtype=np.float32), show_progress=False)
        similarity = getattr(self.model, "similarity", None)
        self.item_weights_ = None if similarity is None else Rows.of(similarity)

    def write_scores(self, sets: Sets, out: Array) -> None:
        if self.item_weights_ is not None:
            super().write_scores(sets, out)
            return
        items = _dense(self.model.item_factors)
        out[:] = self._user_factors(indicator(sets, len(self.known_items)), items) @ items.T

    def _user_factors(self, baskets: Any, items: Array) -> Array:
        users = np.arange(baskets.shape[0])
        try:
            return _dense(self.model.recalculate_user(users, baskets.astype(np.float32)))
        except (AttributeError, NotImplementedError):
            sizes = np.maximum(np.diff(baskets.indptr), 1)
            factors: Array = (baskets @ items) / sizes[:, None]
            fitted = _dense(self.model.user_factors)
            constant = (fitted == fitted[0]).all(axis=0)
            factors[:, constant] = fitted[0, constant]
            return factors


def _dense(factors: Any) -> Array:
    """Return factors as an array; those of GPU models convert themselves."""
    array = factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    return np.asarray(array, dtype=np.float64)
