"""Dataclasses with the settings of the commands.

The name, type, default and help of a field define a command-line option, see `opt` and
`calque.cli.options.grouped`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.alignment import methods_for
from calque.analyses.table import ANALYSES
from calque.corpora.languages import best_match, doubt_about, pair_and_path, pair_in_name
from calque.errors import CalqueWarning, SettingError
from calque.segment import language_parts


def opt(default: Any, help: str, *names: str, **how: Any) -> Any:
    """Return a dataclass field that defines a command-line option; the option is required if
    `default` is `...`.
    """
    return _field(default, typer.Option(*names, help=help, **how))


def out_file(default: Any, help: str, *names: str) -> Any:
    """Return a dataclass field that defines the option of an output file, see `opt`."""
    return opt(default, help, *names, parser=file_name, metavar="PATH")


def file_name(text: str | PathLike[str]) -> Path:
    """Parse the name of an output file.

    Raises:
        SettingError: the name ends with a slash, and so names a folder.
    """
    name = fspath(text)
    if name.endswith((os.sep, f"{os.sep}.", f"{os.sep}..")):
        example = Path(name) / "results"
        raise SettingError(
            f"the output must be a file, but {name} names a folder; add a file name, e.g. {example}"
        )
    return Path(name)


def arg(default: Any, help: str, **how: Any) -> Any:
    """Return a dataclass field that defines a positional argument of a command, see `opt`."""
    return _field(default, typer.Argument(help=help, **how))


def files(help: str, metavar: str = "FILE...") -> Any:
    """Return a dataclass field that defines an option for any number of files, see `opt`."""
    return opt(None, help, metavar=metavar)


def _field(default: Any, option: Any) -> Any:
    return field(**({} if default is ... else {"default": default}), metadata={"option": option})


def language(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Check the name of a language (a callback for `typer`)."""
    if value is not None:
        warn_of_languages([_language(parameter.opts[0], value)], parameter.opts[0])
    return value


def _language(option: str, name: str) -> str:
    """Check that the name of a language can be part of `LANG=FILE`, and return the name.

    Raises:
        SettingError: the name is empty or contains a character that is not allowed.
    """
    if (
        not name
        or not name.isprintable()
        or any(sign.isspace() or sign in "/\\=," for sign in name)
    ):
        raise SettingError(f"{option} {name!r}: expected a language, e.g. en or pt-BR")
    return name


def warn_of_languages(langs: Iterable[str], option: str = "--langs") -> None:
    """Warn about language codes that are probably misspelt, because text in an unknown language is
    split with general rules.
    """
    for name in dict.fromkeys(langs):
        if (doubt := doubt_about(name)) is not None:
            warnings.warn(CalqueWarning(f"{option}: {doubt}"), stacklevel=3)


def language_pairs(langs: Sequence[str]) -> list[tuple[str, str]]:
    """Convert the flat list of `--langs` to pairs of languages, and check the pairs.

    Raises:
        SettingError: a language is invalid, the number of languages is odd, or the two languages of
            a pair are equal.
    """
    if len(langs) % 2:
        raise SettingError("--langs needs two languages, e.g. --langs en de")
    names = [_language("--langs", lang) for lang in langs]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    for a, b in pairs:
        if language_parts(a) == language_parts(b):
            raise SettingError(
                f"--langs {a} {b}: expected two different languages, source and target"
            )
    return pairs


