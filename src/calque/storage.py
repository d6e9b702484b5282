"""Write files and folders atomically, lock them, and create memory-mapped and Arrow arrays."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from calque.errors import InputError, OutputError, SettingError, causes, interruption

if TYPE_CHECKING:
    from filelock import FileLock

#: JSON object as Python parses it; the reader of a file checks the types of the values
JsonObject: TypeAlias = dict[str, Any]

# Subfolders of a temporary folder for the new and the replaced contents, and for the data from
# which a run resumes. The temporary file of a single file is also called `new`.
NEW, _OLD, TRAINING = "new", "old", "training"
# Names of temporary folders and of locks, of files that safetensors creates in temporary folders,
# and of the temporary folders and locks of subfolders.
_PART, _LOCK = re.compile(r"\..+\.calque-part"), re.compile(r"\..+\.calque-lock")
_OF_LIBRARY = re.compile(r"\.tmp\w{6}")
_OF_SUBFOLDER = re.compile(rf"\.({NEW}|{TRAINING})\.calque-[a-z]+")
# matches names returned by `part_of`
_TEMPORARY = re.compile(rf"(.*/)?\.?([^/]*)\.calque-[a-z]+(/{NEW}(?=/|$))?")
# errors that mean that a disk, rather than a program or its input, is at fault
_FULL = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EIO: "input/output error (while reading or writing); check the disk",
}
# errors of file systems that have no locks or do not allow files next to the output
_CANNOT_LOCK = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOLCK,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
)
# Libraries report a full disk in different ways. Rust libraries (safetensors, tokenizers) report
# the error number. NumPy reports the number of written items, and PyTorch's zip writer reports only
# that the write failed.
_NUMBER = re.compile(r"\(os error (\d+)\)")
_NUMPY = re.compile(r"\d+ requested and \d+ written")
_TORCH = re.compile(
    r"PytorchStreamWriter failed|inline_container\.cc.*unexpected pos|basic_ios::clear: iostream error"
)

VECTORS = 1 << 26  # maximum size in bytes of an array of word vectors that is kept in memory
WORDS = pa.list_(pa.string())
_PATIENCE = 7 * 86_400  # maximum time in seconds to wait for a lock


# -- files -----------------------------------------------------------------------------------------
@contextmanager
def whole(path: str | PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: the block writes a temporary file, which replaces `path` at the end
    and is removed on failure.

    The temporary file has its own folder next to `path`, because libraries create further files
    next to the file that they write. Missing folders are created. Devices and pipes are written
    directly.

    Yields:
        the path of the temporary file.

    Raises:
        OutputError: the disk is full, or the file cannot be written.
    """
    name = Path(path)
    check_links(name)
    if name.is_dir():
        raise OutputError(f"{name}: is a folder, expected a file name")
    if name.exists() and not name.is_file():
        with naming(name):
            yield name
        return
    # A symbolic link stays, and its target is replaced.
    out = Path(os.path.realpath(name)) if name.is_symlink() else name
    place = part_of(out)
    part = place / NEW
    check_temporary(place, files=True)
    try:
        remove(place)
        if not out.parent.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir()
        yield part
        readable(part)
        sync(part)
        os.replace(part, out)
    except BaseException as error:
        stopped = interruption(error)
        if stopped is not None:
            raise stopped from None
        reason = _reason(error, [part, place, *out.parents])
        if reason is None:
            raise
        raise failure(name, reason) from error
    finally:
        with suppress(OSError):
            remove(place)


def _reason(error: BaseException, paths: Iterable[Path]) -> str | None:
    """Return the reason for a failed write, or None if the error is about something else.

    Args:
        paths: paths to which calque writes; an `OSError` that names one of them, or no path, is a
            failed write.
    """
    if isinstance(error, OutputError):
        return None
    reason = unwritten(error)
    if reason is not None or not isinstance(error, OSError):
        return reason
    if error.filename is not None and error.filename not in map(fspath, paths):
        return None
    return f"cannot be written ({os.strerror(error.errno) if error.errno else error})"


