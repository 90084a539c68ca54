"""The input of training, checked: its parameters, and the data as a `Problem`.

One table of parameters, with types, ranges, models and help texts, feeds the checks of the
estimators and the options of `contradpp fit`. Defaults are in the estimators' signatures and in the
parameter objects of `negatives` and `optimizers`.
"""

from __future__ import annotations

import inspect
import logging
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import SPLIT, stream
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, RankError, did_you_mean
from contradpp.learn import negatives as negative_sets
from contradpp.learn import optimizers
from contradpp.learn.negatives import (
    DynamicNegatives,
    NegativeSettings,
    NegativeSource,
    WeightedSets,
)
from contradpp.learn.objectives import (
    OBJECTIVES,
    Assignment,
    Objective,
    ObjectiveSpec,
    Validation,
    objective_spec,
)
from contradpp.learn.optimizers import Adam, Nesterov, OptimizerSettings
from contradpp.learn.state import State

if TYPE_CHECKING:
    from contradpp.dpp.kernel import Kernel

log = logging.getLogger("contradpp")

LOWRANK = "LowRankDPP"
NONSYMMETRIC = "NonsymmetricDPP"
BOTH = (LOWRANK, NONSYMMETRIC)
PAPER_ROUNDS = 1000  # at least, with settings="paper"
VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
STEPS_A_ROUND = 100  # with more baskets, batches grow: a step costs what the catalog costs, too
LEAST_RATE = 0.2  # with rejected sets alone: a user who rejects something expects to see it
UPDATE_WEIGHT = 10.0  # steps of `partial_fit` have full length if one set in ten is new
MOST_LEARNED = 500  # items of one basket: the cost of a set grows with the cube of its size


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
    field: str = ""  # "negatives.ratio": the field of a parameter object that holds it

    def check(self, value: object, name: str | None = None) -> None:
        """Raise `ParameterError` unless the value can be used; `name` is what the user calls it."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.choices):
            return
        if self.flag and isinstance(value, (bool, np.bool_)):
            return
        kind = numbers.Integral if self.whole else numbers.Real
        good = self.low is not None and isinstance(value, kind) and not isinstance(value, bool)
        if good:
            number = float(value)  # type: ignore[arg-type]
            good = np.isfinite(number) and self.low <= number < self.high  # type: ignore[operator]
            good = good and not (self.above and number == self.low)
        if not good:
            hint = did_you_mean(value, self.choices)
            raise ParameterError(f"{name or self.name} must be {self.allowed}, got {value!r}{hint}")

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        words = [f"one of {', '.join(map(repr, self.choices))}"] if self.choices else []
        if self.low is not None:
            if self.whole and self.low == 1:
                number = "a positive integer"
            else:
                bound = "above" if self.above else "of at least"
                number = f"{'an integer' if self.whole else 'a number'} {bound} {self.low:g}"
            words.append(number + ("" if self.high == np.inf else f" and below {self.high:g}"))
        if self.optional:
            words.append("None")
        if self.flag:
            words.append("True or False")
        return " or ".join(words)


# Rows with a `field` are flat names, as options of the command line have them.
PARAMETERS = (
    Parameter("n_components", "Columns of V", low=0, whole=True),
    Parameter(
        "n_skew", "Neighbors of an item in the part that attracts", (NONSYMMETRIC,),
        low=0, whole=True,
    ),
    Parameter(
        "diagonal", "Give every item a weight of its own on the diagonal", (NONSYMMETRIC,),
        flag=True,
    ),
    Parameter("objective", "The function that is maximized", choices=tuple(OBJECTIVES)),
    Parameter(
        "contrast", "Weight of the negatives: a number, or 'counted'", (LOWRANK,), ("counted",),
        low=0,
    ),
    Parameter("negative_ratio", "Negatives drawn per basket", low=0, field="negatives.ratio"),
    Parameter("alpha", "Strength of the popularity penalty", low=0),
    Parameter(
        "dropout", "Share of a basket's items that a step leaves out", (NONSYMMETRIC,),
        low=0, high=1,
    ),
    Parameter(
        "optimizer", "Rule by which steps are made", (LOWRANK,), choices=tuple(optimizers.WORDS)
    ),
    Parameter("init", "Start of training", choices=("popularity", "uniform")),
    Parameter(
        "calibrate", "Rule that sets the kernel's scale",
        choices=("likelihood", "discrimination", "choices"), optional=True,
    ),
    Parameter(
        "oversize", "Baskets larger than the rank: refuse, leave out, or cut",
        choices=("error", "drop", "clip"),
    ),
    Parameter(
        "anneal", "Lower a diagonal to zero first, where baskets fill the rank", (LOWRANK,),
        flag=True,
    ),
    Parameter("settings", "Train as in the paper", (LOWRANK,), ("paper",), optional=True),
    Parameter(
        "batch_size", "Baskets a step; more with more baskets if left out",
        low=1, whole=True, optional=True, field="optimizer.batch_size",
    ),
    Parameter("max_iter", "The most rounds over the data", low=1, whole=True),
    Parameter("tol", "The relative rise of the validation score that counts", low=0),
    Parameter(
        "learning_rate", "Step size, instead of the optimizer's own",
        low=0, above=True, optional=True, field="optimizer.learning_rate",
    ),
    Parameter(
        "frequency_power", "Exponent of item frequencies in 'product' and 'nce'", (LOWRANK,),
        low=0, field="negatives.frequency_power",
    ),
    Parameter(
        "removal", "Choice of the item to leave out", choices=("popularity", "uniform"),
        field="negatives.removal",
    ),
    Parameter(
        "monitor", "The validation score", (LOWRANK,), ("auto", "likelihood", "conditional")
    ),
    Parameter(
        "dtype", "Type of V, while it is learned and in the model",
        choices=("float64", "float32"),
    ),
    Parameter(
        "radius", "Longest row that 'robbins-monro' allows", (LOWRANK,),
        low=0, above=True, field="optimizer.radius",
    ),
)  # fmt: skip
TABLE = {parameter.name: parameter for parameter in PARAMETERS}
FIELDS = {parameter.field: parameter for parameter in PARAMETERS if parameter.field}
DEFAULTS = {
    f"{part}.{name}": value
    for part, kinds in (("negatives", negative_sets.WORDS), ("optimizer", optimizers.WORDS))
    for kind in kinds.values()
    for name, value in kind().get_params().items()
}


@dataclass(frozen=True)
class Params:
    """The checked parameters of one training run; those that a model lacks have the values here."""

    n_components: int
    objective: str | Objective
    negatives: NegativeSettings | NegativeSource | None
    optimizer: OptimizerSettings
    alpha: float
    init: str
    calibrate: str | None
    oversize: str
    max_iter: int
    tol: float
    removal: str = "popularity"
    batch_size: int = 1000
    n_skew: int | None = None  # None: no S
    diagonal: bool = False
    dropout: float = 0.0
    contrast: float | str = 1.0
    anneal: bool = False
    settings: str | None = None
    monitor: str = "auto"
    dtype: str = "float64"
    n_jobs: int = 1

    @staticmethod
    def of(estimator: Any, **overrides: Any) -> Params:
        """Check the parameters of an estimator; `settings="paper"` overrides some of them."""
        given = estimator.get_params(deep=False) | overrides
        names = {item.name for item in fields(Params)} & given.keys()
        names -= {"n_jobs", "negatives", "optimizer"}
        for name in names:
            if name != "objective" or not hasattr(given[name], "gradient"):
                TABLE[name].check(given[name])
        spec = objective_spec(given["objective"])
        defaults = _part_defaults(given)
        negatives = _negatives(given["negatives"], given["objective"], spec, defaults)
        optimizer = _optimizer(given["optimizer"], only_adam="n_skew" in given)
        params = Params(
            **{name: given[name] for name in names},
            negatives=negatives,
            optimizer=optimizer,
            removal=getattr(negatives, "removal", defaults["removal"]),
            batch_size=defaults["batch_size"],
            n_jobs=resolve_n_jobs(given["n_jobs"]),
        )
        if params.n_components == 0 and not params.diagonal:
            raise ParameterError(
                "n_components must be a positive integer, got 0: "
                "only a kernel with a diagonal can do without factors"
            )
        if spec.check is not None:
            spec.check(params)
        return params._as_in_the_paper() if params.paper else params

    def _as_in_the_paper(self) -> Params:
        """Set start, batch, optimizer and stopping rule of LowRankDPP.jl."""
        return replace(
            self, init="uniform", optimizer=Nesterov(batch_size=1000), batch_size=1000, tol=1e-5,
            monitor="likelihood", anneal=False,
            max_iter=max(self.max_iter, PAPER_ROUNDS),
        )  # fmt: skip

    @property
    def spec(self) -> ObjectiveSpec:
        """The properties of the objective."""
        return objective_spec(self.objective)

    def batch_for(self, n_sets: int) -> int:
        """Return the sets of a batch: as given, else as many as make `STEPS_A_ROUND`, or more."""
        return self.optimizer.batch_size or max(self.batch_size, n_sets // STEPS_A_ROUND)

    @property
    def largest(self) -> float:
        """The most items that a set can have; any number with a diagonal."""
        return np.inf if self.diagonal else self.n_components

    @property
    def paper(self) -> bool:
        """True if the run is to be as in the paper."""
        return self.settings == "paper"

    @property
    def contrast_value(self) -> float | None:
        """The weight of the negatives; None for the counted form, |A⁻|/|A⁺|."""
        return None if self.contrast == "counted" else float(self.contrast)

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters that the result depends on: not those of length and threads."""
        skipped = ("max_iter", "n_jobs")
        return {name: value for name, value in vars(self).items() if name not in skipped}


