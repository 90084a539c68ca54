"""What the service refuses, and how: sizes, times, tokens, foreign content."""

from __future__ import annotations

import json
import threading

import pytest

from contradpp.errors import ParameterError
from contradpp.serve.options import Limits, ServiceSettings, beyond_loopback
from contradpp.serve.schemas import ErrorAnswer
from serve.live import connect, wait_until

HEAD = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def refused(response, status: int) -> str:
    assert response.status_code == status, response.text
    return ErrorAnswer.model_validate(response.json()).error.message


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/recommend", {"basket": ["x"] * 1001}),
        ("/v1/recommend", {"baskets": [[]] * 257}),
        *(("/v1/recommend", {"basket": [], "n": n}) for n in (501, 0, 2.5, True)),
        ("/v1/recommend", {"basket": [], "exclude": ["x"] * 20_001}),
        ("/v1/recommend", {"basket": [], "baskets": []}),
        ("/v1/recommend", {}),
        *(("/v1/recommend", {"basket": basket}) for basket in ([True], [1.5], [None], [["x"]], "bananas")),
        ("/v1/recommend", {"baskt": []}),
        ("/v1/complete", {"n": 501}),
        ("/v1/complete", {"size": 10**9}),
        ("/v1/complete", {"n": -1}),
        ("/v1/sample", {"n_samples": 101}),
        ("/v1/sample", {"seed": -1}),
        ("/v1/feedback", {"outcome": "liked", "items": ["limes"]}),
        ("/v1/feedback", {"outcome": "accepted", "items": []}),
        ("/v1/feedback", {"outcome": "accepted", "items": ["who?"]}),
        ("/v1/feedback", {"outcome": "accepted", "items": ["limes"], "basket": ["limes"]}),
    ],
)
def test_a_request_that_is_wrong_or_asks_too_much_is_refused_with_a_reason(live, path, body):
    assert refused(live.post(path, body), 422)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b'{"basket": [], "n": NaN}', 422),
        (b'{"basket": [], "rank_by": Infinity}', 422),
        (b"\xff\xfe\x00", 400),
        (b'{"basket": [' + b"9" * 5000 + b"]}", 400),
        (b"[" * 100_000, 400),
        (b"", 422),
    ],
)
def test_a_body_that_is_no_json_is_refused(live, body, status):
    response = live.client.post("/v1/recommend", content=body, headers={"content-type": "application/json"})
    assert refused(response, status)


def test_an_error_does_not_repeat_what_was_asked(live):
    response = live.post("/v1/recommend", {"basket": [{"secret": "pills"}]})
    assert "pills" not in response.text


def test_half_a_surrogate_pair_is_an_unknown_item_or_a_bad_field_not_a_failure(live):
    headers = {"content-type": "application/json"}
    fine = live.client.post("/v1/recommend", content=b'{"basket": ["\\ud800"]}', headers=headers)
    assert fine.json()["results"][0]["unknown"] == ["\ud800"]
    assert refused(live.client.post("/v1/score", content=b'{"\\ud800": 1}', headers=headers), 422)


def test_the_body_must_be_declared_as_json(live):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        response = live.client.post("/v1/score", content=b'{"basket": []}', headers={"content-type": kind})
        assert refused(response, 415)


def test_a_long_body_is_refused_told_or_untold(live):
    body = json.dumps({"basket": [], "exclude": ["x" * 1000] * 1100}).encode()
    headers = {"content-type": "application/json"}
    assert refused(live.client.post("/v1/recommend", content=body, headers=headers), 413)
    pieces = (body[at : at + 50_000] for at in range(0, len(body), 50_000))
    assert refused(live.client.post("/v1/recommend", content=pieces, headers=headers), 413)
    assert live.get("/healthz").status_code == 200


