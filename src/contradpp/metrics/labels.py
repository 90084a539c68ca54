"""What tables call the metrics, and how many decimals they show."""

from __future__ import annotations

import math

LABELS = {
    "mpr": "MPR", "mpr_fair": "MPR, ties half", "ndcg": "nDCG@10", "auc": "AUC", "auc_paired": "AUC, paired",
    "log_likelihood": "log-likelihood", "coverage": "coverage@10", "diversity": "diversity@10",
    "personalization": "personalization",
}  # fmt: skip


def label(metric: str) -> str:
    """What a table calls a metric."""
    return LABELS.get(metric, metric.replace("precision", "p"))


def digits_of(metric: str) -> int:
    """The decimals that a table shows: two for percentages and log-likelihoods, four for shares."""
    return 2 if metric.startswith(("mpr", "precision", "log")) else 4


def number(value: float, digits: int) -> str:
    """A number for a table, a dash if there is none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"
