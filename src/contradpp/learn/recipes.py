"""What each objective is made of, by its word: the one table of objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets
from contradpp.learn.negatives import Dynamic, Explicit, NegativeSource, Product
from contradpp.learn.objectives import (
    ChoiceLikelihood,
    ConditionalLikelihood,
    Contrastive,
    NoiseContrastive,
    Objective,
)

if TYPE_CHECKING:
    from contradpp.learn.params import Params

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """What an objective is made of.

    Parameters
    ----------
    objective : callable
        From parameters, popularity and the removal's weights to an `Objective`.
    source : callable, optional
        From parameters, popularity, the removal's weights and the liked baskets to a `NegativeSource`.
    needs_items : bool
        Whether an empty basket says nothing to it.
    by_likelihood : bool
        Whether the validation score is log P(A) rather than log P(i | A∖i).
    removes : bool
        Whether it leaves out items as `removal` says, so that the validation score does so, too.
    by_choice : bool
        Whether it learns from what was offered, and has the likelihood of choices for its validation score and scale.
    thins : bool
        Whether items may be dropped from its baskets: it must not care about their sizes.
    closed : callable, optional
        As `objective`, the same aim without chance: negatives drawn from the model have a closed form.
    """

    objective: Callable[[Params, Array, Array], Objective]
    source: Callable[[Params, Array, Array, Sets], NegativeSource] | None = None
    needs_items: bool = False
    by_likelihood: bool = False
    removes: bool = False
    by_choice: bool = False
    thins: bool = False
    closed: Callable[[Params, Array, Array], Objective] | None = None

    @property
    def takes_two_kernels(self) -> bool:
        """Whether it learns from sets, and its validation score is about next items: both have a kernel to compile."""
        return self.source is not None and not self.by_likelihood


def _contrastive(params: Params, share: Array, removal: Array) -> Objective:  # noqa: ARG001
    return Contrastive(params.contrast_value)


def _conditional(params: Params, share: Array, removal: Array) -> Objective:  # noqa: ARG001
    return ConditionalLikelihood(removal, params.contrast_value)


def _choice(params: Params, share: Array, removal: Array) -> Objective:  # noqa: ARG001
    return ChoiceLikelihood()


def _noise(params: Params, share: Array, removal: Array) -> Objective:  # noqa: ARG001
    noise = Product.from_popularity(share, params.frequency_power)
    return NoiseContrastive(noise.log_odds(), noise.log_empty())


def _dynamic(params: Params, share: Array, removal: Array, liked: Sets) -> NegativeSource:  # noqa: ARG001
    return Dynamic(removal)


def _explicit(params: Params, share: Array, removal: Array, liked: Sets) -> NegativeSource:  # noqa: ARG001
    return Explicit(share, liked)


def _product(params: Params, share: Array, removal: Array, liked: Sets) -> NegativeSource:  # noqa: ARG001
    return Product.from_popularity(share, params.frequency_power)


# A new objective: a class in `objectives.py` and a row here.
RECIPES = {
    "mle": Recipe(_contrastive, by_likelihood=True, closed=_contrastive),
    "dynamic": Recipe(_contrastive, _dynamic, needs_items=True, removes=True, closed=_conditional),
    "explicit": Recipe(_contrastive, _explicit, needs_items=True),
    "product": Recipe(_contrastive, _product),
    "nce": Recipe(_noise, _product, by_likelihood=True),
    "exact": Recipe(_conditional, needs_items=True, removes=True, thins=True, closed=_conditional),
    "choice": Recipe(_choice, by_choice=True, closed=_choice),
}


def recipe_of(objective: Any) -> Recipe:
    """The recipe of a word, or of an object with `gradient(state, batch)` of the user's own."""
    if isinstance(objective, str):
        return RECIPES[objective]
    return Recipe(lambda params, share, removal: objective, needs_items=True)  # noqa: ARG005
