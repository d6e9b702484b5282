"""Trackers of a study, and adapters as an option of its methods."""

from __future__ import annotations

import json
import os

import pytest

from calque.encoders import load_encoder
from calque.errors import InputError
from calque.runs.study import study
from command import fails, works

PLAN = """
seeds = 1
runs = 1
[encoders]
tiny = "{encoder}"
[methods.base]
[methods.adapters]
method = "contrastive"
epochs = 1
batch = 4
{more}
[supervision.parallel]
de = "train.tsv"
[tasks.retrieval]
test = {{ de = "train.tsv" }}
"""

KEEPS = """
from pathlib import Path

from accelerate.tracking import GeneralTracker


class Kept(GeneralTracker):
    name, requires_logging_directory = "kept", True

    def __init__(self, run, folder):
        super().__init__()
        Path(folder).mkdir(exist_ok=True)
        self.file = open(Path(folder) / run, "w")

    @property
    def tracker(self):
        return self.file

    def store_init_configuration(self, values):
        pass

    def log(self, values, step=None, **kwargs):
        print(step, *sorted(values), file=self.file)

    def finish(self):
        self.file.close()
"""


@pytest.fixture
def plan(tmp_path, tiny_folder, monkeypatch):
    words = ["the", "cat", "in", "a", "house"]
    lines = [f"{' '.join(words[k % 3 :])}\t{' '.join(words[k % 3 :]).upper()}\n" for k in range(12)]
    (tmp_path / "train.tsv").write_text("".join(lines))
    (tmp_path / "keeping.py").write_text(KEEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(more=""):
        (tmp_path / "study.toml").write_text(PLAN.format(encoder=tiny_folder, more=more))
        return tmp_path / "study.toml"

    return write


@pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning")
@pytest.mark.parametrize("workers", [1, 2])
def test_every_step_that_trains_is_a_run(plan, tmp_path, workers, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = plan()
    options = ("--track", "keeping:Kept", "--track-folder", tmp_path / "seen", "--workers", workers, "-q")
    works(capsys, "study", path, *options)
    (run,) = (tmp_path / "seen").iterdir()  # neither links nor scores of words are trained
    assert run.name.startswith("align-")
    assert "adapters" in run.name
    lines = run.read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == [1, 2, 3]
    assert all("/loss" in line for line in lines)
    run.unlink()
    works(capsys, "study", path, *options)  # all is done: there is nothing to show, and nothing to complain of
    assert not list((tmp_path / "seen").iterdir())


def test_a_tracker_that_cannot_be_is_told_before_anything_is_done(plan, tmp_path, capsys):
    assert "unknown tracker 'tensorbord', expected one of " in fails(capsys, "study", plan(), "--track", "tensorbord")
    assert not (tmp_path / "study").exists()


def test_adapters_are_an_option_of_a_method(plan, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed: pip install 'calque-align[peft]'")
    records = study(plan("lora = 2"))
    assert {record["method"] for record in records} == {"base", "adapters"}
    (folder,) = (tmp_path / "study" / "steps").glob("align-*")
    assert (folder / "adapter_config.json").exists()
    assert not (folder / "model.safetensors").exists()
    place = json.loads((folder / "calque.json").read_text())["adapted"]["place"]
    assert load_encoder(folder).dim == load_encoder(place).dim
    with pytest.raises(InputError, match=r"methods\.adapters: lora must be at least 1"):
        study(plan("lora = 0"))


def test_adapters_without_their_library_are_told_before_anything_is_done(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(Exception, match=r"pip install 'calque-align\[peft\]'"):
        study(plan("lora = 2"))
    assert not (tmp_path / "study" / "steps").exists()
