"""Options that several commands have, and what their words on the command line mean."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from calque.cli.checks import is_language
from calque.errors import SettingError

Langs = Annotated[
    list[str], typer.Option("--langs", metavar="SOURCE TARGET", help="The two languages of the text, e.g. en de.")
]
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Words are already separated by spaces; otherwise calque splits them.")
]
Symmetrize = Annotated[
    str,
    typer.Option(
        help="How to combine the links of the two directions: one-to-one, intersection, union, grow-diag, "
        "grow-diag-final, grow-diag-final-and."
    ),
]
Model = Annotated[str, typer.Option("--model", help="Word aligner: auto, fast-align, hmm or gibbs (most accurate).")]
# torch multiplies the seed by what tells updates and processes apart: 64 bits hold the products of 32.
Seed = Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N sentences (or pairs) of each text.")]
Layer = Annotated[
    int | None, typer.Option(help="Hidden layer (-1: the last); default: the one saved with the encoder, or -1.")
]
Pooling = Annotated[str | None, typer.Option(help="Which subwords make a word's vector: last, first or mean.")]
MaxLength = Annotated[
    int | None, typer.Option(min=3, help="Maximum subwords per sentence; default: the model's limit.")
]
Precision = Annotated[
    str,
    typer.Option(
        help="Arithmetic of training: float32 (exact, the same numbers every time), or faster where the hardware has it: "
        "medium (factors of matrix products rounded) or bfloat16 (all of the forward pass)."
    ),
]
VectorPrecision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="Arithmetic of matrix products: highest, high or medium; default: the one saved with the encoder, or highest.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and messages.")]


def pairs_of(langs: Sequence[str], n: int) -> list[tuple[str, str]]:
    """The flat list that `spread` makes of every `--langs A B`, in twos; one pair for each of `n` texts, or one for all."""
    found = language_pairs(langs)
    if len(found) not in (1, n):
        raise SettingError(
            f"{len(found)} pairs of --langs for {n} text(s): give one pair for each text, or one for all"
        )
    return found


def language_pairs(langs: Sequence[str]) -> list[tuple[str, str]]:
    """The flat list in twos, checked.

    Raises:
        SettingError: a language without a name, or one and the same on both sides.
    """
    if len(langs) % 2:
        raise SettingError("--langs takes two languages, e.g. --langs en de")
    for lang in langs:
        if not is_language(lang):
            raise SettingError(f"--langs {lang!r}: expected a language, e.g. en or pt-BR")
    found = [(a, b) for a, b in zip(langs[::2], langs[1::2], strict=True)]
    for a, b in found:
        if a == b:
            raise SettingError(
                f"--langs {a} {b}: expected two different languages, source and target, e.g. --langs en de"
            )
    return found


def loading(layer: int | None, pooling: str | None, max_length: int | None) -> dict[str, Any]:
    given = {"layer": layer, "pooling": pooling, "max_length": max_length}
    return {name: value for name, value in given.items() if value is not None}


def numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise SettingError(f"--layers {text}: expected whole numbers separated by commas, e.g. -4,-3,-2,-1") from None


def news(quiet: bool):
    return (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))
