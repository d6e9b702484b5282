"""Identify the language of a text by its script and its character n-grams.

The model is naive Bayes over the letters of a text and their n-grams, as in Lui & Baldwin (2012,
"langid.py: An off-the-shelf language identification tool", §2), with n-grams of 1 to 3 letters and
only the languages of the training text. It is small, because it chooses between few languages.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from calque.errors import InputError
from calque.storage import JsonObject
from calque.text import Sentences

_ORDERS = (1, 2, 3)
_MOST_COMMON = 3_000  # number of n-grams that are kept in each language
_SENTENCES = 1_000  # number of sentences in each language that are counted
_SMOOTHING = 0.1  # added to every count
# A language uses a script if at least this fraction of its letters belongs to it.
_SCRIPT_SHARE = 0.02
#: log odds of the best against the second language below which the choice is uncertain (20 to 1)
MIN_MARGIN = 3.0


class Identified(NamedTuple):
    """Language of a text.

    Attributes:
        lang: the most likely language; empty if the text has no letters, or only letters of scripts
            that no language uses.
        margin: natural logarithm of its probability over that of the second language; infinite if
            only one language uses the script of the text, 0 without a language.
    """

    lang: str
    margin: float

    @property
    def is_certain(self) -> bool:
        """True if the probability of the language is at least 20 times that of the second."""
        return self.margin >= MIN_MARGIN


class LanguageIdentifier:
    """Character n-gram model that chooses between the languages of a text.

    A text in another language is assigned to one of them, too.

    Args:
        counts: number of occurrences of the most frequent n-grams, by language.
        scripts: fraction of letters in each script, by language.
    """

    def __init__(
        self, counts: Mapping[str, Mapping[str, int]], scripts: Mapping[str, Mapping[str, float]]
    ):
        self.counts = {lang: dict(of_lang) for lang, of_lang in counts.items()}
        self.scripts = {lang: dict(of_lang) for lang, of_lang in scripts.items()}
        self.languages = tuple(self.counts)
        self._vocabulary = set().union(*self.counts.values())
        # logarithms of smoothed probabilities, and of that of an n-gram without a count
        self._logs: dict[str, dict[str, float]] = {}
        self._unseen: dict[str, float] = {}
        for lang, of_lang in self.counts.items():
            total = sum(of_lang.values()) + _SMOOTHING * max(1, len(self._vocabulary))
            self._logs[lang] = {
                gram: math.log((n + _SMOOTHING) / total) for gram, n in of_lang.items()
            }
            self._unseen[lang] = math.log(_SMOOTHING / total)

    @classmethod
    def fit(cls, texts: Mapping[str, Iterable[Sentences]]) -> Self:
        """Count the n-grams of texts in each language, of up to 1,000 evenly spaced sentences a
        text.
        """
        counts, scripts = {}, {}
        for lang, of_lang in texts.items():
            grams: Counter[str] = Counter()
            letters: Counter[str] = Counter()
            for text in of_lang:
                places = np.linspace(0, len(text) - 1, min(len(text), _SENTENCES)).astype(int)
                for sentence in text.take(np.unique(places)):
                    line = " ".join(sentence.words)
                    grams.update(ngrams(line))
                    letters.update(scripts_in(line))
            counts[lang] = dict(grams.most_common(_MOST_COMMON))
            total = max(1, letters.total())
            scripts[lang] = {
                script: n / total for script, n in letters.items() if n / total >= _SCRIPT_SHARE
            }
        return cls(counts, scripts)

    def identify(self, text: str) -> Identified:
        """Return the language of a text.

        Only languages that use the most frequent script of the text are compared. An n-gram that
        none of them has is skipped.
        """
        letters = scripts_in(text)
        if not letters:
            return Identified("", 0.0)
        script, _ = letters.most_common(1)[0]
        langs = [lang for lang in self.languages if script in self.scripts[lang]]
        if not langs:
            return Identified("", 0.0)
        if len(langs) == 1:
            return Identified(langs[0], math.inf)
        scores = dict.fromkeys(langs, 0.0)
        for gram, n in Counter(ngrams(text)).items():
            if not any(gram in self._logs[lang] for lang in langs):
                continue
            for lang in langs:
                scores[lang] += n * self._logs[lang].get(gram, self._unseen[lang])
        best, second = sorted(langs, key=lambda lang: -scores[lang])[:2]
        return Identified(best, scores[best] - scores[second])

    def record(self) -> JsonObject:
        """Return the model as a JSON object."""
        return {"counts": self.counts, "scripts": self.scripts}

    @classmethod
    def from_record(cls, record: JsonObject, path: object = "") -> Self:
        """Rebuild a model from the result of `record`; raise InputError with the path if it is
        invalid.
        """
        try:
            found = cls(record["counts"], record["scripts"])
            if found.counts.keys() != found.scripts.keys():
                raise ValueError("languages differ")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            fact = f"not a language identifier ({type(error).__name__}: {error})"
            raise InputError(f"{fact}; save the encoder again", path=str(path)) from error
        return found


def ngrams(text: str) -> list[str]:
    """Return the n-grams of 1 to 3 characters of a lower-cased text, without digits and
    punctuation; a space marks the ends of words.
    """
    line = _letters(text)
    grams = []
    for order in _ORDERS:
        for start in range(len(line) - order + 1):
            gram = line[start : start + order]
            # An n-gram contains letters, and does not cross from one word to the next.
            if gram != " " and " " not in gram[1:-1]:
                grams.append(gram)
    return grams


def _letters(text: str) -> str:
    """Return a text in lower case with a single space before and after each group of letters."""
    kept = []
    for character in unicodedata.normalize("NFC", text.lower()):
        is_letter = character.isalpha() or unicodedata.category(character).startswith("M")
        kept.append(character if is_letter else " ")
    words = "".join(kept).split()
    return f" {' '.join(words)} " if words else ""


def scripts_in(text: str) -> Counter[str]:
    """Return the number of letters of a text in each script; combining marks do not count."""
    return Counter(script_of(letter) for letter in text if letter.isalpha())


@lru_cache(1 << 16)
def script_of(letter: str) -> str:
    """Return the first word of a letter's Unicode name, such as LATIN, CYRILLIC or CJK."""
    return unicodedata.name(letter, "OTHER").split(" ")[0].split("-")[0]
