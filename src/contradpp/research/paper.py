"""The paper: what it prints, and the protocol by which each of its tables and figures is made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from contradpp.errors import ParameterError
from contradpp.research.contestants import AMAZON, BEYOND_MODELS, INGREDIENTS, MODELS, ROWS
from contradpp.research.contestants import DATA as BENCHMARK_DATA

TEST_SHARE = 0.2
ALPHA, RATIO = 1.0, 0.5
PROTOCOL = {"fit": 3}  # by kind, of others 2; part of a result's parameters: raise it when what is measured changes

FEW = ("amazon/feeding", "amazon/apparel")  # the registries of a quick ablation
ALPHAS = (0.0, 0.01, 0.1, 1.0, 10.0)
RATIOS = (0.25, 0.5, 1.0, 2.0)

LABELS = {
    "mle": "LowRank", "explicit": "Exp", "dynamic": "Dyn", "nce": "NCE", "explicit-counted": "Exp, counted",
    "dynamic-counted": "Dyn, counted", "product": "Prod", "exact": "exact", "popularity": "Popularity",
}  # fmt: skip
COMPARED = ("mle", "explicit", "dynamic", "nce")  # the paper's methods
COUNTED = "-counted"  # contrast = |A⁻|/|A⁺|, the form of the paper's appendix
OURS = (f"explicit{COUNTED}", f"dynamic{COUNTED}", "product", "exact")
TRIO = ("mle", "explicit", "dynamic")  # of Figure 1, of the scale, and shown from the paper's start in every table
ABLATED = ("explicit", "dynamic")
SCALED = ("amazon/feeding", "uk", "belgian")

SINGLE = ("figure1", "table-runtimes", "table-uk", "table-belgian", "table-amazon",
          "ablation-alpha", "ablation-ratio", "scale")  # fmt: skip
PER_REGISTRY = tuple(f"table-{name}" for name in AMAZON)
BENCHMARK = "benchmark"  # not of the paper, and so not among `all`
BEYOND = "beyond"  # the part of the benchmark that docs/beyond.md shows
LADDER = "ingredients"  # the part of the benchmark, and rows of its own, that tell what each ingredient brings
VIEWS = {  # of the benchmark's results: the rows of each
    BENCHMARK: ROWS,
    BEYOND: BEYOND_MODELS,
    LADDER: tuple(dict.fromkeys(name for one in INGREDIENTS for name in (one.without, one.with_it))),
}
SLATES = "slates"  # not of the paper either
DEFAULTS = "defaults"  # nor this: which settings validation baskets choose
COLD_START = "cold-start"  # nor this: items that never sold
TUNED = ("lowrank-mle", "nonsymmetric", "conditional")
NEGATIVES = "negatives"  # what was really refused, on yoochoose
CHOICE_LABELS = {
    "frequency": "frequency", "lift": "lift: share taken when offered", "logistic": "logistic regression per item",
    "lowrank-mle": "low rank, mle", "lowrank-generated": "low rank, generated negatives",
    "lowrank-real": "low rank, real negatives", "lowrank-choice": "low rank, choice sets",
    "nonsymmetric-exact": "nonsymmetric, exact", "nonsymmetric-generated": "nonsymmetric, generated negatives",
    "nonsymmetric-real": "nonsymmetric, real negatives", "nonsymmetric-choice": "nonsymmetric, choice sets",
}  # fmt: skip
SLATE_DATA = ("groceries", "uk", "belgian", "instacart")
TARGETS = (*SINGLE, *PER_REGISTRY, *VIEWS, SLATES, NEGATIVES, COLD_START, DEFAULTS, "all")
ASKED = {"full": 5000, "quick": 2000}  # test baskets of the benchmark; of more, so many at random
ROUND = 1  # of the benchmark: raise it when what it measures, or a model of it, changes


# -- What the paper prints -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
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
        """What the method reached: LowRank's value plus the improvement, None if the paper does not say."""
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
RUNTIMES_WHERE = "section 5.2, table of runtimes (feeding registry, alpha = 1, ratio 0.5, K = 30)"
RUNTIMES = {"mle": Number(0.83, 0.54), "explicit": Number(2.69, 0.02), "dynamic": Number(7.13, 0.28),
            "nce": Number(27.59, 2.20)}  # seconds to convergence  # fmt: skip
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


def printed_for(data: str) -> PrintedTable:
    """The table whose numbers a data set is set beside: its own, or Amazon's for a registry."""
    return PRINTED.get(f"table-{data}", PRINTED["table-amazon"])


