"""`fit` on a worker: the same steps as on one machine, over baskets of which it has only a part.

Everything but the baskets is the same on all workers: vocabulary, start, plan and, step after step, the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.errors import ClusterError, DataError, ParameterError, RankError
from contradpp.estimators import learning
from contradpp.estimators.lowrank import LowRankDPP
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import Keeper
from contradpp.learn.negatives import EMPTY
from contradpp.learn.settings import Settings, Watched
from contradpp.learn.start import start_factors
from contradpp.learn.trainer import TrainingData
from contradpp.model.kernel import Sets
from contradpp.scale.collective import gather
from contradpp.scale.shards import Shard, ShardedData
from contradpp.scale.shared import SharedState


def refuse_unsupported(model: LowRankDPP) -> None:
    """Say what cannot be learned from shards."""
    if type(model) is not LowRankDPP:
        raise ParameterError(f"engine='ray' learns LowRankDPP, not {type(model).__name__}")
    if model.objective == "explicit" or model.false_negatives == "reject":
        raise ParameterError(
            "engine='ray' cannot compare negatives with all training baskets: objective='explicit' and "
            "false_negatives='reject' need one machine"
        )
    if model.warm_start:
        raise ParameterError("engine='ray' starts anew: warm_start must be False")


def learn(model: LowRankDPP, shard: Shard, *, validation: float | None, keeper: Keeper | None) -> None:
    """Fit the model, together with all workers of the shard's collective."""
    settings = model._settings()
    seed = root_seed(model.random_state)
    if keeper is not None and model.random_state is None:
        raise ParameterError("a run on several workers needs random_state")
    shard, usable = usable_baskets(model, shard, settings)
    watched, training = set_aside(validation, shard, usable, settings, seed)
    used = np.zeros(len(shard.sizes), dtype=bool)
    used[training] = True
    counts, n_baskets = shard.item_counts(used), float(len(training))
    V = start_factors(model._init(), counts, n_baskets, model.n_components, stream(seed, learning._START))
    stand_in = Sets(np.zeros(min(len(training), settings.batch_size) + 1, dtype=np.int64), EMPTY.indices)
    nothing = np.empty(0)
    data = ShardedData(stand_in, np.ones(stand_in.count), EMPTY, nothing, shard, training)
    if not watched.sets.count:
        everything = TrainingData(shard.take(training), np.ones(len(training)), EMPTY, nothing)
        watched = learning.what_to_watch(everything)
    state = SharedState(V, n_jobs=resolve_n_jobs(model.n_jobs), collective=shard.collective)
    trained = root_seed(stream(seed, learning._TRAIN))
    plan = settings.build_plan(state, data, watched, counts, n_baskets, trained)
    if keeper is not None:
        given = {name: getattr(model, name) for name in ("n_components", "init", "calibrate", "oversize")}
        keeper.identify(seed, asdict(settings) | given | {"max_iter": None}, (V, counts, shard.sizes, *watched.sets))
    watchers: Sequence[Callback] = [SameEverywhere(state)]
    model._run(state, data, plan, shard.items, counts, n_baskets, watchers, keeper)
    model._calibrate(watched, seed)


class SameEverywhere(Callback):
    """After each round, makes sure that all workers have the same factors: machines may differ in their rounding."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_iteration(self, record: dict[str, Any], best: NDArray[np.float64]) -> None:  # noqa: ARG002
        """See `Callback`."""
        from contradpp.learn.checkpoint import fingerprint

        digests = set(map(bytes, gather(self._state.collective, fingerprint([self._state.V]).encode())))
        if len(digests) > 1:
            raise ClusterError(
                "the workers' factors are no longer the same: their processors or libraries round differently. "
                "Use workers of one kind"
            )


def usable_baskets(model: LowRankDPP, shard: Shard, settings: Settings) -> tuple[Shard, NDArray[np.int64]]:
    """The shard, cut if `oversize` asks for it, and the numbers of the baskets that can be learned from."""
    K, sizes = model.n_components, shard.sizes
    if not len(sizes):
        raise DataError("there is no basket in any of the files")
    too_large = sizes > K
    if too_large.any() and model.oversize == "error":
        raise RankError(
            f"{int(too_large.sum()):,} of {len(sizes):,} baskets have more than n_components={K} items "
            f"(the largest has {int(sizes.max())}): set n_components={int(sizes.max())}, or oversize='drop' or 'clip'"
        )
    if too_large.any() and model.oversize == "clip":
        shard, sizes = shard.clipped(K), np.minimum(sizes, K)
    usable = sizes <= K
    if settings.needs_items:
        usable &= sizes > 0
    if not usable.any():
        raise DataError("there is no basket to learn from")
    return shard, np.flatnonzero(usable)


def set_aside(
    validation: float | None, shard: Shard, usable: NDArray[np.int64], settings: Settings, seed: int
) -> tuple[Watched, NDArray[np.int64]]:
    """The validation sets, the same that one machine would choose, and the numbers of the others."""
    n = len(usable)
    if validation is None and n < learning.FEWEST_TO_SPLIT:
        return Watched(EMPTY, np.empty(0)), usable
    share = validation
    if share is None:
        share = min(0.01 if settings.paper else learning.VALIDATION_SHARE, learning.MOST_VALIDATION / n)
    if not 0 < share < 1:
        raise ParameterError(f"validation must be a share between 0 and 1 with engine='ray', got {validation!r}")
    count = min(max(round(share * n), 1), max(n - 1, 0))
    aside = np.sort(stream(seed, learning._SPLIT).permutation(np.arange(n))[:count])
    return Watched(shard.take(usable[aside]), np.ones(count)), np.delete(usable, aside)
