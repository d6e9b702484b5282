"""One process at a time for one output: two that write the same file or folder spoil each other's work."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path

from calque.errors import SettingError
from calque.storage import naming

_NOT_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class InUseError(SettingError):
    """Another process is writing this output."""


@contextmanager
def locked(out: str | PathLike[str], *, when: bool = True, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing `out` for as long as the block runs.

    The lock is a file `.NAME.lock` beside the output, which may itself be replaced meanwhile. The kernel releases the
    lock when the process ends, however it ends; a file that a killed process leaves behind locks nothing. It is not
    reentrant: the function that writes takes the lock, not its caller as well.

    Args:
        out: the file or folder to be written; it need not exist. Missing folders above it are made, and removed again if
            nothing has been put there.
        when: False takes no lock, for processes that leave the writing to another: `when=is_first()`.
        wait: until the other process has finished, instead of refusing; for what takes a moment.

    Raises:
        InUseError: another process holds it.
        OutputError: the block failed because the disk is full, whatever its error was.
    """
    name = Path(out)
    if not when or (name.exists() and not name.is_file() and not name.is_dir()):  # what no file can stand beside
        with naming(out):
            yield
        return
    where = name.resolve()
    path = where.with_name(f".{where.name}.lock")
    missing = [folder for folder in path.parents if not folder.exists()]  # the innermost first
    file = _take(path, fspath(out), wait)
    try:
        with naming(out):
            yield
    finally:
        if file is not None:
            if _is_named(file, path):
                path.unlink(missing_ok=True)  # before it is released: whoever has opened it sees that its name is gone
            os.close(file)
        with suppress(OSError):  # something is in it
            for folder in missing:
                folder.rmdir()


def _take(path: Path, out: str, wait: bool) -> int | None:
    """The open, locked file; None where the file system has no locks, or nothing may be written beside the output."""
    try:
        import fcntl
    except ImportError:  # Windows: nothing keeps them apart
        return None
    for _ in range(1000):  # each round again means that another process has ended just now
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, FileExistsError):  # another process has just removed the folder that it had made
            if path.parent.exists() and not path.parent.is_dir():
                raise
            continue
        except OSError as error:
            if error.errno in _NOT_HERE:
                return None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            who = f"process {holder}" if holder else "another process"
            raise InUseError(f"{who} is writing {out}: wait until it has finished, or write somewhere else") from None
        except OSError as error:
            os.close(file)
            if error.errno in _NOT_HERE:
                return None
            raise
        if _is_named(file, path):
            with suppress(OSError):  # the number is a courtesy, a full disk is met elsewhere
                os.ftruncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
            return file
        os.close(file)  # its holder has removed it since
    return None


def _is_named(file: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