# -- How it is run again -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataPlan:
    """How a data set is used: the rank K that the paper prints, and roughly what a fit costs."""

    n_components: int
    cost: float = 1.0
    paper_rounds: int = 1000  # where runs from the paper's start are cut off if they have not converged


# The toy set has no printed K; the paper's rule for the large sets is the size of the largest basket.
DATA = {
    "toy": DataPlan(2, 0.1),
    "uk": DataPlan(100, 20.0, paper_rounds=150),
    "belgian": DataPlan(76, 60.0, paper_rounds=30),
    **{name: DataPlan(30) for name in AMAZON},
    "groceries": DataPlan(30, 0.5),
    "grocer": DataPlan(30, 0.8),
    "yoochoose": DataPlan(30, 15.0),
    "tafeng": DataPlan(100, 70.0),
    "instacart": DataPlan(100, 100.0),
}


@dataclass(frozen=True)
class Protocol:
    """What the caller chooses."""

    settings: str = "default"  # or "paper": its start, optimiser and stopping rule
    trials: int = 3  # seeds of split, start and evaluation: 0, 1, ...
    quick: bool = False  # one trial, three toy runs, ablations on two registries
    overrides: dict[str, Any] = field(default_factory=dict)  # of `LowRankDPP`: a run that has any is no reproduction
    # Of the benchmark: data sets or files, rows and tables; all where there are none.
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.settings not in ("default", "paper"):
            raise ParameterError(f"settings must be 'default' or 'paper', got {self.settings!r}")
        if self.trials < 1:
            raise ParameterError(f"trials must be at least 1, got {self.trials}")
        for name in self.models:
            if name not in MODELS:
                raise ParameterError(f"there is no model {name!r}; there are: {', '.join(MODELS)}")

    @property
    def n_trials(self) -> int:
        """The number of trials of tables and ablations."""
        return 1 if self.quick else self.trials

    @property
    def toy_runs(self) -> int:
        """The runs of Figure 1: ten as in the paper."""
        return 3 if self.quick else TOY_RUNS

    @property
    def ablation_data(self) -> tuple[str, ...]:
        """The registries of the ablations."""
        return FEW if self.quick else AMAZON

    @property
    def methods(self) -> tuple[str, ...]:
        """The rows of a table: the paper's methods, and with the default settings our own."""
        return (*COMPARED, *OURS, "popularity") if self.settings == "default" else (*COMPARED, "popularity")

    @property
    def timed(self) -> tuple[str, ...]:
        """The rows of the table of runtimes."""
        return (*COMPARED, "exact") if self.settings == "default" else COMPARED


