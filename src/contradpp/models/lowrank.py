"""The low-rank DPP of the paper: L = V Vᵀ, learned by any of its objectives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from contradpp._random import RandomState
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.learn.negatives import NegativeSettings, NegativeSource
from contradpp.learn.objectives import Objective
from contradpp.learn.optimizers import OptimizerSettings
from contradpp.models.learned import LearnedDPP


class LowRankDPP(LearnedDPP):
    """A determinantal point process with the kernel L = V Vᵀ.

    Parameters
    ----------
    n_components : int
        K, the columns of V; no set larger than K has positive probability.
    objective : {"dynamic", "mle", "explicit", "product", "nce", "exact", "choice"}
        The function that is maximized. "mle": likelihood (LowRank in the paper). Contrastive
        estimation has negatives that are "dynamic" (drawn from the current model), "explicit"
        (rare pairs, refused items where baskets know what was `offered`, and the user's own) or
        "product" (items by frequency). "nce": noise-contrastive estimation. "exact": dynamic
        contrastive estimation in closed form, without sampling. "choice": the likelihood of what
        was taken of what was offered.
    negatives : DynamicNegatives, ExplicitNegatives, ProductNegatives, their words, or None
        How negatives are drawn; None for the negatives of the objective with their defaults. An
        object with a method `draw` is a source of your own: see `negatives.NegativeSource`.
    contrast : float or "counted"
        The weight of the negatives. 1 is the paper's φ_CE; "counted" weighs every set alike,
        |A⁻|/|A⁺|, as in the paper's appendix; 0 is maximum likelihood.
    optimizer : {"adam", "nesterov", "robbins-monro"}, or Adam, Nesterov, RobbinsMonro
        Row-wise lazy Adam; the paper's momentum; projected steps (the paper's Theorem 1). The
        objects of `contradpp.optimizers` hold the step size and the batch size.
    alpha : float
        Strength of the popularity penalty α Σ ‖v_i‖²/μ_i; for "choice" μ_i is the number of
        baskets. It is subtracted from a mean over the baskets of a batch. With Nesterov, and so
        with settings="paper", it is subtracted from their sum, as in LowRankDPP.jl: an alpha there
        is as strong as alpha / batch_size elsewhere.
    init : {"popularity", "uniform"}
        Start of training; "uniform" is the paper's U(1, 2).
    calibrate : {"likelihood", "discrimination", "choices", None}
        Rule that sets the kernel's scale after training, on validation data; "choice" learns it.
    oversize : {"error", "drop", "clip"}
        Baskets larger than n_components: refuse, leave out, or keep their first items.
    anneal : bool
        Learn first with a diagonal that is lowered to zero in stages, where many baskets have
        n_components items. On the way to the optimum det V_A may have to change its sign there,
        which log det forbids.
    settings : {None, "paper"}
        "paper" sets start, batch, optimizer and stopping rule to those of LowRankDPP.jl, whatever
        else is given. Contrastive objectives make 800 steps of fixed size instead of 50 before the
        rule counts. Of the steps that the rule sees, the best by validation is returned.
    max_iter, tol : int, float
        The most rounds over the data; the relative rise of the validation score that counts.
    monitor : {"auto", "likelihood", "conditional"}
        The validation score: mean log P(A), or mean log P(i | A∖i). "auto": the first for "mle"
        and "nce".
    dtype : {"float64", "float32"}
        Type of V, while it is learned and in the model: float32 takes half of the memory. Training,
        log P, normalizer and samples are computed in float64. Next items, marginals and `condition`
        multiply in float32. Their relative errors are some 10⁻⁶, and up to 10⁻² of a score that is
        a small share of L_jj; below 10⁻⁴ of it, scores are computed anew in float64.
    warm_start : bool
        Let `fit` start from the present parameters, if there are any.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it. Unless it is 1, the first `fit`
        on a machine with drawn negatives starts a process that compiles kernels needed later
        (CONTRADPP_COMPILE_AHEAD=0 in the environment forbids it).
    random_state : int, Generator or None
    verbose : int
        0 to show no progress. See `callbacks.ProgressBar`.

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
    >>> baskets = [["tea", "milk"], ["coffee", "milk"], ["coffee", "sugar"]] * 500
    >>> shop = cd.Baskets.from_lists(baskets)
    >>> model = cd.LowRankDPP(n_components=2, random_state=0).fit(shop)
    >>> items, probabilities = model.recommend(["tea"], N=2)
    >>> items[0].item(), bool(probabilities[0] > 0.7)
    ('milk', True)
    """

    def __init__(
        self,
        n_components: int = 30,
        *,
        objective: str | Objective = "dynamic",
        negatives: NegativeSettings | NegativeSource | str | None = None,
        contrast: float | str = 1.0,
        optimizer: OptimizerSettings | str = "adam",
        alpha: float = 1.0,
        init: str = "popularity",
        calibrate: str | None = "likelihood",
        oversize: str = "error",
        anneal: bool = True,
        settings: str | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
        monitor: str = "auto",
        dtype: str = "float64",
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 1,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.negatives = negatives
        self.contrast = contrast
        self.optimizer = optimizer
        self.alpha = alpha
        self.init = init
        self.calibrate = calibrate
        self.oversize = oversize
        self.anneal = anneal
        self.settings = settings
        self.max_iter = max_iter
        self.tol = tol
        self.monitor = monitor
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _set_kernel(self, kernel: Kernel, items: Iterable[Any] | None) -> None:
        if not kernel.symmetric:
            raise ParameterError(
                "L is not symmetric: NonsymmetricDPP takes such a kernel, LowRankDPP does not"
            )
        super()._set_kernel(kernel, items)
