"""The protocol: which tasks make each table and figure of the paper, of the benchmark and of the studies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from contradpp.errors import ParameterError
from experiments.benchmark.models import AMAZON, INGREDIENTS, MODELS, ROWS
from experiments.benchmark.models import DATA as BENCHMARK_DATA

TEST_SHARE = 0.2
ALPHA = 1.0
RATIO = 0.5
PROTOCOL = {"fit": 3}  # by kind, of others 2: raise it when what is measured changes
ROUND = 2  # of the benchmark: raise it when what it measures, or a model of it, changes
ASKED = {"full": 5000, "quick": 2000}  # the most test baskets of the benchmark
TOY_RUNS = 10  # Figure 1: "Experiments were run 10 times"

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
TRIO = ("mle", "explicit", "dynamic")  # of Figure 1 and of the scale; shown from the paper's start in every table
ABLATED = ("explicit", "dynamic")
SCALED = ("amazon/feeding", "uk", "belgian")

SINGLE = ("figure1", "table-runtimes", "table-uk", "table-belgian", "table-amazon",
          "ablation-alpha", "ablation-ratio", "scale")  # fmt: skip
VIEWS = {  # of the benchmark's results: the rows of each
    "benchmark": ROWS,
    "ingredients": tuple(dict.fromkeys(name for one in INGREDIENTS for name in (one.without, one.with_it))),
}
TUNED = ("lowrank-mle", "nonsymmetric", "conditional")
CHOICE_LABELS = {
    "frequency": "frequency", "lift": "lift: share taken when offered", "logistic": "logistic regression per item",
    "lowrank-mle": "low rank, mle", "lowrank-generated": "low rank, generated negatives",
    "lowrank-real": "low rank, real negatives", "lowrank-choice": "low rank, choice sets",
    "nonsymmetric-exact": "nonsymmetric, exact", "nonsymmetric-generated": "nonsymmetric, generated negatives",
    "nonsymmetric-real": "nonsymmetric, real negatives", "nonsymmetric-choice": "nonsymmetric, choice sets",
}  # fmt: skip
SLATE_DATA = ("groceries", "uk", "belgian", "instacart")
STUDIES = ("slates", "negatives", "cold-start", "defaults")  # not of the paper, and so not among `all`
TARGETS = (*SINGLE, *(f"table-{name}" for name in AMAZON), *VIEWS, *STUDIES, "all")


@dataclass(frozen=True)
class DataPlan:
    """The use of a data set: the rank K that the paper prints, and the rough cost of a fit."""

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
    """The choices of the caller."""

    settings: str = "default"  # or "paper": its start, optimizer and stopping rule
    trials: int = 3  # seeds of split, start and evaluation: 0, 1, ...
    quick: bool = False  # one trial, three toy runs, ablations on two registries
    overrides: dict[str, Any] = field(default_factory=dict)  # of `LowRankDPP`, for tests
    # Of the benchmark: data sets, rows and tables; all where there are none.
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
    def size(self) -> str:
        """The size of the benchmark."""
        return "quick" if self.quick else "full"

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

    kind: str  # "fit", "toy", "runtime", "benchmark" or one of `STUDIES`
    data: str
    method: str
    trial: int
    settings: str = "default"
    alpha: float = ALPHA
    ratio: float = RATIO
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def plan(self) -> DataPlan:
        """The use of the data set."""
        return DATA[self.data]

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
        """The path of the stored result: no two tasks of a protocol have the same."""
        variation = [f"alpha={self.alpha:g}"] if self.alpha != ALPHA else []
        variation += [f"ratio={self.ratio:g}"] if self.ratio != RATIO else []
        method = ",".join([self.method, *variation])
        return f"{self.kind}/{self.data.replace('/', '-')}/{self.settings}/{method}/trial-{self.trial}"

    def __str__(self) -> str:
        return self.name.replace("/", " ")

    @property
    def estimator(self) -> dict[str, Any]:
        """The arguments of `LowRankDPP` by flat names; empty for other models."""
        if self.method == "popularity" or self.kind not in ("fit", "toy", "runtime"):
            return {}
        return {
            "n_components": self.plan.n_components,
            "random_state": self.trial,
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
        named["protocol"] = PROTOCOL.get(self.kind, 2)
        named["test_share"] = TEST_SHARE
        named["paper_rounds"] = self.plan.paper_rounds if self.settings == "paper" else None
        if self.kind in ("benchmark", "defaults"):
            named |= {"asked": self.asked, "round": ROUND}
        return named


def data_of(target: str) -> tuple[str, ...]:
    """Return the data sets of a table of results."""
    return AMAZON if target == "table-amazon" else (target.removeprefix("table-"),)


def tasks_of(target: str, protocol: Protocol) -> list[Task]:
    """Return the tasks of a target, each once."""
    if target not in TARGETS:
        raise ParameterError(f"there is no target {target!r}; there are: {', '.join(TARGETS)}")
    if target == "all":
        return list(dict.fromkeys(task for one in SINGLE for task in tasks_of(one, protocol)))
    return list(dict.fromkeys(_tasks(target, protocol)))


def tasks_of_all(targets: Sequence[str], protocol: Protocol) -> list[Task]:
    """Return the tasks of several targets, each once; small data sets come first, so that much is there early."""
    found = dict.fromkeys(task for target in targets for task in tasks_of(target, protocol))
    return sorted(found, key=lambda task: (task.kind != "runtime", task.plan.cost, task.trial))


def _tasks(target: str, protocol: Protocol) -> Iterator[Task]:
    overrides = tuple(sorted(protocol.overrides.items()))

    def grid(kind: str, trials: int, *axes: Sequence[Any], **fixed: Any) -> Iterator[Task]:
        """Yield a task for every trial, data set, method and settings."""
        for trial, data, method, settings in product(range(trials), *axes):
            yield Task(kind, data, method, trial, settings, overrides=overrides, **fixed)

    n = protocol.n_trials
    own = (protocol.settings,)
    both = ("default", "paper")
    data = protocol.data or BENCHMARK_DATA
    match target:
        case "benchmark" | "ingredients":
            models = [name for name in protocol.models or VIEWS[target] if MODELS[name].available]
            if not models:
                raise ParameterError("none of these models is installed here: pip install -e '.[experiments]'")
            yield from grid("benchmark", n, data, models, (protocol.size,))
        case "defaults":
            models = [name for name in TUNED if name in (protocol.models or TUNED)]
            yield from grid("defaults", n, data, models, (protocol.size,))
        case "slates":  # one split: the comparison is between ways on the same baskets
            few = SLATE_DATA[:2] if protocol.quick else SLATE_DATA
            yield from grid("slates", 1, few, ("conditional",), ("default",))
        case "cold-start":
            name = "groceries" if protocol.quick else "instacart"
            yield from grid("cold-start", 1, (name,), ("conditional",), ("default",))
        case "negatives":
            yield from grid("negatives", n, ("yoochoose",), tuple(CHOICE_LABELS), ("default",))
        case "figure1":
            yield from grid("toy", protocol.toy_runs, ("toy",), TRIO, both)
        case "table-runtimes":
            yield from grid("runtime", n, ("amazon/feeding",), protocol.timed, own)
        case "ablation-alpha":
            for alpha in ALPHAS:
                yield from grid("fit", n, protocol.ablation_data, ABLATED, own, alpha=alpha)
        case "ablation-ratio":
            for ratio in RATIOS:
                yield from grid("fit", n, protocol.ablation_data, ABLATED, own, ratio=ratio)
        case "scale":
            yield from grid("fit", n, SCALED, TRIO, tuple(dict.fromkeys((*own, "paper"))))
        case _:
            trained = [method for method in protocol.methods if method != "popularity"]
            yield from grid("fit", n, data_of(target), trained, own)
            yield from grid("fit", n, data_of(target), ("popularity",), ("default",))
            yield from grid("fit", n, data_of(target), TRIO, ("paper",))
