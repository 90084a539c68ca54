"""The faults of `make test`, many times over: kills, damaged files of every kind, slates with all kinds of rules.

python benchmarks/soak.py                                  # everything, the full numbers
python benchmarks/soak.py kills --kills 20                 # a part
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import logging
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import contradpp as cd
from contradpp.errors import ContradppError

SHOP = (
    "fit", "grocer", "--model", "lowrank", "--n-components", "24", "--objective", "dynamic", "--batch-size", "100",
    "--max-iter", "3", "--n-jobs", "1", "--test-size", "0",
)  # fmt: skip
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "contradpp", *map(str, words)]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def kills(n: int, seed: int) -> bool:
    """A fit, killed with SIGKILL at random moments and resumed, n times: the same bytes as an undisturbed one."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for _ in range(2):  # the first may compile kernels
            started = time.monotonic()
            subprocess.run(command(*SHOP, "-o", place / "whole.safetensors"), check=True, **QUIET)
            seconds = time.monotonic() - started
        expected = digest(place / "whole.safetensors")
        print(f"undisturbed: {expected} in {seconds:.1f} s")
        equal, killed, number = 0, 0, 0
        while killed < n:
            number += 1
            out, checkpoint = place / f"{number}.safetensors", place / f"{number}.checkpoint"
            words = command(*SHOP, "-o", out, "--checkpoint", checkpoint, "--resume", "--checkpoint-every", 3)
            moment = moments.uniform(0, seconds)
            process = subprocess.Popen(words, **QUIET)
            try:
                process.wait(moment)
                print(f"       after {moment:5.2f} s: it had finished already, so this does not count", flush=True)
                continue
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            killed += 1
            had = "with" if checkpoint.exists() else "without"
            subprocess.run(words, check=True, **QUIET)
            same = digest(out) == expected
            equal += same
            result = "equal" if same else "DIFFERENT"
            print(f"  {killed:3d}. after {moment:5.2f} s: killed, {had} a checkpoint; {result}", flush=True)
    print(f"{equal} of {n} results are byte-equal")
    return equal == n


def worker_kills(n: int) -> bool:
    """Ray workers held up and then killed, n runs: all finished, all with the bytes of an undisturbed run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    script = Path(__file__).parents[1] / "tests" / "distributed" / "on_ray.py"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "baskets"
        place.mkdir()
        lists = [[f"item {i}" for i in rng.choice(40, size=rng.integers(1, 6), replace=False)] for _ in range(1500)]
        for part in range(4):
            column = pa.array(lists[part::4], type=pa.list_(pa.string()))
            pq.write_table(pa.table({"items": column}), place / f"part-{part}.parquet")
        words = [sys.executable, str(script), str(place), folder, str(n)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-2000:])
            return False
        found = json.loads(done.stdout.splitlines()[-1])["after a kill"]
    good = sum(same and early == 0 and losses >= 1 for same, early, losses in found)
    print(f"{good} of {n} runs with a killed worker finished with the undisturbed run's bytes")
    return good == n


# -- Damaged files -----------------------------------------------------------------------------------

SEEDS = {
    "a.dat": b"1 2 3\n2 3\n4 5 6 7\n",
    "b.csv": b"tea,milk\ncoffee\nmilk,sugar,tea\n",
    "c.csv": b"order_id,product_id,quantity\n1,a,2\n1,b,1\n2,a,-1\n",
    "d.jsonl": b'["a", "b"]\n{"items": ["a", 3]}\n',
    "e.jsonl": b'{"basket": 1, "item": "a"}\n{"basket": 1, "item": "b"}\n',
}


def seeds(folder: Path) -> dict[str, bytes]:
    """Small good files of every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = dict(SEEDS)
    pq.write_table(pa.table({"items": pa.array([["a", "b"], [], ["c"]])}), folder / "lists.parquet")
    pq.write_table(pa.table({"order_id": [1, 1, 2], "product_id": ["a", "b", "c"]}), folder / "long.parquet")
    found |= {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    return found | {"f.dat.gz": gzip.compress(SEEDS["a.dat"] * 20)}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled, or put in from elsewhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(out) + 1), rng.randrange(6)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 2:
            del out[at : at + rng.choice((1, 4, 64))]
        elif kind == 3:
            out[at:at] = out[: rng.randrange(64)]
        elif kind == 4:
            out[at:at] = rng.choice((b"\n", b"\r", b"\0", b'"', b",", b"\xff", b"9" * 400, b"[" * 500, b"\xef\xbb\xbf"))
        else:
            del out[at:]
    return bytes(out) if out != data else mutate(data, rng)


def damaged(what: str, n: int, seed: int) -> bool:
    """n damaged inputs: only typed errors, none slower than 5 s, no more than 1 GB."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if what == "models":
            model = cd.LowRankDPP.from_factors(np.random.default_rng(0).normal(size=(6, 3)), items=list("abcdef"))
            model.save(place / "m")
            originals, read = {"m": (place / "m").read_bytes()}, cd.load
        else:
            originals, read = seeds(place), cd.read_baskets
        names = sorted(originals)
        for number in range(n):
            name = names[number % len(names)]
            path = place / f"x{name}"
            path.write_bytes(mutate(originals[name], rng))
            started = time.monotonic()
            try:
                read(path)
                outcomes["read"] += 1
            except ContradppError as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                outcomes[f"UNTYPED {type(error).__name__}"] += 1
                kept = Path(tempfile.gettempdir()) / f"untyped-{number}-{name}"
                kept.write_bytes(path.read_bytes())
                print(f"  {type(error).__name__}: {error} for {kept}")
            slowest = max(slowest, time.monotonic() - started)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{n:,} damaged {what}: {dict(outcomes)}; slowest {slowest:.2f} s, at most {memory:.2f} GB")
    return slowest < 5 and memory < 1.0 and not any(key.startswith("UNTYPED") for key in outcomes)


# -- Slates ------------------------------------------------------------------------------------------


def slates(n: int, seed: int) -> bool:
    """n made-up questions with rules: no answer breaks one, and none is refused or short without need."""
    sys.path[0] = str(Path(__file__).parents[1] / "tests")  # in place of this folder, which has a slates.py, too
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    from slates.cases import check, questions

    outcomes: Counter[str] = Counter()

    @seeded(seed)
    @settings(max_examples=n, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate, Phase.shrink])  # fmt: skip
    @given(asked=questions())
    def ask(asked: dict[str, object]) -> None:
        outcomes[check(asked)] += 1

    try:
        ask()
    except AssertionError as error:
        print(f"after {outcomes.total():,} questions: {error}")
        return False
    print(f"{outcomes.total():,} questions: {dict(outcomes)}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["kills", "workers", "readers", "models", "slates"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--worker-kills", type=int, default=10)
    parser.add_argument("--readers", type=int, default=100_000)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--slates", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("contradpp").setLevel(logging.ERROR)  # notes on 100,000 damaged files help nobody
    runs = {
        "kills": lambda: kills(given.kills, given.seed),
        "workers": lambda: worker_kills(given.worker_kills),
        "readers": lambda: damaged("readers", given.readers, given.seed),
        "models": lambda: damaged("models", given.models, given.seed),
        "slates": lambda: slates(given.slates, given.seed),
    }
    failed = []
    for part in given.parts:
        print(f"== {part}", flush=True)
        if not runs[part]():
            failed.append(part)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
