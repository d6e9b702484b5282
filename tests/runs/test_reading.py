"""Test which layer and pooling the commands read an encoder with, and what they record."""

from __future__ import annotations

import json

import pytest

from calque.encoders import load_encoder
from calque.runs.reading import AUTO, Wish
from command import fails, works
from planted_readings import plant, text

LANGS = ("--langs", "en", "de")


@pytest.fixture
def train(tmp_path):
    corpus, links = text(110)
    lines = []
    for source, target in corpus:
        lines.append(f"{' '.join(source.words)}\t{' '.join(target.words)}\n")
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    links.save(tmp_path / "train.align")
    return tmp_path / "train.tsv"


def align(capsys, train, encoder, out, *options, method="rotation"):
    job = ("align", train, *LANGS, "--encoder", encoder, "--towards", "en", "--method", method)
    links = ("--links", train.with_suffix(".align"))
    return works(capsys, *job, *links, "--pretokenized", "--out", out, *options)[1]


def of_base(folder):
    """Return the layer and the pooling in a folder of maps or of a trained encoder."""
    about = json.loads((folder / "calque.json").read_text())
    if about["kind"] == "mapped":
        about = json.loads((folder / "base" / "calque.json").read_text())
    return about["layer"], about["pooling"]


@pytest.fixture
def planted(monkeypatch):
    plant(monkeypatch, 2, "first", noise=0.3, other=4.0)


# -- align -----------------------------------------------------------------------------------------
def test_align_chooses_prints_saves_and_records_the_best_reading(
    train, tiny_folder, planted, tmp_path, capsys
):
    err = align(capsys, train, tiny_folder, tmp_path / "out")
    assert "layer 2 and pooling first: " in err
    assert "of unseen word pairs; the default, layer 3 and pooling" in err
    assert of_base(tmp_path / "out") == (2, "first")
    record = json.loads((tmp_path / "out" / "calque-run.json").read_text())["reading"]
    assert (record["layer"], record["pooling"]) == (2, "first")
    assert record["default"]["layer"] == 3
    assert len(record["table"]) == 12
    assert record["texts"] == [
        {"langs": ["en", "de"], "sentence_pairs": 110, "links": 550, "unseen": True}
    ]
    assert load_encoder(tmp_path / "out").layer == 2
    assert "layer 2 and pooling first" in (tmp_path / "out" / "README.md").read_text()


def test_trained_encoders_are_trained_at_the_chosen_layer(
    train, tiny_folder, planted, tmp_path, capsys
):
    align(capsys, train, tiny_folder, tmp_path / "out", "--epochs", 0.5, method="contrastive")
    encoder = load_encoder(tmp_path / "out")
    assert (encoder.layer, encoder.pooling) == (2, "first")
    assert encoder.n_layers == 2  # layers above the chosen one are not saved


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--layer", 1), (1, "first")),
        (("--pooling", "mean"), (3, "mean")),
        (("--layer", -1, "--pooling", "last"), (3, "last")),
        (("--layers", "1,2"), None),
    ],
)
def test_given_options_are_kept(
    options, expected, train, tiny_folder, tmp_path, capsys, monkeypatch
):
    # Layer 1 with pooling first and layer 3 with pooling mean are the best of those allowed.
    plant(monkeypatch, *(expected or (2, "first")), noise=0.3, other=4.0)
    err = align(capsys, train, tiny_folder, tmp_path / "out", *options)
    if expected is None:
        assert "and pooling" not in err
        plain = load_encoder(tiny_folder)
        expected = (plain.layer, plain.pooling)
    assert of_base(tmp_path / "out") == expected


def test_what_an_encoder_saves_is_kept_unless_auto_is_given(
    train, tiny_folder, planted, tmp_path, capsys
):
    load_encoder(tiny_folder, layer=1, pooling="mean").save(tmp_path / "saved", keep_layers=True)
    err = align(capsys, train, tmp_path / "saved", tmp_path / "kept")
    assert "and pooling" not in err
    assert of_base(tmp_path / "kept") == (1, "mean")
    err = align(capsys, train, tmp_path / "saved", tmp_path / "auto", "--layer", AUTO)
    assert "layer 1 and pooling mean (the default)" in err  # only pooling mean is allowed
    both = ("--layer", AUTO, "--pooling", AUTO)
    assert "layer 2 and pooling first: " in align(
        capsys, train, tmp_path / "saved", tmp_path / "both", *both
    )


def test_the_papers_form_of_finetune_reads_the_last_subword(
    train, tiny_folder, planted, tmp_path, capsys
):
    few = ("--epochs", 0.2)
    err = align(capsys, train, tiny_folder, tmp_path / "cao", *few, method="finetune")
    assert "and pooling" not in err
    assert of_base(tmp_path / "cao") == (3, "last")
    auto = ("--pooling", AUTO)
    align(capsys, train, tiny_folder, tmp_path / "auto", *few, *auto, method="finetune")
    assert of_base(tmp_path / "auto") == (2, "first")


