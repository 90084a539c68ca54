"""The metrics, basket by basket: of how held-out items rank, of lists, and of the log-likelihood of whole baskets.

Of the items outside A∖i, `better` beat the held-out item i and `equal` others tie with it. Where a metric needs an
order among items that tie, it is the mean over all orders: a model that cannot tell items apart gets what a coin
would, no more. Only "mpr_paper", the paper's MPR, counts ties for the model.

Two items are alike where they occur in the same baskets, by the Jaccard index: a list of best sellers, which meet
all the time, is less varied than one of items from different corners of the catalogue. Items that replace each
other rarely meet either, so that this rewards them too; it needs no description of the items, only baskets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.learn.calibrate import auc, uniform_sets
from contradpp.metrics.ranks import Outcome, Scorer

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Samples = dict[str, Array]  # a metric's value for every test basket, NaN where there is none

N_TOP = 10  # the length of the lists behind ndcg, coverage, diversity and personalization
LABELS = {
    "mpr": "MPR", "mpr_paper": "MPR, the paper's", "ndcg": "nDCG@10", "auc": "AUC", "auc_paired": "AUC, paired",
    "log_likelihood": "log-likelihood", "coverage": "coverage@10", "diversity": "diversity@10",
    "personalization": "personalization", "hit": "any hit", "alpha_ndcg": "α-nDCG", "categories_hit": "categories hit",
    "categories_found": "categories found", "distance_categories": "category dist.",
    "distance_vectors": "vector distance", "distance_baskets": "basket distance",
    "log_likelihood_gain": "likelihood gain", "log_likelihood_given_size": "log-lik., size", "exact": "exact match",
    "exact_given_size": "exact, size",
}  # fmt: skip


# -- Ranks ---------------------------------------------------------------------------------------------


def percentile_rank(better: Counts, equal: Counts, others: Counts, *, lost: float = 0.5) -> Array:
    """Compute the percentage of the items outside A∖i, i itself among them, that do not beat i.

    `others` is their number, M − |A∖i|. A share `lost` of the ties beats i; with 0 it is the paper's PR_{i,A∖i}.
    """
    return 100.0 * (others - better - lost * equal) / others


def hits(better: Counts, equal: Counts, k: int) -> Array:
    """1[rank(i | A∖i) ≤ k], the term of the paper's p@k; with ties, the share of their orders in which it holds."""
    return np.clip((k - better) / (equal + 1.0), 0.0, 1.0)


def ndcg(better: Counts, equal: Counts, k: int = N_TOP) -> Array:
    """1/log₂(1 + rank) where the rank is at most k, else 0: nDCG with one relevant item. Ties as in `hits`."""
    gains = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])
    ahead = np.minimum(better, k)
    expected: Array = (gains[np.minimum(better + equal + 1, k)] - gains[ahead]) / (equal + 1.0)
    return expected


def basket_means(values: Array, indptr: Counts) -> Array:
    """The mean over each basket's entries; no basket may be empty."""
    means: Array = np.add.reduceat(values, indptr[:-1]) / np.diff(indptr) if len(indptr) > 1 else values[:0]
    return means


# -- Lists ---------------------------------------------------------------------------------------------


def coverage(lists: NDArray[np.integer[Any]], n_items: int) -> float:
    """The share of the catalogue that appears in at least one list; −1 in a list is no item."""
    return float(len(np.unique(lists[lists >= 0])) / n_items)


def likeness(baskets: Baskets, items: NDArray[np.int32]) -> Any:
    """The Jaccard index of the occurrences of these items, |b ∋ i, j| / |b ∋ i or j|, as a sparse matrix."""
    from scipy.sparse import csr_matrix

    X = csr_matrix(baskets.to_csr())[:, items]
    together = csr_matrix(X.T @ X).tocoo()
    counts = np.asarray(X.sum(axis=0)).ravel()
    either = counts[together.row] + counts[together.col] - together.data
    return csr_matrix((together.data / either, (together.row, together.col)), shape=together.shape)


def intra_list(lists: NDArray[np.int32], baskets: Baskets) -> Array:
    """For every list, the mean of 1 − Jaccard over its pairs of items; NaN for lists of fewer than two items."""
    items, position = np.unique(lists[lists >= 0], return_inverse=True)
    if not len(items):
        return np.full(len(lists), np.nan)
    alike = likeness(baskets, items)
    placed = np.full(lists.shape, -1)
    placed[lists >= 0] = position
    pairs, total = np.zeros(len(lists)), np.zeros(len(lists))
    for a in range(lists.shape[1]):
        for b in range(a):
            there = np.flatnonzero((placed[:, a] >= 0) & (placed[:, b] >= 0))
            if not len(there):
                continue
            total[there] += 1.0 - np.asarray(alike[placed[there, a], placed[there, b]]).ravel()
            pairs[there] += 1
    means: Array = np.divide(total, pairs, out=np.full(len(lists), np.nan), where=pairs > 0)
    return means


