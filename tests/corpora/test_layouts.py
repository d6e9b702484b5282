"""Comparable texts and altered sentences are read."""

import json

import numpy as np
import pytest

from calque.corpora.altered import read_altered
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


# -- altered sentences -------------------------------------------------------------------------------------------------
def test_altered_sentences_are_read_from_both_forms(tmp_path):
    plain = {"5 houses": {"src": "3 houses", "errtype": "number"}, "no house": {"src": "a house"}}
    (tmp_path / "eng_Latn_errtype.dev.json").write_text(json.dumps(plain))
    (tmp_path / "altered.tsv").write_text("3 houses\t5 houses\tnumber\n\na house\tno house\n")
    for name in ("eng_Latn_errtype.dev.json", "altered.tsv"):
        found = read_altered(tmp_path / name)
        assert found.texts == ("5 houses", "no house")
        assert found.originals == ("3 houses", "a house")
        assert found.kinds == ("number", "altered")
    for text, said in (("one\n", "one column, expected original"), ("\n", "no altered sentence")):
        (tmp_path / "altered.tsv").write_text(text)
        with pytest.raises(InputError, match=said):
            read_altered(tmp_path / "altered.tsv")
    for text, said in (("[]", "no JSON object"), ('{"x": 1}', "'x' has no \"src\"")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match=said):
            read_altered(tmp_path / "bad.json")
