"""Run every recipe at its smallest size, on small files in the layout that it expects."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

import forked
from calque.alignment import METHODS
from calque.corpora.languages import language_and_path
from calque.runs.steps import Steps
from calque.runs.study import read_study, study
from calque.runs.study.files import check_files
from calque.runs.study.grid import Grid
from calque.runs.study.work import WORK
from calque.tasks.table import TASKS
from recipe_files import kind_of, strings, write
from toml_text import toml_file

FOLDER = Path(__file__).parents[2] / "recipes"
STUDIES = sorted(FOLDER.glob("*.toml"))
#: published encoders of the recipes, and the families of the tiny models that replace them
PUBLISHED = {
    "google/gemma-3-270m": "gpt2",
    "Helsinki-NLP/opus-mt-en-fr": "bert",
    "Helsinki-NLP/opus-mt-fr-en": "bert",
    "sentence-transformers/all-MiniLM-L6-v2": "bert",
}
PRETRAINED = {
    "elmo": {"dim": 4, "hidden": 6, "filters": [[1, 4], [2, 4]], "vocabulary": 60, "negatives": 8},
    "bert": {
        "dim": 8,
        "layers": 1,
        "heads": 2,
        "inner": 8,
        "vocabulary": 80,
        "length": 16,
        "positions": 32,
    },
}
OTHER_TASKS = ("retrieval", "sentences", "word-alignment", "consistency", "lexicon", "wsd")
pytestmark = [
    pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning"),
    pytest.mark.filterwarnings("ignore::calque.errors.CalqueWarning"),
    pytest.mark.filterwarnings("ignore::calque.alignment.dictionary.FailedMapWarning"),
]


@pytest.fixture
def data(tmp_path, family_folders, tiny_folder, monkeypatch):
    """Return a folder with a tiny model for each published encoder of the recipes."""
    from calque.encoders import loading

    monkeypatch.setitem(loading.BUNDLED, "mini", tiny_folder)
    for name, family in PUBLISHED.items():
        shutil.copytree(family_folders(family), tmp_path / name)
    return tmp_path


def plan_of(path: Path) -> dict:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def write_files(plan: dict, folder: Path) -> None:
    for each in strings(plan):
        write(folder, each)


# -- shrinking a study -----------------------------------------------------------------------------
def small(plan: dict) -> dict:
    """Return the study with one training run per encoder, method and head, one language besides
    English, and few texts.
    """
    plan = copy.deepcopy(plan)
    plan |= {"seeds": 1, "runs": 1, "words": {"model": "fast-align"}}
    langs = ["en", _other_language(plan)]
    for encoder in plan["encoders"].values():
        if isinstance(encoder, dict):
            _shrink_encoder(encoder, langs)
    for name, method in plan["methods"].items():
        _shrink_method(method.get("method", name), method)
    for table in plan.get("supervision", {}).values():
        _keep(table, langs)
        table["limit"] = 20
        if "texts" in table:
            _keep(table["texts"], langs)
        if "entries" in table:
            table["entries"] = [0, 8]
    for name, task in plan["tasks"].items():
        _shrink_task(task.get("task", name), task, langs)
    return plan


def _other_language(plan: dict) -> str:
    tables = [
        table
        for table in plan.get("supervision", {}).values()
        if set(table) - {"texts", "kind", "limit", "most"}
    ]
    codes = [key for table in tables for key in table if len(key) == 2 and key != "en"]
    return codes[0]


def _keep(by_language: dict, langs: list[str]) -> None:
    """Remove the files in other languages, except one if there are no others."""
    codes = [key for key in by_language if len(key) == 2]
    kept = {key for key in codes if key in langs} or codes[:1]
    for lang in codes:
        if lang not in kept:
            del by_language[lang]


def _shrink_encoder(encoder: dict, langs: list[str]) -> None:
    if "layers" in encoder:
        encoder["layers"] = [min(2, layer) for layer in encoder["layers"]][:1]
    if "runs" in encoder:
        encoder["runs"] = 1
    if (how := encoder.get("pretrain")) is not None:
        how |= {**PRETRAINED[how.get("model", "bert")], "updates": 2, "batch": 4, "held_out": 4}
        _keep(how["texts"], langs)
        if "senses" in how:
            how["senses"] = {"senses": 2, "axes": 2, "warmup": 1, "occurrences": 1}
        how["dictionaries"] = {
            key: file
            for key, file in how.get("dictionaries", {}).items()
            if set(key.split("-")) <= set(langs)
        }
        if not how["dictionaries"]:
            del how["dictionaries"]


def _shrink_method(name: str, method: dict) -> None:
    if "runs" in method:
        method["runs"] = 1
    if "freeze" in method:
        method["freeze"] = 1
    if name == "clcr":
        method |= {
            "epochs": [60, 0.1, 0.1, 1, 1]
        }  # maps that are trained for too few epochs find no pivots
    elif name in ("contrastive", "finetune"):
        method |= {"epochs": 0.3, "batch": 4}
    elif name == "distributions":
        method["start_options"] = {"frequent": 8, "patience": 1}
    elif name == "adversarial":
        method["start_options"] = {"epochs": 1, "updates": 2, "hidden": 4}
    else:
        assert name in ("base", "identical") or name in METHODS, name


def _shrink_task(kind: str, task: dict, langs: list[str]) -> None:
    for part in ("test", "train", "dev", "links", "texts"):
        if isinstance(task.get(part), dict):
            _keep(task[part], langs)
        elif isinstance(task.get(part), list):
            task[part] = [file for file in task[part] if language_and_path(file, "en")[0] in langs][
                :2
            ] or task[part][:1]
    if "limit" in TASKS[kind].takes or "limit" in task:
        task["limit"] = 20
    if "test_limit" in task:
        task["test_limit"] = 8
    if "entries" in task:
        task["entries"] = [0, 9]
    if kind not in OTHER_TASKS:
        task |= {"epochs": 1, "seeds": 1, "hidden": 4}
        task.pop("patience", None)


# -- studies ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_files_and_settings_of_a_study_are_accepted(path, data):
    """Check the recipe at its full size, without running a step."""
    plan = plan_of(path)
    write_files(plan, data)
    copied = data / path.name
    copied.write_text(toml_file({**plan, "data": str(data)}), encoding="utf-8")
    read = read_study(copied)
    check_files(read, copied)
    grid = Grid(read, Steps(data / "steps", WORK))
    assert sum(map(len, grid.phases.values())) >= len(plan["methods"]) * len(plan["encoders"]) - 1


@pytest.mark.parametrize(
    "path", [each for each in STUDIES if each.stem != "multisense"], ids=lambda path: path.stem
)
def test_a_study_runs_at_its_smallest_size(path, data):
    """`tests/senses/test_multisense.py` runs the recipe of the senses."""
    plan = small(plan_of(path))
    write_files(plan, data)
    copied = data / path.name
    copied.write_text(toml_file(plan), encoding="utf-8")
    records = study(copied, data=data, out=data / "out")
    assert {record["task"] for record in records} >= set(plan["tasks"])
    views = {view for method in plan["methods"].values() for view in method.get("views", ())}
    assert {record["method"] for record in records} >= set(plan["methods"]) - {"clcr"} - views


def test_every_file_of_the_recipes_can_be_made():
    """A file of a kind that the tests do not know would be missing in them."""
    for path in STUDIES:
        files = [
            each
            for each in strings(plan_of(path))
            if re.search(r"^[\w-]+/.+\.(tsv|gz|txt|xml|conllu?|iob2|align)$", each)
        ]
        assert [file for file in files if kind_of(file) is None] == [], path.name


# -- shell scripts ---------------------------------------------------------------------------------
_STAND_IN = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall((json.dumps([os.getcwd(), sys.argv[1:]]) + "\\n").encode())
    status, err = json.loads(server.makefile().readline())
sys.stderr.write(err)
sys.exit(status)
"""
_IN_FOLDER = """
import os, runpy, sys
os.chdir(sys.argv[1])
del sys.argv[1]
runpy.run_module("calque", None, "__main__")
"""


