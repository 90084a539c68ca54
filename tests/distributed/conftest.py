"""Baskets in several Parquet files."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Baskets in four files of different lengths, one of them without any."""
    place = tmp_path_factory.mktemp("baskets")
    rng = np.random.default_rng(0)
    lists = [[f"item {i}" for i in rng.choice(40, size=rng.integers(1, 6), replace=False)] for _ in range(1500)]
    ends = [0, 100, 900, 900, 1500]
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        column = pa.array(lists[first:last], type=pa.list_(pa.string()))
        pq.write_table(pa.table({"items": column}), place / f"part-{number}.parquet")
    return place
