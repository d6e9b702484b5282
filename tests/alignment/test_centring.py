"""Tests of centring: shifting the mean of each language after training."""

import json

import numpy as np
import pytest

from calque.alignment.contrastive import Contrastive
from calque.alignment.data import LinkedText
from calque.alignment.text_maps import centred
from calque.encoders import load_encoder
from calque.errors import SettingError
from calque.text import Sentence
from command import fails, works
from linked_text import make_text


def words(encoder, sides):
    return np.concatenate([encoder.encode(side).data.astype(np.float64) for side in sides])


def test_the_mean_of_a_language_is_shifted_to_the_mean_of_its_translations(tiny_encoder):
    corpora = [make_text("xx", 30, 0)[0], make_text("xx", 12, 2)[0], make_text("yy", 20, 1)[0]]
    made = centred(tiny_encoder, corpora, towards="en")
    for texts in (corpora[:2], corpora[2:]):
        sizes = [len(words(tiny_encoder, [text.target])) for text in texts]
        other = sum(
            n * words(tiny_encoder, [text.source]).mean(0)
            for n, text in zip(sizes, texts, strict=True)
        )
        before = words(tiny_encoder, [text.target for text in texts])
        expected = before - before.mean(0) + other / sum(sizes)
        np.testing.assert_allclose(
            words(made, [text.target for text in texts]), expected, atol=1e-5
        )
    np.testing.assert_array_equal(
        words(made, [corpora[0].source]), words(tiny_encoder, [corpora[0].source])
    )
    with pytest.raises(SettingError, match="at least one text must have a side in zz"):
        centred(tiny_encoder, corpora, towards="zz")


def test_a_tuner_centres_the_trained_encoder(tiny_encoder):
    corpus, pairs = make_text("xx", 12, 0)
    tuned = Contrastive(towards="en", epochs=1).align(tiny_encoder, corpus, pairs)
    fitted = Contrastive(towards="en", epochs=1, centre=True).fit(
        tiny_encoder, LinkedText((corpus,), (pairs,))
    )
    aligned = fitted.encoder
    rows = words(aligned, [corpus.target])
    np.testing.assert_allclose(rows.mean(0), words(tuned, [corpus.source]).mean(0), atol=1e-5)
    np.testing.assert_array_equal(
        words(aligned.base, [corpus.target]), words(tuned, [corpus.target])
    )
    assert fitted.record["settings"]["centre"] is True


def test_centring_on_the_command_line_is_recorded_in_the_model_card(capsys, tiny_folder, tmp_path):
    text = tmp_path / "text.tsv"
    corpus, pairs = make_text("xx", 12, 0)
    pairs.save(tmp_path / "links")
    lines = zip(corpus.source, corpus.target, strict=True)
    text.write_text(
        "".join(f"{' '.join(s.words)}\t{' '.join(t.words)}\n" for s, t in lines), encoding="utf-8"
    )
    out = tmp_path / "out"
    common = (
        "align",
        text,
        "--langs",
        "en",
        "xx",
        "--towards",
        "en",
        "--pretokenized",
        "--out",
        out,
        "-q",
    )
    works(
        capsys,
        *common,
        "--links",
        tmp_path / "links",
        "--encoder",
        tiny_folder,
        "--centre",
        "--epochs",
        1,
    )
    assert "was shifted to the mean vector of en." in (out / "README.md").read_text(
        encoding="utf-8"
    )
    assert (
        json.loads((out / "calque-run.json").read_text(encoding="utf-8"))["settings"]["centre"]
        is True
    )
    encoder = load_encoder(out)
    means = [
        encoder.encode([Sentence(s.words, lang) for s in side]).data.mean(0)
        for side, lang in ((corpus.source, "en"), (corpus.target, "xx"))
    ]
    np.testing.assert_allclose(*means, atol=1e-4)
    said = fails(
        capsys, *common, "--encoder", tiny_folder, "--method", "rotation", "--centre", "--overwrite"
    )
    assert "--centre needs a method that trains, unlike rotation" in said
