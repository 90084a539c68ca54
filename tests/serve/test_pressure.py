"""The service under pressure: dear models, slow work, too many connections, foreign sites, and its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import scipy.sparse

import contradpp as cd
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.mixture import Mixture
from contradpp.dpp.normalizer import MAX_DENSE_ITEMS
from contradpp.serve import routes
from contradpp.serve.app import app_from_environment
from contradpp.serve.middleware import Metrics, RequestMiddleware
from contradpp.serve.options import Limits, ServiceSettings
from contradpp.serve.service import Reloader
from contradpp.serve.snapshot import ModelSnapshot
from serve.live import connect, launch, small_shop, wait_until

# -- Models too large for a dense matrix ---------------------------------------------------------


@pytest.fixture
def large_shop(monkeypatch) -> cd.NonsymmetricDPP:
    """So many items with partners that no dense matrix over them may be made."""
    n = MAX_DENSE_ITEMS + 2
    chain = scipy.sparse.diags_array([np.full(n - 1, 0.01)], offsets=[1], format="csr")
    factors = 0.01 * np.random.default_rng(0).normal(size=(n, 4))
    for way in ("ByCholesky", "ByLU"):
        monkeypatch.setattr(f"contradpp.dpp.normalizer.{way}", lambda _: 1 / 0)
    return cd.NonsymmetricDPP.from_factors(factors, S=chain - chain.T)


def test_a_model_too_large_for_a_dense_matrix_is_served_with_estimates(start, large_shop):
    server = start(large_shop)
    values = server.get("/v1/model").json()
    assert values["n_items"] == len(large_shop.items_)
    assert values["expected_size"] == pytest.approx(large_shop.marginals().sum())
    (found,) = server.post("/v1/recommend", {"basket": [5], "n": 3}).json()["results"]
    assert [one["item"] for one in found["suggestions"]] == large_shop.recommend([5], N=3)[0].tolist()
    completed = server.post("/v1/complete", {"basket": [5], "n": 3}).json()
    assert len(completed["suggestions"]) == 3
    whole = [5, *(one["item"] for one in completed["suggestions"])]
    assert completed["log_probability"] == pytest.approx(large_shop.score_samples(whole))
    assert 0 < server.get("/v1/items", query="7", limit=2).json()["items"][0]["probability"] < 1
    points = server.get("/v1/map", items=["4000"], limit=30).json()["points"]
    assert len(points) == 30
    assert all(0 <= point["weight"] <= 1 for point in points)
    (scored,) = server.post("/v1/score", {"basket": [5]}).json()["results"]
    assert scored["log_probability"] == pytest.approx(large_shop.score_samples([5]))
    drawn = server.post("/v1/sample", {"n_samples": 2, "given": [5], "seed": 0}).json()["results"]
    assert [one[0]["item"] for one in drawn] == [5, 5]


# -- Slow work -----------------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch):
    """Samples and large scores last until the event is set; how often each was begun."""
    release, begun = threading.Event(), []

    def hold(name: str):
        plain = getattr(sys.modules["contradpp.serve.snapshot"].ModelSnapshot, name)

        def wait(self, *args, **kwargs):
            if name == "sample" or len(args[0][0]) > 100:
                begun.append(name)
                release.wait(20)
            return [] if name == "sample" else plain(self, *args, **kwargs)  # nothing that may have to compile

        monkeypatch.setattr(f"contradpp.serve.snapshot.ModelSnapshot.{name}", wait)

    hold("sample")
    hold("scores")
    yield release, begun
    release.set()


def test_many_slow_samples_hold_up_nothing_else(start, held):
    release, begun = held
    server = start()
    many = {"baskets": [list(small_shop().items_)[:40]] * 250}  # too much for the event loop itself
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        samples = [pool.submit(httpx.post, f"{server.url}/v1/sample", json={}, timeout=30) for _ in range(8)]
        while not begun:
            time.sleep(0.01)
        assert server.get("/healthz").status_code == 200
        assert server.post("/v1/recommend", {"basket": ["limes"]}).status_code == 200
        assert server.post("/v1/recommend", many).status_code == 200
        assert server.post("/v1/feedback", {"outcome": "accepted", "items": ["limes"]}).status_code == 200
        release.set()
        assert {one.result().status_code for one in samples} == {200}


def test_a_large_score_does_not_hold_the_event_loop(start, held):
    release, begun = held
    server = start()
    large = {"basket": list(small_shop().items_)[:300]}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pending = pool.submit(httpx.post, f"{server.url}/v1/score", json=large, timeout=30)
        while not begun:
            time.sleep(0.01)
        assert server.get("/healthz").status_code == 200
        release.set()
        assert pending.result().status_code == 200


def test_work_that_was_given_up_before_its_turn_is_not_done(start, held):
    release, begun = held
    server = start(limits=Limits(timeout=1.0))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(httpx.post, f"{server.url}/v1/sample", json={}, timeout=30) for _ in range(4)]
        assert {one.result().status_code for one in pending} == {504}
    release.set()
    assert server.post("/v1/sample", {}).status_code == 200
    assert len(begun) == 2  # the first, which ran, and the last


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"baskets": [["limes", "tea", "bin bags"]] * 200}),
        ("/v1/recommend", {"baskets": [["limes"]] * 200}),
        ("/v1/recommend", {"basket": ["limes", "bananas", "tissues", "parmesan"], "n": 3}),
        ("/v1/complete", {"basket": ["limes"], "n": 11}),
        ("/v1/sample", {"n_samples": 100, "size": 10}),
    ],
)
def test_a_request_that_takes_too_much_work_is_refused(start, path, body):
    server = start(limits=Limits(work=1e4))
    response = server.post(path, body)
    assert response.status_code == 422
    assert "work" in response.json()["error"]["message"]
    assert server.post("/v1/recommend", {"basket": []}).status_code == 200


def test_what_a_conditional_model_costs_is_more_than_its_kernel():
    """Its kernel's samples took minutes of a single thread, and its experts held the event loop."""
    train = cd.datasets.load("grocer", n_baskets=300, random_state=0)
    model = cd.ConditionalDPP(random_state=0).fit(train)
    inside, alone = ModelSnapshot(model, "v"), ModelSnapshot(model.kernel_, "v")
    assert inside.sampling_cost(100, 200) == alone.sampling_cost(100, 200) > Limits().work
    basket = list(model.items_)[:10]
    ranked = inside.ranking_cost([basket])
    assert ranked > 2 * alone.ranking_cost([basket])
    assert inside.ranking_cost([basket], additions=10, rankings=11) > 10 * ranked
    assert inside.explaining_cost([basket], 10) > ranked
    assert alone.explaining_cost([basket], 10) == 0  # it gives no reasons


