"""Any bytes at all in place of a data or model file: an answer or one of our own errors, and no hanging."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
from fuzz import targets

CORPUS = Path(__file__).parent / "corpus"
READERS = sorted((CORPUS / "readers").iterdir())
MODELS = sorted((CORPUS / "models").iterdir())

TEXT = st.text(alphabet=st.sampled_from(list('01 2,;|\t\n\r"[]{}:ab-.é\x00')), max_size=200).map(str.encode)
CHOICE = st.integers(0, len(targets.SUFFIXES) - 1).map(lambda n: bytes([n]))


@st.composite
def damaged(draw, originals: list[bytes]) -> bytes:
    """A good file with a few bytes changed, cut or put in."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data)


@pytest.mark.parametrize("path", READERS, ids=lambda p: p.name)
def test_the_readers_corpus(path):
    started = time.monotonic()
    assert targets.read(path.read_bytes()) in ("read", "DataError")
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.name)
def test_the_models_corpus(path):
    assert targets.load(path.read_bytes()) in ("read", "ModelFileError", "ParameterError")


@settings(max_examples=150, deadline=60_000)
@given(CHOICE, TEXT | st.binary(max_size=300))
def test_readers_take_any_bytes(choice, data):
    assert targets.read(choice + data) in ("read", "DataError")


@settings(max_examples=150, deadline=60_000)
@given(damaged([path.read_bytes() for path in READERS]))
def test_readers_take_damaged_files(data):
    assert targets.read(data) in ("read", "DataError")


@settings(max_examples=200, deadline=60_000)
@given(damaged([path.read_bytes() for path in MODELS]) | st.binary(max_size=300))
def test_the_loader_takes_damaged_files(data):
    assert targets.load(data) in ("read", "ModelFileError")


def test_a_target_can_fail(monkeypatch):
    """The harness does not swallow what it is there to find."""
    monkeypatch.setattr(cd, "read_baskets", lambda path: np.zeros(1) / "nothing")
    with pytest.raises(TypeError):
        targets.read(b"\0" + b"1 2\n")
