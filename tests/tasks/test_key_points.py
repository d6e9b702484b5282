"""Test that tasks on whole texts accept key-point encoders, and that all other tasks reject
them.
"""

import re

import numpy as np
import pytest

from calque.annotated import LabelledText
from calque.encoders.anchors import compute_anchors
from calque.encoders.mapped import MappedEncoder
from calque.encoders.per_language import PerLanguage
from calque.errors import SettingError
from calque.maps import Rotation
from calque.pairs import WordPairs
from calque.tasks.alignment import WordAlignment
from calque.tasks.classification import Classification
from calque.tasks.datasets import Dataset
from calque.tasks.retrieval import WordRetrieval
from calque.tasks.zeroshot import Experiment
from calque.text import ParallelCorpus, Sentences
from command import fails, works
from planted import KeyPoints, Planted, jobs, key_points, labelled, tagged, write_tags

REFUSED = (
    "planted has vectors for key points, but vectors for words are required here; choose a "
    "text-level"
)


def left(each):
    """Return the data set reduced to the words that are key points, in key-point order."""
    texts = tuple(
        Sentences.of([key_points(s).words for s in column], each.lang) for column in each.data.texts
    )
    return Dataset(each.name, each.lang, LabelledText(texts, each.data.labels))


@pytest.mark.parametrize(
    ("name", "head"), [("nli", "mean"), ("nli", "esim"), ("sentiment", "bilstm")]
)
def test_key_points_score_like_texts_that_contain_only_these_words(name, head):
    """Check that tasks do not depend on the original number of words."""
    pairs = name == "nli"
    train, dev, test = (
        labelled(60, "en", pairs=pairs),
        labelled(20, "en", 1, pairs),
        labelled(40, "de", 1, pairs),
    )
    assert any(not key_points(s) for column in train.data.texts for s in column)
    settings = {
        "head": head,
        "hidden": 8,
        "seeds": (0, 1),
        "bootstrap": 20,
        "options": {"epochs": 2, "batch": 16},
    }
    for more in ({}, {"dev": [dev]}, {"select": "last"}):
        found = Classification(name, [train], [test], **settings, **more).evaluate(KeyPoints())
        more = {key: [left(dev)] if key == "dev" else value for key, value in more.items()}
        expected = Classification(name, [left(train)], [left(test)], **settings, **more).evaluate(
            Planted()
        )
        assert [(score.metric, score.runs, score.settings) for score in found] == [
            (score.metric, score.runs, score.settings) for score in expected
        ]


@pytest.mark.parametrize("name", ["ner", "parsing"])
def test_word_level_tasks_reject_key_points_before_encoding(name):
    encoder = KeyPoints()
    with pytest.raises(SettingError, match=REFUSED):
        Experiment(jobs(n=20)[name], encoder)
    assert encoder.passes == 0


def test_other_word_level_functions_reject_key_points():
    corpus = ParallelCorpus.of([["a1", "a2"], ["a3"]], [["d1", "d2"], ["d3"]], ("en", "de"))
    pairs = WordPairs(np.array([0, 1]), np.array([1, 0]), np.array([1, 0]), n_sentences=2)
    encoder = KeyPoints()
    for ask in (
        lambda: WordRetrieval(corpus, pairs).evaluate(encoder),
        lambda: WordAlignment(corpus, pairs).evaluate(encoder),
        lambda: compute_anchors(encoder, corpus.source),
        lambda: PerLanguage({"en": encoder}),
        lambda: MappedEncoder.fit(encoder, corpus, pairs, make=Rotation, towards="en"),
    ):
        with pytest.raises(SettingError, match=REFUSED):
            ask()
    assert encoder.passes == 0


def test_commands_evaluate_and_encode_key_points_and_reject_word_level_tasks(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.en.txt").write_text("e1 e2 e9\ne10\n", encoding="utf-8")
    write_tags(tagged(20, "en"), tmp_path / "tags.en.tsv")
    for lang, seed in (("en", 0), ("de", 1)):
        data = labelled(30, lang, seed, pairs=True).data
        columns = [
            *([" ".join(s.words) for s in text] for text in data.texts),
            data.labels.to_list(),
        ]
        text = "".join("\t".join(line) + "\n" for line in zip(*columns, strict=True))
        (tmp_path / f"pairs.{lang}.tsv").write_text(text, encoding="utf-8")
    refused = "evaluate planted:KeyPoints ner --train tags.en.tsv --test tags.en.tsv"
    assert re.search(REFUSED, fails(capsys, *refused.split()))
    learn = (
        "evaluate planted:KeyPoints nli --train pairs.en.tsv --test pairs.de.tsv --head esim "
        "--hidden 4 --seeds 1 --epochs 1"
    )
    out, _ = works(capsys, *learn.split())
    assert "frozen features, head esim" in out
    _, err = works(
        capsys,
        "encode",
        "planted:KeyPoints",
        "words.en.txt",
        "--lang",
        "en",
        "--out",
        tmp_path / "v",
    )
    assert "2 key points in 2 sentences" in err
