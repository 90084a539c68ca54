"""Models that a practitioner would try first, to compare with a DPP."""

from contradpp.experts.basket_knn import BasketKNN
from contradpp.experts.customers import TIFUKNN, UPCF, PersonalFrequency
from contradpp.experts.ease import EASE
from contradpp.experts.implicit import Implicit
from contradpp.experts.item_knn import ItemKNN
from contradpp.experts.loglinear import LogLinear
from contradpp.experts.popularity import Popularity
from contradpp.experts.ridge import RidgeNeighbors

__all__ = [
    "EASE",
    "TIFUKNN",
    "UPCF",
    "BasketKNN",
    "Implicit",
    "ItemKNN",
    "LogLinear",
    "PersonalFrequency",
    "Popularity",
    "RidgeNeighbors",
]
