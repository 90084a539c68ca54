"""Experts: models that score next items, by themselves or combined by `ConditionalDPP`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contradpp.experts import compiled

__all__ = ["compiled"]


def __getattr__(name: str) -> Any:
    """Load the Numba kernels when they are first used: loading Numba takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
