"""Test task heads on the best layer and on a mixture of layers, with layers of known content."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.errors import SettingError
from calque.tasks.classification import Classification
from calque.tasks.parsing import Parsing
from calque.tasks.reading import BestLayer, Mixture, messages, reading_of
from calque.tasks.tagging import Tagging
from calque.vectors import Embeddings
from command import fails, works
from planted import Planted, jobs, labelled, tagged, write_tags


class Layered(Planted):
    """Encoder with three layers, of which only one contains the meaning of each word, the same in
    all languages; the others contain random vectors.
    """

    n_layers, layer = 2, 2

    def __init__(self, informative=1):
        super().__init__()
        self.informative, self.encoded = informative, []

    def _encode(self, sentences, layers, progress):
        self.encoded.append((getattr(sentences, "lang", ""), tuple(layers)))
        known = super().encode(sentences)
        found = {}
        for layer in layers:
            noise = np.random.default_rng(layer).standard_normal(known.data.shape)
            data = known.data if layer == self.informative else noise.astype(np.float32)
            found[layer] = Embeddings(data, known.offsets)
        return found

    def encode(self, sentences, *, progress=False):
        return self._encode(sentences, [self.layer], progress)[self.layer]


def pos(layers=None, **more):
    settings = {"head": "linear", "seeds": (0, 1), "bootstrap": 20, **more}
    options = {"epochs": 12, "batch": 8, "learning_rate": 0.02}
    return Tagging(
        "pos", [tagged(80, "en")], [tagged(30, "de", 1)], layers=layers, options=options, **settings
    )


# -- settings --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (None, None),
        ("mix", Mixture()),
        ("best", BestLayer()),
        ("all", BestLayer()),
        ("4,8,12", BestLayer((4, 8, 12))),
        ("0-2", BestLayer((0, 1, 2))),
        ([-1, 3], BestLayer((-1, 3))),
    ],
)
def test_the_option_is_parsed(layers, expected):
    assert reading_of(layers) == expected


@pytest.mark.parametrize(
    ("layers", "poolings", "message"),
    [
        ("bst", None, "layers must be mix, best, or layers such as .*best"),
        (3, None, "set a single layer with layer"),
        ("mix", ["last", "mean"], "layers=mix reads one pooling, got last, mean"),
        (None, ["mean"], "poolings applies only with layers"),
    ],
)
def test_invalid_options_are_refused(layers, poolings, message):
    with pytest.raises(SettingError, match=message):
        reading_of(layers, poolings)


def test_layers_are_mixed_without_normalisation_as_in_the_paper():
    score = pos("mix", mix_norm="none").evaluate(Layered())[0]
    assert (score.settings["mix_norm"], score.value > 0.9) == ("none", True)
    with pytest.raises(SettingError, match="mix_norm applies only to mixtures"):
        pos("best", mix_norm="layer")


def test_a_choice_needs_frozen_vectors_and_text_in_the_training_language():
    with pytest.raises(SettingError, match="cannot be combined with tune; .*or use layers=mix"):
        pos("best", tune=True)
    with pytest.raises(SettingError, match="requires select=source, got last"):
        pos("best", select="last")
    dev = [tagged(10, "en", 3), tagged(10, "de", 3)]
    with pytest.raises(SettingError, match="requires select=source, got target"):
        pos("best", select="target", dev=dev)


def test_a_number_is_still_the_number_of_lstm_layers():
    job = pos(3)
    assert (job.reading, job.layers, pos(lstm_layers=3).layers) == (None, 3, 3)
    parser = Parsing(*both_treebanks(), layers=1)
    assert (parser.reading, parser.shape["layers"]) == (None, 1)


def both_treebanks():
    job = jobs()["parsing"]
    return job.train, job.tests


# -- scores ----------------------------------------------------------------------------------------
def test_the_layer_with_the_information_is_chosen_without_target_text():
    encoder = Layered()
    last, best = pos().evaluate(encoder)[0], pos("best").evaluate(encoder)[0]
    assert best.value > 0.95 > 0.6 > last.value
    about = best.settings
    assert (about["reading"], about["read_layer"], about["read_pooling"]) == ("best", 1, None)
    scores = about["layer_scores"]["None"]
    assert len(scores) == 3
    assert scores[1] == max(scores)
    # The test text is encoded only after the choice, and only at the chosen layer.
    assert [layers for lang, layers in encoder.encoded[-2:]] == [(1,), (1,)]
    assert [lang for lang, layers in encoder.encoded if len(layers) > 1] == ["en"]


def test_target_development_text_does_not_affect_the_choice():
    dev = [tagged(20, "en", 3), tagged(20, "de", 3)]
    encoder = Layered()
    pos("best", dev=dev).evaluate(encoder)
    assert [lang for lang, layers in encoder.encoded if len(layers) > 1] == ["en", "en"]


def test_a_mixture_finds_the_layer_with_the_information():
    last, mixed = pos().evaluate(Layered())[0], pos("mix").evaluate(Layered())[0]
    assert mixed.value > 0.9 > 0.6 > last.value
    for weights in mixed.settings["mix_weights"]:
        assert weights[1] == max(weights) > 0.5
        assert sum(weights) == pytest.approx(1, abs=1e-3)
    assert mixed.settings["read_layers"] == [0, 1, 2]
    assert (mixed.settings["reading"], mixed.settings["mix_norm"]) == ("mix", "standard")
    (line,) = messages("pos", mixed.settings)
    assert line.startswith("pos: mixture of layers 0 to 2, mostly layer 1 ")


@pytest.mark.parametrize("name", ["slots", "sentiment", "nli", "parsing", "probing", "qa"])
@pytest.mark.parametrize("layers", ["mix", "best"])
def test_every_task_reads_several_layers(name, layers):
    job = copy.copy(jobs(n=60)[name])
    job.reading, job.seeds = reading_of(layers), [0]
    job.options = {**job.options, "epochs": 2}
    score = job.evaluate(Layered())[0]
    assert score.settings["reading"] == layers
    assert np.isfinite(score.value)


def test_the_best_layer_scores_like_an_encoder_with_this_layer(tiny_folder):
    best, *_ = pos("best", poolings=["mean"]).evaluate(load_encoder(tiny_folder))
    layer = best.settings["read_layer"]
    expected, *_ = pos().evaluate(load_encoder(tiny_folder, layer=layer, pooling="mean"))
    assert best.runs == expected.runs
    # The seed of the choice is the first seed of the scores.
    index = best.settings["read_layers"].index(layer)
    chosen = best.settings["layer_scores"]["mean"][index]
    assert chosen == best.settings["dev_scores"][0] == expected.settings["dev_scores"][0]


def test_the_pooling_is_chosen_too(tiny_encoder):
    settings = pos("best").evaluate(tiny_encoder)[0].settings
    assert list(settings["layer_scores"]) == ["mean", "last"]
    assert settings["read_pooling"] in ("last", "mean")
    (line,) = messages("pos", settings)
    assert f"layer {settings['read_layer']} with pooling {settings['read_pooling']} is" in line


@pytest.mark.parametrize("head", ["linear", "cls"])
def test_a_fine_tuned_encoder_is_mixed(head, tiny_encoder):
    if head == "linear":
        job = pos("mix", tune=True)
    else:
        settings = {"seeds": (0,), "options": {"epochs": 1}, "bootstrap": 20}
        texts = [labelled(40, "en")], [labelled(20, "de", 1)]
        job = Classification("sentiment", *texts, tune=True, layers="mix", **settings)
    before = tiny_encoder.fingerprint
    settings = job.evaluate(tiny_encoder)[0].settings
    assert (settings["features"], settings["reading"]) == ("tuned", "mix")
    assert settings["mix_norm"] == "layer"
    assert any(weight != 0.25 for weight in settings["mix_weights"][0])
    assert tiny_encoder.fingerprint == before


# -- commands --------------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tags(tagged(30, "en"), tmp_path / "pos.train.en.tsv")
    write_tags(tagged(12, "de", 1), tmp_path / "pos.test.de.tsv")
    return ["--train", "pos.train.en.tsv", "--test", "pos.test.de.tsv", "--seeds", 1, "--epochs", 1]


def test_the_command_chooses_and_mixes_layers(capsys, files, tiny_folder):
    job = ["evaluate", tiny_folder, "ner", *files, "--head", "linear"]
    _, messages = works(capsys, *job, "--layers", "best", "--pooling", "first", "--out", "scores")
    assert " is best on development text in the training languages" in messages
    assert "with pooling first" in messages
    works(capsys, *job, "--layers", "mix", "--out", "scores")
    works(capsys, *job, "--layers", "1,2", "--out", "scores")
    lines = [json.loads(line) for line in Path("scores").read_text().splitlines()]
    found = [line["settings"] for line in lines if line["metric"] == "f1"]
    assert [each["reading"] for each in found] == ["best", "mix", "best of layers 1, 2"]
    assert list(found[0]["layer_scores"]) == ["first"]
    assert found[2]["read_layers"] == [1, 2]
    assert "--layer cannot be combined with --layers" in fails(
        capsys, *job, "--layers", "mix", "--layer", 1
    )
    assert "only layer" not in fails(capsys, *job, "--layers", "mix", "--option", "poolings=x")
