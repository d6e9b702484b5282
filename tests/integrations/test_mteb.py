"""Test that MTEB tasks on local text give the same scores as calque."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import EvalResult, ModelCard
from safetensors.torch import load_file, save_file

from calque.encoders import load_encoder
from calque.encoders.random_vectors import RandomVectors
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError, MissingExtraError, SettingError
from calque.integrations.mteb import MtebEncoder
from calque.text import Sentences

ENGLISH = [
    "the cat sees a house",
    "water",
    "three books about birds",
    "the old ferry leaves the harbour",
]
GERMAN = [
    "die Katze sieht ein Haus",
    "Wasser",
    "drei Bücher über Vögel",
    "die alte Fähre verlässt den Hafen",
]


def installed():
    return pytest.importorskip(
        "mteb", reason="mteb is not installed: pip install 'calque-align[mteb]'"
    )


def task(base, name, rows, **more):
    """Return an MTEB task with the given rows instead of a downloaded data set."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.task_metadata import TaskMetadata

    class Local(base):
        metadata = TaskMetadata(
            name=name,
            description="of this test",
            dataset={"path": "here/none", "revision": "1"},
            reference=None,
            eval_splits=["test"],
            eval_langs={"default": ["eng-Latn", "deu-Latn"]},
            category="t2t",
            modalities=["text"],
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation=None,
            **more,
        )

        def load_data(self, **_):
            self.dataset, self.data_loaded = DatasetDict({"test": Dataset.from_dict(rows)}), True

    return Local()


def vectors(encoder, texts):
    text = Sentences.of([each.split() for each in texts])
    return sentence_vectors(encoder, text, SentencePooling.of(encoder, "subwords")).data


def cosines(x, y):
    return (x @ y.T) / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1)


def test_bitext_mining_and_similarity_scores_equal_those_computed_from_cosines(tiny_encoder):
    installed()
    from mteb.abstasks import AbsTaskBitextMining, AbsTaskSTS
    from scipy.stats import spearmanr

    model = MtebEncoder(tiny_encoder)
    run = {"encode_kwargs": {"batch_size": 3}}
    rows = {"sentence1": ENGLISH, "sentence2": GERMAN}
    bitext = task(AbsTaskBitextMining, "LocalBitext", rows, type="BitextMining", main_score="f1")
    found = bitext.evaluate(model, "test", **run)["default"]
    sims = cosines(vectors(tiny_encoder, ENGLISH), vectors(tiny_encoder, GERMAN))
    assert found["accuracy"] == pytest.approx((sims.argmax(axis=1) == np.arange(4)).mean())
    rows["score"] = [5.0, 1.0, 3.0, 2.0]
    sts = task(AbsTaskSTS, "LocalSTS", rows, type="STS", main_score="cosine_spearman")
    found = sts.evaluate(model, "test", **run)["default"]
    assert found["cosine_spearman"] == pytest.approx(
        spearmanr(np.diag(sims), rows["score"]).statistic, abs=1e-6
    )
    assert model.mteb_model_meta.revision == tiny_encoder.fingerprint
    assert model.mteb_model_meta.name.startswith("calque/")


def test_batches_are_concatenated_and_similarities_are_cosines(tiny_encoder):
    installed()
    model = MtebEncoder(tiny_encoder, pooling="subwords", name="me/tiny")
    x = model.encode([{"text": ENGLISH[:3]}, {"text": ENGLISH[3:]}])
    np.testing.assert_allclose(x, vectors(tiny_encoder, ENGLISH), atol=1e-6)
    y = vectors(tiny_encoder, GERMAN)
    np.testing.assert_allclose(model.similarity(x, y), cosines(x, y), atol=1e-6)
    np.testing.assert_allclose(model.similarity_pairwise(x, y), np.diag(cosines(x, y)), atol=1e-6)


def test_encoders_without_subwords_use_word_pooling_and_those_with_languages_are_rejected(
    tiny_encoder,
):
    installed()
    assert MtebEncoder(RandomVectors(8)).pooling.name == "words"

    class German(RandomVectors):
        languages = ("de",)

    with pytest.raises(
        SettingError, match="needs the language of each text, which MTEB does not pass on"
    ):
        MtebEncoder(German(8))


def test_without_mteb_the_error_names_the_extra(tiny_encoder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mteb.models", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'calque-align\[mteb\]'"):
        MtebEncoder(tiny_encoder)


