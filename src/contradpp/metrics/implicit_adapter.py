"""Models of the `implicit` package behind the interface of the baselines. The package itself is never imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.metrics.interface import Baseline, sparse_rows
from contradpp.metrics.linear_scoring import LinearScorer
from contradpp.metrics.scoring import Array, PredictScorer, Scorer


@dataclass
class Implicit(Baseline):
    """A model of the `implicit` package; a basket takes the place of a user.

    A basket is not one of the users that the model was fitted to, so it is scored by what the model offers:
    its item-item `similarity` (nearest neighbours), else `recalculate_user` (ALS), else the mean of the basket's
    item factors (BPR, logistic factorisation). In the last case a column that is the same for every user, such as
    the 1 that goes with the item biases, keeps its value.

    Parameters
    ----------
    model : object
        For instance `implicit.als.AlternatingLeastSquares(factors=64)`; `fit` fits it.
    """

    model: Any

    def _learn(self, train: Baskets) -> None:
        for name in ("fit", "recommend"):
            if not hasattr(self.model, name):
                raise ParameterError(f"{self.model!r} is no model of the implicit package: it has no {name}")
        from scipy.sparse import csr_matrix

        self.model.fit(csr_matrix(train.to_csr(), dtype=np.float32), show_progress=False)

    def _scores(self, sets: Sets) -> Array:
        baskets = sparse_rows(sets, len(self.items_))
        similarity = getattr(self.model, "similarity", None)
        if similarity is not None:
            return np.asarray((baskets @ similarity).toarray(), dtype=np.float64)
        items = _dense(self.model.item_factors)
        users = self._users(baskets, items)
        return users @ items.T

    def _users(self, baskets: Any, items: Array) -> Array:
        """A factor per basket."""
        try:
            return _dense(self.model.recalculate_user(np.arange(baskets.shape[0]), baskets.astype(np.float32)))
        except (AttributeError, NotImplementedError):
            sizes = np.maximum(np.diff(baskets.indptr), 1)
            users: Array = (baskets @ items) / sizes[:, None]
            learned = _dense(self.model.user_factors)
            fixed = (learned == learned[0]).all(axis=0)
            users[:, fixed] = learned[0, fixed]
            return users

    def _scorer(self) -> Scorer:
        items = self._known
        similarity = getattr(self.model, "similarity", None)
        if similarity is None:
            return PredictScorer(self, self._scores)
        rows = similarity.tocsr()
        return LinearScorer(items, lambda codes: rows[codes].toarray().astype(np.float64))


def _dense(factors: Any) -> Array:
    """Factors of the CPU models are arrays, those of the GPU models know how to become one."""
    array = factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    return np.asarray(array, dtype=np.float64)
