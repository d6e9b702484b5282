"""The command line from outside: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import forked
from calque.cli import spread
from calque.encoders import load_encoder
from calque.errors import SettingError
from command import fails, run, works

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Three small parallel texts: xx is en word by word with its letters backwards, yy with its words backwards too.

    Letters that the tiny tokenizer knows: capitals would all be one unknown subword, and nothing could be learnt.
    """
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(0)
    for name, turn, n in (("en-xx", 1, 60), ("en-yy", -1, 40), ("test", 1, 8)):
        with open(folder / f"{name}.tsv", "w", encoding="utf-8") as file:
            for _ in range(n):
                words = [WORDS[i] for i in rng.choice(10, rng.integers(3, 9), replace=False)]
                file.write(f"{' '.join(words)}\t{' '.join(w[::-1] for w in words[::turn])}\torigin\n")
    return folder


def test_the_whole_job(capsys, texts, tiny_folder, tmp_path):
    links = tmp_path / "train.align"
    code, out, err = run(capsys, "words", texts / "en-xx.tsv", "--langs", "en", "xx", "--out", links)
    assert (code, out) == (0, ""), err
    assert len(links.read_text().splitlines()) == 60
    aligned = tmp_path / "aligned"
    code, out, err = run(
        capsys, "align", texts / "en-xx.tsv", "--langs", "en", "xx", "--encoder", tiny_folder, "--method",
        "contrastive", "--towards", "en", "--out", aligned, "--links", links, "--epochs", 40, "--batch", 10,
        "--learning-rate", "1e-3",
    )  # fmt: skip
    assert code == 0, err
    found = {}
    for name, encoder in (("base", tiny_folder), ("aligned", aligned)):
        out, err = works(
            capsys, "evaluate", encoder, "retrieval", "--test", texts / "test.tsv", "--langs", "en", "xx", "--train",
            texts / "en-xx.tsv", "--train-links", links, "--json",
        )  # fmt: skip
        found[name] = json.loads(out.splitlines()[-1])
        assert {"metric", "value", "low", "high", "queries", "settings"} <= found[name].keys()
        assert len(found[name]["scores"]) >= 2
    whole = {name: next(s for s in f["scores"] if "unseen" not in s["metric"]) for name, f in found.items()}
    assert 0 <= whole["base"]["value"] < whole["aligned"]["value"] - 0.15 <= 0.85


def test_a_limit_cuts_the_test_and_not_what_was_seen_in_training(capsys, texts, tiny_folder, tmp_path):
    (tmp_path / "four.tsv").write_text("".join((texts / "test.tsv").open().readlines()[:4]))

    def counts(test, *more):
        out, err = works(capsys, "evaluate", tiny_folder, "retrieval", "--test", test, "--langs", "en", "xx", "--train",
                             texts / "en-xx.tsv", "--json", "-q", *more)  # fmt: skip
        settings = json.loads(out)["settings"]
        return settings["training_sentence_pairs"], settings["seen_in_training"]

    whole = counts(tmp_path / "four.tsv")
    assert whole[0] == 60
    assert counts(texts / "test.tsv", "--limit", 4) == whole


def test_layers_are_compared_in_one_pass(capsys, texts, family_folders, tmp_path):
    """A decoder, whose default layer is told once; each row of the table is what --layer gives."""
    out, job = tmp_path / "layers.jsonl", ("--test", texts / "en-xx.tsv", "--langs", "en", "xx", "-q")
    gpt2 = ("evaluate", family_folders("gpt2"), "retrieval", *job)
    shown, err = works(capsys, *gpt2, "--layers", "all", "--out", out)
    assert "default" not in err
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    whole = {r["settings"]["layer"]: r["value"] for r in records if r["metric"] == "accuracy.all"}
    for layer, value in whole.items():
        assert value == json.loads(works(capsys, *gpt2, "--layer", layer, "--json")[0])["value"]
        (row,) = [row for row in shown.splitlines() if row.strip("* ").startswith(f"{layer} ")]
        assert f"{100 * value:.2f}" in row.split()
    assert list(whole) == [0, 1, 2, 3]
    dev = {r["settings"]["layer"]: r["value"] for r in records if r["metric"] == "accuracy.all.dev-half"}
    best = max(dev, key=lambda layer: dev[layer])
    assert f"* Layer {best} is best on the dev half" in shown
    assert (records[-2]["metric"], records[-2]["settings"]["layer"]) == ("accuracy.all.test-half", best)
    default, err = works(capsys, *gpt2, "--json")
    assert json.loads(default)["value"] == whole[2]
    assert err.count("gpt2") == err.count("layer 2 of 3, the default of decoders; choose another with --layer") == 1
    some = json.loads(works(capsys, *gpt2, "--layers", "1-2", "--json")[0])
    assert (some["metric"], [score["x"] for score in some["scores"][:4]]) == ("accuracy.all.test-half", [1, 1, 2, 2])
    assert "--layer does not go together with --layers" in fails(capsys, *gpt2, "--layers", "1,2", "--layer", 1)
    assert "--layers x: expected whole numbers" in fails(capsys, *gpt2, "--layers", "x")


