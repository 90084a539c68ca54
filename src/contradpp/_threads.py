"""Thread counts, and blocks of work whose result does not depend on them."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from contradpp._types import Array
from contradpp.errors import ParameterError

if TYPE_CHECKING:
    from threadpoolctl import LibController

T = TypeVar("T")


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads for `n_jobs`; None or -1 means every available core."""
    if n_jobs is None or n_jobs == -1:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else (os.cpu_count() or 1)
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
        raise ParameterError(f"n_jobs must be None, -1 or a positive integer, got {n_jobs!r}")
    return n_jobs


_limiting = threading.RLock()
_limits: list[list[int]] = []  # those in force, the latest last; equal ones differ by identity
_unlimited: dict[LibController, int] = {}  # the threads of each library without a limit


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries of this process, once: the search costs a millisecond."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that it is found too)

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Limit BLAS to `n` threads inside the block.

    The limit holds for the whole process. If several threads are in such blocks, the last to enter
    decides. When all have left, the number is what it was before the first.
    """
    limit = [n]
    with _limiting:
        if not _limits:
            _unlimited.update({library: library.num_threads for library in _blas().lib_controllers})
        _limits.append(limit)
        _set_threads()
    try:
        yield
    finally:
        with _limiting:
            del _limits[next(i for i, other in enumerate(_limits) if other is limit)]
            _set_threads()


def _set_threads() -> None:
    for library, unlimited in _unlimited.items():
        wanted = _limits[-1][0] if _limits else unlimited
        if library.num_threads != wanted:
            # From threadpoolctl 3.8 on only the controlling thread may set it.
            release = getattr(library, "clear_controlling_thread", None)
            if release is not None:
                release(force=True)
            library.set_num_threads(wanted)


def run_blocks(
    work: Callable[[int], object], n_blocks: int, n_jobs: int, *, first_alone: bool = False
) -> None:
    """Call `work(block)` for every block, on at most `n_jobs` threads.

    The blocks do not depend on `n_jobs`, and each writes to places of its own, so that the result
    is the same to the last bit. `work` should spend its time in code that releases the GIL.

    Parameters
    ----------
    first_alone : bool
        Do the first block on the calling thread alone, for work that compiles a kernel. Ctrl-C
        reaches only that thread, which would have to wait for others that compile the kernel, too.
    """
    if first_alone and n_blocks:
        work(0)
    numbers = iter(range(int(first_alone), n_blocks))

    def work_until_done() -> None:
        for block in numbers:  # each thread takes the next one as it gets free
            work(block)

    if min(n_jobs, n_blocks) <= 1:
        work_until_done()
        return
    helpers = [_pool(n_jobs).submit(work_until_done) for _ in range(min(n_jobs, n_blocks) - 1)]
    try:
        work_until_done()
    finally:  # a helper that has not started has nothing left to do
        started = [helper for helper in helpers if not helper.cancel()]
        for helper in started:
            helper.exception()  # waits
    for helper in started:
        helper.result()


def over_parts(
    work: Callable[[slice], object], n: int, size: int, n_jobs: int, *, first_alone: bool = False
) -> None:
    """Call `work(part)` for every part of length `size` of a range of n, as `run_blocks`."""
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    run_blocks(lambda block: work(parts[block]), len(parts), n_jobs, first_alone=first_alone)


def results_of_blocks(work: Callable[[int], T], n_blocks: int, n_jobs: int) -> list[T]:
    """Return `work(block)` of every block, in their order; see `run_blocks`."""
    results: list[T] = [None] * n_blocks  # type: ignore[list-item]

    def store(block: int) -> None:
        results[block] = work(block)

    run_blocks(store, n_blocks, n_jobs)
    return results


class Scratch(threading.local):
    """Reusable memory per thread: new pages from the system cost more than the work done in them.

    The content of an array is lost when the thread next requests one of the same name.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def __call__(self, name: str, *shape: int) -> Array:
        """Return an array of this shape with arbitrary content."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size + size // 4)
        array: Array = self._arrays[name][:size].reshape(shape)
        return array


@cache
def _pool(n_jobs: int) -> ThreadPoolExecutor:
    """Start threads once: starting them costs as much as a small batch."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="contradpp")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: let it start its own
    os.register_at_fork(after_in_child=_pool.cache_clear)
