"""One table of the parameters of training: their types, ranges, models and help texts.

It feeds the checks of the estimators and the options of `contradpp fit`; defaults are in the estimators' signatures.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from contradpp.errors import ParameterError
from contradpp.learn.recipes import RECIPES, recipe_of

LOWRANK, NONSYMMETRIC = "LowRankDPP", "NonsymmetricDPP"
BOTH = (LOWRANK, NONSYMMETRIC)
OBJECTIVES = tuple(RECIPES)
LIKELIHOOD_STEPS = 50  # as in LowRankDPP.jl
CONTRASTIVE_STEPS = 800  # chosen on validation baskets: experiments/schedules.py


@dataclass(frozen=True)
class Parameter:
    """A row of the table: one of the words in `choices`, or a number from `low` on."""

    name: str
    help: str
    models: tuple[str, ...] = BOTH
    choices: tuple[str, ...] = ()  # words; beside a range, they are allowed too
    low: float | None = None
    high: float = np.inf  # excluded
    above: bool = False  # low itself is excluded
    whole: bool = False
    optional: bool = False  # None is allowed
    flag: bool = False  # True or False

    def check(self, value: Any, name: str | None = None) -> None:
        """Raise `ParameterError` unless the value can be used; it speaks of `name`, as the user knows it."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.choices):
            return
        if self.flag and isinstance(value, (bool, np.bool_)):
            return
        kind = numbers.Integral if self.whole else numbers.Real
        good = self.low is not None and isinstance(value, kind) and not isinstance(value, bool)
        good = good and np.isfinite(float(value)) and self.low <= value < self.high
        if not good or (self.above and value == self.low):
            raise ParameterError(f"{name or self.name} must be {self.wanted}, got {value!r}")

    @property
    def wanted(self) -> str:
        """What it may be, for messages."""
        words = [f"one of {', '.join(map(repr, self.choices))}"] if self.choices else []
        if self.low is not None:
            number = (
                "a positive integer" if self.whole and self.low == 1 else "an integer" if self.whole else "a number"
            )
            bound = "" if self.whole and self.low == 1 else f" {'above' if self.above else 'of at least'} {self.low:g}"
            words.append(number + bound + ("" if self.high == np.inf else f" and below {self.high:g}"))
        return " or ".join([*words, *(["None"] if self.optional else []), *(["True or False"] if self.flag else [])])


PARAMETERS = (
    Parameter("n_components", "Columns of V", low=0, whole=True),
    Parameter("n_skew", "Partners of an item in the part that attracts", (NONSYMMETRIC,), low=0, whole=True),
    Parameter("diagonal", "Whether every item has a weight of its own on the diagonal", (NONSYMMETRIC,), flag=True),
    Parameter("objective", "What is maximised", choices=OBJECTIVES),
    Parameter("contrast", "Weight of the negatives: a number, or 'counted'", (LOWRANK,), ("counted",), low=0),
    Parameter("negative_ratio", "Negatives drawn per basket", low=0),
    Parameter("alpha", "Strength of the popularity penalty", low=0),
    Parameter("dropout", "Share of a basket's items that a step leaves out", (NONSYMMETRIC,), low=0, high=1),
    Parameter("optimizer", "How steps are made", (LOWRANK,), ("adam", "nesterov", "robbins-monro")),
    Parameter("init", "Where training starts", choices=("popularity", "uniform")),
    Parameter(
        "calibrate", "How the kernel's scale is set", choices=("likelihood", "discrimination", "choices"), optional=True
    ),
    Parameter("oversize", "Baskets larger than the rank: refuse, leave out, or cut", choices=("error", "drop", "clip")),
    Parameter("anneal", "Lower a diagonal to zero first, where baskets fill the rank", (LOWRANK,), flag=True),
    Parameter("settings", "Train as in the paper", (LOWRANK,), ("paper",), optional=True),
    Parameter("batch_size", "Baskets a step", low=1, whole=True),
    Parameter("max_iter", "The most rounds over the data", low=1, whole=True),
    Parameter("tol", "The relative rise of the validation score that counts", low=0),
    Parameter("learning_rate", "Step size, instead of the optimiser's own", low=0, above=True, optional=True),
    Parameter("refresh", "Draw negatives anew every so many steps", (LOWRANK,), low=1, whole=True),
    Parameter("false_negatives", "Whether a negative may be a training basket", (LOWRANK,), ("keep", "reject")),
    Parameter("frequency_power", "Exponent of item frequencies in 'product' and 'nce'", (LOWRANK,), low=0),
    Parameter("removal", "How the item to leave out is chosen", choices=("popularity", "uniform")),
    Parameter("monitor", "What the validation score measures", (LOWRANK,), ("auto", "likelihood", "conditional")),
    Parameter("dtype", "How V is kept, while it is learned and in the model", choices=("float64", "float32")),
    Parameter("radius", "Longest row that 'robbins-monro' allows", (LOWRANK,), low=0, above=True),
)
TABLE = {parameter.name: parameter for parameter in PARAMETERS}


