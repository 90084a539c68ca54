"""The few pieces that charts in SVG are made of: elements, scales, ticks and labels that do not overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any


def tag(name: str, *children: str, **attributes: Any) -> str:
    """An element. Children are markup; attribute values are escaped; `class_` is written class, `_` becomes `-`."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>"


def text(content: str, x: float, y: float, **attributes: Any) -> str:
    """A text at a place; the content is escaped."""
    return tag("text", escape(content), x=x, y=y, **attributes)


def hint(content: str) -> str:
    """What is shown where the pointer rests; the content is escaped."""
    return tag("title", escape(content))


def svg(width: float, height: float, *children: str, label: str, class_: str = "chart") -> str:
    """A drawing that scales with the page; the label is what a screen reader says."""
    return tag(
        "svg", *children, viewBox=f"0 0 {_plain(width)} {_plain(height)}", role="img", aria_label=label, class_=class_
    )


@dataclass(frozen=True)
class Scale:
    """A linear map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About n round numbers between two values."""
    span = high - low
    if not span > 0:
        return [low]
    rough = span / n
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def short(content: str, longest: int) -> str:
    """A text cut to a length."""
    return content if len(content) <= longest else content[: longest - 1].rstrip() + "…"


def width_of(content: str, size: float = 11.5) -> float:
    """About how wide a text is; capitals are wider."""
    return size * sum(0.72 if letter.isupper() else 0.3 if letter in "il.,' ()" else 0.57 for letter in content)


@dataclass(frozen=True)
class Box:
    """A rectangle that a label covers."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
