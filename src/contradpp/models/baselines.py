"""What a practitioner would try first, behind the interface of the DPPs: popularity, neighbours, EASE, weights
of pairs, implicit.

Each is also a voice that a model of several can listen to: `models/scores.py` says what it can be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets
from contradpp.dpp.linalg import cholesky_threads
from contradpp.errors import NumericalError, ParameterError
from contradpp.models.loglinear import LogLinear
from contradpp.models.neighbours import BasketNeighbours, ItemKNN, RidgeNeighbours, at_least, tie_break
from contradpp.models.queries import as_queries
from contradpp.models.rows import Labour, Rows, Sums, indicator
from contradpp.models.scores import Array, Baseline

__all__ = ["EASE", "BasketNeighbours", "Implicit", "ItemKNN", "LogLinear", "Popularity", "RidgeNeighbours"]

DENSE_UP_TO = 20_000  # items: the matrix of EASE has 3.2 GB then, and takes minutes


@dataclass
class Popularity(Baseline):
    """Every basket is offered the items that sell most; as a distribution over sets, items are independent.

    log P(A) = Σ_{i∈A} log p_i + Σ_{i∉A} log(1 − p_i), with p_i = (n_i + s)/(n + 2s) for an item in n_i of the
    n baskets.

    Parameters
    ----------
    smoothing : float
        s. With 0, a set with an item that never sold is impossible. It changes no ranking.

    Examples
    --------
    >>> model = Popularity().fit([["tea", "milk"], ["milk"], ["milk", "bread"], ["bread"]])
    >>> model.recommend(["milk"])[0].tolist()
    ['bread', 'tea']
    """

    smoothing: float = 0.5

    def _learn(self, labour: Labour) -> None:
        at_least(0, smoothing=self.smoothing)
        train = labour.train
        self.counts_ = train.item_counts
        self.probabilities_ = self._smoothed(self.counts_, train.n_baskets)

    def _smoothed(self, counts: NDArray[np.int64], n_baskets: int) -> Array:
        return (counts.astype(np.float64) + self.smoothing) / (n_baskets + 2 * self.smoothing)

    def score_samples(self, baskets: Any, *, unknown: str = "error") -> Array:
        """log P(A) of every basket."""
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.log_probability(queries.sets)
        return logs[0] if queries.single else logs

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) of every set."""
        p = self.probabilities_
        certain = p == 1  # in every basket: a set without such an item is impossible
        with np.errstate(divide="ignore"):
            gain = np.where(certain, 0.0, np.log(p) - np.log1p(-np.where(certain, 0.0, p)))
        owner = np.repeat(np.arange(sets.count), sets.sizes)
        held = np.bincount(owner, weights=certain[sets.indices], minlength=sets.count)
        impossible = np.zeros(sets.count)
        impossible[held < certain.sum()] = -np.inf
        logs: Array = np.log1p(-p[~certain]).sum() + _sums(gain[sets.indices], sets) + impossible
        return logs

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write p, whatever the basket holds."""
        del sets
        out[:] = self.probabilities_

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write p, whatever the basket holds."""
        self.write_scores(sets, out)

    def alone(self, items: NDArray[np.int64]) -> Array:
        """p."""
        return self.probabilities_[items]

    def sums(self) -> Sums:
        """The counts, whatever the basket holds."""
        return Sums(self.counts_.astype(np.float64), None)


@dataclass
class EASE(Baseline):
    """A linear model of every item on the others, in closed form (Steck 2019): B = I − P diag(P)⁻¹, P = (XᵀX + λI)⁻¹.

    The score of j is Σ_{a∈A} B[a, j]. B is dense: M² numbers, and M³ work. Beyond 20,000 items it is refused:
    `RidgeNeighbours` is the same regression on the nearest items only.

    Parameters
    ----------
    regularization : float
        λ > 0.

    Examples
    --------
    Tea and milk say as much of each other as pasta and sauce:

    >>> EASE(regularization=1.0).fit([["tea", "milk"], ["pasta", "sauce"]] * 5).weights_.max().round(2).item()
    0.83
    """

    regularization: float = 100.0

    def _learn(self, labour: Labour) -> None:
        if not 0 < self.regularization < np.inf:
            raise ParameterError(f"regularization must be positive, got {self.regularization!r}")
        train = labour.train
        if train.n_items > DENSE_UP_TO:
            raise ParameterError(
                f"EASE is dense: for {train.n_items:,} items it would take {8e-9 * train.n_items**2:.0f} GB "
                f"(at most {DENSE_UP_TO:,} are allowed). RidgeNeighbours does the same with each item's nearest items"
            )
        X = train.to_csr()
        P = _inverse((X.T @ X).toarray(), self.regularization)
        P /= -P.diagonal().copy()
        np.fill_diagonal(P, 0.0)
        self.weights_ = P
        self.bias_ = tie_break(train, P)

    def sums(self) -> Sums:
        """The rows of B."""
        return Sums(np.asarray(self.bias_), self.weights_)


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

    def _learn(self, labour: Labour) -> None:
        for name in ("fit", "recommend"):
            if not hasattr(self.model, name):
                raise ParameterError(f"{self.model!r} is no model of the implicit package: it has no {name}")
        from scipy.sparse import csr_matrix

        self.model.fit(csr_matrix(labour.train.to_csr(), dtype=np.float32), show_progress=False)
        similarity = getattr(self.model, "similarity", None)
        self._rows = None if similarity is None else Rows.of(similarity)

    def write_scores(self, sets: Sets, out: Array) -> None:
        """By what the model offers."""
        if self._rows is not None:
            self._known_sums().write(sets, out)
            return
        items = _dense(self.model.item_factors)
        out[:] = self._users(indicator(sets, len(self.known_items)), items) @ items.T

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

    def sums(self) -> Sums | None:
        """Those of an item-item similarity, if the model has one."""
        if self._rows is None:
            return None
        return Sums(np.zeros(len(self.known_items)), self._rows)


def _inverse(G: Array, ridge: float) -> Array:
    """(G + ridge I)⁻¹ of a symmetric matrix, in its own memory."""
    from scipy.linalg.lapack import dpotrf, dpotri

    G[np.diag_indices_from(G)] += ridge
    with cholesky_threads(len(G)):
        factor, failed = dpotrf(G.T, lower=1, overwrite_a=1, clean=0)
        inverse, also = dpotri(factor, lower=1, overwrite_c=1)
    if failed or also:
        raise NumericalError(f"XᵀX + {ridge:g} I is singular to rounding: use a larger regularization")
    P: Array = inverse.T  # in C order only the triangle above the diagonal is written
    for first in range(0, len(P), 1024):
        rows = slice(first, first + 1024)
        P[rows, :first] = P[:first, rows].T
        block = np.triu(P[rows, rows])
        P[rows, rows] = block + np.triu(block, 1).T
    return P


def _sums(values: Array, sets: Sets) -> Array:
    """The sum of each set's entries; −inf stays −inf."""
    padded = np.append(values, 0.0)
    sums: Array = np.add.reduceat(padded, np.minimum(sets.indptr[:-1], len(values)))
    return np.where(sets.sizes > 0, sums, 0.0)


def _dense(factors: Any) -> Array:
    """Factors of the CPU models are arrays, those of the GPU models know how to become one."""
    array = factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    return np.asarray(array, dtype=np.float64)
