"""Workers in threads of one process, without Ray; run as a script, they go on from a checkpoint."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contradpp as cd
from contradpp.distributed.learning import Task, Worker
from contradpp.distributed.shards import NO_COLUMNS, Barrier, Exchange, assign, list_files

QUICK = {"n_components": 20, "batch_size": 256, "max_iter": 1, "tol": 0.0, "n_jobs": 1, "random_state": 3}
TIMEOUT = 120.0  # seconds: a worker may have to compile first


def task_of(folder, tmp_path, parameters, *, kind=cd.LowRankDPP, every=1, resume=False) -> Task:
    paths = tuple(file.path for file in list_files(str(folder)))
    return Task(kind, QUICK | parameters, paths, None, str(tmp_path / "c"), every, resume)


def exchanges_of(n, timeout=TIMEOUT) -> list[Exchange]:
    """The exchanges of n workers."""
    barrier = Barrier(n, timeout)
    return [Exchange(rank, n, barrier) for rank in range(n)] if n > 1 else [Exchange()]


def in_threads(n, work, timeout=TIMEOUT) -> list:
    """What `work(exchange)` gives on each of n workers, or its error."""
    with ThreadPoolExecutor(n) as pool:
        runs = [pool.submit(work, exchange) for exchange in exchanges_of(n, timeout)]
    return [run.exception() or run.result() for run in runs]


def together(folder, n, task, *, timeout=TIMEOUT, workers=None) -> list:
    """Train with n workers: the model or None of each, or its error."""
    workers = workers or [Worker() for _ in range(n)]
    for worker, files in zip(workers, assign(list_files(str(folder)), n), strict=True):
        worker.load(files, NO_COLUMNS)
    return in_threads(n, lambda exchange: workers[exchange.rank].train(exchange, task), timeout)


def one_machine(folder, parameters, *, kind=cd.LowRankDPP):
    return kind(**QUICK | parameters).fit(cd.read_baskets(folder))


def resumed(folder, tmp_path, objective) -> cd.LowRankDPP:
    """The model of two workers that go on for two rounds in all."""
    return together(folder, 2, task_of(folder, tmp_path, {"objective": objective, "max_iter": 2}, resume=True))[0]


if __name__ == "__main__":
    resumed(sys.argv[1], Path(sys.argv[2]), sys.argv[3]).save(sys.argv[4])
