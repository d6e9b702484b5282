"""`calque align --dictionary`, `--text` and `--unsupervised`: from options to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.options import by_name, pairs_of
from calque.errors import SettingError


@dataclass(frozen=True)
class Fitting:
    """Maps from dictionaries, or from neither text nor dictionary."""

    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Text of each language: to average word vectors over (dictionaries), or to learn from.",
        ),
    ] = None
    anchors: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR...", help="Dictionaries: folders written by calque anchors, instead of text."),
    ] = None
    start: Annotated[str | None, typer.Option(help="--unsupervised: distributions (default) or adversarial.")] = None

    def files(self) -> list[str]:
        """What is read."""
        return [*(self.text or []), *(self.anchors or [])]


def named_dictionaries(files: Sequence[str], langs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files and the flat list of `--langs`, which `en-de=FILE` stands for, too.

    Raises:
        SettingError: languages said twice, or of some files only.
    """
    from calque.corpora.languages import pair_and_path

    named = [pair_and_path(file) for file in files]
    pairs = [pair for pair, _ in named if pair is not None]
    if not pairs:
        return list(files), list(langs)
    if langs or len(pairs) < len(named):
        raise SettingError("name the languages of all dictionaries, either as in en-de=FILE or by --langs, not both")
    return [path for _, path in named], [lang for pair in pairs for lang in pair]


def languages_of(dictionaries: Sequence[str], fitting: Fitting) -> list[str]:
    """Return the two languages that the texts or anchors are in, in the order in which a dictionary's name has them, or
    else in that of the texts; none where there are more or fewer."""
    from calque.corpora.languages import language_and_path, name_and_path
    from calque.runs.anchors import open_folder

    named = [language_and_path(text)[0] for text in fitting.text or []]
    for name, path in map(name_and_path, fitting.anchors or []):
        named.append(name or next(iter(open_folder(path).values())).lang or language_and_path(path)[0])
    if len(langs := list(dict.fromkeys(named))) != 2:
        return []
    return langs[::-1] if any("-".join(reversed(langs)) in Path(path).name for path in dictionaries) else langs


def from_text(texts: Sequence[str], method: str, options: Mapping[str, Any], **place: Any) -> None:
    """Fit maps on text of each language alone.

    Args:
        texts: files with their languages.
        method: that needs no more.
        options: of the method.
        place: other arguments of the run.
    """
    from calque.runs.text_alignment import align_text

    result = align_text(texts, method=method, options=options, **place)
    place["say"](f"saved to {result.folder} ({method} {result.record['seconds']['method']:.0f} s)")


def with_dictionaries(
    dictionaries: Sequence[str], langs: Sequence[str], method: str, fitting: Fitting, items: Sequence[str],
    place: Mapping[str, Any],
) -> None:  # fmt: skip
    """Maps from dictionaries, from words spelt alike, or without either.

    Args:
        dictionaries: files, or `identical` alone; none for unsupervised maps.
        langs: the flat list of `--langs`.
        method: of the maps.
        fitting: options of these maps.
        items: `--option NAME=VALUE`, of `align_dictionary` or of the start.
        place: arguments that they have in common with others.

    Raises:
        typer.Exit: an unsupervised map failed; everything is saved, and the code is 1.
    """
    from calque.runs.dictionary import IDENTICAL, align_dictionary

    if not langs:
        raise SettingError("--langs is missing: name the languages to map, e.g. --langs en de")
    start = fitting.start
    if dictionaries:
        if start is not None:
            raise SettingError("--start is only for --unsupervised")
        if IDENTICAL in dictionaries and len(dictionaries) > 1:
            raise SettingError(f"--dictionary {IDENTICAL} must be the only dictionary: it serves all languages")
        start = IDENTICAL if IDENTICAL in dictionaries else None
    elif start == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: use --dictionary {IDENTICAL} instead")
    else:
        start = start or "distributions"
    fixed, of_start = _known_options(start) if items else ({}, {})
    options = by_name(items, {**fixed, **of_start})
    n = len(langs) // 2 if start is not None else len(dictionaries)
    result = align_dictionary(
        [] if start is not None else dictionaries, langs=pairs_of(langs, n), method=method, start=start,
        start_options={name: value for name, value in options.items() if name in of_start},
        texts=fitting.text or [], anchors=fitting.anchors or [],
        **{name: value for name, value in options.items() if name in fixed}, **place,
    )  # fmt: skip
    seconds = result.record["seconds"]
    place["say"](f"saved to {result.folder} (anchors {seconds['anchors']:.0f} s, maps {seconds['maps']:.0f} s)")
    if result.record["failed"]:
        raise typer.Exit(1)


def _known_options(start: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types of what `--option` sets: of `align_dictionary`, and of a start that draws at random."""
    from calque.maps.dictionary import Normalisation
    from calque.maps.unsupervised import check_start
    from calque.runs.dictionary import IDENTICAL, align_dictionary
    from calque.runs.study.options import of_start
    from calque.runs.study.values import Share, of

    types = of(align_dictionary) | {"normalise": Normalisation, "held_out": Share}
    names = ("normalise", "refine", "most", "at_least", "most_occurrences")
    names += ("identical", "held_out") if start is None else ()
    if start in (None, IDENTICAL):
        return {name: types[name] for name in names}, {}
    check_start(start)
    return {name: types[name] for name in (*names, "restarts")}, of_start(start)