@dataclass(frozen=True)
class Params:
    """The parameters of one training run; what a model does not have is as here."""

    n_components: int
    objective: Any
    negative_ratio: float
    alpha: float
    init: str
    calibrate: str | None
    oversize: str
    batch_size: int
    max_iter: int
    tol: float
    learning_rate: float | None
    removal: str
    n_skew: int | None = None  # None: no S
    diagonal: bool = False
    dropout: float = 0.0
    contrast: float | str = 1.0
    optimizer: str = "adam"
    anneal: bool = False
    settings: str | None = None
    refresh: int = 1
    false_negatives: str = "keep"
    frequency_power: float = 1.0
    monitor: str = "auto"
    radius: float = 10.0
    dtype: str = "float64"
    n_jobs: int = 1

    @staticmethod
    def of(model: str, given: Mapping[str, Any], n_jobs: int = 1) -> Params:
        """The checked parameters of an estimator; `settings="paper"` has a say in the others."""
        names = {field.name for field in fields(Params)} & given.keys() - {"n_jobs"}
        for name in names:
            parameter = TABLE[name]
            if model in BOTH and model not in parameter.models:
                raise ParameterError(f"{name} is not a parameter of {model}")
            if name != "objective" or not hasattr(given[name], "gradient"):
                parameter.check(given[name])
        params = Params(**{name: given[name] for name in names}, n_jobs=n_jobs)
        if params.n_components == 0 and not params.diagonal:
            raise ParameterError("n_components must be a positive integer, got 0: only a diagonal does without factors")
        if params.objective == "nce" and params.negative_ratio == 0:
            raise ParameterError("objective='nce' compares with noise: negative_ratio must be above 0")
        if params.objective == "nce" and params.false_negatives == "reject":
            raise ParameterError("objective='nce' needs noise of a known law: false_negatives must be 'keep'")
        return params.as_in_the_paper() if params.paper else params

    def as_in_the_paper(self) -> Params:
        """Start, batch, optimiser and stopping rule of LowRankDPP.jl, whatever else is given."""
        return replace(
            self, init="uniform", optimizer="nesterov", learning_rate=None, batch_size=1000, tol=1e-5,
            monitor="likelihood", max_iter=max(self.max_iter, 1000), refresh=1, anneal=False,
        )  # fmt: skip

    @property
    def largest(self) -> float:
        """The most items that a set can have; any number with a diagonal."""
        return np.inf if self.diagonal else self.n_components

    @property
    def paper(self) -> bool:
        """Whether to train as in the paper."""
        return self.settings == "paper"

    @property
    def fixed_steps(self) -> int:
        """Length of the first phase of "nesterov", whose steps have momentum and one size."""
        return LIKELIHOOD_STEPS if recipe_of(self.objective).by_likelihood else CONTRASTIVE_STEPS

    @property
    def unchecked_steps(self) -> int:
        """Steps before the stopping rule counts: a contrast need not raise the likelihood that it looks at."""
        return CONTRASTIVE_STEPS if self.paper and not recipe_of(self.objective).by_likelihood else 0

    @property
    def contrast_value(self) -> float | None:
        """The weight of the negatives; None for the counted form of the paper's appendix, |A⁻|/|A⁺|."""
        return None if self.contrast == "counted" else float(self.contrast)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on: a run may be made longer, and on other threads."""
        return {name: value for name, value in vars(self).items() if name not in ("max_iter", "n_jobs")}
