"""Tests of edge probing: planted labels are learnt, and counts equal those of a loop over
targets.
"""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from calque.corpora.probes import of_treebank
from calque.errors import SettingError
from calque.nn.probe import SpanRows
from calque.report.questions import find_subjects, sort_questions
from calque.report.reading import read_results
from calque.tasks.datasets import Dataset
from calque.tasks.probing import Probing
from command import works
from planted import QUICK, KeyPoints, Planted, asked, spans, trees, words, write_trees

SMALL = {"seeds": (0,), "bootstrap": 50, "width": 24, "hidden": 24, "options": QUICK}


def number(word):
    return int(word[1:])


def tags(n, lang, seed=0, *, behind=0, name=None):
    """Label each word except the first as even or odd, by its own number or that of the word
    `behind` positions before it.
    """
    text = words(np.random.default_rng([seed, ord(lang[0])]), n, lang, 2, 7)
    parity = ("even", "odd")
    targets = [
        [([(k, k + 1)], [parity[number(s[k - behind]) % 2]]) for k in range(1, len(s))]
        for s in text
    ]
    return asked(text, lang, targets, "pos", name)


def pairs(n, lang, seed=0):
    """Label each sentence by whether the number of its first word is lower than that of its last
    word.
    """
    text = words(np.random.default_rng([seed, ord(lang[0])]), n, lang, 2, 5, vocabulary=6)
    return asked(
        text,
        lang,
        [
            [
                (
                    [(0, 1), (len(s) - 1, len(s))],
                    ["lower" if number(s[0]) < number(s[-1]) else "not lower"],
                )
            ]
            for s in text
        ],
    )


# -- learnable labels ------------------------------------------------------------------------------
def test_the_probe_reads_only_the_words_of_a_span():
    own, before = (
        Probing(
            [tags(300, "en", behind=behind)], [tags(80, "de", 1, behind=behind)], **SMALL
        ).evaluate(Planted())[0]
        for behind in (0, 1)
    )
    assert own.value > 0.97
    assert before.value < 0.65
    assert own.languages == ("en", "de")


def test_the_probe_learns_labels_of_span_pairs():
    job = Probing([pairs(600, "en")], [pairs(100, "de", 1)], **SMALL)
    f1, precision, recall = job.evaluate(Planted())
    assert [score.metric for score in (f1, precision, recall)] == ["f1", "precision", "recall"]
    assert f1.value > 0.95
    assert job.evaluate(Planted(constant=True))[0].value < 0.8


# -- counts ----------------------------------------------------------------------------------------
def literal(job, head, encoder, each):
    """Count correct, predicted and gold labels of each text, one target at a time."""
    counts, data = [], each.data
    gold = data.labels.to_list()
    points = encoder.key_points(data.sentences) if isinstance(encoder, KeyPoints) else None
    vectors = encoder.encode(data.sentences)
    for s, (a, b) in enumerate(pairwise(data.offsets)):
        rows, right, guess, true = torch.from_numpy(vectors[s]), 0, 0, 0
        for k in range(a, b):
            labels = set(gold[data.label_offsets[k] : data.label_offsets[k + 1]])
            true += len(labels)
            places = [list(range(*span)) for span in data.spans[k].tolist()]
            if points is not None:
                chosen = points.data[points.offsets[s] : points.offsets[s + 1]].tolist()
                places = [
                    [chosen.index(place) for place in span if place in chosen] for span in places
                ]
            if not all(places):
                continue
            p = torch.sigmoid(
                head(
                    rows,
                    [SpanRows(torch.tensor(span), torch.tensor([len(span)])) for span in places],
                )
            )[0]
            predicted = {
                name for name, each in zip(job.labels, p.tolist(), strict=True) if each > 0.5
            }
            right, guess = right + len(predicted & labels), guess + len(predicted)
        counts.append([right, guess, true])
    return np.array(counts)


def random_targets(n, lang, seed, width):
    """Return spans of all lengths, each with some of the labels, once or twice; some texts have no
    target.
    """
    rng = np.random.default_rng([seed, width])
    text = words(rng, n, lang, 1, 9)
    targets = [
        [
            (
                [
                    tuple(sorted(rng.choice(len(s) + 1, 2, replace=False).tolist()))
                    for _ in range(width)
                ],
                [name for name in "ABCD"[: 3 + seed] if rng.random() < 0.4]
                * int(rng.integers(1, 3)),
            )
            for _ in range(rng.integers(0, 5))
        ]
        for s in text
    ]
    return asked(text, lang, targets)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("kind", [Planted, KeyPoints])
