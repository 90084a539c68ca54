"""Baselines that know what a customer bought before: personal frequency, TIFU-KNN and UP-CF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from contradpp._types import Array
from contradpp.data.sets import Sets
from contradpp.errors import DataError
from contradpp.experts.base import Baseline, check_at_least
from contradpp.experts.statistics import BasketStatistics


class HistoryBaseline(Baseline):
    """A baseline that looks at a customer's earlier baskets, and at popularity without them."""

    uses_history = True

    def _fit(self, statistics: BasketStatistics) -> None:
        train = statistics.train
        self.bias_ = 1e-9 * train.item_counts / train.n_baskets
        self._fit_customers(statistics)

    def _fit_customers(self, statistics: BasketStatistics) -> None:
        """Learn from the customers of the training baskets."""

    def write_scores(self, sets: Sets, out: Array) -> None:  # noqa: ARG002
        out[:] = 0.0

    def contributions(self, codes: Any, item: int) -> Array:  # noqa: ARG002
        return np.zeros(len(codes))

    def _vectors_of_customers(
        self, statistics: BasketStatistics, vector: Callable[[Sets], Array]
    ) -> Any:
        """Return the vector of every customer's baskets as a sparse matrix (customers, M)."""
        from scipy.sparse import csr_array, vstack

        train = statistics.train
        order, of, _ = train.ordering
        known = of[order] >= 0
        if not known.any():
            raise DataError(f"{type(self).__name__} needs baskets whose customers are known")
        groups = np.split(order[known], np.flatnonzero(np.diff(of[order][known])) + 1)
        rows = [csr_array(vector(train.subset(group).sets)[None]) for group in groups]
        return vstack(rows, format="csr")


@dataclass(eq=False, repr=False)
class PersonalFrequency(HistoryBaseline):
    """A model of the items that the customer bought most often, lately above all.

    The score of j is Σ_k decay^k 1[j ∈ B_k] over the customer's earlier baskets, B_0 the latest.
    Ties, and customers without a history, go by popularity.

    Parameters
    ----------
    decay : float
        The weight of a basket relative to the next later one, at most 1.

    Examples
    --------
    >>> model = PersonalFrequency().fit([["tea", "milk"], ["pasta"], ["tea"]])
    >>> model.next_basket([["pasta"], ["milk"]], N=2)[0].tolist()
    ['milk', 'pasta']
    """

    decay: float = 0.9

    def _fit_customers(self, statistics: BasketStatistics) -> None:  # noqa: ARG002
        check_at_least(0, decay=self.decay)

    def history_scores(self, history: Sets) -> Array:
        return recent_frequency(history, self.decay, len(self.known_items))


@dataclass(eq=False, repr=False)
class TIFUKNN(HistoryBaseline):
    """TIFU-KNN: a customer's frequencies with recency, and those of the nearest customers.

    A customer's earlier baskets form groups of `group_size`. A basket weighs `within_decay` to the
    power of the later baskets in its group, a group `group_decay` to that of the later groups, and
    the vector u of the customer is the mean of means of these. The score is

        alpha u + (1 − alpha) mean of u over the `n_neighbors` customers at the least distance

    Parameters
    ----------
    n_neighbors, group_size : int
    within_decay, group_decay, alpha : float

    References
    ----------
    Hu, He, Gao and Zhang: Modeling Personalized Item Frequency Information for Next-basket
    Recommendation. SIGIR 2020.

    Examples
    --------
    >>> import contradpp as cd
    >>> orders = cd.Baskets.from_lists(
    ...     [["tea"], ["tea", "milk"], ["pasta"]], customers=["ann", "ann", "bob"]
    ... )
    >>> TIFUKNN(n_neighbors=1).fit(orders).next_basket([["tea"]], N=2)[0].tolist()
    ['tea', 'milk']
    """

    n_neighbors: int = 300
    group_size: int = 7
    within_decay: float = 0.9
    group_decay: float = 0.7
    alpha: float = 0.7

    def _fit_customers(self, statistics: BasketStatistics) -> None:
        check_at_least(1, n_neighbors=self.n_neighbors, group_size=self.group_size)
        check_at_least(
            0, within_decay=self.within_decay, group_decay=self.group_decay, alpha=self.alpha
        )
        self._n_items = statistics.train.n_items
        self.customers_ = self._vectors_of_customers(statistics, self._vector)
        self._squares = np.ravel(self.customers_.multiply(self.customers_).sum(axis=1))

    def _vector(self, history: Sets) -> Array:
        """Return the vector of a customer (M,)."""
        age = history.count - 1 - np.arange(history.count)
        group, place = np.divmod(age, self.group_size)
        sizes = np.bincount(group)
        weights = self.within_decay**place * self.group_decay**group / sizes[group] / len(sizes)
        return _weighted_counts(history, weights, self._n_items)

    def history_scores(self, history: Sets) -> Array:
        own = self._vector(history)
        distances = self._squares - 2.0 * (self.customers_ @ own)
        n = min(self.n_neighbors, len(distances))
        nearest = np.argpartition(distances, n - 1)[:n]
        mean = np.ravel(self.customers_[nearest].sum(axis=0)) / n
        scores: Array = self.alpha * own + (1.0 - self.alpha) * mean
        return scores