@dataclass(frozen=True)
class Task:
    """One result: a method on a data set, in one trial. Two targets that need the same task share it."""

    kind: str  # "fit", "toy", "runtime", "benchmark", "slates", "negatives", "cold-start" or "defaults"
    data: str
    method: str
    trial: int
    settings: str = "default"
    alpha: float = ALPHA
    ratio: float = RATIO
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def plan(self) -> DataPlan:
        """How the data set is used."""
        return DATA.get(self.data, DataPlan(30))

    @property
    def cost(self) -> float:
        """Roughly how long it takes, in fits of an Amazon registry."""
        return 0.1 if self.method == "popularity" else self.plan.cost

    @property
    def asked(self) -> int:
        """The most test baskets of a result of the benchmark."""
        return ASKED[self.settings]

    @property
    def name(self) -> str:
        """Where the result is stored: no two tasks of a protocol have the same."""
        variation = [f"alpha={self.alpha:g}"] if self.alpha != ALPHA else []
        variation += [f"ratio={self.ratio:g}"] if self.ratio != RATIO else []
        method = ",".join([self.method, *variation])
        return f"{self.kind}/{self.data.replace('/', '-')}/{self.settings}/{method}/trial-{self.trial}"

    def __str__(self) -> str:
        return self.name.replace("/", " ")

    @property
    def estimator(self) -> dict[str, Any]:
        """The arguments of `LowRankDPP`; empty for a baseline."""
        if self.method == "popularity" or self.kind in (BENCHMARK, SLATES, NEGATIVES, COLD_START, DEFAULTS):
            return {}
        common = {"n_components": self.plan.n_components, "random_state": self.trial}
        return {
            **common,
            "objective": self.method.removesuffix(COUNTED),
            "contrast": "counted" if self.method.endswith(COUNTED) else 1.0,
            "negative_ratio": self.ratio,
            "alpha": self.alpha,
            "calibrate": None,
            "settings": "paper" if self.settings == "paper" else None,
            **dict(self.overrides),
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on: it is computed again when any of it has changed."""
        named = {name: getattr(self, name) for name in ("kind", "data", "method", "trial", "estimator")}
        rounds = self.plan.paper_rounds if self.settings == "paper" else None
        of_benchmark: dict[str, Any] = (
            {"asked": self.asked, "round": ROUND} if self.kind in (BENCHMARK, DEFAULTS) else {}
        )
        if self.data not in DATA and Path(self.data).is_file():  # another file of the same name is other data
            of_benchmark["sha256"] = hashlib.sha256(Path(self.data).read_bytes()).hexdigest()
        named |= {"protocol": PROTOCOL.get(self.kind, 2), "test_share": TEST_SHARE, "paper_rounds": rounds}
        return named | of_benchmark


def data_of(target: str) -> tuple[str, ...]:
    """The data sets of a table of results."""
    return AMAZON if target == "table-amazon" else (target.removeprefix("table-"),)


def tasks_of(target: str, protocol: Protocol) -> list[Task]:
    """The tasks of a target, each once."""
    if target not in TARGETS:
        raise ParameterError(f"there is no target {target!r}; there are: {', '.join(TARGETS)}")
    if target == "all":
        return list(dict.fromkeys(task for one in SINGLE for task in tasks_of(one, protocol)))
    return list(dict.fromkeys(_tasks(target, protocol)))


def tasks_of_all(targets: Sequence[str], protocol: Protocol) -> list[Task]:
    """The tasks of several targets, each once; small data sets come first, so that much is there early."""
    found = dict.fromkeys(task for target in targets for task in tasks_of(target, protocol))
    return sorted(found, key=lambda task: (task.kind != "runtime", task.plan.cost, task.trial))


def _tasks(target: str, protocol: Protocol) -> Iterator[Task]:
    overrides = tuple(sorted(protocol.overrides.items()))

    def grid(kind: str, trials: int, *axes: Sequence[Any], **fixed: Any) -> Iterator[Task]:
        """A task for every trial, data set, method and settings."""
        for trial, data, method, settings in product(range(trials), *axes):
            yield Task(kind, data, method, trial, settings, overrides=overrides, **fixed)

    n, own, both = protocol.n_trials, (protocol.settings,), ("default", "paper")
    if target in VIEWS:
        models = protocol.models or VIEWS[target]
        size = "quick" if protocol.quick else "full"
        for trial, name, method in product(range(n), protocol.data or BENCHMARK_DATA, models):
            if MODELS[method].available:
                yield Task(BENCHMARK, name, method, trial, size)
    elif target == DEFAULTS:
        size = "quick" if protocol.quick else "full"
        models = tuple(name for name in TUNED if name in (protocol.models or TUNED))
        yield from grid(DEFAULTS, n, protocol.data or BENCHMARK_DATA, models, (size,))
    elif target == SLATES:  # one split: the comparison is between ways on the same baskets
        few = SLATE_DATA[:2] if protocol.quick else SLATE_DATA
        yield from (Task(SLATES, name, "conditional", 0) for name in few)
    elif target == COLD_START:
        yield Task(COLD_START, "groceries" if protocol.quick else "instacart", "conditional", 0)
    elif target == NEGATIVES:
        yield from (Task(NEGATIVES, "yoochoose", method, trial) for trial in range(n) for method in CHOICE_LABELS)
    elif target == "figure1":
        yield from grid("toy", protocol.toy_runs, ("toy",), TRIO, both)
    elif target == "table-runtimes":
        yield from grid("runtime", n, ("amazon/feeding",), protocol.timed, own)
    elif target == "ablation-alpha":
        for alpha in ALPHAS:
            yield from grid("fit", n, protocol.ablation_data, ABLATED, own, alpha=alpha)
    elif target == "ablation-ratio":
        for ratio in RATIOS:
            yield from grid("fit", n, protocol.ablation_data, ABLATED, own, ratio=ratio)
    elif target == "scale":
        yield from grid("fit", n, SCALED, TRIO, tuple(dict.fromkeys((*own, "paper"))))
    else:
        names = data_of(target)
        yield from grid("fit", n, names, [method for method in protocol.methods if method != "popularity"], own)
        yield from grid("fit", n, names, ("popularity",), ("default",))
        yield from grid("fit", n, names, TRIO, ("paper",))
