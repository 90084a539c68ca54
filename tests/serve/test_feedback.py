"""Feedback over HTTP: stored before it is confirmed, and refused rather than lost."""

from __future__ import annotations

import errno
import os

import pytest

from contradpp.data.feedback import read_feedback


def test_the_set_is_the_basket_with_what_was_judged(start):
    server = start()
    basket = ["spaghetti", "who?"]
    event = {"outcome": "accepted", "basket": basket, "items": ["parmesan", "spaghetti", "what?"], "id": "1"}
    assert server.post("/v1/feedback", event).json() == {"stored": True, "unknown": ["who?", "what?"]}
    server.post("/v1/feedback", event)  # sent again, because the first answer was lost
    server.post("/v1/feedback", {"outcome": "rejected", "basket": ["spaghetti"], "items": ["bin bags"]})
    kept = read_feedback(server.feedback_path)
    assert kept.positives == [["spaghetti", "parmesan"]]
    assert kept.negatives == [["spaghetti", "bin bags"]]
    assert "contradpp_feedback_accepted_total 2" in server.get("/metrics").text


def test_a_server_without_a_log_refuses_feedback(start):
    server = start(feedback=None)
    assert server.get("/v1/model").json()["feedback"] is False
    assert server.post("/v1/feedback", {"outcome": "accepted", "items": ["limes"]}).status_code == 503


@pytest.mark.parametrize(("code", "status"), [(errno.ENOSPC, 507), (errno.EIO, 503)])
def test_a_full_or_broken_disk_is_told_and_the_rest_goes_on(start, monkeypatch, code, status):
    server = start()
    event = {"outcome": "accepted", "basket": ["limes"], "items": ["parmesan"]}
    server.post("/v1/feedback", event)

    def fail(*_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("contradpp.data.feedback.os.fsync", fail)
        response = server.post("/v1/feedback", event)
        assert response.status_code == status
        assert server.post("/v1/recommend", {"basket": ["limes"]}).status_code == 200
    assert len(read_feedback(server.feedback_path).positives) == 1
    assert "contradpp_feedback_failed_total 1" in server.get("/metrics").text
    assert server.post("/v1/feedback", event).status_code == 200
    assert len(read_feedback(server.feedback_path).positives) == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_device_that_is_really_full(start):
    server = start(feedback="/dev/full")
    assert server.post("/v1/feedback", {"outcome": "accepted", "items": ["limes"]}).status_code == 507
