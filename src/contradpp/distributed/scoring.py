"""Suggestions for every basket of a folder of Parquet files, on Ray: each file is answered by a file of its name.

An answer is written beside its place and renamed into it, so that it is there whole or not at all. Whatever happens,
every input row is answered exactly once: a run that was broken off, started again, answers the files that are left.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import contradpp as cd
from contradpp.data.tables import layout_of
from contradpp.distributed.ray import session
from contradpp.distributed.shards import NO_COLUMNS, FileOf, import_extra, list_files
from contradpp.dpp import persist
from contradpp.errors import ClusterError, ContradppError, DataError

BLOCK = 512  # baskets answered at a time


@dataclass(frozen=True)
class Question:
    """What is asked of every basket, and where the answers go."""

    model: str  # its file
    digest: str  # of the file
    folder: str
    n: int
    exclude: tuple[Any, ...]
    unknown: str


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
    folder = Path(target).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the folder {folder}: {error.strerror}") from error
    cd.load(model)  # a damaged one is an error here and now
    digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    question = Question(os.path.abspath(model), digest, str(folder), n, tuple(exclude), unknown)
    check_same_run(question)
    left = [file for file in files if not place_of(file, question).exists()]
    if not left:
        return 0, 0
    n_rows, waiting = 0, []
    with session(address, workers) as ray:
        task = ray.remote(num_cpus=1, max_retries=3)(answer_file)  # again, if its process dies
        try:
            for file in left:
                waiting.append(task.remote(file, question))
                if len(waiting) == workers:
                    done, waiting = ray.wait(waiting)
                    n_rows += sum(ray.get(done))
            return len(left), n_rows + sum(ray.get(waiting))
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            raise cause if isinstance(cause, ContradppError) else ClusterError(f"scoring failed: {error}") from error


def check_same_run(question: Question) -> None:
    """Note in the folder which model answers and how, and refuse one where another did."""
    folder = Path(question.folder)
    settings = [question.n, list(map(str, question.exclude)), question.unknown]
    now = {"model": question.digest, "settings": settings}
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


def place_of(file: FileOf, question: Question) -> Path:
    """Where the answers to a file go."""
    return Path(question.folder) / Path(file.path).name


@lru_cache(maxsize=1)
def model_of(question: Question) -> tuple[Any, bool]:
    """The model, loaded once in every process, and whether its item ids are written as text."""
    model = cd.load(question.model)
    return model, not all(type(item) is int for item in model.items_)


def answer_file(file: FileOf, question: Question) -> int:
    """Write the answers to one file, in its order, and give back how many there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, shares = pa.list_(pa.string() if model_of(question)[1] else pa.int64()), pa.list_(pa.float64())
    schema = pa.schema([("row", pa.int64()), ("items", ids), ("probabilities", shares), ("error", pa.string())])
    place = place_of(file, question)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    done = 0
    try:
        with import_extra("fsspec").open(file.path, "rb") as stream, pq.ParquetFile(stream) as table:
            layout = layout_of(table.schema_arrow, NO_COLUMNS, where=file.path)
            if not layout.lists:
                raise DataError(f"{file.path}: a column with the list of a basket's items is needed")
            with pq.ParquetWriter(temporary, schema) as out:
                for batch in table.iter_batches(batch_size=BLOCK, columns=[layout.item]):
                    baskets = [basket or [] for basket in batch.column(0).to_pylist()]
                    lines = [{"row": done + i} | answer for i, answer in enumerate(answers(baskets, question))]
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


def answers(baskets: list[list[Any]], question: Question) -> list[dict[str, Any]]:
    """Suggestions for a block of baskets; where that fails, for one after the other, with the reason."""
    model, as_text = model_of(question)
    if question.unknown == "ignore":
        baskets = [[item for item in basket if item in model.items_] for basket in baskets]
    try:
        found, chances = model.recommend(baskets, N=question.n, exclude=question.exclude)
    except ContradppError as error:
        if len(baskets) == 1:
            return [{"items": None, "probabilities": None, "error": str(error)}]
        return [answer for basket in baskets for answer in answers([basket], question)]
    told = []
    for items, shares in zip(found.tolist(), chances.tolist(), strict=True):
        filled = [(item, share) for item, share in zip(items, shares, strict=True) if item is not None]
        ids = [str(item) if as_text else item for item, _ in filled]
        told.append({"items": ids, "probabilities": [share for _, share in filled]})
    return told
