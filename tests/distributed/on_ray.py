"""Run by test_ray.py in a process of its own: fits on a small Ray cluster, with faults; prints what came of them."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

import contradpp as cd
from contradpp.cli.main import cli
from contradpp.distributed import ray as engine
from contradpp.distributed.scoring import recommend_folder
from contradpp.errors import ContradppError

QUICK = {"n_components": 5, "batch_size": 64, "tol": 0.0, "n_jobs": 1, "random_state": 3}


class Pids(logging.Handler):
    """Remembers the workers' processes and the losses, which the engine logs."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[int] = []
        self.losses = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "workers: %s":
            self.known = list(map(int, record.getMessage().split(": ")[1].split()))
        self.losses += "Going on from the last checkpoint" in record.getMessage()


def same(model: cd.LowRankDPP, whole: cd.LowRankDPP) -> bool:
    """To the tolerance that is promised; the bytes are equal too, unless kernels were compiled just now."""
    close = float(np.abs(model.item_factors_ - whole.item_factors_).max()) < 1e-8
    return close and model.items_ == whole.items_


def kill_one(pids: Pids, rank: int, path: Path) -> None:
    """SIGKILL to a worker once the run has made some checkpoints."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(pids.known[rank], signal.SIGKILL)


def main(folder: Path, scratch: Path, kills: int) -> dict[str, object]:
    found: dict[str, object] = {}
    pids = Pids()
    logging.getLogger("contradpp").addHandler(pids)
    logging.getLogger("contradpp").setLevel(logging.INFO)
    with engine.session(None, 2):
        short = QUICK | {"max_iter": 2, "objective": "exact"}
        long = QUICK | {"max_iter": 60, "objective": "exact", "batch_size": 16}
        whole = cd.LowRankDPP(**long).fit(cd.read_baskets(folder))
        found["after a kill"] = []
        for number in range(kills):
            path = scratch / f"checkpoint-{number}"
            killer = threading.Thread(target=kill_one, args=(pids, number % 2, path), daemon=True)
            killer.start()
            before = pids.losses
            model = cd.LowRankDPP(**long).fit(
                folder, engine="ray", workers=2, checkpoint=path, checkpoint_every=20, timeout=30.0
            )
            killer.join()
            found["after a kill"].append([same(model, whole), pids.losses - before])
        found["modes"] = modes(folder, scratch, pids)
        found["slow"] = stopped(folder, scratch, pids, seconds=2.0, timeout=60.0)
        found["silent"] = stopped(folder, scratch, pids, seconds=None, timeout=4.0)
        found["no room"] = same(
            cd.LowRankDPP(**short).fit(folder, engine="ray", workers=3, timeout=5.0),
            cd.LowRankDPP(**short).fit(cd.read_baskets(folder)),
        )
        gone = sorted(folder.glob("*.parquet"))[0]
        content = gone.read_bytes()
        listed = engine.list_files
        engine.list_files = lambda source: (listed(source), gone.unlink())[0]
        try:
            cd.LowRankDPP(**short).fit(folder, engine="ray", workers=2)
        except ContradppError as error:
            found["vanished"] = [type(error).__name__, str(error)]
        finally:
            engine.list_files = listed
            gone.write_bytes(content)
        found["answered"] = score(folder, scratch, model)
        found["commands"] = commands(folder, scratch)
    return found


WELL = {"n_components": 20, "objective": "exact", "batch_size": 64, "tol": 0.0, "n_jobs": 1, "random_state": 3}


def modes(folder: Path, scratch: Path, pids: Pids) -> dict[str, object]:
    """Rows on two workers, also after a kill; steps of one's own; and a kernel that also attracts."""
    long = WELL | {"max_iter": 6, "batch_size": 16}
    whole = cd.LowRankDPP(**long).fit(cd.read_baskets(folder))
    found: dict[str, object] = {}
    path = scratch / "rows"
    killer = threading.Thread(target=kill_one, args=(pids, 1, path), daemon=True)
    killer.start()
    before = pids.losses
    model = cd.LowRankDPP(**long).fit(
        folder, engine="ray", workers=2, mode="sharded", checkpoint=path, checkpoint_every=20, timeout=30.0
    )
    killer.join()
    found["sharded after a kill"] = [same(model, whole), pids.losses - before]
    model = cd.LowRankDPP(**long).fit(folder, engine="ray", workers=2, mode="local", local_steps=10)
    found["local"] = max(r["validation"] for r in model.history_) - max(r["validation"] for r in whole.history_)
    given = {"n_components": 20, "n_skew": 5, "max_iter": 2, "tol": 0.0, "n_jobs": 1, "random_state": 3}
    attracting = cd.NonsymmetricDPP(**given).fit(folder, engine="ray", workers=2)
    one = cd.NonsymmetricDPP(**given).fit(cd.read_baskets(folder))
    gap = np.abs(attracting.skew_.toarray() - one.skew_.toarray()).max()
    found["nonsymmetric"] = same(attracting, one) and bool(gap < 1e-8)
    return found


