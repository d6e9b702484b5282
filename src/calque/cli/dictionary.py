"""`calque align --dictionary` and `--unsupervised`: from options to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from calque.cli.options import pairs_of
from calque.errors import SettingError


def with_dictionaries(
    dictionaries: Sequence[str], langs: Sequence[str], method: str, fitted: Mapping[str, Any], place: Mapping[str, Any]
) -> None:
    """Maps from dictionaries, from words written alike, or from nothing.

    Args:
        dictionaries: files, or `identical` alone; none for maps from nothing.
        langs: the flat list of `--langs`.
        method: of the maps.
        fitted: options of these maps that were given.
        place: arguments that they have in common with others.

    Raises:
        typer.Exit: a map from nothing failed; everything is written, and the code is 1.
    """
    from calque.runs.dictionary import IDENTICAL, align_dictionary

    if not langs:
        raise SettingError("--langs is missing: which languages shall be mapped? E.g. --langs en de")
    options = dict(fitted)
    start = options.pop("start", None)
    if dictionaries:
        if start is not None or "restarts" in options:
            raise SettingError(f"--{'start' if start else 'restarts'} is for --unsupervised")
        if IDENTICAL in dictionaries and len(dictionaries) > 1:
            raise SettingError(f"--dictionary {IDENTICAL} stands alone: it serves all languages")
        start = IDENTICAL if IDENTICAL in dictionaries else None
    elif start == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: say --dictionary {IDENTICAL}")
    else:
        start = start or "distributions"
    n = len(langs) // 2 if start is not None else len(dictionaries)
    result = align_dictionary(
        [] if start is not None else dictionaries, langs=pairs_of(langs, n), method=method, start=start,
        texts=options.pop("text", []), most_occurrences=options.pop("occurrences", None), **options, **place,
    )  # fmt: skip
    seconds = result.record["seconds"]
    place["say"](f"written to {result.folder} in {seconds['maps']:.0f} s, after {seconds['anchors']:.0f} s of anchors")
    if result.record["failed"]:
        raise typer.Exit(1)