class Meta:
    """Stand-in for MTEB's class of metadata, which records what it is given."""

    @classmethod
    def create_empty(cls, overwrites):
        return SimpleNamespace(**overwrites)


@pytest.fixture
def without_library(monkeypatch):
    """Replace the only module of MTEB that `MtebEncoder` imports, so that these tests need no
    installation.
    """
    monkeypatch.setitem(sys.modules, "mteb", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mteb.models", SimpleNamespace(ModelMeta=Meta))


PROMPTS = {"query": "the cat: ", "passage": "a house: "}


@pytest.mark.parametrize(
    ("kind", "task", "prompts", "expected"),
    [
        ("query", None, {}, "the cat: "),
        (SimpleNamespace(value="document"), None, {}, "a house: "),
        ("passage", None, {"document": "in time: "}, "in time: "),
        (None, None, {}, ""),
        (None, "STS17", {"STS": "in time: "}, "in time: "),
        ("query", "STS17", {"STS": "in time: ", "STS17-query": "of water: "}, "of water: "),
        ("document", "STS17", {"STS17-query": "of water: "}, "a house: "),
    ],
)
def test_the_type_of_the_prompt_and_the_task_choose_the_prompt(
    kind, task, prompts, expected, without_library, tiny_encoder, tmp_path
):
    tiny_encoder.save(tmp_path / "st")
    SentencePooling("own", "subwords").save(tiny_encoder, tmp_path / "st")
    (tmp_path / "st" / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": PROMPTS})
    )
    encoder = load_encoder(tmp_path / "st")
    model = MtebEncoder(encoder, prompts=prompts)
    about = None if task is None else SimpleNamespace(name=task, type="STS")
    found = model.encode([{"text": ENGLISH}], prompt_type=kind, task_metadata=about)
    pooling = SentencePooling.of(encoder, prompt=expected)
    np.testing.assert_array_equal(found, sentence_vectors(encoder, ENGLISH, pooling).data)


def test_lengths_of_queries_and_documents_are_applied(without_library, tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "st")
    SentencePooling("own", "subwords").save(tiny_encoder, tmp_path / "st")
    path = tmp_path / "st" / "sentence_bert_config.json"
    path.write_text(json.dumps({"query_length": 4, "document_length": 6, "max_seq_length": 12}))
    encoder = load_encoder(tmp_path / "st")
    for kind, limit in (("query", 4), ("document", 6), (None, 12)):
        pooling = SentencePooling("own", "subwords", max_length=limit)
        found = MtebEncoder(encoder).encode([{"text": ENGLISH}], prompt_type=kind)
        np.testing.assert_array_equal(found, sentence_vectors(encoder, ENGLISH, pooling).data)


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_similarity_of_the_folder_is_used(name, without_library, tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "st")
    SentencePooling("own", "subwords").save(tiny_encoder, tmp_path / "st")
    (tmp_path / "st" / "config_sentence_transformers.json").write_text(
        json.dumps({"similarity_fn_name": name})
    )
    model = MtebEncoder(load_encoder(tmp_path / "st"))
    x, y = vectors(tiny_encoder, ENGLISH), vectors(tiny_encoder, GERMAN)
    expected = {
        "cosine": cosines(x, y),
        "dot": x @ y.T,
        "euclidean": -np.linalg.norm(x[:, None] - y, axis=2),
        "manhattan": -np.abs(x[:, None] - y).sum(axis=2),
    }[name]
    np.testing.assert_allclose(model.similarity(x, y), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.similarity_pairwise(x, y), np.diag(expected), rtol=1e-4, atol=1e-5
    )


def test_prompts_that_cannot_be_used_are_refused(without_library, tiny_encoder):
    with pytest.raises(
        SettingError, match="prompts require the pooling own, subwords or cls, got words"
    ):
        MtebEncoder(tiny_encoder, pooling="words", prompts=PROMPTS)
    with pytest.raises(SettingError, match="prompt_type must be query or document, got 'answer'"):
        MtebEncoder(tiny_encoder).encode([{"text": ENGLISH}], prompt_type="answer")


# -- results ---------------------------------------------------------------------------------------
def test_the_revision_changes_with_everything_that_changes_vectors(
    without_library, tiny_encoder, tmp_path
):
    """MTEB returns stored results for an equal revision, so these must be different."""
    tiny_encoder.save(tmp_path / "st")
    pooling = SentencePooling("own", "subwords", ("cls",), after=[torch.nn.Linear(32, 5)])
    pooling.save(tiny_encoder, tmp_path / "st")
    own = load_encoder(tmp_path / "st")
    models = [
        MtebEncoder(tiny_encoder),
        MtebEncoder(tiny_encoder, pooling="words"),
        MtebEncoder(tiny_encoder, pooling="cls"),
        MtebEncoder(tiny_encoder, prompts=PROMPTS),
        MtebEncoder(own),
    ]
    assert models[-1].mteb_model_meta.embed_dim == 5
    weights = tmp_path / "st" / "2_Dense" / "model.safetensors"
    save_file({name: 2 * rows for name, rows in load_file(weights).items()}, weights)
    models.append(MtebEncoder(load_encoder(tmp_path / "st")))
    revisions = [model.mteb_model_meta.revision for model in models]
    assert len(set(revisions)) == len(models)
    assert revisions[0] == tiny_encoder.fingerprint
    again = MtebEncoder(load_encoder(tmp_path / "st"))
    assert again.mteb_model_meta.revision == revisions[-1]


def local_tasks():
    from mteb.abstasks import AbsTaskBitextMining, AbsTaskSTS

    rows = {"sentence1": ENGLISH, "sentence2": GERMAN}
    bitext = task(AbsTaskBitextMining, "LocalBitext", rows, type="BitextMining", main_score="f1")
    rows = {**rows, "score": [5.0, 1.0, 3.0, 2.0]}
    return [bitext, task(AbsTaskSTS, "LocalSTS", rows, type="STS", main_score="cosine_spearman")]


def test_results_are_written_to_the_folder_and_to_the_model_card(tiny_encoder, tmp_path):
    mteb = installed()
    folder = tmp_path / "out"
    tiny_encoder.save(folder)
    model = MtebEncoder(load_encoder(folder), name="me/tiny")
    found = model.evaluate(local_tasks(), folder, co2_tracker=False)
    values = {result.task_name: result.get_score() for result in found.task_results}

    # MTEB opens its files again, and finds the same results.
    files = sorted((folder / "mteb" / "results" / "me__tiny").rglob("Local*.json"))
    assert [file.stem for file in files] == ["LocalBitext", "LocalSTS"]
    for file in files:
        opened = mteb.TaskResult.from_disk(file)
        assert opened.get_score() == pytest.approx(values[file.stem], abs=1e-6)
        assert file.parent.name == model.mteb_model_meta.revision
    meta = json.loads((files[0].parent / "model_meta.json").read_text())
    assert (meta["name"], meta["embed_dim"], meta["use_instructions"]) == ("me/tiny", 32, False)

    card = ModelCard.load(folder / "README.md")
    expected = [
        EvalResult(
            task_type=kind,
            task_name=f"{name} (MTEB)",
            dataset_type="here/none",
            dataset_name="hub:here/none:default:test",
            dataset_config="en-de",
            dataset_revision="1",
            metric_type=metric,
            metric_name=metric,
            metric_value=pytest.approx(values[name], abs=1e-4),
            metric_args=None,
        )
        for name, kind, metric in (
            ("LocalBitext", "BitextMining", "f1"),
            ("LocalSTS", "STS", "cosine_spearman"),
        )
    ]
    assert card.data.eval_results == expected
    assert "| LocalSTS | cosine_spearman | hub:here/none:default:test | en-de |" in card.text


def test_results_are_not_computed_again_and_replace_earlier_ones(
    tiny_encoder, tmp_path, monkeypatch
):
    installed()
    folder = tmp_path / "out"
    tiny_encoder.save(folder)
    model = MtebEncoder(load_encoder(folder))
    first = model.evaluate(local_tasks(), folder, co2_tracker=False)
    before = (folder / "README.md").read_text()

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(MtebEncoder, "encode", fail)
    again = MtebEncoder(load_encoder(folder)).evaluate(local_tasks(), folder, co2_tracker=False)
    assert [each.get_score() for each in again.task_results] == pytest.approx(
        [each.get_score() for each in first.task_results], abs=1e-6
    )
    assert (folder / "README.md").read_text() == before
    with pytest.raises(AssertionError, match="computed again"):
        MtebEncoder(load_encoder(folder), pooling="words").evaluate(
            local_tasks(), folder, co2_tracker=False
        )


def test_a_folder_without_an_encoder_is_refused(tiny_encoder, tmp_path):
    installed()
    with pytest.raises(InputError, match="contains no encoder"):
        MtebEncoder(tiny_encoder).evaluate([], tmp_path)
