"""Tests of the demo on the command line."""

import json

from transformers import AutoModel

from calque.runs import demo as module
from command import fails, run, works


def test_the_demo_writes_tables_folders_and_a_report_reproducibly(
    capsys, tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(module.METHODS, "contrastive", {"epochs": 1, "held_out": 0.0})
    monkeypatch.setitem(module.METHODS, "finetune", {"epochs": 1, "held_out": 0.0})
    options = ["demo", "--encoder", tiny_folder, "--languages", "de", "--quiet"]
    first, err = works(capsys, *options, "--out", tmp_path / "one")
    lines = first.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == [
        "base",
        "rotation",
        "finetune",
        "contrastive",
    ]
    assert lines[-1].startswith("statistical aligner")
    blocks = [block.splitlines() for block in first.split("\n\n")]
    assert [block[0].partition(" ")[0] for block in blocks] == [
        "Contextual",
        "Type-level",
        "English",
        "Word",
    ]
    assert [block[1].split()[:2] for block in blocks] == [
        ["de", "95%"],
        ["de", "95%"],
        ["en", "95%"],
        ["de", "95%"],
    ]
    code, second, err = run(capsys, *options, "--out", tmp_path / "two")
    assert second == first
    AutoModel.from_pretrained(tmp_path / "one" / "contrastive")
    scores = [
        json.loads(line) for line in (tmp_path / "one" / "results.jsonl").read_text().splitlines()
    ]
    methods, langs = ("base", "rotation", "finetune", "contrastive"), ("de",)
    assert {(score["method"], score["metric"], score["languages"][-1]) for score in scores} == {
        *(
            (method, metric, lang)
            for method in methods
            for metric in ("accuracy.unseen", "form.unseen", "aer")
            for lang in langs
        ),
        *((method, "same-form", "en") for method in methods),
        *(("statistical aligner", "aer", lang) for lang in langs),
    }
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    for heading in (
        "Verdict",
        "Word retrieval",
        "Same-language consistency",
        "Word pairs before and after alignment",
    ):
        assert f">{heading}</h2>" in page
    assert len((tmp_path / "one" / "text" / "de.train.tsv").read_text().splitlines()) == 357
    assert "already contains a demo" in fails(capsys, *options, "--out", tmp_path / "one")
    assert "languages must be among de, es" in fails(
        capsys, "demo", "--languages", "xx", "--out", tmp_path / "three"
    )


def test_the_demo_improves_the_bundled_encoder(capsys, tmp_path, monkeypatch):
    """Run the demo in one language with fewer epochs: each method must improve on the previous one,
    and links must improve.
    """
    monkeypatch.setitem(module.METHODS, "contrastive", {"epochs": 3, "held_out": 0.0})
    monkeypatch.setitem(module.METHODS, "finetune", {"epochs": 2, "held_out": 0.0})
    code, _, err = run(capsys, "demo", "--languages", "fr", "--quiet", "--out", tmp_path / "demo")
    assert code == 0, err
    lines = (tmp_path / "demo" / "results.jsonl").read_text().splitlines()
    scores: dict[tuple[str, str], list[dict]] = {}
    for score in map(json.loads, lines):
        if score["metric"] in ("accuracy.unseen", "aer"):
            scores.setdefault((score["task"], score["method"]), []).append(score)
    base, aligned = (scores["retrieval", method][0] for method in ("base", "contrastive"))
    assert aligned["low"] > 2 * base["high"]
    before, after = (scores["word-alignment", method][0] for method in ("base", "contrastive"))
    assert after["high"] < before["low"]
    means = [
        scores["retrieval", method][0]["value"]
        for method in ("base", "rotation", "finetune", "contrastive")
    ]
    assert means == sorted(means)