def personalization(lists: NDArray[np.int32], n_items: int) -> float:
    """The expected share of a list that is not in the list of another basket: 0 if all are told the same."""
    n = len(lists)
    counts = np.bincount(lists[lists >= 0], minlength=n_items).astype(np.float64)
    if n < 2 or not counts.any():
        return float("nan")
    shared = (counts * (counts - 1)).sum() / (n * (n - 1))
    return float(1.0 - shared / (counts.sum() / n))


# -- Samples -------------------------------------------------------------------------------------------


def rank_samples(
    part: Sets, held: NDArray[np.int64], outcome: Outcome, reference: Baskets, ks: Sequence[int]
) -> Samples:
    """The metrics of ranking for every set of `part`; held[s] is the entry that is left out of it."""
    better, equal = outcome.better[held], outcome.equal[held]
    others = reference.n_items - part.sizes + 1
    samples = {
        "mpr": percentile_rank(better, equal, others),
        "mpr_paper": percentile_rank(better, equal, others, lost=0.0),
        "ndcg": ndcg(better, equal),
        "diversity": intra_list(outcome.top, reference),
    }
    for k in ks:
        hit = hits(outcome.better, outcome.equal, k)
        samples[f"precision@{k}"] = 100.0 * basket_means(hit, part.indptr)
    return samples


def likelihood_samples(scorer: Scorer | None, sets: Sets, *, emptied: NDArray[np.bool_], seed: int) -> Samples:
    """Log-likelihoods, −inf for an impossible basket, and the scores of baskets and of random sets of their sizes.

    Baskets that lost all their items have no log-likelihood; the empty set has no score. NaN without a scorer.
    """
    logs = None if scorer is None else scorer.log_probability(sets)
    if scorer is None or logs is None:
        return {name: np.full(sets.count, np.nan) for name in ("log_likelihood", "score", "random_score", "auc_paired")}
    random = Sets(sets.indptr, uniform_sets(sets.sizes, len(scorer.items), stream(seed, 1)))
    random_logs = scorer.log_probability(random)
    if random_logs is None or np.isnan(logs).any() or np.isnan(random_logs).any():
        raise ParameterError("the model's log-probabilities must be numbers, not NaN")
    empty = sets.sizes == 0
    scores = {"score": logs, "random_score": random_logs, "auc_paired": paired_wins(logs, random_logs)}
    return {
        "log_likelihood": np.where(emptied, np.nan, logs),
        **{name: np.where(empty, np.nan, values) for name, values in scores.items()},
    }


def paired_wins(scores: Array, random_scores: Array) -> Array:
    """1 where a set scores above its own random set, ½ where they tie (as two impossible sets do), else 0."""
    return np.where(scores == random_scores, 0.5, scores > random_scores).astype(np.float64)


def at_places(samples: Samples, places: Counts, n: int) -> Samples:
    """Samples of some of n test baskets as samples of all: NaN for the others."""
    whole = {name: np.full(n, np.nan) for name in samples}
    for name, values in samples.items():
        whole[name][places] = values
    return whole


def present(*samples: Array) -> list[Array]:
    """The samples of the baskets of which all of them have a value."""
    there = ~np.isnan(samples).any(axis=0)
    return [values[there] for values in samples]


def sample_means(samples: Samples, ks: Sequence[int]) -> dict[str, Any]:
    """The metrics from their values per basket. Impossible baskets leave the samples here."""

    impossible = samples["log_likelihood"] == -np.inf
    samples["log_likelihood"] = np.where(impossible, np.nan, samples["log_likelihood"])
    score, random_score = present(samples["score"], samples["random_score"])
    return {
        **{
            name: mean(samples[name])
            for name in ("mpr", "mpr_paper", "ndcg", "diversity", "auc_paired", "log_likelihood")
        },
        "precision": {k: mean(samples[f"precision@{k}"]) for k in ks},
        "auc": auc(score, random_score) if len(score) else float("nan"),
        "n_impossible": int(impossible.sum()),
    }


def mean(sample: Array) -> float:
    """The mean over the baskets that have a value, NaN if none has."""
    (values,) = present(sample)
    return float(values.mean()) if len(values) else float("nan")


# -- Words ---------------------------------------------------------------------------------------------


def label(metric: str) -> str:
    """What a table calls a metric."""
    return LABELS.get(metric, metric.replace("precision", "p"))


def digits_of(metric: str) -> int:
    """The decimals that a table shows: two for percentages and log-likelihoods, four for shares."""
    return 2 if metric.startswith(("mpr", "precision", "log", "exact")) else 4


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """A number for a table, a dash if there is none."""
    return f"{value:{'+' if sign else ''}.{digits}f}" if math.isfinite(value) else "–"
