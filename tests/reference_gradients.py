"""The definitions of what learning needs, in plain NumPy: gradients and the conditional likelihood.

Notation as in `reference.py`; every function takes one set A at a time and returns dense arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from reference import Array, Set, log_det, log_normalizer


def log_det_gradient(V: Array, A: Set) -> Array:
    """∂ log det L_A / ∂V: the rows of A get 2 L_A⁻¹ V_A, all others zero (M×K)."""
    gradient = np.zeros_like(V)
    gradient[A] = 2 * np.linalg.solve(V[A] @ V[A].T, V[A])
    return gradient


def log_normalizer_gradient(V: Array) -> Array:
    """∂ log det(I + L) / ∂V = 2 V (I + C)⁻¹."""
    K = V.shape[1]
    return np.asarray(2 * np.linalg.solve(np.eye(K) + V.T @ V, V.T).T, dtype=np.float64)


def penalty(V: Array, alpha: float, counts: Array) -> float:
    """R(V) = α Σ_i ‖v_i‖² / μ_i, μ_i the number of training baskets with item i."""
    return float(alpha * (np.square(V).sum(axis=1) / counts).sum())


def penalty_gradient(V: Array, alpha: float, counts: Array) -> Array:
    """∂R/∂V = 2 α v_i / μ_i."""
    gradient: Array = 2 * alpha * V / counts[:, None]
    return gradient


def weighted_objective(V: Array, sets: list[Set], y: Array) -> float:
    """Σ_A y_A [log det L_A − log det(I + L)], the paper's Eq. (2)."""
    return float(sum(weight * log_det(V, A) for A, weight in zip(sets, y, strict=True)) - sum(y) * log_normalizer(V))


def conditional_log_likelihood(V: Array, A: Set) -> Array:
    """log P(next = i | A∖i) for every i in A, by its definition: a sum over all items."""
    logs = []
    for left_out in A:
        rest = [item for item in A if item != left_out]
        others = [j for j in range(len(V)) if j not in rest]
        scores = np.array([np.exp(log_det(V, [*rest, j]) - log_det(V, rest)) for j in others])
        logs.append(np.log(scores[others.index(left_out)] / scores.sum()))
    return np.array(logs)


def conditional_gradient(V: Array, A: Set, g: Array) -> Array:
    """∂/∂V of Σ_{i∈A} g_i log P(i | A∖i), in closed form (docs/theory.md derives it), dense (M×K)."""
    C, X = V.T @ V, V[A]
    W = np.linalg.inv(X @ X.T)
    T = X @ C @ X.T
    w, h = np.diag(W), np.diag(W @ T @ W)
    S = np.trace(C) - np.trace(W @ T) + h / w
    s = g / S
    sigma = s.sum()
    half = T @ W @ np.diag(s / w)
    W_bar = -np.diag(g / w) + sigma * T - (half + half.T) + np.diag(s * h / w**2)
    T_bar = sigma * W - W @ np.diag(s / w) @ W
    gradient: Array = 2 * V @ (X.T @ T_bar @ X - sigma * np.eye(len(C)))
    gradient[A] += -2 * W @ W_bar @ W @ X + 2 * T_bar @ X @ C
    return gradient


def nce_coefficients(log_p: Array, log_noise: Array, log_ratio: float, positive: Array) -> Array:
    """ε* − (1 + |A⁻|/|A⁺| p_n(A)/P(A))⁻¹ for every set, the paper's NCE gradient coefficients."""
    odds = np.exp(log_ratio + log_noise - log_p)
    return positive - 1.0 / (1.0 + odds)


def skew_conditional(L: Array, sets: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> float:
    """Σ_A Σ_i g_i log P(i | A∖i) for any kernel L, by its definition: det L_A / Σ_j det L_{A∖i∪j}."""
    total = 0.0
    for items, shares in zip(sets, weights, strict=True):
        for i, share in zip(items, shares, strict=True):
            rest = [item for item in items if item != i]
            grown = [np.linalg.det(L[np.ix_([*rest, j], [*rest, j])]) for j in range(len(L)) if j not in rest]
            total += share * (np.log(np.linalg.det(L[np.ix_(items, items)])) - np.log(sum(grown)))
    return float(total)


def choice_log_likelihood(L: Array, chosen: Sequence[int], offered: Sequence[int]) -> float:
    """log P(Y = chosen | Y ⊆ offered) for any kernel L, by its definition: det L_chosen / Σ_{Y ⊆ offered} det L_Y."""
    subsets = itertools.chain.from_iterable(itertools.combinations(offered, k) for k in range(len(offered) + 1))
    total = sum(np.linalg.det(L[np.ix_(Y, Y)]) if Y else 1.0 for Y in subsets)
    return float(np.log(np.linalg.det(L[np.ix_(chosen, chosen)]) if len(chosen) else 1.0) - np.log(total))
