"""Diverse rows of a matrix: `DPPSelector`, in the manner of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from contradpp._random import RandomState, root_seed
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Flags, Ints
from contradpp.data.sets import pointers
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sampling import Sampler
from contradpp.errors import DataError, NotFittedError, ParameterError, RankError
from contradpp.experts.base import BaseEstimator
from contradpp.experts.queries import check_count
from contradpp.slates.greedy import Lists, SlateObjective, Vectors, choose
from contradpp.slates.rules import CategoryLimits

METHODS = ("greedy", "sample")
METRICS = ("cosine", "linear")


class DPPSelector(BaseEstimator):
    """Choose n rows of a matrix that differ from each other, by a DPP over the rows.

        L_ij = w_i w_j x_i · x_j

    w are the weights of the rows. Rows that point the same way seldom or never meet in a choice.

    Parameters
    ----------
    n : int
        The number of rows.
    method : {"greedy", "sample"}
        "greedy" chooses one row after the other, each time the one that raises log det L the most,
        and visits only rows that may be it. 10⁻³ L_ii is added to the diagonal, so that n may
        exceed the rank of X. "sample" draws from the k-DPP, exactly; n is then at most that rank.
    metric : {"cosine", "linear"}
        "cosine" scales rows to length 1 first. "linear" leaves them: longer rows are preferred.
    n_jobs : int, optional
        Threads; None for all cores.
    random_state : int, Generator or None
        For "sample".

    Attributes
    ----------
    indices_ : ndarray (n,)
        The chosen rows, for "greedy" in the order of choice.
    gains_ : ndarray (n,)
        What each raised log det L by, for "greedy".

    Examples
    --------
    >>> import numpy as np
    >>> from contradpp.select import DPPSelector
    >>> X = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> DPPSelector(2).fit(X).indices_.tolist()
    [0, 2]
    >>> DPPSelector(2).fit(X, sample_weight=[1, 2, 1, 2]).indices_.tolist()
    [1, 3]
    """

    indices_: Ints
    gains_: Array

    def __init__(
        self,
        n: int = 10,
        *,
        method: str = "greedy",
        metric: str = "cosine",
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n = n
        self.method = method
        self.metric = metric
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Choose rows of X.

        Parameters
        ----------
        X : array (N, D)
            Kept in float32 if it is; everything else becomes float64.
        y : ignored
        sample_weight : array (N,), optional
            The quality w ≥ 0 of the rows; 1 if left out. Rows of weight 0 are not chosen.
        """
        del y
        check_count(self.n, "n")
        if self.method not in METHODS or self.metric not in METRICS:
            raise ParameterError(
                f"method must be one of {', '.join(METHODS)} and metric one of "
                f"{', '.join(METRICS)}, got {self.method!r} and {self.metric!r}"
            )
        table = np.asarray(X)
        if table.ndim != 2 or table.dtype.kind not in "fiu":
            got = f"{table.dtype} of shape {table.shape}" if table.ndim else type(X).__name__
            hint = ": pass X.toarray()" if hasattr(X, "toarray") else ""
            raise DataError(f"X must be a dense matrix of real numbers, got {got}{hint}")
        N = len(table)
        weights = np.ones(N) if sample_weight is None else np.array(sample_weight, dtype=np.float64)
        if weights.shape != (N,) or not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
            raise ParameterError(
                f"sample_weight must be {N} finite numbers of at least 0, one for each row of X, "
                f"got shape {weights.shape}"
            )
        n_jobs = resolve_n_jobs(self.n_jobs)
        try:
            rows = Vectors.of_table(table, n_jobs=n_jobs)
        except ParameterError:
            bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
            if not len(bad):
                raise
            raise ParameterError(
                f"X must be finite, but row {bad[0]} is not ({len(bad)} such rows): "
                "leave them out, or fill in missing values"
            ) from None
        if self.metric == "linear":
            weights = weights * np.linalg.norm(table, axis=1)
        usable = np.flatnonzero((weights > 0) & (rows.scales > 0))
        if len(usable) < self.n:
            raise DataError(
                f"n={self.n}, but only {len(usable)} of {N} rows can be chosen: the others are all "
                "zeros or have weight 0"
            )
        if self.method == "greedy":
            # a slate of relevance log w², and a diversity that gives half of the gain of log det L
            objective = SlateObjective(k=self.n, diversity=0.5, scale="raw")
            relevance = 2.0 * np.log(weights[usable])
            lists = Lists.plain(pointers([len(usable)]), relevance, usable)
            free = CategoryLimits.none(len(usable))
            found = choose(rows, lists, objective, free, n_jobs=n_jobs)
            self.indices_ = usable[found.positions[0]]
            self.gains_ = 2.0 * found.gains[0]
        else:
            scaled = rows.of_rows(usable) * weights[usable, None].astype(rows.table.dtype)
            sampler = Sampler(Kernel(scaled, n_jobs=n_jobs))
            if self.n > sampler.rank:
                raise RankError(
                    f"n={self.n}, but an exact sample has at most {sampler.rank} rows, the rank of "
                    "X: pass a smaller n, or method='greedy'"
                )
            drawn = sampler.sample(1, seed=root_seed(self.random_state), size=self.n)
            self.indices_ = usable[drawn.indices]
        self._n_rows = N
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags()
        return tags

    def get_support(self, indices: bool = False) -> Ints | Flags:
        """Return a mask of the chosen rows (N,), or with `indices` their numbers, ascending."""
        chosen = np.sort(self._chosen())
        if indices:
            return chosen
        mask = np.zeros(self._n_rows, dtype=bool)
        mask[chosen] = True
        return mask

    def transform(self, X: Any) -> Any:
        """Return the chosen rows of X, an array or frame with as many rows as the one fitted."""
        chosen = self._chosen()
        if len(X) != self._n_rows:
            raise DataError(f"X must have the {self._n_rows} rows of fit, got {len(X)}")
        return X.iloc[chosen] if hasattr(X, "iloc") else np.asarray(X)[chosen]

    def fit_transform(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Any:
        """Choose rows of X and return them."""
        return self.fit(X, y, sample_weight).transform(X)

    def _chosen(self) -> Ints:
        if not hasattr(self, "indices_"):
            raise NotFittedError("this DPPSelector has chosen nothing yet: call fit first")
        return self.indices_
