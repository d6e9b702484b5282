"""Answers as the official script counts them: against a literal transcription."""

import re
import string
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calque.tasks.answering import answer_scores


def by_squad(answer):
    """evaluate-v1.1.py: lower case, without ASCII punctuation, without English articles, single spaces."""
    lowered = answer.lower()
    bare = "".join(letter for letter in lowered if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


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
def test_scores_are_those_of_the_official_script(said, right):
    assert answer_scores(said, right) == pytest.approx(official(said, right, by_squad))
