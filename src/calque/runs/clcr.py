"""What `calque clcr` does with an encoder of key points: pivots of parallel text, and key points of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora.languages import name_and_path
from calque.errors import SettingError
from calque.storage import write_lines

if TYPE_CHECKING:
    from calque.encoders.key_points import KeyPointEncoder, PivotedEncoder
    from calque.linking import Words
    from calque.text import ParallelCorpus

_BLOCK = 16_384  # sentences whose vectors are held at a time


def write_pivots(
    folder: str, text: str, *, langs: tuple[str, str], out: str | Path, words: Words, progress: bool = False
) -> dict[str, int]:
    """Write the pivots of parallel text, as links in Pharaoh format: pairs of words that are nearest to each other in both
    directions, and near enough (CLCR, §3.2).

    Arguments not listed here are the options of `calque clcr pivots`.

    Args:
        langs: its languages; one of them is the pivot language.
        out: file for a line of links for each sentence pair.

    Returns:
        how many `sentence_pairs` and `pivots` there were.

    Raises:
        SettingError: another kind of encoder; languages that it was not made for.
    """
    encoder, corpus = open_key_points(folder), words.read(text, langs)
    done = {"sentence_pairs": len(corpus), "pivots": 0}

    def lines() -> Iterator[str]:
        for start in range(0, len(corpus), _BLOCK):
            pairs = encoder.pivots(corpus[start : start + _BLOCK], progress=progress)
            done["pivots"] += len(pairs)
            yield from (f"{line}\n" for line in pairs.pharaoh_lines())

    write_lines(out, lines())
    return done


def write_key_points(
    folder: str, text: str, *, lang: str, out: str | Path, steps: str | None = None, delta: float | None = None,
    pretokenized: bool = False, limit: int | None = None, progress: bool = False,
) -> dict[str, int]:  # fmt: skip
    """Write which words are key points: for each sentence their numbers, from 0, in the order of the pivot language.

    Arguments not listed here are the options of `calque clcr keypoints`.

    Args:
        out: file for a line of numbers for each line of text.

    Returns:
        how many `sentences`, `words` and `key_points` there were.

    Raises:
        SettingError: another kind of encoder, or a language that it was not made for.
    """
    from calque.corpora.plain import stream_sentences

    load = {name: value for name, value in (("steps", steps), ("delta", delta)) if value is not None}
    encoder = open_key_points(folder, **load)
    blocks = stream_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit, block=_BLOCK)
    done = {"sentences": 0, "words": 0, "key_points": 0}

    def lines() -> Iterator[str]:
        for block in blocks:
            points = encoder.key_points(block, progress=progress)
            done["sentences"] += len(points)
            done["words"] += int(block.lengths().sum())
            done["key_points"] += len(points.data)
            yield from (" ".join(map(str, points[k].tolist())) + "\n" for k in range(len(points)))

    write_lines(out, lines())
    return done


def open_pivoted(
    folder: str, translations: Sequence[str], *, pretokenized: bool = False, **load: Any
) -> PivotedEncoder:
    """An encoder of key points that takes these from pivots.

    Args:
        folder: of an encoder of key points.
        translations: `de=FILE,FILE`, the pivot language's file first, with the same texts line by line (labelled, as of
            inference); or `de=FILE`, parallel text.
        load: keyword arguments of `load_encoder`.

    Raises:
        SettingError: another kind of encoder, no translations, files of different lengths, or a `delta`.
    """
    from calque.encoders.key_points import PivotedEncoder

    if "delta" in load:
        raise SettingError("delta does not apply to pivots: these are key points without a classifier's probability")
    base = open_key_points(folder, **load)
    if not translations:
        raise SettingError("pivots need the translation of every test sentence: --translations de=FILE,FILE")
    return PivotedEncoder(base, [_translations(each, base.pivot, pretokenized) for each in translations])


def _translations(named: str, pivot: str, pretokenized: bool) -> ParallelCorpus:
    """Parallel text from one file, or from two that say the same line by line."""
    from calque.corpora import read_labelled, read_parallel
    from calque.text import ParallelCorpus

    lang, paths = name_and_path(named)
    if not lang:
        raise SettingError(f"--translations {named}: expected the language before it, as in de={named}")
    first, *second = paths.split(",")
    if not second:
        return read_parallel(first, langs=(pivot, lang), pretokenized=pretokenized)
    two = [read_labelled(path, lang=of, pretokenized=pretokenized) for path, of in ((first, pivot), (second[0], lang))]
    sides = [[sentence.words for column in each.texts for sentence in column] for each in two]
    if len(sides[0]) != len(sides[1]):
        raise SettingError(
            f"--translations {named}: {len(sides[0]):,} and {len(sides[1]):,} texts, expected the same texts in both"
        )
    return ParallelCorpus.of(sides[0], sides[1], (pivot, lang))


def open_key_points(folder: str, **load: Any) -> KeyPointEncoder:
    """An encoder of key points from its folder.

    Raises:
        SettingError: another kind of encoder.
    """
    from calque.encoders import load_encoder
    from calque.encoders.key_points import KeyPointEncoder

    encoder = load_encoder(folder, **load)
    if not isinstance(encoder, KeyPointEncoder):
        raise SettingError(f"{folder} has no key points: calque align --method clcr makes an encoder that has them")
    return encoder
