"""`contradpp data`: list data sets, describe files, download, and convert between formats."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np
from rich.filesize import decimal

from contradpp._types import Values
from contradpp.cli.inputs import baskets_from, layout_options, reading_from
from contradpp.cli.output import busy, check_writable, json_option, say, show_json, show_table
from contradpp.data import datasets
from contradpp.data.baskets import Baskets
from contradpp.errors import DataError

SUFFIXES = (".jsonl", ".csv", ".dat", ".parquet")


@click.group(invoke_without_command=True)
@click.pass_context
def data(ctx: click.Context, /) -> None:
    """List, describe, fetch and convert baskets."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@data.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List the data sets that every command knows by name."""
    found: list[Values] = []
    for name in datasets.names():
        known = datasets.info(name)
        where = str(datasets.location(name) or f"to download: contradpp data fetch {name}")
        found.append(
            {
                "name": name,
                "n_baskets": known.n_baskets,
                "n_items": known.n_items,
                "where": where if known.files else "built in",
                "description": known.description,
                "source": known.source,
            }
        )
    if as_json:
        show_json(found)
        return
    numbers = [">baskets", ">items"]
    columns = ["name", *numbers, "where", "description"]
    rows = []
    for entry in found:
        n_baskets = f"{entry['n_baskets']:,}" if entry["n_baskets"] else "any"
        n_items = f"{entry['n_items']:,}"
        rows.append([entry["name"], n_baskets, n_items, entry["where"], entry["description"]])
    show_table(columns, rows)


@data.command()
@click.argument("data")
@layout_options
@json_option
def describe(data: str, as_json: bool, **layout: Any) -> None:
    """Describe DATA: the number of baskets and items, basket sizes, popular items."""
    with busy(f"Reading {data} ..."):
        found = reading_from(data, **layout)
    if as_json:
        how = {"format": found.format, "columns": found.columns}
        show_json(found.baskets.summary().as_dict() | how)
    else:
        columns = "".join(f", {role}: {column}" for role, column in found.columns.items())
        click.echo(f"{found.baskets.describe()}\nread as: {found.format}{columns}")


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
def fetch(names: tuple[str, ...], as_json: bool) -> None:
    """Download data sets into the cache, unless they are there already."""
    for name in names:
        datasets.info(name)  # fails on an unknown name before any download
    files = {name: [str(path) for path in datasets.download(name, progress=True)] for name in names}
    if as_json:
        show_json(files)
        return
    for name, paths in files.items():
        click.echo(f"{name}: {', '.join(paths) or 'built in, nothing to fetch'}")


@data.command(epilog=f"Formats by suffix: {', '.join(SUFFIXES)}; .gz after it compresses.")
@click.argument("data")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@layout_options
@json_option
def convert(data: str, output: Path, as_json: bool, **layout: Any) -> None:
    """Write the baskets of DATA to OUTPUT, in the format that its suffix names.

    \b
    contradpp data convert orders.csv orders.parquet
    contradpp data convert grocer grocer.jsonl.gz
    """
    check_writable(output)
    with busy(f"Converting {data} ..."):
        baskets = baskets_from(data, **layout)
        write_baskets(baskets, output)
    if baskets.offered is not None:
        say("The new file holds what was chosen, not what was offered.")
    size = output.stat().st_size
    if as_json:
        counts = {"n_baskets": baskets.n_baskets, "n_items": baskets.n_items}
        show_json({"output": str(output), **counts, "bytes": size})
    else:
        counted = f"{baskets.n_baskets:,} baskets of {baskets.n_items:,} items"
        click.echo(f"{output}: {counted}, {decimal(size)}")


# -- Writing baskets -----------------------------------------------------------------------------


def write_baskets(baskets: Baskets, path: Path) -> None:
    """Write the baskets in the format that the suffix names; a failure leaves the old file."""
    packed = path.suffix.lower() == ".gz"
    suffix = Path(path.stem if packed else path.name).suffix.lower()
    if suffix not in SUFFIXES or (packed and suffix == ".parquet"):
        raise click.BadParameter(
            f"{path.name}: the suffix must be one of {', '.join(SUFFIXES)}", param_hint="OUTPUT"
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        if suffix == ".parquet":
            _write_parquet(baskets, temporary)
        else:
            with temporary.open("wb") as raw:
                stream: Any = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw
                with io.TextIOWrapper(stream, encoding="utf-8", newline="") as file:
                    TEXT_WRITERS[suffix](baskets, file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_jsonl(baskets: Baskets, file: TextIO) -> None:
    for basket in baskets:
        file.write(json.dumps(basket, ensure_ascii=False) + "\n")


def _write_fimi(baskets: Baskets, file: TextIO) -> None:
    for number, basket in enumerate(baskets):
        words = [str(item) for item in basket]
        if any(len(word.split()) != 1 for word in words):
            raise DataError(
                f"basket {number} has an item with a space, which .dat cannot hold: use .jsonl"
            )
        file.write(" ".join(words) + "\n")


def _write_long(baskets: Baskets, file: TextIO) -> None:
    names = baskets.items.names
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["basket", "item", *(["name"] if names else [])])
    for number, basket in enumerate(baskets):
        for item in basket:
            rows.writerow([number, item, *([names.get(item, "")] if names else [])])


TEXT_WRITERS: dict[str, Callable[[Baskets, TextIO], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_long,
    ".dat": _write_fimi,
}


def _write_parquet(baskets: Baskets, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    owners = np.repeat(np.arange(baskets.n_baskets), baskets.sizes)
    columns = {
        "basket": pa.array(owners),
        "item": pa.array(baskets.items.take(baskets.indices.tolist())),
    }
    if baskets.items.names:
        names = np.array([baskets.items.name(item) for item in baskets.items])
        columns["name"] = pa.array(names[baskets.indices])
    pq.write_table(pa.table(columns), path, compression="zstd")
