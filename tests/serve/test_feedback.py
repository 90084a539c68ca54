"""Feedback over HTTP: stored before it is confirmed, and refused rather than lost."""

from __future__ import annotations

import errno
import json
import os

import pytest

from contradpp.data.feedback import log_files, read_choices, read_feedback


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


def test_impressions_are_kept_with_their_places(start):
    server = start(feedback_bytes=300)
    event = {"outcome": "shown", "basket": ["spaghetti", "who?"], "taken": ["parmesan"], "id": "7",
             "items": ["parmesan", "what?", "bin bags", "spaghetti"]}  # fmt: skip
    assert server.post("/v1/feedback", event).json() == {"stored": True, "unknown": ["who?", "what?"]}
    server.post("/v1/feedback", event)
    server.post("/v1/feedback", {"outcome": "shown", "items": ["limes", "bin bags"], "positions": [4, 2]})
    ((first, *_),) = [part.read_text().splitlines() for part in log_files(server.feedback_path)[:1]]
    event = json.loads(first)
    assert (event["v"], event["shown"], event["positions"]) == (2, ["parmesan", "bin bags"], [0, 2])
    assert {"time", "model"} <= event.keys()
    assert len(log_files(server.feedback_path)) > 1  # it was set aside
    choices = read_choices(server.feedback_path)
    assert list(choices) == [["spaghetti", "parmesan"], []]
    assert choices.refused.sizes.tolist() == [1, 2]
    assert "contradpp_feedback_shown_total 3" in server.get("/metrics").text


@pytest.mark.parametrize(
    "wrong",
    [{"taken": ["limes"]}, {"taken": ["parmesan", "parmesan"]}, {"positions": [0]}, {"positions": [1, 1]},
     {"positions": [0, -1]}, {"outcome": "accepted", "taken": ["parmesan"]},
     {"outcome": "rejected", "positions": [0, 1]}, {"items": ["what?", "spaghetti"]}, {"items": []}],
)  # fmt: skip
def test_impressions_that_make_no_sense_are_refused(start, wrong):
    server = start()
    event = {"outcome": "shown", "basket": ["spaghetti"], "items": ["parmesan", "bin bags"], **wrong}
    assert server.post("/v1/feedback", event).status_code == 422
    assert not server.feedback_path.exists() or not server.feedback_path.read_bytes()
