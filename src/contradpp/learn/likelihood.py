"""Log-likelihoods of sets under given parameters, with gradients, for training loops elsewhere.

The kernel is L = D + V Vᵀ + S. Its parameters may come from any function of yours, such as a
network: the gradient goes back through it by the chain rule. `contradpp.torch` does that.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from contradpp._threads import Scratch, resolve_n_jobs
from contradpp._types import Array, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import (
    Sets,
    checked_csr,
    pointers,
    sums_over_sets,
    without_duplicates,
)
from contradpp.dpp.kernel import checked_diagonal, checked_factors
from contradpp.dpp.linalg import times
from contradpp.errors import DataError, ParameterError
from contradpp.learn.objectives import (
    ConditionalGradients,
    EntryGradients,
    Gradient,
    added,
    log_normalizer,
    normalizer,
    set_gradients,
)
from contradpp.learn.state import NO_SKEW, SkewPattern, State

Pairs = tuple[ArrayLike, ArrayLike, ArrayLike]  # i, j and s, with S_ij = s and S_ji = −s
KINDS = ("joint", "conditional", "choice", "log_det")
LEAST = 1e-150  # zeros among d and s: gradients by their logarithms are divided by them


class LikelihoodGradient(NamedTuple):
    """Log-likelihoods, and the gradient of their weighted sum by every parameter."""

    values: Array  # (n,): one for every basket
    V: Array  # (M, K)
    diagonal: Array | None  # (M,), None without a diagonal
    skew: Array | None  # a number for every pair, None without pairs


def log_likelihood_and_gradient(
    V: ArrayLike,
    baskets: Any,
    diagonal: ArrayLike | None = None,
    skew: Pairs | None = None,
    *,
    kind: str = "joint",
    offered: Any = None,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> LikelihoodGradient:
    """Compute the log-likelihood of every basket, and the gradient of their weighted sum.

    The kernel is L = D + V Vᵀ + S. A set of probability zero has −inf, and no gradient.

    Parameters
    ----------
    V : array (M, K)
        The factors, a row per item.
    baskets : Baskets, or a list of lists of int
        Sets of row numbers; `Baskets` have as many items as V has rows.
    diagonal : array (M,), optional
        d ≥ 0; zero if left out.
    skew : (i, j, s), optional
        The pairs of S, each once: S_ij = s and S_ji = −s.
    kind : {"joint", "conditional", "choice", "log_det"}
        "joint": log P(A) = log det L_A − log det(I + L); with `skew` it inverts a matrix (M, M).
        "conditional": the mean over i ∈ A of log P(next = i | A∖i), without sampling.
        "choice": log P(A | offered) = log det L_A − log det(I + L_offered).
        "log_det": log det L_A alone, for differences in which the normalizer cancels.
    offered : as many sets, optional
        The set that each basket was chosen from, for "choice".
    sample_weight : array (n,), optional
        A weight per basket, of any sign; 1 if left out.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.

    Returns
    -------
    LikelihoodGradient
        `values`, and the gradient of Σ weight · value by `V`, `diagonal` and `skew`.

    Examples
    --------
    >>> import contradpp as cd
    >>> found = cd.log_likelihood_and_gradient([[1.0, 0.0], [0.0, 1.0]], [[0], [0, 1]])
    >>> found.values.round(3).tolist(), found.V.round(3).tolist()
    ([-1.386, -1.386], [[2.0, 0.0], [0.0, 0.0]])
    """
    found = Likelihood(V, baskets, diagonal, skew, kind=kind, offered=offered, n_jobs=n_jobs)
    n = len(found.values)
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,) or not np.isfinite(weights).all():
        raise ParameterError(f"sample_weight must be {n} finite numbers, one for every basket")
    return LikelihoodGradient(found.values, *found.gradient(weights))


class Likelihood:
    """Log-likelihoods of sets (`values`), and if `wanted` the gradient of weighted sums of them.

    The other arguments are those of `log_likelihood_and_gradient`.
    """

    def __init__(
        self,
        V: ArrayLike,
        baskets: Any,
        diagonal: ArrayLike | None = None,
        skew: Pairs | None = None,
        *,
        kind: str = "joint",
        offered: Any = None,
        n_jobs: int | None = None,
        wanted: bool = True,
    ) -> None:
        if kind not in KINDS:
            raise ParameterError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if (kind == "choice") != (offered is not None):
            raise ParameterError("kind='choice' needs `offered` sets, and no other kind takes them")
        self.state = state_of(V, diagonal, skew, n_jobs=n_jobs)
        self.sets = row_sets(baskets, self.state.n_items)
        self._s = None if skew is None else _nonzero(skew[2])
        self._offered: EntryGradients | None = None
        self._normalizer: Gradient | None = None
        self._parts: EntryGradients | ConditionalGradients
        if kind == "conditional":
            g = 1.0 / self.sets.sizes[self.sets.owners]
            self._parts = ConditionalGradients(self.state, self.sets, g, wanted=wanted)
            means = sums_over_sets(g * self._parts.logs, self.sets)
            self.values = np.where(np.isnan(means), -np.inf, means)
            return
        self._parts = set_gradients(self.state, self.sets, wanted=wanted)
        self.values = self._parts.log_dets
        if offered is not None:
            others = row_sets(offered, self.state.n_items, "offered")
            if others.count != self.sets.count:
                raise DataError(f"{self.sets.count} baskets, {others.count} offered sets")
            plus = self.state.plus_identity()
            plus.scratch = Scratch()  # both keep their gradients
            self._offered = set_gradients(plus, others, wanted=wanted)
            self.values = self.values - self._offered.log_dets
        elif kind == "joint":
            if wanted:
                self._normalizer = normalizer(self.state)
            known = self._normalizer
            self.values = self.values - (known.objective if known else log_normalizer(self.state))

    def gradient(self, weights: Array) -> tuple[Array, Array | None, Array | None]:
        """Return the gradient of Σ weight · value by V, by d and by the s of all pairs."""
        state = self.state
        y = np.where(np.isfinite(self.values), weights, 0.0)
        found = self._parts.weighted(y)
        if self._offered is not None:
            found = added(found, 1.0, self._offered.weighted(-y))
        if self._normalizer is not None:
            found = added(found, -found.total, self._normalizer)
        dtype = state.V.dtype
        V = np.zeros_like(state.V)
        if found.right is not None:
            times(state.V, found.right.astype(dtype), state.n_jobs, out=V)
        if found.scale is not None:
            V *= found.scale[:, None].astype(dtype)
        V[found.rows] += found.values.astype(dtype)
        d = None if found.log_d is None else found.log_d / np.exp(state.log_d)
        if self._s is None:
            return V, d, None
        return V, d, np.zeros(0) if found.pairs is None else found.pairs / self._s


def state_of(
    V: ArrayLike,
    diagonal: ArrayLike | None = None,
    skew: Pairs | None = None,
    *,
    n_jobs: int | None = None,
) -> State:
    """Return given parameters in the form of those under training."""
    factors = checked_factors(V, empty=diagonal is not None)
    M = len(factors)
    log_d = np.empty(0)
    if diagonal is not None:
        log_d = np.log(np.maximum(checked_diagonal(diagonal, M), LEAST))
    pattern = NO_SKEW if skew is None else _pattern(*(np.ravel(part) for part in skew), n_items=M)
    return State(cast(Array, factors), log_d, pattern, resolve_n_jobs(n_jobs))


def _pattern(i: Ints, j: Ints, s: Array, *, n_items: int) -> SkewPattern:
    """Return S of these pairs, each of which must occur once."""
    if not len(i) == len(j) == len(s) or not np.isfinite(s).all():
        raise ParameterError("skew must be (i, j, s): three arrays of one length, with finite s")
    row_sets([i, j], n_items, "skew: i and j")
    keys = np.minimum(i, j) * np.int64(n_items) + np.maximum(i, j)
    if (i == j).any() or len(np.unique(keys)) < len(keys):
        raise ParameterError("skew must name every pair of two different items once")
    values = _nonzero(s)
    return SkewPattern.of_pairs(i, j, np.sign(values), np.log(np.abs(values)), n_items)


def _nonzero(s: ArrayLike) -> Array:
    """Return entries of S in float64, with `LEAST` in place of zeros."""
    values = np.ravel(s).astype(np.float64)
    return np.where(np.abs(values) < LEAST, LEAST, values)


def row_sets(baskets: Any, n_items: int, name: str = "baskets") -> Sets:
    """Convert `Baskets`, or lists of row numbers, to sets of rows."""
    if isinstance(baskets, Baskets):
        if baskets.n_items != n_items:
            raise DataError(f"{name} have {baskets.n_items} items, but there are {n_items} rows")
        return baskets.sets
    if isinstance(baskets, Sets):
        return Sets(*checked_csr(*baskets, n_items))
    try:
        rows = [np.asarray(one if hasattr(one, "__array__") else list(one)) for one in baskets]
    except TypeError:
        message = f"{name} must be Baskets, or a list of lists of row numbers"
        raise DataError(message) from None
    for number, row in enumerate(rows):
        fits = row.ndim == 1 and (not row.size or row.dtype.kind in "iu")
        if not fits or (row.size and not 0 <= row.min() <= row.max() < n_items):
            hint = ": for item ids, pass Baskets" if row.dtype.kind in "OSU" else ""
            raise DataError(
                f"{name}: set {number} is no list of row numbers 0..{n_items - 1}, "
                f"got {row.tolist()!r:.80}{hint}"
            )
    codes = np.concatenate([np.empty(0, dtype=np.int32), *rows]).astype(np.int32)
    return Sets(*without_duplicates(pointers([len(row) for row in rows]), codes, n_items))