def _negatives(
    given: Any, objective: Any, spec: ObjectiveSpec, defaults: Mapping[str, Any]
) -> NegativeSettings | NegativeSource | None:
    """Return the checked settings of negatives, those of the objective if none are given."""
    if hasattr(given, "draw") and spec.negatives is not None and spec.draws and spec.check is None:
        source: NegativeSource = given
        return source
    if given is None:
        settings = None if spec.negatives is None else spec.negatives()
    else:
        settings = _settings("negatives", given, negative_sets.WORDS)
        if type(settings) is not spec.negatives:
            wanted = "no negatives" if spec.negatives is None else f"{spec.negatives.__name__}()"
            raise ParameterError(f"objective={objective!r} takes {wanted}, not negatives={given!r}")
    if isinstance(settings, DynamicNegatives) and settings.removal is None:
        settings = replace(settings, removal=defaults["removal"])
    if settings is not None:
        _check_fields("negatives", settings)
    return settings


def _optimizer(given: Any, *, only_adam: bool) -> OptimizerSettings:
    """Return the checked settings of the optimizer."""
    settings: OptimizerSettings = _settings("optimizer", given, optimizers.WORDS)
    if only_adam and not isinstance(settings, Adam):
        raise ParameterError(f"optimizer must be 'adam' or Adam(...) for S and D, got {given!r}")
    _check_fields("optimizer", settings)
    return settings


