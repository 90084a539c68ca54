"""The feedback log keeps every event it has confirmed, whatever happens to its writers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contradpp as cd
from contradpp.data.feedback import Feedback, append_feedback, read_feedback
from contradpp.errors import DataError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "feedback.jsonl"


def test_what_was_appended_is_read_back_in_order(path):
    append_feedback(path, "accepted", ["tea", "milk"], time="now")
    append_feedback(path, "rejected", [1, "tea"])
    append_feedback(path, "accepted", ["milk"])
    assert read_feedback(path) == Feedback([["tea", "milk"], ["milk"]], [[1, "tea"]], 0)


def test_a_line_is_an_event_that_others_can_read_too(path):
    append_feedback(path, "rejected", ["té\n", "\ud800"], judged=1, note=None)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {"v": 1, "outcome": "rejected", "set": ["té\n", "\ud800"], "judged": 1}


def test_an_event_sent_twice_counts_once(path):
    for _ in range(2):
        append_feedback(path, "accepted", ["tea"], id="e1")
    append_feedback(path, "accepted", ["tea"])
    assert read_feedback(path).positives == [["tea"], ["tea"]]


@given(cut=st.integers(1, 60))
def test_a_torn_last_line_costs_only_itself(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("torn") / "log"
    append_feedback(path, "accepted", ["tea", "milk"])
    append_feedback(path, "rejected", ["coffee", "milk", "sugar", "bread"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    torn = cut > 1  # without its newline alone the line is whole
    assert read_feedback(path) == Feedback(
        [["tea", "milk"]], [] if torn else [["coffee", "milk", "sugar", "bread"]], torn
    )
    append_feedback(path, "accepted", ["bread"])  # the next writer starts a line of its own
    assert read_feedback(path).positives == [["tea", "milk"], ["bread"]]
    assert read_feedback(path).damaged == torn


@pytest.mark.parametrize(
    "line",
    [b"not json", b"[]", b"7", b'{"outcome": "liked", "set": ["a"]}', b'{"outcome": "accepted", "set": []}',
     b'{"outcome": "accepted", "set": [["a"]]}', b'{"outcome": "accepted", "set": [true]}', b"\xff\xfe",
     b'{"outcome": ["accepted"], "set": ["a"]}', b'{"outcome": "accepted", "set": ["a"], "id": []}',
     b'{"outcome": "accepted", "set": ["a"], "v": "1"}', b"[" * 5000],
)  # fmt: skip
def test_a_foreign_line_is_skipped_and_counted(path, line, caplog):
    path.write_bytes(line + b"\n\n")
    append_feedback(path, "accepted", ["tea"])
    assert read_feedback(path) == Feedback([["tea"]], [], 1)
    assert "1 damaged" in caplog.text


@pytest.mark.parametrize(
    ("outcome", "items", "facts"),
    [("accepted", [], {}), ("perhaps", ["tea"], {}), ("accepted", [1.5], {}), ("accepted", [True], {}),
     ("rejected", [("a", 1)], {}), ("rejected", [None], {}), ("accepted", [b"tea"], {}),
     ("accepted", ["tea"], {"id": 1.5}), ("accepted", ["tea"], {"seconds": float("nan")})],
)  # fmt: skip
def test_what_could_not_be_read_back_is_not_written(path, outcome, items, facts):
    with pytest.raises(DataError):
        append_feedback(path, outcome, items, **facts)
    assert not path.exists()


def test_a_newer_version_is_refused(path):
    path.write_text('{"v": 2, "outcome": "accepted", "set": ["a"]}\n')
    with pytest.raises(DataError, match="line 1"):
        read_feedback(path)


def test_a_missing_log_is_an_error_that_names_it(path):
    with pytest.raises(DataError, match=r"feedback\.jsonl"):
        read_feedback(path)


def test_a_full_disk_raises_and_leaves_the_log_as_it_was(path, monkeypatch):
    append_feedback(path, "accepted", ["tea"])
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:5]) if len(data) > 40 else full())
    with pytest.raises(OSError, match="No space"):
        append_feedback(path, "accepted", ["milk", "and more than forty bytes of other things"])
    monkeypatch.undo()
    assert path.read_bytes() == before
    append_feedback(path, "rejected", ["milk"])
    assert read_feedback(path) == Feedback([["tea"]], [["milk"]], 0)


def full() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_device_without_room_is_an_error():
    with pytest.raises(OSError, match="No space"):
        append_feedback("/dev/full", "accepted", ["tea"])


WRITE_MANY = """
import sys
from contradpp.data.feedback import append_feedback
for number in range(50):
    append_feedback(sys.argv[1], "accepted", [int(sys.argv[2]), number, "x" * 3000])
"""


def test_several_processes_write_whole_lines(path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_MANY, str(path), str(who)]) for who in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = read_feedback(path)
    assert found.damaged == 0
    assert sorted(tuple(one[:2]) for one in found.positives) == [(w, n) for w in range(3) for n in range(50)]


def test_a_model_learns_from_the_log(path):
    baskets = [["tea", "milk"], ["coffee", "milk"], ["tea", "sugar"]] * 40
    model = cd.LowRankDPP(n_components=3, max_iter=5, random_state=0, objective="explicit").fit(baskets)
    for _ in range(30):
        append_feedback(path, "accepted", ["tea", "lemon"])
        append_feedback(path, "rejected", ["milk", "lemon"])
    liked, rejected, _ = read_feedback(path)
    model.partial_fit(liked, negatives=rejected)
    assert "lemon" in model.items_
    assert model.score_samples(["tea", "lemon"]) > model.score_samples(["milk", "lemon"])
