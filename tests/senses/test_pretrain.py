"""Test the pretraining of language models with senses, from the command line to the saved
folder.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from calque.encoders import load_encoder
from calque.senses.bidirectional import BiLanguageModel
from calque.senses.elmo import elmo_options
from calque.senses.masked import MaskedLanguageModel
from calque.senses.pretrain import pretrain, settings_for
from calque.senses.sense_table import SENSES_FILE, SenseTable, open_senses, save_senses
from command import fails, run, works

EN = "the a cat dog bank river money tree sees eats near house old red walks House"
DE = "die ein katze hund bank fluss geld baum sieht frisst nahe haus alt rot geht Haus"
WORDS = {"en": EN.split(), "de": DE.split()}
SIZES = {
    "elmo": ("--dim", 16, "--hidden", 16, "--sense-option", "axes=4"),
    "bert": ("--dim", 16, "--layers", 1, "--vocabulary", 100, "--sense-option", "axes=4"),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Write text in two languages, and a dictionary between them."""
    folder, rng = tmp_path_factory.mktemp("text"), random.Random(0)
    for lang, n in (("en", 90), ("de", 60)):
        lines = (" ".join(rng.choices(WORDS[lang], k=7)) for _ in range(n))
        (folder / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "en-de.txt").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(*WORDS.values(), strict=True))
    )
    return folder


def command(texts: Path, out: Path, model: str, *more: object) -> list[object]:
    return [
        "pretrain",
        f"en={texts / 'en.txt'}",
        f"de={texts / 'de.txt'}",
        "--model",
        model,
        "--preset",
        "tiny",
        *SIZES[model],
        "--batch",
        8,
        "--updates",
        8,
        "--sense-option",
        "warmup=2",
        "--out",
        out,
        *more,
    ]


def with_dictionary(texts: Path) -> list[object]:
    return ["--senses", 3, "--dictionary", f"en-de={texts / 'en-de.txt'}"]


