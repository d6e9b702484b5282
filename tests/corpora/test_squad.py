"""Tests of questions in SQuAD format, and of errors that name the position in the file."""

import gzip
import json
import re

import numpy as np
import pytest

from calque.corpora import SkippedWarning
from calque.corpora.squad import read_questions
from calque.errors import InputError

PASSAGE = "Ann's house (built 1960) isn't in Rome."


def qa(question="Where is it?", *answers, **more):
    return {
        "id": "1",
        "question": question,
        "answers": [{"text": t, "answer_start": s} for t, s in answers],
        **more,
    }


def squad(*paragraphs):
    return {
        "version": "1.1",
        "data": [{"title": "x", "paragraphs": [{"context": c, "qas": q} for c, q in paragraphs]}],
    }


def write(folder, whole, name="squad.en.json"):
    path = folder / name
    content = whole if isinstance(whole, bytes) else json.dumps(whole, ensure_ascii=False).encode()
    path.write_bytes(content)
    return path


GOOD = qa("Where is it?", ("Rome", 34), ("in Rome", 31))


def test_questions_answers_and_passages_are_read(tmp_path):
    whole = squad(
        (PASSAGE, [GOOD, qa("When?", ("960", 20))]),
        ("甲在北京。", [qa("哪", ("北京", 2))]),
        (PASSAGE, [GOOD]),
    )
    for path in (
        write(tmp_path, whole),
        write(tmp_path, gzip.compress(json.dumps(whole).encode()), "x.gz"),
    ):
        text = read_questions(path, lang="en")
        assert (len(text), len(text.passages)) == (4, 2)  # a repeated passage is stored only once
        assert text.owner.tolist() == [0, 0, 1, 0]
        assert text.written == (PASSAGE, "甲在北京。")
        assert text.right(0) == ("Rome", "in Rome")
        assert text.questions[1].words == ("When", "?")
        words = text.passages[0].words
        assert [PASSAGE[a:b] for a, b in text.places[: len(words)]] == list(words)
        found = [words[a:b] for a, b in text.spans[:3]]
        assert found == [("Rome",), ("in", "Rome"), ("1960",)]  # spans are widened to whole words
        assert text.path == str(path)


def test_questions_can_be_selected(tmp_path):
    """Check that the selected questions keep their passages and answer spans."""
    whole = squad(
        (PASSAGE, [GOOD]), ("One two.", [qa("1?", ("One", 0), ("two", 4)), qa("2?", ("two", 4))])
    )
    text = read_questions(write(tmp_path, whole), lang="en")
    part = text.take(np.array([2, 1]))
    assert (part.owner.tolist(), part.written) == ([0, 0], ("One two.",))
    assert [part.right(k) for k in range(2)] == [("two",), ("One", "two")]
    assert part.places.tolist() == [[0, 3], [4, 7], [7, 8]]
    assert part.spans.tolist() == [[1, 2], [0, 1], [1, 2]]
    assert [sentence.words for sentence in part.questions] == [("2", "?"), ("1", "?")]
    both = text.take(np.array([2, 0]))
    assert both.written == (PASSAGE, "One two.")
    assert both.owner.tolist() == [1, 0]
    assert [list(column[0].words) for column in both.texts] == [["2", "?"], ["One", "two", "."]]


def test_questions_without_an_answer_are_skipped(tmp_path):
    impossible = {**qa("Why?"), "is_impossible": True, "plausible_answers": []}
    path = write(tmp_path, squad((PASSAGE, [GOOD, impossible])))
    found = r"skipped 1 of 2 questions: 1 × no answer in the passage \(SQuAD 2\.0\) \(first: .*\.qas\[1\]\)"
    with pytest.warns(SkippedWarning, match=found):
        assert len(read_questions(path, lang="en")) == 1


@pytest.mark.parametrize(
    ("bad", "reason", "fact"),
    [
        (
            qa("?", ("Rome", 33)),
            None,
            "the passage has ' Rom' at answer_start 33, expected the answer 'Rome', which is at 34",
        ),
        (
            qa("?", ("Roma", 34)),
            None,
            "at answer_start 34, expected the answer 'Roma', which the passage does not contain",
        ),
        (qa("?", (" ", 5)), None, "the answer ' ' at 5 contains no word of the passage"),
        (qa(" ", ("Rome", 34)), "question without words", "the question has no words"),
        (
            qa("?"),
            "no question or answers",
            "'answers': []}, expected a question, and answers with text and answer_start",
        ),
        (
            qa("?", ("Rome", -1)),
            "no question or answers",
            "and answers with text and answer_start (at least 0)",
        ),
    ],
)
def test_unusable_questions_raise_an_error_or_are_counted_with_their_position(
    tmp_path, bad, reason, fact
):
    path = write(tmp_path, json.dumps(squad((PASSAGE, [GOOD, bad]))).encode())
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_questions(path, lang="en")
    assert str(caught.value).startswith(f"{path}: data[0].paragraphs[0].qas[1]: ")
    assert str(caught.value).endswith('; or skip it (on_error="skip", --on-error skip)')
    with pytest.warns(SkippedWarning, match="first: .*qas\\[1\\]") as warned:
        text = read_questions(path, lang="en", on_error="skip")
    if reason is None:  # kept without a span, because test sets need only the text
        assert len(text) == 2
        assert text.spans[-1].tolist() == [-1, -1]
        assert "1 × answer not at answer_start" in str(warned[0].message)
    else:
        assert f"skipped 1 of 2 questions: 1 × {reason}" in str(warned[0].message)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (
            b'{"data": [',
            ".json line 1: not JSON (Expecting value: line 1 column 11 (char 10)), expected one "
            "JSON object; is",
        ),
        (b"\xff{}", ".json: byte 0 is not UTF-8"),
        (b"[]", ".json: not in SQuAD's JSON format (TypeError"),
        (
            {"data": [{"paragraphs": [{"qas": [1]}]}]},
            "data[0].paragraphs[0]: not in SQuAD's JSON format (KeyError('context'))",
        ),
        (squad((" ", [GOOD])), "data[0].paragraphs[0].qas[0]: the passage has no words"),
    ],
)
def test_files_in_another_format_are_rejected(tmp_path, whole, said):
    with pytest.raises(InputError, match=re.escape(said)):
        read_questions(write(tmp_path, whole), lang="en")
