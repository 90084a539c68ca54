"""Suggestions for every basket of a folder of Parquet files, on Ray Data: each file is answered by a file of its name.

An answer is written beside its place and renamed into it, so that it is there whole or not at all. Whatever happens,
every input row is answered exactly once: a run that was broken off, started again, answers the files that are left.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import contradpp as cd
from contradpp.data.tables import layout_of
from contradpp.distributed.ray import NO_COLUMNS, session
from contradpp.distributed.shards import FileOf, list_files
from contradpp.dpp import persist
from contradpp.errors import ClusterError, ContradppError, DataError

BLOCK = 512  # baskets answered at a time


def recommend_folder(
    model: str | os.PathLike[str],
    source: str,
    target: str | os.PathLike[str],
    *,
    n: int = 10,
    exclude: Sequence[Any] = (),
    unknown: str = "error",
    workers: int = 2,
    address: str | None = None,
) -> tuple[int, int]:
    """Answer all files of `source` that have no answer in the folder `target` yet; (files, rows) answered now."""
    files = list_files(source)
    names = [Path(file.path).name for file in files]
    folder = Path(target).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the folder {folder}: {error.strerror}") from error
    check_same_run(folder, model, [n, list(map(str, exclude)), unknown])
    left = [file for file, name in zip(files, names, strict=True) if not (folder / name).exists()]
    if not left:
        return 0, 0
    arguments = {
        "model": os.path.abspath(model), "folder": str(folder), "n": n, "exclude": list(exclude), "unknown": unknown,
    }  # fmt: skip
    with session(address, workers) as ray:
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars, context.raise_original_map_exception = False, True
        work = ray.data.from_items([file._asdict() for file in left], override_num_blocks=len(left))
        try:
            rows = work.map(Scorer, fn_constructor_kwargs=arguments, concurrency=(1, workers)).take_all()
        except Exception as error:  # Ray wraps ours, and raises what it likes
            cause = getattr(error, "cause", error)
            raise cause if isinstance(cause, ContradppError) else ClusterError(f"scoring failed: {error}") from error
    return len(rows), sum(row["n_rows"] for row in rows)


def check_same_run(folder: Path, model: str | os.PathLike[str], settings: list[Any]) -> None:
    """Note in the folder which model answers and how, and refuse one where another did."""
    cd.load(model)  # a damaged one is an error here and now
    now = {"model": hashlib.sha256(Path(model).read_bytes()).hexdigest(), "settings": settings}
    note = folder / "_run.json"
    if not note.exists():
        if any(folder.glob("*.parquet")):
            raise DataError(f"{folder} holds Parquet files that are no answers: name another folder")
        persist.write_atomically(note, json.dumps(now).encode())
        return
    try:
        before = json.loads(note.read_bytes())
    except (OSError, ValueError):
        before = None
    if before != now:
        raise DataError(f"{folder} holds answers of another model or with other settings: name another folder")


class Scorer:
    """A model that answers file after file."""

    def __init__(self, *, model: str, folder: str, n: int, exclude: list[Any], unknown: str) -> None:
        self._model, self._folder = cd.load(model), Path(folder)
        self._n, self._exclude, self._unknown = n, exclude, unknown
        self._as_text = not all(type(item) is int for item in self._model.items_)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Answer a file; its name and number of rows."""
        file = FileOf(**row)
        return {"path": file.path, "n_rows": self.answer(file)}

    def answer(self, file: FileOf) -> int:
        """Write the answers to one file, in its order, and give back how many there are."""
        import fsspec  # type: ignore[import-untyped]
        import pyarrow as pa
        import pyarrow.parquet as pq

        ids = pa.string() if self._as_text else pa.int64()
        schema = pa.schema(
            [
                ("row", pa.int64()),
                ("items", pa.list_(ids)),
                ("probabilities", pa.list_(pa.float64())),
                ("error", pa.string()),
            ]
        )
        place = self._folder / Path(file.path).name
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
        done = 0
        try:
            with fsspec.open(file.path, "rb") as stream, pq.ParquetFile(stream) as table:
                layout = layout_of(table.schema_arrow, NO_COLUMNS, where=file.path)
                if not layout.lists:
                    raise DataError(f"{file.path}: a column with the list of a basket's items is needed")
                with pq.ParquetWriter(temporary, schema) as out:
                    for batch in table.iter_batches(batch_size=BLOCK, columns=[layout.item]):
                        answers = self._answers([basket or [] for basket in batch.column(0).to_pylist()])
                        lines = [{"row": done + i} | answer for i, answer in enumerate(answers)]
                        out.write_table(pa.Table.from_pylist(lines, schema=schema))
                        done += len(lines)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, place)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{file.path}: cannot be answered ({error})") from error
        finally:
            temporary.unlink(missing_ok=True)
        return done

    def _answers(self, baskets: list[list[Any]]) -> list[dict[str, Any]]:
        """Suggestions for a block of baskets; where that fails, for one after the other, with the reason."""
        if self._unknown == "ignore":
            baskets = [[item for item in basket if item in self._model.items_] for basket in baskets]
        try:
            found, chances = self._model.recommend(baskets, N=self._n, exclude=self._exclude)
        except ContradppError as error:
            if len(baskets) == 1:
                return [{"items": None, "probabilities": None, "error": str(error)}]
            return [answer for basket in baskets for answer in self._answers([basket])]
        return [self._answer(*pair) for pair in zip(found.tolist(), chances.tolist(), strict=True)]

    def _answer(self, items: list[Any], chances: list[float]) -> dict[str, Any]:
        filled = [(item, chance) for item, chance in zip(items, chances, strict=True) if item is not None]
        ids = [str(item) if self._as_text else item for item, _ in filled]
        return {"items": ids, "probabilities": [chance for _, chance in filled], "error": None}