def check_links(path: Path) -> None:
    """Raise an error if a path leads into a loop of symbolic links."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OutputError(
                f"{path}: is a loop of symbolic links; choose another path, or remove the links"
            ) from error


def part_of(path: Path, purpose: str = "part") -> Path:
    """Return a hidden temporary path next to a file or folder.

    Args:
        path: the file or folder.
        purpose: use of the path: "part" for unfinished output, "saving" for an encoder, "training"
            for checkpoints, or "lock".
    """
    return path.with_name(f".{path.name}.calque-{purpose}")


def check_temporary(place: Path, *, files: bool = False) -> None:
    """Check that a temporary folder is absent, or contains only what a killed process of calque
    left there.

    calque creates neither links nor other files there. Following a link or removing such files
    would destroy a user's data.

    Args:
        place: path returned by `part_of`.
        files: whether the folder belongs to a single file; otherwise, it contains the subfolders
            `new`, `old` and `training`.

    Raises:
        OutputError: the path contains something that calque did not create.
    """
    if not os.path.lexists(place):
        return
    if place.is_symlink() or not place.is_dir():
        raise _in_the_way(place)
    for entry in os.scandir(place):
        is_own = _is_file_of_calque(entry) if files else _is_subfolder_of_calque(entry)
        if not is_own:
            raise _in_the_way(Path(entry))
        if entry.name != _OLD:  # files below these folders are overwritten
            link = _link_below(Path(entry))
            if link is not None:
                raise _in_the_way(link)


def _is_file_of_calque(entry: os.DirEntry[str]) -> bool:
    """Return whether calque may have created an entry of the temporary folder of a single file."""
    is_known = entry.name == NEW or _OF_LIBRARY.fullmatch(entry.name) is not None
    return is_known and entry.is_file(follow_symlinks=False)


def _is_subfolder_of_calque(entry: os.DirEntry[str]) -> bool:
    """Return whether calque may have created an entry of the temporary folder of a folder."""
    if _OF_SUBFOLDER.fullmatch(entry.name):
        return not entry.is_symlink()
    return entry.name in (NEW, _OLD, TRAINING) and entry.is_dir(follow_symlinks=False)


def _link_below(folder: Path) -> Path | None:
    """Return a symbolic link in a folder or in its subfolders, or None if there is no link."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root) / name
            if path.is_symlink():
                return path
    return None


def is_leftover(entry: Path) -> bool:
    """Return whether an entry is the lock, or the temporary folder of a file, that a killed process
    of calque left.
    """
    if _LOCK.fullmatch(entry.name):
        about = entry.lstat()
        return stat.S_ISREG(about.st_mode) and not about.st_size
    if not _PART.fullmatch(entry.name):
        return False
    with suppress(OutputError):
        check_temporary(entry, files=True)
        return True
    return False


def _in_the_way(entry: Path) -> OutputError:
    if entry.is_symlink():
        description = "a symbolic link"
    else:
        description = "a folder" if entry.is_dir() else "a file"
    return OutputError(
        f"{entry}: is {description} that calque did not create, at a path that calque needs; "
        "rename or remove it"
    )


def temporary_folder(place: Path, out: Path) -> Path:
    """Create a temporary folder, or reuse one left by a killed process, and return the subfolder to
    write to.

    Args:
        place: path returned by `part_of`.
        out: final path; if a killed `replace_folder` moved an older folder away, that folder is
            first moved back.

    Raises:
        OutputError: see `check_temporary`.
    """
    check_temporary(place)
    old, new = place / _OLD, place / NEW
    place.mkdir(parents=True, exist_ok=True)
    if old.is_dir() and not out.exists():
        os.rename(old, out)
    remove(old)
    new.mkdir(exist_ok=True)
    return new


def replace_folder(new: Path, out: Path) -> None:
    """Rename a folder returned by `temporary_folder` to `out`; an existing `out` is first moved
    into the temporary folder.
    """
    if out.exists():
        os.rename(out, new.with_name(_OLD))
    os.rename(new, out)
    sync(out.parent)


