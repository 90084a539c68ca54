"""Every metric basket by basket, before the mean is taken: what reports and bootstrap samples are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets
from contradpp.errors import ParameterError
from contradpp.metrics import lists, metrics
from contradpp.metrics.scoring import Outcome, Scorer

Array = NDArray[np.float64]
N_TOP = 10  # the length of the lists behind ndcg, coverage, diversity and personalization


def rank_samples(
    part: Sets, held: NDArray[np.int64], outcome: Outcome, reference: Baskets, ks: Sequence[int]
) -> dict[str, Array]:
    """The metrics of ranking, basket by basket."""
    better, equal = outcome.better[held], outcome.equal[held]
    others = reference.n_items - part.sizes + 1
    samples = {
        "mpr": metrics.percentile_rank(better, equal, others),
        "mpr_fair": metrics.percentile_rank(better, equal, others, fair=True),
        "ndcg": metrics.ndcg(better, equal, N_TOP),
        "diversity": lists.intra_list(outcome.top, reference),
    }
    for k in ks:
        hit = metrics.hits(outcome.better, outcome.equal, k)
        samples[f"precision@{k}"] = 100.0 * metrics.basket_means(hit, part.indptr)
    return samples


def likelihood_samples(scorer: Scorer | None, sets: Sets, *, emptied: NDArray[np.bool_], seed: int) -> dict[str, Array]:
    """Log-likelihoods of baskets and of their random sets, none without a scorer; emptied baskets are left out."""
    from contradpp.learn.calibrate import uniform_sets

    logs = None if scorer is None else scorer.log_probability(sets)
    if scorer is None or logs is None:
        return {name: np.empty(0) for name in ("log_likelihood", "score", "random_score", "auc_paired")}
    there = sets.sizes > 0
    random = Sets(sets.indptr, uniform_sets(sets.sizes, len(scorer.items), stream(seed, 1)))
    random_logs = scorer.log_probability(random)
    if random_logs is None or np.isnan(logs).any() or np.isnan(random_logs).any():
        raise ParameterError("the model's log-probabilities must be numbers, not NaN")
    wins = metrics.paired_wins(logs[there], random_logs[there])
    return {
        "log_likelihood": logs[~emptied],
        "score": logs[there],
        "random_score": random_logs[there],
        "auc_paired": wins,
    }


def means(samples: dict[str, Array], ks: Sequence[int]) -> dict[str, Any]:
    """The metrics from their values per basket. Impossible baskets leave the samples here."""
    from contradpp.learn.calibrate import auc

    def mean(name: str) -> float:
        values = samples[name][~np.isnan(samples[name])]
        return float(values.mean()) if len(values) else float("nan")

    possible = samples["log_likelihood"] > -np.inf
    n_impossible = int((~possible).sum())
    samples["log_likelihood"] = samples["log_likelihood"][possible]
    score, random_score = samples["score"], samples["random_score"]
    return {
        **{name: mean(name) for name in ("mpr", "mpr_fair", "ndcg", "diversity", "auc_paired", "log_likelihood")},
        "precision": {k: mean(f"precision@{k}") for k in ks},
        "auc": auc(score, random_score) if len(score) else float("nan"),
        "n_impossible": n_impossible,
    }
