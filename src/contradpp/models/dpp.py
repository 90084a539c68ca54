"""A DPP of a given kernel: every question about a distribution of sets, and nothing to fit."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from contradpp._random import RandomState
from contradpp._types import Array
from contradpp.data.sets import Sets, pointers
from contradpp.dpp.greedy import greedy_completion, log_det_bounds, most_probable_set
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.normalizer import Estimate
from contradpp.dpp.sampling import refuse_too_many, scale_for_size
from contradpp.errors import ParameterError
from contradpp.experts.queries import as_codes, as_queries, check_count
from contradpp.models.base import BaseDPP

MOST_TO_ENUMERATE = 16  # items up to which the entropy is a sum over all sets


class ProbableSet(NamedTuple):
    """A set of high probability, and how much more probable any other could be."""

    items: list[Hashable]
    log_probability: float
    bound: float  # no set that was allowed has a larger log P


class DPP(BaseDPP):
    """A determinantal point process with a given kernel.

    P(A) = det L_A / det(I + L), and P(A ⊆ Y) = det K_A with K = L (I + L)⁻¹

    It has the methods of the learned models: probabilities, marginals, conditioning, next items,
    samples, slates and files.

    Parameters
    ----------
    L : array (M, M), optional
        The likelihood kernel. Its symmetric part is positive semi-definite.
    V : array (M, K), optional
        Factors instead: L = D + V Vᵀ + S, for any number of items.
    K : array (M, M), optional
        The marginal kernel instead, with eigenvalues from 0 to 1. Those above 1 − 10⁻¹⁰, as all
        of a projection DPP, count as that.
    diagonal : array (M,), optional
        d ≥ 0, with V or alone.
    skew : array or SciPy sparse matrix (M, M), optional
        S = −Sᵀ, with V or diagonal.
    items : iterable of hashable, optional
        The item ids, 0..M−1 if left out.
    n_jobs : int, optional
        Threads; None for all cores. Results do not depend on it.

    Examples
    --------
    >>> import contradpp as cd
    >>> dpp = cd.DPP([[2.0, 1.0], [1.0, 2.0]], items=["tea", "coffee"])
    >>> dpp.score_samples(["tea"]).round(3).item(), dpp.marginals().round(3).tolist()
    (-1.386, [0.625, 0.625])
    >>> dpp.condition(["tea"]).marginals().round(3).tolist()
    [0.6]
    """

    def __init__(
        self,
        L: ArrayLike | None = None,
        *,
        V: ArrayLike | None = None,
        K: ArrayLike | None = None,
        diagonal: ArrayLike | None = None,
        skew: Any = None,
        items: Iterable[Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_jobs = n_jobs
        if V is None and diagonal is not None:
            V = np.zeros((np.size(diagonal), 0))
        n_given = sum(part is not None for part in (L, V, K))
        if n_given > 1 or (V is None and skew is not None):
            raise ParameterError(
                "a kernel is one of L, K and V; diagonal and skew go with V, or without any"
            )
        if L is not None:
            kernel = Kernel.from_matrix(L)
        elif K is not None:
            kernel = Kernel.from_marginal_kernel(K)
        elif V is not None:
            kernel = Kernel(V, skew=skew, diagonal=diagonal)
        else:
            return  # `load` sets the kernel; without one, every question is a `NotFittedError`
        self._set_kernel(kernel, items)

    def __repr__(self) -> str:
        kernel = getattr(self, "kernel_", None)
        if kernel is None:
            return "DPP()"
        return f"DPP({kernel.n_items:,} items, n_components={kernel.n_components})"

    @classmethod
    def _of_kernel(cls, kernel: Kernel, items: Iterable[Any] | None) -> Self:
        model = cls()
        model._set_kernel(kernel, items)
        return model

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return `n_jobs`: the kernel is no parameter, as nothing can be learned in its place."""
        return {"n_jobs": self.n_jobs}

    def __sklearn_clone__(self) -> Self:
        return type(self)._of_kernel(self.kernel_, self.items_).set_params(n_jobs=self.n_jobs)

    # -- Probabilities -----------------------------------------------------------------------------

    def score_samples(
        self, baskets: Any, *, size: int | None = None, unknown: str = "error"
    ) -> Array:
        """Return log P(A) of every basket, with `size` log P(A | |Y| = size): that of the k-DPP.

        It is −inf for an impossible set, as any beyond the rank.
        """
        if size is None:
            return super().score_samples(baskets, unknown=unknown)
        check_count(size, "size", least=0)
        kernel = self.kernel_
        refuse_too_many(size, kernel.rank)
        if not kernel.is_low_rank:  # sizes that are rare at the scale of L would lose digits
            kernel = kernel.scaled(scale_for_size(kernel, max(size, 1)))
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = kernel.log_probability(queries.sets) - kernel.log_size_distribution[size]
        logs[queries.sets.sizes != size] = -np.inf
        found: Array = logs[0] if queries.single else logs
        return found

    def score_inclusion(self, baskets: Any, *, unknown: str = "error") -> Array:
        """Return log P(A ⊆ Y) = log det K_A of every basket.

        With a skew part it takes K as a matrix, for at most 4,000 items.
        """
        queries = as_queries(baskets, self.known_items, unknown=unknown)
        logs = self.kernel_.inclusion.log_det(queries.sets)
        return logs[0] if queries.single else logs

    def entropy(self, n_samples: int = 10_000, random_state: RandomState = None) -> Estimate:
        """Return the entropy −Σ P(A) log P(A) and its standard error.

        It is exact, with an error of 0, for up to 16 items. Beyond, it is the mean of −log P over
        `n_samples` exact samples.
        """
        kernel = self.kernel_
        if kernel.n_items <= MOST_TO_ENUMERATE:
            logs = kernel.log_probability(_all_subsets(kernel.n_items))
            logs = logs[np.isfinite(logs)]
            return Estimate(float(-(np.exp(logs) @ logs)), 0.0)
        check_count(n_samples, "n_samples", least=2)
        drawn = self.sample(n_samples, random_state=random_state)
        logs = kernel.log_probability(drawn.sets)
        spread = float(logs.std(ddof=1)) / np.sqrt(n_samples)
        return Estimate(float(-logs.mean()), float(np.hypot(spread, kernel.log_normalizer_error)))

    # -- Conditioning and the mode -----------------------------------------------------------------

    def condition(
        self, given: Iterable[Any] = (), *, without: Iterable[Any] = (), unknown: str = "error"
    ) -> Self:
        """Return the DPP over the remaining items: those `given` are in the set, `without` not."""
        inside = as_codes(given, self.known_items, unknown=unknown)
        outside = as_codes(without, self.known_items, unknown=unknown)
        both = np.intersect1d(inside, outside)
        if len(both):
            raise ParameterError(f"{self.items_[both[0]]!r} is both given and without")
        kept = np.setdiff1d(np.arange(self.kernel_.n_items), outside)
        if len(kept) == len(inside):
            raise ParameterError("no items are left: every one is given, or without")
        part = self.kernel_.restrict(kept) if len(outside) else self.kernel_
        kernel, rest = part.condition(np.searchsorted(kept, inside).astype(np.int32))
        model = type(self)._of_kernel(kernel, self.items_.subset(kept[rest].tolist()))
        return model.set_params(n_jobs=self.n_jobs)

    def most_probable(
        self, size: int | None = None, given: Iterable[Any] = (), *, unknown: str = "error"
    ) -> ProbableSet:
        """Search greedily for the most probable set, and bound what any set could reach.

        The maximum itself is NP-hard to find. For each size k, det L_A is at most the product of
        the k largest eigenvalues (singular values if L is not symmetric), and at most that of the k
        largest L_ii (lengths of rows).

        `given` items are in the set, and count for its `size`; without a size all are compared.
        """
        codes = as_codes(given, self.known_items, unknown=unknown)
        kernel = self.kernel_
        chosen = most_probable_set(kernel, codes) if size is None else codes
        if size is not None:
            check_count(size, "size", least=len(codes), why=" (it counts the given items)")
            refuse_too_many(size, kernel.n_items)
            chosen = greedy_completion(kernel, codes, size)
        rest = kernel.condition(codes)[0] if len(codes) < kernel.n_items else None
        bounds = np.zeros(1) if rest is None else log_det_bounds(rest)
        most = bounds.max() if size is None else bounds[size - len(codes)]
        log_det_given = kernel.log_det(Sets.one(codes))[0]
        return ProbableSet(
            [self.items_[code] for code in chosen.tolist()],
            float(kernel.log_probability(Sets.one(chosen))[0]),
            float(log_det_given + most - kernel.log_normalizer),
        )


def _all_subsets(n_items: int) -> Sets:
    """Return all 2^M subsets."""
    masks = np.arange(2**n_items)[:, None] >> np.arange(n_items) & 1
    return Sets(pointers(masks.sum(axis=1)), np.nonzero(masks)[1].astype(np.int32))
