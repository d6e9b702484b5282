"""Links that are left out before anything is learnt from them: improbable ones, and those that a dictionary does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from calque.annotated import Dictionary
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.storage import from_numpy, to_numpy
from calque.text import ParallelCorpus, Sentences


@dataclass(frozen=True)
class LinkFilter:
    """Which links are learnt from.

    Args:
        min_posterior: leave out links whose posterior is below this; None leaves none out. For the statistical aligners it
            is the mean of both directions' posteriors.
        dictionaries: keep only links whose two words, in lower case, are an entry of a dictionary of these languages, in
            either direction (as Gaschi et al. 2023, "Exploring the relationship between alignment and cross-lingual
            transfer in multilingual transformers", take pairs to realign from dictionaries); none keep all.
        keep_unlisted: keep links of two words neither of which is in the dictionary, too: it says nothing of them. That
            keeps numbers, names and punctuation, and whatever else a small dictionary has not.
    """

    min_posterior: float | None = None
    dictionaries: Sequence[Dictionary] = ()
    keep_unlisted: bool = False

    def __post_init__(self):
        if self.min_posterior is not None:
            check_number("min_posterior", self.min_posterior, least=0, most=1)
        if self.keep_unlisted and not self.dictionaries:
            raise SettingError("keep_unlisted (--keep-unlisted) is about words missing from a dictionary: name one")

    def apply(self, corpus: ParallelCorpus, pairs: WordPairs) -> tuple[WordPairs, dict[str, int]]:
        """The links that are kept, and how many were not, for the record: `links_below_posterior`,
        `links_not_in_dictionary`; and `links_of_unlisted_words`, those that `keep_unlisted` kept.

        Raises:
            SettingError: links without posteriors, a text for whose languages there is no dictionary, or no link is left.
        """
        langs, before, counts = "-".join(corpus.langs), len(pairs), {}
        if self.min_posterior is not None:
            if pairs.posterior is None:
                raise SettingError(
                    f"min_posterior={self.min_posterior:g} (--min-posterior): the links of {langs} have no posteriors; write "
                    "them with calque words --posteriors, or leave out --links"
                )
            probable = pairs.posterior >= np.float32(self.min_posterior)
            counts["links_below_posterior"] = int((~probable).sum())
            pairs = pairs.select(probable)
        if self.dictionaries:
            listed, unlisted = in_dictionary(corpus, pairs, self._dictionary(corpus.langs))
            kept = listed | unlisted if self.keep_unlisted else listed
            counts["links_not_in_dictionary"] = int((~kept).sum())
            if self.keep_unlisted:
                counts["links_of_unlisted_words"] = int(unlisted.sum())
            pairs = pairs.select(kept)
        if before and not len(pairs):
            told = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
            raise SettingError(f"no link of {langs} is left ({told}): lower min_posterior, or give a larger dictionary")
        return pairs, counts

    def check(self, langs: Iterable[tuple[str, str]]) -> None:
        """That there is a dictionary for the languages of every text, if there is one at all.

        Raises:
            SettingError: there is none.
        """
        for pair in langs if self.dictionaries else ():
            self._dictionary(pair)

    def record(self) -> dict[str, object]:
        """What was asked for, for the record."""
        about: dict[str, object] = {}
        if self.min_posterior is not None:
            about["min_posterior"] = self.min_posterior
        if self.dictionaries:
            entries: dict[str, int] = {}
            for each in self.dictionaries:
                name = "-".join(each.langs)
                entries[name] = entries.get(name, 0) + len(each)
            about |= {"dictionary_entries": entries, "keep_unlisted": self.keep_unlisted}
        return about

    def _dictionary(self, langs: tuple[str, str]) -> Dictionary:
        """All entries between two languages, turned to their order."""
        source: list[str] = []
        target: list[str] = []
        for each in self.dictionaries:
            if each.langs in (langs, langs[::-1]):
                turned = each.langs != langs
                source += each.target if turned else each.source
                target += each.source if turned else each.target
        if not source:
            known = ", ".join("-".join(each.langs) for each in self.dictionaries)
            a, b = langs
            raise SettingError(
                f"links of {a}-{b}, but dictionaries of {known} only: add --link-dictionary {a}-{b}=FILE"
            )
        return Dictionary(tuple(source), tuple(target), langs)


def in_dictionary(corpus: ParallelCorpus, pairs: WordPairs, dictionary: Dictionary) -> tuple[np.ndarray, np.ndarray]:
    """Which links a dictionary has, in lower case.

    Args:
        corpus, pairs: parallel text and its links.
        dictionary: in the order of the corpus's languages.

    Returns:
        listed: bool `[n_pairs]`, the two words are an entry.
        unlisted: bool `[n_pairs]`, neither word is in any entry.
    """
    source, target = (_numbers(words) for words in (dictionary.source, dictionary.target))
    width = len(target) + 1
    lowered = zip(dictionary.source, dictionary.target, strict=True)
    entries = np.array([source[a.lower()] * width + target[b.lower()] for a, b in lowered], dtype=np.int64)
    left = _known(corpus.source, pairs.sentence, pairs.source, source)
    right = _known(corpus.target, pairs.sentence, pairs.target, target)
    listed = (left >= 0) & (right >= 0) & np.isin(left * width + right, entries)
    return listed, (left < 0) & (right < 0)


def _numbers(words: Sequence[str]) -> dict[str, int]:
    """A number for each form."""
    return {form: number for number, form in enumerate(dict.fromkeys(word.lower() for word in words))}


def _known(sentences: Sentences, sentence: np.ndarray, word: np.ndarray, numbers: dict[str, int]) -> np.ndarray:
    """The number of each linked word's form, −1 where it has none, int64 `[n_pairs]`."""
    words, offsets = sentences.flat()
    if not len(sentence):
        return np.zeros(0, dtype=np.int64)
    types = words.take(from_numpy(offsets[sentence] + word)).combine_chunks().dictionary_encode()
    of_type = np.array([numbers.get(form.lower(), -1) for form in types.dictionary.to_pylist()], dtype=np.int64)
    return of_type[to_numpy(types.indices)]
