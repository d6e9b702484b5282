"""Read text files of any kind: plain or compressed, in UTF-8 or UTF-16, as lines or as blocks of
bytes.

Every reader of lines uses `read_lines`, so that all kinds of files can be compressed in the same
formats.
"""

from __future__ import annotations

import codecs
import io
import lzma
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import pyarrow as pa

from calque.errors import InputError, similar_path

# first bytes of compressed files, by their usual suffix
_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ\x00", ".bz2": b"BZh"}
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
#: first bytes of archives that may contain several files
_ARCHIVES = {b"PK\x03\x04": "ZIP", b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "RAR"}
#: byte order marks; those of UTF-32 come first, because one of them begins with a mark of UTF-16
_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    codecs.BOM_UTF8: "utf-8",
}
SUFFIXES = tuple(_MAGIC)
_BLOCK = 1 << 20
NOT_UTF8 = "not UTF-8"  # reason of a `Flaw`
LONGEST_LINE = 1 << 26  # in bytes; a small compressed file can expand to a line larger than memory


class Flaw(NamedTuple):
    """Unusable item in a file.

    Attributes:
        reason: short reason, identical for all flaws of the same type, so that flaws can be counted
            by reason.
        fact: message that states the problem, the expected content and the remedy.
        path: file that contains the item; default: the file passed to `error`.
        place: position shown in messages instead of the line number, such as
            `data[0].paragraphs[2]` in a JSON file.
    """

    line: int
    reason: str
    fact: str
    path: str | PathLike[str] | None = None
    place: str = ""

    def error(self, path: str | PathLike[str], remedy: str) -> InputError:
        """Return the error to raise for this item."""
        link = " or" if self.fact.endswith("?") else "; or"
        message = f"{self.fact}{link} {remedy}"
        if self.place:
            return InputError(f"{self.place}: {message}", path=self.path or path)
        return InputError(message, path=self.path or path, line=self.line)


def unpacked_name(path: str | PathLike[str]) -> str:
    """Return the name of a file without its compression suffix."""
    name = Path(path).name
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name


def find_packed(path: str | PathLike[str]) -> Path | None:
    """Return the file with this path, plain or with a compression suffix, or None if there is no
    such file.
    """
    for suffix in ("", *SUFFIXES):
        file = f"{fspath(path)}{suffix}"
        if os.path.isfile(file):
            return Path(file)
    return None


@contextmanager
def unpacked(path: str | PathLike[str]) -> Iterator[BufferedIOBase]:
    """Open a file for reading bytes; gzip, zstd, xz and bzip2 compression is detected from the
    first bytes.

    Raises:
        InputError: the file cannot be opened, or its compressed data is corrupt or truncated.
    """
    try:
        with open(path, "rb") as file, _decompressed(file, path) as stream:
            yield stream
    except (EOFError, lzma.LZMAError, OSError) as error:
        # Errors of the system have a number, unlike those that codecs raise for corrupt data.
        if isinstance(error, OSError) and error.errno is not None:
            fact = f"cannot be read ({error.strerror})"
            if isinstance(error, FileNotFoundError):
                fact += similar_path(path)
            raise InputError(fact, path=path) from error
        raise InputError(
            f"compressed data is corrupt or truncated ({error}); download it again", path=path
        ) from error


@contextmanager
def _decompressed(file: BufferedReader, path: str | PathLike[str]) -> Iterator[BufferedIOBase]:
    """Return the stream of decompressed bytes of an open file, see `unpacked`."""
    compression = _compression(file.peek(6), path)
    if compression is None:
        yield file
    elif compression == ".xz":
        # Arrow has no codec for xz.
        with lzma.open(file) as stream:
            yield stream
    else:
        yield BufferedReader(pa.CompressedInputStream(file, _CODECS[compression]))


def _compression(start: bytes, path: str | PathLike[str]) -> str | None:
    """Return the usual suffix of the format in which a file with these first bytes is compressed,
    or None.

    Raises:
        InputError: the suffix of the file names a compression that the file does not have, or the
            file is an archive.
    """
    for suffix, magic in _MAGIC.items():
        if start.startswith(magic):
            return suffix
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES:
        raise InputError(
            f"named {suffix} but not compressed in this format; rename the file or compress it "
            "again",
            path=path,
        )
    for magic, archive in _ARCHIVES.items():
        if start.startswith(magic):
            raise InputError(f"a {archive} archive, expected text; unpack it", path=path)
    return None


def marked_encoding(start: bytes) -> str | None:
    """Return the encoding that a byte order mark at the start of a file stands for, or None if
    there is no mark.
    """
    return next((encoding for mark, encoding in _MARKS.items() if start.startswith(mark)), None)


@contextmanager
def opened_text(path: str | PathLike[str]) -> Iterator[BufferedIOBase]:
    """Open a plain or compressed file for reading bytes of UTF-8 without a byte order mark.

    Text in UTF-16 or UTF-32 that begins with a byte order mark is converted. A character that is
    invalid in these encodings becomes invalid UTF-8.

    Raises:
        InputError: see `unpacked`; or text in UTF-16 or UTF-32 is incomplete.
    """
    with unpacked(path) as file:
        encoding = marked_encoding(file.peek(4)[:4])  # type: ignore[attr-defined]
        if encoding in ("utf-16", "utf-32"):
            yield BufferedReader(_Converted(file, encoding, path))
            return
        if encoding == "utf-8":
            file.read(len(codecs.BOM_UTF8))
        yield file


