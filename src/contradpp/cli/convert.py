"""Baskets written to a file, in the format that its suffix names."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

import click
import numpy as np

from contradpp.cli.destination import replacing
from contradpp.data.baskets import Baskets
from contradpp.errors import DataError


def write_baskets(baskets: Baskets, path: Path) -> None:
    """Write the baskets, whole or not at all."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = (suffixes[:-1] if packed else suffixes)[-1:]
    if not suffix or suffix[0] not in SUFFIXES or (packed and suffix[0] == ".parquet"):
        raise click.BadParameter(f"{path.name}: the suffix must be one of {', '.join(SUFFIXES)}", param_hint="OUTPUT")
    with replacing(path) as temporary:
        if suffix[0] == ".parquet":
            _write_parquet(baskets, temporary)
            return
        with temporary.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw as stream:
            file = io.TextIOWrapper(cast(BinaryIO, stream), encoding="utf-8", newline="")
            WRITERS[suffix[0]](baskets, file)
            file.flush()
            file.detach()


def _write_jsonl(baskets: Baskets, file: TextIO) -> None:
    for basket in baskets:
        file.write(json.dumps(basket, ensure_ascii=False) + "\n")


def _write_fimi(baskets: Baskets, file: TextIO) -> None:
    for number, basket in enumerate(baskets):
        words = [str(item) for item in basket]
        if any(len(word.split()) != 1 for word in words):
            raise DataError(f"basket {number} has an item with a space in it, which .dat cannot hold: use .jsonl")
        file.write(" ".join(words) + "\n")


def _write_long(baskets: Baskets, file: TextIO) -> None:
    names = baskets.items.names
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["basket", "item", *(["name"] if names else [])])
    for number, item in _entries(baskets):
        rows.writerow([number, item, *([names.get(item, "")] if names else [])])


def _write_parquet(baskets: Baskets, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    owners = np.repeat(np.arange(baskets.n_baskets), baskets.sizes)
    columns = {"basket": pa.array(owners), "item": pa.array(baskets.items.take(baskets.indices.tolist()))}
    if baskets.items.names:
        called = np.array([baskets.items.name(item) for item in baskets.items])
        columns["name"] = pa.array(called[baskets.indices])
    pq.write_table(pa.table(columns), path, compression="zstd")


def _entries(baskets: Baskets) -> Iterator[tuple[int, Hashable]]:
    for number, basket in enumerate(baskets):
        for item in basket:
            yield number, item


WRITERS: dict[str, Callable[[Baskets, TextIO], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_long,
    ".dat": _write_fimi,
}
SUFFIXES = (*WRITERS, ".parquet")
