"""The nonsymmetric DPP: L = V Vᵀ plus a skew part, so that items attract as well as repel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from contradpp._random import RandomState
from contradpp._types import Array, Ints
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel, checked_factors
from contradpp.dpp.scoring import top_n
from contradpp.errors import ParameterError, RankError
from contradpp.experts.queries import as_ids, check_count
from contradpp.learn.negatives import NegativeSettings, NegativeSource
from contradpp.learn.objectives import Objective
from contradpp.learn.optimizers import OptimizerSettings
from contradpp.models.base import DPPRecommender
from contradpp.models.learned import LearnedDPP

ERROR_RATE = 0.05  # how often the bounds of complements may not hold
PRIOR_COUNT = 3.0  # times together that are assumed at a lift of 1


class NonsymmetricDPP(LearnedDPP):
    """A determinantal point process whose items attract as well as repel.

    L = D + V Vᵀ + S, S = −Sᵀ

    D, the diagonal, is the weight of an item on its own; V keeps similar items apart; S brings
    items together. Two items are more probable together than apart where their skew entry outweighs
    the similarity of their factors:

        det L_{ij} = L_ii L_jj − (v_i · v_j)² + S_ij²

    With D every set has positive probability, whatever its size, as long as √d_i is above
    1e-13 ‖v_i‖ (3e-7 ‖v_i‖ in float32). Of a basket with more than 500 items, 500 drawn at random
    are learned from, the same ones every time, with a warning. Probabilities of sets, conditioning
    and sampling are exact, as for every DPP.

    Parameters
    ----------
    n_components : int
        K, the columns of V; 0 is allowed with a diagonal.
    n_skew : int
        The most neighbors that an item has in S; 0 for none.
    diagonal : bool
        Learn D. Without it, a set larger than K has positive probability only by its entries in S.
    objective : {"exact", "dynamic", "mle", "explicit", "product", "nce", "choice"}
        The function that is maximized: the conditional likelihood of every item given the rest of
        its basket, in closed form or by negatives drawn from the current model; the likelihood
        ("mle", "nce": with S for catalogs of up to 2,000 items); the likelihood of what was taken
        of what was offered ("choice"); or contrast with the negatives of `LowRankDPP`.
    negatives : DynamicNegatives, ExplicitNegatives, ProductNegatives, their words, or None
        How negatives are drawn, and for "exact" which item is left out; None for the negatives of
        the objective with their defaults.
    optimizer : "adam" or Adam
        `contradpp.optimizers.Adam` holds the step size and the batch size.
    alpha : float
        Strength of the popularity penalty.
    dropout : float
        The share of a basket's items that a step of "exact" leaves out at random.
    init : {"popularity", "uniform"}
        Start of training.
    calibrate : {"likelihood", "choices", None}
        Rule that sets the kernel's scale after training, on validation data; "choice" learns it.
    oversize : {"error", "drop", "clip"}
        Baskets that are too large, where there is no diagonal: refuse, leave out, or cut.
    max_iter, tol : int, float
        The most rounds over the data; the relative rise of the validation score that counts.
    dtype : {"float64", "float32"}
        Type of V, while it is learned and in the model: float32 takes half of the memory.
        Everything is computed in float64; queries make a copy of V in float64 and keep it. Without
        S, the precision is that of `LowRankDPP`. float32 matters in catalogs of a hundred thousand
        items and more.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.
    random_state : int, Generator or None
    verbose : int
        0 to show no progress. See `callbacks.ProgressBar`.

    Attributes
    ----------
    item_factors_ : ndarray (M, K)
    skew_ : sparse array (M, M)
    kernel_ : Kernel
        L = D + X G Xᵀ + S, with `diagonal`, `factors`, `inner` and `skew`. G is the identity,
        unless the model was made by `from_factors` with B, or by `condition`.
    items_ : Vocabulary

    Examples
    --------
    Tea and milk attract each other; tea and coffee, whose factors are alike, repel each other.

    >>> import numpy as np
    >>> import contradpp as cd
    >>> V = np.array([[0.5, 0.0], [0.4, 0.1], [0.0, 0.5]])
    >>> S = np.zeros((3, 3))
    >>> S[0, 2], S[2, 0] = 0.6, -0.6
    >>> model = cd.NonsymmetricDPP.from_factors(V, S=S, items=["tea", "coffee", "milk"])
    >>> alone, with_tea = model.marginals(), model.marginals(["tea"])
    >>> bool(with_tea[1] < alone[1]), bool(with_tea[2] > alone[2])
    (True, True)
    >>> model.complements("tea")[0].tolist()
    ['milk']
    """

    def __init__(
        self,
        n_components: int = 16,
        n_skew: int = 30,
        *,
        diagonal: bool = True,
        objective: str | Objective = "exact",
        negatives: NegativeSettings | NegativeSource | str | None = None,
        optimizer: OptimizerSettings | str = "adam",
        alpha: float = 1.0,
        dropout: float = 0.0,
        init: str = "popularity",
        calibrate: str | None = "likelihood",
        oversize: str = "error",
        max_iter: int = 100,
        tol: float = 1e-4,
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 1,
    ) -> None:
        self.n_components = n_components
        self.n_skew = n_skew
        self.diagonal = diagonal
        self.objective = objective
        self.negatives = negatives
        self.optimizer = optimizer
        self.alpha = alpha
        self.dropout = dropout
        self.init = init
        self.calibrate = calibrate
        self.oversize = oversize
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # -- The kernel --------------------------------------------------------------------------------

    @classmethod
    def from_factors(  # type: ignore[override]
        cls,
        V: ArrayLike,
        B: ArrayLike | None = None,
        S: Any = None,
        items: Iterable[Any] | None = None,
        *,
        diagonal: ArrayLike | None = None,
    ) -> Self:
        """Make a model with the kernel L = D + V Vᵀ + B J Bᵀ + S.

        Parameters
        ----------
        V : array (M, K)
            A row per item.
        B : array (M, 2n), optional
            A skew part of low rank; J has the blocks [[0, 1], [−1, 0]] on its diagonal.
        S : array or SciPy sparse matrix (M, M), optional
            Any skew-symmetric matrix, stored sparse.
        items : iterable of hashable, optional
            The item ids, 0..M−1 if omitted.
        diagonal : array (M,), optional
            d ≥ 0, the diagonal of D; zero if omitted.
        """
        V = checked_factors(V, empty=diagonal is not None)
        if B is None:
            return cls._of_kernel(Kernel(V, skew=S, diagonal=diagonal), items)
        B = checked_factors(B)
        K = V.shape[1]
        n = B.shape[1]
        if n % 2 or len(B) != len(V):
            raise ParameterError(
                f"B must have {len(V)} rows, as V has, and an even number of columns, got {B.shape}"
            )
        G = np.eye(K + n)
        G[K:, K:] = np.kron(np.eye(n // 2), [[0.0, 1.0], [-1.0, 0.0]])
        return cls._of_kernel(Kernel(np.hstack([V, B]), G, S, diagonal), items)

    @classmethod
    def _of_kernel(cls, kernel: Kernel, items: Iterable[Any] | None) -> Self:
        model = super()._of_kernel(kernel, items)
        model.diagonal = kernel.has_diagonal
        return model

    @property
    def skew_(self) -> Any:
        """S as a SciPy CSR array (M, M)."""
        return self.kernel_.skew.matrix()

    # -- Pairs -------------------------------------------------------------------------------------

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items that `item` attracts the most, and how much.

        The measure is the lift, P(next = j | {item}) / P(next = j | ∅): 3 means that j is three
        times as likely to be the next item once `item` is in the basket. Items whose lift is 1 or
        less are not complements.

        The order is that of a lower bound on the lift, by the number of baskets n that about have
        both: an item seen twice does not come before one seen a hundred times. The bounds of all
        items hold at once nineteen times in twenty, for Poisson counts. Items whose bound is 1 or
        less come last, in the order of their lift with three times together by chance added.

        Parameters
        ----------
        item : item
        N : int

        Returns
        -------
        items : ndarray
            Best first; fewer than N if `item` attracts fewer.
        lift : ndarray
        """
        return complements(self, item, N)

    def similar_items(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """Return the N items most similar to `item`, and |cos| in the symmetric part of L.

        It keeps two items apart, while their scaled skew entry s brings them together:

            det L_{ij} = L_ii L_jj (1 − cos² + s²)

        The order is that of a lower bound: see `LowRankDPP.similar_items`.
        """
        return super().similar_items(item, N)


def complements(model: DPPRecommender, item: Any, N: int) -> tuple[NDArray[Any], Array]:
    """Return the N items that `item` attracts most and their lift, by a model's distribution."""
    check_count(N)
    items = model.known_items
    code = items.code(item)
    distribution = model.dpp
    norms = distribution.squared_norms
    if not norms[code] > 0:
        raise RankError(
            f"{item!r} has probability zero on its own: there are no probabilities given it"
        )
    scores = np.maximum(next(distribution.next_scores(Sets.one([code]))).scores[0], 0.0)
    after = scores / scores.sum()
    before = norms / norms.sum()
    lift = np.divide(after, before, out=np.zeros_like(after), where=before > 0)
    lift[code] = 0.0
    attracted = np.flatnonzero(lift > 1)
    bound = np.full(len(lift), -np.inf)
    bound[attracted] = _lift_bounds(model, code, attracted, lift[attracted])
    best = top_n(bound[None], min(int(N), len(attracted)))[0]
    return as_ids(best, items), lift[best]


def _lift_bounds(model: Any, code: int, others: Ints, lift: Array) -> Array:
    """Return lower bounds on lifts, or the lifts themselves for given factors."""
    counts = model.item_counts_
    n_baskets = model.n_baskets_
    if counts is None or not n_baskets > 0:
        return lift
    # Two items are in no more baskets together than one of them is, whatever the lift.
    most = n_baskets / np.maximum(np.maximum(counts[others], counts[code]), 1e-9)
    by_chance = np.maximum(counts[code] * counts[others] / n_baskets, 1e-9)
    together = by_chance * np.minimum(lift, most)
    bound = gammaincinv(together, ERROR_RATE / len(counts)) / by_chance
    smoothed = (together + PRIOR_COUNT) / (by_chance + PRIOR_COUNT)
    ordered: Array = np.where(bound > 1, bound, 1 - 1 / smoothed)
    return ordered
