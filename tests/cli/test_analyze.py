"""Tests of `calque analyze`: output, files, skipped analyses and errors."""

import json

import numpy as np
import pytest

from calque.analyses.table import ANALYSES
from command import fails, works
from linked_text import WORDS

TAGS = ["DET", "NOUN", "VERB", "DET", "NOUN", "ADP", "NOUN", "CCONJ", "NOUN", "ADP"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Write parallel text whose target side is the source side in capitals, with word links and
    parts of speech.
    """
    folder = tmp_path_factory.mktemp("analyze")
    rng = np.random.default_rng(0)
    for name, n in (("train", 30), ("test", 25)):
        sentences = [rng.choice(10, rng.integers(3, 9), replace=False).tolist() for _ in range(n)]
        lines, links, tags = [], [], []
        for numbers in sentences:
            words = [WORDS[k] for k in numbers]
            lines.append(f"{' '.join(words)}\t{' '.join(word.upper() + 'E' for word in words)}\n")
            links.append(" ".join(f"{k}-{k}" for k in range(len(words))) + "\n")
            tags.append("".join(f"{WORDS[k]}\t{TAGS[k]}\n" for k in numbers) + "\n")
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
        (folder / f"{name}.align").write_text("".join(links), encoding="utf-8")
        (folder / f"{name}.upos").write_text("".join(tags), encoding="utf-8")
    return folder


def given(texts, *more):
    return (
        "--test",
        texts / "test.tsv",
        "--langs",
        "en",
        "xx",
        "--links",
        texts / "test.align",
        "--pretokenized",
        "--bootstrap",
        20,
        *more,
    )


def test_all_analyses_of_two_encoders_are_written_and_printed(capsys, texts, tiny_folder, tmp_path):
    aligned, out = tmp_path / "aligned", tmp_path / "found.jsonl"
    _, err = works(
        capsys,
        "align",
        texts / "train.tsv",
        "--langs",
        "en",
        "xx",
        "--links",
        texts / "train.align",
        "--encoder",
        tiny_folder,
        "--method",
        "rotation",
        "--towards",
        "en",
        "--pretokenized",
        "--out",
        aligned,
        "-q",
    )
    shown, err = works(
        capsys,
        "analyze",
        f"base={tiny_folder}",
        f"aligned={aligned}",
        *given(texts, "--train", texts / "train.tsv", "--train-links", texts / "train.align"),
        "--upos",
        f"en={texts / 'test.upos'}",
        "--pairs",
        6,
        "--projection",
        "pca",
        "--out",
        out,
    )
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(record["languages"] == ["en", "xx"] for record in records)
    done = {record["analysis"] for record in records}
    assert done == set(ANALYSES)
    assert [a for a in ANALYSES if a in done] == list(
        dict.fromkeys(record["analysis"] for record in records)
    )
    assert all(f"\n{analysis}\n" in "\n" + shown for analysis in done)
    for metric, way in (
        ("accuracy.all", "higher"),
        ("relational-similarity", "higher"),
        ("mean-cosine", "lower"),
    ):
        assert {line.split()[-1] for line in shown.splitlines() if f" {metric} " in line} == {way}
    assert "aligned has only one layer" in err
    by = {(r["analysis"], r["encoder"], r["metric"], r["group"], r["x"]): r for r in records}
    # The last of the 4 layers is the encoder's own layer, so its score equals the scores in the
    # other analyses.
    layers = [by["layers", "base", "accuracy.all", None, float(k)]["value"] for k in range(4)]
    assert len(set(layers)) > 1
    parts = [
        r
        for r in records
        if (r["analysis"], r["encoder"], r["metric"]) == ("rank", "base", "accuracy.all")
    ]
    assert sum(r["n"] * r["value"] for r in parts) / sum(r["n"] for r in parts) == pytest.approx(
        layers[3]
    )
    pos = [
        r
        for r in records
        if (r["analysis"], r["encoder"], r["metric"]) == ("pos", "base", "accuracy.all")
    ]
    tagged = {r["group"]: r["n"] for r in pos}
    lines = (texts / "test.upos").read_text(encoding="utf-8").split()[1::2]
    assert tagged["NOUN"] == lines.count("NOUN")
    assert tagged["CONJ"] == lines.count("CCONJ")
    plots = [r for r in records if r["analysis"] == "points"]
    assert [(r["encoder"], r["metric"], len(r["items"])) for r in plots] == [
        (e, "pca", 12) for e in ("base", "aligned")
    ]
    assert {item["upos"] for item in plots[0]["items"] if item["lang"] == "en"} <= set(TAGS)
    assert {item["upos"] for item in plots[0]["items"] if item["lang"] == "xx"} == {None}
    # A second run appends to the same file.
    _, err = works(
        capsys, "analyze", tiny_folder, *given(texts, "--only", "length", "--out", out, "-q")
    )
    assert out.read_text(encoding="utf-8").startswith(json.dumps(records[0], ensure_ascii=False))
    assert len(out.read_text(encoding="utf-8").splitlines()) > len(records)


def test_analyses_without_the_required_files_are_skipped_with_a_reason(capsys, texts, tiny_folder):
    shown, err = works(
        capsys,
        "analyze",
        tiny_folder,
        *given(texts, "--layer", 2, "--pooling", "mean", "--pairs", 4),
    )
    for line in (
        "pos skipped: no part-of-speech tags were given; pass tagged text with --upos",
        "examples skipped: at least two encoders are needed",
    ):
        assert line in err
    assert shown.split("\n")[0] == "rank"


def test_invalid_requests_raise_one_line_errors(capsys, texts, tiny_folder, tmp_path):
    (tmp_path / "other.upos").write_text("elsewhere\tADV\n\n", encoding="utf-8")
    for job, message in (
        (
            (*given(texts), "--only", "pso"),
            "unknown analysis 'pso', expected one or more of pos, rank",
        ),
        ((*given(texts), "--only", "examples"), "examples: at least two encoders are needed"),
        ((), "need encoders, --test FILE and --langs"),
        ((tiny_folder, *given(texts)), "encoders must have different names"),
        (
            (*given(texts), "--only", "pos", "--upos", texts / "train.upos"),
            "the language is unknown",
        ),
        (
            (*given(texts), "--only", "pos", "--upos", f"en={tmp_path / 'other.upos'}"),
            "none of the 1 sentences occurs",
        ),
    ):
        assert message in fails(capsys, "analyze", tiny_folder, *job)
