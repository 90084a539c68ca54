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
from contradpp.learn import callbacks, objectives

if typing.TYPE_CHECKING:
    from contradpp import baselines
    from contradpp.metrics.choices import evaluate_choices
    from contradpp.metrics.compare import compare
    from contradpp.metrics.report import evaluate
    from contradpp.metrics.slates import evaluate_slates
    from contradpp.models.base import load
    from contradpp.models.conditional import ConditionalDPP
    from contradpp.models.lowrank import LowRankDPP
    from contradpp.models.nonsymmetric import NonsymmetricDPP
    from contradpp.slates.rerank import rerank

__version__ = "0.1.0"

# Names that are imported when they are first used: all models are scikit-learn estimators, and `import sklearn` takes
# longer than all the rest.
_LATE = {
    "ConditionalDPP": "contradpp.models.conditional",
    "LowRankDPP": "contradpp.models.lowrank",
    "NonsymmetricDPP": "contradpp.models.nonsymmetric",
    "compare": "contradpp.metrics.compare",
    "evaluate": "contradpp.metrics.report",
    "evaluate_choices": "contradpp.metrics.choices",
    "evaluate_slates": "contradpp.metrics.slates",
    "load": "contradpp.models.base",
    "rerank": "contradpp.slates.rerank",
}

# Modules of lower layers under the names by which users know them: `from contradpp.callbacks import Callback`.
for _module in (callbacks, datasets, objectives):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__all__ = [
    "Baskets",
    "ConditionalDPP",
    "LowRankDPP",
    "NonsymmetricDPP",
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
    "objectives",
    "read_baskets",
    "rerank",
]


def __getattr__(name: str) -> typing.Any:
    """Import what is used for the first time (PEP 562)."""
    if name == "baselines":
        return importlib.import_module("contradpp.baselines")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
