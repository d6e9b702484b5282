"""Comparable texts are read."""

import numpy as np
import pytest

from calque.corpora.comparable import gold_file, read_comparable
from calque.errors import InputError


@pytest.fixture
def bucc(tmp_path):
    files = {
        "de": "de-1\tEin Haus.\nde-2\tZeit ist Geld.\nde-3\tWasser\n",
        "en": "en-1\tTime is money.\nen-2\tNobody said that.\nen-3\tA house.\nen-4\twater\n",
        "gold": "de-1\ten-3\nde-2\ten-1\n",
    }
    for name, text in files.items():
        (tmp_path / f"de-en.sample.{name}").write_text(text, encoding="utf-8")
    return tmp_path / "de-en.sample"


def test_comparable_texts_know_which_sentences_translate_each_other(bucc):
    assert gold_file(bucc) == f"{bucc}.gold"
    found = read_comparable(bucc, langs=("de", "en"))
    assert found.source[0].words == ("Ein", "Haus", ".")
    assert (len(found.source), len(found.target), found.langs) == (3, 4, ("de", "en"))
    assert found.gold.tolist() == [[0, 2], [1, 0]]
    turned = read_comparable(bucc, langs=("en", "de"), pretokenized=True)
    assert turned.gold.tolist() == [[2, 0], [0, 1]]
    assert turned.source[2].words == ("A", "house.")
    np.testing.assert_array_equal(read_comparable(bucc, langs=("de", "en"), gold=f"{bucc}.gold").gold, found.gold)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("de", "de-1\tEin Haus\nde-1\tZeit\n", r"de line 2: the id 'de-1' is that of sentence 1, too"),
        ("en", "Time is money.\n", r"en line 1: one column, expected an id, a tab and a sentence"),
        ("gold", "de-1\ten-9\n", r"gold line 1: no sentences of ids 'de-1' and 'en-9', one in each text"),
        ("gold", "\n", r"gold: no pair, expected the ids of two sentences on a line"),
        ("gold", None, r"no gold pairs, expected .*sample.de, .*sample.en and .*sample.gold"),
        ("en", None, r"no text in de and en, expected"),
    ],
)
def test_what_is_wrong_with_comparable_texts_is_said(bucc, name, text, said):
    file = bucc.with_name(f"{bucc.name}.{name}")
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_comparable(bucc, langs=("de", "en"))
