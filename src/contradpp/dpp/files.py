"""Model files: one safetensors file with factors, item ids, parameters, version and checksum.

Nothing in a file is executed or imported: tensors are numbers, and the rest is JSON that is checked
key by key. docs/file-format.md describes the layout.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._types import StrPath, Values
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import ContradppError, ModelFileError

FORMAT = "contradpp"
VERSION = 4  # the version that is written, and the only one that is read
HEADER_KEY = "contradpp"  # a single key: safetensors writes several in no fixed order
MAX_HEADER = 16 * 1024 * 1024
Tensors = dict[str, NDArray[Any]]


def write_model(
    path: StrPath, tensors: Mapping[str, NDArray[Any]], info: Mapping[str, object]
) -> None:
    """Write tensors and a description that JSON can hold, atomically.

    The old file stays until the new one is complete.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    body = {"format": FORMAT, "version": VERSION, **info}
    body["checksum"] = _checksum(arrays, body)
    write_atomically(path, save(arrays, metadata={HEADER_KEY: json.dumps(body, sort_keys=True)}))


def read_model(path: StrPath) -> tuple[Tensors, Values]:
    """Read the tensors and the description of a model file.

    Raises
    ------
    ModelFileError
        If the file cannot be read, is damaged, or is not one of ours.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        # Reading a folder fails with a clear message; reading a pipe would wait.
        if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
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
    if body.pop("checksum", None) != _checksum(tensors, body):
        raise _damaged(path, "its checksum does not match its contents")
    return tensors, body


def format_version(path: StrPath) -> int:
    """Return the version of the format of a model file."""
    with open(path, "rb") as file:
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), MAX_HEADER))
    return int(_body(length + header, path)["version"])


def write_atomically(path: StrPath, data: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to the disk, then rename it into place.

    The new file has the permissions of the old one, if there is one.
    """
    target = Path(path)
    mode = None
    try:
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(target.stat().st_mode)
        # mkstemp would make the file private, and the umask cannot be read without changing it.
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(temporary, flags, 0o666 if mode is None else mode)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        why = getattr(error, "strerror", None) or error
        raise ModelFileError(f"cannot write {target}: {why}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)  # without the umask
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        why = error.strerror or error
        raise ModelFileError(f"cannot write {target}: {why}; nothing was changed") from error


def plain_params(params: Mapping[str, object]) -> Values:
    """Return the parameters that JSON can hold; a generator as random_state is not among them.

    Nor is the number of threads: a model is the same file for any.
    """
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in params.items()
        if name != "n_jobs"
    }
    kinds = (bool, int, float, str)
    found: Values = {
        name: value for name, value in plain.items() if value is None or isinstance(value, kinds)
    }
    for name, value in plain.items():
        if is_dataclass(value) and hasattr(value, "get_params"):
            found[name] = {"class": type(value).__name__, **plain_params(vars(value))}
    return found


