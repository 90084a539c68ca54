"""contradpp: determinantal point processes learned from baskets with negative samples."""

from __future__ import annotations

import importlib
import sys
import typing

from contradpp import errors
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.readers import read_baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.learn import callbacks, negatives, objectives, optimizers
from contradpp.learn.checkpoints import Checkpointing

if typing.TYPE_CHECKING:
    from contradpp import baselines
    from contradpp.distributed import RayEngine
    from contradpp.learn.likelihood import log_likelihood_and_gradient
    from contradpp.metrics.choices import evaluate_choices
    from contradpp.metrics.compare import compare
    from contradpp.metrics.report import evaluate
    from contradpp.metrics.slates import evaluate_slates
    from contradpp.metrics.tuning import scorer
    from contradpp.models.base import load
    from contradpp.models.conditional import ConditionalDPP
    from contradpp.models.dpp import DPP
    from contradpp.models.lowrank import LowRankDPP
    from contradpp.models.mixture import MixtureDPP
    from contradpp.models.nonsymmetric import NonsymmetricDPP
    from contradpp.slates.greedy import SlidingWindow
    from contradpp.slates.plot import plot_slate
    from contradpp.slates.rerank import rerank
    from contradpp.slates.rules import SlateRules

__version__ = "0.1.0"

# Names that are imported when they are first used: all models are scikit-learn estimators, and
# `import sklearn` takes longer than all the rest.
_LATE = {
    "ConditionalDPP": "contradpp.models.conditional",
    "DPP": "contradpp.models.dpp",
    "LowRankDPP": "contradpp.models.lowrank",
    "MixtureDPP": "contradpp.models.mixture",
    "NonsymmetricDPP": "contradpp.models.nonsymmetric",
    "RayEngine": "contradpp.distributed",
    "SlateRules": "contradpp.slates.rules",
    "SlidingWindow": "contradpp.slates.greedy",
    "compare": "contradpp.metrics.compare",
    "evaluate": "contradpp.metrics.report",
    "evaluate_choices": "contradpp.metrics.choices",
    "evaluate_slates": "contradpp.metrics.slates",
    "load": "contradpp.models.base",
    "log_likelihood_and_gradient": "contradpp.learn.likelihood",
    "plot_slate": "contradpp.slates.plot",
    "rerank": "contradpp.slates.rerank",
    "scorer": "contradpp.metrics.tuning",
}

# Modules of lower layers under their public names: `from contradpp.callbacks import Callback`.
for _module in (callbacks, datasets, negatives, objectives, optimizers):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__all__ = [
    "DPP",
    "Baskets",
    "Checkpointing",
    "ConditionalDPP",
    "LowRankDPP",
    "MixtureDPP",
    "NonsymmetricDPP",
    "RayEngine",
    "SlateRules",
    "SlidingWindow",
    "Vocabulary",
    "__version__",
    "baselines",
    "callbacks",
    "compare",
    "datasets",
    "errors",
    "evaluate",
    "evaluate_choices",
    "evaluate_slates",
    "load",
    "log_likelihood_and_gradient",
    "negatives",
    "objectives",
    "optimizers",
    "plot_slate",
    "read_baskets",
    "rerank",
    "scorer",
]


def __getattr__(name: str) -> typing.Any:
    """Import what is used for the first time (PEP 562)."""
    if name == "baselines":
        return importlib.import_module("contradpp.baselines")
    if name not in _LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    value = globals()[name] = getattr(importlib.import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
