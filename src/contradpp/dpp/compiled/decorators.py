"""How our kernels are compiled: *entries*, which Python calls, and *helpers*, which only kernels call.

Numba links a kernel that others call into each of them as a weak symbol, and the copy that a process loads first serves
all. With reassociation every copy rounds in its own way, so that results would depend on which kernel ran first. A
helper is therefore inlined where it is called: no copy is shared. `tests/dpp/test_compiled.py` walks the syntax trees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., object])
log = logging.getLogger("contradpp")

# Reassociation lets sums run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": FAST, "error_model": "numpy"}


def entry(function: F) -> F:
    """Compile a kernel that Python calls: cached on disk and free of the GIL."""
    return cast(F, numba.njit(**OPTIONS)(function))


def helper(function: F) -> F:
    """Compile a kernel that other kernels call, as a part of each of them."""
    return cast(F, numba.njit(forceinline=True, **OPTIONS)(function))


class Announcement(event.Listener):
    """Says once a process that kernels are being compiled, which happens when the cache does not have them."""

    said = False

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith(__name__.split(".")[0]):
            self.said = True
            log.warning("compiling for this machine: up to half a minute, once; later runs find it in the cache")

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""


event.register("numba:compile", Announcement())  # type: ignore[no-untyped-call]
