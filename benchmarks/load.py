"""The service under load: its time beside the in-process call, 32 clients for a minute, memory over many requests.

    python benchmarks/load.py                        # about seven minutes
    python benchmarks/load.py --seconds 10 --requests 5000
    python benchmarks/load.py --model shop.safetensors  # every kind of request to a model of yours, with idle and
                                                        # half-open connections: does it stay alive and small?

Everything runs on this machine over the loopback, and ends after the given time and count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import contradpp as cd

ITEMS, COMPONENTS, BASKET, SUGGESTIONS = 16_470, 76, 10, 10  # the Belgian data's size
SERVE = "from contradpp.cli.serve import serve; serve()"
TIMING = re.compile(rb"app;dur=([0-9.]+)")
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def main() -> None:
    """Run the three measurements and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load")
    parser.add_argument("--requests", type=int, default=100_000, help="of the memory run")
    parser.add_argument("--calls", type=int, default=600, help="of the comparison with the in-process call")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of one model call")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--model", type=Path, help="file of a model to be asked everything, instead of the comparison")
    parser.add_argument("--idle", type=int, default=500, help="connections that say nothing, with --model")
    parser.add_argument("--half-open", type=int, default=300, help="connections with half a head, with --model")
    told = parser.parse_args()
    if told.model is not None:
        pressure(told)
        return
    rng = np.random.default_rng(0)
    model = cd.LowRankDPP.from_factors((0.05 * rng.normal(size=(ITEMS, COMPONENTS))).astype(told.dtype))
    baskets = [rng.choice(ITEMS, BASKET, replace=False).tolist() for _ in range(500)]
    with serving(model, workers=told.workers, threads=told.threads) as (port, pid):
        asks = [request(port, basket) for basket in baskets]
        compare(model, baskets, asks, port, told.calls, told.threads)
        if told.seconds:
            load(asks, port, told.clients, told.seconds)
        if told.requests:
            memory(asks, port, pid, told.requests)


def compare(
    model: cd.LowRankDPP, baskets: list[list[int]], asks: list[bytes], port: int, calls: int, threads: int
) -> None:
    """One call at a time, in process and over HTTP by turns, so that both see the same machine."""
    inside: dict[int | None, list[float]] = {None: [], threads: []}
    served: list[float] = []
    whole: list[float] = []
    model.recommend(baskets[0], N=SUGGESTIONS)
    asyncio.run(one_client(asks[:50], port))
    for first in range(0, calls, 25):
        block = [(first + at) % len(baskets) for at in range(25)]
        for n_jobs, times in inside.items():
            model.n_jobs = n_jobs
            for at in block:
                started = time.perf_counter()
                model.recommend(baskets[at], N=SUGGESTIONS)
                times.append(1000 * (time.perf_counter() - started))
        for took, in_server, status in asyncio.run(one_client([asks[at] for at in block], port)):
            if status != 200:
                raise SystemExit(f"the server answered {status}")
            whole.append(1000 * took)
            served.append(in_server)
    rows = {
        "in process, all threads": inside[None], f"in process, n_jobs={threads}": inside[threads],
        "in the server (Server-Timing)": served, "seen by the client": whole,
    }  # fmt: skip
    print(f"One request at a time, {calls} of each, {ITEMS:,} items, K = {COMPONENTS}, baskets of {BASKET}")
    print(f"  {'':<32}{'p50 ms':>10}{'p99 ms':>10}")
    for name, times in rows.items():
        print(f"  {name:<32}{np.percentile(times, 50):>10.2f}{np.percentile(times, 99):>10.2f}")
    best = min(np.percentile(times, 50) for times in inside.values())
    print(f"  server / fastest in-process p50: {np.percentile(served, 50) / best:.2f}   (goal: at most 2.5)\n")


