"""The voices that a conditional DPP listens to: how each is made, asked, shaped into features, saved and restored.

A voice scores items given a basket (`models/scores.py` has the interface); a feature is such a score in one of a few
shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contradpp._threads import blas_threads
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, without_each
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import persist, scoring
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ModelFileError, ParameterError
from contradpp.models import baselines
from contradpp.models.baselines import BasketNeighbours, ItemKNN, LogLinear, Popularity, RidgeNeighbours
from contradpp.models.loglinear import DENSE_UP_TO
from contradpp.models.rows import Labour
from contradpp.models.scores import Baseline

Array = NDArray[np.float64]

PLAIN, ROOT, LOG = 0, 1, 2


class Feature(NamedTuple):
    """A shape of a voice's score x: x, its signed root, or log(x + floor), where x is no less than zero."""

    shape: int
    floor: float = 0.0
    mean: bool = False  # x is divided by the size of the basket first

    def write(self, scores: Array, sizes: NDArray[np.int64], out: NDArray[np.floating]) -> None:
        """Write the feature of scores (n, M) given baskets of these sizes; both may be the same array."""
        rates = 1.0 / np.maximum(sizes, 1) if self.mean else np.ones(1)
        np.multiply(scores, rates[:, None], out=out, casting="same_kind")
        if self.shape == ROOT:
            root = np.sqrt(np.abs(out))
            np.copysign(root, out, out=out)
        elif self.shape == LOG:
            np.fmax(out, 0.0, out=out)
            out += self.floor
            np.log(out, out=out)


class Voice(Protocol):
    """What is asked of a voice: see `models/scores.py`."""

    def write_scores(self, sets: Sets, out: Array) -> None:
        """Write the scores of all items given every set."""

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """Write the scores of all items given every set without each of its entries."""


class Kind(NamedTuple):
    """A voice by name: how it is made, and its features. `part_of` is the word by which a user asks for it."""

    make: Callable[[], Baseline]
    features: tuple[Feature, ...]
    part_of: str
    up_to: float = np.inf  # items: in larger catalogues it is silent


# Settings were chosen on validation parts of amazon, uk and belgian (docs/beyond.md).
KINDS = {
    "popularity": Kind(Popularity, (Feature(LOG),), "popularity"),
    "ridge": Kind(lambda: RidgeNeighbours(ridge=20.0), (Feature(PLAIN), Feature(ROOT)), "ridge"),
    "share": Kind(lambda: ItemKNN(weights="share"), (Feature(LOG, 1e-4, mean=True),), "neighbours"),
    "cosine": Kind(lambda: ItemKNN(weights="cosine"), (Feature(LOG, 1e-4, mean=True),), "neighbours"),
    "baskets": Kind(lambda: BasketNeighbours(shrinkage=3.0), (Feature(LOG, 1e-4),), "baskets"),
    "loglinear": Kind(LogLinear, (Feature(PLAIN),), "loglinear", up_to=1000),
}
DEFAULT = ("popularity", "ridge", "neighbours", "baskets", "loglinear")
KERNEL = "kernel"  # the name of the DPP among the voices
OF_OTHERS = (Feature(LOG, 1e-6),)  # of a model of the user's: its probabilities


def features_of(name: str, voice: Any) -> tuple[Feature, ...]:
    """The features of a voice: those of its name, or of its scores, which are logits or else as good as shares."""
    if name in KINDS:
        return KINDS[name].features
    return KINDS["loglinear"].features if isinstance(voice, LogLinear) else OF_OTHERS


@dataclass
class KernelVoice:
    """The DPP: det L_{A∪j} / det L_A."""

    kernel: Kernel
    n_items: int  # that the voices know: the kernel may have others behind them, which came later

    @property
    def features(self) -> tuple[Feature, ...]:
        """The logarithm, of at least 1e-9 of what a mean item has on its own."""
        return (Feature(LOG, 1e-9 * float(self.kernel.squared_norms[: self.n_items].mean())),)

    def write_scores(self, sets: Sets, out: Array) -> None:
        """See `Voice`."""
        self._write(scoring.write_scores_given, sets, out)

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """See `Voice`."""
        self._write(scoring.write_scores_without_each, sets, out)

    def _write(self, write: Callable[[Kernel, Sets, Array], None], sets: Sets, out: Array) -> None:
        told = out if self.n_items == self.kernel.n_items else np.empty((len(out), self.kernel.n_items))
        with blas_threads(1):
            write(self.kernel, sets, told)
        if told is not out:
            out[:] = told[:, : self.n_items]


