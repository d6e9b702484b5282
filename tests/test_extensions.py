"""Test that one declaration adds a method, a task, a text format or an option.

Each part is defined in a temporary module, as a user would do it, and must work in the help, on the
command line, in a study, in a report and in a model card.
"""

import sys

import pytest

from calque.cli.parser import help_of
from command import fails, works

MODULE = '''
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch.nn.functional import cosine_similarity

from calque.algebra.normalize import unit_rows
from calque.alignment.data import LinkedText
from calque.alignment.tuner import Tuner
from calque.corpora import RawPair
from calque.spec import Option, option
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure


@dataclass(frozen=True, kw_only=True)
class Cosine(Tuner):
    """Minimise the mean of 1 - cos(x_k, y_k) over linked words."""

    margin: float = option(0.0, "Distance below which a pair of words costs nothing.")
    note: str = option("", "Note for the model card.", role="description")
    speed: str = option("slow", "How fast.", role="run")

    def loss(self, batch):
        distance = 1 - cosine_similarity(batch.source, batch.target)
        return (distance - self.margin).relu().mean()


class Paraphrases(Task):
    """Are the mean vectors of two paraphrases similar?"""

    def __init__(self, corpus, data, *, threshold=0.5):
        self.corpus, self.data, self.threshold = corpus, data, threshold

    @classmethod
    def from_files(
        cls,
        inputs,
        *,
        threshold: Annotated[float, Option("Cosine above which two texts are similar.")] = 0.5,
    ):
        return [
            cls(corpus, test, threshold=threshold)
            for test, corpus in inputs.corpora()
        ]

    def evaluate(self, encoder, *, progress=False):
        means = []
        for side in (self.corpus.source, self.corpus.target):
            means.append(np.stack([each.mean(axis=0) for each in encoder.encode(side)]))
        cosines = (unit_rows(means[0]) * unit_rows(means[1])).sum(axis=1)
        similar = (cosines > self.threshold).astype(float)
        counts = np.stack([similar, np.ones(len(similar))], axis=1)
        measured = measure(counts, accuracy)
        settings = {"threshold": self.threshold, **about_encoder(encoder)}
        about = (self.data, self.corpus.langs, "accuracy", *measured.ends, len(similar), 0)
        return [Score("paraphrases", *about, settings, **measured.kept)]


def read_arrows(path, *, langs):
    """Lines with an arrow between source and target."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            source, _, target = line.strip().partition(" -> ")
            yield RawPair(number, source, target)
'''
STUDY = """
encoders = { tiny = "%s" }
[methods.cosine]
method = "extensions_module:Cosine"
margin = 0.125
epochs = 1
[supervision.text]
de = "train.tsv"
[tasks.paraphrases]
task = "extensions_module:Paraphrases"
test = { de = "train.tsv" }
threshold = 0.25
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "extensions_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "extensions_module", raising=False)
    pairs = [("the cat sees a house", "die Katze sieht ein Haus"), ("a dog", "ein Hund")] * 10
    (tmp_path / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    (tmp_path / "train.arrows").write_text("".join(f"{a} -> {b}\n" for a, b in pairs))
    return tmp_path


def align(folder, encoder, text="train.tsv", *more):
    job = ["align", folder / text, "--langs", "en", "de", "--encoder", encoder, "--towards", "en"]
    return [*job, "--out", folder / "out", "--epochs", "1", "-q", *more]


def test_a_method_with_an_option_of_its_own(capsys, folder, tiny_folder):
    page = help_of("align", ("extensions_module:Cosine", "parallel"))
    assert "Distance below which a pair of words costs nothing." in " ".join(page.split())
    job = align(folder, tiny_folder, "train.tsv", "--method", "extensions_module:Cosine")
    works(capsys, *job, "--margin", "0.125")
    card = (folder / "out" / "README.md").read_text()
    assert "margin" in card
    assert "0.125" in card
    assert "--margin = 'x', expected a number" in fails(capsys, *job, "--margin", "x")


def test_a_task_with_an_option_of_its_own(capsys, folder, tiny_folder):
    task = "extensions_module:Paraphrases"
    page = " ".join(help_of("evaluate", task).split())
    assert "Are the mean vectors of two paraphrases similar?" in page
    assert "--threshold X Cosine above which two texts are similar. [default: 0.5]" in page
    job = ("evaluate", tiny_folder, task, "--test", folder / "train.tsv", "--langs", "en", "de")
    scores = folder / "scores.jsonl"
    works(capsys, *job, "--threshold", "0.25", "--out", scores, "-q")
    works(capsys, "report", scores, "--out", folder / "report.html", "-q")
    assert "paraphrases" in (folder / "report.html").read_text().lower()


def test_a_reader(capsys, folder, tiny_folder):
    job = align(folder, tiny_folder, "train.arrows", "--method", "rotation")
    job = [word for word in job if word not in ("--epochs", "1")]
    works(capsys, *job, "--format", "extensions_module:read_arrows")
    assert "train.arrows" in (folder / "out" / "README.md").read_text()


def test_a_study_runs_the_method_and_the_task(capsys, folder, tiny_folder):
    (folder / "study.toml").write_text(STUDY % tiny_folder)
    out, _ = works(
        capsys, "study", folder / "study.toml", "--data", folder, "--out", folder / "s", "-q"
    )
    assert "cosine" in out
    assert '"threshold": 0.25' in (folder / "s" / "results.jsonl").read_text()
    works(capsys, "report", folder / "s", "--out", folder / "report.html", "-q")
    assert "cosine" in (folder / "report.html").read_text()


def test_the_role_of_a_setting_decides_what_is_recorded_and_what_resumes(folder, tiny_encoder):
    from calque import read_parallel
    from calque.alignment.base import Run
    from calque.errors import SettingError
    from calque.wordalign import align_words

    sys.path_importer_cache.clear()
    import extensions_module

    def method(**settings):
        return extensions_module.Cosine(towards="en", epochs=1.0, **settings)

    text = read_parallel(folder / "train.tsv", langs=("en", "de"))
    data = extensions_module.LinkedText((text,), (align_words(text),))
    settings = method(note="a", speed="fast").fit(tiny_encoder, data).record["settings"]
    assert settings["note"] == "a"
    assert "speed" not in settings
    run = Run(folder / "run", checkpoint_every=1)
    method().fit(tiny_encoder, data, run)
    method(note="b", speed="fast").fit(tiny_encoder, data, run)  # resumes from the checkpoint
    with pytest.raises(SettingError, match="margin"):
        method(margin=0.5).fit(tiny_encoder, data, run)
