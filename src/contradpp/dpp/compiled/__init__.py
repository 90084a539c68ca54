"""The Numba kernels; each module is loaded when first asked for, because loading Numba takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contradpp.dpp.compiled import (
        blocks,
        chains,
        draws,
        gradients,
        kernels,
        neighbours,
        orders,
        ranks,
        rules,
        samples,
        slates,
        steps,
        sums,
        terms,
    )

__all__ = [
    "blocks", "chains", "draws", "gradients", "kernels", "neighbours", "orders", "ranks", "rules",
    "samples", "slates", "steps", "sums", "terms",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