def test_the_folder_is_a_transformers_model(capsys, texts, tiny_folder, tmp_path):
    """In a process that cannot import calque."""
    out = tmp_path / "rotated"
    code, _, err = run(
        capsys, "align", texts / "en-xx.tsv", texts / "en-yy.tsv", "--langs", "en", "xx", "--langs", "en", "yy",
        "--encoder", tiny_folder, "--method", "finetune", "--towards", "en", "--out", out, "--learning-rate", "1e-3",
        "--model", "fast-align", "-q",
    )  # fmt: skip
    assert (code, err) == (0, "")
    code = (
        "import sys; sys.modules['calque'] = None\n"
        "from transformers import AutoModel, AutoTokenizer\n"
        f"model, tokenizer = AutoModel.from_pretrained({str(out)!r}), AutoTokenizer.from_pretrained({str(out)!r})\n"
        "print(model(**tokenizer('the cat', return_tensors='pt')).last_hidden_state.shape[-1])"
    )
    done = forked.run("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "en-xx.tsv" in card
    assert "finetune" in card
    record = json.loads((out / "calque-run.json").read_text(encoding="utf-8"))
    assert record["settings"]["towards"] == "en"
    assert [text["langs"] for text in record["texts"]] == [["en", "xx"], ["en", "yy"]]


def test_adapters_are_saved_alone_tracked_and_merged_afterwards(capsys, texts, tiny_folder, tmp_path):
    pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'calque-align[tensorboard]'")
    job = ("align", texts / "en-xx.tsv", "--langs", "en", "xx", "--encoder", tiny_folder, "--method", "contrastive",
           "--towards", "en", "--model", "fast-align", "--epochs", "0.5", "-q")  # fmt: skip
    tracked = ("--track", "tensorboard", "--track-folder", tmp_path / "tracked")
    code, _, err = run(capsys, *job, "--lora", 2, "--out", tmp_path / "adapters", *tracked)
    assert (code, err) == (0, "")
    assert list((tmp_path / "tracked" / "adapters").glob("events.out.*"))
    assert "unknown tracker" in fails(capsys, *job, "--out", tmp_path / "n", "--track", "tensorbord")
    code, _, err = run(capsys, "merge", tmp_path / "adapters", "--out", tmp_path / "merged", "-q")
    assert (code, err) == (0, "")
    assert not (tmp_path / "adapters" / "model.safetensors").exists()
    vectors = [load_encoder(tmp_path / name).encode([["the", "cat"]]).data for name in ("adapters", "merged")]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    assert "not an option" in fails(capsys, *job[:8], "clcr", *job[9:-3], "--lora", 2, "--out", tmp_path / "n")


@pytest.mark.parametrize("method", ["rotation", "sentence-rotation"])
def test_maps(capsys, texts, tiny_folder, tmp_path, method):
    code, _, err = run(
        capsys, "align", texts / "en-xx.tsv", "--langs", "en", "xx", "--encoder", tiny_folder, "--method", method,
        "--towards", "en", "--out", tmp_path / "m", "--layers", "-2,-1", "--combine", "sum",
    )  # fmt: skip
    assert code == 0, err
    out, err = works(
        capsys, "evaluate", tmp_path / "m", "retrieval", "--test", texts / "test.tsv", "--langs", "en", "xx", "--record"
    )
    assert "95% interval" in out
    assert "| retrieval |" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    scores = json.loads((tmp_path / "m" / "calque-run.json").read_text(encoding="utf-8"))["scores"]
    assert not any("resamples" in score for score in scores)
    # A figure of the encoder before alignment that is higher for certain, and one that is lower.
    better = {**scores[0], "value": 1.0, "low": 0.999, "high": 1.0}
    worse = {**scores[1], "value": 0.0, "low": 0.0, "high": 0.001}
    (tmp_path / "base.jsonl").write_text(json.dumps(better) + "\n" + json.dumps(worse) + "\n", encoding="utf-8")
    evaluate = ("evaluate", tmp_path / "m", "retrieval", "--test", texts / "test.tsv", "--langs", "en", "xx")
    _, err = works(capsys, *evaluate, "--record", "--against", tmp_path / "base.jsonl")
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert "worse than before alignment" in card.lower() or "Worse, but not clearly so" in card
    assert f"- retrieval {scores[0]['metric']}, en-xx, " in card
    code, _, err = run(capsys, *evaluate, "--against", tmp_path / "base.jsonl")
    assert (code, "--against is only for --record" in err) == (2, True)
    (tmp_path / "base.jsonl").write_text("{}\n", encoding="utf-8")
    code, _, err = run(capsys, *evaluate, "--record", "--against", tmp_path / "base.jsonl")
    assert "base.jsonl line 1: has no task, data" in err


def test_mistakes_are_one_line_and_exit_code_2(capsys, texts, tiny_folder, tmp_path):
    train, en_xx = texts / "en-xx.tsv", ("--langs", "en", "xx")
    target = ("--encoder", tiny_folder, "--towards", "en", "--out", tmp_path / "o")
    short = tmp_path / "short.align"
    short.write_text("0-0\n" * 59)
    line = fails(capsys, "align", train, *en_xx, *target, "--links", short)
    assert "59 lines of links" in line
    assert "60 sentence pairs" in line
    wrong = tmp_path / "wrong.align"
    wrong.write_text("0-0\n" * 40 + "0-99\n" + "0-0\n" * 19)
    assert "line 41: target word 99" in fails(capsys, "align", train, *en_xx, *target, "--links", wrong)


def test_help_is_quick_and_the_package_is_light():
    for command in ([], ["align"]):
        done = subprocess.run([sys.executable, "-m", "calque", *command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0
        assert "Usage" in done.stdout
    heavy = "import sys, calque, calque.cli; print([m for m in ('torch', 'transformers', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
    before = os.times()
    subprocess.run([sys.executable, "-c", "import calque"], check=True)
    after = os.times()
    assert after.children_user - before.children_user + after.children_system - before.children_system < 0.5


def test_spreading_of_langs():
    assert spread(["words", "--langs", "en", "de", "x"]) == ["words", "--langs", "en", "--langs", "de", "x"]
    assert spread(["--", "--langs"]) == ["--", "--langs"]
    with pytest.raises(SettingError):
        spread(["--langs", "en", "--out"])


def test_pretraining_from_plain_text_to_a_measured_encoder(capsys, texts, tiny_folder, tmp_path):
    from transformers import AutoModelForMaskedLM

    for k, lang in enumerate(("en", "xx")):
        lines = (texts / "en-xx.tsv").read_text().splitlines()
        (tmp_path / lang).write_text("".join(line.split("\t")[k] + "\n" for line in lines))
    out = tmp_path / "encoder"
    made = ["pretrain", f"en={tmp_path / 'en'}", f"xx={tmp_path / 'xx'}", "--layers", 2, "--dim", 16, "--vocabulary", 100,
            "--positions", 40, "--length", 20, "--batch", 8, "--out", out]  # fmt: skip
    code, printed, err = run(capsys, *made, "--updates", 12, "--half")
    assert (code, printed) == (0, ""), err
    assert "sentences: en 60, xx 60" in err
    record = json.loads((out / "calque-run.json").read_text())
    assert record["updates"] == 12
    assert record["last_loss"] < record["first_loss"]
    assert [text["lang"] for text in record["texts"]] == ["en", "xx"]
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.dtype == torch.float16
    assert model.cls.predictions.bias.shape == (record["vocabulary"],)
    code, printed, err = run(
        capsys, "evaluate", out, "retrieval", "--test", texts / "test.tsv", "--langs", "en", "xx", "--json", "--quiet"
    )
    assert code == 0, err
    assert 0 <= json.loads(printed)["value"] <= 1
    printed, err = works(capsys, "perplexity", out, f"en={tmp_path / 'en'}", f"xx={tmp_path / 'xx'}")
    assert [line.split()[1] for line in printed.splitlines()[2:4]] == ["perplexity.en", "perplexity.xx"]
    code, printed, err = run(capsys, "perplexity", out, f"en={tmp_path / 'en'}", "--json", "--quiet")
    assert json.loads(printed)["value"] > 1
    assert "already holds an encoder" in fails(capsys, *made)
    assert "give the language before the file" in fails(capsys, "pretrain", "en.txt", "--out", tmp_path / "x")
    assert "no language-model head" in fails(capsys, "perplexity", tiny_folder, f"en={tmp_path / 'en'}")
    message = fails(capsys, *made[:3], "--out", tmp_path / "y", "--tokenizer", tmp_path / "missing", "--updates", 1)
    assert str(tmp_path / "missing") in message


# -- text alone: no links, no dictionary, no translations -----------------------------------------------------------------
LINES = ["the cat sees a house", "of time and water", "a house in the water"]


@pytest.fixture
def sides(tmp_path):
    """Text in two languages, alone and as parallel text."""
    turned = [line[::-1] for line in LINES]
    for lang, lines in (("en", LINES), ("xx", turned)):
        (tmp_path / f"{lang}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"{a}\t{b}\n" for a, b in zip(LINES, turned, strict=True)]
    (tmp_path / "train.tsv").write_text("".join(pairs), encoding="utf-8")
    return tmp_path


def test_text_and_parallel_text_give_the_same_encoder(capsys, sides, tiny_folder):
    place = ("--encoder", tiny_folder, "--towards", "en", "--layers", "-2,-1", "--combine", "sum")
    plain = ("--text", f"en={sides / 'en.txt'}", f"xx={sides / 'xx.txt'}")
    given = ("--method", "means", "--option", "offset=false", *place)
    _, said = works(capsys, "align", *plain, *given, "--out", sides / "means")
    assert f"saved to {sides / 'means'} (means " in said
    _, said = works(capsys, "align", sides / "train.tsv", "--langs", "en", "xx", *given, "--out", sides / "p")
    assert "means: 3 sentence pairs\n" in said  # and no word links
    made = load_encoder(sides / "means")
    assert made.fingerprint == load_encoder(sides / "p").fingerprint
    assert set(made.maps) == {"en", "xx"}
    records = [json.loads((sides / folder / "calque-run.json").read_text()) for folder in ("means", "p")]
    assert "words" not in records[1]
    assert records[0]["settings"] == records[1]["settings"]
    assert [text["sentences"] for text in records[0]["texts"]] == [3, 3]


def test_what_has_no_effect_is_refused(capsys, sides, tiny_folder):
    place = ("--encoder", tiny_folder, "--towards", "en", "--out", sides / "o", "--method", "means")
    plain = ("--text", f"en={sides / 'en.txt'}", f"xx={sides / 'xx.txt'}")
    pairs = (sides / "train.tsv", "--langs", "en", "xx")
    for option in (("--seed", 1), ("--langs", "en", "xx")):
        assert f"{option[0]} has no effect with --method means and --text" in fails(
            capsys, "align", *plain, *place, *option
        )
    assert "--model has no effect with --method means, which needs no word links" in fails(
        capsys, "align", *pairs, *place, "--model", "hmm"
    )
    assert "got TRAIN and --text" in fails(capsys, "align", *pairs, *place, *plain)
    assert "--option rank=1: expected NAME=VALUE, with one of layers, combine, offset" in fails(
        capsys, "align", *plain, *place, "--option", "rank=1"
    )
    assert not (sides / "o").exists()
