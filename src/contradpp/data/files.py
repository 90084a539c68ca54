"""Files opened once: unpacked, checked and decoded to UTF-8 while they are read."""

from __future__ import annotations

import codecs
import gzip
import io
import logging
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contradpp.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger("contradpp")

MAX_LINE = 64 << 20  # bytes in one line
MAX_BLANK = 64 << 20  # bytes of white space before the first line that is not blank
MAX_UNPACKED = 256 << 20  # bytes that any gzip file may unpack to
MAX_RATIO = 200  # beyond that, it may unpack to this many times the bytes that were read
PARQUET = b"PAR1"
BLANK = " \t\r\n\f\v"  # unlike str.strip, which also strips the no-break space of an id

_CHUNK = 1 << 20
_FIRST_LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)?")
_SAMPLE_LINES = 1000
_SAMPLE_BYTES = 1 << 18
_CONTROL = bytes(c for c in range(32) if chr(c) not in BLANK)
_WEB_PAGE = "a web page (was it saved where a login was asked for?)"
_FOREIGN = {
    PARQUET: "a Parquet file",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"(\xb5/\xfd": "compressed with Zstandard",
    b"ARROW1": "an Arrow or Feather file",
    b"%PDF-": "a PDF document",
    b"<!DOC": _WEB_PAGE,
    b"<!doc": _WEB_PAGE,
    b"<html": _WEB_PAGE,
    codecs.BOM_UTF32_LE: "UTF-32 text (save it as UTF-8)",  # before UTF-16, whose mark begins it
    codecs.BOM_UTF32_BE: "UTF-32 text (save it as UTF-8)",
    codecs.BOM_UTF16_LE: "UTF-16 text (save it as UTF-8)",
    codecs.BOM_UTF16_BE: "UTF-16 text (save it as UTF-8)",
}


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
        raise DataError(f"{str(path)[:200]}: cannot be read ({error.strerror or error})") from error


@dataclass(frozen=True)
class Source:
    """An open file of bytes, decompressed if it is gzip."""

    path: Path
    stream: io.BufferedReader | gzip.GzipFile
    packed: io.BufferedReader | None  # the bytes on disk of a gzip file

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case, without a final .gz."""
        return Path(self.path.name.lower().removesuffix(".gz")).suffix

    def head(self, n: int) -> bytes:
        """Peek at the first `n` bytes."""
        return bytes(self.stream.peek(n)[:n])

    def chunks(self) -> Iterator[bytes]:
        """Read the bytes in pieces; `DataError` if gzip unpacks to more than baskets can."""
        n_read = 0
        while chunk := self.stream.read(_CHUNK):
            n_read += len(chunk)
            packed = n_read if self.packed is None else self.packed.tell()
            limit = max(MAX_UNPACKED, MAX_RATIO * packed)
            if n_read > limit:
                raise DataError(
                    f"{self.path}: {packed:,} bytes of gzip unpack to more than {limit:,}, "
                    f"which is refused ({MAX_RATIO} times the size, or {MAX_UNPACKED >> 20} MB): "
                    "unpack the file first if it is right"
                )
            yield chunk


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open the file at `path`; its first bytes tell if it is gzip."""
    with reading(path):
        if "\0" in str(path):
            raise FileNotFoundError
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError(
                f"{path}: not a file but a pipe, a device or a folder; "
                "write the baskets to a file first"
            )
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] != b"\x1f\x8b":
                yield Source(path, raw, None)
                return
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield Source(path, unpacked, raw)


