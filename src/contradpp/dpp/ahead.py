"""Who learns on a new machine waits for a compiler: meanwhile another process compiles what is needed later.

What it compiles it keeps on disk, where we find it (`compiled.decorators.SharedCache`): two processes never compile the
same. It runs a job of `contradpp warm`, and is ended with what it was started for. CONTRADPP_COMPILE_AHEAD=0 in the
environment forbids it.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from contradpp._threads import resolve_n_jobs
from contradpp.dpp import compiled

FIT, DEMO, NEGATIVES = "fit", "demo", "negatives"
# The kernels that tell whether a job has been done on this machine before: what takes longest, and what comes last.
_TELLING = {
    FIT: ("gradients.conditional_gradients", "votes.count_votes", "ranks.best_of_rows"),
    DEMO: ("gradients.conditional_gradients", "votes.count_votes", "ranks.best_of_rows"),
    NEGATIVES: ("gradients.conditional_gradients", "gradients.log_det_gradients"),
}
_ALLOWED = "CONTRADPP_COMPILE_AHEAD"  # in the environment
_LONGEST = 5.0  # seconds until a process that does not end is killed
_helped = Lock()  # held by whoever started such a process: what is learned meanwhile starts none
_begun: set[str] = set()  # jobs: where nothing can be kept on disk, once is enough


@contextmanager
def compiling_ahead(job: str, *, n_jobs: int | None = None) -> Iterator[None]:
    """Let another process do a job meanwhile, unless it has been done here before, or one core is to be used."""
    with ExitStack() as after:
        cores = min(resolve_n_jobs(n_jobs), resolve_n_jobs(None))
        of_use = cores > 1 and job not in _begun and _may_start() and not at_hand(job)
        if of_use and _helped.acquire(blocking=False):
            after.callback(_helped.release)
            with suppress(OSError):  # a system that allows no processes
                after.callback(_end, _start(job))
        yield


def at_hand(job: str) -> bool:
    """Whether the kernels of a job have been compiled on this machine."""
    kernels = (getattr(getattr(compiled, module), name) for module, name in (key.split(".") for key in _TELLING[job]))
    return all(getattr(kernel, "at_hand", True) for kernel in kernels)  # plain functions where NUMBA_DISABLE_JIT is set


def command(job: str) -> list[str]:
    """How to start a job."""
    # -P: Python would look for modules in the present folder first, where anyone's files may lie.
    return [sys.executable, "-P", "-m", "contradpp", "warm", "--only", job]


def environment() -> dict[str, str]:
    """That of a job, which starts no other process."""
    return os.environ | {_ALLOWED: "0"}


def _may_start() -> bool:
    """Whether this is Python by itself: not an application that holds it, and not one of many processes of a pool."""
    ours = Path(sys.executable or "").name.lower().startswith("python") and not getattr(sys, "frozen", False)
    takes_turns = os.name == "posix"  # elsewhere there are no locks: both would compile the same
    allowed = os.environ.get(_ALLOWED, "1") != "0" and multiprocessing.parent_process() is None
    return ours and takes_turns and allowed


def _start(job: str) -> subprocess.Popen[bytes]:
    _begun.add(job)
    quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command(job), env=environment(), **quiet)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
