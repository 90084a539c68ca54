"""Files as bytes and as text: decompression, encoding and the checks that every text format needs."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from contradpp.errors import DataError

MAX_LINE = 64 << 20
_CHUNK = 1 << 20
_BLANK = b" \t\r\n\f\v"
_CONTROL = bytes(c for c in range(32) if bytes([c]) not in (b"\t", b"\n", b"\r", b"\f", b"\v"))
_FOREIGN = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"(\xb5/\xfd": "compressed with Zstandard",
    b"ARROW1": "an Arrow or Feather file",
    b"\xff\xfe": "UTF-16 text (save it as UTF-8)",
    b"\xfe\xff": "UTF-16 text (save it as UTF-8)",
}


@dataclass(frozen=True)
class Source:
    """A file of bytes, decompressed on the way if it is gzip."""

    path: Path
    gzipped: bool

    @classmethod
    def of(cls, path: Path) -> Source:
        """The file at `path`; whether it is gzip is told by its first bytes."""
        with reading(path), open(path, "rb") as stream:
            return cls(path, stream.read(2) == b"\x1f\x8b")

    def open(self) -> BinaryIO:
        """The decompressed bytes, from the start."""
        return cast(BinaryIO, gzip.open(self.path, "rb") if self.gzipped else open(self.path, "rb"))

    def head(self, n: int) -> bytes:
        """The first `n` decompressed bytes."""
        with reading(self.path), self.open() as stream:
            return stream.read(n)

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case, without a final .gz."""
        return Path(re.sub(r"\.gz$", "", self.path.name.lower())).suffix


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the failures of opening, reading and decompressing into `DataError`."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip data are damaged or cut short ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


@dataclass(frozen=True)
class Text:
    """A text file that has been looked through once.

    Attributes
    ----------
    encoding : str
        "utf-8" if all of it is, else "latin-1".
    start, first_line : int
        The byte where the first line that is not blank begins (after a byte order mark), and its number.
    n_quotes : int
        How many double quotes there are: none means that no field is quoted.
    """

    source: Source
    encoding: str
    start: int
    first_line: int
    n_quotes: int

    def __str__(self) -> str:
        return str(self.source.path)

    def open(self) -> BinaryIO:
        """The bytes from the first line that is not blank."""
        stream = self.source.open()
        stream.seek(self.start)
        return stream

    def lines(self) -> Iterator[str]:
        """The lines with their ends, from the first that is not blank."""
        with (
            reading(self.source.path),
            io.TextIOWrapper(self.open(), encoding=self.encoding, newline="") as stream,
        ):
            yield from stream

    def error(self, line: int, reason: str) -> DataError:
        """The error for something wrong in a line."""
        return DataError(f"{self}, line {line}: {reason}")


def inspect_text(source: Source) -> Text:
    """Look through a file chunk by chunk: find its encoding, and refuse what is empty or not text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    encoding, n_quotes, line, tail = "utf-8", 0, 1, 0
    start, first_line, blank = 0, 1, True
    with reading(source.path), source.open() as stream:
        chunk = stream.read(_CHUNK)
        _refuse_foreign(source, chunk)
        start, first_line = _first_line(chunk)
        while chunk:
            blank = blank and not chunk.removeprefix(codecs.BOM_UTF8).strip(_BLANK)
            _refuse_control(source, chunk, line)
            tail = _longest_line(source, chunk, tail, line)
            n_quotes += chunk.count(b'"')
            line += chunk.count(b"\n")
            encoding = _encoding(decoder, chunk, encoding)
            chunk = stream.read(_CHUNK)
        encoding = _encoding(decoder, b"", encoding)
    if blank:
        raise DataError(f"{source.path}: the file is empty")
    return Text(source, encoding, start, first_line, n_quotes)


def _encoding(decoder: codecs.IncrementalDecoder, chunk: bytes, encoding: str) -> str:
    if encoding == "utf-8":
        try:
            decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            return "latin-1"  # every byte means something in Latin-1, so this cannot fail later
    return encoding


def _first_line(chunk: bytes) -> tuple[int, int]:
    """Where the first line that is not blank begins, and its number."""
    mark = len(codecs.BOM_UTF8) if chunk.startswith(codecs.BOM_UTF8) else 0
    body = chunk[mark:]
    blank = body[: len(body) - len(body.lstrip(_BLANK))]
    n_blank = max(blank.rfind(b"\n"), blank.rfind(b"\r")) + 1
    return mark + n_blank, 1 + len(blank[:n_blank].splitlines())


def _refuse_foreign(source: Source, chunk: bytes) -> None:
    for magic, what in _FOREIGN.items():
        if chunk.startswith(magic):
            raise DataError(f"{source.path}: not a text file of baskets but {what}")


def _refuse_control(source: Source, chunk: bytes, line: int) -> None:
    if len(chunk.translate(None, _CONTROL)) < len(chunk):
        at = next(position for position, byte in enumerate(chunk) if byte in _CONTROL)
        line += chunk.count(b"\n", 0, at)
        raise DataError(f"{source.path}, line {line}: not a text file (it holds the byte 0x{chunk[at]:02x})")


def _longest_line(source: Source, chunk: bytes, tail: int, line: int) -> int:
    """The length of the unfinished line at the end of the chunk, given that of the one before it."""
    last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
    tail = tail + len(chunk) if last < 0 else len(chunk) - last - 1
    if tail > MAX_LINE:
        raise DataError(f"{source.path}, line {line}: the line is longer than {MAX_LINE >> 20} MB")
    return tail
