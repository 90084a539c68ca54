"""The protocol of the paper: which fits each of its tables and figures is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from contradpp.errors import ParameterError

TEST_SHARE = 0.2
ALPHA, RATIO = 1.0, 0.5
PROTOCOL = 2  # part of every result's parameters: raise it when what is measured changes

REGISTRIES = ("health", "bath", "apparel", "bedding", "diaper", "gear", "feeding")
AMAZON = tuple(f"amazon/{registry}" for registry in REGISTRIES)
FEW = ("amazon/feeding", "amazon/apparel")  # the registries of a quick ablation
ALPHAS = (0.0, 0.01, 0.1, 1.0, 10.0)
RATIOS = (0.25, 0.5, 1.0, 2.0)


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
}

LABELS = {
    "mle": "LowRank",
    "explicit": "Exp",
    "dynamic": "Dyn",
    "nce": "NCE",
    "explicit-counted": "Exp, counted",
    "dynamic-counted": "Dyn, counted",
    "product": "Prod",
    "exact": "exact",
    "popularity": "Popularity",
}
COMPARED = ("mle", "explicit", "dynamic", "nce")  # the paper's methods
COUNTED = "-counted"  # contrast = |A⁻|/|A⁺|, the form of the paper's appendix
OURS = (f"explicit{COUNTED}", f"dynamic{COUNTED}", "product", "exact")
PAPER_START = ("mle", "explicit", "dynamic")  # shown from the paper's start beside the default settings
TOY_METHODS = ("mle", "explicit", "dynamic")
ABLATED = ("explicit", "dynamic")
SCALED = ("amazon/feeding", "uk", "belgian")

SINGLE = ("figure1", "table-runtimes", "table-uk", "table-belgian", "table-amazon",
          "ablation-alpha", "ablation-ratio", "scale")  # fmt: skip
PER_REGISTRY = tuple(f"table-{name}" for name in AMAZON)
BEYOND = "beyond"  # not of the paper, and so not among `all`
TARGETS = (*SINGLE, *PER_REGISTRY, BEYOND, "all")


@dataclass(frozen=True)
class Protocol:
    """What the caller chooses.

    Parameters
    ----------
    settings : {"default", "paper"}
        How models are trained: the library's defaults, or the paper's start, optimiser and stopping rule.
    trials : int
        Seeds of split, start and evaluation: 0, 1, ...
    quick : bool
        One trial, three toy runs, ablations on two registries.
    overrides : dict
        Parameters of `LowRankDPP` that replace those of the protocol; a run that has any is no reproduction.
    """

    settings: str = "default"
    trials: int = 3
    quick: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.settings not in ("default", "paper"):
            raise ParameterError(f"settings must be 'default' or 'paper', got {self.settings!r}")
        if self.trials < 1:
            raise ParameterError(f"trials must be at least 1, got {self.trials}")

    @property
    def n_trials(self) -> int:
        """The number of trials of tables and ablations."""
        return 1 if self.quick else self.trials

    @property
    def toy_runs(self) -> int:
        """The runs of Figure 1: ten as in the paper."""
        return 3 if self.quick else 10

    @property
    def ablation_data(self) -> tuple[str, ...]:
        """The registries of the ablations."""
        return FEW if self.quick else AMAZON


@dataclass(frozen=True)
class Task:
    """One result: a method on a data set, in one trial. Two targets that need the same task share it."""

    kind: str  # "fit", "toy", "runtime" or "beyond"
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
        return DATA[self.data]

    @property
    def cost(self) -> float:
        """Roughly how long it takes, in fits of an Amazon registry."""
        return 0.1 if self.method == "popularity" else self.plan.cost

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
        if self.method == "popularity":
            return {}
        if self.kind == BEYOND:
            return {"n_components": self.plan.n_components, "random_state": self.trial}
        return {
            "n_components": self.plan.n_components,
            "objective": self.method.removesuffix(COUNTED),
            "contrast": "counted" if self.method.endswith(COUNTED) else 1.0,
            "negative_ratio": self.ratio,
            "alpha": self.alpha,
            "calibrate": None,
            "settings": "paper" if self.settings == "paper" else None,
            "random_state": self.trial,
            **dict(self.overrides),
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on: it is computed again when any of it has changed."""
        return {
            "protocol": PROTOCOL,
            "kind": self.kind,
            "data": self.data,
            "method": self.method,
            "trial": self.trial,
            "test_share": TEST_SHARE,
            "estimator": self.estimator,
            "paper_rounds": self.plan.paper_rounds if self.settings == "paper" else None,
        }


