"""The README's commands and its Python run as they stand, on small text and a small encoder."""

from __future__ import annotations

import pytest

from documents import ROOT, blocks, run_commands, run_python, write_texts

README = ROOT / "README.md"


def text(kind: str) -> str:
    found = [block for each, _, block in blocks(README) if each == kind]
    assert found, f"the README has no block marked {kind}"
    return "\n".join(found)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder, tiny_folder, capsys):
    run_commands(text("commands"), str(tiny_folder), capsys)
    assert "95% interval" in capsys.readouterr().out
    assert (folder / "aligned" / "config.json").exists()
    assert (folder / "my-aligned" / "config.json").exists()


def test_python(folder, tiny_folder, capsys):
    run_python(text("python"), str(tiny_folder), README, {})
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