class _Converted(io.RawIOBase):
    """Stream of UTF-8 that is converted from a stream in another encoding."""

    def __init__(self, file: BufferedIOBase, encoding: str, path: str | PathLike[str]):
        self._file, self._encoding, self._path = file, encoding, path
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._converted = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, and return the number of bytes; 0 is the end of the file."""
        at_end = False
        # A block can consist of part of a character, which is converted with the next block.
        while not self._converted and not at_end:
            block = self._file.read(_BLOCK)
            at_end = not block
            self._converted = self._convert(block)
        part, self._converted = self._converted[: len(buffer)], self._converted[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def _convert(self, block: bytes) -> bytes:
        """Convert a block; an empty block is the end of the file."""
        try:
            text = self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            fact = f"not valid {self._encoding.upper()} ({error.reason}); is the file complete?"
            raise InputError(fact, path=self._path) from error
        return text.encode("utf-8", "surrogatepass")


def read_blocks(path: str | PathLike[str]) -> Iterator[bytes]:
    """Yield the content of a file, decompressed and converted to UTF-8, in non-empty blocks."""
    with opened_text(path) as file:
        while block := file.read(_BLOCK):
            yield block


def check_content(path: str | PathLike[str]) -> None:
    """Read the first block of a plain or compressed file.

    Raises:
        InputError: the file cannot be read or decompressed, or is empty.
    """
    if next(read_blocks(path), None) is None:
        raise InputError("the file is empty", path=path)


def read_lines(path: str | PathLike[str]) -> Iterator[str | Flaw]:
    """Yield the lines of a file without their terminator (`\\n` or `\\r\\n`) and without a byte
    order mark.

    Other separators, such as U+2028 and NEL, do not end a line.

    Yields:
        each line, or a `Flaw` if the line contains invalid UTF-8 or a NUL character.

    Raises:
        InputError: the file cannot be decompressed, ends lines with CR only, or contains a line of
            more than 64 MiB.
    """
    number = 0
    with opened_text(path) as file:
        while raw := file.readline(LONGEST_LINE):
            number += 1
            if len(raw) == LONGEST_LINE:
                raise InputError(
                    "the line exceeds 64 MiB, expected a sentence; is it text?",
                    path=path,
                    line=number,
                )
            # The whole file would be one line.
            if number == 1 and b"\r" in raw and b"\n" not in raw:
                raise InputError(
                    "lines end with CR, expected LF; convert the file (tr '\\r' '\\n')", path=path
                )
            yield _decoded(raw.removesuffix(b"\n"), number, path)


def readable_lines(path: str | PathLike[str]) -> Iterator[str]:
    """Yield the lines of a file (see `read_lines`), in which every line must be readable.

    Raises:
        InputError: see `read_lines`; or a line contains invalid UTF-8 or a NUL character.
    """
    return readable(read_lines(path))


def readable(lines: Iterable[str | Flaw]) -> Iterator[str]:
    """Yield lines, and raise an `InputError` at the first line that is unusable."""
    for line in lines:
        if isinstance(line, Flaw):
            raise InputError(line.fact, path=line.path, line=line.line)
        yield line


def _decoded(raw: bytes, number: int, path: str | PathLike[str]) -> str | Flaw:
    if b"\0" in raw:
        return Flaw(
            number,
            "NUL character",
            "the line has a NUL character, expected text; is the file corrupt?",
            path,
        )
    return flaw_of_bytes(raw, number, path) or raw.decode("utf-8").removesuffix("\r")


def flaw_of_bytes(raw: bytes, number: int, path: str | PathLike[str] | None = None) -> Flaw | None:
    """Return a `Flaw` if bytes of a line are not UTF-8, with the likely encoding of the file."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        encoding = _likely_encoding(raw)
        fact = (
            f"byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8; convert the "
            f"file, which looks like {encoding}: iconv -f {encoding} -t UTF-8 FILE > NEW"
        )
        return Flaw(number, NOT_UTF8, fact, path)
    return None


def is_unicode(value: object) -> TypeGuard[str]:
    """Return whether a value is valid Unicode text, which libraries written in Rust and C++
    require. Strings in JSON, and names of files, can contain unpaired surrogates, which are
    invalid.
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _likely_encoding(raw: bytes) -> str:
    """Guess the encoding of a line that is not UTF-8, and return the name of the encoding in
    iconv.
    """
    # The guess appears only in a message, as a command that the user can check.
    high = [byte for byte in raw if byte > 127]
    if 3 * len(high) < len(raw):  # few letters outside ASCII, as in Western European languages
        return "ISO-8859-1" if min(high) >= 0xA0 else "WINDOWS-1252"
    n_lower_cyrillic = sum(byte >= 0xE0 for byte in high)  # lower-case letters in WINDOWS-1251
    return "WINDOWS-1251" if 2 * n_lower_cyrillic > len(high) else "GB18030"
