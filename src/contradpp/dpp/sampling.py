"""Exact samples of the DPP and the k-DPP, at a cost per sample that does not grow with the catalogue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from contradpp._random import stream
from contradpp._threads import run_blocks
from contradpp.data.sets import Sets
from contradpp.dpp.kernel import LowRankKernel
from contradpp.dpp.linalg import log_elementary_symmetric, safe_cholesky
from contradpp.errors import ParameterError, RankError

SAMPLES_PER_BLOCK = 1024


class Sampler:
    """A kernel prepared for sampling: made once, asked often.

    With C = U Λ Uᵀ, the columns of Y = V U Λ^(−1/2) are the orthonormal eigenvectors of L. A sample picks
    eigenvectors (Kulesza and Taskar 2012, Algorithms 1 and 8), then items by rejection (see
    `compiled.kernels.sample_projection`). Preparation takes O(M K²) once.
    """

    def __init__(self, kernel: LowRankKernel) -> None:
        values, vectors = (array[..., ::-1] for array in kernel.eigen)  # largest first
        Y = vectors.T @ kernel.factors.astype(np.float64, copy=False).T  # (r, M)
        Y /= np.linalg.norm(Y, axis=1, keepdims=True)  # √λ, to better precision than from C
        # Where eigenvalues span many orders, the small ones' vectors lean on the large: set them upright.
        R = safe_cholesky(Y @ Y.T, what="the Gram matrix of the eigenvectors")
        Y = solve_triangular(R, Y, lower=True)
        self.n_jobs = kernel.n_jobs
        self._values = np.ascontiguousarray(values)
        self._columns = np.ascontiguousarray(Y.T)  # (M, r)
        self._cumulative = np.cumsum(Y**2, axis=1)  # (r, M)

    @property
    def rank(self) -> int:
        """The largest size that a sample can have."""
        return len(self._values)

    def sample(self, n: int, *, seed: int, size: int | None = None) -> Sets:
        """n independent sets; of exactly `size` items if it is given.

        The samples depend on the seed only, not on the number of threads.
        """
        from contradpp.dpp.compiled import kernels

        if n < 0:
            raise ParameterError(f"n_samples must not be negative, got {n}")
        if size is not None and not 0 <= size <= self.rank:
            raise RankError(f"size must lie in 0..{self.rank}, the rank of the kernel, got {size}")
        n_blocks = -(-n // SAMPLES_PER_BLOCK)
        sizes = np.full(n, size or 0, dtype=np.int64)
        items: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * n_blocks
        if size is None:
            inclusion = self._values / (1.0 + self._values)
        else:
            log_values = np.log(self._values)
            table = log_elementary_symmetric(self._values, size)

        def work(block: int) -> None:
            first = block * SAMPLES_PER_BLOCK
            count = min(SAMPLES_PER_BLOCK, n - first)
            rng = stream(seed, block)
            if size is None:
                where = sizes[first : first + count]
                items[block] = kernels.sample_dpp(self._columns, self._cumulative, inclusion, rng, count, where)
            else:
                items[block] = kernels.sample_k_dpp(
                    self._columns, self._cumulative, log_values, table, size, rng, count
                )

        if self.rank:
            run_blocks(work, n_blocks, self.n_jobs)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return Sets(indptr, np.concatenate([np.empty(0, dtype=np.int32), *items]))
