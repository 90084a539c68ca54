"""Requests and connections meant to hold up the service: each does its large work beside the event loop, or none."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from contradpp.data.vocabulary import Lookup
from contradpp.serve import routes, snapshot
from contradpp.serve.app import create_app
from contradpp.serve.options import Limits, ServiceSettings
from experiments.speed.hostile import hostile_bodies
from serve.live import connect, other_shop, small_shop, wait_until

HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
BODIES = hostile_bodies(list(small_shop().items_))
PROTECTED = [
    (method.upper(), path)
    for path, methods in create_app(ServiceSettings(model="none")).openapi()["paths"].items()
    for method, operation in methods.items()
    if "security" in operation
]

# -- Requests ------------------------------------------------------------------------------------


@pytest.fixture
def in_loop(monkeypatch) -> list[tuple[str, int]]:
    """The steps that a request has in the event loop, each with the number of entries it works on."""
    steps: list[tuple[str, int]] = []

    def watch(where, name, size):
        plain = getattr(where, name)

        def watched(*args, **kwargs):
            if not threading.current_thread().name.startswith("contradpp-"):
                steps.append((name, size(*args, **kwargs)))
            return plain(*args, **kwargs)

        monkeypatch.setattr(where, name, watched)

    watch(routes, "parse", lambda _, body, *__: len(body))
    watch(snapshot.ModelSnapshot, "resolve", lambda _, words: len(words))
    watch(snapshot.ModelSnapshot, "rerank", lambda _, candidates, **__: len(candidates))
    watch(snapshot.ModelSnapshot, "sample", lambda *_, **__: 10**6)
    watch(snapshot.ModelSnapshot, "slate", lambda _, baskets, n, **__: len(baskets) * n)
    watch(snapshot.ModelSnapshot, "complete", lambda _, basket, n, candidates, exclude: len(exclude))
    return steps


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_request_is_answered_and_does_nothing_large_in_the_event_loop(live, in_loop, name):
    path, body = BODIES[name]
    response = live.client.post(path, content=body, headers={"content-type": "application/json"}, timeout=60)
    assert response.status_code in (200, 400, 404, 422, 504)
    assert len(response.content) < 500 or response.status_code == 200
    assert all(size <= 30_000 for step, size in in_loop if step == "parse")
    assert all(size <= 1000 for step, size in in_loop if step != "parse")


@pytest.mark.parametrize(("method", "path"), PROTECTED)
def test_the_token_is_asked_for_before_the_body_comes(start, method, path):
    server = start(token="sesame")
    with connect(server.url) as line:
        line.sendall(HEAD.format(path, 1000).replace("POST", method).encode())
        assert line.recv(100).startswith(b"HTTP/1.1 401")


def test_every_way_to_change_something_is_protected():
    assert {path for _, path in PROTECTED} == {"/v1/feedback", "/v1/items", "/v1/reload"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"pills": 1}),
        ("/v1/slate", {"basket": [], "at_most": {"pills": 1}}),
        ("/v1/slate", {"basket": [], "at_most": {"pills": "many"}}),
        ("/v1/items", {"items": [{"item": "x", "pills": 1}]}),
        ("/v1/items", {"items": [{"item": "x", "features": {"pills": []}}]}),
        ("/v1/rerank", {"candidates": [1], "scores": [1], "categories": {"pills": 1}}),
        ("/v1/rerank", {"candidates": ["pills"], "scores": [1]}),
        ("/v1/recommend", {"basket": [], "rank_by": "pills"}),
    ],
)
def test_an_error_names_no_key_and_no_category_that_was_asked(live, path, body):
    response = live.post(path, body)
    assert response.status_code == 422
    assert "pills" not in response.text


def test_an_error_says_where_it_is(live):
    wrong = {"items": [{"item": "x", "features": {"pills": []}}]}
    assert live.post("/v1/items", wrong).json()["error"]["message"].startswith("items.0.features: ")
    wrong = {"baskets": [["limes"], ["limes", None]]}
    assert "baskets.1: " in live.post("/v1/score", wrong).json()["error"]["message"]
    assert "basket, baskets" in live.post("/v1/score", {"baskt": []}).json()["error"]["message"]


def test_a_long_integer_is_found_only_as_it_is():
    lookup = Lookup(other_shop().items_)
    assert lookup.find(10**200) is None
    assert Lookup(snapshot.Vocabulary([10**200, 7])).find(10**200) == 10**200
    assert Lookup(snapshot.Vocabulary(["-1", 7])).find(-1) == "-1"


# -- Connections ---------------------------------------------------------------------------------


def silent(url: str) -> socket.socket:
    """A connection of a client that reads next to nothing."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = url.removeprefix("http://").split(":")
    line.connect((host, int(port)))
    line.settimeout(10)
    return line