class Text(io.RawIOBase):
    """The bytes of a text file from its first line that is not blank, checked as they are read.

    Lines that are not UTF-8 are taken for Latin-1, in which every byte means something.
    `first_line` is the number of the first line that is not blank.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.path = source.path
        self.suffix = source.suffix
        self.n_quotes = 0  # double quotes read so far
        self._chunks = source.chunks()
        self._rest = b""  # the part of the last chunk after its last whole line
        self._line = 1  # the number of the next line to be checked
        self._n_latin = 0
        self._first_latin = 0
        for magic, kind in _FOREIGN.items():
            if source.head(8).startswith(magic):
                raise DataError(f"{self}: not a text file of baskets but {kind}")
        block = self._skip_blank(self._read_block().removeprefix(codecs.BOM_UTF8))
        if not block:
            raise DataError(f"{self}: the file is empty")
        self.first_line = self._line - block.count(b"\n")
        self._ready = memoryview(block)

    def __str__(self) -> str:
        return str(self.path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._ready:
            self._ready = memoryview(self._read_block())
        target = memoryview(buffer)
        n = min(len(target), len(self._ready))
        target[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def lines(self) -> io.TextIOWrapper:
        """Read the remaining lines, with their line ends."""
        return io.TextIOWrapper(io.BufferedReader(self, _CHUNK), encoding="utf-8", newline="")

    def first_lines(self) -> list[str]:
        """Peek at the next lines that are not blank, enough to recognize the format."""
        sample = bytes(self._ready[:_SAMPLE_BYTES])
        lines = sample.splitlines()
        if len(sample) < len(self._ready):  # the last line is cut, unless there is only one
            lines = lines[:-1] or bytes(self._ready).splitlines()[:1]
        return [line.decode() for line in lines[:_SAMPLE_LINES] if line.strip()]

    def skip_line(self) -> bool:
        """Skip the next line and blank ones after it; return whether there are more."""
        block = bytes(self._ready)
        end = len(_FIRST_LINE.match(block)[0])  # type: ignore[index]
        self._ready = memoryview(self._skip_blank(block[end:]))
        return bool(self._ready)

    def error(self, line: int, reason: str) -> DataError:
        """Make the error for a line."""
        return DataError(f"{self}, line {line}: {reason}")

    def log_latin(self) -> None:
        """Log how many lines were taken for Latin-1."""
        if self._n_latin:
            logger.warning(
                "%s: %d lines are not UTF-8 and were read as Latin-1, the first of them is line %d",
                self,
                self._n_latin,
                self._first_latin,
            )

    def _skip_blank(self, block: bytes) -> bytes:
        """Return this block, or the next that is not blank, from its first line that is not."""
        n_blank = 0
        while not block.strip():
            n_blank += len(block)
            if n_blank > MAX_BLANK:
                raise DataError(
                    f"{self}: {MAX_BLANK >> 20} MB are blank, and more is not looked through"
                )
            block = self._read_block()
            if not block:
                return block
        before = block[: len(block) - len(block.lstrip())]
        return block[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]

    def _read_block(self) -> bytes:
        """Read the next whole lines as UTF-8; nothing at the end of the file."""
        data = self._rest
        cut = 0
        chunk = b"more"
        while chunk and not cut:
            chunk = next(self._chunks, b"")
            data += chunk
            # A carriage return at the very end may be half of a line's end.
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if chunk else len(data)
            if len(data) - cut > MAX_LINE:
                line = self._line + data.count(b"\n")
                raise self.error(line, f"the line is longer than {MAX_LINE >> 20} MB")
        block = data[:cut]
        self._rest = data[cut:]
        if len(block.translate(None, _CONTROL)) < len(block):
            at = next(position for position, byte in enumerate(block) if byte in _CONTROL)
            line = self._line + block.count(b"\n", 0, at)
            raise self.error(line, f"not a text file (it holds the byte 0x{block[at]:02x})")
        self.n_quotes += block.count(b'"')
        decoded = block if block.isascii() else self._to_utf8(block)
        self._line += block.count(b"\n")
        return decoded

    def _to_utf8(self, block: bytes) -> bytes:
        """Convert every line that is not UTF-8 from Latin-1."""
        with suppress(UnicodeDecodeError):
            block.decode()
            return block
        lines = block.splitlines(keepends=True)
        for n, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                lines[n] = line.decode("latin-1").encode()
                self._n_latin += 1
                self._first_latin = self._first_latin or self._line + n
        return b"".join(lines)
