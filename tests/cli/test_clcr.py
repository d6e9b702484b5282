"""`calque clcr`: from two encoders and parallel text to key points, on two small languages that were made up."""

import json

import numpy as np
import pytest
from benchmarks.planted_key_points import score_world, write_world

from calque import load_encoder
from calque.encoders.key_points import KeyPointEncoder
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.runs.clcr import open_pivoted
from command import fails, works

SHORT = ["--option", "epochs=[4.0,0,0]", "--option", "head_epochs=4.0", "--model", "fast-align"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, pairs=500, test=60, examples=60, dim=24, noise=0.05)
    return folder


def train(world, out, *more):
    return ["clcr", "train", f"aa={world}/aa", f"bb={world}/bb", f"{world}/train.tsv", "--pretokenized", "--langs", "aa", "bb",
            "--pivot", "aa", "--out", out, *SHORT, *more]  # fmt: skip


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


def test_what_is_found_is_what_was_planted(capsys, world, trained, tmp_path):
    """After a few updates: far from what longer training finds, and far from chance."""
    pivots = ("clcr", "pivots", trained)
    works(capsys, *pivots, world / "test.tsv", "--pretokenized", "--langs", "aa", "bb", "--out", tmp_path / "p")
    for lang in ("aa", "bb"):
        _, said = works(capsys, "clcr", "keypoints", trained, world / f"test.{lang}", "--pretokenized", "--lang", lang, "--out",
                        tmp_path / lang)  # fmt: skip
        assert "60 sentences" in said
    figures = score_world(world, tmp_path / "p", {lang: tmp_path / lang for lang in ("aa", "bb")})
    assert figures["alignment"]["f1"] > 0.6
    assert figures["key points, bb"]["f1"] > 0.6
    encoder = load_encoder(trained)
    assert isinstance(encoder, KeyPointEncoder)
    assert encoder.rows == "key points"
    swapped = tmp_path / "swapped.tsv"
    lines = (world / "test.tsv").read_text().splitlines()
    swapped.write_text("".join("\t".join(reversed(line.split("\t"))) + "\n" for line in lines))
    works(capsys, *pivots, swapped, "--pretokenized", "--langs", "bb", "aa", "--out", tmp_path / "q")
    assert WordPairs.open(tmp_path / "q").swapped() == WordPairs.open(tmp_path / "p")


def test_its_record_shows_sentences_and_the_report_draws_them(capsys, world, trained, tmp_path):
    """Words of the text with probabilities by both classifiers; key points with their order and both matrices."""
    record = json.loads((trained / "calque-run.json").read_text())
    lines = [line.split("\t") for line in (world / "train.tsv").read_text().splitlines()]
    sides = {"aa": {pair[0] for pair in lines}, "bb": {pair[1] for pair in lines}}
    sentences = [each for each in record["examples"] if "probabilities" in each]
    assert [(each["lang"], each["sentence"]) for each in sentences] == [(lang, k) for lang in sides for k in range(5)]
    for each in sentences:
        assert " ".join(each["words"]) in sides[each["lang"]]
        assert set(each["probabilities"]) == {"confident labels", "labels as they are"}
        assert {len(each["words"])} == {len(row) for row in (each["pivots"], *each["probabilities"].values())}
    for one, other in zip(sentences[:5], sentences[5:], strict=True):
        assert [" ".join(one["words"]), " ".join(other["words"])] in lines
    orders = [each for each in record["examples"] if "ranks" in each]
    assert len(orders) == 5
    for each in orders:
        n = len(each["words"])
        assert sorted(each["ranks"]) == list(range(n))
        assert {n} == {len(row) for table in (each["places"], each["before"]) for row in (table, *table)}
        (whole,) = [
            other["words"] for other in sentences if (other["lang"], other["sentence"]) == ("bb", each["sentence"])
        ]
        left = iter(whole)
        assert all(word in left for word in each["words"])  # in the order of the sentence
    works(capsys, "report", trained, "--out", tmp_path / "r.html", "--plots", tmp_path / "plots")
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"key-points-phases.svg", "key-points-words-aa-1.svg", "key-points-words-bb-5.svg"} <= names


def test_its_own_figures_are_in_the_record(trained):
    record = json.loads((trained / "calque-run.json").read_text())
    scores = {(s["task"], s["languages"][0], s["settings"]["model"], s["metric"]): s for s in record["scores"]}
    assert {"distance", "key-points", "order"} == {task for task, *_ in scores}
    order = {
        model: s["value"] for (task, _, model, metric), s in scores.items() if (task, metric) == ("order", "bleu-2")
    }
    assert set(order) == {"as it stands", "relative, n = 1", "relative, n = 10", "absolute, n = 1", "absolute, n = 10"}
    assert order["relative, n = 10"] > order["as it stands"]
    for lang in ("aa", "bb"):
        assert 0.5 < scores["key-points", lang, "confident labels", "accuracy"]["value"] <= 1
        assert ("key-points", lang, "labels as they are", "accuracy") in scores
    assert scores["distance", "bb", "transform", "relative distance"]["value"] < 1
    for score in scores.values():
        assert score["low"] <= score["value"] <= score["high"]
    assert record["pivots"]["bb"]["f1"] > 0.5
    assert {"positive", "negative", "used", "with_rates", "without"} == record["flip_rates"]["bb"].keys()
    assert "relative, n = 10" in (trained / "README.md").read_text()
    assert (trained / "training" / "transform-bb" / "metrics.jsonl").is_file()


