"""How our kernels are compiled: one decorator, so that every kernel caches and releases the GIL."""

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


def compiled(function: F) -> F:
    """Compile a plain Python function with Numba, cached on disk and free of the GIL."""
    return cast(F, numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")(function))


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
