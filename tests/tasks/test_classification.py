"""Tests of the classification of texts and text pairs."""

import numpy as np
import pytest
import torch

from calque.annotated import LabelledText, Labels
from calque.errors import InputError, SettingError
from calque.tasks.classification import Classification, TextHead, macro_f1, relabelled, side_by_side
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.zeroshot import Experiment
from calque.text import Sentences
from calque.training.sources import WordRows
from planted import Planted, labelled


def test_pairs_from_several_training_texts_stay_together():
    parts = [labelled(7, "en", seed, pairs=True) for seed in (0, 1)] + [
        labelled(4, "fr", 2, pairs=True)
    ]
    job = Classification("nli", parts, [labelled(3, "de", pairs=True)], seeds=(0,))
    encoder = Planted()
    run = Experiment(job, encoder)
    pairs = [
        (a.words, b.words, each.data.labels[k])
        for each in parts
        for k, (a, b) in enumerate(zip(*each.data.texts, strict=True))
    ]
    numbers = np.array([16, 3, 8, 0])
    given = run.text.take(numbers)
    right = run.answers.of_texts("labels", given.numbers)
    rows, place = given.rows.numpy(), 0
    for column in range(2):
        for k in numbers:
            for word in pairs[k][column]:
                np.testing.assert_allclose(rows[place], encoder.vector(word), atol=1e-6)
                place += 1
    assert [job.labels[code] for code in right] == [pairs[k][2] for k in numbers]
    assert place == len(rows)
    texts = parts[0].data.texts
    assert [s.words for s in side_by_side(texts)] == [
        s.words for pair in zip(*texts, strict=True) for s in pair
    ]


def test_the_dense_layers_receive_means_differences_and_products_of_text_pairs():
    """Check the input [u; v; |u − v|; u·v], where u and v are the mean vectors of the two texts."""
    head = TextHead(2, 3, columns=2, lstm=False, hidden=4, dropout=0.0)
    rows, seen = torch.randn(5, 2), []
    head.dense.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    head(rows, torch.tensor([1, 2, 1, 1]))  # two first texts, followed by two second texts
    u, v = torch.stack([rows[0], rows[1:3].mean(0)]), rows[3:]
    torch.testing.assert_close(seen[0], torch.cat([u, v, (u - v).abs(), u * v], dim=1))


def test_fine_tuning_learns_labels_from_two_files_of_text_pairs(tiny_encoder):
    """Use data in which only the second text of a pair determines the label."""
    rng = np.random.default_rng(0)

    def text(n):
        first, second = (
            [[["the", "in", "a", "e"][k]] for k in rng.integers(4, size=n)] for _ in range(2)
        )
        labels = Labels.of(["yes" if words[0] in ("the", "in") else "no" for words in second])
        return Dataset(
            "en.tsv",
            "en",
            LabelledText((Sentences.of(first, "en"), Sentences.of(second, "en")), labels),
        )

    options = {"epochs": 6, "learning_rate": 3e-3, "batch": 16}
    job = Classification(
        "nli", [text(70), text(50)], [text(40)], tune=True, seeds=(0,), options=options, bootstrap=0
    )
    score = job.evaluate(tiny_encoder)[0]
    assert score.settings["head"] == "cls"
    assert score.value > 0.75


def in_order(n, lang, seed):
    """Return pairs whose second text is two adjacent words of the first text: yes if in the same
    order, else no.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    first, second, labels = [], [], []
    for _ in range(n):
        text = [f"{lang[0]}{k}" for k in rng.permutation(10)[: rng.integers(3, 7)]]
        k, yes = rng.integers(len(text) - 1), rng.random() < 0.5
        first.append(text)
        second.append(text[k : k + 2] if yes else text[k : k + 2][::-1])
        labels.append("yes" if yes else "no")
    columns = (Sentences.of(first, lang), Sentences.of(second, lang))
    return Dataset(f"{lang}.tsv", lang, LabelledText(columns, Labels.of(labels)))


def test_esim_uses_word_order_but_means_do_not():
    values = {}
    for head in ("mean", "esim"):
        options = {"epochs": 8, "learning_rate": 5e-3, "batch": 16, "patience": 8}
        job = Classification(
            "nli",
            [in_order(600, "en", 0)],
            [in_order(200, "de", 1)],
            head=head,
            hidden=24,
            dropout=0.0,
            seeds=(0,),
            options=options,
            bootstrap=0,
        )
        score = job.evaluate(Planted())[0]
        assert (score.settings["head"], score.settings["hidden"], score.settings["dropout"]) == (
            head,
            24,
            0.0,
        )
        values[head] = score.value
    assert values["mean"] < 0.6
    assert values["esim"] > 0.72


def test_esim_requires_text_pairs_and_frozen_vectors():
    with pytest.raises(
        SettingError,
        match="head esim requires text pairs, but sentiment classifies single texts; use",
    ):
        Classification("sentiment", [labelled(9, "en")], [labelled(9, "de")], head="esim")
    pairs = [labelled(9, "en", pairs=True)], [labelled(9, "de", pairs=True)]
    with pytest.raises(SettingError, match="head esim cannot be used with tune=True"):
        Classification("nli", *pairs, head="esim", tune=True)
    with pytest.raises(
        SettingError, match="head must be one of mean, bilstm, esim, cls, got 'esin'"
    ):
        Classification("nli", *pairs, head="esin")


def test_labels_can_be_renamed_or_removed():
    data = labelled(20, "en").data
    found = relabelled(data, {"good": "gut", "bad": ""})
    assert found.labels.to_list() == ["gut"] * data.labels.to_list().count("good")
    kept = [
        s.words
        for s, label in zip(data.texts[0], data.labels.to_list(), strict=True)
        if label == "good"
    ]
    assert [s.words for s in found.texts[0]] == kept
    assert relabelled(data, {"good": "bad"}).labels.names == ("bad",)
    with pytest.raises(InputError, match="--rename removes all texts"):
        relabelled(data, {"good": "", "bad": ""})


def test_macro_f1_equals_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    job = Classification("sentiment", [labelled(20, "en")], [labelled(5, "de")], seeds=(0,))
    rng = np.random.default_rng(0)
    for n, labels in ((40, 3), (3, 4)):  # in the second case, a label may occur in neither list
        job.labels = tuple("abcd"[:labels])
        gold, found = rng.integers(labels, size=n), rng.integers(labels, size=n)
        head = torch.nn.Module()
        head.forward = lambda rows, lengths, found=found: torch.eye(4)[found]
        given = WordRows(torch.zeros(n, 2), torch.ones(n, dtype=torch.int64), np.arange(n))
        sums = job.counts(head, given, Answers(np.ones(n, dtype=np.int64), texts={"labels": gold}))
        expected = metrics.f1_score(
            gold, found, labels=range(labels), average="macro", zero_division=0
        )
        assert macro_f1(sums["macro-f1"].sum(axis=0).astype(float)) == pytest.approx(expected)
        assert sums["accuracy"].sum(axis=0).tolist() == [
            metrics.accuracy_score(gold, found, normalize=False),
            n,
        ]
    assert set(job.statistics) == {"accuracy", "macro-f1"}