def pairs_of(files: Sequence[str], langs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the language pairs of parallel texts from the flat list of `--langs`.

    If there are fewer pairs than files, the names of files such as `train.en-de.tsv` give the
    missing pairs. A pair of `--langs` then belongs to the file that has the same languages in its
    name, or to the next file without languages in its name.

    Raises:
        SettingError: see `language_pairs`.
    """
    given = language_pairs(langs)
    if len(given) >= len(files):
        return given
    found = [pair_in_name(file) for file in files]
    left = list(given)
    for k, named in enumerate(found):
        same = next(
            (pair for pair in left if named is not None and _same_languages(pair, named)), None
        )
        if same is not None:
            left.remove(same)
            found[k] = same
    if len(left) != found.count(None):
        return given  # `check_pairs` and the commands report that pairs are missing
    rest = iter(left)
    return [pair or next(rest) for pair in found]


def _same_languages(pair: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two pairs have the same languages, in any order."""
    return any(
        best_match(pair[0], [a]) is not None and best_match(pair[1], [b]) is not None
        for a, b in (other, other[::-1])
    )


def named_pairs(
    files: Sequence[str], langs: Sequence[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return files and their language pairs, which are given as `en-de=FILE`, in the flat list of
    `--langs` or in the names of the files (see `pairs_of`).

    Raises:
        SettingError: the languages of a file are missing or are given in both ways.
    """
    named = [pair_and_path(file) for file in files]
    pairs = [pair for pair, _ in named if pair is not None]
    if not pairs:
        return list(files), pairs_of(files, langs)
    every = [pair or pair_in_name(path) for pair, path in named]
    if langs or None in every:
        raise SettingError(
            "give the languages of all files, either as en-de=FILE or with --langs, but not both"
        )
    return [path for _, path in named], language_pairs(
        [lang for pair in every if pair for lang in pair]
    )


def numbers(text: str | None, option: str = "--layers") -> list[int] | None:
    """Parse a list of whole numbers separated by commas, or a range such as 0-12."""
    if text is None:
        return None
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal():
        return list(range(int(first), int(last) + 1))
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise SettingError(
            f"{option} {text}: expected whole numbers separated by commas, e.g. -4,-3,-2,-1"
        ) from None


Several = list[str] | None
PairLangs = Annotated[
    Several,
    typer.Option(
        "--langs",
        metavar="SOURCE TARGET",
        help="Languages of the text, e.g. en de; default: from its name.",
    ),
]
ManyLangs = Annotated[
    Several,
    typer.Option(
        "--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary; repeatable."
    ),
]
EncoderArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENCODER",
        help="Encoder: Hugging Face name, folder, mini (bundled) or word vectors.",
    ),
]
OwnOption = Annotated[
    Several,
    typer.Option("--option", metavar="NAME=VALUE", help="Set any other option; repeatable."),
]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        min=0,
        help="Save checkpoints every N updates and also once a minute; 0 disables checkpoints.",
    ),
]
KeepLayers = Annotated[
    bool, typer.Option("--keep-layers", help="Also save the unused layers above the output layer.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing result in --out.")
]
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Text is already tokenised; split only at spaces.")
]
Model = Annotated[
    str,
    typer.Option("--model", help="Word aligner: auto, fast-align, hmm or gibbs (most accurate)."),
]
# The seed is limited to 32 bits, because PyTorch multiplies it and the product must fit into 64
# bits.
Seed = Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Use only N evenly spaced sentences or pairs of each text."),
]
Layer = Annotated[
    int | None,
    typer.Option(
        help="Hidden layer (-1: last); default: as saved, else last (for decoders, at 2/3 depth)."
    ),
]
Pooling = Annotated[
    str | None, typer.Option(help="Pooling of a word's subwords: last (default), first or mean.")
]
MaxLength = Annotated[
    int | None, typer.Option(min=3, help="Maximum number of subwords per sentence.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and messages.")]
#: default alignment method for each kind of data
DEFAULT_METHOD = {
    "parallel": "contrastive",
    "dictionary": "rotation",
    "unsupervised": "rotation",
    "released": "",
}


def _methods(kind: str) -> str:
    """Return the names of the methods for a kind of data, formatted for the help."""
    usual = DEFAULT_METHOD[kind]
    return ", ".join(f"{name} (default)" if name == usual else name for name in methods_for(kind))


@dataclass(frozen=True, kw_only=True)
class AlignSettings:
    """Settings of `calque align`."""

    encoder: str = opt(
        ...,
        "Encoder: Hugging Face name, folder, word vectors or mini; or one per language, as "
        "en=NAME,de=NAME.",
    )
    towards: str = opt(
        ..., "Language that all other languages are aligned with.", callback=language
    )
    out: Path = opt(..., "Folder for the aligned encoder.")
    train: Several = arg(None, "Parallel texts, given as FILE or en-de=FILE.", metavar="[TRAIN...]")
    langs: ManyLangs = None
    method: str | None = opt(
        None,
        f"Alignment method. With parallel text: {_methods('parallel')}, or package.module:Class. "
        "With dictionaries: "
        f"{_methods('dictionary')}. With only --text: {', '.join(methods_for('text'))}.",
    )
    dictionary: Several = files(
        "Dictionaries (FILE or en-de=FILE), or identical, which pairs words spelt the same."
    )
    text: Several = files(
        "Plain texts, each in one language (FILE or de=FILE), over which word vectors are averaged."
    )
    anchors: Several = files("Folders written by calque anchors, used instead of --text.", "DIR...")
    unsupervised: bool = opt(
        False,
        "Align without parallel text or a dictionary. If the alignment fails, the encoder is saved "
        "with a note in its model "
        "card, and the exit code is 1.",
        "--unsupervised",
    )
    released: Several = files(
        "Folders of published maps (XX_best_mapping.pth, Schuster 2019), one per mapped layer.",
        "DIR...",
    )
    links: Several = opt(
        None,
        "Word alignments of TRAIN (Pharaoh format); default: computed by a statistical aligner.",
    )
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

    teacher: str = opt(..., "Sentence encoder to learn from: Hugging Face name or folder.")
    student: str = opt(
        ..., "Multilingual encoder to train: Hugging Face name, folder or mini (bundled)."
    )
    out: Path = opt(..., "Folder for the trained student.", "--out", "-o")
    train: Several = arg(None, "Parallel texts, given as FILE or en-de=FILE.", metavar="[TRAIN...]")
    langs: ManyLangs = None
    towards: str | None = opt(
        None, "Teacher's language; default: the first language of --langs.", callback=language
    )
    text: Several = files("Further plain text in the teacher's language.")
    static: bool = opt(
        False,
        "Train only one static vector per subword of --student, without a network; the defaults "
        "are then --batch 256, "
        "--learning-rate 0.01 and --ranking 0.3.",
        "--static",
    )
    sentence_pooling: str | None = opt(
        None,
        "Student's sentence pooling: own (saved), subwords (mean) or cls; default: own if saved, "
        "else subwords.",
    )
    teacher_pooling: str | None = opt(
        None,
        "Teacher's sentence pooling: own (saved with the teacher; default), subwords (mean), "
        "words (mean) or cls.",
    )
    teacher_prompt: str | None = opt(
        None,
        "Prompt to put before each text of the teacher, e.g. 'query: ' for e5, or the name of a "
        "prompt saved with it, "
        "e.g. query; default: the teacher's default prompt, if it has one.",
    )
    vectors: Path | None = opt(
        None, "Folder of teacher vectors for reuse in other runs.", metavar="FOLDER"
    )
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

    text: list[str] = arg(..., "Plain text with one sentence per line.", metavar="TEXT...")
    out: Path = opt(
        ...,
        "Folder for the anchors, and for the sums from which a stopped run resumes.",
        metavar="PATH",
    )
    lang: str = opt(..., "Language of the text.", callback=language)
    encoder: str = opt(..., "Encoder: Hugging Face name, folder, mini (bundled) or word vectors.")
    layers: str | None = opt(
        None, "Layers whose vectors are averaged, e.g. 0,1,2; default: the output layer."
    )
    vocabulary: str | None = opt(
        None, "File listing the words that get anchors, one per line; default: all words."
    )
    at_least: int = opt(1, "Skip words with fewer than N occurrences.", min=1)
    most: int | None = opt(None, "Compute anchors only for the N most frequent words.", min=1)
    most_occurrences: int | None = opt(
        None, "Use only the first N occurrences of each word.", "--occurrences", min=1
    )
    format: str = opt(
        "safetensors", "File format: safetensors, or avg_embeds (the format of the published code)."
    )
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Use only N evenly spaced lines of each text.", min=1)
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of `calque words`."""

    train: str = arg(
        ..., "Parallel text in a format such as TSV, a ||| b, Moses or TMX.", metavar="TRAIN"
    )
    langs: list[str] | None = opt(
        None,
        "Languages of the text, e.g. en de; default: the languages in its name, e.g. "
        "train.en-de.tsv.",
        "--langs",
        metavar="SOURCE TARGET",
    )
    out: Path = out_file(
        ..., "Pharaoh file to write, with one line of word links (i-j) per sentence pair."
    )
    encoder: str | None = opt(
        None, "Encoder whose vector similarities are used to link words.", metavar="ENCODER"
    )
    extract: str | None = opt(
        None, "With --encoder: rule for selecting links, mutual (default) or softmax."
    )
    prior: bool = opt(
        False,
        "Use similarities from --encoder as a prior for the aligner (hmm or gibbs).",
        "--prior",
    )
    prior_weight: float | None = opt(
        None, "With --prior: weight of the similarities; default: 2.", min=0
    )
    cross_fit: int | None = opt(
        None,
        "With --prior: split the text into N parts, and compute the similarities of each part with "
        "a copy of the encoder that "
        "was aligned on the other parts.",
        min=2,
        metavar="N",
    )
    also: Several = files(
        "With --cross-fit: further parallel texts to align the encoder on.", "en-nl=FILE..."
    )
    pretokenized: Pretokenized = False
    extra: Several = opt(
        None,
        "More text to train the aligner on, in the same languages; no links are written for it.",
    )
    posteriors: bool = opt(
        False, "Write the probability or score of each link, as i-j:p.", "--posteriors", "--scores"
    )
    tables: Path | None = out_file(
        None, "File for saving the trained aligner, which --use can load to link other text."
    )
    use: Path | None = opt(
        None, "Aligner saved by --tables, used to link the text without training.", metavar="PATH"
    )
    sample: int | None = opt(
        None, "Train on only N random sentence pairs, but link the full text.", min=1
    )
    limit: Limit = None
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Settings of `calque analyze`."""

    encoders: Several = arg(
        None,
        "Encoders, starting with the encoder before alignment: Hugging Face names, folders, mini, "
        "word vectors or NAME=PATH.",
        metavar="ENCODER...",
    )
    test: str | None = opt(None, "Parallel text on which the encoders are tested.", metavar="FILE")
    langs: PairLangs = None
    only: str | None = opt(
        None, f"Analyses to run, separated by commas: {', '.join(ANALYSES)}; default: all."
    )
    train: str | None = opt(
        None, "Text that the encoders were aligned on, used to identify unseen word pairs."
    )
    links: str | None = opt(None, "Word alignments of the --test text in Pharaoh format.")
    train_links: str | None = opt(None, "Word alignments of the --train text in Pharaoh format.")
    upos: Several = files(
        "Part-of-speech tags of the test sentences (CoNLL-U or columns), given as FILE or de=FILE."
    )
    pretokenized: Pretokenized = False
    limit: int | None = opt(
        None, "Use only N evenly spaced sentence pairs of --test; --train is read in full.", min=1
    )
    non_contextual: bool = opt(
        False, "Use only the first occurrence of each word type.", "--non-contextual"
    )
    forms: int = opt(8, "Number of word types to show in the examples analysis.", min=1)
    pairs: int = opt(100, "Number of word pairs to plot in the points analysis.", min=2)
    projection: str = opt(
        "auto", "Projection in the points analysis: pca, tsne, or auto (tsne if available)."
    )
    bootstrap: int = opt(1000, "Number of bootstrap samples for the confidence intervals.", min=0)
    out: Path | None = out_file(None, "JSON Lines file to which the results are appended.")
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """Settings of `calque neighbours`."""

    encoder: str = opt(..., "Encoder: Hugging Face name, folder, mini (bundled) or word vectors.")
    lang1: str = opt(..., "Language of the word.", callback=language)
    sentence1: str = opt(..., "Sentence that contains the word.")
    word1: str = opt(..., "Word as it is written in --sentence1.")
    lang2: str = opt(..., "Language of the neighbours.", callback=language)
    sentence2: Several = opt(
        None, "Sentence in the language --lang2 whose words can be neighbours; repeatable."
    )
    text2: str | None = opt(
        None, "Plain text in the language --lang2 whose words can be neighbours."
    )
    aligned: str | None = opt(
        None, "Aligned encoder to compare with --encoder, the encoder before alignment."
    )
    k: int = opt(5, "Number of nearest words to show.", "-k", min=1)
    pretokenized: Pretokenized = False
    limit: int | None = opt(None, "Use only N evenly spaced lines of --text2.", min=1)
