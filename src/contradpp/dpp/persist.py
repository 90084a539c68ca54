"""Model files: one safetensors file with factors, item ids, parameters, version and checksum.

Nothing in a file is executed or imported: tensors are numbers, and the rest is JSON that is checked key by key.
The layout is described in docs/file-format.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ContradppError, ModelFileError

FORMAT = "contradpp"
VERSION = 3  # the highest that is read
# What came with a version: a file has the lowest that knows all of its tensors.
_SINCE = {"diagonal": 2, "categories.text.bytes": 2, "features.indptr": 3}
_HEADER_KEY = "contradpp"  # one key only: safetensors writes several in no fixed order
_MAX_HEADER = 16 * 1024 * 1024
Tensors = dict[str, NDArray[Any]]


def write_model(path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], info: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able description, atomically: the old file stays until the new one is complete."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    body = {"format": FORMAT, "version": max(_SINCE.get(name, 1) for name in arrays), **info}
    body["checksum"] = _checksum(arrays, body)
    data = save(arrays, metadata={_HEADER_KEY: json.dumps(body, sort_keys=True)})
    write_atomically(path, data)


def read_model(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the description of a model file, or `ModelFileError` if it is not whole and ours."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):  # of a folder, reading says so
            raise OSError("it is a pipe or a device, not a file")
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        why = getattr(error, "strerror", None) or error
        raise ModelFileError(f"cannot read the model file {os.fspath(path)}: {why}") from error
    body = _body(data, path)
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    expected = body.pop("checksum", None)
    if expected != _checksum(tensors, body):
        raise _damaged(path, "its checksum does not match its contents")
    return tensors, body


def format_version(path: str | os.PathLike[str]) -> int:
    """The version of the format that a model file has."""
    with open(path, "rb") as file:
        start = file.read(8)
        return int(_body(start + file.read(min(int.from_bytes(start, "little"), _MAX_HEADER)), path)["version"])


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to the disk, then rename it into place."""
    target = Path(path)
    try:
        # Not mkstemp: its file is private, and the umask cannot be asked without changing it.
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        why = getattr(error, "strerror", None) or error
        raise ModelFileError(f"cannot write {target}: {why}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ModelFileError(f"cannot write {target}: {error.strerror or error}; nothing was changed") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that JSON can hold; a generator as random_state is not among them."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    kinds = (bool, int, float, str)
    return {name: value for name, value in plain.items() if value is None or isinstance(value, kinds)}


# -- Arrays ----------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An array of a file: a row of the schema of a part of a model."""

    shape: tuple[int | str, ...]  # a name stands for a size that is the same wherever it is named; "M+1" for one more
    dtype: type[np.generic] = np.float64
    low: float = -np.finfo(np.float64).max
    high: float = np.finfo(np.float64).max
    single: bool = False  # float32 in the file, float64 in memory


Schema = Mapping[str, Stored]


def stored_arrays(values: Mapping[str, Any], schema: Schema, prefix: str = "") -> Tensors:
    """Return the arrays of a file that hold these values."""
    return {
        prefix + name: np.asarray(values[name], dtype=np.float32 if kind.single else kind.dtype)
        for name, kind in schema.items()
    }


def read_arrays(
    tensors: Mapping[str, NDArray[Any]], schema: Schema, what: str, prefix: str = "", /, **sizes: int
) -> Tensors:
    """Return the arrays of a schema by name; KeyError or ValueError if the file holds none or others.

    `what` names the part in messages. A size that is not given is that of the first array that has it.
    """
    found: Tensors = {}
    for name, kind in schema.items():
        array = tensors[prefix + name]
        family = np.integer if issubclass(kind.dtype, np.integer) else np.floating
        wanted = [_size(size, own, sizes) for size, own in zip(kind.shape, array.shape, strict=False)]
        if array.ndim != len(kind.shape) or list(array.shape) != wanted or not np.issubdtype(array.dtype, family):
            raise ValueError(f"its {what} are damaged: {name} has another shape or type")
        if array.size and not kind.low <= float(array.min()) <= float(array.max()) <= kind.high:  # never of NaN
            raise ValueError(f"its {what} are damaged: {what} are no numbers, or too large")
        found[name] = array.astype(kind.dtype)
    return found


def _size(size: int | str, own: int, sizes: dict[str, int]) -> int:
    if isinstance(size, int):
        return size
    name, _, more = size.partition("+")
    return sizes.setdefault(name, own - int(more or 0)) + int(more or 0)


def check_rows(indptr: NDArray[np.integer], columns: NDArray[np.integer], n_columns: int, what: str) -> None:
    """Raise ValueError unless these are the pointers and columns of a CSR matrix with so many columns."""
    if indptr[0] != 0 or indptr[-1] != len(columns) or (np.diff(indptr) < 0).any():
        raise ValueError(f"its {what} are damaged")
    if len(columns) and not 0 <= columns.min() <= columns.max() < n_columns:
        raise ValueError(f"its {what} name items that are not there")


# -- Items -----------------------------------------------------------------------------------------


def encode_items(items: Vocabulary) -> Tensors:
    """The vocabulary as tensors: integers as they are, strings as UTF-8, anything else as JSON, a text per id."""
    tensors: Tensors = {}
    ids = list(items)
    if all(type(item) is int and -(2**63) <= item < 2**63 for item in ids):
        tensors["items.int"] = np.array(ids, dtype=np.int64)
    elif all(type(item) is str for item in ids):
        tensors |= _pack("items.text", map(str, ids))
    else:
        tensors |= _pack("items.json", (json.dumps(_to_json(item)) for item in ids))
    for kind, labels in (("names", items.names), ("categories", items.categories)):
        if labels:
            tensors |= _pack(f"{kind}.text", (labels.get(item, "") for item in ids))
    return tensors


def decode_items(tensors: Tensors, path: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary that `encode_items` stored."""
    try:
        if "items.int" in tensors:
            ids: list[Hashable] = tensors["items.int"].astype(np.int64, casting="safe").tolist()
        elif "items.text.bytes" in tensors:
            ids = list(_unpack("items.text", tensors))
        else:
            ids = [_from_json(json.loads(text)) for text in _unpack("items.json", tensors)]
        names, categories = (_labels(f"{kind}.text", tensors, ids) for kind in ("names", "categories"))
        return Vocabulary(ids, names=names, categories=categories)
    except (KeyError, TypeError, ValueError, RecursionError, ContradppError) as error:
        raise _damaged(path, f"its item ids are damaged ({error})") from error


def _body(data: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The description in the file's header, checked to be ours and of a version that we read."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER):
        raise _damaged(path, "it is truncated, or not a safetensors file")
    try:
        header = json.loads(data[8 : 8 + length])
        body = json.loads(header["__metadata__"][_HEADER_KEY])
        version = body["version"]
        if body["format"] != FORMAT or not isinstance(version, int) or version < 1:
            raise ValueError("unknown format")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{os.fspath(path)} is not a contradpp model file") from error
    if version > VERSION:
        raise ModelFileError(
            f"{os.fspath(path)} has format version {version}, this contradpp reads up to {VERSION}: upgrade contradpp"
        )
    return dict(body)


def _checksum(tensors: Mapping[str, NDArray[Any]], body: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


def _pack(name: str, texts: Iterable[str]) -> Tensors:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {f"{name}.bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}.ends": ends}


def _unpack(name: str, tensors: Tensors) -> list[str]:
    data, ends = tensors[f"{name}.bytes"].tobytes(), tensors[f"{name}.ends"].tolist()
    if sorted(ends) != ends or (ends[-1] if ends else 0) != len(data) or (ends and ends[0] < 0):
        raise ValueError(f"the offsets of {name} are wrong")
    starts = [0, *ends[:-1]]
    return [data[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)]


def _labels(name: str, tensors: Tensors, ids: list[Hashable]) -> dict[Hashable, str]:
    """The texts by id, of the items that have one."""
    texts = _unpack(name, tensors) if f"{name}.bytes" in tensors else []
    if texts and len(texts) != len(ids):
        raise ValueError(f"there are not as many {name.partition('.')[0]} as items")
    return {item: text for item, text in zip(ids, texts, strict=False) if text}


def _to_json(item: Hashable) -> Any:
    """Tuples become lists; every other id must be a plain JSON value."""
    if isinstance(item, tuple):
        return [_to_json(part) for part in item]
    if item is None or isinstance(item, (str, int, float)):
        return item
    kind = type(item).__name__
    raise ModelFileError(f"cannot save the item id {item!r}: {kind} is not a string, a number or a tuple of them")


def _from_json(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if isinstance(value, dict):
        raise ValueError("an item id cannot be an object")
    return value  # type: ignore[no-any-return]


def _damaged(path: str | os.PathLike[str], why: str) -> ModelFileError:
    return ModelFileError(f"the model file {os.fspath(path)} cannot be used: {why}")
