"""Test a custom encoder from a file outside the package, selected by name on the command line and
in a study.
"""

import json

import pytest

import forked
from calque.encoders import load_encoder
from command import fails, works
from documents import code_of

MODULE = code_of("class Trigrams").partition("\n\n\ntest = ")[0]


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "letters.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    lines = [
        f"the {w} sees {v}\tdie {w}s sieht {v}e\n"
        for w in ("cat", "dog", "house")
        for v in ("time", "water")
    ]
    for name, n in (("train", 5), ("test", 2)):
        (tmp_path / f"{name}.tsv").write_text("".join(lines * n), encoding="utf-8")
    return tmp_path


TEXT = ("--langs", "en", "de", "-q")


def test_a_custom_encoder_can_be_evaluated_aligned_and_analysed(capsys, own):
    test = ("--test", own / "test.tsv", *TEXT)
    measured, _ = works(capsys, "evaluate", "letters:Trigrams", "retrieval", *test, "--json")
    assert json.loads(measured)["settings"]["encoder"] == "trigrams"
    works(
        capsys,
        "encode",
        "letters:Trigrams",
        own / "test.tsv",
        "--lang",
        "en",
        "--out",
        own / "v",
        "-q",
    )
    works(
        capsys,
        "align",
        own / "train.tsv",
        *TEXT,
        "--encoder",
        "letters:Trigrams",
        "--method",
        "rotation",
        "--towards",
        "en",
        "--out",
        own / "out",
    )
    assert load_encoder(own / "out").base.name == "trigrams"
    assert json.loads((own / "out" / "calque.json").read_text())["base"] == "letters:Trigrams"
    works(capsys, "evaluate", own / "out", "retrieval", *test)
    works(capsys, "analyze", "letters:Trigrams", own / "out", *test, "--out", own / "a.jsonl")
    (own / "study.toml").write_text(
        'encoders = { letters = "letters:Trigrams" }\nmethods = ["base", "rotation"]\n'
        '[supervision.text]\nde = "train.tsv"\n[tasks.retrieval]\ntest = { de = "test.tsv" }\n',
    )
    works(capsys, "study", own / "study.toml", "-q")
    lines = [
        json.loads(line) for line in (own / "study" / "results.jsonl").read_text().splitlines()
    ]
    assert {line["method"] for line in lines} == {"base", "rotation"}
    (own / "foreign").mkdir()
    (own / "foreign" / "calque.json").write_text('{"kind": "unread:Any"}')
    said = fails(
        capsys, "encode", own / "foreign", own / "test.tsv", "--lang", "en", "--out", own / "v"
    )
    assert f"{own / 'foreign'}: names the class unread:Any, which is not part of calque" in said


#: runs `python -m calque` in a folder, which is then the first entry of `sys.path`
IN_FOLDER = """
import os, runpy, sys
os.chdir(sys.argv.pop(1))
sys.path[:] = [os.getcwd(), *(path for path in sys.path if path != os.getcwd())]
runpy.run_module("calque", run_name="__main__", alter_sys=True)
"""


def test_modules_in_the_working_directory_require_trust_code(own):
    command = [
        "-c",
        IN_FOLDER,
        own,
        "encode",
        "letters:Trigrams",
        "test.tsv",
        "--lang",
        "en",
        "--out",
        "v",
    ]
    assert "letters cannot be imported" in forked.run(*command).stderr
    trusted = forked.run(*command, "--trust-code")
    assert (trusted.returncode, (own / "v").is_file()) == (0, True), trusted.stderr
