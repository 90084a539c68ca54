"""Requests and connections meant to hold up the service: does it stay alive? All over the loopback."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import contradpp as cd
from experiments.speed.service import Answer, many_clients, pulse, serving, tell
from experiments.speed.timing import head

MEGABYTE = 999_000  # bytes of a body just within the limit
HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def hostile_bodies(items: Sequence[Any]) -> dict[str, tuple[str, str]]:
    """Return paths and bodies of dear requests by their names, all of at most a megabyte.

    Some are right and as large as they may be, others wrong in as many places as fit.
    """
    known = list(items)

    def many(entry: object) -> str:
        text = json.dumps(entry)
        return ",".join([text] * (MEGABYTE // (len(text) + 1) - 40))

    def of(path: str, **content: object) -> tuple[str, str]:
        return path, json.dumps(content, separators=(",", ":"))

    unknown = [[10**9 + 1000 * row + i for i in range(70)] for row in range(256)]
    short = [[-(i % 99) - 1 for i in range(999)] for _ in range(256)]
    listed = [known[i % len(known)] for i in range(20_000)]
    distinct = list(dict.fromkeys([*known, *range(-30_000, 0)]))[:20_000]
    keys = ",".join(f'"{i}":[]' for i in range(90_000))
    features = ",".join(f'"{i}":[]' for i in range(80_000))
    scores = list(range(20_000))
    bodies = {
        "score: unknown integers": of("/v1/score", baskets=short),
        "score: long unknown integers": of("/v1/score", basket=[10**3900 + i for i in range(250)]),
        "score: known items": of("/v1/score", baskets=[known[:40]] * 256),
        "recommend: unknown integers": of("/v1/recommend", baskets=unknown),
        "recommend: 256 baskets, n=500, why": of("/v1/recommend", baskets=[known[:3]] * 256, n=500, why=True),
        "recommend: 1,000 items, n=500, why": of("/v1/recommend", basket=known[:1000], n=500, why=True),
        "recommend: 20,000 excluded and candidates": of(
            "/v1/recommend", basket=known[:3], exclude=distinct[::2], candidates=listed
        ),
        "slate: 256 baskets": of("/v1/slate", baskets=[known[:3]] * 256, n=10),
        "slate: 20,000 candidates": of("/v1/slate", basket=known[:3], candidates=listed, n=50),
        "rerank: 20,000 candidates": of("/v1/rerank", candidates=distinct, scores=scores[: len(distinct)], k=10),
        "rerank: 20,000 candidates, unknown given": of(
            "/v1/rerank", candidates=scores, scores=scores, k=100, given=unknown[0], diversity=0.9
        ),
        "rerank: 20,000 vectors": of(
            "/v1/rerank", candidates=scores, scores=scores, k=50, vectors=[[i % 7, 1] for i in scores]
        ),
        "complete: n=500": of("/v1/complete", basket=known[:2], n=500, exclude=listed),
        "sample: 100": of("/v1/sample", n_samples=100),
        "feedback: 1,000 unknown": of("/v1/feedback", outcome="accepted", items=unknown[0] * 14),
        "entries of the wrong type": ("/v1/recommend", f'{{"basket":[{many(None)}]}}'),
        "floats for items": ("/v1/score", f'{{"basket":[{many(1.5)}]}}'),
        "wrong lists": ("/v1/score", f'{{"baskets":[{many([[]])}]}}'),
        "wrong entries of allowed length": of("/v1/score", baskets=[[None] * 700] * 256),
        "wrong feedback": ("/v1/feedback", f'{{"outcome":"shown","items":[{many([])}]}}'),
        "wrong positions": ("/v1/feedback", f'{{"outcome":"shown","items":[1],"positions":[{many(-1)}]}}'),
        "wrong vectors": ("/v1/rerank", f'{{"candidates":[1],"scores":[1],"vectors":[[{many("x")}]]}}'),
        "wrong scores": ("/v1/rerank", f'{{"candidates":[1],"scores":[{many("x")}]}}'),
        "wrong categories": ("/v1/rerank", f'{{"candidates":[1],"scores":[1],"categories":[{many(1)}]}}'),
        "wrong caps": ("/v1/slate", f'{{"basket":[],"at_most":{{{keys}}}}}'),
        "unknown fields": ("/v1/score", f"{{{keys}}}"),
        "wrong new items": ("/v1/items", f'{{"items":[{many({"item": [], "name": 1})}]}}'),
        "wrong features": ("/v1/items", f'{{"items":[{{"item":"x","features":{{{features}}}}}]}}'),
        "nested lists": ("/v1/score", "[" * MEGABYTE),
        "empty lists": ("/v1/score", f"[{many([])}]"),
        "empty objects": ("/v1/score", f'{{"basket":[{many({})}]}}'),
        "digits": ("/v1/score", f'{{"basket":[{"9" * 900_000}]}}'),
        "no JSON": ("/v1/score", "x" * MEGABYTE),
        "a reload": ("/v1/reload", f"[{many([])}]"),
        "no path": ("/nowhere", f"[{many([])}]"),
    }
    assert all(len(body) <= 1_000_000 for _, body in bodies.values()), {n: len(b) for n, (_, b) in bodies.items()}
    return bodies


def as_bytes(path: str, body: str) -> bytes:
    """Return a request for the wire."""
    return (HEAD.format(path, len(body)) + body).encode()


@click.command()
@click.option("--clients", default=32, show_default=True)
@click.option("--seconds", "duration", default=4.0, show_default=True, help="Of each kind of request.")
@click.option("--only", default="", help="Kinds whose name contains this.")
@click.option("--token", is_flag=True, help="Start the server with a token, which no request has.")
@click.option("--items", default=20_000, show_default=True, help="Of the catalog of a random kernel.")
@click.option("--model", "file", type=click.Path(exists=True, path_type=Path), help="A model file in its place.")
def attack(clients: int, duration: float, only: str, token: bool, items: int, file: Path | None) -> None:
    """Send every kind of hostile request by many clients at once, and take the pulse of the service meanwhile.

    The goal for liveness: p99 of 50 ms, at most 250 ms. Connections that do not read or do not end their body follow.
    """
    rng = np.random.default_rng(0)
    model = cd.load(file) if file else cd.LowRankDPP.from_factors(0.05 * rng.normal(size=(items, 60)))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        more = ["--feedback", str(folder / "log"), *(["--token", "sesame"] if token else [])]
        port, pid = stack.enter_context(serving(model, workers=1, threads=1, more=more))
        head("run", "requests", "by status", "p50, p99 of clients", "p50, p99 in the server", "resident",
             "liveness p50, p99, most", "lost")  # fmt: skip
        tell("nothing", [], pid, *pulse(port, lambda: time.sleep(2))[1])
        known = [model.items_[code] for code in range(min(len(model.items_), 20_000))]
        kinds = {name: as_bytes(*content) for name, content in hostile_bodies(known).items()}
        for name, sent in kinds.items():
            if only in name:
                run(name, partial(send, sent, port, clients, duration), port, pid)
        long = kinds["recommend: 256 baskets, n=500, why"]
        small = b"GET /v1/items?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        part = HEAD.format("/v1/score", 100).encode() + b"{"
        held = {
            "connections: 540 pipeline 120 requests, read nothing": (540, small * 120),
            "connections: 60 ask for a long answer, read nothing": (60, long * 2),
            "connections: 700 with one byte of a body": (700, part),
        }
        for name, (count, sent) in held.items():
            if only in name:
                run(name, partial(hold, port, count, sent, 15.0), port, pid)


def run(name: str, work: Callable[[], list[Answer]], port: int, pid: int) -> None:
    answers, alive = pulse(port, work)
    tell(name, answers, pid, *alive)


def send(sent: bytes, port: int, clients: int, duration: float) -> list[Answer]:
    return asyncio.run(many_clients([sent], port, clients, until=time.perf_counter() + duration))


def hold(port: int, count: int, sent: bytes, seconds: float) -> list[Answer]:
    """Send on connections that are never read, and open again those that were closed."""
    lines: list[socket.socket] = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            while len(lines) < count and time.monotonic() < until:
                line = socket.create_connection(("127.0.0.1", port), timeout=10)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.setblocking(False)
                lines.append(line)
                with suppress(OSError):
                    line.send(sent)
            time.sleep(0.2)
    finally:
        for line in lines:
            line.close()
    return []
