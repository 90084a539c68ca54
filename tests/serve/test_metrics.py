"""What is counted, and that the workers of one server count together."""

from __future__ import annotations

import re

from contradpp.serve.metrics import BUCKETS, Metrics

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$')


def test_every_line_is_prometheus_text(live):
    live.post("/v1/score", {"basket": []})
    live.get("/nowhere/at/all")
    text = live.get("/metrics").text
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or LINE.match(line), line
    assert 'path="other",status="404"' in text
    assert "nowhere" not in text


def test_buckets_are_cumulative_and_end_with_all():
    metrics = Metrics(["/a"])
    for seconds in (0.0001, 0.003, 0.003, 99.0):
        metrics.request("/a", 200, seconds)
    counts = [int(line.split()[-1]) for line in metrics.text().splitlines() if "_bucket" in line]
    assert len(counts) == len(BUCKETS) + 1
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-2:] == [3, 4]


def test_workers_report_their_sum_and_the_dead_still_count(tmp_path, monkeypatch):
    def worker(pid: int) -> Metrics:
        monkeypatch.setattr("contradpp.serve.metrics.os.getpid", lambda: pid)
        return Metrics(["/a"], str(tmp_path))

    first, second = worker(1), worker(2)
    first.request("/a", 200, 0.01)
    first.event("model_reloads")
    del first
    second.request("/a", 200, 0.02)
    second.request("/a", 418, 0.02)
    text = second.text(model_ready=True)
    assert 'contradpp_requests_total{path="/a",status="200"} 2' in text
    assert 'contradpp_requests_total{path="/a",status="other"} 1' in text
    assert 'contradpp_request_seconds_count{path="/a"} 3' in text
    assert "contradpp_model_reloads_total 1" in text
    assert "contradpp_model_ready 1" in text
