"""Tests of data sets read without a network: tables on disk, saved data sets, and folders."""

import json
import socket

import pytest

from calque.corpora import read_parallel
from calque.errors import InputError, MissingExtraError

datasets = pytest.importorskip("datasets")
LANGS = ("en", "de")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    def refuse(*_):
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("hub")))


def words(corpus):
    return [
        (" ".join(corpus[k][0].words), " ".join(corpus[k][1].words)) for k in range(len(corpus))
    ]


EXPECTED = [("a b", "x"), ("c", "y z")]
TRANSLATION = [{"translation": {"en": s, "de": t}, "id": k} for k, (s, t) in enumerate(EXPECTED)]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    "names",
    [
        LANGS,
        ("en-US", "de_DE"),
        ("sentence_en", "sentence_de"),
        ("source", "target"),
        ("sentence1", "sentence2"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_two_columns_of_a_table_are_read_as_parallel_text(tmp_path, names, suffix):
    path = tmp_path / f"f.{suffix}"
    data = datasets.Dataset.from_list([{names[0]: s, names[1]: t, "n": 3} for s, t in EXPECTED])
    {"jsonl": data.to_json, "csv": data.to_csv, "parquet": data.to_parquet}[suffix](str(path))
    corpus = read_parallel(path, langs=LANGS)
    assert words(corpus) == EXPECTED
    assert corpus.metadata("n") == ["3", "3"]


def test_a_translation_column_is_read_in_either_direction(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text(lines(TRANSLATION))
    corpus = read_parallel(path, langs=LANGS)
    assert words(corpus) == EXPECTED
    assert corpus.metadata("id") == ["0", "1"]
    assert words(read_parallel(path, langs=("de", "en-GB"))) == [(t, s) for s, t in EXPECTED]
    assert len(read_parallel(path, langs=LANGS, limit=1)) == 1


def test_saved_data_sets_and_folders_are_read(tmp_path):
    features = datasets.Features(
        {"translation": datasets.Translation(languages=LANGS), "id": datasets.Value("int64")}
    )
    data = datasets.Dataset.from_list(TRANSLATION, features=features)
    data.save_to_disk(tmp_path / "one")
    assert words(read_parallel(tmp_path / "one", langs=LANGS)) == EXPECTED
    both = datasets.DatasetDict({"train": data, "test": data.select([1])})
    both.save_to_disk(tmp_path / "both")
    assert words(read_parallel(tmp_path / "both", langs=LANGS)) == EXPECTED
    assert words(read_parallel(f"hub:{tmp_path / 'both'}:test", langs=LANGS)) == EXPECTED[1:]
    folder = tmp_path / "folder"
    folder.mkdir()
    data.to_parquet(str(folder / "train.parquet"))
    data.select([0]).to_parquet(str(folder / "test.parquet"))
    assert words(read_parallel(folder, langs=LANGS)) == EXPECTED
    assert words(read_parallel(folder, langs=LANGS, format="hub")) == EXPECTED
    assert words(read_parallel(f"hub:{folder}:test", langs=LANGS)) == EXPECTED[:1]
    with pytest.raises(InputError, match="splits train, test; choose one: hub:"):
        read_parallel(f"hub:{folder}:validation", langs=LANGS)


def test_missing_values_and_unknown_columns_raise_an_error(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("en,de\na,x\n,y\nb,NaN\n,\nc,z\n")
    with pytest.raises(
        InputError, match=r"f\.csv line 2: the source side is (None|nan), expected text"
    ):
        read_parallel(path, langs=LANGS)
    corpus = read_parallel(path, langs=LANGS, on_error="skip")
    assert words(corpus) == [("a", "x"), ("c", "z")]
    assert corpus.skipped == {"missing value": 3}
    assert corpus.lines.tolist() == [1, 5]
    path = tmp_path / "f.jsonl"
    path.write_text(lines([{"en": "a", "de": "x"}, {"en": "b"}, {"en": "", "de": "y"}]))
    assert read_parallel(path, langs=LANGS, on_error="blank").skipped == {
        "missing value": 1,
        "empty source": 1,
    }
    path.write_text(lines([{"premise": "a", "hypothesis": "b"}]))
    with pytest.raises(
        InputError, match=r"has the columns premise, hypothesis; expected .* en and de"
    ):
        read_parallel(path, langs=LANGS)


def test_empty_folders_and_unreachable_names_raise_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", "hub:nobody/nothing-of-that-name"):
        with pytest.raises(InputError, match="the data set cannot be read"):
            read_parallel(path, langs=LANGS)


def test_the_error_for_a_missing_library_names_the_extra_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"calque-align\[hub\]"):
        read_parallel(tmp_path, langs=LANGS)
