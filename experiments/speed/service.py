"""The service under load and under made-up requests. Everything runs on this machine over the loopback."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import contradpp as cd
from experiments.speed.timing import head, row, seconds

# the Belgian data's size
ITEMS = 16_470
COMPONENTS = 76
BASKET = 10
SUGGESTIONS = 10

# -- Load ----------------------------------------------------------------------------------------------


@click.command()
@click.option("--clients", default=32, show_default=True)
@click.option("--seconds", "duration", default=60.0, show_default=True, help="Of the load.")
@click.option("--requests", "count", default=100_000, show_default=True, help="Of the memory run.")
@click.option("--calls", default=600, show_default=True, help="Of the comparison with the in-process call.")
@click.option("--workers", default=1, show_default=True)
@click.option("--threads", default=1, show_default=True, help="Of one model call.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True)
@click.option("--model", "file", type=click.Path(exists=True, path_type=Path), help="Ask a model of yours everything.")
@click.option("--idle", default=500, show_default=True, help="With --model: connections that say nothing.")
@click.option("--half-open", default=300, show_default=True, help="With --model: connections with half a head.")
def load(
    file: Path | None, dtype: str, workers: int, threads: int, clients: int, duration: float, **options: int
) -> None:
    """Measure the service: its time beside the in-process call, many clients for a minute, memory over many requests.

    With --model, every kind of request to that model, beside idle and half-open connections: does the process stay
    alive and small? All of it takes about seven minutes.
    """
    if file is not None:
        model = cd.load(file)
        with serving(model, workers=workers, threads=threads) as (port, pid):
            del options["calls"]
            pressure(everything(model, port), port, pid, clients, duration, **options)
        return
    rng = np.random.default_rng(0)
    model = cd.LowRankDPP.from_factors((0.05 * rng.normal(size=(ITEMS, COMPONENTS))).astype(dtype))
    baskets = [rng.choice(ITEMS, BASKET, replace=False).tolist() for _ in range(500)]
    with serving(model, workers=workers, threads=threads) as (port, pid):
        asks = [request(port, basket) for basket in baskets]
        one_at_a_time(model, baskets, asks, port, options["calls"], threads)
        head("run", *COLUMNS)
        answers = asyncio.run(many_clients(asks, port, clients, until=time.perf_counter() + duration))
        tell(f"{clients} clients for {duration:g} s", answers, pid)
        early = max(options["count"] // 10, 1)
        for name, n in (("the first tenth", early), ("the others", options["count"] - early)):
            tell(name, asyncio.run(many_clients(asks, port, 8, count=n)), pid)


def one_at_a_time(
    model: cd.LowRankDPP, baskets: list[list[int]], asks: list[bytes], port: int, calls: int, threads: int
) -> None:
    """Time one call at a time, in process and over HTTP by turns, so that both see the same machine."""
    times: dict[str, list[float]] = {
        "in process, all threads": [], f"in process, n_jobs={threads}": [],
        "in the server (Server-Timing)": [], "seen by the client": [],
    }  # fmt: skip
    every, some, served, whole = times.values()
    model.recommend(baskets[0], N=SUGGESTIONS)
    asyncio.run(many_clients(asks, port, 1, count=50))
    for first in range(0, calls, 25):
        block = [(first + at) % len(baskets) for at in range(25)]
        for n_jobs, found in ((None, every), (threads, some)):
            model.n_jobs = n_jobs
            found += [1000 * seconds(lambda at=at: model.recommend(baskets[at], N=SUGGESTIONS)) for at in block]  # type: ignore[misc]
        answers = asyncio.run(many_clients([asks[at] for at in block], port, 1, count=25))
        served += [one.in_server for one in answers]
        whole += [one.took for one in answers]
    head(f"one request at a time, {calls} of each", "p50 ms", "p99 ms")
    for name, found in times.items():
        row(name, *(f"{cell:.2f}" for cell in np.percentile(found, (50, 99))))
    best = min(np.median(every), np.median(some))
    click.echo(f"\nserver / fastest in-process p50: {np.median(served) / best:.2f} (goal: at most 2.5)\n")


def pressure(
    asks: list[bytes], port: int, pid: int, clients: int, duration: float, *, count: int, idle: int, half_open: int
) -> None:
    """Send all requests with and without idle and half-open connections, and check that the process answers."""
    alone = pulse(port, lambda: time.sleep(5))[1]

    def with_crowd() -> list[Answer]:
        with crowd(port, idle, half_open):
            return asyncio.run(many_clients(asks, port, clients, until=time.perf_counter() + duration))

    head("run", *COLUMNS, "liveness p50, p99, most (goal: 100 ms)", "lost")
    tell("nothing", [], pid, *alone)
    for name, work in {
        f"{clients} clients for {duration:g} s, with the crowd": with_crowd,
        "then, without it": lambda: asyncio.run(many_clients(asks, port, clients, count=count)),
    }.items():
        answers, alive = pulse(port, work)
        tell(name, answers, pid, *alive)


def everything(model: Any, port: int) -> list[bytes]:
    """Make requests of every kind about baskets of the commonest items, small ones far more often than dear ones."""
    rng = np.random.default_rng(0)
    common = [model.items_[code] for code in np.argsort(-model.item_counts_)[:2000]]

    def pick(n: int) -> list[Any]:
        return [common[at] for at in rng.choice(len(common), n, replace=False)]

    asks = []
    for _ in range(100):
        basket = pick(int(rng.integers(1, 12)))
        asks += [request(port, basket)] * 6
        asks += [request(port, basket, path="/v1/slate"), request(port, basket, why=True)]
        asks += [request(port, basket, rank_by="lift"), request(port, basket, path="/v1/complete")]
        asks += [f"GET /v1/items?query={'abcdefgh'[len(asks) % 8]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()]
    asks += [post(port, "/v1/score", {"baskets": [pick(10) for _ in range(50)]})] * 20
    asks += [post(port, "/v1/recommend", {"baskets": [pick(8) for _ in range(50)]})] * 5
    asks += [post(port, "/v1/sample", {"n_samples": 2, "size": 5})] * 5
    asks += [b"GET /v1/map?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n"] * 5
    rng.shuffle(asks)
    return asks


COLUMNS = ("requests", "by status (goal: 200 and 503)", "p50, p99 of clients", "p50, p99 in the server", "resident")


def tell(name: str, answers: list[Answer], pid: int, *more: str) -> None:
    """Print counts and times of a run, and the server's memory after it."""
    statuses = ", ".join(f"{status}: {n:,}" for status, n in Counter(one.status for one in answers).most_common())
    columns = ([one.took for one in answers], [one.in_server for one in answers])
    times = ["–" if not of else "{:.1f}, {:.1f} ms".format(*np.percentile(of, (50, 99))) for of in columns]
    row(name, f"{len(answers):,}", statuses, *times, f"{resident(pid):.1f} MB", *more)


