"""Test a custom method from a file outside the package, selected by name on the command line and in
a study.
"""

import json
import re
import sys

import numpy as np
import pytest

import forked
from calque import read_parallel
from calque.alignment import METHODS, MethodRow, methods_for
from calque.encoders import load_encoder
from command import fails, works
from documents import code_of, hooks

MODULE = f"""{code_of("shifting.py")}
class Seeded(Shift):
    def __init__(self, *, towards, seed=0, strength: float = 1.0):
        super().__init__(towards=towards, strength=strength)
        self.seed = seed


class Broken:
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "shifting.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(
        sys.modules, "shifting", raising=False
    )  # another test may have imported the module
    lines = [f"the cat sees a house {k % 7}\tdie Katze sieht ein Haus {k % 7}\n" for k in range(40)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "test.tsv").write_text("".join(lines[:9]), encoding="utf-8")
    return tmp_path


def align(own, tiny_folder, *more):
    return [
        "align",
        own / "train.tsv",
        "--langs",
        "en",
        "de",
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--out",
        own / "out",
        "-q",
        *more,
    ]


def test_a_custom_method_can_be_used_on_the_command_line(capsys, own, tiny_folder):
    works(capsys, *align(own, tiny_folder, "--method", "shifting:Shift"))
    encoder = load_encoder(own / "out")
    base = encoder.base  # with the layer and the pooling that the command chose
    assert list(encoder.maps) == ["de"]
    text = read_parallel(own / "train.tsv", langs=("en", "de"))
    english, german = (base.encode(side).data.mean(axis=0) for side in (text.source, text.target))
    moved = encoder.encode(text.target).data - base.encode(text.target).data
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-5)
    assert np.linalg.norm(german + moved[0] - english) < 0.5 * np.linalg.norm(german - english)
    record = json.loads((own / "out" / "calque-run.json").read_text())
    assert record["method"] == "shifting:Shift"
    assert record["settings"] == {"towards": "en", "strength": 1.0}
    test = ("retrieval", "--test", own / "test.tsv", "--langs", "en", "de", "--json", "-q")
    aligned = json.loads(works(capsys, "evaluate", own / "out", *test)[0])["settings"]["aligned"]
    assert (aligned["method"], aligned["base_fingerprint"]) == ("shifting:Shift", base.fingerprint)


def test_studies_warn_about_methods_that_do_not_change_any_score(capsys, own, tiny_folder):
    methods = "".join(
        f'[methods.{name}]\nmethod = "shifting:Shift"\nstrength = {s}\n'
        for name, s in (("still", 0.0), ("moved", 1.0))
    )
    plan = f'encoders = ["{tiny_folder}"]\n[methods.base]\n{methods}[supervision.text]\nde = "train.tsv"\n'
    (own / "study.toml").write_text(
        plan + '[tasks.retrieval]\ntest = { de = "test.tsv" }\n', encoding="utf-8"
    )
    _, err = works(capsys, "study", own / "study.toml", "-q")
    assert "all scores of still are identical to the scores of base" in err
    assert "moved" not in err


def test_options_of_a_method_can_be_set_by_name(capsys, own, tiny_folder):
    works(
        capsys,
        *align(
            own, tiny_folder, "--method", "shifting:Seeded", "--option", "strength=0.5", "--seed", 3
        ),
    )
    record = json.loads((own / "out" / "calque-run.json").read_text())
    assert record["settings"] == {"towards": "en", "seed": 3, "strength": 0.5}
    # `--option` also sets the arguments of built-in methods.
    works(
        capsys,
        *align(own, tiny_folder, "--method", "finetune", "--option", "weight=0.5", "--overwrite"),
    )
    assert json.loads((own / "out" / "calque-run.json").read_text())["settings"]["weight"] == 0.5


@pytest.mark.parametrize("how", [("--strength", -0.5), ("--option", "strength=-0.5")])
def test_a_number_of_a_custom_method_can_be_negative(capsys, own, tiny_folder, how):
    works(capsys, *align(own, tiny_folder, "--method", "shifting:Shift", *how))
    assert json.loads((own / "out" / "calque-run.json").read_text())["settings"]["strength"] == -0.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--method", "shifting:Broken"],
            "method shifting:Broken must be a subclass of calque.alignment.base:Meth",
        ),
        (
            ["--method", "shifting:Shift", "--epochs", "2"],
            "--epochs is not an option of --method shifting:Shift",
        ),
        (
            ["--method", "shifting:Shift", "--option", "speed=1"],
            "--option speed=1: expected NAME=VALUE with NAME one of .*stre",
        ),
    ],
)
def test_invalid_methods_and_options_are_rejected(capsys, own, tiny_folder, more, message):
    assert re.search(message, fails(capsys, *align(own, tiny_folder, *more)))


def test_a_registered_method_is_listed_and_can_be_used_everywhere(
    capsys, own, tiny_folder, monkeypatch
):
    """Print the help in another process, because the help text is built at import time."""
    row = MethodRow("shifting:Shift", "moves each language by a mean difference")
    monkeypatch.setitem(METHODS.rows, "shift", row)
    works(capsys, *align(own, tiny_folder, "--method", "shift"))
    assert json.loads((own / "out" / "calque-run.json").read_text())["method"] == "shift"
    plan = f'encoders = ["{tiny_folder}"]\nmethods = ["base", "shift"]\n[supervision.text]\nde = "train.tsv"\n'
    (own / "study.toml").write_text(
        plan + '[tasks.retrieval]\ntest = { de = "test.tsv" }\n', encoding="utf-8"
    )
    works(capsys, "study", own / "study.toml", "-q")
    works(capsys, "report", own / "study", "--out", own / "report.html", "-q")
    assert "shift" in (own / "report.html").read_text()
    assert "| `shift` | moves each language by a mean difference |" in hooks().table(
        "calque.alignment:METHODS"
    )
    assert ", shift" in fails(capsys, *align(own, tiny_folder, "--method", "shove"))
    program = (
        "from calque.alignment import METHODS, MethodRow; METHODS.rows['shift'] = "
        "MethodRow('shifting:Shift', '')\n"
        "from calque.cli import main; main(['align', '--help'])"
    )
    names = [name for name in methods_for("parallel") if name != "shift"]
    listed = ", ".join([*names, "shift"]).replace("contrastive", "contrastive (default)", 1)
    assert listed in " ".join(forked.run("-c", program).stdout.split())
