"""The feedback log keeps every event it has confirmed, whatever happens to its writers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contradpp as cd
from contradpp.data import feedback
from contradpp.data.feedback import Feedback, append_feedback, append_impression, log_files, read_choices, read_feedback
from contradpp.errors import DataError, ParameterError


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


def test_a_missing_log_and_a_newer_version_are_errors(path):
    with pytest.raises(DataError, match=r"feedback\.jsonl"):
        read_feedback(path)
    path.write_text('{"v": 3, "outcome": "accepted", "set": ["a"]}\n')
    with pytest.raises(DataError, match="line 1"):
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


# -- Impressions -------------------------------------------------------------------------------------------


def choices_of(path) -> tuple[list, list]:
    choices = read_choices(path)
    parts = np.split(choices.offered.indices, choices.offered.indptr[1:-1])
    return list(choices), [[choices.items[code] for code in part] for part in parts]


def test_impressions_are_choices(path):
    append_impression(path, ["pasta"], ["sauce", "soap"], ["sauce"], id="a", time="now")
    append_impression(path, ["pasta"], ["sauce", "soap"], ["sauce"], id="a")  # sent again
    append_impression(path, [], [7, 8], positions=[3, 1])
    append_feedback(path, "accepted", ["tea", "milk"], judged=1)
    append_feedback(path, "rejected", ["tea", "soap"], judged=1)
    append_feedback(path, "rejected", ["jam", "soap"])  # nobody knows which of them was suggested
    chosen, offered = choices_of(path)
    assert chosen == [["pasta", "sauce"], [], ["tea", "milk"], ["tea"]]
    assert offered == [["pasta", "sauce", "soap"], [7, 8], [], ["tea", "soap"]]
    assert read_feedback(path) == Feedback(
        [["pasta", "sauce"], ["tea", "milk"]], [["pasta", "soap"], [7], [8], ["tea", "soap"], ["jam", "soap"]], 0
    )
    first, _, third, *_ = map(json.loads, path.read_text().splitlines())
    assert first == {"v": 2, "outcome": "shown", "basket": ["pasta"], "shown": ["sauce", "soap"],
                     "positions": [0, 1], "taken": ["sauce"], "id": "a", "time": "now"}  # fmt: skip
    assert third["positions"] == [3, 1]


@pytest.mark.parametrize(
    ("basket", "shown", "taken", "positions"),
    [
        ([], [], [], None), (["a"], ["a"], [], None), ([], ["a", "a"], [], None), ([], ["a"], ["b"], None),
        ([], ["a", "b"], ["a", "a"], None), ([], ["a", "b"], [], [0]), ([], ["a", "b"], [], [1, 1]),
        ([], ["a"], [], [-1]), ([], [("a",)], [], None), ([], [1.5], [], None),
    ],
)  # fmt: skip
def test_impressions_that_make_no_sense_are_refused(path, basket, shown, taken, positions):
    with pytest.raises(ParameterError):
        append_impression(path, basket, shown, taken, positions=positions)
    assert not path.exists()
    event = {"v": 2, "outcome": "shown", "basket": basket, "shown": shown, "taken": taken,
             "positions": positions if positions is not None else list(range(len(shown)))}  # fmt: skip
    path.write_text(json.dumps(event) + "\n")
    assert read_feedback(path).damaged == 1


def test_a_long_log_is_set_aside_and_read_as_a_whole(path):
    for number in range(40):
        append_impression(path, ["tea"], [number, "soap"], [number], rotate=400)
    parts = log_files(path)
    assert len(parts) > 8
    assert [part.name for part in parts[:2]] == ["feedback.jsonl.1", "feedback.jsonl.2"]
    assert all(part.stat().st_size >= 400 for part in parts if part != path)
    (path.parent / "feedback.jsonl.bak").write_text("not ours")
    assert [basket[1] for basket in read_choices(path)] == list(range(40))
    assert path.exists()  # also right after one was set aside
    path.unlink()
    assert len(read_choices(path)) >= 30
    assert len(read_choices(path, taken=True)) == len(read_choices(path))


def test_a_log_that_cannot_be_set_aside_grows_on(path, monkeypatch, caplog):
    monkeypatch.setattr(type(path), "rename", lambda *_: full())
    for _ in range(5):
        append_impression(path, ["tea"], ["soap"], rotate=10)
    assert len(read_choices(path)) == 5
    assert len(read_choices(path, taken=True)) == 0
    assert "could not be set aside" in caplog.text


WRITE_MANY = """
import sys
from contradpp.data.feedback import append_impression
path, who, rotate = sys.argv[1:]
for number in range(60):
    append_impression(path, [], [f"{who}-{number}", "x" * 3000], rotate=int(rotate) or None)
"""


@pytest.mark.parametrize("rotate", [0, 10_000], ids=["one file", "set aside"])
def test_several_processes_write_whole_lines_and_lose_none(path, rotate):
    command = [sys.executable, "-c", WRITE_MANY, str(path)]
    writers = [subprocess.Popen([*command, name, str(rotate)]) for name in "abc"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    assert (len(log_files(path)) > 1) == bool(rotate)
    assert read_feedback(path).damaged == 0
    shown = [offered[0] for offered in choices_of(path)[1]]
    assert sorted(shown) == sorted(f"{name}-{number}" for name in "abc" for number in range(60))


def test_where_files_cannot_be_locked_logs_are_refused_with_a_reason(path, monkeypatch):
    """As on Windows. What was written elsewhere can be read."""
    append_feedback(path, "accepted", ["tea"])
    monkeypatch.setattr(feedback, "fcntl", None)
    for write in (lambda: append_feedback(path, "accepted", ["milk"]), lambda: feedback.check_log(path)):
        with pytest.raises(ParameterError, match="Linux and macOS only"):
            write()
    assert read_feedback(path).positives == [["tea"]]
