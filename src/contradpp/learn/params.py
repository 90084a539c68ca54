"""What training is given, checked: its parameters, and the data as a `Problem`.

One table of parameters, with types, ranges, models and help texts, feeds the checks of the estimators and the options
of `contradpp fit`; defaults are in the estimators' signatures.
"""

from __future__ import annotations

import logging
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, RankError
from contradpp.learn.objectives import Validation
from contradpp.learn.optimizers import PAPER, PAPER_ROUNDS
from contradpp.learn.state import SPLIT, State

log = logging.getLogger("contradpp")
Array = NDArray[np.float64]

LOWRANK, NONSYMMETRIC = "LowRankDPP", "NonsymmetricDPP"
BOTH = (LOWRANK, NONSYMMETRIC)
OBJECTIVES = ("mle", "dynamic", "explicit", "product", "nce", "exact", "choice")
VALIDATION_SHARE = 0.05
MOST_VALIDATION = 5000
FEWEST_TO_SPLIT = 40
LEAST_RATE = 0.2  # where there are only rejected sets: who rejects something expects to see it
NEWS = 10.0  # steps of `partial_fit` are of full length if one set in so many is new
MOST_LEARNED = 500  # items of one basket: what a set costs grows with the cube of its size


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
        if not params.paper:
            return params
        return replace(params, **PAPER, max_iter=max(params.max_iter, PAPER_ROUNDS))

    @property
    def largest(self) -> float:
        """The most items that a set can have; any number with a diagonal."""
        return np.inf if self.diagonal else self.n_components

    @property
    def paper(self) -> bool:
        """Whether to train as in the paper."""
        return self.settings == "paper"

    @property
    def by_likelihood(self) -> bool:
        """Whether the validation score is log P(A) rather than log P(i | A∖i)."""
        return self.objective in ("mle", "nce")

    @property
    def by_choice(self) -> bool:
        """Whether it learns from what was offered, and validation and scale are by the likelihood of choices."""
        return bool(self.objective == "choice")

    @property
    def contrast_value(self) -> float | None:
        """The weight of the negatives; None for the counted form of the paper's appendix, |A⁻|/|A⁺|."""
        return None if self.contrast == "counted" else float(self.contrast)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on: a run may be made longer, and on other threads."""
        return {name: value for name, value in vars(self).items() if name not in ("max_iter", "n_jobs")}


# -- The data ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What the user passes to `fit` or `partial_fit`; `LearnedDPP.fit` describes it."""

    baskets: Any
    sample_weight: Any = None
    negatives: Any = None
    negative_weight: Any = None
    validation: Any = None


@dataclass(frozen=True)
class Known:
    """What is learned already: where a warm start and `partial_fit` begin."""

    kernel: Any
    items: Vocabulary
    counts: Array | None = None  # in how many baskets each item was, if that is known
    n_baskets: float = 0.0


@dataclass(frozen=True)
class TrainingData:
    """Positives with a label each, and negatives that the user supplied, with a weight each."""

    positives: Sets
    weights: Array
    negatives: Sets
    negative_weights: Array
    offered: Sets | None = field(default=None, kw_only=True)  # what each positive was chosen from

    @property
    def count(self) -> int:
        """How many positives there are."""
        return self.positives.count

    @property
    def liked(self) -> Sets:
        """The positives whose label is above zero."""
        return take_sets(self.positives, np.flatnonzero(self.weights > 0))

    def take(self, chosen: NDArray[np.int64]) -> tuple[Sets, Array]:
        """The positives at these positions, and their labels."""
        return take_sets(self.positives, chosen), self.weights[chosen]

    def offered_at(self, chosen: NDArray[np.int64]) -> Sets | None:
        """What the positives at these positions were chosen from, if that is known."""
        return None if self.offered is None else take_sets(self.offered, chosen)


@dataclass(frozen=True)
class Problem:
    """What is to be learned from, as codes of one vocabulary."""

    items: Vocabulary
    data: TrainingData
    validation: Validation
    counts: Array  # in how many liked baskets each item is
    n_baskets: float
    seed: int
    known: Known | None = None
    rate: float | None = None  # of steps in continued training: all rounds are made, the last counts
    set_aside: bool = False  # whether the validation sets are some of the user's baskets
    together: Any = None  # how often any two items are in a basket (sparse), where the data here are not all
    digests: tuple[NDArray[Any] | str, ...] | None = None  # of the data, where they are not all here

    def contents(self, state: State) -> Iterator[NDArray[Any] | str]:
        """All that training is given, for a fingerprint."""
        data = self.data
        yield from self.digests or ()
        yield from (*self.validation.sets, self.validation.weights)
        if self.digests is None:
            yield from (*data.positives, data.weights, *data.negatives, data.negative_weights)
        for offered in (data.offered, self.validation.offered):
            yield from offered or ()
        yield from (state.V, state.log_d, state.pairs)
        yield from map(repr, self.items)