def stopped(folder: Path, scratch: Path, pids: Pids, *, seconds: float | None, timeout: float) -> list[object]:
    """A worker that stands still for a while, or for good: the result, and how many were lost."""
    long = WELL | {"max_iter": 6, "batch_size": 16}
    path = scratch / f"stopped-{seconds}"
    held: list[int] = []

    def hold() -> None:
        while not path.exists():
            time.sleep(0.02)
        time.sleep(0.2)
        held.append(pids.known[1])
        os.kill(held[0], signal.SIGSTOP)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(held[0], signal.SIGCONT)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    before = pids.losses
    model = cd.LowRankDPP(**long).fit(
        folder, engine="ray", workers=2, checkpoint=path, checkpoint_every=20, timeout=timeout
    )
    holder.join()
    if seconds is None:
        with suppress(ProcessLookupError):  # Ray may have ended it already
            os.kill(held[0], signal.SIGKILL)
    return [same(model, cd.LowRankDPP(**long).fit(cd.read_baskets(folder))), pids.losses - before]


def commands(folder: Path, scratch: Path) -> dict[str, object]:
    """The same from the command line, on the cluster that runs already."""
    path, target = scratch / "by-command.safetensors", scratch / "by-command"
    options = ["--rank", "20", "--objective", "exact", "--max-iter", "2", "--tol", "0", "--batch-size", "64"]
    words = [
        "fit",
        folder,
        "-o",
        path,
        "--engine",
        "ray",
        "--workers",
        "2",
        "--mode",
        "sharded",
        "--seed",
        "3",
        *options,
    ]
    fitted = CliRunner().invoke(cli, [str(word) for word in words])
    words = ["recommend", path, "--engine", "ray", "--input", folder, "--output", target, "-n", "3"]
    asked = CliRunner().invoke(cli, [str(word) for word in words])
    one = cd.LowRankDPP(**WELL | {"max_iter": 2}).fit(cd.read_baskets(folder))
    return {
        "fit": [fitted.exit_code, fitted.output + repr(fitted.exception)],
        "same": path.exists() and same(cd.load(path), one),
        "recommend": [asked.exit_code, asked.output + repr(asked.exception)],
        "rows": sum(pq.read_metadata(file).num_rows for file in target.glob("*.parquet")),
    }


def score(folder: Path, scratch: Path, model: cd.LowRankDPP) -> dict[str, object]:
    """Answers to all files; then again with one of them missing, as after a break."""
    path, target = scratch / "model.safetensors", scratch / "answers"
    model.save(path)
    first = recommend_folder(path, str(folder), target, n=3)
    names = sorted(target.glob("*.parquet"))
    kept = names[0].stat().st_mtime_ns
    before = names[1].read_bytes()
    names[1].unlink()
    second = recommend_folder(path, str(folder), target, n=3)
    rows, right = 0, True
    for file in sorted(folder.glob("*.parquet")):
        baskets = pq.read_table(file).column("items").to_pylist()
        answers = pq.read_table(target / file.name).to_pylist()
        right &= [a["row"] for a in answers] == list(range(len(baskets)))
        for basket, answer in list(zip(baskets, answers, strict=True))[:20]:
            if len(basket) == model.n_components:  # nothing can be added: the row holds the reason
                right &= answer["items"] is None and "rank 5" in answer["error"]
            else:
                right &= answer["items"] == model.recommend(basket, N=3)[0].tolist()
        rows += len(answers)
    try:
        recommend_folder(path, str(folder), target, n=4)
        refused = "not at all"
    except ContradppError as error:
        refused = str(error)
    pairs = scratch / "pairs"
    pairs.mkdir()
    pq.write_table(pa.table({"order_id": [1, 1], "product_id": ["item 1", "item 2"]}), pairs / "long.parquet")
    try:
        recommend_folder(path, str(pairs), scratch / "no answers", n=3)
        said = ["", "nothing"]
    except ContradppError as error:
        said = [type(error).__name__, str(error)]
    again = [names[0].stat().st_mtime_ns == kept, names[1].read_bytes() == before]
    return {
        "first": first,
        "second": second,
        "rows": rows,
        "right": right,
        "again": again,
        "refused": refused,
        "rows of pairs": said,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201