# -- Arrays ----------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An array of a file: one row of the schema of a part of a model.

    A name in `shape` stands for a size that is the same wherever it is named; "M+1" is one more.
    """

    shape: tuple[int | str, ...]
    dtype: type[np.generic] = np.float64
    low: float = -np.finfo(np.float64).max
    high: float = np.finfo(np.float64).max
    single: bool = False  # float32 in the file, float64 in memory


Schema = Mapping[str, Stored]


def stored_arrays(values: Mapping[str, object], schema: Schema, prefix: str = "") -> Tensors:
    """Return the arrays of a file that hold these values."""
    return {
        prefix + name: np.asarray(values[name], dtype=np.float32 if kind.single else kind.dtype)
        for name, kind in schema.items()
    }


def read_arrays(
    tensors: Mapping[str, NDArray[Any]],
    schema: Schema,
    what: str,
    prefix: str = "",
    /,
    **sizes: int,
) -> Tensors:
    """Return the arrays of a schema by name, checked against it.

    Parameters
    ----------
    what : str
        The name of the part in messages.
    sizes : int
        The sizes that are known; others are those of the first array that has them.

    Raises
    ------
    KeyError, ValueError
        If an array is absent, or does not fit the schema.
    """
    found: Tensors = {}
    for name, kind in schema.items():
        array = tensors[prefix + name]
        family = np.integer if issubclass(kind.dtype, np.integer) else np.floating
        shape = tuple(
            _size(size, actual, sizes)
            for size, actual in zip(kind.shape, array.shape, strict=False)
        )
        wanted_ndim = len(kind.shape)
        if (
            array.ndim != wanted_ndim
            or array.shape != shape
            or not np.issubdtype(array.dtype, family)
        ):
            raise ValueError(f"its {what} are damaged: {name} has another shape or type")
        in_range = (
            not array.size or kind.low <= float(array.min()) <= float(array.max()) <= kind.high
        )
        if not in_range:  # as with NaN
            raise ValueError(f"its {what} are damaged: {what} are no numbers, or too large")
        found[name] = array.astype(kind.dtype)
    return found


def _size(size: int | str, actual: int, sizes: dict[str, int]) -> int:
    if isinstance(size, int):
        return size
    name, _, added = size.partition("+")
    return sizes.setdefault(name, actual - int(added or 0)) + int(added or 0)


def check_rows(
    indptr: NDArray[np.integer], columns: NDArray[np.integer], n_columns: int, what: str
) -> None:
    """Raise ValueError unless these are pointers and columns of a CSR with `n_columns` columns."""
    if indptr[0] != 0 or indptr[-1] != len(columns) or (np.diff(indptr) < 0).any():
        raise ValueError(f"its {what} are damaged")
    if len(columns) and not 0 <= columns.min() <= columns.max() < n_columns:
        raise ValueError(f"its {what} name items that are not there")


# -- Items -----------------------------------------------------------------------------------------


def encode_items(items: Vocabulary) -> Tensors:
    """Return a vocabulary as tensors: integers, strings as UTF-8, or any other ids as JSON."""
    ids = list(items)
    if all(type(item) is int and -(2**63) <= item < 2**63 for item in ids):
        tensors: Tensors = {"items.int": np.array(ids, dtype=np.int64)}
    elif all(type(item) is str for item in ids):
        tensors = _pack("items.text", map(str, ids))
    else:
        tensors = _pack("items.json", (json.dumps(_to_json(item)) for item in ids))
    for kind, labels in (("names", items.names), ("categories", items.categories)):
        if labels:
            tensors |= _pack(f"{kind}.text", (labels.get(item, "") for item in ids))
    return tensors


def decode_items(tensors: Tensors, path: StrPath) -> Vocabulary:
    """Return the vocabulary that `encode_items` stored."""
    try:
        if "items.int" in tensors:
            ids: list[Hashable] = tensors["items.int"].astype(np.int64, casting="safe").tolist()
        elif "items.text.bytes" in tensors:
            ids = list(_unpack("items.text", tensors))
        else:
            ids = [_from_json(json.loads(text)) for text in _unpack("items.json", tensors)]
        names = _labels("names.text", tensors, ids)
        categories = _labels("categories.text", tensors, ids)
        return Vocabulary(ids, names=names, categories=categories)
    except (KeyError, TypeError, ValueError, RecursionError, ContradppError) as error:
        raise _damaged(path, f"its item ids are damaged ({error})") from error


def _body(data: bytes, path: StrPath) -> Values:
    """Return the description in the file's header, checked to be ours and of our version."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, MAX_HEADER):
        raise _damaged(path, "it is truncated, or not a safetensors file")
    try:
        header = json.loads(data[8 : 8 + length])
        body: Values = json.loads(header["__metadata__"][HEADER_KEY])
        version = body["version"]
        if body["format"] != FORMAT or not isinstance(version, int) or version < 1:
            raise ValueError("unknown format")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{os.fspath(path)} is not a contradpp model file") from error
    if version != VERSION:
        advice = "upgrade contradpp" if version > VERSION else "fit the model again"
        raise ModelFileError(
            f"{os.fspath(path)} has format version {version}, "
            f"this contradpp reads version {VERSION}: {advice}"
        )
    return body


def _checksum(tensors: Mapping[str, NDArray[Any]], body: Mapping[str, object]) -> str:
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
    data = tensors[f"{name}.bytes"].tobytes()
    ends = tensors[f"{name}.ends"].tolist()
    if sorted(ends) != ends or (ends[-1] if ends else 0) != len(data) or (ends and ends[0] < 0):
        raise ValueError(f"the offsets of {name} are wrong")
    starts = [0, *ends[:-1]]
    return [data[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)]


def _labels(name: str, tensors: Tensors, ids: list[Hashable]) -> dict[Hashable, str]:
    """Return the texts of the items that have one."""
    texts = _unpack(name, tensors) if f"{name}.bytes" in tensors else []
    if texts and len(texts) != len(ids):
        raise ValueError(f"there are not as many {name.partition('.')[0]} as items")
    return {item: text for item, text in zip(ids, texts, strict=False) if text}


def _to_json(item: Hashable) -> object:
    """Convert tuples to lists; every other id must be a plain JSON value."""
    if isinstance(item, tuple):
        return [_to_json(part) for part in item]
    if item is None or isinstance(item, (str, int, float)):
        return item
    kind = type(item).__name__
    message = f"{kind} is not a string, a number or a tuple of them"
    raise ModelFileError(f"cannot save the item id {item!r}: {message}")


def _from_json(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if isinstance(value, dict):
        raise ValueError("an item id cannot be an object")
    return value  # type: ignore[no-any-return]


def _damaged(path: StrPath, why: str) -> ModelFileError:
    return ModelFileError(f"the model file {os.fspath(path)} cannot be used: {why}")