def remove(entry: Path) -> None:
    """Remove a file, a link or a folder with its contents, if it exists."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a UTF-8 text file atomically, without changing line endings; undecodable bytes in file
    names become `?`.

    Raises:
        OutputError: see `whole`.
    """
    with whole(path) as part:
        part.write_bytes(text.encode("utf-8", "replace"))


def write_lines(path: str | PathLike[str], lines: Iterable[str]) -> None:
    """Write lines to a file atomically; the lines must include their line endings."""
    with (
        whole(path) as part,
        open(part, "w", encoding="utf-8", errors="replace", newline="\n") as file,
    ):
        file.writelines(lines)


def append_lines(path: str | PathLike[str], lines: Iterable[str]) -> None:
    """Append lines to a file atomically; lines written by concurrent processes are not interleaved.

    Raises:
        OutputError: the disk is full, or the file cannot be written.
    """
    with locked(path, wait=True):
        data = Path(path).read_bytes() if Path(path).is_file() else b""
        if data and not data.endswith(b"\n"):
            data += b"\n"
        with whole(path) as part:
            part.write_bytes(data + "".join(lines).encode("utf-8", "replace"))


@contextmanager
def locked(out: str | PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Prevent other processes from writing `out` during the block.

    The lock is a file `.NAME.calque-lock` next to the output. The kernel releases the lock when the
    process ends. The lock is not reentrant.

    Args:
        out: file or folder to be written. Missing parent folders are created, and removed if they
            stay empty.
        wait: whether to wait for the other process instead of raising an error.

    Raises:
        SettingError: another process holds the lock.
        OutputError: the block failed because the disk is full.
    """
    from filelock import FileLock  # imported only here, because filelock imports asyncio

    name = Path(out)
    check_links(name)
    is_device = name.exists() and not name.is_file() and not name.is_dir()
    if is_device:  # a lock file cannot be created next to a device
        with naming(out):
            yield
        return
    path = part_of(Path(os.path.realpath(name)), "lock")
    _check_lock_file(path)
    if _refuses_files(path.parent):
        raise OutputError(
            f"{fspath(out)}: cannot be written, because no file can be created next to it"
        )
    new_folders = [folder for folder in path.parents if not folder.exists()]  # innermost first
    lock = FileLock(path, timeout=_PATIENCE if wait else 0)
    _acquire(lock, path, out)
    try:
        with naming(out):
            yield
    finally:
        if lock.is_locked:
            # The file is removed before the release, so that waiting processes detect the removal.
            path.unlink(missing_ok=True)
            lock.release()
        with suppress(OSError):  # a folder can contain other files
            for folder in new_folders:
                folder.rmdir()


def _check_lock_file(path: Path) -> None:
    """Raise an error if the path of a lock file belongs to another file, which would be removed
    with the lock.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        about = os.lstat(path)
        # Lock files are empty.
        if not stat.S_ISREG(about.st_mode) or about.st_size:
            raise _in_the_way(path)


def _acquire(lock: FileLock, path: Path, out: str | PathLike[str]) -> None:
    """Acquire the lock of `out` at `path`; if the file system does not allow locks, continue
    without one.

    Raises:
        SettingError: another process holds the lock.
    """
    from filelock import Timeout

    try:
        for _ in range(100):  # another process may remove a folder at the same time
            with suppress(FileNotFoundError, FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire()
                return
    except Timeout:  # a subclass of OSError, so it comes first
        raise SettingError(
            f"another process is writing {fspath(out)}; wait until it has finished, or choose "
            "another output"
        ) from None
    except OSError as error:
        if error.errno not in _CANNOT_LOCK:
            raise


def _refuses_files(folder: Path) -> bool:
    """Return whether creating a file in an existing folder fails with `FileNotFoundError`, as in
    /proc.

    `FileLock` would mistake this error for a race with another process.
    """
    for _ in range(10):
        try:
            with tempfile.TemporaryFile(dir=folder):
                return False
        except FileNotFoundError:
            if not folder.exists():  # another process has just removed the folder
                return False
            time.sleep(0.01)
        except OSError:
            return False
    return True


def reserve(file: IO[bytes], size: int) -> None:
    """Set the size of an open file in bytes and allocate its disk space; existing contents are
    kept.

    Without this allocation, writing to the memory-mapped file would kill the process if the disk is
    full.

    Raises:
        OSError: the disk is full.
    """
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        # The function is not available on macOS, on Windows and on some file systems.
        os.ftruncate(file.fileno(), size)


def sync(path: str | PathLike[str]) -> None:
    """Flush a file or the entries of a folder to disk, so that they survive a power failure after a
    rename.
    """
    is_folder = os.path.isdir(path)
    if is_folder and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def readable(path: str | PathLike[str]) -> None:
    """Give a file the default permissions, because safetensors creates files that only their owner
    can read.
    """
    if os.name == "posix":
        mask = os.umask(0o077)
        os.umask(mask)
        os.chmod(path, 0o666 & ~mask)


@contextmanager
def naming(path: str | PathLike[str]) -> Iterator[None]:
    """Convert errors in the block that are caused by a full disk to an `OutputError` that names the
    output.
    """
    try:
        yield
    except Exception as error:
        stopped = interruption(error)
        if stopped is not None:
            raise stopped from None
        reason = unwritten(error)
        if reason is None or isinstance(error, OutputError):
            raise
        raise failure(path, reason) from error


def unwritten(error: BaseException | None) -> str | None:
    """Return the reason for a failed write, as reported by an error or its causes, or None if no
    failed write is reported.
    """
    reason = None
    for cause in causes(error):
        library_numbers = [int(number) for number in _NUMBER.findall(str(cause))]
        for number in _error_numbers(cause, library_numbers):
            if number in _FULL:
                return _FULL[number]
        # ENOENT is about a missing input file, and an `OSError` can also be about an input; neither
        # shows a failed write.
        if not isinstance(cause, OSError) and library_numbers[:1] not in ([], [errno.ENOENT]):
            reason = f"cannot be written ({os.strerror(library_numbers[0])})"
        if isinstance(cause, RuntimeError) and _TORCH.search(str(cause)):
            reason = "only part of the file could be written"
    return reason


def _error_numbers(cause: BaseException, library_numbers: list[int]) -> list[int]:
    """Return the error numbers of the system that an error reports.

    Args:
        library_numbers: numbers in the message of the error, as libraries in Rust and C++ write
            them.
    """
    numbers = list(library_numbers)
    if isinstance(cause, OSError) and cause.errno is not None:
        numbers.insert(0, cause.errno)
    # NumPy reports a full disk without a number.
    if isinstance(cause, OSError) and _NUMPY.search(str(cause)):
        numbers.append(errno.ENOSPC)
    return numbers


def finished(path: str | PathLike[str]) -> Path:
    """Return the final path of a temporary file or folder."""
    name = fspath(path)
    while match := _TEMPORARY.match(name):  # innermost first
        name = f"{match[1] or ''}{match[2]}{name[match.end() :]}"
    return Path(name)


def failure(path: str | PathLike[str], reason: str) -> OutputError:
    """Return the `OutputError` for a failed write."""
    return OutputError(f"{finished(path)}: {reason}")


# -- JSON ------------------------------------------------------------------------------------------
def read_json_object(path: Path, fact: str) -> JsonObject:
    """Read a file that must contain a JSON object.

    Args:
        fact: beginning of the error message, which ends with the reason in brackets.

    Raises:
        InputError: the file cannot be read, or contains no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("expected a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{fact} ({error!s:.200})", path=path) from error
    return value


def json_text(
    value: object,
    *,
    undefined: Literal["null", "refuse", "name"] = "null",
    default: Callable[[object], object] | None = None,
    **options: Any,
) -> str:
    """Return a value as strict JSON, which contains no NaN and no infinity; every module of calque
    writes JSON with it.

    Args:
        value: value to write; NumPy numbers and arrays are converted.
        undefined: how to write a number that is not finite: "null" for a score or a measurement
            that is undefined; "refuse" to raise an error, for settings that must be read back;
            "name" to write its name as a string ("nan", "inf"), for digests and identities, in
            which different values must stay different.
        default: function that converts other objects, as in `json.dumps`.
        options: other arguments of `json.dumps`.

    Raises:
        OutputError: a number is not finite, and `undefined` is "refuse".
    """

    def converted(other: object) -> object:
        if isinstance(other, np.generic | np.ndarray):
            return other.tolist()
        if default is None:
            raise TypeError(f"{type(other).__name__} cannot be written as JSON")
        return default(other)

    try:
        return json.dumps(value, allow_nan=False, default=converted, **options)
    except ValueError:
        # A number is not finite; only then are the values copied and the number replaced.
        return json.dumps(_finite(value, undefined, converted, ()), allow_nan=False, **options)


def _finite(
    value: object, undefined: str, converted: Callable[[object], object], place: tuple[str, ...]
) -> object:
    """Return a copy of a value in which numbers that are not finite are replaced; see
    `json_text`.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _replaced(value, undefined, place)
    if isinstance(value, dict):
        copy: dict[object, object] = {}
        for key, item in value.items():
            name = str(key) if isinstance(key, float) else key  # JSON has no NaN as key
            copy[name] = _finite(item, undefined, converted, (*place, str(key)))
        return copy
    if isinstance(value, list | tuple):
        items = enumerate(value)
        return [_finite(item, undefined, converted, (*place, str(k))) for k, item in items]
    return _finite(converted(value), undefined, converted, place)


def _replaced(value: float, undefined: str, place: tuple[str, ...]) -> str | None:
    """Return the replacement of a number that is not finite, see `json_text`.

    Args:
        place: keys and indices that lead to the number, for use in messages.
    """
    if undefined == "refuse":
        name = ".".join(place) or "the value"
        raise OutputError(f"{name} must be a finite number to be written, got {value}")
    return str(float(value)) if undefined == "name" else None


# -- arrays of word vectors ------------------------------------------------------------------------
def mapped_array(
    shape: Sequence[int], dtype: np.typing.DTypeLike, small: int | None = None
) -> np.ndarray:
    """Return an array of zeros, in a memory-mapped temporary file if it has more than `small` bytes
    (default: `VECTORS`).

    If the disk is full, the array is kept in memory.
    """
    shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if small is None:
        small = VECTORS
    if size <= small:
        return np.zeros(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="calque-") as file:
            reserve(file, size)
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError:
        return np.zeros(shape, dtype)


# -- Arrow -----------------------------------------------------------------------------------------
def from_words(sentences: Iterable[Sequence[str]]) -> pa.Array:
    """Convert sentences to an Arrow array of lists of strings.

    Raises:
        pyarrow.ArrowException, UnicodeEncodeError: a word is not valid text.
    """
    return pa.array([*sentences], type=WORDS)


def slice_rows(table: pa.Table, index: slice) -> pa.Table:
    """Return a slice of a table; rows are copied only if the slice has a step."""
    rows = range(table.num_rows)[index]
    return table.slice(rows.start, len(rows)) if rows.step == 1 else take_rows(table, rows)


def take_rows(table: pa.Table, indices: Sequence[int] | np.ndarray) -> pa.Table:
    """Return the rows at `indices`. `Table.take` would copy a memory-mapped table into memory to
    concatenate its chunks.
    """
    rows = np.asarray(indices, dtype=np.int64)
    rows = np.where(rows < 0, rows + table.num_rows, rows)
    if len(rows) and not 0 <= rows.min() <= rows.max() < table.num_rows:
        raise IndexError(
            f"indices are from {rows.min()} to {rows.max()}, but the table has {table.num_rows} "
            "rows"
        )
    chosen = np.zeros(table.num_rows, bool)
    chosen[rows] = True
    taken = table.filter(pa.array(chosen))
    # `taken` has the rows in the order of the table and without repetitions.
    places = np.searchsorted(np.flatnonzero(chosen), rows)
    is_in_order = np.array_equal(places, np.arange(len(taken)))
    return taken if is_in_order else taken.take(pa.array(places))