def problem_of(given: Given, params: Params, seed: int, known: Known | None = None) -> Problem:
    """Check what the user gives, set some aside for validation, and code everything by one vocabulary."""
    positives, weights = usable_positives(as_baskets(given.baskets, empty=False), given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given, params)
    items = positives.items.merge(negatives.items)
    if not len(items):
        raise DataError("there is no item to learn from: every basket is empty")
    if known is not None:
        K = known.kernel.n_components
        if params.n_components != K:
            raise ParameterError(f"warm_start: the factors have {K} components, not n_components")
        items = known.items.merge(items)
    positives = positives.recode(items)
    aside, chosen = set_aside(given.validation, np.flatnonzero(weights > 0), positives.n_baskets, params, seed)
    if aside is None:
        validation = usable_validation(given.validation, items, params)
    else:
        held = positives.subset(aside)
        validation = Validation(held.sets, weights[aside], held.offered)
    positives, weights = positives.subset(chosen), weights[chosen]
    counts, n_baskets = weighted_counts(positives, weights)
    data = TrainingData(
        positives.sets, weights, negatives.recode(items).sets, negative_weights, offered=positives.offered
    )
    own = aside is not None and bool(validation.sets.count)
    validation = validation if validation.sets.count else what_to_validate(data)
    return Problem(items, data, validation, counts, n_baskets, seed, known, set_aside=own)


def problem_of_news(given: Given, params: Params, seed: int, known: Known) -> Problem:
    """As `problem_of` for what comes after what is known: nothing is set aside, and there may be only negatives."""
    params = replace(params, diagonal=known.kernel.has_diagonal)
    positives, weights = Baskets.from_lists([], items=known.items), np.empty(0)
    if given.baskets is not None and (baskets := as_baskets(given.baskets)).n_baskets:
        positives, weights = usable_positives(baskets, given.sample_weight, params)
    negatives, negative_weights = usable_negatives(given, params)
    if not positives.n_baskets and not negatives.n_baskets:
        raise DataError("partial_fit needs baskets or negatives")
    items = known.items.merge(positives.items).merge(negatives.items)
    positives = positives.recode(items)
    counts, n_baskets = weighted_counts(positives, weights)
    if known.counts is not None:
        counts[: len(known.counts)] += known.counts
    data = TrainingData(
        positives.sets, weights, negatives.recode(items).sets, negative_weights, offered=positives.offered
    )
    # A step is as long whether it rests on ten sets or a thousand: little news must not shake much data.
    news = float(np.abs(weights).sum() + np.abs(negative_weights).sum())
    rate = min(1.0, NEWS * news / max(known.n_baskets + news, 1e-300))
    rate = rate if data.count else max(rate, LEAST_RATE)
    return Problem(items, data, what_to_validate(data), counts, n_baskets + known.n_baskets, seed, known, rate)


def usable_positives(given: Baskets, sample_weight: Any, params: Params) -> tuple[Baskets, Array]:
    """The baskets with their labels, without those that cannot be used."""
    weights = checked_weights(sample_weight, given.n_baskets, "sample_weight")
    # A power of two rounds nothing, and keeps sums of the largest numbers that there are finite.
    weights = np.ldexp(weights, -np.frexp(np.abs(weights).max(initial=0.0))[1])
    if not weights.any():
        raise DataError("there is no basket to learn from: every sample_weight is zero")
    if refuse_or_note_oversize(given.sizes, params) and params.oversize == "clip":
        given = given.clip(params.n_components)
    usable = usable_sizes(given.sizes, params) & (weights != 0) & usable_choices(given, params)
    usable = without_large(usable, (given.sizes > MOST_LEARNED) & (weights < 0))
    if params.objective == "explicit" and given.offered is not None:
        usable |= (given.sizes == 0) & (given.offered.sizes > 0) & (weights != 0)  # all was refused
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return without_excess(given.subset(usable)), weights[usable] / np.abs(weights[usable]).mean()


def without_excess(given: Baskets) -> Baskets:
    """The baskets, of which none has more items than can be learned from at once."""
    return given.draw(MOST_LEARNED) if note_excess(given.sizes) else given


def note_excess(sizes: NDArray[np.integer[Any]], *, quiet: bool = False) -> bool:
    """Whether some baskets have more items than can be learned from at once, which is logged."""
    count = int((sizes > MOST_LEARNED).sum())
    if count and not quiet:
        log.warning(
            "%s of %s baskets have more than %s items (the largest has %s): of each, %s drawn at random are learned",
            f"{count:,}", f"{len(sizes):,}", MOST_LEARNED, f"{int(sizes.max()):,}", MOST_LEARNED,
        )  # fmt: skip
    return count > 0


