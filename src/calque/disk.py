"""Files that appear under their names when they are complete, and one line where the disk does not take them."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import IO

from calque.errors import OutputError

PARTS = (".part", ".partial")
_FULL = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the system allows",
}
# What is left of ENOSPC in exceptions of libraries: of Rust (safetensors, tokenizers) the number, of PyTorch's zip writer
# that it could not go on, of NumPy how far it came.
_NUMBER = re.compile(r"\(os error (\d+)\)")
_TORCH = re.compile(r"PytorchStreamWriter failed|inline_container\.cc.*unexpected pos|basic_ios::clear: iostream error")
_TORN = "only part of it could be written"
_NUMPY = re.compile(r"\d+ requested and \d+ written")


@contextmanager
def whole(path: str | PathLike[str], size: int | None = None) -> Iterator[Path]:
    """Write `NAME.part`, which becomes the file `NAME` when the block ends, and goes if the block fails.

    An older file stays what it is until then. What is no regular file, as a device or a pipe, is written as it is.

    Args:
        path: the file; folders above it are made.
        size: bytes that are going to be written, where that is known, for the message.

    Yields:
        the name to write to.

    Raises:
        OutputError: there is no space, or the file cannot be written.
    """
    name = Path(path)
    if name.is_dir():
        raise OutputError(f"{name}: is a folder, expected the name of a file")
    plain = name.is_file() or not name.exists()
    where = Path(os.path.realpath(name)) if plain and name.is_symlink() else name  # what a link leads to
    part = where.with_name(f"{where.name}.part") if plain else where
    try:
        if plain:
            _make_folder(where.parent)
        yield part
        if plain:
            readable(part)
            sync(part)
            os.replace(part, where)
    except BaseException as error:
        if plain:
            with suppress(OSError):
                part.unlink()
        if isinstance(error, OutputError):
            raise
        reason = unwritten(error)
        if isinstance(error, OSError) and error.filename in (None, *map(fspath, (part, *where.parents))):
            reason = reason or f"cannot be written ({os.strerror(error.errno) if error.errno else error})"
        if reason is None:
            raise
        raise failure(name, reason, size) from error


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, whole or not at all; lines end as they do in `text`.

    Raises:
        OutputError: see `whole`.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | PathLike[str], data: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        OutputError: see `whole`.
    """
    with whole(path, len(data)) as part:
        part.write_bytes(data)


def write_lines(path: str | PathLike[str], lines: Iterable[str]) -> None:
    """Write lines, each with its own end, one after the other; whole or not at all."""
    with whole(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def append_lines(path: str | PathLike[str], lines: Iterable[str]) -> None:
    """Add lines to the end of a file: all of them, or none, and not between those of another process.

    Raises:
        OutputError: there is no space, or the file cannot be written.
    """
    data = "".join(lines).encode("utf-8")
    try:
        _make_folder(Path(path).parent)
        is_new = not os.path.exists(path)
        with open(path, "ab", buffering=0) as file:
            lock(file)
            before = os.fstat(file.fileno()).st_size
            try:
                left = data
                while left:
                    left = left[file.write(left) :]
            except OSError:
                with suppress(OSError):  # no regular file
                    os.truncate(path, before)
                    if is_new and not before:
                        os.unlink(path)
                raise
    except OSError as error:
        raise failure(path, unwritten(error) or f"cannot be written ({error.strerror})", len(data)) from error


def lock(file: IO[bytes]) -> None:
    """Keep other processes that ask for the same waiting until the file is closed."""
    with suppress(ImportError, OSError):  # Windows, or a file system without locks
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def reserve(file: IO[bytes], size: int) -> None:
    """Give an open file its size and take the room on the disk now.

    A full disk is an error here. In memory that is mapped from a file without its room it would end the process, without a
    word.

    Args:
        file: opened for writing.
        size: bytes; what the file has already stays.

    Raises:
        OSError: there is no space.
    """
    if size <= 0:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV):
                raise
        else:
            return
    position, end = file.tell(), file.seek(0, os.SEEK_END)  # a file system that does not reserve: zeros, then
    zeros = bytes(1 << 20)
    while end < size:
        end += file.write(zeros[: size - end])
    file.flush()
    file.seek(position)


def sync(path: str | PathLike[str]) -> None:
    """Wait until a file is on the disk. What it is called then, it also is after a power cut."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def readable(path: str | PathLike[str]) -> None:
    """Let others read a file as they may read any other new one: safetensors makes its files for their owner alone."""
    if os.name != "posix":
        return
    mask = os.umask(0o077)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


# -- saying it -----------------------------------------------------------------------------------------------------------
@contextmanager
def naming(path: str | PathLike[str]) -> Iterator[None]:
    """Errors in the block that come of a full disk become one line with the name of what was to be written.

    Raises:
        OutputError: there is no space.
    """
    try:
        yield
    except OutputError:
        raise
    except Exception as error:
        reason = unwritten(error)
        if reason is None:
            raise
        raise failure(path, reason) from error


def unwritten(error: BaseException) -> str | None:
    """Why something could not be written, where an error or what it came of says that the disk did not take it.

    PyTorch, safetensors and others raise exceptions of their own.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    torch = False
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        number = cause.errno if isinstance(cause, OSError) else None
        if number is None and (match := _NUMBER.search(str(cause))):
            number = int(match[1])
        if number in _FULL:
            return _FULL[number]
        if isinstance(cause, OSError) and _NUMPY.search(str(cause)):
            return _FULL[errno.ENOSPC]
        torch |= isinstance(cause, RuntimeError) and _TORCH.search(str(cause)) is not None
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return _TORN if torch else None


def finished(path: Path) -> Path:
    """Where a file will stand once the folder that is being written is whole."""
    ends = "|".join(map(re.escape, PARTS))
    parts = [re.sub(f"({ends})$", "", part) for part in path.parts]
    return Path(*(part for part in parts if part))


def failure(path: str | PathLike[str], reason: str, size: int | None = None) -> OutputError:
    """The one line: what was to be written, why it is not, how large it is and how much room there is."""
    name = fspath(path)
    for end in PARTS:
        name = name.removesuffix(end)
    if reason not in (*_FULL.values(), _TORN):
        return OutputError(f"{name}: {reason}")
    free = _free(Path(name))
    room = [f"{amount(number)} {what}" for number, what in ((size, "to write"), (free, "free")) if number is not None]
    return OutputError(f"{name}: {reason} ({', '.join(room)})" if room else f"{name}: {reason}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a file, where a folder is needed
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), fspath(path)) from None


def _free(path: Path) -> int | None:
    """Bytes that are left where a file is to be."""
    folder = next((folder for folder in (path, *path.absolute().parents) if folder.is_dir()), path)
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return None


def amount(number: int) -> str:
    """A number of bytes for people."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} bytes"
