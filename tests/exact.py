"""Every probability of a small DPP by enumeration of all 2^M subsets."""

from __future__ import annotations

import itertools

import numpy as np


def subsets(n_items: int) -> list[tuple[int, ...]]:
    """All subsets of 0..n_items−1, as sorted tuples."""
    return [s for size in range(n_items + 1) for s in itertools.combinations(range(n_items), size)]


class ExactDPP:
    """P(A) ∝ det L_A over all subsets, for any kernel matrix L."""

    def __init__(self, L: np.ndarray) -> None:
        self.n_items = len(L)
        self.sets = subsets(self.n_items)
        volumes = np.array([np.linalg.det(L[np.ix_(s, s)]) if s else 1.0 for s in self.sets])
        # A set beyond the rank has determinant 0 up to rounding.
        volumes[volumes < 1e-10 * volumes.max()] = 0.0
        self.probabilities = volumes / volumes.sum()
        self.table = dict(zip(self.sets, self.probabilities, strict=True))

    def probability(self, items) -> float:
        return self.table[tuple(sorted(items))]

    def given(self, items) -> dict[tuple[int, ...], float]:
        """The distribution of Y given that it contains these items."""
        inside = {s: p for s, p in self.table.items() if set(items) <= set(s)}
        total = sum(inside.values())
        return {s: p / total for s, p in inside.items()}

    def marginals(self, items=()) -> np.ndarray:
        out = np.zeros(self.n_items)
        for s, p in self.given(items).items():
            out[list(s)] += p
        return out

    def next_item(self, items) -> np.ndarray:
        scores = np.array([0.0 if j in items else self.probability([*items, j]) for j in range(self.n_items)])
        return scores / scores.sum()

    def sizes(self) -> np.ndarray:
        out = np.zeros(self.n_items + 1)
        for s, p in self.table.items():
            out[len(s)] += p
        return out


def chi_square_p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """The p-value of observed counts, cells of expectation below 5 pooled; 0 if an impossible cell occurred."""
    from scipy.stats import chi2

    if counts[probabilities == 0].sum() > 0:
        return 0.0
    expected = probabilities * counts.sum()
    large = expected >= 5
    observed = np.append(counts[large], counts[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(expected) - 1))