@pytest.fixture(scope="module", params=["elmo", "bert"])
def trained(request, texts, tmp_path_factory) -> tuple[str, Path]:
    """Train a model with senses and translations through the Python API."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    sizes = {"elmo": {"hidden": 16}, "bert": {"layers": 1, "vocabulary": 100}}[request.param]
    pretrain(
        [(lang, str(texts / f"{lang}.txt")) for lang in ("en", "de")],
        out=out,
        model=request.param,
        preset="tiny",
        senses={
            "senses": 3,
            "occurrences": 0,
            "warmup": 2,
            "axes": 4,
            "prune_every": 2,
            "below": 0.3,
        },
        dictionaries=[(("en", "de"), str(texts / "en-de.txt"))],
        options={"dim": 16, "batch": 8, "updates": 20, "lower": True, **sizes},
        held_out=9,
    )
    return request.param, out


def test_run_record_and_model_card_describe_the_senses(trained):
    model, out = trained
    record = json.loads((out / "calque-run.json").read_text())
    assert (record["preset"], record["lower_case"], record["settings"]["alpha"]) == (
        "tiny",
        True,
        0.0,
    )
    assert record["settings"]["senses"]["senses"] == 3
    tables = open_senses(out)
    for about, table in zip(record["senses"]["tables"], tables, strict=True):
        left = [int(table.live[row[row >= 0]].sum()) for row in table.index]
        assert about["words"] == len(left)
        assert about["senses_per_word"] == pytest.approx(np.mean(left), abs=1e-3)
        assert about["several"] == pytest.approx(np.mean([n > 1 for n in left]), abs=1e-4)
        assert about["words_by_senses"] == {str(n): left.count(n) for n in sorted(set(left))}
        assert min(left) >= 1
        assert about["senses_per_word"] < 3  # some senses were pruned
    assert not (out / "softmax.safetensors").exists()
    assert record["senses"]["dictionaries"] == [
        {"path": "en-de.txt", "langs": ["en", "de"], "pairs": 16}
    ]
    assert all(record["senses"]["translated_words"][lang] > 0 for lang in ("en", "de"))
    card = (out / "README.md").read_text()
    first = record["senses"]["tables"][0]
    assert f"{first['several']:.1%}" in card
    assert "en-de.txt (en-de, 16 pairs)" in card
    assert "Texts: en.txt, de.txt (lower-cased)." in card
    assert "sentences held out in de" in card
    assert ("most selected sense only" in card) == (model == "bert")


def test_the_probability_of_a_word_sums_over_its_senses(trained, texts, capsys):
    """`calque perplexity` must print the recorded held-out perplexity; all text is lower-cased."""
    model, out = trained
    encoder: Any = load_encoder(out, device="cpu")
    if model == "bert":  # sentence-transformers also uses the maximum length
        assert (
            json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"]
            == encoder.max_length
        )
    np.testing.assert_array_equal(*encoder.encode([["the", "cat"], ["The", "CAT"]]))
    found = json.loads(works(capsys, "senses", out, "BANK", "--trained", "--json", "-q")[0])
    assert found["word"] == "bank"  # all text was lower-cased in training
    record = json.loads((out / "calque-run.json").read_text())
    lines = (texts / "en.txt").read_text().splitlines()
    held = texts / "held.txt"
    held.write_text("".join(lines[k * 90 // 9] + "\n" for k in range(9)))
    printed, _ = works(capsys, "perplexity", out, f"en={held}", "--json", "--quiet")
    score = json.loads(printed)
    assert score["value"] == pytest.approx(record["scores"][0]["value"], rel=1e-5)
    assert score["n"] == record["scores"][0]["n"]


@pytest.mark.parametrize("trained", ["bert"], indirect=True)
def test_in_transformers_the_bert_predicts_with_the_most_often_selected_sense(trained):
    _, out = trained
    plain, (masked, report) = (
        AutoModel.from_pretrained(out),
        AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True),
    )
    assert not report["missing_keys"] | report["unexpected_keys"]
    (table,) = open_senses(out)
    head = masked.cls.predictions
    for word, row in enumerate(table.index.tolist()):
        used = [k for k in row if k >= 0 and table.live[k]]
        most = max(used, key=lambda k: int(table.counts[k]))
        assert torch.equal(head.decoder.weight[word], table.weight[most])
        assert head.decoder.bias[word] == table.bias[most]
    tokenizer = AutoTokenizer.from_pretrained(out)
    given = tokenizer(["The cat [MASK]"], return_tensors="pt")
    given.pop("token_type_ids", None)
    states = plain(**given).last_hidden_state
    torch.testing.assert_close(states, masked.bert(**given).last_hidden_state)
    expected = head.transform(states) @ head.decoder.weight.t() + head.decoder.bias
    torch.testing.assert_close(masked(**given).logits, expected)
    assert plain.get_input_embeddings().weight.shape == (len(tokenizer), 16)


@pytest.mark.parametrize("model", ["elmo", "bert"])
def test_a_run_interrupted_while_writing_resumes(model, texts, tmp_path, capsys, monkeypatch):
    """Check that the result is bitwise equal, and that its folder appears only at the end."""
    from calque.senses import sense_table

    works(capsys, *command(texts, tmp_path / "whole", model, *with_dictionary(texts)))
    write = sense_table.save_file

    def dies(*given, **more):
        write(*given, **more)
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(sense_table, "save_file", dies)
        code, _, _ = run(
            capsys, *command(texts, out, model, *with_dictionary(texts), "--checkpoint-every", 2)
        )
    assert code == 130
    assert not out.exists()
    assert (tmp_path / ".out.calque-part" / "new" / "training").is_dir()
    works(capsys, *command(texts, out, model, *with_dictionary(texts)))
    assert (out / SENSES_FILE).read_bytes() == (tmp_path / "whole" / SENSES_FILE).read_bytes()
    assert (
        load_encoder(out, device="cpu").fingerprint
        == load_encoder(tmp_path / "whole", device="cpu").fingerprint
    )


def test_corrupt_sense_files_raise_one_line_errors(trained, texts, tmp_path, capsys):
    _, out = trained
    broken = tmp_path / "broken"
    shutil.copytree(out, broken)
    data = (out / SENSES_FILE).read_bytes()
    (broken / SENSES_FILE).write_bytes(data[: len(data) // 2])
    assert "not contain the senses of a language model" in fails(
        capsys, "perplexity", broken, f"en={texts / 'en.txt'}"
    )
    save_senses([SenseTable([2, 3], 7, axes=2, queue=5)], broken, {})
    assert "the senses belong to another model" in fails(
        capsys, "perplexity", broken, f"en={texts / 'en.txt'}"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--senses", 1), "senses must be at least 2, got 1"),
        (
            ("--senses", 3, "--sense-option", "warmup=8"),
            "must be shorter than the training of 8 updates, got 8",
        ),
        (
            ("--senses", 3, "--dictionary", "en-fr=DICT"),
            "two different languages of the text (en, de)",
        ),
        (
            ("--senses", 3, "--dictionary", "en-de=STRANGE"),
            "none of the 1 pairs has two different words of the vocab",
        ),
        (("--preset", "huge"), "unknown preset 'huge', expected paper, small, tiny"),
        (("--model", "bert", "--optimiser", "adagrad"), "--optimiser does not apply to BERT"),
        (("--start", "mini", "--lower-case"), "--lower-case cannot be combined with --start"),
    ],
)
def test_invalid_arguments_raise_one_line_errors(more, said, texts, tmp_path, capsys):
    (tmp_path / "STRANGE").write_text("xyzzy plugh\n")
    files = {"DICT": texts / "en-de.txt", "STRANGE": tmp_path / "STRANGE"}

    def put(text: object) -> object:
        for name, path in files.items():
            text = text.replace(name, str(path)) if isinstance(text, str) else text
        return text

    given = [f"en={texts / 'en.txt'}", f"de={texts / 'de.txt'}", "--batch", 4, "--updates", 8]
    given += [] if "--start" in more else ["--dim", 16]
    line = fails(capsys, "pretrain", *given, "--out", tmp_path / "out", *map(put, more))
    assert put(said) in line
    assert not (tmp_path / "out").exists()


# -- options and presets ---------------------------------------------------------------------------
def test_presets_equal_the_settings_in_the_paper():
    """Check Tables 6 to 8 and Appendix D of the paper."""
    elmo = BiLanguageModel(**settings_for("elmo", preset="paper", senses=5))
    expected = elmo_options(
        dim=512, hidden=4096, layers=2, clip=3.0, character_dim=16, highway=2, max_characters=50
    )
    assert elmo.options == expected
    assert (elmo.batch, elmo.negatives, elmo.dropout, elmo.clip, elmo.tables) == (
        256,
        8192,
        0.1,
        10.0,
        2,
    )
    assert (elmo.optimiser, elmo.learning_rate, elmo.updates, elmo.lower) == (
        "adagrad",
        0.2,
        1_000_000,
        True,
    )
    senses = elmo.senses
    assert senses is not None
    assert (senses.axes, senses.queue, senses.below, senses.rate, senses.warmup) == (
        16,
        20_000,
        0.1,
        0.01,
        20_000,
    )
    # n_context = 6, because the first sense is dropped.
    assert len(senses.tables(np.full(10, 100), 16)[0]) == 10 * 6
    two = settings_for("elmo", preset="paper", langs=("en", "de"))
    assert (two["updates"], two["alpha"]) == (600_000, 0.0)
    bert = MaskedLanguageModel(**settings_for("bert", preset="paper", senses=5))
    assert bert.shape == {
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
    }
    assert (bert.dropout, bert.initial, bert.updates) == (0.1, 0.02, 1_000_000)
    assert (bert.vocabulary, bert.lower) == (27_654, True)
    assert bert.senses is not None
    assert (bert.senses.axes, bert.senses.rate, bert.senses.warmup, bert.senses.below) == (
        14,
        0.01,
        20_000,
        0.0,
    )
    assert len(bert.senses.tables(np.full(10, 100), 16)[0]) == 10 * 5
