"""A trained head and its encoder, read by transformers alone, give the labels that calque gives."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from calque.encoders.classifiers import save_classifier
from calque.errors import SettingError
from calque.tasks.classification import Classification
from calque.tasks.tagging import Tagging
from planted import Planted, labelled, tagged


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_tags_of_the_saved_model(pooling, tiny_folder, tmp_path):
    from calque.encoders import load_encoder

    encoder = load_encoder(tiny_folder, layer=1, pooling=pooling)
    task = Tagging("pos", [tagged(40, "en")], [tagged(20, "de", 1)], tune=True, seeds=(0, 1), bootstrap=0,
                   options={"epochs": 1, "learning_rate": 1e-3}, save_head=tmp_path / "head")  # fmt: skip
    task.evaluate(encoder)
    task.write()
    words = ["the", "cat", "in", "a", "house"]
    rows = task.best.encoder.encode([words])[0]
    with torch.no_grad():
        expected = task.best.head(torch.as_tensor(np.array(rows)), torch.tensor([5]))[0]
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "head")
    inputs = AutoTokenizer.from_pretrained(tmp_path / "head")(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(**inputs).logits[0]
    subwords = [[k for k, owner in enumerate(inputs.word_ids()) if owner == index] for index in range(len(words))]
    pooled = {
        "first": lambda of: scores[of[0]],
        "last": lambda of: scores[of[-1]],
        "mean": lambda of: scores[of].mean(0),
    }
    torch.testing.assert_close(torch.stack([pooled[pooling](of) for of in subwords]), expected, atol=1e-4, rtol=1e-4)
    assert model.config.id2label == dict(enumerate(task.tags))
    assert model.config.num_hidden_layers == 1  # the layers above the encoder's own are cut off
    assert "AutoModelForTokenClassification" in (tmp_path / "head" / "README.md").read_text()
    with pytest.raises(SettingError, match="head exists"):
        task.evaluate(encoder)


def test_labels_of_the_saved_model(tiny_encoder, tmp_path):
    task = Classification("sentiment", [labelled(40, "en")], [labelled(20, "de", 1)], tune=True, seeds=(0,), bootstrap=0,
                          options={"epochs": 1, "learning_rate": 1e-3}, save_head=tmp_path / "head")  # fmt: skip
    task.evaluate(tiny_encoder)
    task.write()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "head")
    inputs = AutoTokenizer.from_pretrained(tmp_path / "head")(
        ["the cat", "a house in the"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = task.best.encoder.model(**inputs, output_hidden_states=True).hidden_states[task.best.encoder.layer]
        torch.testing.assert_close(model(**inputs).logits, task.best.head.out[1](states[:, 0]), atol=1e-3, rtol=1e-3)
    assert list(model.config.id2label.values()) == list(task.labels)


def test_what_transformers_has_no_model_for_is_refused_before_training(tiny_encoder, tmp_path):
    for encoder, options, message in (
        (tiny_encoder, {}, "head bilstm-crf has more"),
        (Planted(), {"head": "linear"}, "--save-head: Planted is not a plain transformers model"),
    ):
        task = Tagging("pos", [tagged(9, "en")], [tagged(9, "de")], save_head=tmp_path / "head", **options)
        with pytest.raises(SettingError, match=message):
            task.evaluate(encoder)


def test_a_model_whose_scores_are_not_those_of_the_head_is_not_written(tiny_encoder, tmp_path, monkeypatch):
    from calque.encoders import classifiers

    monkeypatch.setattr(classifiers, "_SCALE", 1.0)  # the tanh before BERT's classifier is no longer linear
    head = torch.nn.Linear(tiny_encoder.dim, 2)
    with pytest.raises(SettingError, match="other scores than the head"):
        save_classifier(tiny_encoder, tmp_path / "head", ["a", "b"], head, texts=True)
    assert not (tmp_path / "head").exists()
