"""Test that losses in sentence-transformers equal those of calque, and train a model together with
other losses.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import calque
from calque.alignment.contrastive import Contrastive
from calque.alignment.data import training_data
from calque.distributed import Processes
from calque.encoders import load_encoder
from calque.errors import InputError, SettingError, SkippedWarning
from calque.integrations.sentence_transformers import (
    LinkCollator,
    SentenceContrastiveLoss,
    WordContrastiveLoss,
    link_dataset,
    word_encoder,
)
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from encoder_copies import moved
from linked_text import make_text, numbered_text

library = pytest.importorskip(
    "sentence_transformers",
    reason="needs sentence-transformers: pip install 'calque-align[sentence-transformers]'",
)
datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'calque-align[hub]'")

CHOSEN = np.array([3, 0, 7, 8])


@pytest.fixture(scope="module")
def text():
    return make_text("xx", 12, 0)


def opened(folder) -> Any:
    return library.SentenceTransformer(str(folder), device="cpu").eval()


def change(model) -> None:
    """Change the weights of a model as `moved` changes those of an encoder."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))


def features_of(batch):
    """Return the arguments of a loss as the trainer collects them from a batch."""
    features, labels = library.SentenceTransformerTrainer.collect_features(None, batch)
    assert len(features) == 2
    return features, labels


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


SETTINGS: list[dict[str, Any]] = [
    {},
    {"same_share": 0.0, "pooling": "last"},
    {"same_share": 1.0, "temperature": 0.3, "pooling": "first"},
    {"similarity_distillation": 0.0},
    {"similarity_distillation": 3.0, "temperature": 0.2},
    {"layers": [1, -1], "sentences": 0.4, "temperature": 0.1},
]


CASES = [("bert", settings) for settings in SETTINGS]
CASES += [
    (family, SETTINGS[-1]) for family in ("xlm-roberta", "roberta", "gpt2", "modernbert", "t5")
]


@pytest.mark.parametrize(("family", "settings"), CASES, ids=str)
def test_terms_and_gradients_equal_those_of_calque(family, settings, family_folders, text):
    folder = family_folders(family)
    of_method = {name: value for name, value in settings.items() if name != "pooling"}
    encoder = load_encoder(folder, layer=-1, pooling=settings.get("pooling", "mean"))
    tuned = moved(encoder)
    method = Contrastive(towards="en", **of_method)
    objective = method.objective(tuned, encoder, training_data(*text), Processes())
    expected = objective.backward([CHOSEN])

    model = opened(folder)
    loss = WordContrastiveLoss(model, **settings)
    change(model)
    rows = link_dataset(*text, towards="en")
    found = loss(*features_of(LinkCollator(model)([rows[int(k)] for k in CHOSEN])))
    assert found.keys() == expected.keys() - {"loss"}
    for name, value in found.items():
        assert value.item() == pytest.approx(expected[name], rel=1e-6, abs=1e-6), name
    torch.stack(list(found.values())).sum().backward()
    in_calque, here = gradients(tuned.model), gradients(model[0].auto_model)
    assert in_calque.keys() == here.keys()
    for name, gradient in in_calque.items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(here[name], gradient, rtol=0, atol=2e-5 * scale, msg=name)


def word_means(model, words) -> torch.Tensor:
    """Return the mean of each word's subwords, computed with transformers alone, float64."""
    encoded = model.tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
    rows = model[0].auto_model(**encoded).last_hidden_state[0].double()
    owner = encoded.word_ids()
    return torch.stack(
        [
            rows[[k for k, word in enumerate(owner) if word == number]].mean(0)
            for number in range(len(words))
        ]
    )


def log_softmax(scores: list[torch.Tensor], k: int) -> torch.Tensor:
    return torch.log(torch.exp(scores[k]) / sum(torch.exp(score) for score in scores))


def literal_contrast(x, y, types, tau, share) -> torch.Tensor:
    """Compute InfoNCE one pair at a time (van den Oord et al. 2018; Khosla et al. 2020, Eq. 2)."""
    total = torch.zeros((), dtype=torch.float64)
    n = len(x)
    for a, b in ((x, y), (y, x)):
        for k in range(n):
            scores = [torch.cosine_similarity(a[k], b[j], dim=0) / tau for j in range(n)]
            equal = [j for j in range(n) if types[j] == types[k]]
            of_equal = sum(log_softmax(scores, j) for j in equal) / len(equal)
            total = total - (1 - share) * log_softmax(scores, k) - share * of_equal
    return total / (2 * n)


