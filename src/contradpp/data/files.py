"""A file opened once: unpacked, checked and put into UTF-8 on the way, so that one pass is enough."""

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
from typing import Any

from contradpp.errors import DataError

logger = logging.getLogger("contradpp")

MAX_LINE = 64 << 20  # bytes in one line
MAX_BLANK = 64 << 20  # bytes of white space before the first line that is not blank
MAX_UNPACKED, MAX_RATIO = 256 << 20, 200  # gzip may unpack to so many bytes, or so many times its own size
PARQUET = b"PAR1"
BLANK = " \t\r\n\f\v"  # not str.strip's own idea of it: a no-break space may be part of an id

_CHUNK = 1 << 20
_LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)?")
_SAMPLE_LINES, _SAMPLE_BYTES = 1000, 1 << 18
_CONTROL = bytes(c for c in range(32) if chr(c) not in BLANK)
_FOREIGN = {
    PARQUET: "a Parquet file",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"(\xb5/\xfd": "compressed with Zstandard",
    b"ARROW1": "an Arrow or Feather file",
    b"%PDF-": "a PDF document",
    b"<!DOC": "a web page (was it saved where a login was asked for?)",
    b"<!doc": "a web page (was it saved where a login was asked for?)",
    b"<html": "a web page (was it saved where a login was asked for?)",
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
    """An open file of bytes, decompressed on the way if it is gzip."""

    path: Path
    stream: Any  # a BufferedReader or a GzipFile: both can be peeked into
    packed: int | None  # the bytes on disk, if they are gzip

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case, without a final .gz."""
        return Path(re.sub(r"\.gz$", "", self.path.name.lower())).suffix

    def head(self, n: int) -> bytes:
        """Peek at the first `n` bytes."""
        return bytes(self.stream.peek(n)[:n])

    def chunks(self) -> Iterator[bytes]:
        """Read the bytes in pieces; `DataError` if gzip unpacks to more than baskets can."""
        most = None if self.packed is None else max(MAX_UNPACKED, MAX_RATIO * self.packed)
        done = 0
        while chunk := self.stream.read(_CHUNK):
            done += len(chunk)
            if most is not None and done > most:
                raise DataError(
                    f"{self.path}: {self.packed:,} bytes of gzip unpack to more than {most:,}, which is refused "
                    f"({MAX_RATIO} times the size, or {MAX_UNPACKED >> 20} MB): unpack the file first if it is right"
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
            raise DataError(f"{path}: not a file but a pipe, a device or a folder; write the baskets to a file first")
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] != b"\x1f\x8b":
                yield Source(path, raw, None)
                return
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield Source(path, unpacked, status.st_size)


class Text(io.RawIOBase):
    """The bytes of a text file from its first line that is not blank, checked as they are read.

    Lines that are not UTF-8 are taken for Latin-1, in which every byte means something. `first_line` is the number of
    the first line that is not blank.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.path, self.suffix = source.path, source.suffix
        self.n_quotes = 0  # double quotes read so far
        self._chunks, self._rest = source.chunks(), b""
        self._line = 1  # the number of the next line to be checked
        self._n_latin, self._first_latin = 0, 0
        for magic, what in _FOREIGN.items():
            if source.head(8).startswith(magic):
                raise DataError(f"{self}: not a text file of baskets but {what}")
        block = self._from_text(self._block().removeprefix(codecs.BOM_UTF8))
        if not block:
            raise DataError(f"{self}: the file is empty")
        self.first_line = self._line - block.count(b"\n")
        self._ready = memoryview(block)

    def __str__(self) -> str:
        return str(self.path)

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        if not self._ready:
            self._ready = memoryview(self._block())
        n = min(len(buffer), len(self._ready))
        buffer[:n], self._ready = self._ready[:n], self._ready[n:]
        return n

    def lines(self) -> io.TextIOWrapper:
        """Read what is left line by line, with the ends of the lines."""
        return io.TextIOWrapper(io.BufferedReader(self, _CHUNK), encoding="utf-8", newline="")

    def first_lines(self) -> list[str]:
        """Peek at the next lines that are not blank, without their ends, enough to judge the file by."""
        sample = bytes(self._ready[:_SAMPLE_BYTES])
        lines = sample.splitlines()
        if len(sample) < len(self._ready):  # the last line is cut, unless there is only one
            lines = lines[:-1] or bytes(self._ready).splitlines()[:1]
        return [line.decode() for line in lines[:_SAMPLE_LINES] if line.strip()]

    def skip_line(self) -> bool:
        """Leave out the next line, and blank ones after it; tell if there are more."""
        block = bytes(self._ready)
        self._ready = memoryview(self._from_text(block[_LINE.match(block).end() :]))  # type: ignore[union-attr]
        return bool(self._ready)

    def error(self, line: int, reason: str) -> DataError:
        """Build the error for something wrong in a line."""
        return DataError(f"{self}, line {line}: {reason}")

    def report(self) -> None:
        """Log what was taken for Latin-1."""
        if self._n_latin:
            what = "%s: %d lines are not UTF-8 and were read as Latin-1, the first of them is line %d"
            logger.warning(what, self, self._n_latin, self._first_latin)

    def _from_text(self, block: bytes) -> bytes:
        """Return this block, or the next that is not blank, from its first line that is not; nothing at the end."""
        blank = 0
        while not block.strip():
            blank += len(block)
            if blank > MAX_BLANK:
                raise DataError(f"{self}: {MAX_BLANK >> 20} MB are blank, and more is not looked through")
            block = self._block()
            if not block:
                return block
        before = block[: len(block) - len(block.lstrip())]
        return block[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]

    def _block(self) -> bytes:
        """Read the next whole lines as UTF-8; nothing at the end of the file."""
        data, cut, chunk = self._rest, 0, b"more"
        while chunk and not cut:
            chunk = next(self._chunks, b"")
            data += chunk
            # A carriage return at the very end may be half of a line's end.
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if chunk else len(data)
            if len(data) - cut > MAX_LINE:
                raise self.error(self._line + data.count(b"\n"), f"the line is longer than {MAX_LINE >> 20} MB")
        block, self._rest = data[:cut], data[cut:]
        if len(block.translate(None, _CONTROL)) < len(block):
            at = next(position for position, byte in enumerate(block) if byte in _CONTROL)
            line = self._line + block.count(b"\n", 0, at)
            raise self.error(line, f"not a text file (it holds the byte 0x{block[at]:02x})")
        self.n_quotes += block.count(b'"')
        checked = block if block.isascii() else self._as_utf8(block)
        self._line += block.count(b"\n")
        return checked

    def _as_utf8(self, block: bytes) -> bytes:
        """Take every line that is not UTF-8 for Latin-1."""
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
