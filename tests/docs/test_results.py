"""Test that tables and numbers in the documents equal the files of results."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys

import pytest

from documents import ROOT

SCRIPT = ROOT / "dev" / "results.py"
#: pages whose decimal numbers must all come from files of results
PAGES = ("README.md", "docs/index.md", "docs/results.md", "docs/guides/real.md")
#: decimal numbers that are no results: versions, sizes of files, chance, and bounds on a table
NO_RESULTS = {"3.11", "3.13", "2.0", "0.97", "0.1", "0.5", "1.5"}


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["results"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cells(results):
    return results.Cells()


def test_documents_equal_the_files_of_results(results, cells):
    assert list(results.differences(cells, results.documents())) == []


def test_a_changed_cell_is_detected(results, tmp_path):
    shutil.copytree(results.FOLDER, tmp_path / "results")
    path = tmp_path / "results" / "speed.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["value"] = 1.5 if line["cell"] == "CSLS" else line.get("value")
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    changed = "\n".join(
        results.differences(results.Cells(tmp_path / "results"), [ROOT / "docs" / "results.md"])
    )
    assert "-| CSLS" in changed
    assert "1.93<!--=speed/CSLS:.2f-->" in changed
    assert "1.50<!--=speed/CSLS:.2f-->" in changed


def test_a_changed_number_in_a_document_is_detected(results, cells, tmp_path):
    page = tmp_path / "page.md"
    key = "real/contrastive 2k/unseen/mean"
    page.write_text(f"It finds 58.5<!--={key}-->%.\n", encoding="utf-8")
    assert f"+It finds 50.7<!--={key}-->%." in list(results.differences(cells, [page]))


def test_an_unknown_cell_raises_an_error(results, cells, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("50.7<!--=real/contrastive/unseen/mean-->")
    with pytest.raises(KeyError, match=r"real\.jsonl has no such cell"):
        results.rewritten(page, cells)


def test_a_mean_and_its_interval_are_those_of_the_report(cells):
    by_language = [
        float(cells[f"real/contrastive 2k/unseen/{lang}:.4f"]) for lang in ("de", "zh", "tr", "ru")
    ]
    mean = float(cells["real/contrastive 2k/unseen/mean:.4f"])
    assert mean == pytest.approx(sum(by_language) / 4, abs=1e-3)
    low, high = map(float, cells["real/contrastive 2k/unseen/mean/interval"].split(", "))
    assert low < mean < high


@pytest.mark.parametrize("page", PAGES)
def test_every_decimal_number_of_a_page_comes_from_a_file(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for outside in (
        r"<!-- results: .*?<!-- end -->",  # blocks
        r"^```.*?^```$",
        r"`[^`\n]*`(<!--=.*?-->)?",
        r"\d[\d,.]*\d<!--=.*?-->",  # numbers with a key
        r"\]\([^)\n]*\)|https?://\S+",
    ):
        text = re.sub(outside, "", text, flags=re.DOTALL | re.MULTILINE)
    numbers = set(re.findall(r"(?<![\w.])\d[\d,]*\.\d+(?:\.\d+)?(?![\w.])", text))
    assert numbers <= NO_RESULTS


def test_every_file_of_results_names_its_command(results):
    lines = (results.FOLDER / "sources.jsonl").read_text(encoding="utf-8").splitlines()
    sources = {line["cell"]: line for line in map(json.loads, lines)}
    files = {path.stem for path in results.FOLDER.iterdir()}
    assert files == {"sources", *sources}
    for line in sources.values():
        assert all(line[name] for name in ("command", "processor", "date")), line["cell"]


def test_scores_are_shortened(results, tmp_path):
    score = {
        "task": "retrieval",
        "data": "/home/me/dev.en-de.tsv",
        "languages": ["en", "de"],
        "metric": "accuracy.unseen",
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 10,
        "seed": 0,
        "percent": True,
        "resamples": [0.41234, 0.55555],
        "settings": {"encoder": "mini", "k": 10, "train": ["train.tsv"], "aligned": None},
    }
    path = tmp_path / "scores.jsonl"
    path.write_text(
        "\n".join(map(json.dumps, [score, {**score, "metric": "accuracy.unseen.en-de"}]))
    )
    (line,) = results.keep("tutorial", [path])
    assert line["data"] == "dev.en-de.tsv"
    assert line["settings"] == {"encoder": "mini", "k": 10, "aligned": None}
    assert line["method"] == "base"
    assert "resamples" not in line
    assert results.keep("real", [path])[0]["resamples"] == [0.412, 0.556]


def test_the_printed_table_of_the_demo_has_the_scores_of_its_file(cells):
    header, *rows = cells.text("demo").splitlines()[1:6]
    languages = header.split()[:8]
    for row in rows:
        method, *values = row.split()
        expected = [cells[f"demo/{method}/unseen/{language}"] for language in languages]
        assert values[:8] == expected