def _part_defaults(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what negatives and optimizers leave open, given the parameters of an estimator."""
    if "n_skew" in params:
        return {"removal": "uniform", "batch_size": 300}
    return {"removal": "popularity", "batch_size": 1000}


def _settings(name: str, given: Any, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the parameter object for a word or an object."""
    if isinstance(given, str) and given in kinds:
        return kinds[given]()
    if type(given) not in kinds.values():
        classes = ", ".join(f"{kind.__name__}(...)" for kind in kinds.values())
        words = ", ".join(map(repr, kinds))
        hint = did_you_mean(given, kinds) if isinstance(given, str) else ""
        raise ParameterError(f"{name} must be one of {words}, {classes}, got {given!r}{hint}")
    return given


def _check_fields(name: str, settings: NegativeSettings | OptimizerSettings) -> None:
    for key, value in settings.get_params().items():
        row = FIELDS[f"{name}.{key}"]
        row.check(value, row.field)


# -- Flat names: the options of the command line ---------------------------------------------------


def params_from_flat(kind: type[Any], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return constructor arguments for parameters by flat names.

    Fields that the negatives of the objective or the optimizer do not have are left out.

    Parameters
    ----------
    kind : type
        `LowRankDPP` or `NonsymmetricDPP`.
    flat : mapping
        Parameters by the names of `TABLE`, such as "negative_ratio".
    """
    arguments = {name: value for name, value in flat.items() if name not in TABLE}
    arguments |= {name: flat[name] for name in flat.keys() & TABLE.keys() if not TABLE[name].field}
    objective = flat.get("objective", inspect.signature(kind).parameters["objective"].default)
    if isinstance(objective, str):
        TABLE["objective"].check(objective)
    negatives = objective_spec(objective).negatives
    optimizer = optimizers.WORDS.get(flat.get("optimizer", "adam"))
    parts: tuple[tuple[str, type[Any] | None], ...]
    parts = (("negatives", negatives), ("optimizer", optimizer))
    for part, cls in parts:
        names = set() if cls is None else {item.name for item in fields(cls)}
        values: dict[str, Any] = {
            row.field.partition(".")[2]: flat[name]
            for name, row in TABLE.items()
            if name in flat and row.field.startswith(f"{part}.")
        }
        values = {name: value for name, value in values.items() if name in names}
        if cls is not None and values:
            arguments[part] = cls(**values)
    return arguments


def flat_params(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator by flat names: the inverse of `params_from_flat`.

    Fields that its negatives or its optimizer lack have their defaults.
    """
    params: dict[str, Any] = estimator.get_params(deep=False)
    open_settings = _part_defaults(params)
    negatives = params.pop("negatives")
    optimizer = params.pop("optimizer")
    if negatives is None:
        kind = objective_spec(params["objective"]).negatives
        negatives = "dynamic" if kind is None else kind()
    if not hasattr(negatives, "draw"):
        negatives = _settings("negatives", negatives, negative_sets.WORDS)
    parts = {
        "negatives": negatives,
        "optimizer": _settings("optimizer", optimizer, optimizers.WORDS),
    }
    own = type(estimator).__name__
    for name, row in TABLE.items():
        if own in BOTH and own not in row.models:
            continue
        if name == "optimizer":
            words = [word for word, kind in optimizers.WORDS.items() if kind is type(parts[name])]
            params[name] = words[0]
        elif row.field:
            part, _, key = row.field.partition(".")
            value = getattr(parts[part], key, DEFAULTS[row.field])
            params[name] = open_settings.get(key) if value is None else value
    return params


# -- The data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitData:
    """The data that the user passes to `fit` or `partial_fit`; `LearnedDPP.fit` describes them."""

    baskets: Any
    sample_weight: Any = None
    negatives: Any = None
    validation: Any = None


@dataclass(frozen=True)
class StartingPoint:
    """A kernel that was learned before: the start of a warm start and of `partial_fit`."""

    kernel: Kernel
    items: Vocabulary
    counts: Array | None = None  # baskets with each item, if that is known
    n_baskets: float = 0.0


@dataclass(frozen=True)
class TrainingData:
    """Positives with a label each, and negatives of the user with a weight each."""

    positives: Sets
    weights: Array
    negatives: Sets
    negative_weights: Array
    offered: Sets | None = field(default=None, kw_only=True)  # what each positive was chosen from

    @property
    def count(self) -> int:
        """The number of positives."""
        return self.positives.count

    @property
    def liked(self) -> Sets:
        """The positives whose label is above zero."""
        return take_sets(self.positives, np.flatnonzero(self.weights > 0))

    def take(self, chosen: Ints) -> tuple[Sets, Array]:
        """Return the positives at these positions, and their labels."""
        return take_sets(self.positives, chosen), self.weights[chosen]

    def offered_at(self, chosen: Ints) -> Sets | None:
        """Return the offered sets of the positives at these positions, if they are known."""
        return None if self.offered is None else take_sets(self.offered, chosen)


@dataclass(frozen=True)
class Problem:
    """The data of a training run, as codes of one vocabulary."""

    items: Vocabulary
    data: TrainingData
    validation: Validation
    counts: Array  # liked baskets with each item
    n_baskets: float
    seed: int
    start: StartingPoint | None = None
    rate: float | None = None  # of steps in `partial_fit`: all rounds are made, the last counts
    set_aside: bool = False  # the validation sets are some of the user's baskets
    clusters: Assignment | None = None  # of the sets, where the kernel is that of a mixture

    def contents(self, state: State) -> Iterator[NDArray[Any] | str]:
        """Yield all data of training, for a fingerprint."""
        data = self.data
        yield from (*self.validation.sets, self.validation.weights)
        yield from (*data.positives, data.weights, *data.negatives, data.negative_weights)
        for offered in (data.offered, self.validation.offered):
            yield from offered or ()
        if self.clusters is not None:
            yield from vars(self.clusters).values()
        yield from (state.V, state.log_d, state.pairs)
        yield from map(repr, self.items)


def problem_of(
    given: FitData, params: Params, seed: int, start: StartingPoint | None = None
) -> Problem:
    """Check the user's data, set some aside for validation, and code all by one vocabulary."""
    baskets = as_baskets(given.baskets, empty=False)
    positives, weights = usable_positives(baskets, given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given.negatives, params)
    items = positives.items.merge(negatives.items)
    if not len(items):
        raise DataError("there is no item to learn from: every basket is empty")
    if start is not None:
        K = start.kernel.n_components
        if params.n_components != K:
            raise ParameterError(f"warm_start: the factors have {K} components, not n_components")
        items = start.items.merge(items)
    positives = positives.recode(items)
    liked = np.flatnonzero(weights > 0)
    aside, chosen = set_aside(given.validation, liked, positives.n_baskets, params, seed)
    if aside is None:
        validation = usable_validation(given.validation, items, params)
    else:
        held = positives.subset(aside)
        validation = Validation(held.sets, weights[aside], held.offered)
    positives = positives.subset(chosen)
    weights = weights[chosen]
    counts, n_baskets = weighted_counts(positives, weights)
    own_negatives = negatives.recode(items).sets
    data = TrainingData(
        positives.sets, weights, own_negatives, negative_weights, offered=positives.offered
    )
    own = aside is not None and bool(validation.sets.count)
    validation = validation if validation.sets.count else default_validation(data)
    return Problem(items, data, validation, counts, n_baskets, seed, start, set_aside=own)


def problem_of_update(given: FitData, params: Params, seed: int, start: StartingPoint) -> Problem:
    """Check the data of `partial_fit`: nothing is set aside, and there may be only negatives."""
    params = replace(params, diagonal=start.kernel.has_diagonal)
    positives = Baskets.from_lists([], items=start.items)
    weights = np.empty(0)
    if given.baskets is not None and (baskets := as_baskets(given.baskets)).n_baskets:
        positives, weights = usable_positives(baskets, given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given.negatives, params)
    if not positives.n_baskets and not negatives.n_baskets:
        raise DataError("partial_fit needs baskets or negatives")
    items = start.items.merge(positives.items).merge(negatives.items)
    positives = positives.recode(items)
    counts, n_baskets = weighted_counts(positives, weights)
    if start.counts is not None:
        counts[: len(start.counts)] += start.counts
    own_negatives = negatives.recode(items).sets
    data = TrainingData(
        positives.sets, weights, own_negatives, negative_weights, offered=positives.offered
    )
    # A step has the same length for ten sets and for a thousand: few new sets make short steps.
    new = float(np.abs(weights).sum() + np.abs(negative_weights).sum())
    rate = min(1.0, UPDATE_WEIGHT * new / max(start.n_baskets + new, 1e-300))
    if not data.count:
        rate = max(rate, LEAST_RATE)
    n_baskets += start.n_baskets
    return Problem(items, data, default_validation(data), counts, n_baskets, seed, start, rate)


def usable_positives(given: Baskets, sample_weight: Any, params: Params) -> tuple[Baskets, Array]:
    """Return the baskets that can be learned from, with their labels."""
    weights = checked_weights(sample_weight, given.n_baskets, "sample_weight")
    # A power of two rounds nothing, and keeps sums of the largest numbers that there are finite.
    weights = np.ldexp(weights, -np.frexp(np.abs(weights).max(initial=0.0))[1])
    if not weights.any():
        raise DataError("there is no basket to learn from: every sample_weight is zero")
    if refuse_or_note_oversize(given.sizes, params) and params.oversize == "clip":
        given = given.clip(params.n_components)
    usable = usable_sizes(given.sizes, params) & (weights != 0) & usable_choices(given, params)
    usable = without_large(usable, (given.sizes > MOST_LEARNED) & (weights < 0))
    if params.spec.offered == "negatives" and given.offered is not None:
        all_refused = (given.sizes == 0) & (given.offered.sizes > 0)
        usable |= all_refused & (weights != 0)
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return without_excess(given.subset(usable)), weights[usable] / np.abs(weights[usable]).mean()


def without_excess(given: Baskets) -> Baskets:
    """Cut baskets that have more items than can be learned from at once."""
    return given.draw(MOST_LEARNED) if note_excess(given.sizes) else given


def note_excess(sizes: NDArray[np.integer[Any]]) -> bool:
    """Return whether baskets have more items than can be learned from at once, and log it."""
    count = int((sizes > MOST_LEARNED).sum())
    if count:
        log.warning(
            f"{count:,} of {len(sizes):,} baskets have more than {MOST_LEARNED} items (the largest "
            f"has {int(sizes.max()):,}): of each, {MOST_LEARNED} drawn at random are learned"
        )
    return count > 0


def without_large(usable: Flags, disliked: Flags) -> Flags:
    """Leave out sets that are large and disliked: a part of one may well be liked."""
    if count := int((usable & disliked).sum()):
        log.warning(
            f"{count:,} sets that should become unlikely have more than {MOST_LEARNED} items: "
            "left out"
        )
    return usable & ~disliked


def refuse_or_note_oversize(sizes: NDArray[np.integer[Any]], params: Params) -> bool:
    """Return whether baskets are larger than the rank; `RankError` with oversize="error"."""
    K = params.n_components
    too_large = sizes > params.largest
    if not too_large.any():
        return False
    count = int(too_large.sum())
    most = int(sizes.max())
    if params.oversize == "error":
        raise RankError(
            f"{count:,} of {len(sizes):,} baskets have more than n_components={K} items "
            f"(the largest has {most}): set n_components={most}, or oversize='drop' or 'clip'",
            parameters=("n_components", "oversize"),
        )
    log.warning(f"{count} baskets have more than {K} items: {params.oversize}")
    return True


def usable_sizes(sizes: NDArray[np.integer[Any]], params: Params) -> Flags:
    """Return which baskets can be learned from, by their size."""
    usable: Flags = (sizes >= params.spec.smallest) & (sizes <= params.largest)
    return usable


def usable_choices(given: Baskets, params: Params) -> Flags:
    """Return which baskets can be learned from, by whether their offered sets are known."""
    required = params.spec.offered == "required"
    known = np.zeros(given.n_baskets, dtype=bool)
    if given.offered is not None:
        known = given.offered.sizes > 0
    if not known.any() and (required or params.calibrate == "choices"):
        raise DataError(
            "objective='choice' and calibrate='choices' need to know what baskets were chosen "
            "from: Baskets with `offered` sets"
        )
    if not required:
        return np.ones(given.n_baskets, dtype=bool)
    if count := int((~known).sum()):
        log.warning(f"{count} baskets are left out: it is not known what they were chosen from")
    return known


def usable_negatives(given: Any, params: Params) -> tuple[Baskets, Array]:
    """Return the user's negative sets with their weights; those beyond the rank are left out."""
    if given is None:
        return Baskets.from_lists([]), np.empty(0)
    sets = given
    weights = None
    if isinstance(given, WeightedSets):
        sets = given.sets
        weights = given.weights
    negatives = as_baskets(sets, "negatives")
    if params.spec.offered == "required" and negatives.n_baskets:
        raise ParameterError(
            "objective='choice' takes no negatives: refused items belong to `offered` of baskets"
        )
    weights = checked_weights(weights, negatives.n_baskets, "weights of negatives")
    if np.abs(weights).max(initial=0.0) > np.finfo(np.float64).max / max(len(weights), 1):
        raise ParameterError("weights of negatives hold numbers too large for a sum of them")
    usable = (negatives.sizes > 0) & (negatives.sizes <= params.largest)
    usable = without_large(usable, negatives.sizes > MOST_LEARNED)
    return negatives.subset(usable), weights[usable]


def set_aside(
    validation: Any, liked: Ints, n_baskets: int, params: Params, seed: int
) -> tuple[Ints | None, Ints]:
    """Split baskets into validation (None if the user has some) and training."""
    everything = np.arange(n_baskets)
    n = len(liked)
    share = validation
    if validation is None:
        if n < FEWEST_TO_SPLIT:
            return everything[:0], everything
        share = min(0.01 if params.paper else VALIDATION_SHARE, MOST_VALIDATION / n)
    if not isinstance(share, float):
        return None, everything
    if not 0 < share < 1:
        raise ParameterError(
            f"validation must be a share between 0 and 1, or baskets, got {validation!r}"
        )
    count = min(max(round(share * n), 1), max(n - 1, 0))
    aside = np.sort(stream(seed, SPLIT).permutation(liked)[:count])
    return aside, np.setdiff1d(everything, aside)


def usable_validation(validation: Any, items: Vocabulary, params: Params) -> Validation:
    """Return the user's validation baskets, as far as their items are known."""
    given = as_baskets(validation, "validation", empty=False)
    held_out = given.recode(items, unknown="ignore")
    fits = usable_sizes(held_out.sizes, params) & ((held_out.sizes > 0) | (given.sizes == 0))
    fits &= usable_choices(held_out, params)
    if not fits.any():
        raise DataError("no validation basket has known items and at most n_components of them")
    chosen = held_out.subset(fits).draw(MOST_LEARNED)
    return Validation(chosen.sets, np.ones(chosen.n_baskets), chosen.offered)


def default_validation(data: TrainingData) -> Validation:
    """Return the liked sets to validate by, else those that should be unlikely."""
    chosen = np.flatnonzero(data.weights > 0) if (data.weights > 0).any() else np.arange(data.count)
    if len(chosen):
        return Validation(*data.take(chosen), data.offered_at(chosen))
    return Validation(data.negatives, -np.ones(data.negatives.count))


def weighted_counts(baskets: Baskets, weights: Array) -> tuple[Array, float]:
    """Count the liked baskets with each item, and all; a basket of weight 2 counts as two."""
    liked = np.maximum(weights, 0.0)
    if (liked == 1.0).all():  # the usual case needs no number for every entry
        return baskets.item_counts.astype(np.float64), float(len(liked))
    per_entry = np.repeat(liked, baskets.sizes)
    counts = np.bincount(baskets.indices, weights=per_entry, minlength=baskets.n_items)
    return counts.astype(np.float64), float(liked.sum())


def checked_weights(weights: Any, n: int, name: str) -> Array:
    """Return a finite number per set; ones if none were given."""
    if weights is None:
        return np.ones(n)
    wanted = f"{name} must hold {n} finite numbers, one for each set, got"
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{wanted} {weights!r:.60}") from None
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ParameterError(f"{wanted} shape {values.shape}")
    return values
