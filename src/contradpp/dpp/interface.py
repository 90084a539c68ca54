"""What a kernel can be asked, whatever its form: the questions behind every method of an estimator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Array


class Block(NamedTuple):
    """The scores of a run of baskets."""

    first: int
    last: int
    scores: Array  # (last − first, number of candidates)


class Growing(Protocol):
    """A set to which items are added one by one, with the score of every further item."""

    codes: list[int]
    scores: Array

    def __len__(self) -> int:
        """How many items it has."""

    @property
    def open_to(self) -> NDArray[np.bool_]:
        """Which items are not in the set."""

    def add(self, code: int) -> None:
        """Put an item into the set; `RankError` if the set would have probability zero then."""

    def take_afresh(self) -> None:
        """Compute all scores anew, and set to zero those that are only rounding."""

    def can_join(self, code: int) -> bool:
        """Whether the set would still have positive probability with this item."""


class Sampling(Protocol):
    """A kernel prepared for sampling: made once, asked often."""

    n_jobs: int

    @property
    def rank(self) -> int:
        """The largest size that a sample can have."""

    def sample(self, n: int, *, seed: int, size: int | None = None) -> Sets:
        """n independent sets; of exactly `size` items if it is given."""


class Kernel(Protocol):
    """The kernel of a DPP over items 0..M−1; sets hold codes."""

    n_jobs: int

    @property
    def n_items(self) -> int:
        """M, the size of the catalogue."""

    @property
    def n_components(self) -> int:
        """The columns of the factors."""

    @property
    def factors(self) -> NDArray[np.floating]:
        """A row per item."""

    @property
    def squared_norms(self) -> Array:
        """The diagonal of L (M,)."""

    @property
    def rank(self) -> int:
        """The most items that a set of positive probability can have, or a bound of it."""

    @property
    def largest_set(self) -> int:
        """The most items that a set can have by the shape of the kernel."""

    @property
    def log_normalizer(self) -> float:
        """log det(I + L)."""

    @property
    def log_size_distribution(self) -> Array:
        """log P(|Y| = k) for k = 0, 1, ... ."""

    def log_det(self, sets: Sets) -> Array:
        """log det L_A for every set; −inf where it is zero."""

    def log_probability(self, sets: Sets) -> Array:
        """log P(A) for every set."""

    def next_scores(self, sets: Sets, *, candidates: NDArray[np.int64] | None = None) -> Iterator[Block]:
        """det L_{A∪j} / det L_A for every set A and candidate j (−inf for j in A), block by block."""

    def next_totals(self, sets: Sets) -> Array:
        """Σ_j det L_{A∪j} / det L_A for every set."""

    def marginals(self, given: NDArray[np.int32]) -> Array:
        """P(i ∈ Y | given ⊆ Y) for every item, 1 for the given."""

    def condition(self, given: NDArray[np.int32]) -> tuple[Self, NDArray[np.int64]]:
        """The kernel of the remaining items given that `given` is in the set, and which items remain."""

    def grow(self, given: ArrayLike = ()) -> Growing:
        """A set to which items are added one by one."""

    def sampler(self) -> Sampling:
        """The kernel prepared for sampling."""

    def likeness(self, code: int) -> Array:
        """How alike every item is to this one, 0 to 1; 1 are never together (M,)."""
