"""The history expert of a `ConditionalDPP`: a customer's earlier baskets as features of next items.

    log P(next = j | A, H) = log P(next = j | A) + θ(A, H)ᵀ g_j(A, H) + constant

H are the customer's earlier baskets. θ depends on |A|, on how much of A was bought before, and on
the numbers of baskets and of items in H. The features g are functions of

- log P(j | A) of the model without history, and the popularity of j, for all items and for those
  of H;
- products of log P(j | A) with itself, with the popularity and with the first of the sums below;
- Σ_a f_a S_aj, f_a the share of recent baskets of H with a: S are regressions, and cosines of items
  in the same baskets and in baskets of the same customers. The sum is over the items of H with the
  largest f_a, at most `N_NEAR`;
- for items of H: how often and how lately they were bought, and how often customers buy them again.

θ is fitted to the last training baskets of customers, given their earlier ones, while the rest of
the model stays. Without a history nothing is added. Nothing about a customer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.orders import Histories, is_last
from contradpp.data.sets import Sets, pointers, sums_over_sets, take_sets
from contradpp.dpp import files as persist
from contradpp.experts.base import softmax_outside
from contradpp.experts.compiled import sum_weighted_rows
from contradpp.experts.customers import recent_frequency
from contradpp.experts.item_knn import ItemKNN
from contradpp.experts.ridge import RidgeNeighbors
from contradpp.experts.statistics import STORED_ROWS, BasketStatistics, Rows

HISTORY = "history"  # the word in `ConditionalDPP(experts=...)`
DECAY = 0.9  # of the weight of a basket, by the number of later ones
SUPPORT = 10.0  # purchases by which the rate of buying an item again is drawn to the mean
NEIGHBORS = 200  # of an item
N_NEAR = 50  # items of a history whose neighbors are looked at
FLOOR = 1e-4  # of a mean cosine
LEAST_P = 1e-8  # of P(j | A): its square must not lift what cannot come next
N_CONTEXT = 8
N_ALL = 4  # features of all items that do not depend on A
N_GIVEN = 5  # features that depend on A
N_FEATURES = N_GIVEN + N_ALL + 8
MAX_WEIGHT = 1e100

N_EXAMPLES = 8000  # from which θ is fitted
PER_BASKET = 5  # items of a basket, three examples each; more if there are few baskets
MOST_PER_BASKET = 50
N_BEST = 40  # candidates of an example that score highest, and as many that are nearest to H
N_BOUGHT = 100  # candidates of an example among the items of H, the most frequent
N_RANDOM = 100  # candidates of an example that stand for all others
N_CANDIDATES = 1 + 2 * N_BEST + N_BOUGHT + N_RANDOM
_EXAMPLES = 75  # key of a random stream
STORED = {
    "theta": persist.Stored((N_CONTEXT, N_FEATURES), low=-MAX_WEIGHT, high=MAX_WEIGHT),
    "again": persist.Stored(("M",), low=-MAX_WEIGHT, high=0.0),
    **STORED_ROWS,
}

Score = Callable[[Sets], Array]  # logits of all items given every set (n_sets, M)


@dataclass(frozen=True)
class HistoryExpert:
    """The weights of the features of histories, and the statistics of items behind them."""

    theta: Array  # (N_CONTEXT, N_FEATURES)
    again: Array  # (M,): log of the share of customers with an item who buy it next time
    customers: Rows  # cosines of items in baskets of the same customers
    near: tuple[Rows, ...] = ()  # item weights: customers, baskets, regressions
    popularity: Array = field(default_factory=lambda: np.zeros(0))  # (M,): log share of baskets

    def add_to(self, logits: Array, sets: Sets, histories: Histories) -> None:
        """Add the weighted features of histories to logits given sets (n_sets, M).

        Rows without a history stay as they are.
        """
        new = np.ones(len(histories), dtype=bool)
        new[1:] = (np.diff(histories.first) != 0) | (np.diff(histories.last) != 0)
        starts = np.flatnonzero(new).tolist()
        for first, last in zip(starts, [*starts[1:], len(histories)], strict=True):
            history = histories.baskets(first)
            if not len(history.indices):
                continue
            part = take_sets(sets, np.arange(first, last))
            log_p = log_probabilities(logits[first:last], part)
            # Sums of BLAS would depend on the number of threads.
            of_all, bought, of_bought = self.features(history, logits.shape[1])
            theta = np.einsum("rc,cf->rf", context(part, bought, history.count), self.theta)
            own = [N_GIVEN, N_GIVEN + N_ALL]
            given, all_items, bought_items = np.split(theta, own, axis=1)
            slopes = given[:, :1] + given[:, 1:2] * log_p
            slopes += np.einsum("rf,fm->rm", given[:, 2:4], of_all[[0, 3]])
            slopes[:, bought] += given[:, 4:]
            added = slopes * log_p
            added += np.einsum("rf,fm->rm", all_items, of_all)
            added[:, bought] += np.einsum("rf,fm->rm", bought_items, of_bought)
            logits[first:last] += added

    def features(self, history: Sets, n_items: int) -> tuple[Array, Ints, Array]:
        """Return the features that do not depend on A.

        These are the features of all items (N_ALL, M), the codes of the items of H (n,), and the
        features that only these have (N_FEATURES − N_GIVEN − N_ALL, n). Items that came after the
        statistics have neither neighbors nor a rate.
        """
        frequency = recent_frequency(history, DECAY, n_items)
        frequency /= (DECAY ** np.arange(history.count)).sum()
        bought = np.flatnonzero(frequency)
        n_known = len(self.again)
        near = bought[bought < n_known]
        if len(near) > N_NEAR:
            near = near[np.argsort(-frequency[near], kind="stable")[:N_NEAR]]
        shares = frequency[near]
        of_all = np.zeros((N_ALL, n_items))
        for row, weights in zip(of_all, self.near, strict=False):
            sum_weighted_rows(*weights, near, shares, row)
        of_all[:2] = np.log(FLOOR + of_all[:2] / max(shares.sum(), FLOOR))
        of_all[2] = np.sign(of_all[2]) * np.sqrt(np.abs(of_all[2]))
        of_all[2, bought] = 0.0
        of_all[3] = self.popularity.min()
        of_all[3, : len(self.popularity)] = self.popularity
        latest = np.zeros(n_items)
        latest[history.indices] = history.count - 1 - history.owners  # the last one stays
        rates = np.full(len(bought), self.again.mean())
        rates[bought < n_known] = self.again[bought[bought < n_known]]
        of_bought = [
            np.ones(len(bought)),
            np.log(frequency[bought]),
            np.log1p(latest[bought]),
            np.log(np.bincount(history.indices)[bought]),
            rates,
            *of_all[[0, 1, 3]][:, bought],
        ]
        return of_all, bought, np.stack(of_bought)

    def attach(self, experts: Mapping[str, Any], statistics: BasketStatistics) -> HistoryExpert:
        """Return the expert with the item weights of other experts, fitted if they are missing."""
        ridge = experts.get("ridge") or RidgeNeighbors(ridge=20.0).fit_statistics(statistics)
        cosine = experts.get("item_knn_cosine") or ItemKNN().fit_statistics(statistics)
        near = (self.customers, cosine.item_weights_.largest(NEIGHBORS), ridge.item_weights_)
        train = statistics.train
        popularity = np.log((train.item_counts + 1.0) / (train.n_baskets + 1.0))
        return replace(self, near=near, popularity=popularity)

    def contents(self) -> persist.Tensors:
        """Return the tensors of a model file."""
        arrays = {"theta": self.theta, "again": self.again}
        return persist.stored_arrays(arrays | self.customers._asdict(), STORED, "history.")

    @classmethod
    def restore(cls, tensors: persist.Tensors, n_known: int) -> HistoryExpert | None:
        """Return the expert of a model file, still to be attached; None if it has none.

        It knows at most as many items as the other experts.
        """
        if "history.again" not in tensors:
            return None
        n_items = len(tensors["history.again"])
        if n_items > n_known:
            raise ValueError(f"its history has {n_items} items, of {n_known}")
        found = persist.read_arrays(tensors, STORED, "the history", "history.", M=n_items)
        rows = Rows(*(found[name] for name in Rows._fields))
        persist.check_rows(rows.indptr, rows.columns, n_items, "the history")
        return cls(found["theta"], found["again"], rows)


def context(sets: Sets, bought: Ints, n_orders: int) -> Array:
    """Return the context features of sets, given one history (n, N_CONTEXT).

    For |A| > 0 they are log|A|, the share of A that was bought before, drawn to a half, 1, and the
    logarithms of the numbers of earlier baskets and of items in them. For |A| = 0 they are 1 and
    these logarithms, in places of their own.
    """
    sizes = sets.sizes
    empty = sizes == 0
    n_again = sums_over_sets(np.isin(sets.indices, bought).astype(np.float64), sets)
    amounts = np.array([1.0, np.log(n_orders), np.log(max(len(bought), 1))])
    filled = np.stack([np.log(np.maximum(sizes, 1)), (n_again + 1.0) / (sizes + 2.0)], axis=1)
    parts = [filled, np.tile(amounts, (len(sizes), 1))]
    return np.hstack([*(~empty[:, None] * part for part in parts), empty[:, None] * amounts])


def log_probabilities(logits: Array, sets: Sets) -> Array:
    """Return log P of items outside of the sets (n_sets, M), at least log `LEAST_P`."""
    logs: Array = np.log(np.maximum(softmax_outside(logits.copy(), sets), LEAST_P))
    return logs


# -- Fitting ---------------------------------------------------------------------------------------


def in_order(baskets: Baskets) -> Baskets:
    """Return the baskets with their places in the order of customers and times for times.

    Splitting them does not change the order of baskets at the same time then.
    """
    _, of, place = baskets.ordering
    return baskets.with_customers(
        baskets.customers, np.where(of >= 0, place, np.nan).astype(np.float64)
    )


def item_statistics(train: Baskets) -> tuple[Array, Rows]:
    """Return the rates of buying items again, and cosines in baskets of the same customers."""
    order, of, _ = train.ordering
    histories = train.histories()
    n_items = train.n_items
    n_bought = np.zeros(n_items)
    n_again = np.zeros(n_items)
    groups: list[Codes] = []
    for basket in order[of[order] >= 0].tolist():
        codes = train.codes(basket)
        if not histories.lengths[basket]:
            groups.append(codes)
            continue
        earlier = groups[-1]
        n_bought[earlier] += 1.0
        n_again[np.intersect1d(codes, earlier, assume_unique=True)] += 1.0
        groups[-1] = np.union1d(earlier, codes).astype(np.int32)
    mean = (n_again.sum() + 1.0) / (n_bought.sum() + 2.0)
    rates = (n_again + SUPPORT * mean) / (n_bought + SUPPORT)
    if not groups:
        groups = [np.empty(0, dtype=np.int32)]
    indptr = pointers([len(group) for group in groups])
    unions = Baskets.trusted(indptr, np.concatenate(groups), train.items)
    cosines = ItemKNN(neighbors=NEIGHBORS).fit(unions).item_weights_
    return np.log(rates), cosines._replace(values=cosines.values.astype(np.float32).astype(float))


def learn_from_customers(
    score: Score,
    part: BasketStatistics,
    held_out: Baskets,
    experts: Mapping[str, Any],
    fit_theta: Callable[..., Array],
    seed: int,
) -> HistoryExpert | None:
    """Fit the weights to held-out baskets that are the last of their customers.

    Parameters
    ----------
    score : function
        Returns logits of all items given sets, of a model that has not seen the held-out baskets.
    part : BasketStatistics
        The other baskets.
    held_out : Baskets
    experts : mapping of name to expert
        The experts fitted to `part`.
    fit_theta : function
        Returns θ given features, offsets and context of training examples.
    seed : int

    Returns
    -------
    HistoryExpert or None
        None if no such basket has a history.
    """
    train = part.train
    if train.customers is None or held_out.customers is None:
        return None
    both = Baskets.concat([train, held_out])
    histories = held_out.histories(before=train)
    last = is_last(both.ordering, 2)[train.n_baskets :] & (held_out.sizes > 0)
    which = np.flatnonzero(last & (histories.lengths > 0))
    if not len(which):
        return None
    again, customers = item_statistics(train)
    expert = HistoryExpert(np.zeros((N_CONTEXT, N_FEATURES)), again, customers)
    expert = expert.attach(experts, part)
    rng = stream(seed, _EXAMPLES)
    per_basket = max(PER_BASKET, N_EXAMPLES // (3 * len(which)))
    examples = _Examples(min(per_basket, MOST_PER_BASKET))
    for basket in rng.permutation(which).tolist():
        examples.add(expert, score, held_out.codes(basket), histories.baskets(basket), rng)
        if examples.n >= N_EXAMPLES:
            break
    return replace(expert, theta=fit_theta(*examples.arrays()))


class _Examples:
    """Training examples: items of baskets, each the first of its candidates."""

    def __init__(self, per_basket: int) -> None:
        self.n = 0
        self._per_basket = per_basket
        self._features: list[NDArray[np.float32]] = []
        self._offsets: list[NDArray[np.float32]] = []
        self._context: list[Array] = []

    def arrays(self) -> tuple[Any, Any, Array]:
        """Return features (N, C, F), offsets of the logits (N, C), and context (N, R)."""
        features, offsets = np.stack(self._features), np.stack(self._offsets)
        return features, offsets, np.concatenate(self._context)

    def add(
        self, expert: HistoryExpert, score: Score, codes: Codes, history: Sets, rng: Any
    ) -> None:
        """Add items of a basket, each given the rest of it, a part of the rest, and nothing."""
        targets = np.repeat(rng.permutation(codes)[: self._per_basket], 3)
        sizes = np.zeros(len(targets), dtype=np.int64)
        sizes[0::3] = len(codes) - 1
        sizes[1::3] = (len(codes) - 1) ** rng.random(len(targets) // 3)
        rests = [rng.permutation(codes[codes != target]) for target in targets]
        shown = [rest[:size] for rest, size in zip(rests, sizes.tolist(), strict=True)]
        sets = Sets(pointers(sizes), np.concatenate(shown).astype(np.int32))
        logits = score(sets)
        log_p = log_probabilities(logits, sets)
        n_items = log_p.shape[1]
        of_all, bought, of_bought = expert.features(history, n_items)
        of_items = np.zeros((N_FEATURES - N_GIVEN, n_items))
        of_items[:N_ALL] = of_all
        of_items[N_ALL:, bought] = of_bought
        is_bought = of_items[N_ALL]
        near = np.argsort(-of_all[0], kind="stable")[:N_BEST]
        frequent = bought[np.argsort(-of_bought[1], kind="stable")[:N_BOUGHT]]
        fixed = np.union1d(near, frequent)
        for row, target in enumerate(targets.tolist()):
            best = np.argpartition(-log_p[row], min(N_BEST, n_items - 1))[:N_BEST]
            outside = np.ones(n_items, dtype=bool)
            outside[[target, *shown[row].tolist()]] = False
            best = np.union1d(best, fixed)
            best = best[outside[best]]
            outside[best] = False
            rest = np.flatnonzero(outside)
            sampled = rng.choice(rest, min(N_RANDOM, len(rest)), replace=False)
            chosen = np.concatenate([[target], best, sampled])
            features = np.zeros((N_CANDIDATES, N_FEATURES), dtype=np.float32)
            offsets = np.full(N_CANDIDATES, -np.inf, dtype=np.float32)
            n = len(chosen)
            given = log_p[row, chosen]
            factors = [np.ones(n), given, *of_all[[0, 3]][:, chosen], is_bought[chosen]]
            features[:n, :N_GIVEN] = (given * factors).T
            features[:n, N_GIVEN:] = of_items[:, chosen].T
            offsets[:n] = log_p[row, chosen]
            offsets[n - len(sampled) : n] += np.log(max(len(rest), 1) / max(len(sampled), 1))
            self._features.append(features)
            self._offsets.append(offsets)
        self._context.append(context(sets, bought, history.count))
        self.n += len(targets)
