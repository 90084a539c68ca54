"""The low-rank DPP of the paper: L = V Vᵀ, learned by any of its objectives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

from contradpp._random import RandomState
from contradpp.estimators.base import BaseDPP
from contradpp.estimators.learning import LearningMixin
from contradpp.learn.callbacks import Callback
from contradpp.learn.checkpoint import DEFAULT_EVERY, Keeper


class LowRankDPP(LearningMixin, BaseDPP):
    """A determinantal point process with the kernel L = V Vᵀ.

    Parameters
    ----------
    n_components : int
        K, the columns of V; no set larger than K has positive probability.
    objective : {"dynamic", "mle", "explicit", "product", "nce", "exact"}
        What is maximised. "mle": likelihood (LowRank in the paper). Contrastive estimation with negatives that
        are "dynamic" (drawn from the current model), "explicit" (unlikely pairs, and the user's own `negatives`)
        or "product" (items by frequency). "nce": noise-contrastive estimation. "exact": dynamic contrastive
        estimation in closed form, without sampling.
    contrast : float or "counted"
        The weight of the negatives. 1 is the paper's φ_CE; "counted" weighs every set alike, |A⁻|/|A⁺|, as in
        the paper's appendix; 0 is maximum likelihood.
    negative_ratio : float
        |A⁻|/|A⁺|, how many negatives are drawn per positive; may exceed 1.
    alpha : float
        Strength of the popularity penalty α Σ ‖v_i‖²/μ_i.
    optimizer : {"adam", "nesterov", "robbins-monro"}
        Row-wise lazy Adam; the paper's momentum; projected steps that satisfy the paper's Theorem 1.
    init : {"popularity", "uniform"}
        Where training starts; "uniform" is the paper's U(1, 2).
    calibrate : {"likelihood", "discrimination", None}
        How the kernel's scale is set after training, on validation data.
    oversize : {"error", "drop", "clip"}
        What to do with baskets larger than n_components: refuse, leave them out, or keep their first items.
    settings : {None, "paper"}
        "paper" sets start, batch, optimiser and stopping rule to those of LowRankDPP.jl, whatever else is given.
    batch_size, max_iter, tol : int, int, float
        Positives a step; the most rounds over the data; the relative rise of the validation score that counts.
    learning_rate : float, optional
        Step size, instead of the optimiser's own. For "adam" it is that of directions (radians); that of log-norms is
        a twentieth of it.
    refresh : int
        Negatives are drawn anew every so many steps.
    false_negatives : {"keep", "reject"}
        Whether a negative may be a training basket.
    frequency_power : float
        Exponent of the item frequencies in "product" and "nce" (Mikolov's ¾).
    removal : {"popularity", "uniform"}
        How "dynamic" and "exact" choose the item that is left out.
    monitor : {"auto", "likelihood", "conditional"}
        The validation score: mean log P(A), or mean log P(i | A∖i). "auto": the first for "mle" and "nce".
    radius : float
        Longest row that "robbins-monro" allows.
    warm_start : bool
        Let `fit` start from the present parameters, if there are any.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.
    random_state : int, Generator or None
    verbose : int
        1 shows a progress bar when standard error is a terminal.

    Attributes
    ----------
    item_factors_ : ndarray (M, K)
    items_ : Vocabulary
    history_ : list of dict
        An entry per round: objective, validation score, seconds, sets per second.
    n_iter_ : int

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"]] * 500)
    >>> model = cd.LowRankDPP(n_components=2, random_state=0).fit(shop)
    >>> items, probabilities = model.recommend(["tea"], N=2)
    >>> items[0].item(), bool(probabilities[0] > 0.7)
    ('milk', True)
    """

    def __init__(
        self,
        n_components: int = 30,
        *,
        objective: str = "dynamic",
        contrast: float | str = 1.0,
        negative_ratio: float = 0.5,
        alpha: float = 1.0,
        optimizer: str = "adam",
        init: str = "popularity",
        calibrate: str | None = "likelihood",
        oversize: str = "error",
        settings: str | None = None,
        batch_size: int = 1000,
        max_iter: int = 100,
        tol: float = 1e-4,
        learning_rate: float | None = None,
        refresh: int = 1,
        false_negatives: str = "keep",
        frequency_power: float = 1.0,
        removal: str = "popularity",
        monitor: str = "auto",
        radius: float = 10.0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.contrast = contrast
        self.negative_ratio = negative_ratio
        self.alpha = alpha
        self.optimizer = optimizer
        self.init = init
        self.calibrate = calibrate
        self.oversize = oversize
        self.settings = settings
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.refresh = refresh
        self.false_negatives = false_negatives
        self.frequency_power = frequency_power
        self.removal = removal
        self.monitor = monitor
        self.radius = radius
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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
            them, on any file system that fsspec knows. The result is the same as on one machine.
        **cluster
            With engine="ray": `workers` (2), `address` of the cluster (its own, on this machine), `timeout` in seconds
            after which a silent worker counts as lost (120), `restarts` (3), and `columns` of the files.
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
        start = self.item_factors_ if self.warm_start and "_kernel" in self.__dict__ else None
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
