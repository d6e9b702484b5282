"""Compare sentence retrieval and mining with literal implementations on synthetic vectors."""

import json

import numpy as np
import pytest

from calque.algebra.margin import best_by_margin, mine
from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.encoders import load_encoder
from calque.encoders.sentence_vectors import SentencePooling
from calque.errors import SettingError
from calque.tasks.sentences import SentenceRetrieval, minable
from calque.text import ParallelCorpus
from command import fails, works
from planted import Planted


def corpus(n, seed=0, changed=0.4, length=6, vocabulary=60):
    """Return sentences and their translations, in which some words are wrong, so some translations
    are not retrieved.
    """
    rng = np.random.default_rng(seed)
    source = rng.integers(vocabulary, size=(n, length))
    target = np.where(
        rng.random((n, length)) < changed, rng.integers(vocabulary, size=(n, length)), source
    )
    sides = (
        [[f"{lang}{k}" for k in row] for row in side]
        for lang, side in (("e", source), ("d", target))
    )
    return ParallelCorpus.of(*sides, ("en", "de"))


def vectors(encoder, side):
    return unit_rows(encoder.encode(side).sentence_means())


def by_metric(scores):
    return {score.metric: score for score in scores}


@pytest.mark.parametrize("similarity", ["cosine", "csls"])
def test_accuracy_is_the_fraction_of_sentences_nearest_to_their_translation(similarity):
    text, encoder = corpus(80), Planted()
    found = by_metric(
        SentenceRetrieval(text, similarity=similarity, bootstrap=50).evaluate(encoder)
    )
    x, y = vectors(encoder, text.source), vectors(encoder, text.target)
    near = csls_neighbours(x, y, k=10) if similarity == "csls" else cosine_neighbours(x, y)
    forward, backward = (
        np.mean(best[:, 0] == np.arange(80)) for best in (near.targets, near.sources)
    )
    assert found["accuracy.en-de"].value == forward
    assert found["accuracy.de-en"].value == backward
    assert found["accuracy"].value == pytest.approx((forward + backward) / 2)
    assert 0.3 < forward < 1
    assert found["accuracy"].low < found["accuracy"].value < found["accuracy"].high
    assert len(found["accuracy"].resamples) == 50
    assert found["accuracy"].settings["k"] == (None if similarity == "cosine" else 10)


def test_xsim_is_an_error_rate_and_duplicate_translations_count_as_correct():
    text = corpus(40, changed=0)
    text = text + text[:10]
    found = by_metric(SentenceRetrieval(text, bootstrap=0).evaluate(Planted()))
    assert (found["accuracy"].value, found["xsim"].value, found["xsim.de-en"].value) == (1, 0, 0)
    assert found["accuracy"].settings["target_texts_repeated"] == 10
    worse = by_metric(
        SentenceRetrieval(corpus(80), bootstrap=0, similarity="csls", k=4).evaluate(Planted())
    )
    assert worse["xsim.en-de"].value == pytest.approx(1 - worse["accuracy.en-de"].value, abs=0.03)


def test_each_translation_of_a_repeated_sentence_counts_as_correct():
    """Compare with a loop over the sentence pairs. The second pair repeats the first, the third has
    another translation.
    """
    source = [["e1", "e2"], ["e1", "e2"], ["e1", "e2"], ["e3"], ["e4"], ["e5"], ["e6"]]
    target = [["d1", "d9"], ["d1", "d9"], ["d1", "d2"], ["d3"], ["d4"], ["d6"], ["d6"]]
    text, encoder = ParallelCorpus.of(source, target, ("en", "de")), Planted()
    found = by_metric(SentenceRetrieval(text, bootstrap=0).evaluate(encoder))
    x, y = vectors(encoder, text.source), vectors(encoder, text.target)
    pairs = {(tuple(a), tuple(b)) for a, b in zip(source, target, strict=True)}
    forward = [
        (tuple(source[i]), tuple(target[int((x[i] @ y.T).argmax())])) in pairs for i in range(7)
    ]
    backward = [
        (tuple(source[int((y[i] @ x.T).argmax())]), tuple(target[i])) in pairs for i in range(7)
    ]
    assert found["accuracy.en-de"].value == np.mean(forward) == pytest.approx(6 / 7)
    assert found["accuracy.de-en"].value == np.mean(backward) == 1
    assert found["accuracy"].n == 7


