"""The README's commands and its Python run as they stand, on small text and a small encoder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from calque.cli import main

README = Path(__file__).parents[1] / "README.md"
WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


def blocks(kind: str) -> str:
    found = re.findall(rf"<!-- test: {kind} -->\n```\w*\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"the README has no block marked {kind}"
    return "\n".join(found)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, n in (("train", 60), ("test", 20)):
        with open(tmp_path / f"{name}.tsv", "w", encoding="utf-8") as file:
            for _ in range(n):
                words = [WORDS[i] for i in rng.choice(10, rng.integers(3, 9), replace=False)]
                file.write(f"{' '.join(words)}\t{' '.join(words).upper()}\n")
    for lang, change in (("en", str), ("de", str.upper)):
        lines = [f"{change(w)}\t{'B-LOC' if w == 'house' else 'O'}\n" for w in WORDS * 4]
        (tmp_path / f"ner.{lang}.tsv").write_text("\n".join("".join(lines[k : k + 4]) for k in range(0, 40, 4)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder, tiny_folder, capsys):
    for line in filter(None, blocks("commands").splitlines()):
        command, *arguments = shlex.split(line)
        assert command == "calque"
        with pytest.raises(SystemExit) as end:
            main([str(tiny_folder) if a == "ENCODER" else a for a in arguments])
        assert end.value.code == 0, capsys.readouterr().err
    assert "95% interval" in capsys.readouterr().out
    assert (folder / "aligned" / "config.json").exists()
    assert (folder / "my-aligned" / "config.json").exists()


def test_python(folder, tiny_folder, capsys):
    exec(compile(blocks("python"), "README.md", "exec"), {"ENCODER": str(tiny_folder)})
    assert len(capsys.readouterr().out.splitlines()) >= 2
    assert (folder / "aligned" / "config.json").exists()


def test_the_demo_prints_what_the_readme_shows_by_name():
    """Its figures are those of one machine; methods and languages must be the same everywhere."""
    from calque.corpora.sample import LANGUAGES
    from calque.runs.demo import METHODS

    shown = README.read_text(encoding="utf-8").split("calque demo\n```", 1)[1]
    table = shown[shown.index("Contextual word retrieval") : shown.index("Word alignment")].splitlines()
    assert table[1].split()[: len(LANGUAGES)] == list(LANGUAGES)
    assert [line.split()[0] for line in table[2:] if line] == ["base", *METHODS]
