"""contradpp: determinantal point processes learned from baskets with negative samples."""

from __future__ import annotations

from contradpp import errors
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.readers import read_baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.estimators.base import load
from contradpp.estimators.lowrank import LowRankDPP
from contradpp.estimators.nonsymmetric import NonsymmetricDPP
from contradpp.evaluate import baselines
from contradpp.evaluate.report import evaluate  # the function takes the place of the subpackage of that name

__version__ = "0.1.0"

__all__ = [
    "Baskets",
    "LowRankDPP",
    "NonsymmetricDPP",
    "Vocabulary",
    "__version__",
    "baselines",
    "datasets",
    "errors",
    "evaluate",
    "load",
    "read_baskets",
]