def test_sentences_without_words_or_vectors_are_not_retrieved():
    class Half(Planted):
        """Encoder that has no vector for the number 0."""

        def encode(self, sentences, *, progress=False):
            found = super().encode(sentences)
            found.covered = np.array([word[1:] != "0" for each in sentences for word in each.words])
            found.data[~found.covered] = 0
            return found

    text = ParallelCorpus.of(
        [["e0"], ["e1"], [], ["e2"]], [["d0"], ["d1"], ["d5"], ["d2"]], ("en", "de")
    )
    found = by_metric(SentenceRetrieval(text, bootstrap=0).evaluate(Half()))
    assert found["accuracy"].n == 3
    assert found["accuracy"].value == pytest.approx(2 / 3)
    assert found["xsim"].value == pytest.approx(1 / 3)
    assert found["accuracy"].settings["sentences_without_vector"] == 1
    with pytest.raises(SettingError, match="planted has no vector for any of 1 sentences in en"):
        SentenceRetrieval(text[:1], bootstrap=0).evaluate(Half())


# -- mining ----------------------------------------------------------------------------------------
def test_mined_pairs_are_scored_against_the_gold_pairs():
    test, dev, encoder = corpus(50, 0), corpus(40, 7), Planted()
    task = SentenceRetrieval(test, dev=dev, bootstrap=50)
    found = by_metric(task.evaluate(encoder))
    assert list(found)[-3:] == ["f1", "precision", "recall"]
    mined = mine(
        best_by_margin(
            *(encoder.encode(side).sentence_means() for side in (test.source, test.target))
        )
    )
    threshold = found["f1"].settings["threshold"]
    said = {
        (i, j)
        for i, j, s in zip(mined.source, mined.target, mined.scores, strict=True)
        if s >= threshold
    }
    gold = {(k, k) for k in range(50)}
    assert found["precision"].value == pytest.approx(len(said & gold) / len(said))
    assert found["recall"].value == pytest.approx(len(said & gold) / len(gold))
    assert found["f1"].value == pytest.approx(2 * len(said & gold) / (len(said) + len(gold)))
    assert found["f1"].value > 0.5
    assert found["f1"].low < found["f1"].value < found["f1"].high


def test_mining_parallel_text_uses_each_distinct_sentence_once():
    text = corpus(30, changed=0)
    doubled = text + text[:5] + ParallelCorpus.of([["e1"], []], [[], ["d1"]], ("en", "de"))
    pairs = minable(doubled)
    assert (len(pairs.source), len(pairs.target), pairs.gold.tolist()) == (
        31,
        31,
        [[k, k] for k in range(30)],
    )
    encoder = Planted()
    found = by_metric(
        SentenceRetrieval(doubled, dev=corpus(30, 2, changed=0), bootstrap=0).evaluate(encoder)
    )
    assert (found["f1"].value, found["f1"].settings["gold_pairs"], found["accuracy"].n) == (
        1.0,
        30,
        35,
    )
    assert encoder.passes == 4  # each side of each text is encoded once


