"""Threads of BLAS: one number for the whole process, whoever asks for it. And the memory that a thread keeps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_info, threadpool_limits

import contradpp as cd
from contradpp._threads import Scratch, blas_threads
from contradpp.data.sets import Sets
from contradpp.learn.state import SETS_PER_BLOCK, State


def threads_now() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_innermost_block_decides():
    before = threads_now()
    with blas_threads(1):
        with blas_threads(2):
            assert set(threads_now()) == {2}
        assert set(threads_now()) == {1}
    assert threads_now() == before


def test_blocks_that_overlap_leave_the_number_as_it_was():
    """Two fits in threads left BLAS at one thread for good: the second took the first one's limit for the usual."""
    with blas_threads(2):
        inside, leave = threading.Event(), threading.Event()

        def second() -> None:
            with blas_threads(1):
                inside.set()
                leave.wait(20)

        other = threading.Thread(target=second)
        with blas_threads(1):
            other.start()
            inside.wait(20)
        leave.set()
        other.join()
        assert set(threads_now()) == {2}


def test_memory_is_used_again_by_the_same_thread_and_name_only():
    scratch = Scratch()
    first = scratch("rows", 4, 10)
    assert first.shape == (4, 10)
    assert np.shares_memory(first, scratch("rows", 2, 3))
    assert np.shares_memory(first, scratch("rows", 50))  # there is a quarter more than was requested for
    assert not np.shares_memory(first, scratch("others", 4, 10))
    assert not np.shares_memory(first, scratch("rows", 4, 100))
    assert scratch("rows", 0, 7).shape == (0, 7)
    mine, theirs = scratch("rows", 4, 10), []
    thread = threading.Thread(target=lambda: theirs.append(scratch("rows", 4, 10)))
    thread.start()
    thread.join()
    assert not np.shares_memory(mine, theirs[0])


FIT = """
import sys
import contradpp as cd
shop = cd.datasets.load("grocer", n_baskets=700, random_state=0)
kernel = cd.NonsymmetricDPP(n_components=12, max_iter=2)
model = cd.ConditionalDPP(kernel, random_state=0, n_jobs=int(sys.argv[1])).fit(shop)
model.save(sys.argv[2])
"""


def test_a_model_file_is_the_same_for_any_threads_and_hash_seeds(tmp_path):
    contents = set()
    for n_jobs, blas, seed in ((1, 2, 5), (2, 1, 6)):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": str(blas), "PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", FIT, str(n_jobs), tmp_path / "model"], env=environment, check=True)
        contents.add((tmp_path / "model").read_bytes())
    assert len(contents) == 1


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_answers_do_not_depend_on_threads(is_symmetric):
    """Products, eigenvalues and triangular solves of BLAS round in another way with two threads."""
    rng = np.random.default_rng(0)
    V = 0.035 * rng.normal(size=(500, 200))
    S = np.triu(rng.normal(size=(500, 500)) * (rng.random((500, 500)) < 0.03), 1)
    answers = []
    for n_jobs, blas in ((1, 2), (2, 1)):
        with threadpool_limits(blas, user_api="blas"):
            model = cd.LowRankDPP.from_factors(V)
            if not is_symmetric:
                model = cd.NonsymmetricDPP.from_factors(V, S=scipy.sparse.csr_array(0.1 * (S - S.T)))
            model.n_jobs = n_jobs
            answers.append([model.marginals(), model.predict_next([1, 2, 3]), model.size_distribution()])
    for first, second in zip(*answers, strict=True):
        assert first.tobytes() == second.tobytes()


class Kernel:
    """Stands for a Numba kernel: its first call compiles, and blocks are whole if that was one thread's."""

    def __init__(self) -> None:
        self.signatures: list[str] = []
        self.threads: list[str] = []
        self.firsts: list[int] = []

    def __call__(self, parameters, indptr, indices, first, last) -> None:
        self.firsts.append(first)
        if not self.signatures:
            self.threads.append(threading.current_thread().name)
            time.sleep(0.2)
            self.signatures.append("compiled")


def test_a_kernel_is_compiled_by_the_thread_that_ctrl_c_reaches_and_by_no_other():
    """Ctrl-C took half a minute: it ended the caller's compilation, and then another thread began with its own."""
    kernel, sets = Kernel(), Sets(np.arange(0, 2001, 2), np.tile(np.arange(2, dtype=np.int32), 1000))
    state = State(np.eye(2), n_jobs=2)
    for _ in range(2):
        state.over_sets(kernel, sets, (), ())
    assert kernel.threads == [threading.current_thread().name]
    assert sorted(kernel.firsts) == sorted([*range(0, 1000, SETS_PER_BLOCK)] * 2)
    state.over_sets(Kernel(), Sets(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)), (), ())
