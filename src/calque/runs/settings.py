"""Dataclasses with the settings of the commands, and checks of languages.

Each field declares a setting, see `calque.spec`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Literal

from calque.alignment import methods_for
from calque.analyses.table import ANALYSES
from calque.corpora.languages import best_match, doubt_about, pair_and_path, pair_in_name
from calque.corpora.readers import AUTO, PARALLEL, PLAIN
from calque.errors import CalqueWarning, SettingError
from calque.segment import language_parts
from calque.spec import Count, Option, Range, SeedNumber, argument, files, option

Say = Callable[[str], None]


def file_name(flag: str, name: str | PathLike[str]) -> Path:
    """Check the name of an output file (a `check` of `Option`).

    Raises:
        SettingError: the name ends with a slash, and so names a folder.
    """
    name = fspath(name)
    if name.endswith((os.sep, f"{os.sep}.", f"{os.sep}..")):
        example = Path(name) / "results"
        raise SettingError(
            f"the output must be a file, but {name} names a folder; add a file name, e.g. {example}"
        )
    return Path(name)


def language(flag: str, name: str) -> str:
    """Check the name of a language (a `check` of `Option`)."""
    warn_of_languages([_language(flag, name)], flag)
    return name


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


Several = list[str] | None
#: flat list of language pairs
PairLangs = Annotated[
    Several,
    Option("Languages of the text, e.g. en de; default: from its name.", metavar="SOURCE TARGET"),
]
ManyLangs = Annotated[
    Several,
    Option("Languages of a text or dictionary; repeatable.", metavar="SOURCE TARGET"),
]
OwnOption = Annotated[
    Several, Option("Set any other option; repeatable.", flags=("--option",), metavar="NAME=VALUE")
]
CheckpointEvery = Annotated[
    int,
    Option(
        "Save checkpoints every N updates and also once a minute; 0 disables checkpoints.", "run"
    ),
]
KeepLayers = Annotated[bool, Option("Also save the unused layers above the output layer.")]
Overwrite = Annotated[bool, Option("Replace an existing result in --out.", "run")]
Pretokenized = Annotated[bool, Option("Text is already tokenised; split only at spaces.")]
Seed = Annotated[SeedNumber, Option("Random seed.")]
Limit = Annotated[Count | None, Option("Use only N evenly spaced sentences or pairs of each text.")]
Layer = Annotated[
    Annotated[int, Range(-(2**31), 2**31)] | None,
    Option("Hidden layer (-1: last); default: as saved, else last (for decoders, at 2/3 depth)."),
]
LayerOrAuto = Annotated[
    Annotated[int, Range(-(2**31), 2**31)] | Literal["auto"] | None,
    Option(
        "Hidden layer (-1: last), or auto: the best one on a sample of the parallel training text. "
        "Default: as saved; else auto if there is such text, else last (for decoders, at 2/3 "
        "depth)."
    ),
]
Pooling = Annotated[
    str | None,
    Option(
        "Pooling of a word's subwords: last, first or mean; default: as saved, else mean (for "
        "decoders, last)."
    ),
]
PoolingOrAuto = Annotated[
    str | None,
    Option(
        "Pooling of a word's subwords: last, first, mean, or auto as for --layer. Default: as "
        "saved; else auto if there is parallel training text, else mean (for decoders, last)."
    ),
]
MaxLength = Annotated[
    Annotated[int, Range(3)] | None, Option("Maximum number of subwords per sentence.")
]
ParallelFormat = Annotated[
    str,
    Option(
        "Format of the parallel texts, if it cannot be detected: "
        f"{', '.join(PARALLEL)}, or package.module:function.",
        metavar="FORMAT",
    ),
]
PlainFormat = Annotated[
    str,
    Option(
        f"Format of the text, if it cannot be detected: {', '.join(PLAIN)}, or "
        "package.module:function.",
        metavar="FORMAT",
    ),
]
Quiet = Annotated[bool, Option("Hide progress and messages.", "run", ("--quiet", "-q"))]
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

    encoder: str = option(
        ...,
        "Encoder: Hugging Face name, folder, word vectors or mini; or one per language, as "
        "en=NAME,de=NAME.",
    )
    towards: str = option(
        ..., "Language that all other languages are aligned with.", check=language
    )
    out: Path = option(..., "Folder for the aligned encoder.")
    train: Several = argument(
        None, "Parallel texts, given as FILE or en-de=FILE.", metavar="[TRAIN...]"
    )
    langs: ManyLangs = None
    method: str | None = option(
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
    unsupervised: bool = option(
        False,
        "Align without parallel text or a dictionary. If the alignment fails, the encoder is "
        "saved with a note in its model card, and the exit code is 1.",
    )
    released: Several = files(
        "Folders of published maps (XX_best_mapping.pth, Schuster 2019), one per mapped layer.",
        "DIR...",
    )
    links: Several = option(
        None,
        "Word alignments of TRAIN (Pharaoh format); default: computed by a statistical aligner.",
    )
    format: ParallelFormat = AUTO
    pretokenized: Pretokenized = False
    limit: Limit = None
    options: OwnOption = None
    keep_layers: KeepLayers = False
    checkpoint_every: CheckpointEvery = 200
    overwrite: Overwrite = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class DistilSettings:
    """Settings of `calque distil`."""

    teacher: str = option(..., "Sentence encoder to learn from: Hugging Face name or folder.")
    student: str = option(
        ..., "Multilingual encoder to train: Hugging Face name, folder or mini (bundled)."
    )
    out: Path = option(..., "Folder for the trained student.", "--out", "-o")
    train: Several = argument(
        None, "Parallel texts, given as FILE or en-de=FILE.", metavar="[TRAIN...]"
    )
    langs: ManyLangs = None
    towards: str | None = option(
        None, "Teacher's language; default: the first language of --langs.", check=language
    )
    text: Several = files("Further plain text in the teacher's language.")
    format: ParallelFormat = AUTO
    text_format: PlainFormat = AUTO
    static: bool = option(
        False,
        "Train only one static vector per subword of --student, without a network; the defaults "
        "are then --batch 256, --learning-rate 0.01 and --ranking 0.3.",
    )
    sentence_pooling: str | None = option(
        None,
        "Student's sentence pooling: own (saved), subwords (mean) or cls; default: own if saved, "
        "else subwords.",
    )
    teacher_pooling: str | None = option(
        None,
        "Teacher's sentence pooling: own (saved with the teacher; default), subwords (mean), "
        "words (mean) or cls.",
    )
    teacher_prompt: str | None = option(
        None,
        "Prompt to put before each text of the teacher, e.g. 'query: ' for e5, or the name of a "
        "prompt saved with it, e.g. query; default: the teacher's default prompt, if it has one.",
    )
    vectors: Path | None = option(
        None, "Folder of teacher vectors for reuse in other runs.", metavar="FOLDER"
    )
    options: OwnOption = None
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

    text: list[str] = argument(..., "Plain text with one sentence per line.", metavar="TEXT...")
    out: Path = option(
        ...,
        "Folder for the anchors, and for the sums from which a stopped run resumes.",
        metavar="PATH",
    )
    lang: str = option(..., "Language of the text.", check=language)
    encoder: str = option(
        ..., "Encoder: Hugging Face name, folder, mini (bundled) or word vectors."
    )
    layers: str | None = option(
        None, "Layers whose vectors are averaged, e.g. 0,1,2; default: the output layer."
    )
    vocabulary: str | None = option(
        None, "File listing the words that get anchors, one per line; default: all words."
    )
    at_least: Count = option(1, "Skip words with fewer than N occurrences.")
    most: Count | None = option(None, "Compute anchors only for the N most frequent words.")
    most_occurrences: Count | None = option(
        None, "Use only the first N occurrences of each word.", "--occurrences"
    )
    format: str = option(
        "safetensors", "File format: safetensors, or avg_embeds (the format of the published code)."
    )
    text_format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    limit: Count | None = option(None, "Use only N evenly spaced lines of each text.")
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of `calque words`."""

    train: str = argument(
        ..., "Parallel text in a format such as TSV, a ||| b, Moses or TMX.", metavar="TRAIN"
    )
    langs: list[str] | None = option(
        None,
        "Languages of the text, e.g. en de; default: the languages in its name, e.g. "
        "train.en-de.tsv.",
        metavar="SOURCE TARGET",
    )
    out: Path = option(
        ...,
        "Pharaoh file to write, with one line of word links (i-j) per sentence pair.",
        check=file_name,
        metavar="PATH",
    )
    encoder: str | None = option(
        None, "Encoder whose vector similarities are used to link words.", metavar="ENCODER"
    )
    extract: str | None = option(
        None, "With --encoder: rule for selecting links, mutual (default) or softmax."
    )
    prior: bool = option(
        False, "Use similarities from --encoder as a prior for the aligner (hmm or gibbs)."
    )
    prior_weight: float | None = option(
        None, "With --prior: weight of the similarities; default: 2."
    )
    cross_fit: Annotated[int, Range(2)] | None = option(
        None,
        "With --prior: split the text into N parts, and compute the similarities of each part "
        "with a copy of the encoder that was aligned on the other parts.",
        metavar="N",
    )
    also: Several = files(
        "With --cross-fit: further parallel texts to align the encoder on.", "en-nl=FILE..."
    )
    format: ParallelFormat = AUTO
    pretokenized: Pretokenized = False
    extra: Several = option(
        None,
        "More text to train the aligner on, in the same languages; no links are written for it.",
    )
    posteriors: bool = option(
        False, "Write the probability or score of each link, as i-j:p.", "--posteriors", "--scores"
    )
    tables: Path | None = option(
        None,
        "File for saving the trained aligner, which --use can load to link other text.",
        check=file_name,
        metavar="PATH",
    )
    use: Path | None = option(
        None, "Aligner saved by --tables, used to link the text without training.", metavar="PATH"
    )
    sample: Count | None = option(
        None, "Train on only N random sentence pairs, but link the full text."
    )
    limit: Limit = None
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Settings of `calque analyze`."""

    encoders: Several = argument(
        None,
        "Encoders, starting with the encoder before alignment: Hugging Face names, folders, mini, "
        "word vectors or NAME=PATH.",
        metavar="ENCODER...",
    )
    test: str | None = option(
        None, "Parallel text on which the encoders are tested.", metavar="FILE"
    )
    langs: PairLangs = None
    only: str | None = option(
        None, f"Analyses to run, separated by commas: {', '.join(ANALYSES)}; default: all."
    )
    train: str | None = option(
        None, "Text that the encoders were aligned on, used to identify unseen word pairs."
    )
    links: str | None = option(None, "Word alignments of the --test text in Pharaoh format.")
    train_links: str | None = option(None, "Word alignments of the --train text in Pharaoh format.")
    upos: Several = files(
        "Part-of-speech tags of the test sentences (CoNLL-U or columns), given as FILE or de=FILE."
    )
    format: ParallelFormat = AUTO
    pretokenized: Pretokenized = False
    limit: Count | None = option(
        None, "Use only N evenly spaced sentence pairs of --test; --train is read in full."
    )
    non_contextual: bool = option(False, "Use only the first occurrence of each word type.")
    forms: Count = option(8, "Number of word types to show in the examples analysis.")
    pairs: Annotated[int, Range(2)] = option(
        100, "Number of word pairs to plot in the points analysis."
    )
    projection: str = option(
        "auto", "Projection in the points analysis: pca, tsne, or auto (tsne if available)."
    )
    bootstrap: int = option(1000, "Number of bootstrap samples for the confidence intervals.")
    out: Path | None = option(
        None, "JSON Lines file to which the results are appended.", check=file_name, metavar="PATH"
    )
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """Settings of `calque neighbours`."""

    encoder: str = option(
        ..., "Encoder: Hugging Face name, folder, mini (bundled) or word vectors."
    )
    lang1: str = option(..., "Language of the word.", check=language)
    sentence1: str = option(..., "Sentence that contains the word.")
    word1: str = option(..., "Word as it is written in --sentence1.")
    lang2: str = option(..., "Language of the neighbours.", check=language)
    sentence2: Several = option(
        None, "Sentence in the language --lang2 whose words can be neighbours; repeatable."
    )
    text2: str | None = option(
        None, "Plain text in the language --lang2 whose words can be neighbours."
    )
    aligned: str | None = option(
        None, "Aligned encoder to compare with --encoder, the encoder before alignment."
    )
    k: Count = option(5, "Number of nearest words to show.", "-k")
    text_format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    limit: Count | None = option(None, "Use only N evenly spaced lines of --text2.")