# -- the command line ------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write parallel text in the vocabulary of the tiny encoder."""
    lines = [
        "the cat sees a house",
        "a house of time",
        "water in the house.",
        "time and water",
        "the water",
        "a cat",
    ]
    for name in ("test.tsv", "dev.tsv"):
        (tmp_path / name).write_text(
            "".join(f"{line}\t{line}, {k}\n" for k, line in enumerate(lines))
        )
    for lang in ("en", "de"):
        (tmp_path / f"moses.{lang}").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_scores_retrieval_and_mining(files, capsys, tiny_folder):
    job = ("evaluate", tiny_folder, "sentences", "--langs", "en", "de", "-q")
    shown, _ = works(capsys, *job, "--test", "test.tsv", "--dev", "dev.tsv", "--out", "out.jsonl")
    for metric in ("accuracy ", "accuracy.de-en", "xsim.en-de", "f1 ", "recall"):
        assert f"sentences {metric}" in shown
    records = [json.loads(line) for line in (files / "out.jsonl").read_text().splitlines()]
    assert records[0]["metric"] == "accuracy"
    assert records[0]["settings"]["pooled"] == "words"
    assert records[-1]["settings"]["dev"] == ["dev.tsv"]
    more = ("--sentence-pooling", "cls", "--option", "k=3")
    found = json.loads(works(capsys, *job, "--test", "test.tsv", *more, "--json")[0])
    assert (found["metric"], found["n"], found["settings"]["pooled"]) == ("accuracy", 6, "cls")
    assert found["settings"]["margin_k"] == 3
    found = json.loads(works(capsys, *job, "--test", "moses", "--similarity", "csls", "--json")[0])
    assert (found["metric"], found["value"]) == ("accuracy", 1.0)
    works(capsys, "report", "out.jsonl", "--out", "report.html")
    assert "Sentence retrieval: accuracy" in (files / "report.html").read_text()


def test_encoders_before_and_after_alignment_have_one_pooling_which_is_printed(
    files, capsys, tiny_folder
):
    encoder = load_encoder(tiny_folder)
    encoder.save("base")
    SentencePooling("own", "subwords", ("cls", "mean")).save(encoder, "base")
    folders = ["base"]
    for name, *more in (
        ("rotation", "--method", "rotation"),
        ("layer", "--method", "rotation", "--layer", "1"),
        ("tuned", "--method", "contrastive", "--option", "epochs=1"),
        ("lora", "--method", "contrastive", "--option", "lora=2"),
    ):
        works(
            capsys,
            "align",
            "test.tsv",
            "--langs",
            "en",
            "de",
            "--towards",
            "en",
            "--encoder",
            "base",
            "--out",
            name,
            *more,
        )
        folders.append(name)
    job = ("sentences", "--test", "test.tsv", "--langs", "en", "de", "-q")
    for folder in folders:
        assert "Sentence pooling: own (cls+mean)." in works(capsys, "evaluate", folder, *job)[0], (
            folder
        )
    shown = works(
        capsys, "evaluate", "base", *job, "--sentence-pooling", "subwords", "--prompt", "the cat: "
    )[0]
    assert "Sentence pooling: subwords, prompt 'the cat: '." in shown
    about = json.loads((files / "rotation" / "calque-run.json").read_text())
    assert about["kind"] == "mapped"
    card = (files / "rotation" / "README.md").read_text()
    assert "By design, transformers cannot open this folder" in card
    assert "library_name: calque" in card
    assert "SentenceTransformer(FOLDER, trust_remote_code=True)" in card
    assert 'model.encode(["a bank by the river"], language="de")' in card
    assert "SentenceTransformer(FOLDER)" in (files / "tuned" / "README.md").read_text()


def test_a_pooling_that_differs_from_that_of_the_base_encoder_is_explained(
    files, capsys, tiny_folder
):
    encoder = load_encoder(tiny_folder)
    encoder.save("base")
    SentencePooling("own", "subwords").save(encoder, "base")
    job = (
        "align",
        "test.tsv",
        "--langs",
        "en",
        "de",
        "--towards",
        "en",
        "--encoder",
        "base",
        "--method",
        "rotation",
    )
    works(capsys, *job, "--out", "sum", "--option", "layers=1,3", "--option", "combine=sum")
    shown = works(
        capsys, "evaluate", "sum", "sentences", "--test", "test.tsv", "--langs", "en", "de", "-q"
    )[0]
    assert "Sentence pooling: words, because" in shown
    assert "returns the mapped layers 1, 3, but the pooling of" in shown
    assert "compare only scores with the same pooling" in shown


def test_the_command_rejects_options_that_do_not_apply(files, capsys, tiny_folder):
    job = ("evaluate", tiny_folder, "sentences", "--langs", "en", "de")
    assert "pooling modules" in fails(
        capsys, *job, "--test", "test.tsv", "--sentence-pooling", "own"
    )
    assert "--train does not apply to sentences" in fails(
        capsys, *job, "--test", "test.tsv", "--train", "x"
    )
