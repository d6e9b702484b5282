"""Tests of `calque align --method clcr` on two small artificial languages."""

import json

import numpy as np
import pytest
from benchmarks.planted_key_points import score_world, write_world

from calque import load_encoder, read_parallel
from calque.clcr.encoder import KeyPointEncoder
from calque.corpora import read_sentences
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.vectors import Embeddings, map_arrays
from command import fails, works

SHORT = ["--option", "epochs=[4.0,0,0,2.0,4.0]", "--model", "fast-align"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, pairs=500, test=60, examples=60, dim=24, noise=0.05)
    return folder


def train(world, out, *more):
    return [
        "align",
        "--method",
        "clcr",
        "--encoder",
        f"aa={world}/aa,bb={world}/bb",
        f"{world}/train.tsv",
        "--pretokenized",
        "--langs",
        "aa",
        "bb",
        "--towards",
        "aa",
        "--out",
        out,
        *SHORT,
        *more,
    ]


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    import contextlib
    import io

    from calque.cli import main

    out = tmp_path_factory.mktemp("trained") / "out"
    with pytest.raises(SystemExit) as end, contextlib.redirect_stderr(io.StringIO()) as said:
        main([str(part) for part in train(world, out, "--option", "compare=true")])
    assert end.value.code == 0, said.getvalue()
    assert f"saved to {out}" in said.getvalue()
    return out


def test_planted_links_and_key_points_are_recovered(capsys, world, trained, tmp_path):
    """Check that the scores are far above chance after only a few updates."""
    encoder = load_encoder(trained)
    assert isinstance(encoder, KeyPointEncoder)
    assert encoder.rows == "key points"
    figures = score_world(world, encoder)
    assert figures["alignment"]["f1"] > 0.6
    assert figures["key points, bb"]["f1"] > 0.6
    pivots = ("words", "--encoder", trained, "--pretokenized")
    works(capsys, *pivots, world / "test.tsv", "--langs", "aa", "bb", "--out", tmp_path / "p")
    assert WordPairs.open(tmp_path / "p") == encoder.pivots(
        read_parallel(world / "test.tsv", langs=("aa", "bb"))
    )
    swapped = tmp_path / "swapped.tsv"
    lines = (world / "test.tsv").read_text().splitlines()
    swapped.write_text("".join("\t".join(reversed(line.split("\t"))) + "\n" for line in lines))
    works(capsys, *pivots, swapped, "--langs", "bb", "aa", "--out", tmp_path / "q")
    assert WordPairs.open(tmp_path / "q").swapped() == WordPairs.open(tmp_path / "p")
    for lang in ("aa", "bb"):
        text = (
            "encode",
            trained,
            world / f"test.{lang}",
            "--pretokenized",
            "--lang",
            lang,
            "--out",
            tmp_path / lang,
        )
        assert "60 sentences" in works(capsys, *text)[1]
        points = encoder.key_points(
            read_sentences(world / f"test.{lang}", lang=lang, pretokenized=True)
        )
        np.testing.assert_array_equal(map_arrays(tmp_path / lang)[0]["words"], points.data)
        np.testing.assert_array_equal(Embeddings.open(tmp_path / lang).offsets, points.offsets)


def test_the_run_record_contains_the_scores_of_the_report(capsys, trained, tmp_path):
    record = json.loads((trained / "calque-run.json").read_text())
    works(capsys, "report", trained, "--out", tmp_path / "r.html")
    assert "Extract: key points" in (tmp_path / "r.html").read_text(encoding="utf-8")
    scores = {
        (s["task"], s["languages"][0], s["settings"]["model"], s["metric"]): s
        for s in record["scores"]
    }
    assert {"distance", "key-points", "order"} == {task for task, *_ in scores}
    order = {
        model: s["value"]
        for (task, _, model, metric), s in scores.items()
        if (task, metric) == ("order", "bleu-2")
    }
    assert set(order) == {
        "as it stands",
        "relative, n = 1",
        "relative, n = 10",
        "absolute, n = 1",
        "absolute, n = 10",
    }
    assert order["relative, n = 10"] > order["as it stands"]
    for lang in ("aa", "bb"):
        assert 0.5 < scores["key-points", lang, "confident labels", "accuracy"]["value"] <= 1
        assert ("key-points", lang, "labels as they are", "accuracy") in scores
    assert scores["distance", "bb", "transform", "relative distance"]["value"] < 1
    for score in scores.values():
        assert score["low"] <= score["value"] <= score["high"]
    assert record["pivots"]["bb"]["f1"] > 0.5
    assert {"positive", "negative", "used", "with_rates", "without"} == record["flip_rates"][
        "bb"
    ].keys()
    assert "relative, n = 10" in (trained / "README.md").read_text()
    assert (trained / "training" / "transform-bb" / "metrics.jsonl").is_file()


