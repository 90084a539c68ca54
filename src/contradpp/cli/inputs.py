"""What commands have in common: baskets from a file or by the name of a data set."""

from __future__ import annotations

from pathlib import Path

from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.data.readers import read_baskets


def baskets_from(data: str, *, basket: str | None = None, item: str | None = None) -> Baskets:
    """The baskets of a file, or of a data set if there is no such file and a data set of that name."""
    if data in datasets.names() and not Path(data).exists():
        return datasets.load(data)
    return read_baskets(data, basket=basket, item=item)