@dataclass(eq=False, repr=False)
class UPCF(HistoryBaseline):
    """UP-CF: what customers with the same items bought lately.

    The popularity p_v of items for a customer v is their share of v's last `recency` baskets. The
    score is

        Σ_v w_v^locality p_v,  w_v = |I ∩ I_v| / (|I|^asymmetry |I_v|^(1 − asymmetry))

    over the customer itself and all others, I the items of a customer's baskets.

    Parameters
    ----------
    recency : int
    locality, asymmetry : float

    References
    ----------
    Faggioli, Polato and Aiolli: Recency Aware Collaborative Filtering for Next Basket
    Recommendation. UMAP 2020.

    Examples
    --------
    >>> import contradpp as cd
    >>> orders = cd.Baskets.from_lists(
    ...     [["tea"], ["tea", "milk"], ["pasta"]], customers=["ann", "ann", "bob"]
    ... )
    >>> UPCF().fit(orders).next_basket([["tea"]], N=2)[0].tolist()
    ['tea', 'milk']
    """

    recency: int = 5
    locality: float = 10.0
    asymmetry: float = 0.25

    def _fit_customers(self, statistics: BasketStatistics) -> None:
        from scipy.sparse import csr_array

        check_at_least(1, recency=self.recency)
        check_at_least(0, locality=self.locality, asymmetry=self.asymmetry)
        train = statistics.train
        self._n_items = train.n_items
        self.customers_ = self._vectors_of_customers(statistics, self._vector)
        _, of, _ = train.ordering
        known = np.flatnonzero(of >= 0)
        shape = (self.customers_.shape[0], train.n_baskets)
        owners = csr_array((np.ones(len(known)), (of[known], known)), shape=shape)
        self._bought = (owners @ train.to_csr()).tocsr()
        self._bought.data[:] = 1.0
        self._sizes = np.diff(self._bought.indptr)

    def _vector(self, history: Sets) -> Array:
        """Return the vector of a customer (M,)."""
        latest = history.indices[history.indptr[max(history.count - self.recency, 0)] :]
        n = min(self.recency, history.count)
        counts: Array = np.bincount(latest, minlength=self._n_items) / max(n, 1)
        return counts

    def history_scores(self, history: Sets) -> Array:
        items = np.unique(history.indices)
        mask = np.zeros(self._n_items)
        mask[items] = 1.0
        shared = self._bought @ mask
        norms = max(len(items), 1) ** self.asymmetry * self._sizes ** (1.0 - self.asymmetry)
        weights = (shared / norms) ** self.locality
        is_self = (shared == len(items)) & (self._sizes == len(items))
        weights[is_self] = 0.0  # the customer's own baskets, which are counted as given
        scores: Array = self._vector(history) + weights @ self.customers_
        return scores


def recent_frequency(history: Sets, decay: float, n_items: int) -> Array:
    """Return Σ_k decay^k 1[j ∈ B_k] of every item j, B_0 the latest of the baskets (M,)."""
    return _weighted_counts(history, decay ** np.arange(history.count - 1.0, -1.0, -1.0), n_items)


def _weighted_counts(history: Sets, weights: Array, n_items: int) -> Array:
    """Return the sum over baskets with each item of their weights (M,)."""
    counts = np.bincount(history.indices, weights[history.owners], n_items)
    return counts.astype(np.float64, copy=False)
