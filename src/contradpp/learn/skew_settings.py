"""The knobs of learning a kernel that also attracts, and the plan that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from contradpp.learn.objectives import Objective
from contradpp.learn.optimizers import Optimizer
from contradpp.learn.settings import DENSE_ITEMS, Array, Settings, Watched
from contradpp.learn.skew import PAIR_STEP, SkewAdam, SkewConditionalLikelihood
from contradpp.learn.skew_contrast import SkewContrastive, SkewDynamic
from contradpp.learn.start import popularity
from contradpp.learn.state import State
from contradpp.learn.trainer import Plan, TrainingData

OBJECTIVES = ("exact", "dynamic", "mle")


@dataclass(frozen=True)
class SkewSettings(Settings):
    """The knobs of learning with pairs; `NonsymmetricDPP` documents them."""

    dropout: float = 0.0

    def build_plan(
        self,
        state: State,
        data: TrainingData,
        watched: Watched,
        counts: Array,
        n_baskets: float,
        seed: int,
        optimizer: Optimizer | None = None,
    ) -> Plan:
        """As for factors alone, with the objective and the optimiser that know of pairs."""
        removal = self._removal(popularity(counts, n_baskets))
        rate = PAIR_STEP if self.learning_rate is None else self.learning_rate
        optimizer = optimizer or SkewAdam(
            self.alpha / np.maximum(counts, 1), state.V.shape[1], dense=len(counts) <= DENSE_ITEMS,
            n_pairs=len(state.pairs), pair_step=rate, norm_step=rate / 10, direction_step=2 * rate,
        )  # fmt: skip
        plan = super().build_plan(state, data, watched, counts, n_baskets, seed, optimizer)
        objective: Objective = SkewContrastive(self.contrast_value)
        if self.objective == "exact":
            objective = SkewConditionalLikelihood(removal, self.contrast_value, self.dropout, seed)
        source = SkewDynamic(removal) if self.objective == "dynamic" else None
        return replace(plan, objective=objective, source=source)
