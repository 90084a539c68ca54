"""A server that runs in a thread of the test, and a shop for it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import uvicorn

import contradpp as cd
from contradpp.data.grocer import catalog
from contradpp.serve.app import create_app
from contradpp.serve.options import ServiceSettings
from contradpp.serve.server import uvicorn_options

RANK = 12


@dataclass
class Live:
    """A server that runs: where it is, and the files it was told of."""

    url: str
    client: httpx.Client
    model_path: Path
    feedback_path: Path
    service: object

    def post(self, path: str, body: object, headers: object = None) -> httpx.Response:
        kind = {"content-type": "application/json"}
        return self.client.post(path, content=json.dumps(body), headers=kind | (headers or {}))

    def get(self, path: str, **params: object) -> httpx.Response:
        return self.client.get(path, params=params)


def small_shop(seed: int = 0) -> cd.LowRankDPP:
    """The supermarket's products with popular ones first and random directions."""
    products = list(catalog().products)
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(len(products), RANK))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = 0.6 / np.sqrt(1.0 + 0.1 * np.arange(len(products)))
    return cd.LowRankDPP.from_factors(directions * lengths[:, None], items=products)


def other_shop(seed: int = 1) -> cd.LowRankDPP:
    """Thirty other items."""
    return cd.LowRankDPP.from_factors(
        np.random.default_rng(seed).normal(size=(30, 5)), items=[f"p{i}" for i in range(30)]
    )


@contextlib.contextmanager
def running(settings: ServiceSettings, *, port: int = 0) -> Iterator[Live]:
    """Serve until the block ends."""
    app = create_app(settings)
    config = uvicorn.Config(app, **uvicorn_options(settings.limits) | {"timeout_graceful_shutdown": 2})
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
                yield Live(url, client, Path(settings.model), Path(settings.feedback or ""), app.state.service)
        finally:
            server.should_exit = True
            thread.join(10)


def launch(words: Callable[[int], list[str]], log: Path) -> tuple[subprocess.Popen, str]:
    """A server as a process, `words(port)` being the arguments of Python; its process and address, once it is ready.

    The port was free a moment before; where another process took it in between, another one is tried.
    """
    for _ in range(3):
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = int(found.getsockname()[1])
        with log.open("w") as output:
            process = subprocess.Popen([sys.executable, *words(port)], stdout=output, stderr=output)
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                    return process, url
            time.sleep(0.1)
        process.kill()
        process.wait(60)
        if "in use" not in log.read_text():
            break
    raise AssertionError(log.read_text())


def connect(url: str) -> socket.socket:
    """A connection on which nothing was said."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something to become true, and fail if it does not."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)
