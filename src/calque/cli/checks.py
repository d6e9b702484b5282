"""Checks of the command line before anything is read or written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import typer

from calque.errors import SettingError
from calque.storage import is_text


def positive(parameter: typer.CallbackParam, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise SettingError(f"{parameter.opts[0]} {value}: expected a finite number above 0")
    return value


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
        inputs: input files as given by the user, including `de=FILE` and prefixes of two files (Moses).
        langs: suffixes of the files of a prefix.
        adds: whether scores are appended to the file, which must then contain scores only.

    Raises:
        SettingError: the path is a folder or a device, cannot be written, or is an input.
        InputError: scores cannot be appended to the file.
    """
    if path is None:
        return
    with _possible(option, path, "file"):
        if path.is_dir():
            raise SettingError(f"{option} {path}: this is a folder, expected a file to write")
        if path.exists() and not path.is_file():
            raise SettingError(f"{option} {path}: this is a device or a pipe, expected a file to write")
        _not_below_a_file(option, path)
        _not_an_input(option, path, inputs, langs)
        if adds and path.exists():
            from calque.runs.compare import check_results

            check_results(path)
            with open(path, "ab"):
                return
        with TemporaryFile(dir=next(parent for parent in path.parents if parent.exists())) as probe:
            probe.write(b" ")


def output_folder(option: str, path: Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Check that an output folder can be written and is not an input, see `output_file`."""
    if path is None:
        return
    with _possible(option, path, "folder"):
        if not is_text(path.absolute()):
            raise SettingError(f"{option} {path}: expected a name in UTF-8, which libraries that write weights need")
        if path.exists() and not path.is_dir():
            what = "a file" if path.is_file() else "a device or a pipe"
            raise SettingError(f"{option} {path}: this is {what}, expected a folder to write to")
        _not_below_a_file(option, path)
        _not_an_input(option, path, inputs, ())


@contextmanager
def _possible(option: str, path: Path, kind: str) -> Iterator[None]:
    if not str(path).strip():
        raise SettingError(f"{option} is empty: expected a {kind} to write")
    try:
        yield
    except (OSError, ValueError) as error:  # no permission, name too long, NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise SettingError(f"{option} {str(path)!r:.200}: no {kind} can be written there ({reason})") from error


def _not_below_a_file(option: str, path: Path) -> None:
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise SettingError(f"{option} {path}: {parent} is not a folder")
            return


def _not_an_input(option: str, path: Path, inputs: Iterable[str | Path | None], langs: Iterable[str]) -> None:
    from calque.corpora.languages import name_and_path

    out = os.path.realpath(path)
    for named in inputs:
        if named is None:
            continue
        for name in (str(named), name_and_path(str(named))[1]):
            if any(os.path.realpath(file) == out for file in (name, *_sides(name, langs))):
                raise SettingError(
                    f"{option} {path} is also read ({named}): writing would destroy it; choose another name"
                )


def _sides(prefix: str, langs: Iterable[str]) -> list[str]:
    """Return the files of a prefix (Moses), compressed or not."""
    if os.path.exists(prefix):
        return []
    return [f"{prefix}.{lang}{suffix}" for lang in langs for suffix in ("", ".gz", ".zst", ".xz", ".bz2")]


def given(context: typer.Context) -> dict[str, str]:
    """Return the given options by parameter name, in the spelling of the user."""
    options = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE" and parameter.param_type_name == "option":
            options[parameter.name or ""] = max((*parameter.opts, *parameter.secondary_opts), key=len)
    return options


def refuse_unused(context: typer.Context, unused: Mapping[str, str]) -> None:
    """Raise an error if an option without effect was given.

    Args:
        context: context of the command.
        unused: reason by parameter name, for each option without effect.

    Raises:
        SettingError: one of the options was given.
    """
    for name, option in given(context).items():
        if name in unused:
            raise SettingError(f"{option} {unused[name]}")
