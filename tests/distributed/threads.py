"""Workers in threads of one process, without Ray; run as a script, they go on from a checkpoint."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contradpp as cd
from contradpp.distributed.learning import Task, Worker
from contradpp.distributed.shards import NO_COLUMNS, Barrier, Exchange, assign, list_files
from contradpp.learn.params import params_from_flat
from contradpp.models.learned import set_result

QUICK = {"n_components": 20, "batch_size": 256, "max_iter": 1, "tol": 0.0, "n_jobs": 1, "random_state": 3}
TIMEOUT = 120.0  # seconds: a worker may have to compile first


def task_of(folder, tmp_path, parameters, *, kind=cd.LowRankDPP, every=1, resume=False) -> Task:
    paths = tuple(file.path for file in list_files(str(folder)))
    checkpoint = cd.Checkpointing(str(tmp_path / "c"), every, resume)
    return Task(kind, params_from_flat(kind, QUICK | parameters), paths, None, checkpoint)


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

    def train(exchange):
        result = workers[exchange.rank].train(exchange, task)
        if result is None:
            return None
        model = task.kind(**task.parameters)
        set_result(model, result)
        return model

    return in_threads(n, train, timeout)


def one_machine(folder, parameters, *, kind=cd.LowRankDPP):
    return kind(**params_from_flat(kind, QUICK | parameters)).fit(cd.read_baskets(folder))


def resumed(folder, tmp_path, objective) -> cd.LowRankDPP:
    """The model of two workers that go on for two rounds in all."""
    return together(folder, 2, task_of(folder, tmp_path, {"objective": objective, "max_iter": 2}, resume=True))[0]


if __name__ == "__main__":
    resumed(sys.argv[1], Path(sys.argv[2]), sys.argv[3]).save(sys.argv[4])
