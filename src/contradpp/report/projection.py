"""A map of items: t-SNE of their distances (van der Maaten and Hinton 2008), and k-means on it for the colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp._random import stream

Array = NDArray[np.float64]
PERPLEXITY = 12.0
ROUNDS, EXAGGERATED = 500, 120  # steps, and how many of the first pull neighbours together harder


def layout(squared_distances: Array, *, seed: int = 0) -> Array:
    """Points in the plane (n, 2), neighbours near each other; both coordinates run from −1 to 1."""
    n = len(squared_distances)
    if n < 4:
        return np.stack([np.linspace(-1, 1, n) if n > 1 else np.zeros(n), np.zeros(n)], axis=1)
    P = affinities(squared_distances, min(PERPLEXITY, (n - 1) / 3))
    Y = 1e-2 * stream(seed, 0).normal(size=(n, 2))
    velocity, gains = np.zeros_like(Y), np.ones_like(Y)
    for step in range(ROUNDS):
        early = step < EXAGGERATED
        gradient = _gradient((4.0 if early else 1.0) * P, Y)
        gains = np.where(np.sign(gradient) == np.sign(velocity), 0.8 * gains, gains + 0.2).clip(0.01)
        velocity = (0.5 if early else 0.8) * velocity - max(n / 12, 10.0) * gains * gradient
        Y = Y + velocity
        Y = Y - Y.mean(axis=0)
    placed: Array = 2 * (Y - Y.min(axis=0)) / np.maximum(np.ptp(Y, axis=0), 1e-12) - 1
    return placed


def affinities(squared_distances: Array, perplexity: float) -> Array:
    """The symmetric p_ij whose rows, before symmetrising, have this perplexity, found by bisection."""
    n = len(squared_distances)
    D = np.where(np.eye(n, dtype=bool), np.inf, squared_distances)
    D -= D.min(axis=1, keepdims=True)
    low, high = np.full((n, 1), 0.0), np.full((n, 1), 1e6)
    for _ in range(60):
        beta = 0.5 * (low + high)
        weights = np.exp(-beta * D)
        rows = weights / weights.sum(axis=1, keepdims=True)
        entropy = -np.sum(rows * np.log(np.maximum(rows, 1e-300)), axis=1, keepdims=True)
        flat = entropy > np.log(perplexity)
        low, high = np.where(flat, beta, low), np.where(flat, high, beta)
    symmetric: Array = np.maximum((rows + rows.T) / (2 * n), 1e-12)
    return symmetric


def _gradient(P: Array, Y: Array) -> Array:
    squares = np.sum(Y**2, axis=1)
    near = 1.0 / (1.0 + np.maximum(squares[:, None] + squares - 2 * Y @ Y.T, 0.0))
    np.fill_diagonal(near, 0.0)
    pull = (P - near / near.sum()) * near
    gradient: Array = 4.0 * (pull.sum(axis=1)[:, None] * Y - pull @ Y)
    return gradient


def clusters(points: Array, k: int, *, seed: int = 0) -> NDArray[np.int64]:
    """The cluster of each point: k-means from well-spread starts, the best of five; the largest cluster is 0."""
    k = min(k, len(points))
    runs = [_k_means(points, k, stream(seed, run + 1)) for run in range(5)]
    labels, _ = min(runs, key=lambda run: run[1])
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    rank = np.empty(k, dtype=np.int64)
    rank[order] = np.arange(k)
    return rank[labels]


def _k_means(points: Array, k: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
    centres = points[rng.integers(len(points))][None]
    while len(centres) < k:
        far = _squares(points, centres).min(axis=1)
        total = far.sum()
        chosen = rng.choice(len(points), p=far / total) if total > 0 else rng.integers(len(points))
        centres = np.vstack([centres, points[chosen]])
    for _ in range(50):
        labels = _squares(points, centres).argmin(axis=1)
        moved = np.array([points[labels == c].mean(axis=0) if (labels == c).any() else centres[c] for c in range(k)])
        if np.array_equal(moved, centres):
            break
        centres = moved
    distances = _squares(points, centres)
    return distances.argmin(axis=1), float(distances.min(axis=1).sum())


def _squares(points: Array, centres: Array) -> Array:
    squares: Array = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
    return squares
