"""Compiles the kernels that a run will need, in a process of its own, before a worker loads them from the cache.

Numba's code may round differently in the process that compiles it than in those that find it in the cache, by the order
in which functions were inlined. Workers must agree to the last bit: so none of them compiles anything itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from contradpp.errors import ClusterError


def warm_up(parameters: dict[str, Any], model: str, mode: str, *, timeout: float = 300.0) -> None:
    """Run a small training with these parameters in another process."""
    words = [sys.executable, "-m", __name__, json.dumps(parameters, default=lambda value: value.item()), model, mode]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"a worker could not compile its kernels: {error}") from error
    if done.returncode != 0:
        raise ClusterError(f"a worker could not compile its kernels: {done.stderr.strip()[-300:]}")


def main(parameters: dict[str, Any], model: str, mode: str) -> None:
    """A training on a handful of made-up baskets, by the same path as a real one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from contradpp.distributed.shards import list_files
    from contradpp.distributed.worker import Task, Worker

    with tempfile.TemporaryDirectory() as folder:
        lists = [[i % 7, 7 + i % 5] for i in range(100)]
        pq.write_table(pa.table({"items": pa.array(lists)}), Path(folder) / "baskets.parquet")
        small = parameters | {"max_iter": 1, "batch_size": 50, "n_components": max(int(parameters["n_components"]), 2)}
        task = Task(small, ("baskets",), None, str(Path(folder) / "checkpoint"), 1000, False, 10.0, model, mode)
        worker = Worker()
        worker.load(list_files(folder), {"basket": None, "item": None, "quantity": None, "name": None})
        worker.train(0, [worker.open("127.0.0.1")], b"", task)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3])
