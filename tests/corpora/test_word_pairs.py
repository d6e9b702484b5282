"""Pairs of texts with a word in both: as XL-WiC has them in lines, and as two data sets of the hub have them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from calque.corpora import SkippedWarning, read_word_pairs
from calque.errors import InputError

FIRST, SECOND = "The bank of the river.", "He sat on a bank."
LINES = [
    f"bank\tN\t4\t8\t12\t16\t{FIRST}\t{SECOND}\t1",
    "go on\tV\t3\t10\t0\t5\tHe goes on.\tGo on!\t0",
]


def write(folder, *lines, name="wic.en.txt"):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def words_of(text):
    """The words asked about, and the label."""
    return [
        ([list(column[k].words[a:b]) for column, (a, b) in zip(text.texts, text.spans[k], strict=True)], text.labels[k])
        for k in range(len(text))
    ]


def test_lines_of_xlwic(tmp_path):
    text = read_word_pairs(write(tmp_path, LINES[0], "", LINES[1]), lang="en")
    assert words_of(text) == [([["bank"], ["bank"]], "same"), ([["goes", "on"], ["Go", "on"]], "different")]
    assert text.lines is not None
    assert text.lines.tolist() == [1, 3]
    taken = text.take(np.array([1]))
    assert words_of(taken) == words_of(text)[1:]


def xlwic(label, **other):
    return {
        "id": "0", "target_word": "bank", "pos": "N", "context_1": FIRST, "context_2": SECOND,
        "target_word_location_1": {"char_start": 4, "char_end": 8},
        "target_word_location_2": {"char_start": 12, "char_end": 16}, "language": "EN", "label": label, **other,
    }  # fmt: skip


def superglue(label):
    return {"word": "bank", "sentence1": FIRST, "sentence2": SECOND, "start1": 4, "end1": 8, "start2": 12, "end2": 16,
            "idx": 0, "label": label}  # fmt: skip


@pytest.mark.parametrize("make", [xlwic, superglue])
@pytest.mark.parametrize("named", [False, True])
def test_data_sets_of_the_hub(tmp_path, make, named):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([make(1), make(0), make(-1)])
    if named:
        data = data.cast_column("label", datasets.ClassLabel(names=["False", "True"]))
    data.to_parquet(str(tmp_path / "f.parquet"))
    with pytest.warns(SkippedWarning, match="no label"):  # the answers to a test that nobody publishes
        text = read_word_pairs(tmp_path / "f.parquet", lang="en")
    assert words_of(text) == [([["bank"], ["bank"]], "same"), ([["bank"], ["bank"]], "different")]


def test_a_word_of_text_without_spaces_is_what_it_overlaps_with(tmp_path):
    pytest.importorskip("datasets")
    first, second = "我去银行。", "银行在河边"
    places = [{"char_start": 2, "char_end": 4}, {"char_start": 0, "char_end": 2}]
    row = xlwic(
        1, context_1=first, context_2=second, target_word_location_1=places[0], target_word_location_2=places[1]
    )
    path = write(tmp_path, json.dumps(row), name="f.jsonl")
    (((one, two), _),) = words_of(read_word_pairs(path, lang="zh"))
    assert "".join(one) == "".join(two) == "银行"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bank\tN\t4\t8", "4 columns, expected 9"),
        (LINES[0].replace("\t4\t8", "\t4\t80"), "the word at 4 to 80 of a text of 22 characters, expected it inside"),
        (LINES[0].replace("\t4\t8", "\t3\t4"), "no word at 3 to 4, where ' ' stands"),
        (LINES[0][:-1] + "maybe", "the label 'maybe', expected 1 (the same sense) or 0"),
        (LINES[0].replace(SECOND, " "), "a text is ' ', expected one with the word in it"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_line(tmp_path, line, said):
    path = write(tmp_path, LINES[1], line)
    with pytest.raises(InputError, match=r"wic\.en\.txt line 2: .*" + re.escape(said)):
        read_word_pairs(path, lang="en")
    with pytest.warns(SkippedWarning):
        assert len(read_word_pairs(path, lang="en", on_error="skip")) == 1


def test_other_files(tmp_path):
    pytest.importorskip("datasets")
    with pytest.raises(InputError, match="has the columns a; expected context_1, context_2, target_word_location_1"):
        read_word_pairs(write(tmp_path, '{"a": 1}', name="f.jsonl"), lang="en")
    with pytest.raises(InputError, match="no pairs could be read: the file is empty or blank"):
        read_word_pairs(write(tmp_path), lang="en")
