"""The numbers that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Number(NamedTuple):
    """A number, with its standard deviation if there is one."""

    value: float
    std: float | None = None


@dataclass(frozen=True)
class PrintedTable:
    """A table of the paper: LowRank's values, and each method's improvement over them with its deviation."""

    where: str
    metrics: tuple[str, ...]
    lowrank_values: tuple[float, ...]
    gains: dict[str, tuple[tuple[float, float], ...]]  # in the order of the metrics

    @property
    def lowrank(self) -> dict[str, float]:
        """LowRank's values by metric."""
        return dict(zip(self.metrics, self.lowrank_values, strict=True))

    @property
    def improvement(self) -> dict[str, dict[str, Number]]:
        """By method and metric, the improvement over LowRank."""
        return {
            method: {metric: Number(*gain) for metric, gain in zip(self.metrics, gains, strict=True)}
            for method, gains in self.gains.items()
        }

    def absolute(self, method: str, metric: str) -> float | None:
        """Return LowRank's value plus the improvement of the method, None if the paper does not say."""
        if method == "mle":
            return self.lowrank.get(metric)
        gain = self.improvement.get(method, {}).get(metric)
        return None if gain is None else self.lowrank[metric] + gain.value


PRINTED = {
    "table-uk": PrintedTable(
        "section 5, table of the UK and Belgian results, part (a)", ("mpr_paper", "auc"), (80.07, 0.57297),
        {"explicit": ((3.75, 0.16), (0.41465, 0.01334)), "dynamic": ((3.74, 0.16), (0.41467, 0.01339))},
    ),
    "table-belgian": PrintedTable(
        "section 5, table of the UK and Belgian results, part (b)", ("mpr_paper", "auc"), (79.42, 0.6162),
        {"explicit": ((9.58, 0.15), (0.3705, 8.569e-5)), "dynamic": ((9.64, 0.13), (0.3702, 4.447e-5))},
    ),
    "table-amazon": PrintedTable(
        "appendix B.2, table 'MPR, p@k, and AUC values' (mean over the seven registries)",
        ("mpr_paper", "precision@1", "precision@5", "precision@10", "precision@20", "auc"),
        (70.50, 9.96, 25.36, 36.50, 51.22, 0.630),
        {
            "explicit": ((0.68, 0.62), (0.58, 0.76), (0.78, 0.67), (1.13, 0.79), (1.28, 1.11), (0.026, 0.016)),
            "dynamic": ((0.92, 0.56), (0.67, 0.75), (1.04, 0.82), (1.39, 0.85), (1.38, 0.97), (0.027, 0.017)),
            "nce": ((0.86, 0.55), (0.20, 1.75), (0.67, 1.09), (0.97, 1.18), (1.35, 1.20), (0.009, 0.017)),
        },
    ),
}  # fmt: skip
RUNTIMES = {"mle": Number(0.83, 0.54), "explicit": Number(2.69, 0.02), "dynamic": Number(7.13, 0.28),
            "nce": Number(27.59, 2.20)}  # seconds to convergence  # fmt: skip


def printed_for(data: str) -> PrintedTable:
    """Return the table whose numbers a data set is set beside: its own, or Amazon's for a registry."""
    return PRINTED.get(f"table-{data}", PRINTED["table-amazon"])
