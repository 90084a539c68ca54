"""The low-rank DPP of the paper: L = V Vᵀ, learned by any of its objectives."""

from __future__ import annotations

from contradpp._random import RandomState
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.models.learned import LearnedDPP


class LowRankDPP(LearnedDPP):
    """A determinantal point process with the kernel L = V Vᵀ.

    Parameters
    ----------
    n_components : int
        K, the columns of V; no set larger than K has positive probability.
    objective : {"dynamic", "mle", "explicit", "product", "nce", "exact", "choice"}
        What is maximised. "mle": likelihood (LowRank in the paper). Contrastive estimation with negatives that
        are "dynamic" (drawn from the current model), "explicit" (unlikely pairs, what was refused where baskets know
        what was `offered`, and the user's own `negatives`) or "product" (items by frequency). "nce":
        noise-contrastive estimation. "exact": dynamic contrastive estimation in closed form, without sampling.
        "choice": the likelihood of what was taken of what was offered.
    contrast : float or "counted"
        The weight of the negatives. 1 is the paper's φ_CE; "counted" weighs every set alike, |A⁻|/|A⁺|, as in
        the paper's appendix; 0 is maximum likelihood.
    negative_ratio : float
        |A⁻|/|A⁺|, how many negatives are drawn per positive; may exceed 1.
    alpha : float
        Strength of the popularity penalty α Σ ‖v_i‖²/μ_i; of "choice" the number of baskets is in the place of μ_i.
        It is subtracted from a mean over the baskets of a batch; with "nesterov", and so with settings="paper", from
        their sum, as in LowRankDPP.jl. There an alpha is as strong as alpha / batch_size elsewhere: a thousandth.
    optimizer : {"adam", "nesterov", "robbins-monro"}
        Row-wise lazy Adam; the paper's momentum; projected steps that satisfy the paper's Theorem 1.
    init : {"popularity", "uniform"}
        Where training starts; "uniform" is the paper's U(1, 2).
    calibrate : {"likelihood", "discrimination", "choices", None}
        How the kernel's scale is set after training, on validation data; "choice" learns its own.
    oversize : {"error", "drop", "clip"}
        What to do with baskets larger than n_components: refuse, leave them out, or keep their first items.
    anneal : bool
        Where many baskets have n_components items, learn first with a diagonal that is lowered to zero in stages: on
        the way to the optimum det V_A may have to change its sign, which log det forbids.
    settings : {None, "paper"}
        "paper" sets start, batch, optimiser and stopping rule to those of LowRankDPP.jl, whatever else is given; see
        `alpha` for the penalty. Contrastive objectives make 800 steps of fixed size instead of 50 before the rule
        counts. Of the steps that the rule looks at, the V of the best validation score is kept, not the last one.
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
    dtype : {"float64", "float32"}
        How V is kept, while it is learned and in the model: float32 takes half of the memory. Training, log P of sets,
        normaliser and samples are computed in float64. Next items, marginals and `condition` multiply in float32, for
        speed: relative errors are some 10⁻⁶, and up to 10⁻² of a score that is a small share of L_jj; below 10⁻⁴ of
        it, scores are computed anew in float64. float32 matters in catalogues of a hundred thousand items and more.
    warm_start : bool
        Let `fit` start from the present parameters, if there are any.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it. Unless it is 1, the first `fit` on a machine with
        "dynamic", "explicit" or "product" starts another process, which compiles what is needed later
        (CONTRADPP_COMPILE_AHEAD=0 in the environment forbids it).
    random_state : int, Generator or None
    verbose : int
        1 shows the progress, on a terminal and in a notebook.

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
        anneal: bool = True,
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
        dtype: str = "float64",
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
        self.anneal = anneal
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
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _adopt(self, kernel: Kernel, items: Vocabulary) -> None:
        if not kernel.symmetric:
            raise ParameterError("L is not symmetric: NonsymmetricDPP takes such a kernel, LowRankDPP does not")
        super()._adopt(kernel, items)
