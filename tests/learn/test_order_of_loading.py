"""What is learned does not depend on which kernels a process loaded first, nor on who compiled them.

Each run is a process of its own. The first compiles all its kernels; the others find them in the cache of this test
run, where other processes, which needed other kernels, have put them. How it could differ is told in
`dpp/compiled/decorators.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Rows long enough for vector registers, and baskets of all sizes, so that a last bit that differs shows.
RUN = """
import hashlib, os, sys
import contradpp as cd
from contradpp.learn.callbacks import Callback

STEPS = 19  # 2,000 baskets, of which a twentieth is set aside, in batches of 100
BASKETS = cd.datasets.load("grocer", n_baskets=2000)


class Die(Callback):
    def on_iteration(self, record, best):
        assert record["step"] == STEPS
        os._exit(7)  # the round's check is over, and the last checkpoint is from before it


def fit(objective, **given):
    model = cd.LowRankDPP(24, objective=objective, batch_size=100, max_iter=3, tol=0.0, n_jobs=1, random_state=3)
    return model.fit(BASKETS, **given)


for step in sys.argv[2:]:
    if step == "break":
        fit("dynamic", checkpoint=sys.argv[1], checkpoint_every=STEPS, callbacks=[Die()])
    elif step == "resume":
        model = fit("dynamic", checkpoint=sys.argv[1], resume=True)
    else:
        model = fit(step)
print(hashlib.sha256(model.item_factors_.tobytes()).hexdigest())
"""


class Runs:
    """Processes that share the compiled kernels of this test run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[tuple[str, ...], str] = {}

    def run(self, *steps: str, code: int = 0, cold: bool = False) -> str:
        """The digest of the factors that the last of these steps learned."""
        environment = os.environ | ({"NUMBA_CACHE_DIR": str(self.folder / "kernels")} if cold else {})
        words = [sys.executable, "-c", RUN, str(self.folder / "checkpoint"), *steps]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def of(self, *steps: str) -> str:
        """As `run`, but once only."""
        if steps not in self.known:
            self.known[steps] = self.run(*steps)
        return self.known[steps]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def test_cold_and_warm_caches_give_the_same_bytes(runs):
    assert runs.of("dynamic") == runs.run("dynamic", cold=True)


def test_an_earlier_fit_of_another_objective_leaves_no_trace(runs):
    assert runs.of("exact", "dynamic") == runs.of("dynamic")
    assert runs.of("dynamic", "exact") == runs.of("exact")
    assert runs.of("exact") != runs.of("dynamic")


def test_a_resume_between_a_rounds_last_batch_and_its_check_leaves_no_trace(runs):
    """Such a process scores before it learns, so it loads kernels in another order."""
    assert runs.run("break", code=7) == ""
    assert runs.run("resume") == runs.of("dynamic")
