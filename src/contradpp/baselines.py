"""Models that a practitioner would try first, to compare with a DPP."""

from contradpp.experts.baselines import EASE, BasketNeighbours, Implicit, ItemKNN, Popularity, RidgeNeighbours
from contradpp.experts.loglinear import LogLinear

__all__ = ["EASE", "BasketNeighbours", "Implicit", "ItemKNN", "LogLinear", "Popularity", "RidgeNeighbours"]
