"""The metrics, basket by basket: of ranks of held-out items, of lists, and of log-likelihoods.

Notation: i is the item held out of basket A, and M the number of items. Of the M − |A∖i| items
outside A∖i, `better` beat i and `equal` others tie with it. A metric that needs an order among ties
is the mean over all orders: a model that cannot tell items apart gets what random order would get.
Only "mpr_paper", the paper's MPR, counts ties for the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contradpp._random import UNIFORM_SETS, stream
from contradpp._types import Array, Codes, Flags, Ints, Values
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.learn.calibration import auc, uniform_sets
from contradpp.metrics.ranks import LeaveOneOut, Scorer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Samples = dict[str, Array]  # a metric's value for every test basket, NaN where there is none

N_TOP = 10  # the length of the lists behind ndcg, coverage, diversity and personalization
LABELS = {
    "mpr": "MPR",
    "mpr_paper": "MPR, the paper's",
    "ndcg": "nDCG@10",
    "auc": "AUC",
    "auc_paired": "AUC, paired",
    "log_likelihood": "log-likelihood",
    "coverage": "coverage@10",
    "diversity": "diversity@10",
    "personalization": "personalization",
    "repeat@10": "p@10, repeat",
    "new@10": "p@10, new",
    "new_only@10": "p@10, new only",
    "next_recall": "next recall@10",
    "next_ndcg": "next nDCG@10",
    "hit": "any hit",
    "alpha_ndcg": "α-nDCG",
    "categories_hit": "categories hit",
    "categories_found": "categories found",
    "distance_categories": "category dist.",
    "distance_vectors": "vector distance",
    "distance_baskets": "basket distance",
    "log_likelihood_given_size": "log-lik., size",
    "exact": "exact match",
    "exact_given_size": "exact, size",
}


# -- Ranks -----------------------------------------------------------------------------------------


def percentile_rank(better: Ints, equal: Ints, others: Ints, *, lost: float = 0.5) -> Array:
    """Return the percentile rank of i.

    PR = 100 (n − better − lost · equal) / n,  n = M − |A∖i|

    n is `others`. A share `lost` of the ties beats i; with 0 it is the paper's PR_{i,A∖i}.
    """
    return 100.0 * (others - better - lost * equal) / others


def hits(better: Ints, equal: Ints, k: int) -> Array:
    """Return 1[rank(i | A∖i) ≤ k], the term of the paper's p@k.

    With ties, it is the share of their orders in which i ranks that high.
    """
    return np.clip((k - better) / (equal + 1.0), 0.0, 1.0)


def ndcg(better: Ints, equal: Ints, k: int = N_TOP) -> Array:
    """Return the nDCG of a list with one relevant item, with the mean over orders of ties.

    nDCG@k = 1/log₂(1 + rank) if rank ≤ k, else 0
    """
    cumulative = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])
    first = np.minimum(better, k)
    last = np.minimum(better + equal + 1, k)
    expected: Array = (cumulative[last] - cumulative[first]) / (equal + 1.0)
    return expected


def basket_means(values: Array, indptr: Ints) -> Array:
    """Return the mean over each basket's entries; no basket may be empty."""
    if len(indptr) == 1:
        return values[:0]
    means: Array = np.add.reduceat(values, indptr[:-1]) / np.diff(indptr)
    return means


# -- Lists -----------------------------------------------------------------------------------------


def coverage(lists: NDArray[np.integer], n_items: int) -> float:
    """Return the share of the catalogue that is in at least one list; −1 in a list is no item."""
    return float(len(np.unique(lists[lists >= 0])) / n_items)


def personalization(lists: Codes, n_items: int) -> float:
    """Return the expected share of a list that is not in the list of another basket.

    1 − Σ_i c_i (c_i − 1) / (n (n − 1)) / (Σ_i c_i / n)

    c_i is the number of the n lists with item i. It is 0 if all lists are the same.
    """
    n = len(lists)
    counts = np.bincount(lists[lists >= 0], minlength=n_items).astype(np.float64)
    if n < 2 or not counts.any():
        return float("nan")
    shared = (counts * (counts - 1)).sum() / (n * (n - 1))
    return float(1.0 - shared / (counts.sum() / n))


def intra_list(lists: Codes, baskets: Baskets) -> Array:
    """Return the diversity of every list: the mean of 1 − J_ij over its pairs of items i and j.

    J_ij = |b ∋ i, j| / |b ∋ i or j|

    is the Jaccard index of the baskets b that hold them. A list of best sellers, which meet all the
    time, is less varied than one of items from different corners of the catalogue. Substitutes
    rarely meet either, so that they count as varied, too: only baskets are known. NaN for lists of
    fewer than two items.
    """
    items, position = np.unique(lists[lists >= 0], return_inverse=True)
    if not len(items):
        return np.full(len(lists), np.nan)
    similarity = jaccard(baskets, items)
    placed = np.full(lists.shape, -1)
    placed[lists >= 0] = position
    pairs = np.zeros(len(lists))
    total = np.zeros(len(lists))
    for a in range(lists.shape[1]):
        for b in range(a):
            rows = np.flatnonzero((placed[:, a] >= 0) & (placed[:, b] >= 0))
            if len(rows):
                total[rows] += 1.0 - np.ravel(similarity[placed[rows, a], placed[rows, b]])
                pairs[rows] += 1
    means: Array = np.divide(total, pairs, out=np.full(len(lists), np.nan), where=pairs > 0)
    return means


def jaccard(baskets: Baskets, items: Codes) -> csr_matrix:
    """Return the Jaccard index of the baskets of every two of these items, as a sparse matrix."""
    from scipy.sparse import csr_matrix

    X = csr_matrix(baskets.to_csr())[:, items]
    both = csr_matrix(X.T @ X).tocoo()
    counts = np.ravel(X.sum(axis=0))
    either = counts[both.row] + counts[both.col] - both.data
    return csr_matrix((both.data / either, (both.row, both.col)), shape=both.shape)


