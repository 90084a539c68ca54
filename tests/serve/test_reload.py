"""A new model takes over without a lost request; a bad file changes nothing and is told of."""

from __future__ import annotations

import os
import threading
import time

import httpx
import pytest

import contradpp as cd
from contradpp.errors import ModelFileError
from contradpp.serve.middleware import Metrics
from contradpp.serve.options import ServiceSettings
from contradpp.serve.service import Reloader
from serve.live import other_shop, wait_until


def test_a_replaced_file_takes_over_by_itself(start):
    server = start()
    before = server.get("/v1/model").json()
    other_shop().save(server.model_path)
    wait_until(lambda: server.get("/v1/model").json()["version"] != before["version"])
    after = server.get("/v1/model").json()
    assert after["n_items"] == 30
    assert after["reload"] == {"reloads": 1, "failures": 0, "error": None}
    assert server.post("/v1/recommend", {"basket": ["p1"]}).json()["results"][0]["unknown"] == []


def test_reload_on_request(start):
    server = start(watch_seconds=0)
    assert server.client.post("/v1/reload").json()["changed"] is False
    other_shop().save(server.model_path)
    assert server.client.post("/v1/reload").json()["changed"] is True
    assert server.get("/v1/model").json()["n_items"] == 30


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "gone"])
def test_a_bad_file_keeps_the_old_model_and_says_so(start, caplog, damage):
    server = start(watch_seconds=0)
    before = server.get("/v1/model").json()
    whole = server.model_path.read_bytes()
    if damage == "gone":
        server.model_path.unlink()
    else:
        server.model_path.write_bytes({"garbage": b"\x93" * 999, "truncated": whole[:-9], "empty": b""}[damage])
    response = server.client.post("/v1/reload")
    assert response.status_code == 503
    assert str(server.model_path.parent) not in response.text  # paths are for the log
    after = server.get("/v1/model").json()
    assert after["version"] == before["version"]
    assert after["reload"]["failures"] == 1
    assert after["reload"]["error"]
    assert "stays" in caplog.text
    text = server.get("/metrics").text
    assert "contradpp_model_file_bad 1" in text
    assert "contradpp_model_reload_failures_total 1" in text
    assert server.get("/readyz").status_code == 200
    server.model_path.write_bytes(whole)
    assert server.client.post("/v1/reload").json()["changed"] is False
    assert server.get("/v1/model").json()["reload"]["error"] is None


def test_a_bad_file_is_tried_once_not_again_and_again(start):
    server = start()
    (server.model_path.parent / "bad").write_bytes(b"nonsense")
    os.replace(server.model_path.parent / "bad", server.model_path)  # or a file of no bytes may be seen first
    wait_until(lambda: server.get("/v1/model").json()["reload"]["failures"] > 0)
    time.sleep(0.4)
    assert server.get("/v1/model").json()["reload"]["failures"] == 1


def test_no_request_is_lost_while_models_and_garbage_come_and_go(start, shop_model):
    server = start()
    basket = list(shop_model.items_)[:3]
    stop, statuses, problems = threading.Event(), [], []

    def ask() -> None:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            while not stop.is_set():
                try:
                    response = client.post("/v1/recommend", json={"baskets": [basket, ["p1"]], "n": 3})
                    statuses.append(response.status_code)
                    results = response.json()["results"]
                    # Every answer comes from one model: what one shop knows, the other does not.
                    if not (results[0]["unknown"] == basket) ^ (results[1]["unknown"] == ["p1"]):
                        problems.append(results)
                except httpx.HTTPError as error:
                    problems.append(error)

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        for turn in range(3):
            version = server.get("/v1/model").json()["version"]
            (other_shop(turn) if turn % 2 == 0 else shop_model).save(server.model_path)
            wait_until(lambda version=version: server.get("/v1/model").json()["version"] != version)
            failures = server.get("/v1/model").json()["reload"]["failures"]
            server.model_path.write_bytes(b"\0" * (100 + turn))
            wait_until(lambda failures=failures: server.get("/v1/model").json()["reload"]["failures"] > failures)
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert problems == []
    assert {*statuses} == {200}
    assert len(statuses) > len(clients)


def test_a_server_that_starts_without_a_model_says_so_and_recovers(start, monkeypatch, shop_model):
    monkeypatch.setattr(cd.LowRankDPP, "save", lambda self, path: path.write_bytes(b"not a model"))
    server = start()
    monkeypatch.undo()
    assert server.get("/healthz").status_code == 200
    for response in (server.get("/readyz"), server.get("/v1/model"), server.post("/v1/score", {"basket": []})):
        assert response.status_code == 503
    shop_model.save(server.model_path)
    wait_until(lambda: server.get("/readyz").status_code == 200)


def test_a_reloader_without_a_file(tmp_path):
    reloader = Reloader(ServiceSettings(model=str(tmp_path / "none")), Metrics())
    with pytest.raises(ModelFileError):
        reloader.reload()
    reloader.reload_if_changed()
    assert reloader.state.failures == 1
    assert reloader.snapshot is None
