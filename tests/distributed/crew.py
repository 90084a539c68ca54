"""Workers in threads, with real connections but without Ray."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import contradpp as cd
from contradpp.distributed.shards import assign, list_files
from contradpp.distributed.worker import Task, Worker

COLUMNS = {"basket": None, "item": None, "quantity": None, "name": None}
QUICK = {"n_components": 5, "batch_size": 256, "max_iter": 2, "tol": 0.0, "n_jobs": 1, "random_state": 3}


def task_of(folder, tmp_path, parameters, **changes) -> Task:
    standard = {"validation": None, "checkpoint": str(tmp_path / "c"), "every": 1, "resume": False, "timeout": 20.0}
    paths = tuple(file.path for file in list_files(str(folder)))
    return Task(**{"parameters": QUICK | parameters, "paths": paths} | standard | changes)


def together(folder, n, task, workers=None):
    """Run n workers in threads; what each gave back, or its error."""
    workers = workers or [Worker() for _ in range(n)]
    for worker, files in zip(workers, assign(list_files(str(folder)), n), strict=True):
        worker.load(files, COLUMNS)
    addresses = [worker.open("127.0.0.1") for worker in workers]
    token = os.urandom(32)
    with ThreadPoolExecutor(n) as pool:
        runs = [pool.submit(w.train, rank, addresses, token, task) for rank, w in enumerate(workers)]
    return [run.exception() or run.result() for run in runs]


def one_machine(folder, parameters, **given):
    return cd.LowRankDPP(**QUICK | parameters).fit(cd.read_baskets(folder), **given)