@dataclass
class OtherVoice:
    """A model of the user's with `predict_next`, whose catalogue may be another."""

    model: Any
    items: Vocabulary

    def write_scores(self, sets: Sets, out: Array) -> None:
        """See `Voice`."""
        asked = Baskets(sets.indptr, sets.indices, self.items)
        known: Any = getattr(self.model, "items_", self.items)
        if list(known) == list(self.items):
            out[:] = self.model.predict_next(asked)
            return
        mine = np.array([self.items.code(item) if item in self.items else -1 for item in known])
        told = np.asarray(self.model.predict_next(asked.recode(Vocabulary(known), unknown="ignore")))
        out[:] = 0.0
        out[:, mine[mine >= 0]] = told[:, mine >= 0]

    def write_scores_without_each(self, sets: Sets, out: Array) -> None:
        """See `Voice`."""
        self.write_scores(without_each(sets), out)


# -- What the user asks for ----------------------------------------------------------------------------------


def kinds_of(relevance: Sequence[Any], n_items: int = 0) -> dict[str, Any]:
    """The voices by name that speak in a catalogue of so many items: a row of the table, or a model of the user's."""
    if isinstance(relevance, str) or not isinstance(relevance, Iterable):
        raise ParameterError(f"relevance must be a sequence of names and models, got {relevance!r}")
    words = list(dict.fromkeys(kind.part_of for kind in KINDS.values()))
    kinds: dict[str, Any] = {}
    for voice in relevance:
        if isinstance(voice, str):
            if voice not in words:
                raise ParameterError(f"relevance knows {', '.join(map(repr, words))}, and models; got {voice!r}")
            kinds |= {name: kind for name, kind in KINDS.items() if kind.part_of == voice and n_items <= kind.up_to}
        elif hasattr(voice, "predict_next") and not isinstance(voice, type):
            name = base = type(voice).__name__
            count = 1
            while name in kinds:
                count += 1
                name = f"{base}{count}"
            kinds[name] = voice
        else:
            raise ParameterError(f"a voice needs predict_next, which {voice!r} lacks")
    return kinds


def same_kinds(relevance: Sequence[Any], voices: Mapping[str, Any], n_items: int) -> dict[str, Any]:
    """The kinds of fitted voices, to be fitted again to a catalogue of so many items, or ParameterError."""
    kinds = kinds_of(relevance)
    silent = {name for name in kinds.keys() - voices.keys() if name in KINDS and KINDS[name].up_to < np.inf}
    if kinds.keys() - silent != voices.keys():
        raise ParameterError("the voices (relevance) are not those that the model was fitted with: fit it anew")
    if n_items > DENSE_UP_TO and any(isinstance(voice, LogLinear) for voice in voices.values()):
        raise ParameterError(f"{n_items:,} items are too many for the voice LogLinear of this model: fit it anew")
    return {name: kinds[name] for name in voices}


def fit_voices(kinds: Mapping[str, Any], labour: Labour, n_jobs: int | None = None) -> dict[str, Any]:
    """The voices, fitted to the baskets of this labour; a model of the user's that is fitted already stays as it is.

    Threads are those of the model that listens, but for models of the user's.
    """
    voices: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name in KINDS:
            voices[name] = kind.make()
            voices[name].n_jobs = n_jobs
            voices[name].fit_by(labour)
        elif not isinstance(kind, Baseline) and (hasattr(kind, "items_") or not hasattr(kind, "fit")):
            voices[name] = kind
        else:
            voices[name] = deepcopy(kind).fit(labour.train)
        if isinstance(voices[name], Baseline):  # a file holds float32: no other answers after loading
            voices[name].take_learned(labour.train, voices[name].learned())
    return voices


# -- Files ---------------------------------------------------------------------------------------------------

# By name; not `Implicit`, which holds a model of another package.
_SAVED: dict[str, type[Baseline]] = {name: getattr(baselines, name) for name in baselines.__all__ if name != "Implicit"}


def voices_contents(voices: Mapping[str, Any]) -> tuple[persist.Tensors, list[dict[str, Any]]]:
    """What a model file holds of the voices: tensors, and a description that JSON can hold."""
    tensors: persist.Tensors = {}
    told = []
    for name, voice in voices.items():
        if type(voice).__name__ not in _SAVED:
            raise ModelFileError(f"the voice {name!r} ({type(voice).__name__}) cannot be written to a model file")
        params = {name: value for name, value in asdict(voice).items() if name != "n_jobs"}
        told.append({"name": name, "model": type(voice).__name__, "params": persist.plain_params(params)})
        tensors |= {f"voice.{name}.{part}": values for part, values in voice.learned().items()}
    return tensors, told


def restored_voices(
    tensors: persist.Tensors, told: Iterable[Mapping[str, Any]], asked: Iterable[str], baskets: Baskets
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The voices that a model file holds, and what a user would write to ask for them and for those that are silent."""
    voices: dict[str, Any] = {}
    labour = Labour(baskets)  # pairs are counted once for all
    for one in told:
        name, voice = str(one["name"]), _SAVED[one["model"]](**one["params"])
        voices[name] = voice.restore_by(labour, {part: tensors[f"voice.{name}.{part}"] for part in voice.LEARNED})
    words = [KINDS[name].part_of if name in KINDS else voice for name, voice in voices.items()]
    words += map(str, asked)
    return voices, tuple(word for k, word in enumerate(words) if word not in words[:k])
