"""Threads: how many to use, and blocks of work whose result does not depend on that number."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from contradpp.errors import ParameterError

T = TypeVar("T")


def resolve_n_jobs(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for: None or -1 means every core we may use."""
    if n_jobs is None or n_jobs == -1:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else (os.cpu_count() or 1)
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
        raise ParameterError(f"n_jobs must be None, -1 or a positive integer, got {n_jobs!r}")
    return n_jobs


_limiting = threading.RLock()
_limits: list[tuple[int]] = []  # those in force, the latest last
_before: dict[Any, int] = {}  # threads of each library where there is no limit


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process, looked up once: the search costs a millisecond."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that it is found too)

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Limit BLAS to `n` threads inside the block.

    The number is one for the whole process: of several threads in such blocks the last to enter decides, and when none
    is left it is again what it was before the first.
    """
    mark = (n,)  # told by identity from the others
    with _limiting:
        if not _limits:
            _before.update({library: library.num_threads for library in _blas().lib_controllers})
        _limits.append(mark)
        _set_threads()
    try:
        yield
    finally:
        with _limiting:
            del _limits[next(i for i, other in enumerate(_limits) if other is mark)]
            _set_threads()


def _set_threads() -> None:
    for library, before in _before.items():
        wanted = _limits[-1][0] if _limits else before
        if library.num_threads != wanted:
            release = getattr(library, "clear_controlling_thread", None)  # from 3.8 one thread alone may set it
            if release is not None:
                release(force=True)
            library.set_num_threads(wanted)


def run_blocks(work: Callable[[int], None], n_blocks: int, n_jobs: int, *, first_alone: bool = False) -> None:
    """Call `work(block)` for every block, on at most `n_jobs` threads.

    The blocks are the same whatever `n_jobs` is, and each writes to places of its own, so that the result
    is the same to the last bit. `work` should spend its time in code that releases the GIL.

    `first_alone` is for work that compiles a kernel first. Ctrl-C reaches the calling thread alone: others that need
    the kernel, too, would go on compiling it, and the caller would wait for them.
    """
    if first_alone and n_blocks:
        work(0)
    numbers = iter(range(int(first_alone), n_blocks))

    def take_some() -> None:
        for block in numbers:  # each thread takes the next one as it gets free
            work(block)

    if min(n_jobs, n_blocks) <= 1:
        take_some()
        return
    helpers = [_pool(n_jobs).submit(take_some) for _ in range(min(n_jobs, n_blocks) - 1)]
    try:
        take_some()
    finally:  # one that has not begun has nothing left to do
        begun = [helper for helper in helpers if not helper.cancel()]
        for helper in begun:
            helper.exception()  # waits
    for helper in begun:
        helper.result()


def results_of_blocks(work: Callable[[int], T], n_blocks: int, n_jobs: int) -> list[T]:
    """What `work(block)` gives for every block, in their order; as `run_blocks`."""
    found: list[T] = [None] * n_blocks  # type: ignore[list-item]

    def keep(block: int) -> None:
        found[block] = work(block)

    run_blocks(keep, n_blocks, n_jobs)
    return found


class Scratch(threading.local):
    """Memory that is used again and again, since new pages from the system cost more than what is done with them.

    Every thread has its own. What an array holds is lost when the thread next asks for one of that name.
    """

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.float64]] = {}

    def __call__(self, name: str, *shape: int) -> NDArray[np.float64]:
        """An array of this shape, of any content."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].size < size:
            self._held[name] = np.empty(size + size // 4)
        array: NDArray[np.float64] = self._held[name][:size].reshape(shape)
        return array


@cache
def _pool(n_jobs: int) -> ThreadPoolExecutor:
    """Threads that stay, because starting them costs as much as a small batch."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="contradpp")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: let it start its own
    os.register_at_fork(after_in_child=_pool.cache_clear)
