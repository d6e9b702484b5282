"""Answers as the official scripts count them: against a literal transcription of both."""

import re
import string
import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calque.errors import SettingError
from calque.tasks.answering import answer_scores, normalizer

ARTICLES = {
    "es": "un una unos unas el la los las", "vi": "của là cái chiếc những", "en": "a an the",
    "de": "ein eine einen einem eines einer der die das den dem des",
}  # fmt: skip


def by_squad(answer):
    """evaluate-v1.1.py: lower case, without ASCII punctuation, without English articles, single spaces."""
    lowered = answer.lower()
    bare = "".join(letter for letter in lowered if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def by_mlqa(answer, lang):
    """mlqa_evaluation_v1.py: the same with Unicode's punctuation and the language's articles; Chinese letter by letter."""
    kinds = [(letter, unicodedata.category(letter)) for letter in answer.lower()]
    bare = "".join(letter for letter, kind in kinds if not kind.startswith("P") and letter not in string.punctuation)
    if lang == "ar":
        bare = re.sub("\\sال^|ال", " ", bare)
    elif lang in ARTICLES:
        bare = re.sub(rf"\b({'|'.join(ARTICLES[lang].split())})\b", " ", bare)
    if lang != "zh":
        return " ".join(bare.split())
    words, run = [], ""
    for letter in bare:
        if re.search("[\u4e00-\u9fa5]", letter):
            words += [*run.split(), letter]
            run = ""
        else:
            run += letter
    return " ".join([*words, *run.split()])


def official(said, right, normalize):
    """metric_max_over_ground_truths of f1_score and of exact_match_score."""
    found = []
    for each in right:
        a, b = normalize(said).split(), normalize(each).split()
        same = sum((Counter(a) & Counter(b)).values())
        precision, recall = (same / len(a), same / len(b)) if same else (0, 0)
        f1 = 2 * precision * recall / (precision + recall) if same else 0
        found.append((f1, normalize(said) == normalize(each)))
    return max(f1 for f1, _ in found), max(float(exact) for _, exact in found)


PIECES = [
    "The", "a ", "theme", " AN ", "Rome", "Rom", "e", "«", "»", "U.S.", "'s", "-", "\u00a0", "  ", "İ", "ß", "ال", "البيت",
    "die ", "der", "Das ", "北京", "大", "，", "A1", " của ", "$5", "\n", "la ", "Los", "हिंदी", "।", "_", "",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(said=TEXTS, right=st.lists(TEXTS, min_size=1, max_size=3))
@example(said="the", right=["a"])  # nothing is left of either: an exact match without a word in common
@example(said="in the in Rome", right=["in Rome", "Rome in in"])
@example(said="theme a", right=["THEME"])
@settings(deadline=None)
def test_scores_are_those_of_the_official_scripts(said, right):
    assert answer_scores(said, right, normalizer("squad", "zh")) == pytest.approx(official(said, right, by_squad))
    for lang in ("en", "es", "de", "vi", "ar", "hi", "zh"):
        expected = official(said, right, lambda text, lang=lang: by_mlqa(text, lang))
        assert answer_scores(said, right, normalizer("mlqa", lang)) == pytest.approx(expected)


def test_what_there_is_no_script_for():
    with pytest.raises(
        SettingError, match="scoring=mlqa has no rules for tr, only for en, es, vi, de, ar, hi, zh; take"
    ):
        normalizer("mlqa", "tr")
    with pytest.raises(SettingError, match="unknown scoring 'exact', expected squad or mlqa"):
        normalizer("exact", "en")
