"""contradpp: determinantal point processes learned from baskets with negative samples."""

from __future__ import annotations

import sys

from contradpp import errors
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.readers import read_baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.learn import callbacks, objectives
from contradpp.metrics.choices import evaluate_choices
from contradpp.metrics.compare import compare
from contradpp.metrics.report import evaluate
from contradpp.metrics.slates import evaluate_slates
from contradpp.models import baselines
from contradpp.models.base import load
from contradpp.models.conditional import ConditionalDPP
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP
from contradpp.slates.rerank import rerank

__version__ = "0.1.0"

# Modules of lower layers under the names by which users know them: `from contradpp.baselines import ItemKNN`.
sys.modules |= {f"{__name__}.{module.__name__.rpartition('.')[2]}": module
                for module in (baselines, callbacks, datasets, objectives)}  # fmt: skip

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
