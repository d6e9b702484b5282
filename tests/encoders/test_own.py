"""An encoder that somebody else has written, in a file outside the package: by its name wherever an encoder is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial

import pytest

from calque.encoders import load_encoder
from command import fails, works

MODULE = '''
import zlib

import numpy as np

from calque.encoders import Encoder
from calque.vectors import Embeddings


class Trigrams(Encoder):
    """A word is the mean of random vectors, one for each three letters in a row."""

    name, dim, fingerprint = "trigrams", 24, "trigrams, 24 dimensions"

    def encode(self, sentences, *, progress=False):
        sentences = list(sentences)
        rows = [self.vector(f"<{word.lower()}>") for sentence in sentences for word in sentence.words]
        return Embeddings(np.array(rows, dtype=np.float32).reshape(-1, 24), np.cumsum([0, *map(len, sentences)]))

    def vector(self, word):
        seeds = [zlib.crc32(word[k : k + 3].encode()) for k in range(len(word) - 2)]
        return np.mean([np.random.default_rng(seed).standard_normal(24) for seed in seeds], axis=0)


class Needs(Trigrams):
    def __init__(self, size):
        self.size = size
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "letters.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    lines = [f"the {w} sees {v}\tdie {w}s sieht {v}e\n" for w in ("cat", "dog", "house") for v in ("time", "water")]
    for name, n in (("train", 5), ("test", 2)):
        (tmp_path / f"{name}.tsv").write_text("".join(lines * n), encoding="utf-8")
    return tmp_path


TEXT = ("--langs", "en", "de", "-q")


def test_on_the_command_line(capsys, own):
    measured, _ = works(
        capsys, "evaluate", "letters:Trigrams", "retrieval", "--test", own / "test.tsv", *TEXT, "--json"
    )
    assert json.loads(measured)["settings"]["encoder"] == "trigrams"
    works(capsys, "encode", "letters:Trigrams", own / "test.tsv", "--lang", "en", "--out", own / "v", "-q")
    works(capsys, "align", own / "train.tsv", *TEXT, "--encoder", "letters:Trigrams", "--method", "rotation",
          "--towards", "en", "--out", own / "out")  # fmt: skip
    mapped = load_encoder(own / "out")
    assert mapped.base.name == "trigrams"
    assert json.loads((own / "out" / "calque.json").read_text())["base"] == "letters:Trigrams"
    works(capsys, "evaluate", own / "out", "retrieval", "--test", own / "test.tsv", *TEXT)
    (own / "foreign").mkdir()
    (own / "foreign" / "calque.json").write_text('{"kind": "unread:Any"}')
    said = fails(capsys, "encode", own / "foreign", own / "test.tsv", "--lang", "en", "--out", own / "v")
    assert f"{own / 'foreign'}: names the class unread:Any, which is not part of calque" in said
    works(
        capsys, "analyze", "letters:Trigrams", own / "out", "--test", own / "test.tsv", *TEXT, "--out", own / "a.jsonl"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("letters:Needs", r"letters:Needs cannot be built without arguments \(.*'size'\): give a subclass that knows them"),
        ("letters:np", "letters:np is no kind of encoder: expected a subclass of calque.encoders.base:Encoder"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_it(capsys, own, name, message):
    assert re.search(message, fails(capsys, "evaluate", name, "retrieval", "--test", own / "test.tsv", *TEXT))


def test_a_module_of_the_working_directory_is_found_only_where_code_is_trusted(own):
    command = [sys.executable, "-m", "calque", "encode", "letters:Trigrams", "test.tsv", "--lang", "en", "--out", "v"]
    place = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path and path != str(own))}
    run = partial(subprocess.run, cwd=own, capture_output=True, text=True, env=os.environ | place)
    assert "letters cannot be imported" in run(command).stderr
    trusted = run([*command, "--trust-code"])
    assert (trusted.returncode, (own / "v").is_file()) == (0, True), trusted.stderr


def test_in_a_study(capsys, own):
    (own / "study.toml").write_text(
        'encoders = { letters = "letters:Trigrams" }\nmethods = ["base", "rotation"]\n'
        '[supervision.text]\nde = "train.tsv"\n[tasks.retrieval]\ntest = { de = "test.tsv" }\n',
        encoding="utf-8",
    )
    works(capsys, "study", own / "study.toml", "--workers", 2, "-q")
    lines = [json.loads(line) for line in (own / "study" / "results.jsonl").read_text().splitlines()]
    assert {line["method"] for line in lines} == {"base", "rotation"}
    # its code is part of what a step depends on
    (own / "letters.py").write_text(MODULE + "\n# changed\n", encoding="utf-8")
    _, err = works(capsys, "study", own / "study.toml")
    assert "to do" in err
