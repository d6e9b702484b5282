"""Settings of commands as dataclasses.

The name, type, default and help of a field make an option of the command line, see `opt` and `calque.cli.options.grouped`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.alignment import methods_for
from calque.analyses.table import ANALYSES
from calque.corpora.languages import pair_and_path
from calque.errors import SettingError


def opt(default: Any, help: str, *names: str, **how: Any) -> Any:
    """Return a dataclass field that is an option of the command line; a default of `...` makes it required."""
    return _field(default, typer.Option(*names, help=help, **how))


def arg(default: Any, help: str, **how: Any) -> Any:
    """Return a dataclass field that is an argument of the command line, see `opt`."""
    return _field(default, typer.Argument(help=help, **how))


def files(help: str, metavar: str = "FILE...") -> Any:
    """Return a dataclass field that is an option with any number of files, see `opt`."""
    return opt(None, help, metavar=metavar)


def _field(default: Any, option: Any) -> Any:
    return field(**({} if default is ... else {"default": default}), metadata={"option": option})


def language(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Check the name of a language for `typer`."""
    return value if value is None else _language(parameter.opts[0], value)


def _language(option: str, name: str) -> str:
    """Return the name of a language if it can be one in `LANG=FILE`.

    Raises:
        SettingError: the name is empty or has characters that a language cannot have.
    """
    if not name or not name.isprintable() or any(sign.isspace() or sign in "/\\=," for sign in name):
        raise SettingError(f"{option} {name!r}: expected a language, e.g. en or pt-BR")
    return name


