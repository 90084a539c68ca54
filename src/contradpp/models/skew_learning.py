"""From baskets to a kernel whose items also attract: what `NonsymmetricDPP` adds to learning."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.sets import take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.nonsymmetric import NonsymmetricKernel
from contradpp.errors import ParameterError
from contradpp.learn.calibrate import best_scale
from contradpp.learn.partners import Partners, co_occurrences, find_partners
from contradpp.learn.settings import Settings, Watched, number, one_of, whole
from contradpp.learn.skew import SkewState
from contradpp.learn.skew_settings import OBJECTIVES, SkewSettings
from contradpp.learn.start import popularity
from contradpp.learn.state import State
from contradpp.learn.trainer import TrainingData
from contradpp.models.fitting import FitMixin

Array = NDArray[np.float64]
_PARTNERS = 5  # key of a random stream, after those of `learning.py`
MOST_TO_FACTORISE = 4000  # items whose determinant, a dense factorisation, sets the scale


class SkewLearningMixin(FitMixin):
    """Learns L = V Vᵀ + S by the conditional likelihood; the loop is that of every model."""

    n_skew: int
    objective: str
    negative_ratio: float
    alpha: float
    dropout: float
    batch_size: int
    max_iter: int
    tol: float
    learning_rate: float | None
    removal: str

    def _settings(self) -> Settings:
        whole("n_skew", self.n_skew)
        one_of("calibrate", self.calibrate, (None, "likelihood"))  # type: ignore[arg-type]
        one_of("objective", self.objective, OBJECTIVES)
        number("dropout", self.dropout, low=0.0)
        if self.dropout >= 1:
            raise ParameterError(f"dropout must be below 1, got {self.dropout!r}")
        return SkewSettings(
            objective=self.objective, contrast=1.0, negative_ratio=self.negative_ratio, alpha=self.alpha,
            optimizer="adam",
            batch_size=self.batch_size, max_iter=self.max_iter, tol=self.tol, learning_rate=self.learning_rate,
            refresh=1, false_negatives="keep", frequency_power=1.0, removal=self.removal, monitor="conditional",
            radius=10.0, paper=False, dropout=self.dropout,
        )  # fmt: skip

    def _init(self) -> str:
        return self.init

    def _state(self, V: Array, data: TrainingData, counts: Array, n_baskets: float, seed: int) -> State:
        """The pattern of S comes from the liked baskets, or is the present one where training goes on."""
        liked = np.flatnonzero(data.weights > 0)
        sets, weights = take_sets(data.positives, liked), data.weights[liked]
        together = co_occurrences(sets, weights, len(counts))
        return self._state_of(V, together, float(weights.sum()), counts, n_baskets, seed)

    def _state_of(
        self, V: Array, together: Any, n_sets: float, counts: Array, n_baskets: float, seed: int
    ) -> SkewState:
        """The first state, from how often items are together."""
        share = popularity(counts, n_baskets)
        key = root_seed(stream(seed, _PARTNERS))
        partners = find_partners(together, n_sets, share / (1 - share), self.n_skew, key)
        return SkewState(V, partners, n_jobs=resolve_n_jobs(self.n_jobs))

    def _state_again(self, V: Array) -> State:
        """The present pattern and values; new items have no partners."""
        kernel = self._kernel
        if not kernel.plain:
            raise ParameterError("a kernel with a gain, as from condition(), cannot be trained on")
        partners = Partners.of_matrix(kernel.skew.matrix(), len(V))
        return SkewState(V, partners, n_jobs=resolve_n_jobs(self.n_jobs))

    def _take(self, factors: Array, state: State, pairs: Array, items: Vocabulary) -> None:
        """Make learned parameters the model's kernel."""
        partners = cast(SkewState, state).partners
        kernel = NonsymmetricKernel(factors, skew=partners.matrix(pairs), n_jobs=resolve_n_jobs(self.n_jobs))
        self._adopt_kernel(kernel, items)

    def _calibrate(self, watched: Watched, seed: int) -> None:  # noqa: ARG002
        """Set the scale of L to where the sets are most likely."""
        sets, weights = watched
        if self.calibrate is None or not (weights > 0).any():
            return
        kernel = self._kernel
        norms = kernel.squared_norms
        heaviest = np.sort(np.argsort(-norms, kind="stable")[:MOST_TO_FACTORISE])
        rest = np.delete(norms, heaviest)
        part = NonsymmetricKernel(kernel.factors[heaviest], skew=kernel.skew.take(heaviest))

        def log_normalizer(c: float) -> float:
            """log det(I + cL); beyond the heaviest items as if each were bought on its own."""
            return part.scaled(c).log_normalizer + float(np.log1p(c * rest).sum())

        mean = float(np.average(sets.sizes, weights=weights))
        self._adopt_kernel(kernel.scaled(best_scale(log_normalizer, mean)), self.items_)