def test_counts_and_losses_equal_a_loop_over_targets(kind, width):
    """Label D occurs only in the test text, so it is never predicted."""
    encoder = kind()
    job = Probing(
        [random_targets(30, "en", 0, width)], [random_targets(25, "de", 1, width)], **SMALL
    )
    assert job.labels == ("A", "B", "C")
    torch.manual_seed(1)
    head = job.head(encoder.dim).eval()
    each = job.tests[0]
    answers, source = (
        job.answers(each),
        job.frozen(job.encoded(encoder, each.data), torch.device("cpu")),
    )
    numbers = np.random.default_rng(0).permutation(len(each.data))
    with torch.no_grad():
        given = source.take(numbers)
        found = job.counts(head, given, answers)
        expected = literal(job, head, encoder, each)
        losses = job.losses(head, given, answers).numpy()
    assert set(found) == {"f1", "precision", "recall"}
    np.testing.assert_array_equal(found["f1"], expected[numbers])
    right, guess, true = expected.sum(axis=0)
    values = {
        name: float(statistic(expected.sum(axis=0))) for name, statistic in job.statistics.items()
    }
    assert values["precision"] == pytest.approx(right / guess)
    assert values["recall"] == pytest.approx(right / true)
    assert values["f1"] == pytest.approx(2 * right / (guess + true))
    assert true < len(each.data.labels)  # labels that are listed twice for a target count once
    assert job.settings_of(each)["unknown_labels"] == each.data.labels.to_list().count("D") > 0
    # The losses of all targets, computed at once, have the same sum.
    given = source.take(np.arange(len(each.data)))
    targets = answers.targets(given)
    with torch.no_grad():
        scores = head(given.rows, targets.spans)
    whole = head.losses(scores, torch.from_numpy(answers.gold[targets.numbers])).sum()
    assert losses.sum() * len(job.train[0].data.spans) / 30 == pytest.approx(float(whole), rel=1e-4)


# -- settings --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (
            lambda: Probing([pairs(5, "en")], [spans(5, "de")]),
            "all files must be for one probing task",
        ),
        (
            lambda: Probing([asked([["a"]], "en", [[]])], [spans(5, "de")]),
            "en.jsonl: the file must have labelled spans",
        ),
        (
            lambda: Probing([asked([["a"]], "en", [[([(0, 1)], [])]])], [spans(5, "de")]),
            "targets must have labels",
        ),
    ],
)
def test_invalid_settings_are_rejected(make, fact):
    with pytest.raises(SettingError, match=fact):
        make()


def test_two_probes_on_one_file_are_compared_separately(tmp_path):
    bank = trees(30, "en")
    dependencies = Dataset(bank.name, "en", of_treebank(bank.data))
    few = SMALL | {"options": {"epochs": 1}, "bootstrap": 2}
    jobs = [
        Probing([each], [each], **few) for each in (tags(30, "en", name=bank.name), dependencies)
    ]
    scores = [score for job in jobs for score in job.evaluate(Planted())]
    assert {score.data for score in scores} == {"en.conllu (pos)", "en.conllu (dependencies)"}
    (tmp_path / "r.jsonl").write_text("".join(score.to_json() + "\n" for score in scores))
    results = read_results([tmp_path / "r.jsonl"])
    questions, superseded = sort_questions(results.records, find_subjects(results, None))
    assert superseded == 0
    assert {question.variant for question in questions} == {"probe: pos", "probe: dependencies"}
    assert [question.metric for question in questions if question.is_main] == ["f1", "f1"]


# -- from files ------------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path, monkeypatch):
    write_trees(trees(30, "en"), tmp_path / "en_tree.conllu")
    write_trees(trees(10, "de", 1), tmp_path / "de_tree.conllu")
    for lang, n in (("en", 30), ("de", 8)):
        line = {
            "text": f"{lang}1 {lang}2",
            "targets": [{"span1": [0, 1], "span2": [1, 2], "label": "before"}],
        }
        (tmp_path / f"pairs.{lang}.jsonl").write_text((json.dumps(line) + "\n") * n)
    (tmp_path / "ner.en.tsv").write_text("e1\tB-PER\ne2\tO\n\ne3\tB-LOC\ne4\tI-LOC\n\n" * 6)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job_of(*arguments):
    return (
        "probing",
        *arguments,
        "--seeds",
        1,
        "--epochs",
        1,
        "--hidden",
        8,
        "--option",
        "width=8",
    )


@pytest.mark.parametrize(
    ("arguments", "probe"),
    [
        (("--train", "en_tree.conllu", "--test", "de_tree.conllu", "--probe", "pos"), "pos"),
        (
            ("--train", "en_tree.conllu", "--test", "de_tree.conllu", "--probe", "dependencies"),
            "dependencies",
        ),
        (("--train", "pairs.en.jsonl", "--test", "pairs.de.jsonl", "--probe", "order"), "order"),
        (("--train", "ner.en.tsv", "--test", "de=ner.en.tsv"), "entities"),
    ],
)
def test_every_probe_can_be_scored_from_files(files, tiny_folder, capsys, arguments, probe):
    printed, _ = works(capsys, "evaluate", tiny_folder, *job_of(*arguments), "--json")
    found = json.loads(printed.splitlines()[-1])
    name = arguments[3].split("=")[-1]
    assert (found["task"], found["data"], found["metric"]) == ("probing", f"{name} ({probe})", "f1")
    assert found["settings"]["probe"] == probe
