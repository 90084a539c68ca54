"""Run by test_ray.py in a process of its own: fits on a small Ray cluster, with faults; prints what came of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1]))

import contradpp as cd
from contradpp.cli.main import cli
from contradpp.distributed import ray as engine
from contradpp.distributed.ray import recommend_folder
from contradpp.errors import ContradppError
from contradpp.learn.params import params_from_flat
from distributed.threads import task_of, together

LONG = {"objective": "exact", "batch_size": 64, "max_iter": 12}  # two workers take some seconds
SHORT = {"objective": "exact", "batch_size": 256, "max_iter": 1}
QUICK = {"n_components": 20, "tol": 0.0, "n_jobs": 1, "random_state": 3}


class Log(logging.Handler):
    """Remembers the workers' processes, the losses and what workers said, which the engine logs."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []
        self.losses = 0
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.msg == "workers: %s":
            self.pids = list(map(int, message.split(": ")[1].split()))
        elif record.levelno >= logging.WARNING:
            self.warnings.append(message)
        self.losses += "Going on from the last checkpoint" in message


def when_there(path: Path, action: Callable[[], None]) -> threading.Thread:
    """Do something in another thread, a moment after a run has made its first checkpoint."""

    def wait() -> None:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def main(folder: Path, scratch: Path, kills: int) -> dict[str, object]:
    found: dict[str, object] = {}
    log = Log()
    logging.getLogger("contradpp").addHandler(log)
    logging.getLogger("contradpp").setLevel(logging.INFO)
    (scratch / "threads").mkdir()
    with engine.session(None, 2):
        whole = together(folder, 2, task_of(folder, scratch / "threads", QUICK | LONG, every="1000s"))[0]
        found["after a kill"] = [killed(folder, scratch / f"{n}", log, n % 2, whole) for n in range(kills)]
        found["silent"] = silent(folder, scratch / "silent", log, whole)
        found["no room"] = no_room(folder)
        found["experts"] = experts(folder)
        found["vanished"] = vanished(folder)
        found["answered"] = score(folder, scratch, cd.LowRankDPP(5, max_iter=1).fit(cd.read_baskets(folder)))
        found["commands"] = commands(folder, scratch, log)
    return found


def killed(folder: Path, path: Path, log: Log, rank: int, whole: cd.LowRankDPP) -> list[object]:
    """A worker that stands still for a while, and then is killed: is the result that of an undisturbed run?"""
    before = log.losses

    def act() -> None:
        os.kill(log.pids[rank], signal.SIGSTOP)
        time.sleep(1.0)
        found.append(log.losses - before)
        os.kill(log.pids[rank], signal.SIGCONT)
        time.sleep(0.05)
        os.kill(log.pids[rank], signal.SIGKILL)

    found: list[object] = []
    thread = when_there(path, act)
    model = cd.LowRankDPP(**params_from_flat(cd.LowRankDPP, QUICK | LONG)).fit(
        folder, engine=cd.RayEngine(2, timeout=30.0), checkpoint=cd.Checkpointing(path, every=20)
    )
    thread.join()
    return [model.item_factors_.tobytes() == whole.item_factors_.tobytes(), *found, log.losses - before]


def silent(folder: Path, path: Path, log: Log, whole: cd.LowRankDPP) -> list[object]:
    """A worker that stands still for good."""
    before, held = log.losses, []

    def act() -> None:
        held.append(log.pids[1])
        os.kill(held[0], signal.SIGSTOP)

    thread = when_there(path, act)
    model = cd.LowRankDPP(**params_from_flat(cd.LowRankDPP, QUICK | LONG)).fit(
        folder, engine=cd.RayEngine(2, timeout=10.0), checkpoint=cd.Checkpointing(path, every=20)
    )
    thread.join()
    with suppress(ProcessLookupError):  # Ray may have ended it already
        os.kill(held[0], signal.SIGKILL)
    return [bool(np.abs(model.item_factors_ - whole.item_factors_).max() < 1e-6), log.losses - before]


def no_room(folder: Path) -> bool:
    """Three workers where there is room for two: do they learn what one machine learns?"""
    given = params_from_flat(cd.NonsymmetricDPP, QUICK | SHORT | {"n_skew": 5, "batch_size": 100})
    model = cd.NonsymmetricDPP(**given).fit(folder, engine=cd.RayEngine(3, timeout=10.0))
    one = cd.NonsymmetricDPP(**given).fit(cd.read_baskets(folder))
    gaps = [model.item_factors_ - one.item_factors_, (model.skew_ - one.skew_).toarray()]
    return model.items_ == one.items_ and bool(max(np.abs(gap).max() for gap in gaps) < 1e-9)


def experts(folder: Path) -> list[object]:
    """A conditional model: are its kernel, experts and weights those of one machine?"""
    given = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 5, max_iter=1), n_jobs=1, random_state=3)
    model, one = (type(given)(**given.get_params(deep=False)) for _ in range(2))
    model.fit(folder, engine=cd.RayEngine(timeout=60.0))
    one.fit(cd.read_baskets(folder))
    gap = np.abs(model.predict_next(one.baskets_) - one.predict_next(one.baskets_)).max()
    rows = [
        {name: expert.item_weights_ for name, expert in m.experts_.items() if expert.item_weights_ is not None}
        for m in (model, one)
    ]
    same = [rows[0][name][k].tobytes() == rows[1][name][k].tobytes() for name in rows[1] for k in range(3)]
    return [float(gap), same, model.baskets_ == one.baskets_, model.items_ == one.items_]


def vanished(folder: Path) -> list[str]:
    """The error for a file that was there when the files were listed."""
    gone = sorted(folder.glob("*.parquet"))[0]
    content, listed = gone.read_bytes(), engine.list_files
    engine.list_files = lambda source: (listed(source), gone.unlink())[0]
    try:
        cd.LowRankDPP(**params_from_flat(cd.LowRankDPP, QUICK | SHORT)).fit(folder, engine="ray")
        return ["", "nothing"]
    except ContradppError as error:
        return [type(error).__name__, str(error)]
    finally:
        engine.list_files = listed
        gone.write_bytes(content)


def commands(folder: Path, scratch: Path, log: Log) -> dict[str, object]:
    """The same from the command line, on the cluster that runs already; the checkpoint's folder vanishes meanwhile."""
    path, target, place = scratch / "by-command.safetensors", scratch / "by-command", scratch / "place"
    place.mkdir()
    thread = when_there(place / "c", lambda: shutil.rmtree(place))
    words = ["fit", folder, "-o", path, "--engine", "ray", "--workers", "2", "--n-components", "20"]
    words += ["--model", "lowrank", "--objective", "exact"]
    words += ["--max-iter", "4", "--tol", "0", "--batch-size", "64", "--random-state", "3"]
    log.warnings.clear()
    fitted = CliRunner().invoke(cli, [*map(str, words), "--checkpoint", str(place / "c"), "--checkpoint-every", "5"])
    thread.join()
    words = ["recommend", path, "--engine", "ray", "--input", folder, "--output", target, "-n", "3"]
    asked = CliRunner().invoke(cli, [str(word) for word in words])
    settings = params_from_flat(cd.LowRankDPP, QUICK | LONG | {"max_iter": 4})
    one = cd.LowRankDPP(**settings).fit(cd.read_baskets(folder))
    return {
        "fit": [fitted.exit_code, fitted.output + repr(fitted.exception)],
        "same": path.exists() and bool(np.abs(cd.load(path).item_factors_ - one.item_factors_).max() < 1e-8),
        "warnings": log.warnings,
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