def without_large(usable: NDArray[np.bool_], disliked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the usable sets are not large and disliked: a part of one may well be liked."""
    if count := int((usable & disliked).sum()):
        log.warning("%s sets that should become unlikely have more than %s items: left out", f"{count:,}", MOST_LEARNED)
    return usable & ~disliked


def refuse_or_note_oversize(sizes: NDArray[np.integer[Any]], params: Params, *, quiet: bool = False) -> bool:
    """Whether some baskets are larger than the rank; `RankError` if that is not to be."""
    K, too_large = params.n_components, sizes > params.largest
    if not too_large.any():
        return False
    count, most = int(too_large.sum()), int(sizes.max())
    if params.oversize == "error":
        raise RankError(
            f"{count:,} of {len(sizes):,} baskets have more than n_components={K} items (the largest has {most}): "
            f"set n_components={most}, or oversize='drop' or 'clip'",
            parameters=("n_components", "oversize"),
        )
    if not quiet:
        log.warning("%s baskets have more than %s items: %s", count, K, params.oversize)
    return True


def usable_sizes(sizes: NDArray[np.integer[Any]], params: Params) -> NDArray[np.bool_]:
    """Which baskets can be learned from, by their size."""
    least = 0 if params.objective in ("mle", "nce", "product", "choice") else 1  # others need items
    usable: NDArray[np.bool_] = (sizes >= least) & (sizes <= params.largest)
    return usable


def usable_choices(given: Baskets, params: Params) -> NDArray[np.bool_]:
    """Which baskets can be learned from, by whether it is known what they were chosen from."""
    known = np.zeros(given.n_baskets, dtype=bool) if given.offered is None else given.offered.sizes > 0
    if not known.any() and (params.by_choice or params.calibrate == "choices"):
        raise DataError(
            "objective='choice' and calibrate='choices' need to know what baskets were chosen from: Baskets with "
            "`offered` sets"
        )
    if not params.by_choice:
        return np.ones(given.n_baskets, dtype=bool)
    if not known.all():
        log.warning("%s baskets are left out: it is not known what they were chosen from", int((~known).sum()))
    return known


def usable_negatives(given: Given, params: Params) -> tuple[Baskets, Array]:
    """The user's own negative sets with their weights; sets beyond the rank are impossible already."""
    if given.negatives is None:
        if given.negative_weight is not None:
            raise ParameterError("negative_weight needs negatives")
        return Baskets.from_lists([]), np.empty(0)
    negatives = as_baskets(given.negatives, "negatives")
    if params.by_choice and negatives.n_baskets:
        raise ParameterError("objective='choice' takes no negatives: what was refused belongs to `offered` of baskets")
    weights = checked_weights(given.negative_weight, negatives.n_baskets, "negative_weight")
    if np.abs(weights).max(initial=0.0) > np.finfo(np.float64).max / max(len(weights), 1):
        raise ParameterError("negative_weight holds numbers too large for a sum of them")
    usable = (negatives.sizes > 0) & (negatives.sizes <= params.largest)
    usable = without_large(usable, negatives.sizes > MOST_LEARNED)
    return negatives.subset(usable), weights[usable]


def set_aside(
    validation: Any, liked: NDArray[np.int64], n_baskets: int, params: Params, seed: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Which liked baskets are for validation (None if the user gave others), and which are left for training."""
    everything, n = np.arange(n_baskets), len(liked)
    share = validation
    if validation is None:
        if n < FEWEST_TO_SPLIT:
            return everything[:0], everything
        share = min(0.01 if params.paper else VALIDATION_SHARE, MOST_VALIDATION / n)
    if not isinstance(share, float):
        return None, everything
    if not 0 < share < 1:
        raise ParameterError(f"validation must be a share between 0 and 1, or baskets, got {validation!r}")
    count = min(max(round(share * n), 1), max(n - 1, 0))
    aside = np.sort(stream(seed, SPLIT).permutation(liked)[:count])
    return aside, np.setdiff1d(everything, aside)


def usable_validation(validation: Any, items: Vocabulary, params: Params) -> Validation:
    """The user's own validation baskets, as far as their items are known."""
    given = as_baskets(validation, "validation", empty=False)
    held_out = given.recode(items, unknown="ignore")
    fits = usable_sizes(held_out.sizes, params) & ((held_out.sizes > 0) | (given.sizes == 0))
    fits &= usable_choices(held_out, params)
    if not fits.any():
        raise DataError("no validation basket has known items and at most n_components of them")
    chosen = held_out.subset(fits).draw(MOST_LEARNED)
    return Validation(chosen.sets, np.ones(chosen.n_baskets), chosen.offered)


def what_to_validate(data: TrainingData) -> Validation:
    """Without validation data: the liked sets, else those that should become unlikely."""
    chosen = np.flatnonzero(data.weights > 0) if (data.weights > 0).any() else np.arange(data.count)
    if len(chosen):
        return Validation(*data.take(chosen), data.offered_at(chosen))
    return Validation(data.negatives, -np.ones(data.negatives.count))


def weighted_counts(baskets: Baskets, weights: Array) -> tuple[Array, float]:
    """In how many liked baskets each item is, and how many there are; a basket of weight 2 counts as two."""
    liked = np.maximum(weights, 0.0)
    if (liked == 1.0).all():  # as usual: no number for every entry
        return baskets.item_counts.astype(np.float64), float(len(liked))
    counts = np.bincount(baskets.indices, weights=np.repeat(liked, baskets.sizes), minlength=baskets.n_items)
    return counts.astype(np.float64), float(liked.sum())


def checked_weights(weights: Any, n: int, name: str) -> Array:
    """A finite number per set; ones if none were given."""
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
