"""Test sets are found by the names that they are distributed with, and comparable texts are read."""

import gzip

import numpy as np
import pytest

from calque.corpora import read_parallel
from calque.corpora.comparable import gold_file, read_comparable
from calque.corpora.formats import find_layout
from calque.errors import InputError

NAMES = (
    "tatoeba.deu-eng.deu", "tatoeba.deu-eng.eng", "tatoeba.cmn-eng.cmn", "tatoeba.cmn-eng.eng",
    "NTREX-128/newstest2019-src.eng.txt", "NTREX-128/newstest2019-ref.deu.txt", "NTREX-128/newstest2019-ref.fra-CA.txt",
    "NTREX-128/newstest2019-ref.fra.txt", "NTREX-128/newstest2019-ref-2.spa.txt", "NTREX-128/newstest2019-ref.eng-GB.txt",
    "dev/eng_Latn.dev", "dev/deu_Latn.dev", "dev/zho_Hans.dev", "dev/zho_Hant.dev", "dev/swh_Latn.dev", "dev/ckb_Arab.dev",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of three test sets; each has its own name as its text."""
    place = tmp_path_factory.mktemp("sets")
    for name in NAMES:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(f"{name}\n", encoding="utf-8")
    with gzip.open(place / "tatoeba.ron-eng.ron.gz", "wt", encoding="utf-8") as file:
        file.write("un rând\n")
    (place / "tatoeba.ron-eng.eng").write_text("a line\n", encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("path", "langs", "expected"),
    [
        ("tatoeba.deu-eng", ("en", "de"), ("tatoeba.deu-eng.eng", "tatoeba.deu-eng.deu")),
        ("tatoeba", ("deu", "eng"), ("tatoeba.deu-eng.deu", "tatoeba.deu-eng.eng")),
        ("", ("en", "zh"), ("tatoeba.cmn-eng.eng", "tatoeba.cmn-eng.cmn")),
        ("tatoeba", ("en", "ro"), ("tatoeba.ron-eng.eng", "tatoeba.ron-eng.ron.gz")),
        ("NTREX-128", ("en", "de"), ("newstest2019-src.eng.txt", "newstest2019-ref.deu.txt")),
        ("NTREX-128/newstest2019", ("fr", "en"), ("newstest2019-ref.fra.txt", "newstest2019-src.eng.txt")),
        ("NTREX-128", ("en", "fr-CA"), ("newstest2019-src.eng.txt", "newstest2019-ref.fra-CA.txt")),
        ("NTREX-128", ("en-GB", "de"), ("newstest2019-ref.eng-GB.txt", "newstest2019-ref.deu.txt")),
        ("dev", ("en", "zh"), ("eng_Latn.dev", "zho_Hans.dev")),
        ("dev", ("zho_Hant", "sw"), ("zho_Hant.dev", "swh_Latn.dev")),
        ("dev", ("en", "ckb"), ("eng_Latn.dev", "ckb_Arab.dev")),
    ],
)
def test_the_two_files_of_a_test_set_are_found(folder, path, langs, expected):
    found = find_layout(folder / path, langs)
    assert found is not None
    assert tuple(name.replace("\\", "/").rpartition("/")[2] for name in found) == expected


def test_a_test_set_is_parallel_text_for_every_command(folder):
    corpus = read_parallel(folder / "dev", langs=("en", "de"), pretokenized=True)
    assert corpus[0][0].words == ("dev/eng_Latn.dev",)
    assert corpus[0][1].words == ("dev/deu_Latn.dev",)
    with pytest.raises(
        InputError, match="no files in both en and fr that belong together, there are ckb_Arab, deu_Latn"
    ):
        read_parallel(folder / "dev", langs=("en", "fr"))
    with pytest.raises(InputError, match="no such file, nor"):
        read_parallel(folder / "dve", langs=("en", "de"))
    assert find_layout(folder / "nowhere" / "dev", ("en", "de")) is None


def test_a_folder_of_several_test_sets_does_not_say_which(folder, tmp_path):
    for part in ("dev", "devtest"):
        for lang in ("eng", "deu"):
            (tmp_path / f"{lang}.{part}").write_text("x\n")
    with pytest.raises(InputError, match=r"several files in en go with one in de: eng.dev, eng.devtest; say which"):
        find_layout(tmp_path, ("en", "de"))


# -- texts that are no translations ------------------------------------------------------------------------------------
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
