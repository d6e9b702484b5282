"""Tests of the main commands: output, files and errors."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

import forked
from calque.corpora.spread import spread_over
from calque.encoders import load_encoder
from command import fails, works
from linked_text import WORDS


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Write three small parallel texts: language xx spells English words backwards, and yy also
    reverses the word order.

    All letters are in the tiny tokenizer's vocabulary; with capitals, every word would be a single
    unknown subword.
    """
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(0)
    for name, turn, n in (("en-xx", 1, 60), ("en-yy", -1, 40), ("test", 1, 8)):
        with open(folder / f"{name}.tsv", "w", encoding="utf-8") as file:
            for _ in range(n):
                words = [WORDS[i] for i in rng.choice(10, rng.integers(3, 9), replace=False)]
                file.write(
                    f"{' '.join(words)}\t{' '.join(w[::-1] for w in words[::turn])}\torigin\n"
                )
    return folder


def test_the_limit_applies_only_to_the_test_text(capsys, texts, tiny_folder, tmp_path):
    lines = (texts / "test.tsv").open().readlines()
    chosen = spread_over(len(lines), 4)
    assert chosen is not None
    (tmp_path / "four.tsv").write_text("".join(lines[k] for k in chosen))

    def counts(test, *more):
        out, err = works(
            capsys,
            "evaluate",
            tiny_folder,
            "retrieval",
            "--test",
            test,
            "--langs",
            "en",
            "xx",
            "--train",
            texts / "en-xx.tsv",
            "--json",
            "-q",
            *more,
        )
        settings = json.loads(out)["settings"]
        return settings["training_sentence_pairs"], settings["seen_in_training"]

    whole = counts(tmp_path / "four.tsv")
    assert whole[0] == 60
    assert counts(texts / "test.tsv", "--limit", 4) == whole
    (tmp_path / "none.align").write_text("\n" * 60)
    assert (
        counts(tmp_path / "four.tsv", "--train-links", tmp_path / "none.align") == (60, 0) != whole
    )


def test_layers_are_compared_in_one_forward_pass(capsys, texts, family_folders, tmp_path):
    """Check a decoder: its default layer is reported once, and each row of the table equals the
    score with `--layer`.
    """
    out, job = (
        tmp_path / "layers.jsonl",
        ("--test", texts / "en-xx.tsv", "--langs", "en", "xx", "-q"),
    )
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
    dev = {
        r["settings"]["layer"]: r["value"]
        for r in records
        if r["metric"] == "accuracy.all.dev-half"
    }
    best = max(dev, key=lambda layer: dev[layer])
    assert f"* Layer {best} is best on the dev half" in shown
    assert (records[-2]["metric"], records[-2]["settings"]["layer"]) == (
        "accuracy.all.test-half",
        best,
    )
    default, err = works(capsys, *gpt2, "--json")
    assert json.loads(default)["value"] == whole[2]
    assert err.count("gpt2") == err.count("its default layer is 2 of 3; set another layer") == 1
    some = json.loads(works(capsys, *gpt2, "--layers", "1-2", "--json")[0])
    assert (some["metric"], [score["x"] for score in some["scores"][:4]]) == (
        "accuracy.all.test-half",
        [1, 1, 2, 2],
    )
    assert "--layer cannot be combined with --layers" in fails(
        capsys, *gpt2, "--layers", "1,2", "--layer", 1
    )
    assert "--layers x: expected whole numbers" in fails(capsys, *gpt2, "--layers", "x")