def tasks_of(target: str, protocol: Protocol) -> list[Task]:
    """The tasks of a target, those of one trial before those of the next."""
    if target == "all":
        found = [task for one in SINGLE for task in tasks_of(one, protocol)]
    elif target == "figure1":
        found = list(_toy(protocol))
    elif target == "table-runtimes":
        found = list(_runtimes(protocol))
    elif target == "table-amazon":
        found = list(_table(AMAZON, protocol))
    elif target in ("table-uk", "table-belgian", *PER_REGISTRY):
        found = list(_table((target.removeprefix("table-"),), protocol))
    elif target == "ablation-alpha":
        found = list(_ablation(protocol, [(alpha, RATIO) for alpha in ALPHAS]))
    elif target == "ablation-ratio":
        found = list(_ablation(protocol, [(ALPHA, ratio) for ratio in RATIOS]))
    elif target == "scale":
        found = list(_scale(protocol))
    elif target == BEYOND:
        from contradpp.research import beyond

        found = list(beyond.tasks(protocol))
    else:
        raise ParameterError(f"there is no target {target!r}; there are: {', '.join(TARGETS)}")
    return list(dict.fromkeys(found))


def tasks_of_all(targets: Sequence[str], protocol: Protocol) -> list[Task]:
    """The tasks of several targets, each once; small data sets come first, so that much is there early."""
    found = dict.fromkeys(task for target in targets for task in tasks_of(target, protocol))
    return sorted(found, key=lambda task: (task.kind != "runtime", task.plan.cost, task.trial))


def _task(
    protocol: Protocol,
    kind: str,
    data: str,
    method: str,
    trial: int,
    *,
    settings: str | None = None,
    alpha: float = ALPHA,
    ratio: float = RATIO,
) -> Task:
    overrides = tuple(sorted(protocol.overrides.items()))
    return Task(kind, data, method, trial, settings or protocol.settings, alpha, ratio, overrides)


def methods_of(settings: str) -> tuple[str, ...]:
    """The rows of a table: the paper's methods, and with the default settings our own."""
    return (*COMPARED, *OURS, "popularity") if settings == "default" else (*COMPARED, "popularity")


def _table(data: Sequence[str], protocol: Protocol) -> Iterator[Task]:
    for trial in range(protocol.n_trials):
        for name in data:
            for method in methods_of(protocol.settings):
                settings = "default" if method == "popularity" else protocol.settings
                yield _task(protocol, "fit", name, method, trial, settings=settings)
            for method in PAPER_START:
                yield _task(protocol, "fit", name, method, trial, settings="paper")


def _toy(protocol: Protocol) -> Iterator[Task]:
    for trial in range(protocol.toy_runs):
        for settings in ("default", "paper"):
            for method in TOY_METHODS:
                yield _task(protocol, "toy", "toy", method, trial, settings=settings)


def _runtimes(protocol: Protocol) -> Iterator[Task]:
    methods = (*COMPARED, "exact") if protocol.settings == "default" else COMPARED
    for trial in range(protocol.n_trials):
        for method in methods:
            yield _task(protocol, "runtime", "amazon/feeding", method, trial)


def _ablation(protocol: Protocol, levels: Sequence[tuple[float, float]]) -> Iterator[Task]:
    for trial in range(protocol.n_trials):
        for name in protocol.ablation_data:
            for method in ABLATED:
                for alpha, ratio in levels:
                    yield _task(protocol, "fit", name, method, trial, alpha=alpha, ratio=ratio)


def _scale(protocol: Protocol) -> Iterator[Task]:
    for trial in range(protocol.n_trials):
        for name in SCALED:
            for method in ("mle", "explicit", "dynamic"):
                yield _task(protocol, "fit", name, method, trial)
                yield _task(protocol, "fit", name, method, trial, settings="paper")
