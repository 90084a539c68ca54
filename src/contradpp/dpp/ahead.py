"""Who learns on a new machine waits for a compiler: meanwhile another process compiles what is needed later.

What it compiles it keeps on disk, where we find it (`compiled._numba.SharedCache`): two processes never compile the
same. It runs a job of `contradpp warm` until that is done or this process ends. CONTRADPP_COMPILE_AHEAD=0 in the
environment forbids it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from contradpp._threads import resolve_n_jobs
from contradpp.dpp import compiled

FIT, DEMO, NEGATIVES = "fit", "demo", "negatives"
# The kernels that tell whether a job has been done on this machine before: what takes longest, and what comes last.
_OF_THE_DEFAULT = ("gradients.conditional_gradients", "kernels.best_of_rows")
_TELLING = {
    FIT: _OF_THE_DEFAULT,
    DEMO: _OF_THE_DEFAULT,
    NEGATIVES: ("gradients.conditional_gradients", "gradients.log_det_gradients"),
}
_ALLOWED = "CONTRADPP_COMPILE_AHEAD"  # in the environment
_LONGEST = 5.0  # seconds until a process that does not end is killed
_starting = Lock()
_begun: dict[str, subprocess.Popen[bytes]] = {}  # by job: where nothing can be kept on disk, once is enough


def compile_ahead(job: str, *, n_jobs: int | None = None) -> None:
    """Let another process do a job, unless it has been done here before, one is at work, or one core is to be used."""
    with _starting:
        at_work = any(process.poll() is None for process in _begun.values())
        cores = min(resolve_n_jobs(n_jobs), resolve_n_jobs(None))
        if at_work or cores == 1 or job in _begun or not _may_start() or at_hand(job):
            return
        with suppress(OSError):  # a system that allows no processes
            quiet: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            _begun[job] = subprocess.Popen(command(job), env=environment(), **quiet)
            atexit.register(_end, _begun[job], os.getpid())


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


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() != starter:  # of a fork it is not the child
        return
    process.terminate()
    try:
        process.wait(_LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