class Commands:
    """Stand-in for the program `calque`, which runs each command in a forked process with further
    options.

    Attributes:
        ran: arguments of all commands.
    """

    def __init__(self, folder: Path, further: dict[str, list[str]]):
        self.further, self.ran = further, []
        folder.mkdir()
        self.address = str(folder / "s")
        program = folder / "calque"
        program.write_text(_STAND_IN.format(python=sys.executable, address=self.address))
        program.chmod(0o755)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.address)
        self.server.listen()
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.server.accept()
            with connection:
                folder, arguments = json.loads(connection.makefile().readline())
                self.ran.append(arguments)
                more = self.further.get(arguments[0], [])
                done = forked.run("-c", _IN_FOLDER, folder, *arguments, *more)
                connection.sendall((json.dumps([done.returncode, done.stderr]) + "\n").encode())


@pytest.fixture
def script(data):
    """Return a function that runs a script of the recipes twice, and returns the commands of both
    runs.
    """

    def run(
        name: str, *arguments: object, further: dict[str, list[str]], **settings: str
    ) -> tuple[list, list]:
        commands = Commands(data / "bin", further)
        runs = []
        for _ in range(2):
            before = len(commands.ran)
            given = ["bash", str(FOLDER / name), *map(str, arguments)]
            done = subprocess.run(
                given,
                env={**commands.environment, **settings},
                cwd=data,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            runs.append(commands.ran[before:])
        return runs[0], runs[1]

    return run


def test_the_script_for_published_encoders_runs(script, data, tiny_folder):
    for part in ("train.en-de.tsv.gz", "dev.en-de.tsv"):
        write(data, f"parallel/{part}")
    settings = {"LANGUAGES": "de", "SIZES": "12", "SEEDS": "0", "TEST": "8", "SEEN": "20"}
    further = {"align": ["--epochs", "0.5", "--batch", "4"]}
    first, second = script(
        "published.sh", tiny_folder, data / "parallel", data / "out", further=further, **settings
    )
    assert [command[0] for command in first] == ["evaluate", "align", "evaluate"]
    assert second == []  # finished steps are skipped
    assert {path.name for path in (data / "out" / "scores").iterdir()} == {
        "de.base.jsonl",
        "de.12.0.jsonl",
    }


def test_the_script_for_the_bundled_encoder_runs(script, data):
    for lang in ("en", "de", "es", "fr", "zh", "bg", "tr", "ru"):
        write(data, f"mono/{lang}.txt.gz")
    further = {"pretrain": ["--updates", "2", "--batch", "2"]}
    first, second = script("mini.sh", data / "mono", data / "mini", further=further)
    assert [command[0] for command in first] == ["pretrain", "pretrain"]
    assert second == []  # finished stages are skipped
    assert (data / "mini" / "model.safetensors").exists()


@pytest.mark.skipif(not (FOLDER / "students.sh").exists(), reason="there is no such recipe")
def test_the_script_for_students_runs(script, data, tiny_folder):
    for part in ("train.en-de.tsv.gz", "dev.en-de.tsv"):
        write(data, f"parallel/{part}")
    further = {
        "distil": [
            "--student",
            str(tiny_folder),
            "--teacher-pooling",
            "words",
            "--epochs",
            "0.5",
            "--batch",
            "4",
        ]
    }
    first, second = script(
        "students.sh", tiny_folder, data / "parallel", data / "out", further=further
    )
    assert {command[0] for command in first} == {"evaluate", "distil"}
    assert second == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_prints_its_description_without_running_a_command(path, tmp_path):
    done = subprocess.run(
        ["bash", str(path), "--help"],
        env={"PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 2
    assert list(tmp_path.iterdir()) == []
    assert path.name in {"mini.sh", "published.sh", "students.sh"}, "a test must run this script"