def language_pairs(langs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the checked pairs of the flat list of `--langs`.

    Raises:
        SettingError: a language is invalid, or the same on both sides.
    """
    if len(langs) % 2:
        raise SettingError("--langs takes two languages, e.g. --langs en de")
    names = [_language("--langs", lang) for lang in langs]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    for a, b in pairs:
        if a == b:
            raise SettingError(f"--langs {a} {b}: expected two different languages, source and target")
    return pairs


def named_pairs(files: Sequence[str], langs: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return files and their pairs of languages from `en-de=FILE` or from the flat list of `--langs`.

    Raises:
        SettingError: languages are given twice, or for some files only.
    """
    named = [pair_and_path(file) for file in files]
    pairs = [pair for pair, _ in named if pair is not None]
    if not pairs:
        return list(files), language_pairs(langs)
    if langs or len(pairs) < len(named):
        raise SettingError("name the languages of all files, either as in en-de=FILE or by --langs, not both")
    return [path for _, path in named], language_pairs([lang for pair in pairs for lang in pair])


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


Several = list[str] | None
PairLangs = Annotated[
    Several, typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of the text, e.g. en de.")
]
ManyLangs = Annotated[
    Several, typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary; repeatable.")
]
EncoderArgument = Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini or word vectors.")]
OwnOption = Annotated[Several, typer.Option("--option", metavar="NAME=VALUE", help="Also --NAME VALUE; repeatable.")]
CheckpointEvery = Annotated[
    int, typer.Option(min=0, help="Training: save a checkpoint every N updates, and every minute; 0: none.")
]
KeepLayers = Annotated[bool, typer.Option("--keep-layers", help="Also save the layers above the encoder's own.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a finished result in --out.")]
Pretokenized = Annotated[bool, typer.Option("--pretokenized", help="Words are already separated by spaces.")]
Model = Annotated[str, typer.Option("--model", help="Word aligner: auto, fast-align, hmm or gibbs (most accurate).")]
# PyTorch multiplies the seed, so 32 bits avoid an overflow of 64 bits.
Seed = Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N sentences (or pairs) of each text.")]
Layer = Annotated[
    int | None, typer.Option(help="Hidden layer, -1: the last; default: as saved, else the last (in decoders 2/3 up).")
]
Pooling = Annotated[str | None, typer.Option(help="Which subwords make a word's vector: last, first or mean.")]
MaxLength = Annotated[int | None, typer.Option(min=3, help="Maximum subwords per sentence; default: as in the model.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and messages.")]
#: default method by kind of data
DEFAULT_METHOD = {"parallel": "contrastive", "dictionary": "rotation", "unsupervised": "rotation", "released": ""}


def _methods(kind: str) -> str:
    """Return the names of the methods for a kind of data, for the help."""
    usual = DEFAULT_METHOD[kind]
    return ", ".join(f"{name} (default)" if name == usual else name for name in methods_for(kind))


@dataclass(frozen=True, kw_only=True)
class AlignSettings:
    """Settings of `calque align`."""

    encoder: str = opt(..., "Hub name, folder, mini (bundled) or word vectors; or en=ENCODER,de=ENCODER.")
    towards: str = opt(..., "The language that the others are aligned with.", callback=language)
    out: Path = opt(..., "Folder for the aligned encoder.")
    train: Several = arg(None, "Parallel texts, as FILE or en-de=FILE.", metavar="[TRAIN...]")
    langs: ManyLangs = None
    method: str | None = opt(
        None,
        f"With parallel text: {_methods('parallel')}, or package.module:Class. With dictionaries: {_methods('dictionary')}. "
        f"With --text alone: {', '.join(methods_for('text'))}.",
    )
    dictionary: Several = files("Align with dictionaries, FILE or en-de=FILE; identical: with words spelt alike.")
    text: Several = files("de=FILE: text to average word vectors over (dictionaries), or to learn from.")
    anchors: Several = files("Dictionaries: folders written by calque anchors, instead of text.", "DIR...")
    unsupervised: bool = opt(
        False,
        "Align without text or dictionary. If it fails, the encoder is still written, the message and the model card say so, "
        "and the exit code is 1.",
        "--unsupervised",
    )
    released: Several = files("Use released maps (XX_best_mapping.pth); one folder per layer of --layers.", "DIR...")
    links: Several = opt(None, "Pharaoh file with the word links; default: link as calque words does.")
    pretokenized: Pretokenized = False
    limit: Limit = None
    option: OwnOption = None
    keep_layers: KeepLayers = False
    checkpoint_every: CheckpointEvery = 200
    overwrite: Overwrite = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class DistilSettings:
    """Settings of `calque distil`."""

    teacher: str = opt(..., "Encoder with a sentence vector: hub name or folder.")
    student: str = opt(..., "Encoder of many languages: hub name, folder or mini (bundled).")
    out: Path = opt(..., "Folder for the trained student.", "--out", "-o")
    train: Several = arg(None, "One or more parallel texts, as FILE or en-de=FILE.", metavar="[TRAIN...]")
    langs: ManyLangs = None
    towards: str | None = opt(None, "The teacher's language; default: the first of --langs.", callback=language)
    text: Several = files("More lines in the teacher's language.")
    static: bool = opt(
        False,
        "The student is one vector for each subword of --student, without a network; default settings: --batch 256, "
        "--learning-rate 0.01, --ranking 0.3.",
        "--static",
    )
    sentence_pooling: str | None = opt(
        None, "The student's sentence vector: own (as saved; default), subwords (their mean; otherwise default) or cls."
    )
    teacher_pooling: str | None = opt(
        None, "The teacher's sentence vector: own (as saved; default), subwords, cls or words."
    )
    vectors: Path | None = opt(None, "Save the teacher's vectors here, for other runs.", metavar="FOLDER")
    option: OwnOption = None
    seed: Seed = 0
    layer: Layer = None
    max_length: MaxLength = None
    limit: Limit = None
    checkpoint_every: CheckpointEvery = 200
    overwrite: Overwrite = False
    quiet: Quiet = False


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
    most: int | None = opt(None, "Only the N most frequent words.", min=1)
    most_occurrences: int | None = opt(None, "Only the first N occurrences of a word (faster).", "--occurrences", min=1)
    format: str = opt("safetensors", "safetensors, or avg_embeds (word2vec text and norms.json, as published).")
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Read only the first N lines of each text.", min=1)
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of `calque words`."""

    train: str = arg(..., "Parallel text: TSV, a ||| b, Moses, TMX, …", metavar="TRAIN")
    langs: list[str] = opt(..., "The two languages of the text, e.g. en de.", "--langs", metavar="SOURCE TARGET")
    out: Path = opt(..., "Pharaoh file to write: a line of i-j links per sentence pair.", metavar="PATH")
    encoder: str | None = opt(None, "Align words by an encoder's vectors, without training.", metavar="ENCODER")
    extract: str | None = opt(None, "--encoder: mutual (default) or softmax.")
    prior: bool = opt(False, "Train (or --use) with the similarities of --encoder as a prior (hmm, gibbs).", "--prior")
    prior_weight: float | None = opt(None, "--prior: weight of the similarities; default: 2.", min=0)
    cross_fit: int | None = opt(
        None,
        "--prior: first align the encoder on this text; each of N parts of it gets the similarities of a copy that "
        "was aligned on the others.",
        min=2,
        metavar="N",
    )
    also: Several = files("--cross-fit: more texts to align it on, of any languages.", "en-nl=FILE...")
    pretokenized: Pretokenized = False
    extra: Several = opt(None, "More text in the same languages to train the aligner on; not in the output.")
    posteriors: bool = opt(False, "Write each link with its probability or score, i-j:p.", "--posteriors", "--scores")
    tables: Path | None = opt(None, "Save the trained aligner here, to link new text with --use.")
    use: Path | None = opt(None, "Link with an aligner saved by --tables, without training.", metavar="PATH")
    sample: int | None = opt(None, "Train on N sentence pairs drawn from the text, and link all of it.", min=1)
    limit: Limit = None
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Settings of `calque analyze`."""

    encoders: Several = arg(
        None,
        "Hub names, folders, mini (bundled) or word vectors, also NAME=PATH; the base first.",
        metavar="ENCODER...",
    )
    test: str | None = opt(None, "Parallel text to test on.", metavar="FILE")
    langs: PairLangs = None
    only: str | None = opt(None, f"Which analyses, separated by commas: {', '.join(ANALYSES)}; default: all.")
    train: str | None = opt(None, "Text the encoders were aligned with, to distinguish seen from unseen pairs.")
    links: str | None = opt(None, "Word links of --test.")
    train_links: str | None = opt(None, "Word links of --train.")
    upos: Several = files("Parts of speech of the test sentences, CoNLL-U or columns; de=FILE gives the language.")
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Use only the first N sentence pairs of --test; --train is read whole.", min=1)
    non_contextual: bool = opt(False, "Only the first occurrence of each word type.", "--non-contextual")
    forms: int = opt(8, "examples: number of word types to show.", min=1)
    pairs: int = opt(100, "points: number of word pairs in the plot.", min=2)
    projection: str = opt("auto", "points: pca, tsne, or auto (t-SNE where scikit-learn is installed).")
    bootstrap: int = opt(1000, "Bootstrap samples for the intervals.", min=0)
    out: Path | None = opt(None, "Append the findings to this JSON lines file.")
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """Settings of `calque neighbours`."""

    encoder: str = opt(..., "Hub name, folder, mini (bundled) or word vectors; maps are shown before and after.")
    lang1: str = opt(..., "Language of the word.", callback=language)
    sentence1: str = opt(..., "The sentence with the word.")
    word1: str = opt(..., "The word, as written in the sentence.")
    lang2: str = opt(..., "Language of the neighbours.", callback=language)
    sentence2: Several = opt(None, "A sentence in the language of --lang2; repeatable.")
    text2: str | None = opt(None, "A text in that language, one sentence per line.")
    aligned: str | None = opt(None, "The aligned encoder, if --encoder is the base.")
    k: int = opt(5, "Number of nearest words to show.", "-k", min=1)
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Read only the first N lines of --text2.", min=1)