def test_sets_of_one_size_of_a_mixture_with_many_neighbors_are_drawn_by_a_chain(monkeypatch):
    """The sizes of the sets of every cluster took minutes, and held the interpreter for half of one."""
    M = 40
    rng = np.random.default_rng(0)
    S = np.triu(rng.normal(size=(M, M)), 1)
    kernel = Kernel(rng.normal(size=(M, 3)), skew=S - S.T, diagonal=np.ones(M))
    snapshot = ModelSnapshot(cd.DPP(V=np.ones((M, 1))), "v")
    assert snapshot.sampling_method(1, 4) == "exact"
    snapshot.model = SimpleNamespace(dpp=Mixture(kernel, rng.normal(size=(30, M)), np.zeros(30)))
    assert snapshot.sampling_method(1, 4) == "exact"
    monkeypatch.setattr("contradpp.serve.snapshot.EXACT", 100.0 * M**3 / 10)
    assert snapshot.sampling_method(1, 4) == "chain"
    assert snapshot.sampling_method(1, None) == "exact"
    assert snapshot.sampling_cost(1, 4) < 1e9


def test_the_event_loop_need_not_wait_long_for_other_threads(monkeypatch):
    settings = ServiceSettings(model="unused")
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    before = sys.getswitchinterval()
    try:
        app_from_environment()
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)


def test_a_long_answer_is_not_written_in_the_event_loop(start, monkeypatch):
    server, threads = start(), []
    write = routes.as_json_of_many
    monkeypatch.setattr(
        routes, "as_json_of_many", lambda *a: threads.append(threading.current_thread().name) or write(*a)
    )
    pending = {"baskets": [["limes"]] * 256, "n": 30}
    answer = server.post("/v1/recommend", pending).json()
    assert len(answer["results"]) == 256
    (alone,) = server.post("/v1/recommend", {"basket": ["limes"], "n": 30}).json()["results"]
    items = [[one["item"] for one in found["suggestions"]] for found in (answer["results"][255], alone)]
    assert items[0] == items[1]
    assert threads[0].startswith("contradpp-serve")
    assert not threads[1].startswith("contradpp-serve")


# -- Connections ---------------------------------------------------------------------------------


def test_a_head_that_does_not_come_is_given_up_however_slowly_it_trickles(start):
    server = start(limits=Limits(timeout=0.5))
    with connect(server.url) as silent, connect(server.url) as slow:
        with contextlib.suppress(OSError):
            for letter in b"GET /healthz HTTP/1.1":
                slow.sendall(bytes([letter]))
                time.sleep(0.06)
        for line in (silent, slow):
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(100) == b""


def test_a_second_head_on_a_kept_connection_has_its_time_too(start):
    server = start(limits=Limits(timeout=1.0))
    with connect(server.url) as line:
        for _ in range(2):
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b'{"ready":true}'):
                more = line.recv(10_000)
                assert more, answer
                answer += more
            time.sleep(1.2)  # idle between requests is allowed
        line.sendall(b"GET /hea")
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(100) == b""