def resident(pid: int) -> float:
    """Return the megabytes of memory of a process and its children."""
    pids = [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    texts = "".join(Path(f"/proc/{one}/status").read_text() for one in pids)
    return sum(map(int, re.findall(r"VmRSS:\s+(\d+)", texts))) / 1024


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


def pulse(port: int, work: Callable[[], Any]) -> tuple[Any, tuple[str, str]]:
    """Ask every 20 ms, from a process of its own, whether the server is alive; return the work's result and cells."""
    words = [sys.executable, "-c", FEEL, str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        result = work()
        took = np.array(json.loads(process.communicate(b"\n")[0]))
    p50, p99 = np.percentile(took, (50, 99))
    return result, (f"{p50:.1f}, {p99:.1f}, {took.max():.1f} ms", f"{np.isinf(took).sum()} of {len(took):,}")


@contextmanager
def crowd(port: int, idle: int, half_open: int) -> Iterator[None]:
    """Hold connections that say nothing, or only begin to."""
    with ExitStack() as lines:
        for number in range(idle + half_open):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            if number >= idle:
                line.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: loc")
        yield


# -- A client that costs little ------------------------------------------------------------------------

TIMING = re.compile(rb"app;dur=([0-9.]+)")
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CLOSING = (408, 413, 504)  # answers after which the server closes the connection


class Answer(NamedTuple):
    """Milliseconds for the client and in the server, and the status; a lost request has status 0."""

    took: float
    in_server: float
    status: int


def request(port: int, basket: list[int], path: str = "/v1/recommend", **more: object) -> bytes:
    """Return the bytes of a request about a basket."""
    return post(port, path, {"basket": basket, "n": SUGGESTIONS, **more})


def post(port: int, path: str, content: object) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps(content)
    lines = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{lines}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: bytes) -> Answer:
    """Send a request on an open connection and wait for the whole answer."""
    started = time.perf_counter()
    writer.write(question)
    answered = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(answered)
    timing = TIMING.search(answered)
    await reader.readexactly(int(length[1]) if length else 0)
    took = 1000 * (time.perf_counter() - started)
    return Answer(took, float(timing[1]) if timing else 0.0, int(answered[9:12]))


async def many_clients(
    asks: list[bytes], port: int, clients: int, *, until: float = float("inf"), count: int = sys.maxsize
) -> list[Answer]:
    """Send requests on several connections until the time is over or the count is reached."""
    answers: list[Answer] = []
    left = count

    async def client(number: int) -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0 and time.perf_counter() < until:
            left -= 1
            try:
                answers.append(await ask(reader, writer, asks[number % len(asks)]))
            except (OSError, asyncio.IncompleteReadError):
                answers.append(Answer(0.0, 0.0, 0))
            number += clients
            if answers[-1].status in (0, *CLOSING):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return answers


# -- The server ----------------------------------------------------------------------------------------

SERVE = "from contradpp.cli.serve import serve; serve()"


@contextmanager
def serving(model: Any, *, workers: int, threads: int, more: Sequence[str] = ()) -> Iterator[tuple[int, int]]:
    """Start a server process for the model; yield its port and its process id."""
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


# -- Made-up requests ----------------------------------------------------------------------------------

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance"


@click.command()
@click.option("--cases", default=250, show_default=True, help="For each endpoint, with and without known items.")
@click.option("--seed", default=0, show_default=True)
def fuzz_api(cases: int, seed: int) -> None:
    """Send made-up requests from our own OpenAPI document, right and wrong, to a server on the loopback.

    Half of them have items of the catalogue where a request names any: most made-up ones are not in it. A status above
    499, or an answer that differs from the document, fails.
    """
    shop = cd.datasets.load("grocer", n_baskets=2000, random_state=0)
    model = cd.LowRankDPP(n_components=20, max_iter=3, oversize="clip", random_state=0).fit(shop)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "openapi.json"
        more = ["--feedback", str(Path(folder) / "feedback.jsonl")]
        with serving(model, workers=1, threads=1, more=more) as (port, _):
            url = f"http://127.0.0.1:{port}"
            with urllib.request.urlopen(f"{url}/openapi.json") as answer:
                document = json.load(answer)
            for described in (document, with_items(document, [*shop.items[:12], "who?", 7])):
                file.write_text(json.dumps(described), encoding="utf-8")
                words = ["run", file, "--url", url, "--checks", CHECKS, "--phases", "fuzzing"]
                words += ["--max-examples", cases, "--seed", seed, "--suppress-health-check", "all"]
                command = [Path(sys.executable).with_name("schemathesis"), *words]
                failed += subprocess.run(list(map(str, command)), check=False, cwd=folder).returncode
    sys.exit(failed)


def with_items(document: dict[str, Any], items: list[Any]) -> dict[str, Any]:
    """Return the document with these items where a request names any."""
    found = copy.deepcopy(document)
    anything = [{"type": "string"}, {"type": "integer"}]

    def visit(part: Any) -> None:
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            visit(inner)
        if isinstance(part, dict) and part.get("anyOf") == anything:
            del part["anyOf"]
            part["enum"] = items

    for name, schema in found["components"]["schemas"].items():
        if name.endswith("Request"):
            visit(schema)
    return found