def await_body(line: socket.socket) -> None:
    """Read the head of an answer: a server that still computes need not make way for anyone."""
    head = b""
    while b"\r\n\r\n{" not in head:
        head += line.recv(1) or pytest.fail(f"the connection was closed after {head!r}")


SEARCH = b"GET /v1/items?limit=300 HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = json.dumps({"baskets": [[]] * 256, "n": 315}).encode()
LONG = HEAD.format("/v1/recommend", len(BODY)).encode() + BODY  # an answer beyond the buffers of the system
HALF = HEAD.format("/v1/score", 100).encode() + b"{"


@pytest.mark.parametrize("sent", [b"", b"GET /", HALF, SEARCH * 500, LONG, LONG * 3])
def test_clients_that_keep_the_server_waiting_make_way_for_a_new_one(start, sent):
    server = start(limits=Limits(connections=8))
    with ExitStack() as stack:
        for _ in range(12):
            line = stack.enter_context(silent(server.url))
            line.sendall(sent)
            if sent.endswith((SEARCH, LONG)):
                await_body(line)
        for _ in range(3):
            with connect(server.url) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert line.recv(100).startswith(b"HTTP/1.1 200")


def received(line: socket.socket) -> int:
    """The bytes of an answer until the connection is closed or the answer ends."""
    total = 0
    with suppress(ConnectionResetError):
        while more := line.recv(1 << 20):
            total += len(more)
            if more.endswith(b"]}]}"):
                break
    return total


def test_an_answer_that_no_one_reads_is_given_up(start):
    server = start(limits=Limits(timeout=4.0))
    with silent(server.url) as line:
        line.sendall(LONG)
        assert received(line) > 5_000_000
        line.sendall(LONG)
        line.recv(1)
        time.sleep(8)
        assert received(line) < 5_000_000


def test_the_answers_that_wait_to_be_sent_are_bounded(start):
    server = start(limits=Limits(unsent_bytes=1_000_000))
    with silent(server.url) as slow, silent(server.url) as fast:
        slow.sendall(LONG)
        slow.recv(1)
        fast.sendall(LONG)
        assert received(fast) > 5_000_000
        assert received(slow) < 5_000_000


def test_pipelined_requests_are_answered_in_turn_when_those_before_are_read(live):
    with silent(live.url) as line:
        line.sendall(SEARCH * 50 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        whole = b""
        while more := line.recv(1 << 20):
            whole += more
    assert whole.count(b"HTTP/1.1 200") == 51
    assert whole.endswith(b'{"ready":true}')


# -- Files ---------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_keep_their_permissions_and_feedback_is_private(start):
    def mode(path):
        return stat.S_IMODE(path.stat().st_mode)

    server = start()
    model = server.service.snapshot.model
    assert mode(server.model_path) & 0o400
    server.model_path.chmod(0o600)
    server.service.reloader.edit(lambda _: None)
    assert mode(server.model_path) == 0o600
    server.model_path.chmod(0o666)
    model.save(server.model_path)
    assert mode(server.model_path) == 0o666
    event = {"outcome": "accepted", "items": ["limes"]}
    assert server.post("/v1/feedback", event).status_code == 200
    assert mode(server.feedback_path) == 0o600
    wait_until(lambda: server.get("/readyz").status_code == 200)
