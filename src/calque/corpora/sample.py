"""Sample text that is bundled with calque; see `data/sample/README.md`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.segment import split_words
from calque.text import ParallelCorpus

LANGUAGES = ("de", "es", "fr", "zh", "bg", "tr", "ru")
_FOLDER = files("calque") / "data" / "sample"
# (step, first): every third sentence is for testing, and every ninth has gold links
_TESTED = (3, 1)
_GOLD = (9, 4)


def sample_text(lang: str, part: Literal["all", "train", "test"] = "all") -> ParallelCorpus:
    """Return English sentences and their translations into `lang`.

    Args:
        lang: one of `LANGUAGES`.
        part: "train", "test" or "all" (536 sentence pairs).
    """
    corpus = _whole(lang)
    if part not in ("all", "train", "test"):
        raise SettingError(f"part must be all, train or test, got {part!r}")
    if part == "all":
        return corpus
    step, first = _TESTED
    is_tested = np.arange(len(corpus)) % step == first
    return corpus.take(np.flatnonzero(is_tested if part == "test" else ~is_tested))


def sample_links(lang: str) -> tuple[ParallelCorpus, WordPairs]:
    """Return the 60 sentence pairs in the test part that have gold word links, and these links."""
    corpus = _whole(lang)
    text = (_FOLDER / f"gold.en-{lang}.tsv").read_text(encoding="utf-8")
    gold = WordPairs.parse([line.split("\t")[2] for line in text.splitlines()])
    step, first = _GOLD
    return corpus.take(np.arange(first, len(corpus), step)), gold


@cache
def _whole(lang: str) -> ParallelCorpus:
    if lang not in LANGUAGES:
        raise SettingError(f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    sides = []
    for name in ("en", lang):
        lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        sides.append([split_words(line, name) for line in lines])
    return ParallelCorpus.of(sides[0], sides[1], ("en", lang))
