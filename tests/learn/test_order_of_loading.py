"""What is learned does not depend on which kernels a process loaded first, nor on who compiled them.

Each run is a process of its own. The first compiles all its kernels; the others find them in the cache of this test
run, where other processes, which needed other kernels, have put them. How it could differ is told in
`dpp/compiled/decorators.py`.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys

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


ADAM = cd.optimizers.Adam(batch_size=100)


def fit(objective, **given):
    model = cd.LowRankDPP(24, objective=objective, optimizer=ADAM, max_iter=3, tol=0.0, n_jobs=1, random_state=3)
    return model.fit(BASKETS, **given)


for step in sys.argv[2:]:
    if step == "break":
        fit("dynamic", checkpoint=cd.Checkpointing(sys.argv[1], every=STEPS), callbacks=[Die()])
    elif step == "resume":
        model = fit("dynamic", checkpoint=cd.Checkpointing(sys.argv[1], resume=True))
    else:
        model = fit(step)
print(hashlib.sha256(model.item_factors_.tobytes()).hexdigest())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run steps in a process, each list of them once: the digest of the factors that the last of them learned."""
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def run(*steps: str, code: int = 0, cold: bool = False) -> str:
        environment = os.environ | ({"NUMBA_CACHE_DIR": str(folder / "kernels")} if cold else {})
        words = [sys.executable, "-c", RUN, str(folder / "checkpoint"), *steps]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


def test_cold_and_warm_caches_give_the_same_bytes(run):
    assert run("dynamic") == run("dynamic", cold=True)


def test_an_earlier_fit_of_another_objective_leaves_no_trace(run):
    assert run("exact", "dynamic") == run("dynamic")
    assert run("dynamic", "exact") == run("exact")
    assert run("exact") != run("dynamic")


def test_a_resume_between_a_rounds_last_batch_and_its_check_leaves_no_trace(run):
    """Such a process scores before it learns, so it loads kernels in another order."""
    assert run("break", code=7) == ""
    assert run("resume") == run("dynamic")