def test_the_saved_folder_is_a_transformers_model(capsys, texts, tiny_folder, tmp_path):
    """Load the folder in a process that cannot import calque."""
    out = tmp_path / "rotated"
    job = (
        "align",
        texts / "en-xx.tsv",
        texts / "en-yy.tsv",
        "--langs",
        "en",
        "xx",
        "--langs",
        "en",
        "yy",
        "--encoder",
        tiny_folder,
        "--method",
        "finetune",
        "--towards",
        "en",
        "--model",
        "fast-align",
        "--held-out",
        0,
        "--out",
        out,
        "-q",
    )
    assert works(capsys, *job)[1] == ""
    code = (
        "import sys; sys.modules['calque'] = None\n"
        "from transformers import AutoModel, AutoTokenizer\n"
        f"model, tokenizer = AutoModel.from_pretrained({str(out)!r}), "
        f"AutoTokenizer.from_pretrained({str(out)!r})\n"
        "print(model(**tokenizer('the cat', return_tensors='pt')).last_hidden_state.shape[-1])"
    )
    done = forked.run("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads((out / "calque-run.json").read_text(encoding="utf-8"))
    assert record["settings"]["towards"] == "en"
    assert [text["langs"] for text in record["texts"]] == [["en", "xx"], ["en", "yy"]]


def test_adapters_can_be_saved_tracked_and_merged_afterwards(capsys, texts, tiny_folder, tmp_path):
    pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
    pytest.importorskip(
        "tensorboard",
        reason="TensorBoard is not installed: pip install 'calque-align[tensorboard]'",
    )
    job = (
        "align",
        texts / "en-xx.tsv",
        "--langs",
        "en",
        "xx",
        "--encoder",
        tiny_folder,
        "--method",
        "contrastive",
        "--towards",
        "en",
        "--model",
        "fast-align",
        "--epochs",
        "0.5",
        "-q",
    )
    tracked = ("--track", "tensorboard", "--track-folder", tmp_path / "tracked")
    adapted = (*job, "--held-out", 0, "--lora", 2, "--out", tmp_path / "adapters")
    assert works(capsys, *adapted, *tracked)[1] == ""
    assert list((tmp_path / "tracked" / "adapters").glob("events.out.*"))
    with open(tmp_path / "adapters" / "README.md", "a") as card:
        card.write("\n## Licence\n\nMIT.\n")
    assert (
        works(capsys, "merge", tmp_path / "adapters", "--out", tmp_path / "merged", "-q")[1] == ""
    )
    assert "## Licence\n\nMIT.\n" in (tmp_path / "merged" / "README.md").read_text()
    assert not (tmp_path / "adapters" / "model.safetensors").exists()
    vectors = [
        load_encoder(tmp_path / name).encode([["the", "cat"]]).data
        for name in ("adapters", "merged")
    ]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    record = tmp_path / "adapters" / "calque-run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "scores": [3]}))
    said = fails(capsys, "merge", tmp_path / "adapters", "--out", tmp_path / "again", "-q")
    assert f"{record}: scores/0 must be a JSON object" in said
    assert "not an option" in fails(
        capsys, *job[:8], "clcr", *job[9:-3], "--lora", 2, "--out", tmp_path / "n"
    )


@pytest.mark.parametrize("method", ["rotation", "sentence-rotation"])
def test_maps_are_fitted_and_their_scores_are_recorded_in_the_model_card(
    capsys, texts, tiny_folder, tmp_path, method
):
    works(
        capsys,
        "align",
        texts / "en-xx.tsv",
        "--langs",
        "en",
        "xx",
        "--encoder",
        tiny_folder,
        "--method",
        method,
        "--towards",
        "en",
        "--out",
        tmp_path / "m",
        "--layers",
        "-2,-1",
        "--combine",
        "sum",
    )
    evaluate = (
        "evaluate",
        tmp_path / "m",
        "retrieval",
        "--test",
        texts / "test.tsv",
        "--langs",
        "en",
        "xx",
    )
    out, err = works(capsys, *evaluate, "--record")
    assert "95% interval" in out
    assert "| retrieval |" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    scores = json.loads((tmp_path / "m" / "calque-run.json").read_text(encoding="utf-8"))["scores"]
    assert not any("resamples" in score for score in scores)


def test_printing_help_imports_no_heavy_modules():
    for command in ([], ["--help"], ["align", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "calque", *command], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage" in done.stdout
    heavy = (
        "import sys, calque, calque.cli; print([m for m in ('torch', 'transformers', 'numba') if m "
        "in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture
def sides(texts, tmp_path):
    """Write each side of a parallel text as plain text, and return the files as LANG=FILE
    arguments.
    """
    for k, lang in enumerate(("en", "xx")):
        lines = (texts / "en-xx.tsv").read_text().splitlines()
        (tmp_path / lang).write_text("".join(line.split("\t")[k] + "\n" for line in lines))
    return [f"{lang}={tmp_path / lang}" for lang in ("en", "xx")]


def test_an_encoder_can_be_pretrained_on_plain_text_and_evaluated(
    capsys, texts, sides, tiny_folder, tmp_path
):
    out = tmp_path / "encoder"
    made = [
        "pretrain",
        *sides,
        "--layers",
        2,
        "--dim",
        16,
        "--vocabulary",
        100,
        "--positions",
        40,
        "--length",
        20,
        "--batch",
        8,
        "--out",
        out,
    ]
    printed, err = works(capsys, *made, "--updates", 12, "--half")
    assert "sentences: en 60, xx 60" in err
    record = json.loads((out / "calque-run.json").read_text())
    assert record["updates"] == 12
    assert record["last_loss"] < record["first_loss"]
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.dtype == torch.float16
    assert model.cls.predictions.bias.shape == (record["vocabulary"],)
    works(
        capsys,
        "evaluate",
        out,
        "retrieval",
        "--test",
        texts / "test.tsv",
        "--langs",
        "en",
        "xx",
        "--quiet",
    )
    printed, err = works(capsys, "perplexity", out, *sides)
    assert [line.split()[1] for line in printed.splitlines()[2:4]] == [
        "perplexity.en",
        "perplexity.xx",
    ]
    printed, err = works(capsys, "perplexity", out, sides[0], "--json", "--quiet")
    assert json.loads(printed)["value"] > 1
    assert "already contains an encoder" in fails(capsys, *made)
    assert "no language-model head" in fails(capsys, "perplexity", tiny_folder, sides[0])


def test_plain_and_parallel_text_give_the_same_encoder(capsys, texts, sides, tiny_folder, tmp_path):
    place = ("--encoder", tiny_folder, "--towards", "en", "--layers", "-2,-1", "--combine", "sum")
    given = ("--method", "means", "--option", "offset=false", *place)
    _, said = works(capsys, "align", "--text", *sides, *given, "--out", tmp_path / "means")
    assert f"saved to {tmp_path / 'means'} (means " in said
    _, said = works(
        capsys, "align", texts / "en-xx.tsv", "--langs", "en", "xx", *given, "--out", tmp_path / "p"
    )
    assert "means: 60 sentence pairs\n" in said  # words are not linked
    made = load_encoder(tmp_path / "means")
    assert made.fingerprint == load_encoder(tmp_path / "p").fingerprint
    record = json.loads((tmp_path / "means" / "calque-run.json").read_text())
    assert [text["sentences"] for text in record["texts"]] == [60, 60]
