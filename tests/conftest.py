"""Fixtures that several test folders share: a small DPP whose every probability can be enumerated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

import contradpp as cd
from contradpp.dpp.compiled._numba import Announcement
from exact import ExactDPP

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # tests send nothing to anybody
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["CONTRADPP_COMPILE_AHEAD"] = "0"  # a test has the processors to itself, on a new machine, too
Announcement.has_logged = True  # whether kernels are in the cache is no business of a test

# The same examples at every run: what fails today failed yesterday. HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture
def factors() -> np.ndarray:
    """V of 7 items and 4 components (7, 4)."""
    return np.random.default_rng(7).normal(size=(7, 4))


@pytest.fixture
def exact(factors) -> ExactDPP:
    """All 128 probabilities of that kernel."""
    return ExactDPP(factors @ factors.T)


@pytest.fixture
def model(factors) -> cd.LowRankDPP:
    """The model of that kernel, with items 0..6."""
    return cd.LowRankDPP.from_factors(factors)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Debian's Chromium, driven by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need Playwright (extra dev)")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with (
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=flags) as found,
    ):
        yield found
