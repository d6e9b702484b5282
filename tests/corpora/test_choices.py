"""Questions with answers to choose from: the columns of Belebele, of the text its authors train on, and of RACE."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calque.corpora import SkippedWarning, read_choices
from calque.corpora.choices import ChoiceText
from calque.errors import InputError
from calque.text import Sentences

pytest.importorskip("datasets", reason="datasets is not installed: pip install 'calque-align[hub]'")


def belebele(right="3", **other):
    return {
        "link": "https://en.wikibooks.org/x", "question_number": 2, "flores_passage": "A cat sleeps.",
        "question": "What sleeps?", "mc_answer1": "A dog", "mc_answer2": "A bird", "mc_answer3": "A cat",
        "mc_answer4": "A mouse", "correct_answer_num": right, "dialect": "eng_Latn", "ds": "2023-05-03", **other,
    }  # fmt: skip


def authors(right="3"):
    row = belebele(right)
    row |= {"passage": row.pop("flores_passage"), **{f"answer{k}": row.pop(f"mc_answer{k}") for k in range(1, 5)}}
    return {name: value for name, value in row.items() if name not in ("link", "question_number")}


def race(right="C"):
    return {"example_id": "x", "article": "A cat sleeps.", "question": "What sleeps?", "answer": right,
            "options": ["A dog", "A bird", "A cat", "A mouse"]}  # fmt: skip


def write(folder, *rows):
    path = folder / "f.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("row", [belebele(), belebele(3), authors(), race()], ids=["hub", "number", "authors", "race"])
def test_columns_of_published_data(tmp_path, row):
    text = read_choices(write(tmp_path, row, row), lang="en")
    assert (len(text), text.choices, text.right.tolist()) == (2, 4, [2, 2])
    assert text.texts[0][0].words == ("A", "cat", "sleeps", ".", "What", "sleeps", "?")
    assert [" ".join(column[1].words) for column in text.texts[1:]] == ["A dog", "A bird", "A cat", "A mouse"]
    assert text.keys == (("https://en.wikibooks.org/x 2",) * 2 if "link" in row else ())
    taken = text.take(np.array([1]))
    assert (len(taken), taken.choices, len(taken.keys)) == (1, 4, len(text.keys[:1]))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (belebele("5"), "the right answer is '5', expected one of 4"),
        (belebele(flores_passage=" "), "the passage has no words"),
        (belebele(mc_answer2=""), "answer 2 has no words"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_row(tmp_path, row, said):
    path = write(tmp_path, belebele(), row)
    with pytest.raises(InputError, match=r"f\.jsonl line 2: .*" + said):
        read_choices(path, lang="en")
    with pytest.warns(SkippedWarning):
        assert len(read_choices(path, lang="en", on_error="skip")) == 1


def test_other_numbers_of_answers(tmp_path):
    three = race() | {"options": ["A dog", "A bird", "A cat"]}
    with pytest.raises(InputError, match="line 2: 3 answers, expected 4 as before"):
        read_choices(write(tmp_path, race(), three), lang="en")
    with pytest.raises(InputError, match="line 1: 1 answers, expected 2 or more"):
        read_choices(write(tmp_path, race("A") | {"options": ["x"]}), lang="en")
    with pytest.raises(
        InputError, match="has the columns a; expected flores_passage, question, mc_answer1 to mc_answer4"
    ):
        read_choices(write(tmp_path, {"a": 1}), lang="en")


def test_a_file_that_is_no_table_is_told_by_its_name(tmp_path):
    (tmp_path / "lines.txt").write_text("one line\n")
    with pytest.raises(InputError, match=r"lines\.txt: no table, by its name; expected one of \.parquet, \.jsonl"):
        read_choices(tmp_path / "lines.txt", lang="en")


def test_what_does_not_fit_together():
    column = Sentences.of([["a"]], "en")
    with pytest.raises(InputError, match="1 answers to choose from, expected 2 or more"):
        ChoiceText((column, column), np.array([0]))
    with pytest.raises(InputError, match="a right answer that is none of the 2"):
        ChoiceText((column, column, column), np.array([2]))
