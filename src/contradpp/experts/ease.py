"""A linear model of every item on all others, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contradpp._types import Array
from contradpp.dpp.linalg import cholesky_threads
from contradpp.errors import NumericalError, ParameterError
from contradpp.experts.base import Baseline, tie_break
from contradpp.experts.statistics import BasketStatistics

DENSE_UP_TO = 20_000  # items: the matrix has 3.2 GB then, and takes minutes
ROWS_PER_BLOCK = 1024


@dataclass(eq=False, repr=False)
class EASE(Baseline):
    """A linear model of every item on the others (Steck 2019).

    B = I − P diag(P)⁻¹,  P = (XᵀX + λI)⁻¹,

    with X the baskets × items matrix. The score of j is Σ_{a∈A} B[a, j]. B is dense: M² numbers,
    and M³ work. Beyond 20,000 items it is refused: `RidgeNeighbors` is the same regression on the
    nearest items only.

    Parameters
    ----------
    regularization : float
        λ > 0.

    Attributes
    ----------
    item_weights_ : array (M, M)
        B.

    Examples
    --------
    Tea and milk say as much of each other as pasta and sauce:

    >>> shop = [["tea", "milk"], ["pasta", "sauce"]] * 5
    >>> EASE(regularization=1.0).fit(shop).item_weights_.max().round(2).item()
    0.83
    """

    regularization: float = 100.0

    def _fit(self, statistics: BasketStatistics) -> None:
        if not 0 < self.regularization < np.inf:
            raise ParameterError(f"regularization must be positive, got {self.regularization!r}")
        train = statistics.train
        if train.n_items > DENSE_UP_TO:
            raise ParameterError(
                f"EASE is dense: for {train.n_items:,} items it would take "
                f"{8e-9 * train.n_items**2:.0f} GB (at most {DENSE_UP_TO:,} are allowed). "
                "RidgeNeighbors does the same with each item's nearest items"
            )
        X = train.to_csr()
        B = _inverse((X.T @ X).toarray(), self.regularization)
        B /= -B.diagonal().copy()
        np.fill_diagonal(B, 0.0)
        self.item_weights_: Array = B
        self.bias_ = tie_break(train, B)


def _inverse(G: Array, ridge: float) -> Array:
    """Return (G + ridge I)⁻¹ of a symmetric matrix, in its own memory."""
    from scipy.linalg.lapack import dpotrf, dpotri

    G[np.diag_indices_from(G)] += ridge
    with cholesky_threads(len(G)):
        factor, factor_failed = dpotrf(G.T, lower=1, overwrite_a=1, clean=0)
        inverse, inverse_failed = dpotri(factor, lower=1, overwrite_c=1)
    if factor_failed or inverse_failed:
        raise NumericalError(
            f"XᵀX + {ridge:g} I is singular to rounding: use a larger regularization"
        )
    P: Array = inverse.T  # in C order only the triangle above the diagonal is written
    for first in range(0, len(P), ROWS_PER_BLOCK):
        rows = slice(first, first + ROWS_PER_BLOCK)
        P[rows, :first] = P[:first, rows].T
        block = np.triu(P[rows, rows])
        P[rows, rows] = block + np.triu(block, 1).T
    return P
