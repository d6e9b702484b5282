"""`calque align --dictionary`, `--text` and `--unsupervised`: from options to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from calque.cli.checks import fraction
from calque.cli.options import pairs_of
from calque.errors import SettingError

_KINDS = {int: "a whole number", float: "a number", str: "a name"}


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
    refine: Annotated[int | None, typer.Option(min=0, help="Dictionaries: rounds of refinement; default 5.")] = None
    held_out: Annotated[
        float | None,
        typer.Option(
            callback=fraction, help="Dictionaries: share of entries held out to choose the best round; default 0.1."
        ),
    ] = None
    normalise: Annotated[
        str | None,
        typer.Option(help="Dictionaries: none, unit, centre or unit-centre-unit; the default depends on the method."),
    ] = None
    together: Annotated[bool, typer.Option("--together", help="Dictionaries: rotate all languages jointly.")] = False
    identical: Annotated[
        bool,
        typer.Option(
            "--identical", help="Dictionaries: also take each word that both languages have as its own translation."
        ),
    ] = False
    start: Annotated[str | None, typer.Option(help="--unsupervised: distributions (default) or adversarial.")] = None
    restarts: Annotated[int | None, typer.Option(min=1, help="--unsupervised: number of restarts; default 3.")] = None
    start_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="--unsupervised: option of --start, e.g. frequent=5000; repeatable."),
    ] = None
    most: Annotated[
        int | None,
        typer.Option(min=1, help="Dictionaries: also use the N most frequent words of each language; default 50000."),
    ] = None
    at_least: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: minimum number of occurrences of a word; default 1.")
    ] = None
    occurrences: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: average at most N occurrences of a word.")
    ] = None

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


def train_with_dictionaries(
    dictionaries: Sequence[str], langs: Sequence[str], texts: Sequence[str], method: str, options: Mapping[str, Any],
    **place: Any,
) -> None:  # fmt: skip
    """Train the encoder on text of each language, with dictionaries.

    Args:
        dictionaries: files.
        langs: the flat list of `--langs`.
        texts: of each language.
        method: that learns from them.
        options: of the method.
        place: other arguments of the run.
    """
    from calque.runs.dictionary import IDENTICAL
    from calque.runs.sense_alignment import align_senses

    if IDENTICAL in dictionaries:
        raise SettingError(f"--method {method} learns translations: --dictionary {IDENTICAL} has none")
    pairs = pairs_of(langs, len(dictionaries))
    result = align_senses(dictionaries, langs=pairs, texts=texts, method=method, options=options, **place)
    place["say"](f"saved to {result.folder} ({method} {result.record['seconds']['method']:.0f} s)")


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
    dictionaries: Sequence[str], langs: Sequence[str], method: str, fitting: Fitting, place: Mapping[str, Any]
) -> None:
    """Maps from dictionaries, from words spelt alike, or without either.

    Args:
        dictionaries: files, or `identical` alone; none for unsupervised maps.
        langs: the flat list of `--langs`.
        method: of the maps.
        fitting: options of these maps.
        place: arguments that they have in common with others.

    Raises:
        typer.Exit: an unsupervised map failed; everything is saved, and the code is 1.
    """
    from calque.runs.dictionary import IDENTICAL, align_dictionary

    if not langs:
        raise SettingError("--langs is missing: name the languages to map, e.g. --langs en de")
    options = {name: value for name, value in vars(fitting).items() if value is not None}
    start = options.pop("start", None)
    if dictionaries:
        for name in ("start", "restarts", "start_option"):
            if getattr(fitting, name) is not None:
                raise SettingError(f"--{name.replace('_', '-')} is only for --unsupervised")
        if IDENTICAL in dictionaries and len(dictionaries) > 1:
            raise SettingError(f"--dictionary {IDENTICAL} must be the only dictionary: it serves all languages")
        start = IDENTICAL if IDENTICAL in dictionaries else None
    elif start == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: use --dictionary {IDENTICAL} instead")
    else:
        start = start or "distributions"
    given = _start_options(start or "", options.pop("start_option", []))
    n = len(langs) // 2 if start is not None else len(dictionaries)
    result = align_dictionary(
        [] if start is not None else dictionaries, langs=pairs_of(langs, n), method=method, start=start, start_options=given,
        texts=options.pop("text", []), most_occurrences=options.pop("occurrences", None), **options, **place,
    )  # fmt: skip
    seconds = result.record["seconds"]
    place["say"](f"saved to {result.folder} (anchors {seconds['anchors']:.0f} s, maps {seconds['maps']:.0f} s)")
    if result.record["failed"]:
        raise typer.Exit(1)


def _start_options(start: str, given: list[str]) -> dict[str, Any]:
    """From `frequent=5000`, in the type that the option's default has."""
    if not given:
        return {}
    from calque.maps.unsupervised import check_start, start_options

    options: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        check_start(start, {name: value})
        kind = type(start_options(start)[name])
        try:
            options[name] = kind(value)
        except ValueError:
            raise SettingError(f"--start-option {text}: expected {name}= followed by {_KINDS[kind]}") from None
    return options
