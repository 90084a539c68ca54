"""Results as notebooks show them: HTML tables, data frames and figures."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contradpp.errors import MissingExtraError


def html_table(head: Sequence[object], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """Return a table as HTML: the first column on the left, all others on the right."""
    parts = [f"<p><b>{_escaped(title)}</b></p>" if title else "", "<table>"]
    for cells, tag in [(head, "th"), *((row, "td") for row in rows)]:
        parts.append("<tr>")
        for place, cell in enumerate(cells):
            side = "right" if place else "left"
            parts.append(f'<{tag} style="text-align: {side}">{_escaped(cell)}</{tag}>')
        parts.append("</tr>")
    return "".join([*parts, "</table>"])


def _escaped(text: object) -> str:
    return html.escape(str(text)).replace("\n", "<br>")


def data_frame(columns: Mapping[Any, Any], index: Sequence[Any], name: str) -> Any:
    """Return a pandas data frame with a named index."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("to_frame needs pandas: pip install pandas") from error
    return pd.DataFrame(columns, index=pd.Index(index, name=name))


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure, which notebooks show without `pyplot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'contradpp[plot]'") from error

    def as_png() -> bytes:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = as_png
    return figure