def load(asks: list[bytes], port: int, clients: int, seconds: float) -> None:
    """Many clients, each sending its next request when the last is answered, for a fixed time."""
    answers = asyncio.run(many_clients(asks, port, clients, until=time.perf_counter() + seconds))
    errors = sum(status != 200 for _, _, status in answers)
    took = 1000 * np.array([one[0] for one in answers])
    inside = np.array([one[1] for one in answers])
    print(f"{clients} clients for {seconds:g} s: {len(answers):,} requests, {len(answers) / seconds:.0f} a second")
    print(f"  errors {errors}   (goal: 0)")
    for name, times in (("seen by the clients", took), ("in the server", inside)):
        p50, p99 = np.percentile(times, (50, 99))
        print(f"  {name:<22}p50 {p50:8.2f} ms   p99 {p99:8.2f} ms   p99/p50 {p99 / p50:5.2f}   (goal: at most 10)")
    print()


def memory(asks: list[bytes], port: int, pid: int, requests: int) -> None:
    """Resident memory of the server after a tenth of the requests and after all."""
    early = max(requests // 10, 1)
    started = time.perf_counter()
    answers = asyncio.run(many_clients(asks, port, 8, count=early))
    before = resident(pid)
    answers += asyncio.run(many_clients(asks, port, 8, count=requests - early))
    after = resident(pid)
    errors = sum(status != 200 for _, _, status in answers)
    print(f"{len(answers):,} requests in {time.perf_counter() - started:.0f} s, {errors} errors")
    growth = 100 * (after / before - 1)
    print(
        f"  resident: {before:.1f} MB after {early:,}, {after:.1f} MB after all: {growth:+.1f} %   (goal: at most 5 %)"
    )


# -- Everything at once --------------------------------------------------------------------------


def pressure(told: argparse.Namespace) -> None:
    """Every kind of request to a model of the user's, beside idle and half-open connections: is the process alive?"""
    model = cd.load(told.model)
    with serving(model, workers=told.workers, threads=told.threads) as (port, pid):
        asks = everything(model, port)
        with Pulse(port) as alone:
            time.sleep(5)
        alone.tell("liveness, alone")
        with Pulse(port) as pulse, crowd(port, told.idle, told.half_open):
            answers = asyncio.run(many_clients(asks, port, told.clients, until=time.perf_counter() + told.seconds))
        before = resident(pid)
        tell(f"{told.clients} clients for {told.seconds:g} s", answers)
        pulse.tell("liveness meanwhile")
        with Pulse(port) as pulse:
            answers = asyncio.run(many_clients(asks, port, told.clients, count=told.requests))
        after = resident(pid)
        tell("then, without the crowd", answers)
        pulse.tell("liveness meanwhile")
        print(f"resident: {before:.0f} MB after the first, {after:.0f} MB after the second")


def everything(model: cd.LowRankDPP, port: int) -> list[bytes]:
    """Questions of every kind about baskets of the commonest items, small ones far more often than dear ones."""
    rng = np.random.default_rng(0)
    common = [model.items_[code] for code in np.argsort(-model.item_counts_)[:2000]]
    pick = lambda n: [common[at] for at in rng.choice(len(common), n, replace=False)]  # noqa: E731
    asks = []
    for _ in range(100):
        basket = pick(int(rng.integers(1, 12)))
        asks += [request(port, basket)] * 6
        asks += [request(port, basket, path="/v1/slate"), request(port, basket, why=True)]
        asks += [request(port, basket, rank_by="lift"), request(port, basket, path="/v1/complete")]
        asks += [f"GET /v1/items?query={'abcdefgh'[len(asks) % 8]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()]
    score = json.dumps({"baskets": [pick(10) for _ in range(50)]})
    asks += [post(port, "/v1/score", score)] * 20
    asks += [post(port, "/v1/recommend", json.dumps({"baskets": [pick(8) for _ in range(50)]}))] * 5
    asks += [post(port, "/v1/sample", json.dumps({"n_samples": 2, "size": 5}))] * 5
    asks += [b"GET /v1/map?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n"] * 5
    rng.shuffle(asks)
    return asks


def tell(name: str, answers: list[Answer]) -> None:
    """How many were answered how, and how fast."""
    statuses = dict(Counter(status for _, _, status in answers).most_common())
    p50, p99 = np.percentile([1000 * took for took, _, _ in answers], (50, 99))
    print(f"{name}: {len(answers):,} requests, by status {statuses}   (goal: no 5xx but 503); ", end="")
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)


class Pulse:
    """Asks every 20 ms on a new connection whether the process is alive, from a process of its own."""

    def __init__(self, port: int) -> None:
        self._words = [sys.executable, "-c", FEEL, str(port)]

    def __enter__(self) -> Pulse:
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        out, _ = self._process.communicate(b"\n")
        self.took = np.array(json.loads(out))

    def tell(self, name: str) -> None:
        """The times of all answers; a lost one is infinite."""
        p50, p99 = np.percentile(self.took, (50, 99))
        lost = int(np.isinf(self.took).sum())
        print(f"  {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {self.took.max():.1f} ms ", end="")
        print(f"(goal: 100), {lost} of {len(self.took):,} lost", flush=True)


FEEL = """
import json, select, socket, sys, time
took = []
while not select.select([sys.stdin], [], [], 0.02)[0]:
    started = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10) as line:
            line.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
            good = line.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        good = False
    took.append(1000 * (time.perf_counter() - started) if good else float("inf"))
print(json.dumps(took))
"""


@contextmanager
def crowd(port: int, idle: int, half_open: int) -> Iterator[None]:
    """Connections that say nothing, or only begin to, for the time of the block."""
    with ExitStack() as lines:
        for number in range(idle + half_open):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            if number >= idle:
                line.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: loc")
        yield


# -- A client that costs little ------------------------------------------------------------------

CLOSING = (408, 413, 504)  # answers after which the server closes the connection
Answer = tuple[float, float, int]  # seconds for the client, milliseconds in the server, status


def request(port: int, basket: list[int], path: str = "/v1/recommend", **more: object) -> bytes:
    """The bytes of one question about a basket."""
    return post(port, path, json.dumps({"basket": basket, "n": SUGGESTIONS, **more}))


def post(port: int, path: str, body: str) -> bytes:
    """The bytes of one request."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: bytes) -> Answer:
    """Send one question on an open connection and wait for the whole answer."""
    started = time.perf_counter()
    writer.write(question)
    head = await reader.readuntil(b"\r\n\r\n")
    length, timing = LENGTH.search(head), TIMING.search(head)
    await reader.readexactly(int(length[1]) if length else 0)
    return time.perf_counter() - started, float(timing[1]) if timing else 0.0, int(head[9:12])


async def one_client(asks: list[bytes], port: int) -> list[Answer]:
    """All questions, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = [await ask(reader, writer, question) for question in asks]
    writer.close()
    return answers


async def many_clients(
    asks: list[bytes], port: int, clients: int, *, until: float = float("inf"), count: int = sys.maxsize
) -> list[Answer]:
    """Questions from several connections until the time is over or the count is reached; a lost one has status 0."""
    answers: list[Answer] = []
    left = count

    async def client(number: int) -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0 and time.perf_counter() < until:
            left -= 1
            number += clients
            try:
                answers.append(await ask(reader, writer, asks[number % len(asks)]))
                if answers[-1][2] in CLOSING:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except (OSError, asyncio.IncompleteReadError):
                answers.append((0.0, 0.0, 0))
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return answers


# -- The server ----------------------------------------------------------------------------------


@contextmanager
def serving(model: cd.LowRankDPP, *, workers: int, threads: int, more: Sequence[str] = ()) -> Iterator[tuple[int, int]]:
    """A server process for the model: its port and its process id."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        options = ["--port", str(port), "--workers", str(workers), "--n-jobs", str(threads), "--no-access-log", *more]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen([sys.executable, "-c", SERVE, str(path), *options], stdout=log, stderr=log)
        try:
            wait_for(port, process)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(30)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the server accepts connections."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def resident(pid: int) -> float:
    """Megabytes of memory of a process and its children."""
    pids = [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    texts = [Path(f"/proc/{one}/status").read_text() for one in pids]
    return sum(int(re.search(r"VmRSS:\s+(\d+)", text)[1]) for text in texts) / 1024  # type: ignore[index]


if __name__ == "__main__":
    main()
