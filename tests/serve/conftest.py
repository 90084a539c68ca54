"""A small shop behind a real server on the loopback, started once, and others for tests that break theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import contradpp as cd

pytest.importorskip("fastapi", reason="the service needs the extra serve")
pytest.importorskip("uvicorn", reason="the service needs the extra serve")

from contradpp.serve.options import ServiceSettings
from serve.live import Live, running, small_shop


@pytest.fixture(scope="session")
def shop_model() -> cd.LowRankDPP:
    return small_shop()


@pytest.fixture(scope="session")
def live(tmp_path_factory, shop_model) -> Iterator[Live]:
    """A server for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("live")
    shop_model.save(folder / "model.safetensors")
    settings = ServiceSettings(model=str(folder / "model.safetensors"), feedback=str(folder / "feedback.jsonl"))
    with running(settings) as server:
        yield server


@pytest.fixture
def start(tmp_path, shop_model) -> Iterator[Callable[..., Live]]:
    """Start a server of one's own: `start(token="secret", ...)`, or with another model."""
    with contextlib.ExitStack() as stack:

        def start_one(model: cd.LowRankDPP | None = None, **settings: object) -> Live:
            path = tmp_path / "model.safetensors"
            (model or shop_model).save(path)
            values = {
                "model": str(path),
                "feedback": str(tmp_path / "feedback.jsonl"),
                "watch_seconds": 0.05,
            } | settings
            return stack.enter_context(running(ServiceSettings(**values)))

        yield start_one
