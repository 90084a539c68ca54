"""`fit` and `partial_fit`, the same for every model that learns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import DEFAULT_EVERY, Keeper
from contradpp.models.learning import LearningMixin


class FitMixin(LearningMixin):
    """What the user calls to learn; `LearningMixin` does it."""

    def fit(
        self,
        baskets: Any,
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        validation: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        negative_weight: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        checkpoint_every: int | str = DEFAULT_EVERY,
        engine: str | None = None,
        **cluster: Any,
    ) -> Self:
        """Learn the kernel from baskets.

        Parameters
        ----------
        baskets : Baskets, or a list of lists of items
        y : ignored
            There for scikit-learn.
        sample_weight : array of float, optional
            A label y_A per basket, any real number (the paper's Eq. 2); 1 if left out. Only their ratios matter:
            they are scaled to a mean magnitude of 1. Below zero pushes a basket away, zero leaves it out.
        negatives : Baskets or a list of lists, optional
            The user's own negative sets: combinations that should be unlikely. They join those that the
            objective draws; with negative_ratio=0 there are no others.
        validation : Baskets, list of lists, float or None
            Sets for early stopping and calibration; a share of the baskets to set aside; None for 5 %.
        callbacks : sequence of Callback
        negative_weight : array of float, optional
            A weight per negative set.
        checkpoint : path, optional
            A file that always holds all of the training's state, so that a run that was killed can go on.
        resume : bool
            Go on from that file if it is there. The result is the same, to the last bit, as without the break.
        checkpoint_every : int or str
            The steps from one checkpoint to the next, or the time, such as "30s".
        engine : {None, "ray"}
            "ray" trains on a Ray cluster (extra `ray`); `baskets` is then the path of a Parquet file or of a folder of
            them, on any file system that fsspec knows.
        **cluster
            With engine="ray": `workers` (2), `address` of the cluster (its own, on this machine), `timeout` in seconds
            after which a silent worker counts as lost (120), `restarts` (3), and `columns` of the files. `mode`:
            "replicated" (every worker has all parameters; the result is that of one machine), "sharded" (some rows
            each, for catalogues too large for one machine; the same to rounding) or "local" (`local_steps`, 50, of
            one's own between exchanges: the least traffic, and another result).
        """
        del y
        if engine is not None:
            unused = {"sample_weight": sample_weight, "negatives": negatives, "callbacks": callbacks or None}
            return self._learn_on(
                engine, baskets, unused | {"negative_weight": negative_weight}, validation=validation,
                checkpoint=checkpoint, resume=resume, checkpoint_every=checkpoint_every, **cluster,
            )  # fmt: skip
        if cluster:
            raise TypeError(f"fit() got arguments that only an engine takes: {', '.join(cluster)}")
        keeper = Keeper.of(checkpoint, resume=resume, every=checkpoint_every)
        start = self.item_factors_ if getattr(self, "warm_start", False) and "_kernel" in self.__dict__ else None
        return self._learn(baskets, sample_weight, negatives, negative_weight, validation, callbacks, start, keeper)

    def partial_fit(
        self,
        baskets: Any = (),
        y: Any = None,
        sample_weight: Any = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        *,
        negative_weight: Any = None,
        n_iter: int = 1,
    ) -> Self:
        """Continue from the present parameters with new baskets and rejected sets.

        Items that are new enlarge the vocabulary. Every set in `negatives` loses probability relative to the
        baskets; there may be only negatives. Nothing is set aside for validation, and the scale is kept; `n_iter`
        rounds are made and the last one counts. Before `fit`, it raises `NotFittedError`.
        """
        del y
        return self._continue(baskets, sample_weight, negatives, negative_weight, callbacks, n_iter)