# -- Foreign sites -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "[::1", "a b"])
def test_a_name_that_was_made_to_point_here_is_refused(live, host):
    for method, path in (("GET", "/v1/model"), ("GET", "/"), ("POST", "/v1/reload")):
        response = live.client.request(method, path, headers={"host": host})
        assert response.status_code == 400
    assert live.client.get("/healthz", headers={"host": "evil.example"}).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "10.1.2.3", "shop.example"]
)
def test_addresses_and_allowed_names_are_answered(start, host):
    server = start(hosts=("Shop.example",))
    assert server.client.get("/v1/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("allowed", ["*", "*.example"])
def test_every_name_can_be_allowed(start, allowed):
    assert start(hosts=(allowed,)).client.get("/v1/model", headers={"host": "any.example"}).status_code == 200


def test_a_page_of_another_site_cannot_reload_or_judge(live):
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://evil.example:443"):
        response = live.client.post("/v1/reload", headers={"origin": origin})
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "foreign_site"
    assert live.client.post("/v1/reload", headers={"origin": live.url}).status_code == 200
    assert live.client.get("/v1/model", headers={"origin": "http://evil.example"}).status_code == 200


# -- Start and end -------------------------------------------------------------------------------


def test_the_threads_of_a_model_call_are_the_services_not_the_files(tmp_path):
    model = small_shop()
    model.n_jobs = 64
    model.save(tmp_path / "model")
    reloader = Reloader(ServiceSettings(model=str(tmp_path / "model"), n_jobs=2), Metrics())
    reloader.reload()
    assert reloader.snapshot.model.n_jobs == 2


def test_the_log_says_what_the_start_does(start, caplog):
    with caplog.at_level("INFO", "contradpp.serve"):
        start()
    assert "loading model" in caplog.text
    assert "315 items, ready in" in caplog.text


SERVER = """
import pathlib, resource, time
from contradpp.serve.snapshot import ModelSnapshot
from contradpp.serve import routes
from contradpp.serve.app import app_from_environment
from contradpp.serve.options import Limits, ServiceSettings
def slow(self, *args, **kwargs):
    pathlib.Path({begun!r}).touch()
    time.sleep({seconds})
    return []
if __name__ == "__main__":
    from contradpp.serve.server import run_server
ModelSnapshot.sample = slow
if __name__ == "__main__":
    if {files}:
        resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    run_server(ServiceSettings(model={model!r}, limits=Limits(timeout={timeout})), port={port})
"""


@contextlib.contextmanager
def server_process(folder, shop_model, *, seconds=0, timeout=10, files=0):
    """A server whose samples take so long, and which may open so many files: its process and address.

    A file named `begun` says that a sample has begun.
    """
    shop_model.save(folder / "model")
    values = {"seconds": seconds, "timeout": timeout, "files": files}
    values |= {"model": str(folder / "model"), "begun": str(folder / "begun")}
    process, url = launch(lambda port: ["-c", SERVER.format(port=port, **values)], folder / "log")
    try:
        yield process, url
    finally:
        process.kill()
        process.wait(60)
    assert "raceback" not in (folder / "log").read_text()


def test_half_open_connections_do_not_make_it_unreachable(tmp_path, shop_model):
    with server_process(tmp_path, shop_model, files=200) as (_, url), contextlib.ExitStack() as stack:
        for _ in range(250):
            time.sleep(0.005)  # lets the short backlog be worked off
            line = stack.enter_context(connect(url))
            with contextlib.suppress(OSError):
                line.sendall(b"POST /v1/score HTTP/1.1\r\nHost: loc")
        for _ in range(5):
            assert httpx.get(f"{url}/healthz", trust_env=False, timeout=10).status_code == 200


@pytest.mark.parametrize(("seconds", "timeout", "status"), [(1.5, 10, 200), (30, 1, 504)])
def test_an_end_by_signal_answers_what_is_in_flight(tmp_path, shop_model, seconds, timeout, status):
    with (
        server_process(tmp_path, shop_model, seconds=seconds, timeout=timeout) as (process, url),
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(httpx.post, f"{url}/v1/sample", json={}, timeout=60, trust_env=False)
        wait_until((tmp_path / "begun").exists, 60)
        process.send_signal(signal.SIGTERM)
        assert pending.result().status_code == status
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_who_asks_whether_the_process_lives_does_not_wait_for_all_others():
    """Small work is done in the event loop: 16 requests that had arrived together were all answered first."""
    order: list[str] = []

    async def app(scope, receive, send):
        order.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def say(message):
        return None

    async def hear():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def everyone():
        middleware = RequestMiddleware(app, ServiceSettings(model="none"))
        about = {"type": "http", "method": "GET", "headers": [], "client": None, "query_string": b""}
        paths = [*["/v1/model"] * 16, "/healthz"]
        await asyncio.gather(*(middleware(about | {"path": path}, hear, say) for path in paths))

    asyncio.run(everyone())
    assert len(order) == 17
    assert order.index("/healthz") <= 1
