"""The numbers that the paper prints, and where they stand in it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Number:
    """A printed number, with its standard deviation if there is one."""

    value: float
    std: float | None = None


@dataclass(frozen=True)
class Results:
    """A table of the paper: LowRank's values by metric, and by method the improvement over them."""

    where: str
    lowrank: dict[str, float]
    improvement: dict[str, dict[str, Number]] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the table, in its order."""
        return tuple(self.lowrank)

    def absolute(self, method: str, metric: str) -> float | None:
        """What the method reached: LowRank's value plus the improvement, None if the paper does not say."""
        if method == "mle":
            return self.lowrank.get(metric)
        gain = self.improvement.get(method, {}).get(metric)
        return None if gain is None else self.lowrank[metric] + gain.value


UK = Results(
    where="section 5, table of the UK and Belgian results, part (a)",
    lowrank={"mpr": 80.07, "auc": 0.57297},
    improvement={
        "explicit": {"mpr": Number(3.75, 0.16), "auc": Number(0.41465, 0.01334)},
        "dynamic": {"mpr": Number(3.74, 0.16), "auc": Number(0.41467, 0.01339)},
    },
)
BELGIAN = Results(
    where="section 5, table of the UK and Belgian results, part (b)",
    lowrank={"mpr": 79.42, "auc": 0.6162},
    improvement={
        "explicit": {"mpr": Number(9.58, 0.15), "auc": Number(0.3705, 8.569e-5)},
        "dynamic": {"mpr": Number(9.64, 0.13), "auc": Number(0.3702, 4.447e-5)},
    },
)
AMAZON = Results(
    where="appendix B.2, table 'MPR, p@k, and AUC values' (mean over the seven registries)",
    lowrank={
        "mpr": 70.50, "precision@1": 9.96, "precision@5": 25.36, "precision@10": 36.50, "precision@20": 51.22,
        "auc": 0.630,
    },
    improvement={
        "dynamic": {
            "mpr": Number(0.92, 0.56), "precision@1": Number(0.67, 0.75), "precision@5": Number(1.04, 0.82),
            "precision@10": Number(1.39, 0.85), "precision@20": Number(1.38, 0.97), "auc": Number(0.027, 0.017),
        },
        "explicit": {
            "mpr": Number(0.68, 0.62), "precision@1": Number(0.58, 0.76), "precision@5": Number(0.78, 0.67),
            "precision@10": Number(1.13, 0.79), "precision@20": Number(1.28, 1.11), "auc": Number(0.026, 0.016),
        },
        "nce": {
            "mpr": Number(0.86, 0.55), "precision@1": Number(0.20, 1.75), "precision@5": Number(0.67, 1.09),
            "precision@10": Number(0.97, 1.18), "precision@20": Number(1.35, 1.20), "auc": Number(0.009, 0.017),
        },
    },
)  # fmt: skip

RUNTIMES_WHERE = "section 5.2, table of runtimes (feeding registry, alpha = 1, ratio 0.5, K = 30)"
RUNTIMES = {  # seconds to convergence
    "mle": Number(0.83, 0.54),
    "explicit": Number(2.69, 0.02),
    "dynamic": Number(7.13, 0.28),
    "nce": Number(27.59, 2.20),
}

TRIALS = 5  # "All results are averaged over 5 learning trials"
TOY_RUNS = 10  # Figure 1: "Experiments were run 10 times"
FIGURE_1 = (
    "Figure 1 is printed as bars without numbers; its caption says that LowRank 'assigns relatively high "
    "probabilities to modes that represent incorrect predictions' and that Dyn and Exp give 'predictive "
    "distributions that are closer to the true distribution and much smaller variances'."
)
INSENSITIVE = (
    "'We found that explicit and dynamic CE are not very sensitive to the α and |A⁻|/|A⁺| hyperparameters' "
    "(section 5.2; no numbers are printed)."
)

# What the prototypes of this project found and the reproduction checks again: MPR of popularity alone.
POPULARITY_MPR = {"uk": 83.4, "belgian": 90.0}
