"""Numba kernels. Each module is loaded on first use, because loading Numba takes a second.

`entry` and `helper` are the decorators of kernels (see `_numba`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contradpp.dpp.compiled import (
        blocks,
        draws,
        gradients,
        kernels,
        neighbors,
        samples,
        steps,
    )
    from contradpp.dpp.compiled._numba import entry, helper

__all__ = [
    "blocks",
    "draws",
    "entry",
    "gradients",
    "helper",
    "kernels",
    "neighbors",
    "samples",
    "steps",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("entry", "helper"):
        return getattr(import_module(f"{__name__}._numba"), name)
    return import_module(f"{__name__}.{name}")
