"""Compile kernels in a background process.

On a new machine training would wait for the compiler. Another process runs `contradpp warm`
meanwhile and writes what it compiles to the cache on disk (`compiled._numba.SharedCache`), so that
two processes never compile the same kernel. CONTRADPP_COMPILE_AHEAD=0 in the environment forbids
it.
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

from contradpp._threads import resolve_n_jobs
from contradpp.dpp import compiled

FIT = "fit"
DEMO = "demo"
NEGATIVES = "negatives"
DEFAULT_KERNELS = ("gradients.conditional_gradients", "kernels.best_of_rows")
# A job is done if these are on disk: the kernel that takes longest, and the one compiled last.
LAST_KERNELS = {
    FIT: DEFAULT_KERNELS,
    DEMO: DEFAULT_KERNELS,
    NEGATIVES: ("gradients.conditional_gradients", "gradients.log_det_gradients"),
}
VARIABLE = "CONTRADPP_COMPILE_AHEAD"
SECONDS_TO_END = 5.0  # then the process is killed
_starting = Lock()
# The processes by job. Without a disk to write to, one start is enough.
_started: dict[str, subprocess.Popen[bytes]] = {}


def compile_ahead(job: str, *, n_jobs: int | None = None) -> None:
    """Start a process that compiles the kernels of a job, unless done, running or unwanted."""
    with _starting:
        running = any(process.poll() is None for process in _started.values())
        cores = min(resolve_n_jobs(n_jobs), resolve_n_jobs(None))
        if running or cores == 1 or job in _started or not _may_start() or is_compiled(job):
            return
        with suppress(OSError):  # a system that allows no processes
            process = subprocess.Popen(
                command(job),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            _started[job] = process
            atexit.register(_end, process, os.getpid())


def is_compiled(job: str) -> bool:
    """Return whether the kernels of a job have been compiled on this machine."""
    names = (key.split(".") for key in LAST_KERNELS[job])
    kernels = (getattr(getattr(compiled, module), name) for module, name in names)
    # With NUMBA_DISABLE_JIT kernels are plain functions, ready to run.
    return all(getattr(kernel, "is_compiled", True) for kernel in kernels)


def command(job: str) -> list[str]:
    """Return the command line of a job."""
    # -P: Python would look for modules in the current folder first, where anyone's files may lie.
    return [sys.executable, "-P", "-m", "contradpp", "warm", "--only", job]


def environment() -> dict[str, str]:
    """Return the environment of a job, which starts no other process."""
    return os.environ | {VARIABLE: "0"}


def _may_start() -> bool:
    """Return whether this is plain Python: not embedded, frozen, or in a pool of processes."""
    name = Path(sys.executable or "").name.lower()
    plain_python = name.startswith("python") and not getattr(sys, "frozen", False)
    has_locks = os.name == "posix"  # without locks both processes would compile the same kernels
    allowed = os.environ.get(VARIABLE, "1") != "0" and multiprocessing.parent_process() is None
    return plain_python and has_locks and allowed


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() != starter:  # a fork is not the parent of the process
        return
    process.terminate()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
