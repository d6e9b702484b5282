"""Checks of command-line options before any file is read or written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import fspath
from pathlib import Path
from tempfile import TemporaryFile

from calque.corpora.languages import name_and_path
from calque.errors import SettingError
from calque.storage import check_links
from calque.text_files import is_unicode


def output_file(
    option: str,
    path: Path | None,
    inputs: Iterable[str | Path | None] = (),
    langs: Iterable[str] = (),
    *,
    adds: bool = False,
) -> None:
    """Check that an output file can be written and is not an input.

    Args:
        inputs: input files as given by the user: FILE, `de=FILE` or the common prefix of two files
            (Moses).
        langs: languages of the text, which are the suffixes of files with a common prefix.
        adds: whether scores are appended to the file; an existing file must then contain only
            scores.

    Raises:
        SettingError: the path is a folder or a device, cannot be written, or is an input.
        InputError: scores cannot be appended to the file.
    """
    if path is None:
        return
    with _writable(option, path, "file", path.is_file, inputs, langs):
        if adds and path.exists():
            from calque.runs.compare import check_results

            check_results(path)
            with open(path, "ab"):
                return
        _probe(path)


def _probe(path: Path) -> None:
    """Raise OSError if no file can be created in the innermost existing folder above a path."""
    with TemporaryFile(dir=next(parent for parent in path.parents if parent.exists())) as probe:
        probe.write(b" ")


def output_folder(option: str, path: Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Check that an output folder can be written and is not an input, see `output_file`."""
    if path is None:
        return
    with _writable(option, path, "folder", path.is_dir, inputs, ()):
        if not is_unicode(fspath(path.absolute())):
            raise SettingError(
                f"{option} {path}: the name must be UTF-8, which libraries that write weights "
                "require"
            )
        if not path.exists():
            _probe(path)


@contextmanager
def _writable(
    option: str,
    path: Path,
    kind: str,
    is_kind: Callable[[], bool],
    inputs: Iterable[str | Path | None],
    langs: Iterable[str],
) -> Iterator[None]:
    """Check a path, and convert operating-system errors in the block to a `SettingError`."""
    if not str(path).strip():
        raise SettingError(f"{option} must name a {kind} to write, got an empty name")
    check_links(path)
    try:
        if path.exists() and not is_kind():
            raise SettingError(
                f"{option} {path} must be a {kind} that can be written, got {_found(path)}"
            )
        above = next((parent for parent in path.parents if parent.exists()), path)
        if not above.is_dir():
            raise SettingError(f"{option} {path}: {above} is not a folder")
        for named in inputs:
            if named is not None and os.path.realpath(path) in _files_of(str(named), langs):
                raise SettingError(
                    f"{option} {path} would overwrite the input {named}; choose another name"
                )
        yield
    except (OSError, ValueError) as error:
        # for example no permission, or a name that is too long or contains NUL
        reason = getattr(error, "strerror", None) or error
        raise SettingError(
            f"{option} {str(path)!r:.200}: no {kind} can be written to this path ({reason})"
        ) from error


def _found(path: Path) -> str:
    """Describe what exists at a path."""
    if path.is_dir():
        return "a folder"
    return "a file" if path.is_file() else "a device or a pipe"


def _files_of(named: str, langs: Iterable[str]) -> set[str]:
    """Return the real paths of the files of an input: FILE, `LANG=FILE` or a prefix (Moses), with
    or without compression.
    """
    names = {named, name_and_path(named)[1]}
    prefixes = [name for name in names if not os.path.exists(name)]
    endings = [
        f".{lang}{suffix}" for lang in langs for suffix in ("", ".gz", ".zst", ".xz", ".bz2")
    ]
    return set(
        map(
            os.path.realpath,
            [*names, *(prefix + ending for prefix in prefixes for ending in endings)],
        )
    )
