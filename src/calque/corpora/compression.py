"""Bytes of a file, whatever it is packed with."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

import zstandard

from calque.errors import InputError

_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ\x00", ".bz2": b"BZh"}
SUFFIXES = tuple(_MAGIC)
_BLOCK = 1 << 20


def unpacked_name(path: str | PathLike[str]) -> str:
    """The file's name without the suffix of a compression."""
    name = Path(path).name
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in SUFFIXES else name


def find_packed(path: str | PathLike[str]) -> Path | None:
    """The file of this name, packed or not, if there is one."""
    names = (f"{fspath(path)}{suffix}" for suffix in ("", *SUFFIXES))
    return next((Path(name) for name in names if os.path.isfile(name)), None)


def read_blocks(path: str | PathLike[str]) -> Iterator[bytes]:
    """The content in blocks that are never empty; gzip, zstd, xz and bzip2 are known by their first bytes.

    Raises:
        InputError: the file cannot be opened, or its compressed data is damaged or ends too early.
    """
    suffix = Path(path).suffix.lower()
    try:
        with open(path, "rb") as file:
            start = file.read(6)
            file.seek(0)
            packing = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), None)
            if suffix in SUFFIXES and packing is None:
                raise InputError(f"named {suffix} but is not compressed so; rename or pack it again", path=path)
            yield from _unpack(file, packing)
    except (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot be read ({error.strerror})", path=path) from error
        fact = f"compressed data is damaged or cut off ({error})"
        raise InputError(f"{fact}, expected a whole file; fetch it again", path=path) from error


def _unpack(file: BinaryIO, packing: str | None) -> Iterator[bytes]:
    if packing == ".zst":
        yield from _zstd(file)
        return
    if packing is None:
        read = file.read
    else:  # read1 gives what precedes a damage before the error, read would lose it
        read = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[packing](file).read1
    while block := read(_BLOCK):
        yield block


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    """All frames of a file. zstandard's own stream reader takes a file that is cut off for a whole one."""
    frame = None
    while chunk := file.read(4096):  # a block of four bytes may hold 128 KiB: small bites bound the memory
        while chunk:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            if block := frame.decompress(chunk):
                yield block
            chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the last frame is incomplete")
