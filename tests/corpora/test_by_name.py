"""Tests of data sets selected by short names, read from small local copies of the data sets on the
hub.
"""

from dataclasses import replace

import pytest

from calque.corpora import by_name, read_labelled, read_parallel, read_questions, read_tagged
from calque.corpora.languages import language_and_path
from calque.errors import InputError
from command import works

datasets = pytest.importorskip(
    "datasets", reason="datasets is not installed: pip install 'calque-align[hub]'"
)


def tagged(column, names):
    labels = datasets.Sequence(datasets.ClassLabel(names=names))
    features = datasets.Features(
        {"tokens": datasets.Sequence(datasets.Value("string")), column: labels}
    )
    return datasets.Dataset.from_list(
        [{"tokens": ["Bonn", "liegt"], column: [1, 0]}], features=features
    )


def plain(*rows):
    return datasets.Dataset.from_list(list(rows))


PAIR = {
    "source_sentence": "ein Haus",
    "target_sentence": "a house",
    "source_lang": "de",
    "target_lang": "en",
}
COPIES = {
    ("pan-x", "PAN-X.de", "test"): tagged("ner_tags", ["O", "B-LOC"]),
    ("udpos", "udpos.German", "train"): tagged("pos_tags", ["VERB", "PROPN"]),
    ("xnli", "de", "test"): plain(
        {"premise": "Es regnet.", "hypothesis": "Es ist nass.", "label": "entailment"}
    ),
    ("xquad", "xquad.de", "validation"): plain(
        {
            "id": "1",
            "context": "Bonn liegt am Rhein.",
            "question": "Wo liegt Bonn?",
            "answers": {"text": ["am Rhein"], "answer_start": [11]},
        }
    ),
    ("tatoeba", "tatoeba.deu", "validation"): plain(PAIR),
    ("bucc", "bucc18.de", "test"): plain(PAIR),
    ("massive", "de", "test"): plain(
        {
            "id": "1",
            "label": "alarm_set",
            "label_text": "alarm_set",
            "text": "weck mich",
            "lang": "de",
        }
    ),
    ("sib-200", "deu_Latn", "test"): plain(
        {"index_id": 1, "category": "travel", "text": "Die Reise"}
    ),
    ("flores", "deu_Latn", "devtest"): plain({"id": 1, "text": "ein Haus"}),
    ("flores", "eng_Latn", "devtest"): plain({"id": 1, "text": "a house"}),
}


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Save a copy of every data set in the table, with the configurations and columns used on the
    hub.
    """
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    configs = {}
    for (name, config, split), rows in COPIES.items():
        rows.to_parquet(tmp_path / name / f"{config}.{split}.parquet")
        configs.setdefault(name, []).append(
            f"- config_name: {config}\n  data_files:\n  - split: {split}\n    path: "
            f"{config}.{split}.parquet\n"
        )
    for name, listed in configs.items():
        (tmp_path / name / "README.md").write_text("---\nconfigs:\n" + "".join(listed) + "---\n")
        monkeypatch.setitem(
            by_name.NAMED, name, replace(by_name.NAMED[name], repository=str(tmp_path / name))
        )


def test_each_named_data_set_is_read_by_its_reader(copies):
    assert set(by_name.NAMED) == {name for name, _, _ in COPIES}
    for path, tags in (("hub:pan-x:de", ["B-LOC", "O"]), ("hub:udpos:de:train", ["PROPN", "VERB"])):
        lang, place = language_and_path(path)
        found = read_tagged(place, lang=lang)
        assert (lang, list(found.sentences[0].words)) == ("de", ["Bonn", "liegt"])
        assert [found.tags.names[k] for k in found.tags.codes] == tags
    questions = read_questions("hub:xquad:de", lang="de")
    assert (questions.answers, len(questions)) == (("am Rhein",), 1)
    assert questions.spans.tolist() == [[2, 4]]
    for path, label in (
        ("hub:xnli:de", "entailment"),
        ("hub:massive:de", "alarm_set"),
        ("hub:sib-200:de", "travel"),
    ):
        found = read_labelled(path, lang="de")
        assert [found.labels.names[k] for k in found.labels.codes] == [label]
    for path in ("hub:tatoeba", "hub:bucc", "hub:flores"):
        for langs, expected in (
            (("en", "de"), ["a house", "ein Haus"]),
            (("de", "en"), ["ein Haus", "a house"]),
        ):
            corpus = read_parallel(path, langs=langs)
            assert [" ".join(side.words) for side in corpus[0]] == expected


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hub:pan-x", "expected hub:pan-x:de[:test|validation|train]; languages: af"),
        ("hub:pan-x:la", "; languages: af ar bg"),
        ("hub:panx:de", "did you mean hub:pan-x? calque data lists all names"),
        ("hub:pan-x:de", "google/xtreme is on the Hugging Face hub: is the network available"),
    ],
)
def test_unknown_names_and_languages_raise_one_line_errors(monkeypatch, tmp_path, path, said):
    def fails(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(InputError) as told:
        read_tagged(path, lang="de")
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_calque_data_lists_all_names(capsys):
    shown, _ = works(capsys, "data")
    lines = shown.splitlines()
    assert len(lines) == 2 + len(by_name.NAMED)  # the first two lines are the header and a rule
    assert any(
        line.startswith("xquad") and "hub:xquad:de" in line and "CC BY-SA 4.0" in line
        for line in lines
    )