def literal_divergence(now, before, tau) -> torch.Tensor:
    """Compute the divergence of similarities one word at a time (Fang et al. 2021, Eq. 3)."""
    total = torch.zeros((), dtype=torch.float64)
    n = len(now)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        q, p = (
            [torch.cosine_similarity(rows[i], rows[j], dim=0) / tau for j in others]
            for rows in (now, before)
        )
        for k in range(n - 1):
            log_p, log_q = log_softmax(p, k), log_softmax(q, k)
            total = total + torch.exp(log_p) * (log_p - log_q)
    return total / n


def test_the_loss_equals_the_formulas(tiny_folder, text):
    corpus, pairs = text
    model = opened(tiny_folder)
    settings: dict[str, Any] = {
        "temperature": 0.3,
        "same_share": 0.25,
        "similarity_distillation": 0.7,
    }
    loss = WordContrastiveLoss(model, **settings)
    frozen = copy.deepcopy(model)
    change(model)
    x, y, types, target, before = [], [], [], [], []
    for k in CHOSEN.tolist():
        # English, the language of `towards`, becomes the target.
        english, other = corpus[k][0].words, corpus[k][1].words
        ours, theirs = word_means(model, english), word_means(model, other)
        target += list(ours)
        before += list(word_means(frozen, english))
        of_pair = pairs.take(np.array([k]))
        for i, j in zip(of_pair.source.tolist(), of_pair.target.tolist(), strict=True):
            x.append(theirs[j])
            y.append(ours[i])
            types.append((other[j].lower(), english[i].lower()))
    assert len(set(types)) < len(types)  # some words occur twice
    contrast = literal_contrast(x, y, types, 0.3, 0.25)
    divergence = 0.7 * literal_divergence(target, [each.detach() for each in before], 0.3)
    rows = link_dataset(corpus, pairs, towards="en")
    found = loss(*features_of(LinkCollator(model)([rows[k] for k in CHOSEN.tolist()])))
    assert found["contrast"].item() == pytest.approx(contrast.item(), abs=1e-6)
    assert found["similarity"].item() == pytest.approx(divergence.item(), abs=1e-6)
    assert divergence.item() > 1e-4
    sum(found.values()).backward()
    here = gradients(model)
    model.zero_grad()
    (contrast + divergence).backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(here[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_links_of_words_without_subwords_or_beyond_the_limit_are_ignored(tiny_folder):
    model = opened(tiny_folder)
    model.max_seq_length = 6
    rows = [
        {"source": "the \u200b cat", "target": "cat the", "links": [[0, 1], [1, 0]]},
        {"source": "a the " * 5, "target": "the", "links": [[0, 0], [9, 0]]},
    ]
    with pytest.warns(UserWarning, match="no subwords or is beyond the limit of 6 subwords"):
        batch = LinkCollator(model)(rows)
    # The first sentence has three words, so the second one starts at word 3.
    assert batch["label"][:, :2].tolist() == [[0, 1], [3, 2]]
    assert all(
        torch.isfinite(term) for term in WordContrastiveLoss(model)(*features_of(batch)).values()
    )


def test_a_batch_without_usable_links_has_zero_contrast_and_a_gradient(tiny_folder):
    model = opened(tiny_folder)
    rows = [{"source": "the", "target": "a cat", "links": []}]
    found = WordContrastiveLoss(model)(*features_of(LinkCollator(model)(rows)))
    assert found["contrast"].item() == 0
    found["contrast"].backward()


def test_a_dimension_that_dominates_cosines_causes_one_warning(tiny_folder, text):
    model = opened(tiny_folder)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.bias[3] = 40.0
    loss, rows = WordContrastiveLoss(model), link_dataset(*text, towards="en")
    batch = LinkCollator(model)(list(rows))
    with pytest.warns(UserWarning, match=r"one of 32 dimensions has 9\d% of the squared norm"):
        loss(*features_of(batch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(*features_of(batch))


def test_equal_pairs_of_words_have_equal_ids(tiny_folder):
    rows = [
        {"source": "The cat", "target": "die Katze", "links": [[0, 0], [1, 1]]},
        {"source": "the", "target": "DIE", "links": [[0, 0]]},
    ]
    links = LinkCollator(opened(tiny_folder))(rows)["label"]
    assert links[0, 2] == links[2, 2] != links[1, 2]


# -- data ------------------------------------------------------------------------------------------
def test_the_data_set_has_the_language_towards_as_target_and_reports_what_it_leaves_out():
    corpus = ParallelCorpus.of(
        [["the", "cat"], ["a"], ["one", "two", "three"]],
        [["die", "Katze"], ["ein"], ["eins", "zwei"]],
        ("en", "de"),
    )
    pairs = WordPairs.of([[(0, 0), (1, 1)], [], [(2, 1)]])
    with pytest.warns(SkippedWarning, match="2 of 3 sentence pairs left out: 1 with more than 2"):
        rows = link_dataset(corpus, pairs, towards="en", max_words=2)
    assert rows.to_list() == [
        {"source": "die Katze", "target": "the cat", "links": [[0, 0], [1, 1]]}
    ]
    with pytest.warns(SkippedWarning) as warned:
        rows = link_dataset(corpus, pairs, towards="de", max_words=None)
    assert warned[0].message.skipped == {"no word links": 1}
    assert warned[0].message.first_skipped == {"no word links": "sentence pair 2"}
    assert rows[1] == {"source": "one two three", "target": "eins zwei", "links": [[2, 1]]}
    with pytest.raises(SettingError):
        link_dataset(corpus, pairs, towards="fr")
    with pytest.raises(InputError):
        link_dataset(corpus, WordPairs.of([[(5, 0)], [], []]), towards="en")
    spaced = ParallelCorpus.of([["New York"]], [["New", "York"]], ("en", "de"))
    with pytest.raises(SettingError, match="must not be empty or contain spaces, got 'New York'"):
        link_dataset(spaced, WordPairs.of([[(0, 0)]]), towards="en")


def test_batches_of_other_tasks_are_those_of_the_library(tiny_folder):
    model = opened(tiny_folder)
    rows = [{"sentence1": "the cat", "sentence2": "a house", "score": 0.5, "dataset_name": "sts"}]
    plain = library.SentenceTransformerTrainer.data_collator_class(model.preprocess, prompts="in: ")
    expected, found = plain(copy.deepcopy(rows)), LinkCollator(model, prompts="in: ")(rows)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value) if torch.is_tensor(value) else found[name] == value


def test_batches_without_links_and_unsuitable_models_are_refused(tiny_folder):
    model = opened(tiny_folder)
    loss = WordContrastiveLoss(model)
    texts = [{"sentence1": "the cat", "sentence2": "a house"}]
    batch = LinkCollator(model)(texts)
    with pytest.raises(SettingError, match=r"give the trainer data_collator=LinkCollator\(model\)"):
        loss(*features_of(batch))
    with pytest.raises(SettingError, match="must have two columns of texts, got source"):
        LinkCollator(model)([{"source": "a", "links": []}])
    with pytest.raises(InputError):
        LinkCollator(model)([{"source": "a", "target": "ein", "links": [[0, 3]]}])
    with pytest.raises(SettingError, match="temperature must be above 0"):
        WordContrastiveLoss(model, temperature=0)
    with pytest.raises(SettingError, match="there is no layer 9"):
        WordContrastiveLoss(model, layers=[9])
    static = library.SentenceTransformer(modules=[torch.nn.EmbeddingBag(3, 4)], device="cpu")
    with pytest.raises(SettingError, match="require a Transformer encoder, got EmbeddingBag"):
        WordContrastiveLoss(static)


@pytest.mark.parametrize("layers", [None, [1]])
def test_the_loss_leaves_the_mode_and_the_configuration_of_the_model_unchanged(
    layers, tiny_folder, text
):
    model = opened(tiny_folder).train()
    config, rows = model[0].auto_model.config, link_dataset(*text, towards="en")
    before = config.to_dict()
    loss = WordContrastiveLoss(model, layers=layers)
    assert all(part.training for part in model.modules())
    loss.train()
    loss(*features_of(LinkCollator(model)([rows[0]])))
    assert config.to_dict() == before
    assert not any(part.training for part in loss.reference.modules())
    assert all(part.training for part in model.modules())
    assert not any(p.requires_grad for p in loss.reference.parameters())


# -- sentences -------------------------------------------------------------------------------------
ENGLISH = ["the cat sees a house", "water", "the cat sees a house", "of time"]
GERMAN = ["die Katze sieht ein Haus", "Wasser", "die Katze sieht ein Haus", "Zeit"]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_sentence_loss_equals_the_formula(share, tiny_folder):
    model = opened(tiny_folder)
    loss = SentenceContrastiveLoss(
        model, temperature=0.2, same_share=share, similarity_distillation=0.6
    )
    frozen = copy.deepcopy(model)
    change(model)
    rows = [{"a": a, "b": b} for a, b in zip(ENGLISH, GERMAN, strict=True)]
    found = loss(*features_of(LinkCollator(model)(rows)))
    x, y, before = (
        torch.from_numpy(one.encode(texts)).double()
        for one, texts in ((model, ENGLISH), (model, GERMAN), (frozen, GERMAN))
    )
    contrast = literal_contrast(x, y, ENGLISH, 0.2, share)
    assert found["contrast"].item() == pytest.approx(contrast.item(), abs=1e-6)
    divergence = 0.6 * literal_divergence(y, before, 0.2)
    assert found["similarity"].item() == pytest.approx(divergence.item(), abs=1e-6)
    sum(found.values()).backward()
    assert gradients(model)


def test_the_sentence_loss_accepts_word_links(tiny_folder, text):
    """Give both losses the same data set; the subwords of its words are those of the texts."""
    model, rows = opened(tiny_folder), link_dataset(*text, towards="en")
    loss = SentenceContrastiveLoss(model)
    plain = [{side: row[side] for side in ("source", "target")} for row in rows]
    expected, found = (
        loss(*features_of(LinkCollator(model)(list(each)))) for each in (plain, rows)
    )
    assert found["contrast"].item() == pytest.approx(expected["contrast"].item(), abs=1e-5)
    with pytest.raises(SettingError, match="must have two columns of texts, got 1"):
        loss([{}])
    with pytest.raises(SettingError, match="same_share must be at least 0 and at most 1"):
        SentenceContrastiveLoss(model, same_share=2)


# -- training --------------------------------------------------------------------------------------
def trainer_of(model, folder, data, loss, **arguments):
    settings = library.SentenceTransformerTrainingArguments(
        str(folder), report_to="none", disable_tqdm=True, use_cpu=True, **arguments
    )
    return library.SentenceTransformerTrainer(
        model, settings, train_dataset=data, loss=loss, data_collator=LinkCollator(model)
    )


def retrieval(encoder, text) -> float:
    """Return the accuracy of word retrieval on the text."""
    task = calque.WordRetrieval(*text)
    return next(
        score.value for score in task.evaluate(encoder) if score.metric.startswith("accuracy.all")
    )


def test_multi_task_training_improves_word_retrieval(tiny_folder, tmp_path):
    corpus, pairs = numbered_text(100)
    train, test = ((corpus.take(rows), pairs.take(rows)) for rows in np.split(np.arange(100), [80]))
    model = opened(tiny_folder)
    sts = datasets.Dataset.from_dict(
        {"sentence1": ENGLISH, "sentence2": GERMAN, "score": [0.9, 0.8, 0.7, 0.6]}
    )
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    before = retrieval(word_encoder(model), test)
    trainer = trainer_of(
        model,
        tmp_path / "run",
        {"links": link_dataset(*train, towards="en"), "sts": sts},
        {"links": WordContrastiveLoss(model), "sts": CosineSimilarityLoss(model)},
        num_train_epochs=8,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=10,
        save_strategy="no",
        multi_dataset_batch_sampler="proportional",
    )
    trainer.train()
    after = retrieval(word_encoder(model), test)
    assert after > before + 0.1, (before, after)
    logged = [line for line in trainer.state.log_history if "contrast" in line]
    assert logged[-1]["contrast"] < logged[0]["contrast"]
    assert "similarity" in logged[0]

    model.save(str(tmp_path / "saved"))
    encoder = load_encoder(tmp_path / "saved", pooling="mean")
    assert retrieval(encoder, test) == pytest.approx(after)
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    for name in ("WordContrastiveLoss", '"temperature": 0.05', "oord2019"):
        assert name in card


def test_training_can_be_resumed_and_evaluated(tiny_folder, text, tmp_path):
    """Resume from a checkpoint: the frozen copy is the model before training, not the
    checkpoint.
    """
    rows = link_dataset(*text, towards="en")
    arguments: dict[str, Any] = dict(
        num_train_epochs=2, per_device_train_batch_size=4, save_strategy="steps", save_steps=2
    )
    losses = {}
    for name in ("whole", "resumed"):
        model = opened(tiny_folder)
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        loss = WordContrastiveLoss(model)
        trainer = trainer_of(model, tmp_path / "run", rows, loss, **arguments)
        trainer.train(
            resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2")
            if name == "resumed"
            else None
        )
        losses[name] = trainer.evaluate(rows)["eval_loss"]
        whole = features_of(LinkCollator(model)(list(rows)))
        assert loss(*whole)["similarity"].item() > 0
    assert losses["resumed"] == pytest.approx(losses["whole"], rel=1e-4)