# -- Samples ---------------------------------------------------------------------------------------


def rank_samples(
    part: Sets, held: Ints, outcome: LeaveOneOut, reference: Baskets, ks: Sequence[int]
) -> Samples:
    """Return the metrics of ranking for every set of `part`, of which entry held[s] is left out."""
    better = outcome.better[held]
    equal = outcome.equal[held]
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


def history_samples(part: Sets, outcome: LeaveOneOut) -> Samples:
    """Return p@10 of items that the customer bought before and of others, for every set.

    "new_only@10" ranks new items among new ones.
    """
    is_new = outcome.better_new >= 0
    hit = hits(outcome.better, outcome.equal, N_TOP)
    hit_new = hits(outcome.better_new, outcome.equal_new, N_TOP)
    groups = {
        "repeat@10": (~is_new, hit),
        "new@10": (is_new, hit),
        "new_only@10": (is_new, hit_new),
    }
    samples = {}
    for name, (chosen, values) in groups.items():
        n = np.bincount(part.owners[chosen], minlength=part.count)
        sums = np.bincount(part.owners[chosen], values[chosen], part.count)
        samples[name] = np.where(n > 0, 100.0 * sums / np.maximum(n, 1), np.nan)
    return samples


def next_basket_samples(lists: Codes, sets: Sets) -> Samples:
    """Return recall and nDCG of lists of items, one for each set.

    Recall is the share of the basket in the list, and the ideal list of nDCG holds the basket.
    """
    samples = {name: np.full(sets.count, np.nan) for name in ("next_recall", "next_ndcg")}
    gains = 1.0 / np.log2(np.arange(2, N_TOP + 2))
    for row in np.flatnonzero(sets.sizes).tolist():
        basket = sets.indices[sets.indptr[row] : sets.indptr[row + 1]]
        hit = np.isin(lists[row], basket)
        samples["next_recall"][row] = hit.sum() / len(basket)
        samples["next_ndcg"][row] = gains[: len(hit)][hit].sum() / gains[: len(basket)].sum()
    return samples


def likelihood_samples(scorer: Scorer | None, sets: Sets, *, emptied: Flags, seed: int) -> Samples:
    """Return log P of every basket and of a uniform random set of its size, and the winner.

    An impossible basket has −inf. A basket that lost all its items (`emptied`) has no
    log-likelihood, and the empty set no score: NaN. All are NaN without a scorer.
    """
    logs = None if scorer is None else scorer.log_probability(sets)
    if scorer is None or logs is None:
        names = ("log_likelihood", "score", "random_score", "auc_paired")
        return {name: np.full(sets.count, np.nan) for name in names}
    random = Sets(
        sets.indptr, uniform_sets(sets.sizes, len(scorer.items), stream(seed, UNIFORM_SETS))
    )
    random_logs = scorer.log_probability(random)
    if random_logs is None or np.isnan(logs).any() or np.isnan(random_logs).any():
        raise ParameterError("the model's log-probabilities must be numbers, not NaN")
    empty = sets.sizes == 0
    return {
        "log_likelihood": np.where(emptied, np.nan, logs),
        "score": np.where(empty, np.nan, logs),
        "random_score": np.where(empty, np.nan, random_logs),
        "auc_paired": np.where(empty, np.nan, paired_wins(logs, random_logs)),
    }


def paired_wins(scores: Array, random_scores: Array) -> Array:
    """Return 1 where a set beats its random set, ½ where they tie (also at −inf), else 0."""
    return np.where(scores == random_scores, 0.5, scores > random_scores).astype(np.float64)


def spread_samples(samples: Samples, places: Ints, n: int) -> Samples:
    """Return samples of some of n test baskets as samples of all: NaN for the others."""
    spread = {name: np.full(n, np.nan) for name in samples}
    for name, values in samples.items():
        spread[name][places] = values
    return spread


def present(*samples: Array) -> list[Array]:
    """Return the samples of the baskets of which all of them have a value."""
    complete = ~np.isnan(samples).any(axis=0)
    return [values[complete] for values in samples]


def sample_means(samples: Samples, ks: Sequence[int]) -> Values:
    """Return the metrics from their values per basket; −inf in log_likelihood turns into NaN."""
    impossible = samples["log_likelihood"] == -np.inf
    samples["log_likelihood"] = np.where(impossible, np.nan, samples["log_likelihood"])
    score, random_score = present(samples["score"], samples["random_score"])
    names = ("mpr", "mpr_paper", "ndcg", "diversity", "auc_paired", "log_likelihood")
    return {
        **{name: mean(samples[name]) for name in names},
        "precision": {k: mean(samples[f"precision@{k}"]) for k in ks},
        "auc": auc(score, random_score) if len(score) else float("nan"),
        "n_impossible": int(impossible.sum()),
    }


def mean(sample: Array) -> float:
    """Return the mean over the baskets that have a value, NaN if none has."""
    (values,) = present(sample)
    return float(values.mean()) if len(values) else float("nan")


# -- Text ------------------------------------------------------------------------------------------


def label(metric: str) -> str:
    """Return the name of a metric in tables."""
    return LABELS.get(metric, metric.replace("precision", "p"))


def digits_of(metric: str) -> int:
    """Return the decimals in tables: two for percentages and log-likelihoods, four for shares."""
    return 2 if metric.startswith(("mpr", "precision", "log", "exact")) else 4


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """Format a number for a table, a dash if there is none."""
    return f"{value:{'+' if sign else ''}.{digits}f}" if math.isfinite(value) else "–"
