"""Settings of commands as dataclasses.

The name, type, default and help of a field make an option of the command line, see `opt` and `calque.cli.options.grouped`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.analyses.table import ANALYSES
from calque.errors import SettingError


def opt(default: Any, help: str, *names: str, **how: Any) -> Any:
    """Return a dataclass field that is an option of the command line; a default of `...` makes it required."""
    return field(
        **({} if default is ... else {"default": default}), metadata={"option": typer.Option(*names, help=help, **how)}
    )


def arg(default: Any, help: str, **how: Any) -> Any:
    """Return a dataclass field that is an argument of the command line, see `opt`."""
    return field(
        **({} if default is ... else {"default": default}), metadata={"option": typer.Argument(help=help, **how)}
    )


def is_language(name: str) -> bool:
    """Return whether a name can be a language in `LANG=FILE`."""
    return (
        bool(name) and name.isprintable() and not any(character.isspace() or character in "/\\=," for character in name)
    )


def language(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Check the name of a language."""
    if value is not None and not is_language(value):
        raise SettingError(f"{parameter.opts[0]} {value!r}: expected a language, e.g. en or pt-BR")
    return value


def numbers(text: str | None, option: str = "--layers") -> list[int] | None:
    """Parse whole numbers separated by commas, or a range such as 0-12."""
    if text is None:
        return None
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal():
        return list(range(int(first), int(last) + 1))
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise SettingError(f"{option} {text}: expected whole numbers separated by commas, e.g. -4,-3,-2,-1") from None


PairLangs = Annotated[
    list[str] | None,
    typer.Option("--langs", metavar="SOURCE TARGET", help="The two languages of the text, e.g. en de."),
]
ManyLangs = Annotated[
    list[str] | None,
    typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary, e.g. en de; repeatable."),
]
EncoderArgument = Annotated[
    str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini (bundled) or word vectors.")
]
OwnOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An own option, also written --NAME VALUE; repeatable."),
]
CheckpointEvery = Annotated[
    int,
    typer.Option(min=0, help="Training: also save a checkpoint every N updates (one is saved every minute); 0: none."),
]
KeepLayers = Annotated[
    bool,
    typer.Option("--keep-layers", help="Save the layers above the encoder's own too; default: cut them off."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a finished result in --out.")]
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Words are already separated by spaces; otherwise calque splits them.")
]
Model = Annotated[str, typer.Option("--model", help="Word aligner: auto, fast-align, hmm or gibbs (most accurate).")]
# PyTorch multiplies the seed, so 32 bits avoid an overflow of 64 bits.
Seed = Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N sentences (or pairs) of each text.")]
Layer = Annotated[
    int | None, typer.Option(help="Hidden layer, -1: the last; default: as saved, else the last (in decoders 2/3 up).")
]
Pooling = Annotated[str | None, typer.Option(help="Which subwords make a word's vector: last, first or mean.")]
MaxLength = Annotated[
    int | None, typer.Option(min=3, help="Maximum subwords per sentence; default: the model's limit.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and messages.")]


@dataclass(frozen=True, kw_only=True)
class AnchorSettings:
    """Settings of `calque anchors`."""

    text: list[str] = arg(..., "Text, one sentence per line.", metavar="TEXT...")
    out: Path = opt(..., "Folder for anchors and sums; an interrupted run resumes there.", metavar="PATH")
    lang: str = opt(..., "Language of the text.", callback=language)
    encoder: str = opt(..., "Hub name, folder, mini (bundled) or word vectors.")
    layers: str | None = opt(None, "Layers, e.g. 0,1,2; default: the encoder's layer.")
    vocabulary: str | None = opt(None, "Only make anchors for the words in this file, one per line.")
    at_least: int = opt(1, "Skip words with fewer than N occurrences.", min=1)
    most: int | None = opt(None, "Keep only the N most frequent words.", min=1)
    most_occurrences: int | None = opt(
        None, "Average only the first N occurrences of a word; saves encoding time.", "--occurrences", min=1
    )
    format: str = opt(
        "safetensors", "safetensors, or avg_embeds (word2vec text per layer and norms.json, as published)."
    )
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Read only the first N lines of each text.", min=1)
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of `calque words`."""

    train: str = arg(..., "Parallel text: TSV, a ||| b, Moses, TMX, …", metavar="TRAIN")
    langs: list[str] = opt(..., "The two languages of the text, e.g. en de.", "--langs", metavar="SOURCE TARGET")
    out: Path = opt(..., "Pharaoh file to write: a line of i-j links per sentence pair.", metavar="PATH")
    encoder: str | None = opt(
        None, "Link by the vectors of an encoder (hub name, folder, mini), without training.", metavar="ENCODER"
    )
    extract: str | None = opt(None, "--encoder: mutual (default) or softmax.")
    prior: bool = opt(
        False, "--encoder: do train (or --use), with the encoder's similarities as a prior (hmm, gibbs).", "--prior"
    )
    prior_weight: float | None = opt(None, "--prior: how much similarities count; default: 2.", min=0)
    cross_fit: int | None = opt(
        None,
        "--prior: first align the encoder on this text; each of N parts of it gets the similarities of a copy that "
        "was aligned on the others.",
        min=2,
        metavar="N",
    )
    also: list[str] | None = opt(
        None, "--cross-fit: more texts to align it on, of any languages.", metavar="en-nl=FILE..."
    )
    pretokenized: Pretokenized = False
    extra: list[str] | None = opt(None, "More text in the same languages to train the aligner on; not in the output.")
    posteriors: bool = opt(False, "Write each link with its probability or score, i-j:p.", "--posteriors", "--scores")
    tables: Path | None = opt(None, "Save the trained aligner here, to link new text with --use.")
    use: Path | None = opt(None, "Link with an aligner saved by --tables, without training.", metavar="PATH")
    sample: int | None = opt(None, "Train on N sentence pairs drawn from the text, and link all of it.", min=1)
    limit: Limit = None


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Settings of `calque analyze`."""

    only: str | None = opt(None, f"Which analyses, separated by commas: {', '.join(ANALYSES)}; default: all.")
    upos: list[str] | None = opt(
        None,
        "Parts of speech of the test sentences, CoNLL-U or columns; de=FILE gives the language.",
        metavar="FILE...",
    )
    non_contextual: bool = opt(False, "Only the first occurrence of each word form.", "--non-contextual")
    forms: int = opt(8, "examples: number of word forms to show.", min=1)
    pairs: int = opt(100, "points: number of word pairs in the plot.", min=2)
    projection: str = opt("auto", "points: pca, tsne, or auto (t-SNE where scikit-learn is installed).")
    bootstrap: int = opt(1000, "Bootstrap samples for the intervals.", min=0)


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """Settings of `calque neighbours`."""

    encoder: str = opt(
        ..., "Hub name, folder, mini (bundled) or word vectors; an encoder with maps is shown before and after."
    )
    lang1: str = opt(..., "Language of the word.", callback=language)
    sentence1: str = opt(..., "The sentence with the word.")
    word1: str = opt(..., "The word, as written in the sentence.")
    lang2: str = opt(..., "Language of the neighbours.", callback=language)
    sentence2: list[str] | None = opt(None, "A sentence in that language; repeatable.")
    text2: str | None = opt(None, "A text in that language, one sentence per line.")
    aligned: str | None = opt(None, "The aligned encoder, if --encoder is the base.")
    k: int = opt(5, "Number of nearest words to show.", "-k", min=1)
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Read only the first N lines of --text2.", min=1)
