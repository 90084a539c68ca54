"""Published next-item models that contradpp does not have: rows of the benchmark.

Each is a page of SciPy, or a package. Networks are in `networks.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from contradpp._random import stream
from contradpp._types import Array, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.orders import Histories, SetsWithHistory
from contradpp.data.sets import Sets, take_sets, without_each
from contradpp.dpp.cooccurrence import co_occurrences
from contradpp.experts.base import Baseline, softmax_outside, tie_break
from contradpp.experts.customers import HistoryBaseline
from contradpp.experts.item_knn import ItemKNN
from contradpp.experts.statistics import BasketStatistics, Rows, indicator, write_sums, write_sums_without_each
from contradpp.learn.params import FitData
from contradpp.models.combination import Combination, choose_baskets
from contradpp.models.conditional import ConditionalDPP, hold_out, next_logits

Features = NDArray[np.float32]

# -- Linear models of items ------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class SparseEASE(Baseline):
    """EASE with a sparse approximate inverse: SANSA (Spišák et al., RecSys 2023), by the authors' package.

    P ≈ Wᵀ D⁻¹ W of an incomplete factorization of XᵀX + λI and a sparse approximate inverse of its factor. `density` is
    the share of entries of W that are kept. The package needs SuiteSparse (Debian's libsuitesparse-dev).
    """

    regularization: float = 200.0
    density: float = 0.01
    exact: bool = False  # factorize before entries are dropped: better, for some thousand items

    def _fit(self, statistics: BasketStatistics) -> None:
        level = logging.getLogger().level
        import sansa

        logging.getLogger().setLevel(level)  # the package sets it
        logging.getLogger("sansa").setLevel(logging.ERROR)
        factorizer = sansa.CHOLMODGramianFactorizerConfig if self.exact else sansa.ICFGramianFactorizerConfig
        inverter = sansa.UMRUnitLowerTriangleInverterConfig(scans=1, finetune_steps=15)
        train = statistics.train
        density = max(self.density, 2.0 / train.n_items)
        config = sansa.SANSAConfig(self.regularization, density, factorizer(), inverter)
        X = sparse.csr_matrix(train.to_csr().astype(np.float32))
        self.left_, self.right_ = sansa.SANSA(config).fit(X).weights
        self.bias_ = tie_break(train, np.ones(1))

    def write_scores(self, sets: Sets, out: Array) -> None:
        out[:] = ((indicator(sets, len(self.known_items)) @ self.left_) @ self.right_).toarray()

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        sums = np.empty((sets.count, out.shape[1]))
        self.write_scores(sets, sums)
        own, row = np.unique(sets.indices, return_inverse=True)
        rows = (self.left_[own] @ self.right_).toarray()
        np.subtract(sums[sets.owners], rows[row], out=out)


@dataclass(eq=False, repr=False)
class SLIM(Baseline):
    """SLIM (Ning and Karypis 2011), in its variant fsSLIM: a nonnegative elastic net of every item on its neighbors.

    Column j of W minimizes ½‖x_j − X w‖² + l1 |w|₁ + ½ l2 ‖w‖² over w ≥ 0, zero but on the `n_neighbors` items of
    the largest cosine, all items in small catalogs. Coordinate descent runs on many columns at once.
    """

    TRIED: ClassVar = tuple({"l1": l1, "l2": l2} for l1, l2 in ((0.5, 20.0), (2.0, 20.0), (2.0, 100.0)))
    l1: float = 1.0
    l2: float = 50.0
    n_neighbors: int = 200
    max_sweeps: int = 100

    def _fit(self, statistics: BasketStatistics) -> None:
        train = statistics.train
        M = train.n_items
        n = min(self.n_neighbors, M - 1)
        counts = train.item_counts.astype(np.float64)
        near = ItemKNN(shrinkage=0.0, neighbors=n).fit_statistics(statistics).item_weights_
        together = statistics.together.matrix(M)
        weights = np.zeros(len(near.columns))
        block = max(2**25 // max(n * n, 1), 1)
        for first in range(0, M, block):
            items = range(first, min(first + block, M))
            G = np.zeros((len(items), n, n))  # of the neighbors of every item
            c = np.zeros((len(items), n))
            sizes = np.diff(near.indptr[first : items.stop + 1])
            for row, j in enumerate(items):
                others = near.columns[near.indptr[j] : near.indptr[j + 1]]
                own = together[others]
                G[row, : len(others), : len(others)] = own[:, others].toarray()
                c[row, : len(others)] = own[:, [j]].toarray().ravel()
                G[row, range(len(others)), range(len(others))] = counts[others]
            found = nonnegative_elastic_net(G, c, self.l1, self.l2, self.max_sweeps)
            weights[near.indptr[first] : near.indptr[items.stop]] = found[np.arange(n) < sizes[:, None]]
        self.bias_ = tie_break(train, weights)
        of_target = near._replace(values=weights).where(weights > 0).matrix(M)  # row j has the weights of column j
        self.item_weights_: Rows = Rows.of(of_target.T)


def nonnegative_elastic_net(G: Array, c: Array, l1: float, l2: float, max_sweeps: int = 100) -> Array:
    """Minimize ½wᵀGw − cᵀw + l1 Σw + ½ l2 ‖w‖² over w ≥ 0 for many (G, c) at once: (B, n, n), (B, n)."""
    w = np.zeros_like(c)
    slopes = c - l1  # c − l1 − G w
    scale = G.diagonal(axis1=1, axis2=2) + l2
    for _ in range(max_sweeps):
        largest = 0.0
        for k in range(c.shape[1]):
            new = np.maximum(0.0, w[:, k] + (slopes[:, k] - l2 * w[:, k]) / scale[:, k])
            change = new - w[:, k]
            if change.any():
                slopes -= change[:, None] * G[:, k]
                w[:, k] = new
                largest = max(largest, float(np.abs(change).max()))
        if largest < 1e-4:
            break
    return w


@dataclass(eq=False, repr=False)
class RP3Beta(Baseline):
    """RP3β (Paudel et al. 2016): random walks of three steps, with popular items damped.

    W[a, j] = Σ_b (1/n_a)^α (1/|b|)^α / n_j^β over the baskets b with both items, of which the `neighbors` largest of a
    row are kept. The first step is the same for all items of a basket.
    """

    TRIED: ClassVar = tuple(
        {"alpha": a, "beta": b} for a, b in ((1, 0.3), (1, 0.6), (0.7, 0.3), (0.7, 0.6), (0.5, 0.6))
    )
    alpha: float = 1.0
    beta: float = 0.6
    neighbors: int | None = 500

    def _fit(self, statistics: BasketStatistics) -> None:
        train = statistics.train
        paths = Rows.of(co_occurrences(train.sets, np.maximum(train.sizes, 1.0) ** -self.alpha, train.n_items))
        counts = np.maximum(train.item_counts, 1.0)
        values = paths.values * counts[paths.owners] ** -self.alpha * counts[paths.columns] ** -self.beta
        self.item_weights_: Rows = paths._replace(values=values).largest(self.neighbors)
        self.bias_ = tie_break(train, values)


@dataclass(eq=False, repr=False)
class GFCF(Baseline):
    """GF-CF (Shen et al. 2021): a linear graph filter, and an ideal low-pass filter of `n_components` frequencies.

    With R̃ = D_b^−½ R D_i^−½ the score of j is that of x R̃ᵀR̃ + α x D_i^−½ V Vᵀ D_i^½, V the first right singular vectors
    of R̃, x the basket.
    """

    TRIED: ClassVar = tuple(
        {"n_components": n, "alpha": a} for n, a in ((16, 0.1), (16, 0.3), (64, 0.3), (256, 0.3), (256, 1.0))
    )
    n_components: int = 256
    alpha: float = 0.3
    random_state: int = 0

    def _fit(self, statistics: BasketStatistics) -> None:
        from sklearn.utils.extmath import randomized_svd

        train = statistics.train
        roots = np.sqrt(np.maximum(train.item_counts, 1.0))
        by_size = 1.0 / np.maximum(train.sizes, 1.0)
        linear = Rows.of(co_occurrences(train.sets, by_size, train.n_items))
        self.linear_ = linear._replace(values=linear.values / (roots[linear.owners] * roots[linear.columns]))
        R = sparse.diags_array(np.sqrt(by_size)) @ train.to_csr().astype(np.float64) @ sparse.diags_array(1.0 / roots)
        n = min(self.n_components, min(R.shape) - 1)
        Vt = randomized_svd(sparse.csr_matrix(R), n, n_iter=4, random_state=self.random_state)[2]
        self.given_ = self.alpha * Vt.T / roots[:, None]
        self.following_ = Vt * roots
        self.bias_ = tie_break(train, self.linear_.values)

    def write_scores(self, sets: Sets, out: Array) -> None:
        write_sums(self.linear_, sets, out)
        out += (indicator(sets, out.shape[1]) @ self.given_) @ self.following_

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        write_sums_without_each(self.linear_, sets, out)
        out += (
            (indicator(sets, out.shape[1]) @ self.given_)[sets.owners] - self.given_[sets.indices]
        ) @ self.following_


# -- Two stages ------------------------------------------------------------------------------------------


class FirstStage(ConditionalDPP):
    """A ConditionalDPP that keeps the combination whose experts have not seen the held-out baskets."""

    def _combine(self, kernel: Any, experts: Any, items: Any, counts: Any, weights: Any = None) -> Combination:
        found = super()._combine(kernel, experts, items, counts, weights)
        if weights is None:
            self.unseen_ = found
        return found


@dataclass(eq=False, repr=False)
class BoostedTrees(Baseline):
    """Two stages: the first candidates of a ConditionalDPP, ranked anew by gradient-boosted trees (LightGBM).

    The trees see the features of the experts as ConditionalDPP does, and log|A| and sparsity(A). They learn from the
    same held-out tenth as its weights; cross-validation in it chooses the settings and the number of trees. With
    `own_logit` they see its logit, too, and start from it: what trees can add to it.
    """

    n_candidates: int = 200
    n_queries: int = 8000
    own_logit: bool = False
    random_state: int = 0
    n_jobs: int | None = None

    TREES: ClassVar = tuple(product(("lambdarank", "rank_xendcg"), (7, 31)))  # objectives and numbers of leaves

    def _fit(self, statistics: BasketStatistics) -> None:
        import lightgbm

        train = statistics.train
        self.model_ = FirstStage(n_jobs=self.n_jobs, random_state=self.random_state, verbose=0).fit(train)
        held = hold_out(self.model_, FitData(train)).held_out
        queries = choose_baskets(held, self.n_queries, self.random_state)
        combination = self.model_.__dict__.pop("unseen_")
        X, labels, groups, logits = self._examples(combination, queries)
        data = lightgbm.Dataset(X, labels, group=groups, init_score=logits if self.own_logit else None)
        best = -1.0
        for objective, leaves in self.TREES:
            settings = {
                "objective": objective, "num_leaves": leaves, "learning_rate": 0.05, "min_data_in_leaf": 50,
                "metric": "ndcg", "eval_at": [10], "verbosity": -1, "seed": self.random_state, "deterministic": True,
                "force_row_wise": True, "num_threads": self.n_jobs or 0, "lambdarank_truncation_level": 20,
            }  # fmt: skip
            stop = lightgbm.early_stopping(30, verbose=False)
            found = lightgbm.cv(settings, data, 300, nfold=3, seed=self.random_state, callbacks=[stop])
            values = found["valid ndcg@10-mean"]
            if max(values) > best:
                best, n_trees, chosen = max(values), int(np.argmax(values)) + 1, settings
        self.trees_ = lightgbm.train(chosen, data, n_trees)
        self.chosen_ = f"{chosen['objective']}, {chosen['num_leaves']} leaves, {n_trees} trees"

    def _examples(self, combination: Combination, baskets: Baskets) -> tuple[Features, Ints, Ints, Array]:
        """Return the candidates of every held-out item that is among its own: features, labels, numbers and logits."""
        n = min(self.n_candidates, baskets.n_items)
        rng = stream(self.random_state, 107)  # LightGBM ranks ties by their place
        found = []
        for part in blocks(without_each(baskets.sets), baskets.n_items):
            logits = np.empty((part.count, baskets.n_items))
            combination.write_logits(part, logits)
            top = rng.permuted(best_outside(logits, part, n), axis=1)
            X = self._features(combination, part, top, logits).reshape(*top.shape, -1)
            inside = np.zeros(logits.shape, dtype=bool)
            inside[part.owners, part.indices] = True
            found.append((X, top, np.take_along_axis(logits, top, 1), ~np.take_along_axis(inside, top, 1)))
        X, top, logits, outside = (np.concatenate(one) for one in zip(*found, strict=True))
        labels = (top == baskets.sets.indices[:, None]).astype(np.int64)
        outside &= labels.any(axis=1, keepdims=True)
        groups = outside.sum(axis=1)
        return X[outside], labels[outside], groups[groups > 0], logits[outside]

    def _features(self, combination: Combination, sets: Sets, top: Ints, logits: Array) -> Features:
        """Return the features of candidates `top` (n_sets, n), a row each."""
        columns = [np.repeat(column, top.shape[1]) for column in combination.context(sets)[:, 1:].T]
        columns += [np.take_along_axis(logits, top, axis=1).ravel()] if self.own_logit else []
        scores = np.empty((sets.count, len(self.model_.known_items)))
        value = np.empty_like(scores)
        for name, features in combination.features.items():
            combination.experts[name].write_scores(sets, scores)
            for feature in features:
                feature.write(scores, sets.sizes, value)
                columns.append(np.take_along_axis(value, top, axis=1).ravel())
        return np.stack(columns, axis=1).astype(np.float32)

    def write_scores(self, sets: Sets, out: Array) -> None:
        done = 0
        for part in blocks(sets, out.shape[1]):
            logits = next_logits(self.model_, part)
            top = best_outside(logits, part, min(self.n_candidates, out.shape[1]))
            X = self._features(self.model_._combination, part, top, logits)
            scores = np.asarray(self.trees_.predict(X, num_threads=1)).reshape(top.shape)
            if self.own_logit:
                scores += np.take_along_axis(logits, top, axis=1)
            last = logits - np.take_along_axis(logits, top, axis=1).min(axis=1, keepdims=True)
            rows = out[done : done + part.count]
            rows[:] = scores.min(axis=1, keepdims=True) - 1.0 + np.minimum(last, 0.0)
            np.put_along_axis(rows, top, scores, axis=1)
            rows[part.sizes == 0] = logits[part.sizes == 0]
            done += part.count

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        return softmax_outside(scores, sets)


def best_outside(logits: Array, sets: Sets, n: int) -> Ints:
    """Return the n items of the highest logits outside of every set (n_sets, n); those inside count as the last."""
    outside = logits.copy()
    outside[sets.owners, sets.indices] = -np.inf
    return np.argpartition(-outside, min(n, outside.shape[1] - 1), axis=1)[:, :n]


def blocks(sets: Sets, n_items: int) -> Iterator[Sets]:
    """Yield the sets in blocks whose scores fit in memory several times."""
    step = max(2**20 // n_items, 1)
    for first in range(0, sets.count, step):
        yield take_sets(sets, np.arange(first, min(first + step, sets.count)))


# -- Customers -------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class PerNIR(HistoryBaseline):
    """PerNIR (Ariannezhad et al., WSDM 2023): a customer's and neighbors' baskets, by the items of the present one.

    A customer u with baskets b, latest first at place 1, 2, ..., scores

        s_u(i | A) = Σ_{b∋i} (1 + log|A| · |A ∩ b|) / place(b)

    The score is `own` s_u + (1 − `own`) times the mean of cos(u, v) s_v over those of the `n_neighbors` most similar
    customers v who bought i. In the paper, items of a basket also weigh by their distance in the order of purchase;
    baskets here are sets.
    """

    n_neighbors: int = 100
    own: float = 0.5

    def _fit_customers(self, statistics: BasketStatistics) -> None:
        train = statistics.train
        self.customers_ = self._vectors_of_customers(
            statistics, lambda history: np.bincount(history.indices, minlength=train.n_items).astype(np.float64)
        )
        self._norms = np.sqrt(np.ravel(self.customers_.multiply(self.customers_).sum(axis=1)))
        order, of, _ = train.ordering
        order = order[of[order] >= 0]
        customer = of[order]
        last = np.searchsorted(customer, customer, side="right")
        self._rows = sparse.csr_array(train.subset(order).to_csr().astype(np.float64))
        self._first = np.searchsorted(customer, np.arange(self.customers_.shape[0] + 1))
        self._weights = 1.0 / (last - np.arange(len(order)))

    def history_scores(self, history: Sets) -> Array:  # noqa: ARG002
        return np.zeros(len(self.known_items))

    def write_scores(self, sets: Sets, out: Array) -> None:
        self._write(sets, getattr(sets, "histories", None), out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        histories = sets.histories.take(sets.owners) if isinstance(sets, SetsWithHistory) else None
        self._write(without_each(Sets(*sets)), histories, out)

    def _write(self, sets: Sets, histories: Histories | None, out: Array) -> None:
        out[:] = 0.0
        if histories is None or not len(histories):
            return
        ends = np.stack([histories.first, histories.last], axis=1)
        starts = np.flatnonzero(np.append(True, (np.diff(ends, axis=0) != 0).any(axis=1))).tolist()
        for first, last in zip(starts, [*starts[1:], sets.count], strict=True):
            history = histories.baskets(first)
            if not len(history.indices):
                continue
            given = indicator(take_sets(sets, np.arange(first, last)), out.shape[1])
            logs = np.log(np.maximum(sets.sizes[first:last], 1))[:, None]
            baskets = indicator(history, out.shape[1])
            place = 1.0 / np.arange(history.count, 0, -1)
            own = ((1.0 + logs * (given @ baskets.T).toarray()) * place) @ baskets
            rows, weights, n_buyers = self._neighborhood(history)
            near = ((1.0 + logs * (given @ rows.T).toarray()) * weights) @ rows
            out[first:last] = self.own * own + (1.0 - self.own) * near / np.maximum(n_buyers, 1)

    def _neighborhood(self, history: Sets) -> tuple[Any, Array, Ints]:
        """Return the baskets of the nearest customers, their weights, and how many of these bought each item."""
        vector = np.bincount(history.indices, minlength=self.customers_.shape[1]).astype(np.float64)
        cosines = (self.customers_ @ vector) / (self._norms * np.linalg.norm(vector))
        cosines[cosines > 1.0 - 1e-9] = 0.0  # the customer's own baskets
        n = min(self.n_neighbors, len(cosines))
        nearest = np.sort(np.argpartition(-cosines, n - 1)[:n])
        lengths = self._first[nearest + 1] - self._first[nearest]
        which = np.concatenate([np.arange(self._first[v], self._first[v + 1]) for v in nearest.tolist()])
        weights = self._weights[which] * np.repeat(cosines[nearest], lengths)
        n_buyers = np.diff(self.customers_[nearest].tocsc().indptr)
        return self._rows[which], weights, n_buyers
