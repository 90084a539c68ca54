"""Numba kernels over many sets at once; each has its definition in `reference.py`.

Sets come as the CSR of `Baskets`: set s holds `indices[indptr[s]:indptr[s + 1]]`. Importing this module
loads Numba, so that the rest of the library imports it only where it is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry, helper
from contradpp.dpp.linalg import DEPENDENT

Array = NDArray[np.float64]


@entry
def orthonormal_rows(
    V: NDArray[np.floating],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    first: int,
    last: int,
    Q: Array,
    pivots: Array,
) -> None:
    """Orthonormal rows that span the factors of each set, and the squared pivots whose product is det L_A.

    Gram-Schmidt with a second pass, which makes the rows orthogonal to rounding whatever the condition of
    V_A. A row that the earlier ones span to rounding (`DEPENDENT`) gets pivot 0 and is left zero: det L_A = 0
    then, and the other rows still span all of V_A. Writes to the entries of sets first..last−1 of Q (nnz, K)
    and pivots.
    """
    K = V.shape[1]
    tiny = max(4.0 * np.finfo(V.dtype).eps * K, DEPENDENT) ** 2
    for s in range(first, last):
        start = indptr[s]
        for a in range(start, indptr[s + 1]):
            norm = 0.0
            for k in range(K):
                Q[a, k] = V[indices[a], k]  # float64 from here on, whatever V is
                norm += Q[a, k] * Q[a, k]
            left = norm
            for _ in range(2):
                for b in range(start, a):
                    dot = 0.0
                    for k in range(K):
                        dot += Q[b, k] * Q[a, k]
                    for k in range(K):
                        Q[a, k] -= dot * Q[b, k]
                left = 0.0
                for k in range(K):
                    left += Q[a, k] * Q[a, k]
            if left <= tiny * norm:
                left = 0.0
            pivots[a] = left
            scale = 1.0 / np.sqrt(left) if left > 0 else 0.0
            for k in range(K):
                Q[a, k] *= scale


@entry
def subtract_squares(scores: Array, products: Array, indptr: NDArray[np.int64]) -> None:
    """scores[s] −= Σ_a products[a]², summed over the entries a of set s."""
    for s in range(scores.shape[0]):
        for a in range(indptr[s], indptr[s + 1]):
            for j in range(scores.shape[1]):
                scores[s, j] -= products[a, j] * products[a, j]


@helper
def project_off(residual: Array, basis: Array, t: int) -> None:
    """residual −= its projection onto the first t rows of `basis`."""
    k = residual.shape[0]
    for b in range(t):
        dot = 0.0
        for e in range(k):
            dot += basis[b, e] * residual[e]
        for e in range(k):
            residual[e] -= dot * basis[b, e]


@helper
def choose_eigenvectors(inclusion: Array, rng: np.random.Generator, chosen: NDArray[np.int64]) -> int:
    """Each eigenvector enters on its own with its probability λ/(1 + λ); returns how many did."""
    count = 0
    for n in range(len(inclusion)):
        if rng.random() < inclusion[n]:
            chosen[count] = n
            count += 1
    return count


@helper
def choose_k_eigenvectors(
    log_values: Array, table: Array, k: int, rng: np.random.Generator, chosen: NDArray[np.int64]
) -> int:
    """k eigenvectors with probability ∝ the product of their values, by the symmetric polynomials in `table`."""
    left = k
    for n in range(len(log_values), 0, -1):
        if left == 0:
            break
        log_inclusion = log_values[n - 1] + table[n - 1, left - 1] - table[n, left]
        # The last ones must enter, whatever rounding says.
        if left == n or np.log(rng.random()) < log_inclusion:
            left -= 1
            chosen[left] = n - 1
    return k


@helper
def sample_projection(
    Y: Array, cumulative: Array, chosen: NDArray[np.int64], k: int, rng: np.random.Generator, out: NDArray[np.int32]
) -> None:
    """k items from the DPP that the k chosen orthonormal columns of Y span; exact, whatever the catalogue's size.

    Item i should come next with probability ∝ ‖Z y_i‖², Z the projection off what was drawn before. Propose
    i ∝ ‖y_i‖² (a chosen column uniformly, then an item by that column's squares: one binary search), accept
    with probability ‖Z y_i‖²/‖y_i‖². Step t takes k/(k − t) proposals on average.
    """
    M = Y.shape[0]
    basis = np.empty((k, k))
    residual = np.empty(k)
    t = 0
    while t < k:
        column = chosen[min(int(rng.random() * k), k - 1)]
        target = rng.random() * cumulative[column, M - 1]
        i = min(np.searchsorted(cumulative[column], target, side="right"), M - 1)
        norm = 0.0
        for e in range(k):
            residual[e] = Y[i, chosen[e]]
            norm += residual[e] * residual[e]
        project_off(residual, basis, t)
        left = 0.0
        for e in range(k):
            left += residual[e] * residual[e]
        if left < 1e-20 * norm or rng.random() * norm >= left:
            continue
        project_off(residual, basis, t)  # again, so that rounding does not grow over the steps
        left = 0.0
        for e in range(k):
            left += residual[e] * residual[e]
        for e in range(k):
            basis[t, e] = residual[e] / np.sqrt(left)
        out[t] = i
        t += 1


@entry
def sample_dpp(
    Y: Array, cumulative: Array, inclusion: Array, rng: np.random.Generator, n: int, sizes: NDArray[np.int64]
) -> NDArray[np.int32]:
    """n samples one after the other: their items in one array, their sizes in `sizes`."""
    K = len(inclusion)
    items = np.empty(n * K, dtype=np.int32)
    chosen = np.empty(K, dtype=np.int64)
    position = 0
    for s in range(n):
        k = choose_eigenvectors(inclusion, rng, chosen)
        sample_projection(Y, cumulative, chosen, k, rng, items[position : position + k])
        sizes[s] = k
        position += k
    return items[:position].copy()


@entry
def sample_k_dpp(
    Y: Array, cumulative: Array, log_values: Array, table: Array, k: int, rng: np.random.Generator, n: int
) -> NDArray[np.int32]:
    """n samples of size k, one after the other."""
    items = np.empty(n * k, dtype=np.int32)
    chosen = np.empty(max(k, 1), dtype=np.int64)
    for s in range(n):
        choose_k_eigenvectors(log_values, table, k, rng, chosen)
        sample_projection(Y, cumulative, chosen, k, rng, items[s * k : (s + 1) * k])
    return items
