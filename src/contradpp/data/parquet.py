"""Parquet: long or with a column of lists, read batch by batch from one file or a folder of parts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contradpp.data.assemble import Assembler
from contradpp.data.source import Source, reading
from contradpp.data.tables import add_batches, layout_of
from contradpp.errors import DataError

MAGIC = b"PAR1"
_BATCH_ROWS = 1 << 18  # lists and long texts can be wide; a quarter of a million rows amortises the overhead


def parquet_parts(folder: Path) -> list[Path]:
    """The Parquet files in a folder, by name."""
    with reading(folder):
        parts = sorted(part for part in folder.iterdir() if part.name.lower().endswith((".parquet", ".parquet.gz")))
    if not parts:
        raise DataError(f"{folder}: a folder without .parquet files")
    return parts


def read_parquet(
    sources: Sequence[Source],
    assembler: Assembler,
    *,
    basket: str | None = None,
    item: str | None = None,
    quantity: str | None = None,
    name: str | None = None,
) -> None:
    """Add the rows of one or several Parquet files; a basket may be spread over all of them."""
    for source in sources:
        where = str(source.path)
        with _opened(source) as file:
            layout = layout_of(file.schema_arrow, basket=basket, item=item, quantity=quantity, name=name, where=where)
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=layout.columns)
            add_batches(assembler, batches, layout, where=where)


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """The Parquet file; a gzipped one is unpacked to disk first, since Parquet is read from its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as unpacked, reading(source.path):
        if source.gzipped:
            with source.open() as stream:
                shutil.copyfileobj(stream, unpacked, 1 << 20)
            unpacked.seek(0)
        try:
            with pq.ParquetFile(unpacked if source.gzipped else source.path) as file:
                yield file
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a column name may be damaged too
            raise DataError(f"{source.path}: not a readable Parquet file ({error})") from error