@pytest.mark.parametrize("steps", ["transform,extract,reorder", "pivots"])
def test_inference_on_every_step(capsys, world, trained, steps, tmp_path):
    out, _ = works(
        capsys, "evaluate", trained, "nli", "--train", f"aa={world}/nli.train.aa.tsv", "--dev", f"aa={world}/nli.dev.aa.tsv",
        "--test", f"aa={world}/nli.test.aa.tsv", f"bb={world}/nli.test.bb.tsv", "--head", "esim", "--epochs", "1", "--seeds",
        "1", "--hidden", "8", "--pretokenized", "--steps", steps, "--json",
        *(["--translations", f"bb={world}/nli.test.aa.tsv,{world}/nli.test.bb.tsv"] if steps == "pivots" else []),
    )  # fmt: skip
    assert {tuple(score["languages"]) for score in json.loads(out)["scores"]} == {("aa", "aa"), ("aa", "bb")}


def test_pivots_need_translations(capsys, world, trained, tmp_path):
    nli = ["evaluate", trained, "nli", "--train", f"aa={world}/nli.train.aa.tsv", "--test", f"bb={world}/nli.test.bb.tsv",
           "--pretokenized", "--seeds", "1", "--epochs", "1"]  # fmt: skip
    assert "pivots need the translation of every test sentence" in fails(capsys, *nli, "--steps", "pivots")
    two = f"bb={world}/nli.dev.aa.tsv,{world}/nli.test.bb.tsv"
    assert "expected the same texts in both" in fails(capsys, *nli, "--steps", "pivots", "--translations", two)
    assert "--translations are for key points by pivots" in fails(capsys, *nli, "--translations", two)
    some = tmp_path / "some.tsv"
    some.write_text("\n".join((world / "test.tsv").read_text().splitlines()[:5]) + "\n")
    assert "have no translation here" in fails(capsys, *nli, "--steps", "pivots", "--translations", f"bb={some}")


def test_another_threshold_than_the_one_of_training(capsys, world, trained, tmp_path):
    counts = []
    for delta in ("0", "0.2", "0.99"):
        works(capsys, "clcr", "keypoints", trained, world / "test.aa", "--pretokenized", "--lang", "aa", "--delta", delta,
              "--out", tmp_path / delta)  # fmt: skip
        counts.append(sum(len(line.split()) for line in (tmp_path / delta).read_text().splitlines()))
    assert counts[0] > counts[1] > counts[2] >= 60
    assert load_encoder(trained, delta=0.2).fingerprint == load_encoder(trained).fingerprint
    assert load_encoder(trained, delta=0.3).fingerprint != load_encoder(trained).fingerprint
    nli = [
        "nli",
        "--train",
        f"aa={world}/nli.train.aa.tsv",
        "--test",
        f"bb={world}/nli.test.bb.tsv",
        "--steps",
        "transform",
    ]
    assert "mini: it is for key points, calque align --method clcr makes them" in fails(
        capsys, "evaluate", "mini", *nli
    )
    with pytest.raises(SettingError, match="delta does not apply to pivots"):
        open_pivoted(str(trained), [f"bb={world}/nli.test.aa.tsv,{world}/nli.test.bb.tsv"], delta=0.5)


def test_a_run_that_was_killed_goes_on_to_the_same_bits(capsys, world, trained, tmp_path, monkeypatch):
    """Killed where an order is about to be learnt: all before is in its checkpoints."""
    from calque.alignment.clcr import learning

    with monkeypatch.context() as patch:
        patch.setattr(learning, "_learn_order", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            works(capsys, *train(world, tmp_path / "out", "-q"))
    assert not (tmp_path / "out").exists()
    assert (tmp_path / ".out.calque-part" / "new" / "training").is_dir()
    works(capsys, *train(world, tmp_path / "out", "-q"))
    again, first = (load_encoder(folder) for folder in (tmp_path / "out", trained))
    assert again.fingerprint == first.fingerprint
    sentence = first.encoders["bb"].vectors
    assert np.isfinite(next(iter(sentence.values()))).all()


def test_what_cannot_be(capsys, world, tmp_path):
    given = train(world, tmp_path / "out", "--steps", "transform")
    without = [part for part in given if part != f"bb={world}/bb"]
    assert "no encoder for language 'bb'" in fails(capsys, *without)
    assert "--towards cc" in fails(capsys, *given, "--pivot", "cc")


def test_further_languages_meet_in_the_pivot(capsys, world, tmp_path):
    """A third language that is the second by another name, from other sentences: its key points are as many."""
    lines = (world / "train.tsv").read_text().splitlines(keepends=True)
    for name, part in (("first", lines[:250]), ("second", lines[250:])):
        (tmp_path / f"{name}.tsv").write_text("".join(part))
    works(
        capsys, "clcr", "train", f"aa={world}/aa", f"bb={world}/bb", f"cc={world}/bb", tmp_path / "first.tsv",
        tmp_path / "second.tsv", "--pretokenized", "--langs", "aa", "bb", "--langs", "aa", "cc", "--pivot", "aa", "--out",
        tmp_path / "out", *SHORT, "--steps", "transform,extract",
    )  # fmt: skip
    encoder = load_encoder(tmp_path / "out")
    assert encoder.languages == ("aa", "bb", "cc")
    assert set(encoder.costs) == {"bb", "cc"}
    record = json.loads((tmp_path / "out" / "calque-run.json").read_text())
    assert {"transform-bb", "transform-cc", "refine-bb", "refine-cc"} <= set(record["phases"])
    for lang in ("bb", "cc"):
        _, said = works(capsys, "clcr", "keypoints", tmp_path / "out", world / "test.bb", "--pretokenized", "--lang", lang,
                        "--out", tmp_path / lang)  # fmt: skip
        assert "60 sentences" in said
    assert "no encoder for language 'dd'" in fails(
        capsys, "clcr", "keypoints", tmp_path / "out", world / "test.bb", "--lang", "dd", "--out", tmp_path / "x"
    )
