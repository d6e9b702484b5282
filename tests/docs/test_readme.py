"""Test that commands and Python in the README run unchanged on small text with a small encoder."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml

from calque.corpora.sample import sample_text
from calque.pairs import WordPairs
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


def test_commands_in_the_readme_run(folder, tiny_folder, capsys):
    run_commands(text("commands"), str(tiny_folder), capsys)
    assert "95% interval" in capsys.readouterr().out
    assert (folder / "aligned" / "config.json").exists()
    assert (folder / "my-aligned" / "config.json").exists()


def test_python_and_commands_give_the_same_links_and_scores(
    tmp_path, tiny_folder, monkeypatch, capsys
):
    """Use the sample text, whose word links are not trivial."""
    monkeypatch.chdir(tmp_path)
    for part in ("train", "test"):
        lines = [" ".join(a.words) + "\t" + " ".join(b.words) for a, b in sample_text("de", part)]
        (tmp_path / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    space: dict = {}
    run_python(text("python"), str(tiny_folder), README, space)
    in_python = {
        score.metric: (score.value, score.n) for score in space["task"].evaluate(space["aligned"])
    }
    first, second = [block for kind, _, block in blocks(README) if kind == "commands"][:2]
    words = second.splitlines()[0]
    assert words.startswith("calque words")
    run_commands(words, str(tiny_folder), capsys)
    assert WordPairs.open(tmp_path / "train.align") == space["pairs"]
    *_, evaluate = first.splitlines()
    first = first.replace(evaluate, f"{evaluate} --out scores.jsonl")
    # In Python, the encoder is read as published; `calque align` would choose the layer.
    first = first.replace("--encoder ENCODER", "--encoder ENCODER --layer -1 --pooling mean")
    run_commands(first, str(tiny_folder), capsys)
    lines = [
        json.loads(line)
        for line in (tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    by_commands = {score["metric"]: (score["value"], score["n"]) for score in lines}
    assert by_commands["accuracy.unseen"][1] > 300
    assert by_commands == in_python


def test_the_citation_file_matches_the_package():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)  # keys required by the format
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["version"] == package["version"].split(".dev")[0]
    assert cited["license"] == package["license"]
    assert [each["name"] for each in cited["authors"]] == [
        each["name"] for each in package["authors"]
    ]
    entry = README.read_text(encoding="utf-8").split("@software{", 1)[1].split("\n```")[0]
    assert f"{{{cited['title']}}}" in entry
    assert f"{{{cited['version']}}}" in entry


def test_the_image_and_the_links_in_the_first_section_exist():
    beginning = README.read_text(encoding="utf-8").split("\n## ", 1)[0]
    linked = re.findall(r"\]\(([^)#:]+)\)", beginning)
    assert "docs/images/gemma.svg" in linked
    assert [link for link in linked if not (ROOT / link).exists()] == []


def test_no_document_installs_another_package_called_calque():
    files = [
        README,
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
        *(ROOT / "src").rglob("*.py"),
    ]
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert (
                not re.search(r"pip install '?calque(?!-align)", line) or "another program" in line
            ), (path, line)