def test_an_nli_head_can_be_trained_on_pivots(capsys, world, trained):
    out, _ = works(
        capsys,
        "evaluate",
        trained,
        "nli",
        "--train",
        f"aa={world}/nli.train.aa.tsv",
        "--dev",
        f"aa={world}/nli.dev.aa.tsv",
        "--test",
        f"aa={world}/nli.test.aa.tsv",
        f"bb={world}/nli.test.bb.tsv",
        "--head",
        "esim",
        "--epochs",
        "1",
        "--seeds",
        "1",
        "--hidden",
        "8",
        "--pretokenized",
        "--load",
        "steps=pivots",
        "--json",
        "--load",
        f"translations=bb={world}/nli.test.aa.tsv,{world}/nli.test.bb.tsv",
        "--load",
        "pretokenized=true",
    )
    assert {tuple(score["languages"]) for score in json.loads(out)["scores"]} == {
        ("aa", "aa"),
        ("aa", "bb"),
    }


def test_pivots_require_a_translation_of_every_sentence(capsys, world, trained, tmp_path):
    nli = [
        "evaluate",
        trained,
        "nli",
        "--train",
        f"aa={world}/nli.train.aa.tsv",
        "--test",
        f"bb={world}/nli.test.bb.tsv",
        "--pretokenized",
        "--seeds",
        "1",
        "--epochs",
        "1",
    ]
    nli += ["--load", "pretokenized=true"]
    needs = "translations must be given if and only if steps=pivots"
    assert needs in fails(capsys, *nli, "--load", "steps=pivots")
    two = ("--load", f"translations=bb={world}/nli.dev.aa.tsv,{world}/nli.test.bb.tsv")
    assert "both files must have the same number of texts" in fails(
        capsys, *nli, "--load", "steps=pivots", *two
    )
    assert needs in fails(capsys, *nli, *two)
    some = tmp_path / "some.tsv"
    some.write_text("\n".join((world / "test.tsv").read_text().splitlines()[:5]) + "\n")
    assert "have no translation" in fails(
        capsys, *nli, "--load", "steps=pivots", "--load", f"translations=bb={some}"
    )


def test_the_threshold_can_be_changed_after_training(capsys, world, trained, tmp_path):
    text = read_sentences(world / "test.aa", lang="aa", pretokenized=True)
    counts = [
        len(load_encoder(trained, delta=delta).key_points(text).data) for delta in (0, 0.2, 0.99)
    ]
    assert counts[0] > counts[1] > counts[2] >= 60
    assert load_encoder(trained, delta=0.2).fingerprint == load_encoder(trained).fingerprint
    with pytest.raises(SettingError, match="delta must not be set for pivots"):
        load_encoder(trained, steps="pivots", translations="bb=x,y", delta=0.5)
    other = (
        "encode",
        "mini",
        world / "test.aa",
        "--lang",
        "aa",
        "--out",
        tmp_path / "x",
        "--load",
        "delta=0.5",
    )
    assert "mini, only to a key-point encoder" in fails(capsys, *other)


def test_missing_encoders_raise_an_error(capsys, world, tmp_path):
    given = train(world, tmp_path / "out", "--steps", "transform")
    without = [str(part).partition(",bb=")[0] for part in given]
    assert "no encoder for language 'bb'" in fails(capsys, *without)
    assert "--towards cc" in fails(capsys, *given, "--towards", "cc")
