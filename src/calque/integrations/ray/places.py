"""Files at any address that fsspec knows: on this machine, in an object store, behind ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from calque.errors import CalqueError, InputError, MissingExtraError, OutputError
from calque.storage import failure, readable, sync, unwritten

#: where a file that is being sent cannot be seen before it is whole
_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs", "memory"}


def opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there.

    Raises:
        InputError: nobody knows such addresses, or the package for them is not installed.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("fsspec", "ray", "--engine ray") from error
    try:
        return url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise InputError(f"no such kind of address ({error})", path=address) from error
    except Exception as error:  # of the package for it: credentials that are missing, a host that does not answer
        raise InputError(f"cannot be reached ({reason(error)})", path=address) from error


def is_local(file_system: Any) -> bool:
    """Whether these are files of this machine, by their plain names."""
    return "file" in _protocols(file_system)


def _protocols(file_system: Any) -> set[str]:
    names = file_system.protocol
    return {names} if isinstance(names, str) else set(names)


def joined(folder: str, name: str) -> str:
    """The address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def reason(error: BaseException) -> str:
    """What libraries say, in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def reading(address: str, compression: str | None = None) -> Iterator[Any]:
    """A file, opened for reading bytes.

    Raises:
        InputError: it cannot be opened, or the block fails for what is in it.
    """
    file_system, path = opened(address)
    try:
        with file_system.open(path, "rb", compression=compression) as file:
            yield file
    except (CalqueError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError("no such file", path=address) from error
    except Exception as error:  # whatever its reader calls it
        raise InputError(f"cannot be read ({reason(error)})", path=address) from error


@contextmanager
def arriving(address: str) -> Iterator[str]:
    """The name of a local file to write, which stands at the address, whole, when the block ends; and not at all if that
    fails. Two that write the same one do not meet: the last one stays.

    Raises:
        OutputError: it cannot be written there.
    """
    file_system, path = opened(address)
    try:
        if is_local(file_system):
            with _replacing(path) as part:
                yield part
            return
        with TemporaryDirectory() as folder:
            local = os.path.join(folder, os.path.basename(path))
            yield local
            _send(file_system, local, path)
    except OSError as error:
        if (why := unwritten(error)) is not None:
            raise failure(address, why) from error
        raise OutputError(f"{address}: cannot be written ({reason(error)})") from error


def _send(file_system: Any, local: str, path: str) -> None:
    try:
        with suppress(Exception):  # object stores have no folders
            file_system.makedirs(file_system._parent(path), exist_ok=True)
        if _protocols(file_system) & _OBJECTS:
            file_system.put_file(local, path)
        else:
            part = f"{path}.{uuid4().hex[:8]}.part"
            file_system.put_file(local, part)
            file_system.mv(part, path)
    except Exception as error:  # of the package for it
        raise OSError(reason(error)) from error


@contextmanager
def _replacing(path: str) -> Iterator[str]:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    part = f"{path}.{uuid4().hex[:8]}.part"
    try:
        yield part
        readable(part)
        sync(part)
        os.replace(part, path)
    finally:
        with suppress(OSError):
            os.unlink(part)


def names_in(folder: str) -> set[str]:
    """Names of all files in a folder and those below it, relative to it; none where it does not exist.

    Raises:
        InputError: it cannot be listed.
    """
    file_system, path = opened(folder)
    try:
        file_system.invalidate_cache()
        return {relative(name, path) for name in file_system.find(path)}
    except FileNotFoundError:
        return set()
    except Exception as error:
        raise InputError(f"cannot be listed ({reason(error)})", path=folder) from error


def relative(path: str, root: str) -> str:
    """A path below another one."""
    return path.removeprefix(root.rstrip("/")).lstrip("/")
