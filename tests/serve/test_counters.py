"""What is counted, and that the workers of one server count together."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from contradpp.serve.counters import BUCKETS, SHARED, Counters

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$')
WORKER = """
from contradpp.serve.counters import Counters
worker = Counters(["/a"])
worker.request("/a", {status}, 0.01)
worker.event("model_reloads")
print(worker.text(model_ready=True).decode())
"""


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
    counters = Counters(["/a"])
    for seconds in (0.0001, 0.003, 0.003, 99.0):
        counters.request("/a", 200, seconds)
    text = counters.text().decode()
    counts = [float(line.split()[-1]) for line in text.splitlines() if "_bucket" in line]
    assert len(counts) == len(BUCKETS) + 1
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-2:] == [3, 4]
    assert "contradpp_feedback_failed_total 0.0" in text


def test_workers_report_their_sum_and_the_dead_still_count(tmp_path):
    def worker(status: int) -> str:
        told = {**os.environ, SHARED: str(tmp_path)}
        code = WORKER.format(status=status)
        return subprocess.run([sys.executable, "-c", code], env=told, check=True, capture_output=True, text=True).stdout

    worker(200)
    worker(418)
    text = worker(200)
    assert 'contradpp_requests_total{path="/a",status="200"} 2.0' in text
    assert 'contradpp_requests_total{path="/a",status="418"} 1.0' in text
    assert 'contradpp_request_seconds_count{path="/a"} 3.0' in text
    assert "contradpp_model_reloads_total 3.0" in text
    assert "contradpp_model_ready 1.0" in text
