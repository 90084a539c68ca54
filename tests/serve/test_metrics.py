"""What is counted, and that the workers of one server count together."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from contradpp.serve.middleware import BUCKETS
from contradpp.serve.options import METRICS_DIR

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$')
WORKER = """
from fastapi.testclient import TestClient
from contradpp.serve.app import ServiceSettings, create_app
app = create_app(ServiceSettings(model="none"))
client = TestClient(app, base_url="http://localhost")
client.get("{path}")
app.state.service.metrics.events["model_reloads"].inc()
app.state.service.metrics.state["model_ready"].set(True)
print(client.get("/metrics").text)
"""


def test_every_line_is_prometheus_text_and_buckets_end_with_all(live):
    live.post("/v1/score", {"basket": []})
    live.get("/nowhere/at/all")
    live.get("/")
    text = live.get("/metrics").text
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or LINE.match(line), line
    assert 'path="other",status="404"' in text
    assert 'path="/",status="200"' in text
    assert "nowhere" not in text
    assert "contradpp_model_ready 1.0" in text
    assert "contradpp_model_items 315.0" in text
    buckets = re.findall(r'seconds_bucket\{le="[^"]+",path="/v1/score"\} ([0-9.]+)', text)
    assert len(buckets) == len(BUCKETS) + 1
    assert sorted(map(float, buckets)) == list(map(float, buckets))


def test_workers_report_their_sum_and_the_dead_still_count(tmp_path):
    def worker(path: str) -> str:
        code, environment = WORKER.format(path=path), {**os.environ, METRICS_DIR: str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        ).stdout

    worker("/healthz")
    worker("/v1/model")
    text = worker("/healthz")
    assert 'contradpp_requests_total{path="/healthz",status="200"} 2.0' in text
    assert 'contradpp_requests_total{path="/v1/model",status="503"} 1.0' in text
    assert 'contradpp_request_seconds_count{path="/healthz"} 2.0' in text
    assert "contradpp_model_reloads_total 3.0" in text
    assert "contradpp_model_ready 1.0" in text
