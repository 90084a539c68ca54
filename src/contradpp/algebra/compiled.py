"""How our kernels are compiled: one decorator, so that every kernel caches and releases the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

# Reassociation lets sums run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: F) -> F:
    """Compile a plain Python function with Numba, cached on disk and free of the GIL."""
    return cast(F, numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")(function))
