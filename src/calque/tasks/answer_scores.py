"""Exact match and F1 of answers, as the official scripts count them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from calque.errors import SettingError
from calque.segment import language_parts

Normalize = Callable[[str], str]
SCORINGS = ("squad", "mlqa")

_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": "ال",  # wherever it stands
    "hi": "", "zh": "",
}  # fmt: skip
_HAN = re.compile("([\u4e00-\u9fa5])")
_KEPT = 1 << 17  # answers remembered: the right ones are asked for after every epoch


def normalizer(scoring: str, lang: str) -> Normalize:
    """What makes of an answer the words that are compared: lower case, without punctuation and articles, single spaces.

    - "squad": SQuAD's `evaluate-v1.1.py` (Rajpurkar et al. 2016), which XQuAD and TyDi QA's gold passages take for all
      languages: ASCII punctuation, English articles.
    - "mlqa": MLQA's `mlqa_evaluation_v1.py` (Lewis et al. 2020): all punctuation of Unicode, the articles of the
      language, and every Chinese character as a word.

    Raises:
        SettingError: there is no such way, or MLQA has none for the language.
    """
    if scoring not in SCORINGS:
        raise SettingError(f"unknown scoring {scoring!r}, expected {' or '.join(SCORINGS)}")
    if scoring == "squad":
        return _squad
    language = language_parts(lang)[0]
    if language not in _ARTICLES:
        known = ", ".join(_ARTICLES)
        raise SettingError(
            f"scoring=mlqa has no rules for {lang}, only for {known}; take scoring=squad for all languages"
        )
    return partial(_mlqa, language)


@lru_cache(_KEPT)
def _squad(text: str) -> str:
    plain = text.lower().translate(_ASCII)
    return " ".join(re.sub(_ARTICLES["en"], " ", plain).split())


@lru_cache(_KEPT)
def _mlqa(lang: str, text: str) -> str:
    plain = "".join(letter for letter in text.lower() if not _is_punctuation(letter))
    plain = re.sub(_ARTICLES[lang], " ", plain) if _ARTICLES[lang] else plain
    return " ".join((_HAN.sub(r" \1 ", plain) if lang == "zh" else plain).split())


_ASCII = str.maketrans("", "", string.punctuation)


@lru_cache(1 << 16)
def _is_punctuation(letter: str) -> bool:
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")


def answer_scores(said: str, right: Iterable[str], normalize: Normalize) -> tuple[float, float]:
    """F1 over words and exact match of an answer, each the best over all right ones; fractions."""
    mine = normalize(said)
    others = [normalize(answer) for answer in right]
    return max(_f1(mine.split(), other.split()) for other in others), float(mine in others)


def _f1(said: list[str], right: list[str]) -> float:
    """2PR / (P + R) of the words in common, each as often as both have it; 0 where there are none, even of two empty
    answers."""
    same = sum((Counter(said) & Counter(right)).values())
    return 2 * same / (len(said) + len(right)) if same else 0.0