@pytest.mark.parametrize("method", ["sentence-rotation", "means"])
def test_methods_without_word_links_choose_too(
    method, train, tiny_folder, planted, tmp_path, capsys
):
    job = ("align", train, *LANGS, "--encoder", tiny_folder, "--towards", "en")
    out = ("--pretokenized", "--out", tmp_path / "out", "--method", method)
    links = ("--links", train.with_suffix(".align")) if method == "sentence-rotation" else ()
    err = works(capsys, *job, *out, *links)[1]
    of = "sentences" if method == "sentence-rotation" else "unseen word pairs"
    assert f" of {of}; the default" in err
    assert of_base(tmp_path / "out") == (2, "first")


def test_a_choice_is_read_again_when_an_interrupted_run_resumes(
    train, tiny_folder, planted, tmp_path, capsys, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    few = ("--epochs", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr("calque.alignment.contrastive.Contrastive.fit", stop)
        with pytest.raises(AssertionError, match="calque: interrupted"):
            align(capsys, train, tiny_folder, tmp_path / "out", *few, method="contrastive")
    capsys.readouterr()
    # A new measurement would choose another reading.
    plant(monkeypatch, 1, "mean", noise=0.3, other=4.0)
    err = align(capsys, train, tiny_folder, tmp_path / "out", *few, method="contrastive")
    assert "layer 2 and pooling first: " in err
    assert of_base(tmp_path / "out") == (2, "first")


def test_without_parallel_text_auto_is_an_error(train, tiny_folder, tmp_path, capsys):
    job = ("align", "--encoder", tiny_folder, "--towards", "en", "--method", "means")
    given = ("--text", f"en={train}", f"de={train}", "--out", tmp_path / "out", "--layer", AUTO)
    assert "--layer auto needs parallel text" in fails(capsys, *job, *given)


# -- words -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("more", [(), ("--prior", "--model", "hmm")])
def test_words_chooses_by_agreement_with_the_aligner(
    more, train, tiny_folder, planted, tmp_path, capsys
):
    job = ("words", train, *LANGS, "--encoder", tiny_folder, "--pretokenized")
    err = works(capsys, *job, *more, "--out", tmp_path / "auto.align")[1]
    assert "layer 2 and pooling first: " in err
    assert "F1 against the links of the aligner; the default, layer 3" in err
    given = ("--layer", 2, "--pooling", "first")
    assert (
        "and pooling"
        not in works(capsys, *job, *more, *given, "--out", tmp_path / "given.align")[1]
    )
    auto, fixed = ((tmp_path / f"{name}.align").read_text() for name in ("auto", "given"))
    assert auto == fixed


# -- evaluate --------------------------------------------------------------------------------------
def test_evaluate_chooses_on_the_training_text_only(train, tiny_folder, planted, tmp_path, capsys):
    job = (
        "evaluate",
        tiny_folder,
        "retrieval",
        "--test",
        train,
        *LANGS,
        "--pretokenized",
        "--json",
    )
    out, err = works(capsys, *job)
    usual = json.loads(out)
    assert "and pooling" not in err
    assert "chosen_reading" not in usual["settings"]
    out, err = works(capsys, *job, "--train", train)
    chosen = json.loads(out)
    assert "layer 2 and pooling first: " in err
    assert chosen["settings"]["chosen_reading"] in err
    fixed = json.loads(works(capsys, *job, "--layer", 2, "--pooling", "first")[0])
    prints = [each["settings"]["encoder_fingerprint"] for each in (usual, chosen, fixed)]
    assert prints[1] == prints[2] != prints[0]
    assert "--pooling auto needs parallel text" in fails(capsys, *job, "--pooling", AUTO)


def test_evaluate_chooses_by_sentences_for_sentence_retrieval(
    train, tiny_folder, planted, capsys, tmp_path
):
    longer, _ = text(110, seed=1)
    lines = [f"{' '.join(a.words)}\t{' '.join(b.words)}\n" for a, b in longer]
    (tmp_path / "dev.tsv").write_text("".join(lines))
    job = ("evaluate", tiny_folder, "sentences", "--test", train, *LANGS)
    _, err = works(capsys, *job, "--dev", tmp_path / "dev.tsv")
    assert "layer 2 and pooling first: 100.0 of sentences" in err


# -- wishes ----------------------------------------------------------------------------------------
def test_wishes_separate_auto_from_other_arguments(tiny_encoder):
    wish = Wish.of({"layer": AUTO, "max_length": 8}, usual=False)
    assert (wish.load, wish.auto) == ({"max_length": 8}, {"layer"})
    assert wish.free(tiny_encoder) == {"layer"}
    assert Wish.of({"layer": 2}, usual=True).free(tiny_encoder) == {"pooling"}
    assert Wish.of(None, usual=True).free(tiny_encoder) == {"layer", "pooling"}
    assert Wish.of(None).free(tiny_encoder) == frozenset()
    assert Wish.of(None, usual=True, pooling="last").free(tiny_encoder) == frozenset()
