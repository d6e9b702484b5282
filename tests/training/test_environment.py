"""What the record of a run says of the command, the versions and the machine."""

from __future__ import annotations

import json

import pytest

from calque.distributed.environment import command_line, environment
from command import works


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["/usr/local/bin/calque", "align", "a.tsv", "--langs", "en", "de"], "calque align a.tsv --langs en de"),
        (["/x/calque/__main__.py", "demo"], "calque demo"),
        (["calque", "align", "/home/ann/a b.tsv", "de=/home/ann/de.txt"], "calque align 'a b.tsv' de=de.txt"),
        (["/usr/bin/pytest", "-q"], None),
    ],
)
def test_the_command_without_the_folders_of_its_writer(monkeypatch, typed, said):
    monkeypatch.setattr("sys.argv", typed)
    assert command_line() == said
    assert environment().get("command") == said


def test_the_record_of_an_aligned_encoder_says_how_it_was_made(capsys, monkeypatch, tiny_folder, tmp_path):
    (tmp_path / "en-xx.tsv").write_text("the cat\teht tac\na house\ta esuoh\n" * 8, encoding="utf-8")
    arguments = ["align", tmp_path / "en-xx.tsv", "--langs", "en", "xx", "--encoder", tiny_folder, "--towards", "en",
                 "--method", "rotation", "--out", tmp_path / "out", "--quiet"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["calque", *map(str, arguments)])
    works(capsys, *arguments)
    record = json.loads((tmp_path / "out" / "calque-run.json").read_text(encoding="utf-8"))
    assert record["command"].startswith("calque align en-xx.tsv --langs en xx")
    assert str(tmp_path) not in record["command"]
    assert record["versions"]["torch"]
    assert record["threads"] >= 1
