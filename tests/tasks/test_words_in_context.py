"""Words in context: what the head sees, and what is learnt from it."""

import json

import numpy as np
import torch

from calque.annotated import Labels
from calque.corpora.word_pairs import WordPairText
from calque.tasks.datasets import Dataset
from calque.tasks.experiment import Experiment
from calque.tasks.words_in_context import WordsInContext
from calque.text import Sentences
from command import fails, works
from planted import Planted, in_context


def test_the_head_sees_the_word_of_either_text_and_nothing_else():
    data = in_context(9, "en")
    texts = (data.data.texts[0], Sentences.of([[*each.words, "e0"] for each in data.data.texts[1]], "en"))
    spans = data.data.spans.copy()
    spans[4, 1] = [0, len(texts[1][4].words)]  # a word of several
    data = Dataset("x", "en", WordPairText(texts, spans, data.data.labels))
    job, encoder = WordsInContext([data], [data], seeds=(0,)), Planted()
    given = Experiment(job, encoder).text.take(np.array([7, 4]))
    expected = []
    for column in range(2):
        for k in (7, 4):
            start, end = spans[k, column]
            expected += [encoder.vector(word) for word in texts[column][k].words[start:end]]
    np.testing.assert_allclose(given.rows.numpy(), np.array(expected), atol=1e-6)
    assert given.lengths.tolist() == [1, 1, 1, len(texts[1][4].words)]


def test_an_encoder_learns_along(tiny_encoder):
    """A word that follows `time` means something else than one that follows `water`; the head alone cannot know."""
    rng = np.random.default_rng(0)

    def text(n):
        before = rng.integers(2, size=(n, 2))
        columns = [[[("time", "water")[k], "cat"] for k in side] for side in before.T]
        labels = Labels.of(["same" if a == b else "different" for a, b in before])
        first, second = (Sentences.of(column, "en") for column in columns)
        return Dataset("x", "en", WordPairText((first, second), np.full((n, 2, 2), [1, 2]), labels))

    options = {"epochs": 8, "learning_rate": 1e-3, "batch": 16}
    job = WordsInContext(
        [text(200), text(200)], [text(40)], tune=True, seeds=(0,), options=options, hidden=24, dropout=0.0, bootstrap=0
    )
    before = {name: value.clone() for name, value in tiny_encoder.model.state_dict().items()}
    score = job.evaluate(tiny_encoder)[0]
    assert score.value > 0.9
    assert (score.metric, score.n, score.settings["features"]) == ("accuracy", 40, "tuned")
    after = tiny_encoder.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_from_the_command_line(tmp_path, capsys, tiny_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for lang in ("en", "de"):
        rows = [f"water\tN\t4\t9\t2\t7\tthe water of time\ta water in the house\t{k % 2}\n" for k in range(8)]
        (tmp_path / f"wic.{lang}.txt").write_text("".join(rows), encoding="utf-8")
    job = ("evaluate", tiny_folder, "wic", "--train", "wic.en.txt", "--test", "wic.de.txt", "--seeds", 1, "--epochs", 1)
    shown, _ = works(capsys, *job, "--json", "-q")
    score = json.loads(shown.splitlines()[-1])
    assert (score["task"], score["metric"], score["n"], score["settings"]["head"]) == ("wic", "accuracy", 8, "mean")
    assert "--layers does not apply to wic" in fails(capsys, *job, "--layers", 3)
