"""The definitions, in plain NumPy: slow, short, and what every fast kernel is tested against.

Notation of the paper: V is M×K, L = V Vᵀ, L_A the rows and columns of L in the set A (a list of codes),
C = Vᵀ V, and P(A) = det(L_A) / det(I + L).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import Sets
from contradpp.dpp.kernel import Kernel

Array = NDArray[np.float64]
Set = Sequence[int] | NDArray[np.integer]


def log_det(V: Array, A: Set) -> float:
    """log det L_A, and −inf where L_A is singular."""
    sign, value = np.linalg.slogdet(V[A] @ V[A].T)
    return float(value) if sign > 0 and len(A) <= V.shape[1] else -np.inf


def is_singular(V: Array, A: Set, limit: float = 1e-13) -> bool:
    """Return whether the others leave an item of A at most this share of its length, 1/W_ii ≤ limit² L_ii."""
    rows = V[A] / np.linalg.norm(V[A], axis=1, keepdims=True)
    for i in range(len(rows)):
        others = np.delete(rows, i, axis=0).T
        left = rows[i] - others @ np.linalg.lstsq(others, rows[i])[0]
        if np.linalg.norm(left) <= limit:
            return True
    return False


def log_normalizer(V: Array) -> float:
    """log det(I + L) = log det(I_K + C)."""
    return float(np.linalg.slogdet(np.eye(V.shape[1]) + V.T @ V)[1])


def log_probability(V: Array, A: Set) -> float:
    """log P(A) = log det L_A − log det(I + L)."""
    return log_det(V, A) - log_normalizer(V)


def conditional_kernel(V: Array, A: Set) -> Array:
    """The kernel of the DPP given that A is in the set: L − L_{·A} L_A⁻¹ L_{A·} (M×M, zero on A)."""
    L = V @ V.T
    if not len(A):
        return L
    A = np.asarray(A)
    given: Array = L - L[:, A] @ np.linalg.solve(L[A][:, A], L[A])
    given[A] = given[:, A] = 0
    return given


def next_item(V: Array, A: Set) -> Array:
    """P(next = j | A) ∝ det L_{A∪j} / det L_A, which is the diagonal of the conditional kernel."""
    scores: Array = np.clip(np.diag(conditional_kernel(V, A)), 0, None)
    result: Array = scores / scores.sum()
    return result


def leave_one_out(V: Array, A: Set) -> Array:
    """Row a: the next-item scores given A without its a-th item (|A|×M), zero on the rest of A."""
    rest = [[item for item in A if item != left_out] for left_out in A]
    return np.array([np.diag(conditional_kernel(V, B)) for B in rest]).reshape(len(A), len(V))


def marginals(V: Array, A: Set = ()) -> Array:
    """P(i ∈ Y | A ⊆ Y): the diagonal of L^A (I + L^A)⁻¹, and 1 on A (the paper's Proposition 1)."""
    given = conditional_kernel(V, A)
    inside = np.diag(given @ np.linalg.inv(np.eye(len(V)) + given)).copy()
    inside[list(A)] = 1
    return inside


def size_distribution(V: Array) -> Array:
    """P(|Y| = k) for k = 0..K, by the coefficients of Π (1 + λ z)."""
    polynomial = np.ones(1)
    for value in np.clip(np.linalg.eigvalsh(V.T @ V), 0, None):
        polynomial = np.convolve(polynomial, [1, value])
    result: Array = polynomial / polynomial.sum()
    return result


def greedy_completion(V: Array, A: Set, size: int) -> list[int]:
    """A, then one by one the item that makes det L largest (the first of equals)."""
    chosen = [int(item) for item in A]
    while len(chosen) < size:
        scores = np.diag(conditional_kernel(V, chosen)).copy()
        scores[chosen] = -1
        chosen.append(int(np.argmax(scores)))
    return chosen


@cache
def as_entry(helper):
    """A compiled helper as Python can call it: it has no machine code but in the kernels that it is a part of."""

    @numba.njit
    def call(*arguments):
        return helper(*arguments)

    return call


# -- Questions ------------------------------------------------------------------------------------------


def codes(*items: int) -> NDArray[np.int32]:
    return np.array(items, dtype=np.int32)


def as_sets(lists: Iterable[Iterable[int]]) -> Sets:
    """Lists of codes as the CSR that kernels take."""
    rows = [list(row) for row in lists]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Sets(indptr, np.array([item for row in rows for item in row], dtype=np.int32))


def all_scores(kernel: Kernel, sets: Sets, candidates: NDArray[np.int64] | None = None) -> Array:
    """The next-item scores of all sets, whatever the blocks."""
    return np.concatenate([block.scores for block in kernel.next_scores(sets, candidates=candidates)])