def test_a_body_far_too_long_is_not_even_read(live):
    with connect(live.url) as line:
        line.sendall(HEAD + b"Content-Length: 99999999\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_given_up(start):
    server = start(limits=Limits(timeout=0.5))
    with connect(server.url) as line:
        line.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert line.recv(100).startswith(b"HTTP/1.1 408")


def test_work_that_takes_too_long_is_answered_with_504_and_too_much_of_it_with_503(start, monkeypatch):
    server = start(limits=Limits(timeout=0.8, pending=1))
    snapshot, release = server.service.snapshot, threading.Event()
    assert server.post("/v1/score", {"basket": []}).status_code in (200, 504)  # the first may have to compile
    monkeypatch.setattr(type(snapshot), "sample", lambda *_, **__: release.wait(20) and [])
    assert "0.8 seconds" in refused(server.post("/v1/sample", {}), 504)
    busy = server.post("/v1/sample", {})
    assert refused(busy, 503)
    assert busy.headers["retry-after"] == "1"
    wait_until(lambda: server.post("/v1/score", {"basket": []}).status_code == 200, 60)
    release.set()


def test_an_unforeseen_failure_is_a_500_that_tells_nothing(start, monkeypatch, caplog):
    server = start()
    snapshot = server.service.snapshot
    monkeypatch.setattr(type(snapshot), "scores", lambda *_: 1 / 0)
    message = refused(server.post("/v1/score", {"basket": []}), 500)
    assert "division" not in message
    assert "ZeroDivisionError" in caplog.text


# -- The token -----------------------------------------------------------------------------------


def test_feedback_and_reload_need_the_token_and_nothing_else_does(start):
    server = start(token="sesame")
    event = {"outcome": "accepted", "items": ["limes"]}
    wrong = ({}, {"authorization": "Bearer sesam"}, {"authorization": "Basic sesame"}, {"authorization": "Bearer \xe9"})
    for headers in wrong:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        response = server.post("/v1/feedback", event, headers=encoded)
        assert refused(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"
        assert refused(server.client.post("/v1/reload", headers=encoded), 401)
    assert not server.feedback_path.exists()
    right = {"authorization": "Bearer sesame"}
    assert server.post("/v1/feedback", event, headers=right).json()["stored"] is True
    assert server.client.post("/v1/reload", headers=right).json()["changed"] is False
    assert server.post("/v1/score", {"basket": []}).status_code == 200
    assert server.get("/v1/model").json()["token_required"] is True


def test_the_token_is_neither_shown_nor_written_into_the_settings_variable():
    settings = ServiceSettings(model="m", token="sesame")
    assert "sesame" not in repr(settings)
    environment = settings.to_environment()
    assert "sesame" not in environment["CONTRADPP_SERVE"]


def test_settings_survive_the_way_to_a_worker(monkeypatch):
    settings = ServiceSettings(model="m", token="sesame", limits=Limits(batch=3), feedback="f", hosts=("a.x", "*.b"))
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert ServiceSettings.from_environment() == settings


@pytest.mark.parametrize("token", ["", "  ", "é", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused(token):
    with pytest.raises(ParameterError, match="token"):
        ServiceSettings(model="m", token=token)


def test_limits_and_names_that_cannot_be_are_refused():
    with pytest.raises(ParameterError, match="batch"):
        Limits(batch=0)
    for name in ("a*", "*a", "a.*.b"):
        with pytest.raises(ParameterError, match="host name"):
            ServiceSettings(model="m", hosts=(name,))


@pytest.mark.parametrize(
    ("host", "beyond"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("localhost", False), ("0.0.0.0", True),
     ("::", True), ("10.0.0.7", True), ("shop.example", True)],
)  # fmt: skip
def test_which_hosts_others_can_reach(host, beyond):
    assert beyond_loopback(host) is beyond


# -- Headers, logs, paths ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/v1/model", "/nowhere", "/docs", "/app.js"])
def test_every_answer_carries_the_security_headers(live, path):
    headers = live.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["server-timing"].startswith("app;dur=")


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/%2e%2e/app.py", "/static/app.js", "/app.py", "/app.js/../../app.py", "//etc/passwd"],
)
def test_only_the_pages_own_files_are_served(live, path):
    with connect(live.url) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 404")


def test_a_browser_keeps_an_asset_until_it_changes(live):
    tag = live.get("/style.css").headers["etag"]
    assert live.client.get("/style.css", headers={"if-none-match": tag}).status_code == 304


@pytest.mark.parametrize("told_to", [False, True])
def test_the_access_log_is_json_and_shows_what_was_asked_only_if_told_to(start, caplog, told_to):
    server = start(log_bodies=told_to)
    with caplog.at_level("INFO", "contradpp.access"):
        server.post("/v1/score", {"basket": ["limes"]})
        server.get("/v1/items", query="limes")
        wait_until(lambda: "/v1/items" in caplog.text)  # an entry is written when its answer is on the way
    entries = [json.loads(record.message) for record in caplog.records if record.name == "contradpp.access"]
    seen = [(one["method"], one["path"], one["status"]) for one in entries]  # maybe a late one of another server, too
    assert seen[-2:] == [("POST", "/v1/score", 200), ("GET", "/v1/items", 200)]
    assert ["limes" in json.dumps(one) for one in entries[-2:]] == [told_to, told_to]
