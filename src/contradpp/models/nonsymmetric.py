"""The nonsymmetric DPP: L = V Vᵀ plus a skew part, so that items attract as well as repel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from contradpp._random import RandomState
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Array, Kernel, checked_factors
from contradpp.dpp.scoring import top_n
from contradpp.errors import ParameterError, RankError
from contradpp.experts.base import as_ids, check_count
from contradpp.models.learned import LearnedDPP

DOUBT = 0.05  # how often the bounds of complements may not hold
STEADYING = 3.0  # times together that are taken for granted at a lift of 1


class NonsymmetricDPP(LearnedDPP):
    """A determinantal point process whose items attract as well as repel: L = D + V Vᵀ + S, S = −Sᵀ.

    D, the diagonal, is what an item is worth on its own; V keeps apart what is alike; S brings together. Two items are
    more probable together than apart where their skew entry outweighs the likeness of their factors:
    det L_{ij} = L_ii L_jj − (v_i · v_j)² + S_ij². With D every set has positive probability, whatever its size, as
    long as √d_i is above 1e-13 ‖v_i‖ (3e-7 ‖v_i‖ in float32). Of a basket with more than 500 items, 500 drawn at random
    are learned from, the same ones every time, with a warning.
    Everything else is that of a DPP: probabilities of sets are exact, and so are conditioning and sampling.

    Parameters
    ----------
    n_components : int
        K, the columns of V; 0 is allowed with a diagonal.
    n_skew : int
        The most partners that an item has in S; 0 for none.
    diagonal : bool
        Whether there is a D. Without one, no set larger than K has positive probability but for partners.
    objective : {"exact", "dynamic", "mle", "explicit", "product", "nce", "choice"}
        What is maximised: the conditional likelihood of every item given the rest of its basket, in closed form or
        by negatives drawn from the current model; the likelihood ("mle", "nce": with S for catalogues of up to 2,000
        items); the likelihood of what was taken of what was offered ("choice"); or contrast with the negatives of
        `LowRankDPP`.
    negative_ratio : float
        Negatives drawn per basket by "dynamic".
    alpha : float
        Strength of the popularity penalty.
    dropout : float
        The share of a basket's items that a step of "exact" leaves out at random.
    init : {"popularity", "uniform"}
        Where training starts.
    calibrate : {"likelihood", "choices", None}
        How the kernel's scale is set after training, on validation data; "choice" learns its own.
    oversize : {"error", "drop", "clip"}
        What to do with baskets that are too large, where there is no diagonal.
    batch_size, max_iter, tol : int, int, float
        Positives a step; the most rounds over the data; the relative rise of the validation score that counts.
    learning_rate : float, optional
        Step size of log |s_ij|, 0.02 if left out; that of log-norms is a tenth of it, that of directions twice.
    removal : {"uniform", "popularity"}
        How "exact" chooses the item that is left out.
    dtype : {"float64", "float32"}
        How V is kept, while it is learned and in the model: float32 takes half of the memory. Everything is computed in
        float64; queries make a copy of V in float64 and keep it. Without S, the precision is that of `LowRankDPP`.
        It matters where V does, in catalogues of a hundred thousand items and more.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.
    random_state : int, Generator or None
    verbose : int
        1 shows the progress, on a terminal and in a notebook.

    Attributes
    ----------
    item_factors_ : ndarray (M, K)
    skew_ : sparse array (M, M)
    gain_ : ndarray (K, K)
        G in L = X G Xᵀ + S; the identity, unless the model was made by `from_factors` with B, or by `condition`.
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
        objective: str = "exact",
        negative_ratio: float = 0.5,
        alpha: float = 1.0,
        dropout: float = 0.0,
        init: str = "popularity",
        calibrate: str | None = "likelihood",
        oversize: str = "error",
        batch_size: int = 300,
        max_iter: int = 100,
        tol: float = 1e-4,
        learning_rate: float | None = None,
        removal: str = "uniform",
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_skew = n_skew
        self.diagonal = diagonal
        self.objective = objective
        self.negative_ratio = negative_ratio
        self.alpha = alpha
        self.dropout = dropout
        self.init = init
        self.calibrate = calibrate
        self.oversize = oversize
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.removal = removal
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
        """A model with the kernel L = D + V Vᵀ + B J Bᵀ + S.

        Parameters
        ----------
        V : array (M, K)
            A row per item.
        B : array (M, 2n), optional
            A skew part of low rank; J has the blocks [[0, 1], [−1, 0]] on its diagonal.
        S : array or SciPy sparse matrix (M, M), optional
            Any skew-symmetric matrix, kept sparse.
        items : iterable of hashable, optional
            The item ids, 0..M−1 if left out.
        diagonal : array (M,), optional
            d ≥ 0, the diagonal of D; zero if left out.
        """
        V = checked_factors(V, empty=diagonal is not None)
        if B is None:
            return cls._of_kernel(Kernel(V, skew=S, diagonal=diagonal), items)
        B = checked_factors(B)
        K, n = V.shape[1], B.shape[1]
        if n % 2 or len(B) != len(V):
            raise ParameterError(f"B must have {len(V)} rows, as V has, and an even number of columns, got {B.shape}")
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

    @property
    def diagonal_(self) -> Array:
        """d, what every item is worth on its own (M,)."""
        return self.kernel_.diagonal

    @property
    def gain_(self) -> Array:
        """G in L = X G Xᵀ + S."""
        return self.kernel_.gain

    # -- Pairs -------------------------------------------------------------------------------------

    def complements(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """The N items that `item` attracts the most, and how much: best first, fewer if it attracts fewer.

        The measure is the lift P(next = j | {item}) / P(next = j | ∅): 3 means that j is three times as likely to be
        the next item once `item` is in the basket. Items whose lift is 1 or less are not complements. The order is that
        of a lower bound: the lift, or the largest that the counts allow, times the share of n that is certain, where n
        is how often the two were about sold together. What was seen twice does not come before what was seen a hundred
        times. The bounds of all items hold at once nineteen times in twenty, as those of Poisson counts do: of 300
        items the luckiest would come first. Those whose bound is 1 or less, which may go with `item` by chance, come
        last, in the order of their lift with three times together by chance added.
        """
        check_count(N)
        code = self.known_items.code(item)
        kernel = self.kernel_
        norms = kernel.squared_norms
        if not norms[code] > 0:
            raise RankError(f"{item!r} has probability zero on its own: nothing can be said given it")
        scores = next(kernel.next_scores(Sets.one([code]))).scores[0]
        scores = np.maximum(scores, 0.0)
        shares, before = scores / scores.sum(), norms / norms.sum()
        lift = np.divide(shares, before, out=np.zeros_like(shares), where=before > 0)
        lift[code] = 0.0
        attracted = np.flatnonzero(lift > 1)
        bound = np.full(len(lift), -np.inf)
        bound[attracted] = self._sureness(code, attracted, lift[attracted])
        best = top_n(bound[None], min(int(N), len(attracted)))[0]
        return as_ids(best, self.items_), lift[best]

    def _sureness(self, code: int, others: NDArray[np.int64], lift: Array) -> Array:
        """What `complements` are ordered by: lower bounds, or the lifts themselves for given factors."""
        counts = self.item_counts_
        if counts is None or not self.n_baskets_ > 0:
            return lift
        # No two meet more often than one of them is sold, whatever the lift.
        possible = np.minimum(lift, self.n_baskets_ / np.maximum(np.maximum(counts[others], counts[code]), 1e-9))
        by_chance = np.maximum(counts[code] * counts[others] / self.n_baskets_, 1e-9)
        together = by_chance * possible
        bound = gammaincinv(together, DOUBT / len(counts)) / by_chance
        steadied = (together + STEADYING) / (by_chance + STEADYING)
        ordered: Array = np.where(bound > 1, bound, 1 - 1 / steadied)
        return ordered

    def similar_items(self, item: Any, N: int = 10) -> tuple[NDArray[Any], Array]:
        """The N items most alike to `item`, and how alike: |cos| of the angle in the symmetric part of L.

        It is what keeps two items apart: det L_{ij} = L_ii L_jj (1 − cos² + s²), s their scaled skew entry, which
        brings them together. The order is that of a lower bound: see `LowRankDPP.similar_items`.
        """
        return super().similar_items(item, N)
