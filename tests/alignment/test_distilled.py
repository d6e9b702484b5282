"""Tests of sentence distillation: loss, cached teacher vectors, resuming and saving."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from calque.alignment.base import Run
from calque.alignment.distilled import Distillation, static_student
from calque.distributed import Processes
from calque.encoders import load_encoder
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling, UnitLength, sentence_vectors
from calque.errors import InputError
from calque.text import ParallelCorpus, Sentences
from encoder_copies import with_dropout

PAIRS = [
    ("the cat sees a house", "die Katze sieht ein Haus"),
    ("water", "Wasser"),
    ("the old ferry", "die alte Fähre"),
    ("water", "das Wasser"),
    ("a b c d e f", "x y z"),
    ("seven birds", "sieben Vögel"),
]
MONO = ["the wind blows", "water"]


@pytest.fixture(scope="module")
def student(tiny_folder):
    return with_dropout(load_encoder(tiny_folder, layer=2))


@pytest.fixture(scope="module")
def teacher(tiny_folder):
    """Return a teacher encoder and a pooling that returns unit vectors of 24 dimensions."""
    torch.manual_seed(3)
    after = [nn.Linear(32, 24), nn.Tanh(), UnitLength()]
    return load_encoder(tiny_folder), SentencePooling("own", "subwords", ("cls",), after=after)


def corpus(pairs=PAIRS, langs=("en", "de")):
    source, target = ([side.split() for side in sides] for sides in zip(*pairs, strict=True))
    return ParallelCorpus.of(source, target, langs)


def mono():
    return Sentences.of([line.split() for line in MONO], "en")


def subwords():
    return SentencePooling("subwords", "subwords")


def literal(method, model, ending, student, teacher, pairs, lines, drawn=()) -> torch.Tensor:
    """Compute the loss of one update, one text at a time.

    The teacher vectors of the texts in `drawn` are additional candidates.
    """

    def vector(text):
        tokens = student.tokenizer(text, return_tensors="pt")
        mean = model(**tokens, output_hidden_states=True).hidden_states[2][0].mean(0)
        y = ending.after[0](mean)
        return y / y.norm()

    def taught(text):
        one = Sentences.of([text.split()], "en")
        return torch.from_numpy(sentence_vectors(teacher[0], one, teacher[1]).data[0])

    learnt = [(vector(text), en) for en, de in pairs for text in (en, de)] + [
        (vector(en), en) for en in lines
    ]
    others = {en: taught(en) for en in {*drawn, *(en for _, en in learnt)}}
    total = torch.zeros(())
    for x, en in learnt:
        near = {other: torch.exp(x @ v / method.temperature) for other, v in others.items()}
        ranking = -torch.log(near[en] / sum(near.values()))
        total = total + (((x - others[en]) ** 2).sum() + method.ranking * ranking) / len(learnt)
    return total


@pytest.mark.parametrize(("accumulate", "negatives"), [(1, 0), (3, 0), (2, 3)])
def test_distillation_loss_and_gradients_equal_the_formula(
    student, teacher, tmp_path, accumulate, negatives
):
    method = Distillation(
        towards="en", ranking=0.3, temperature=0.2, accumulate=accumulate, negatives=negatives
    )
    store, text, lines = TeacherVectors(tmp_path, *teacher), corpus(), mono()
    objective = method.objective(
        student, subwords(), store, [text], [lines], processes=Processes.alone()
    )
    where = store.places(Sentences.joined([text.source, lines]))
    drawn = {
        ([en for en, _ in PAIRS] + MONO)[list(where).index(place)]
        for place in objective.sampled_negatives()
    }
    assert bool(drawn - {"the cat sees a house", "water", "the wind blows"}) == bool(negatives)
    found = objective.backward([np.array([3, 0, 1]), np.array([0, 1])])
    gradients = [
        None if weight.grad is None else weight.grad.clone()
        for weight in objective.module.parameters()
    ]
    objective.module.zero_grad(set_to_none=True)
    ending, model = objective.pooling, objective.student.model
    expected = literal(
        method, model, ending, student, teacher, [PAIRS[3], PAIRS[0], PAIRS[1]], MONO, drawn
    )
    assert found["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    for fast, weight in zip(gradients, objective.module.parameters(), strict=True):
        slow = torch.zeros_like(weight) if weight.grad is None else weight.grad
        assert torch.allclose(torch.zeros_like(slow) if fast is None else fast, slow, atol=1e-5)


def test_a_fraction_of_the_source_texts_is_sampled(student, teacher, tmp_path):
    method, store = (
        Distillation(towards="en", source_share=0.25),
        TeacherVectors(tmp_path, *teacher),
    )
    objective = method.objective(
        student, subwords(), store, [corpus(PAIRS * 20)], processes=Processes.alone()
    )
    targets = set(objective.lesson.parts[0][:, 1])
    first, again = (objective.texts([np.arange(120)]) for _ in range(2))
    objective.load_state({"updates": 1})
    other = objective.texts([np.arange(120)])
    assert targets <= set(first)
    assert 15 < len(first) - 120 < 45
    assert list(first) == list(again) != list(other), (
        "the sample must depend on the number of updates"
    )


def test_the_teacher_encodes_each_text_only_once(teacher, tmp_path, monkeypatch):
    """Fill the store in two shards, as two processes would do."""
    monkeypatch.setattr("calque.encoders.sentence_store._BLOCK", 2)
    encoder, pooling = copy.copy(teacher[0]), teacher[1]
    encoder.model = copy.deepcopy(
        encoder.model
    ).double()  # in float32, sums depend on the shape of the batch
    lines = Sentences.joined([corpus().source, Sentences.of([["the", "cat"], ["the cat"]], "en")])
    shares = [TeacherVectors(tmp_path, encoder, pooling) for _ in range(2)]
    for rank, share in enumerate(shares):
        assert share.fill(lines, rank=rank, world=2) == 6
    store = TeacherVectors(tmp_path, encoder, pooling)
    assert len(store) == 6, "the text water occurs twice but is encoded once"
    assert store.fill(lines) == 0
    assert store.fill(Sentences.joined([mono(), lines])) == 1, (
        "a second run must encode only new text"
    )
    plain = sentence_vectors(encoder, lines, pooling).data
    np.testing.assert_allclose(store.take(store.places(lines)), plain, atol=1e-6)
    assert len(TeacherVectors(tmp_path, encoder, pooling)) == 7
    (next(iter(store.folder.glob("*.safetensors")))).write_bytes(b"")
    with pytest.raises(InputError):
        TeacherVectors(tmp_path, encoder, pooling)


def test_a_teacher_with_word_pooling_encodes_segmented_words(tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder)
    store = TeacherVectors(tmp_path, encoder, SentencePooling.of(encoder, "words"))
    store.fill(Sentences.of([["the", "cat,", "water!"]], "en"))
    divided = Sentences.of([["the", "cat", ",", "water", "!"]], "en")
    expected = sentence_vectors(encoder, divided, store.pooling).data
    np.testing.assert_allclose(store.take(np.array([0])), expected, atol=1e-6)


def distil(student, teacher, place, folder, **options):
    method = Distillation(towards="en", batch=3, learning_rate=3e-3, source_share=0.5, **options)
    store = TeacherVectors(place, *teacher)
    corpora = [corpus(), corpus([pair[::-1] for pair in PAIRS[:2]], ("de", "en"))]
    return method.distil(
        student, subwords(), store, corpora, [mono()], Run(folder, checkpoint_every=2)
    )


def test_a_resumed_training_run_equals_an_uninterrupted_run(
    student, teacher, tmp_path, monkeypatch
):
    whole = distil(student, teacher, tmp_path / "store", tmp_path / "whole", epochs=4)
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]
    usual, calls = Distillation.terms, []

    def terms(self, *given):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return usual(self, *given)

    monkeypatch.setattr(Distillation, "terms", terms)
    with pytest.raises(KeyboardInterrupt):
        distil(student, teacher, tmp_path / "store", tmp_path / "again", epochs=4)
    again = distil(student, teacher, tmp_path / "store", tmp_path / "again", epochs=4)
    assert len(calls) < 6 + len(whole.history), "training resumed from a checkpoint"
    assert again.history == whole.history
    expected, found = (
        {**each.encoder.model.state_dict(), **each.pooling.state_dict()} for each in (whole, again)
    )
    for name, weight in expected.items():
        assert torch.equal(weight, found[name]), name


def test_the_pooling_is_saved_with_the_student(student, teacher, tmp_path):
    found = distil(student, teacher, tmp_path / "store", None, epochs=1)
    (tmp_path / "modules").mkdir()
    found.write_modules(tmp_path / "modules")
    found.encoder.save(tmp_path / "saved")
    read = load_encoder(tmp_path / "saved")
    pooling = SentencePooling.of(read)
    assert pooling.name == "own"
    text = corpus().target
    np.testing.assert_allclose(
        sentence_vectors(read, text, pooling).data,
        sentence_vectors(found.encoder, text, found.pooling).data,
        atol=1e-6,
    )
    assert sentence_vectors(read, text, pooling).data.shape == (6, 24)


@pytest.mark.parametrize(("width", "layers"), [(32, 0), (64, 1)])
def test_a_linear_layer_maps_to_the_dimension_of_the_teacher(student, tmp_path, width, layers):
    after = [nn.Linear(32, width)] if width != 32 else []
    store = TeacherVectors(
        tmp_path, student, SentencePooling("own", "subwords", ("mean",), after=after)
    )
    pooling = subwords()
    for _ in range(2):
        objective = Distillation(towards="en").objective(
            student, pooling, store, [corpus()], processes=Processes.alone()
        )
        pooling = objective.pooling
        found = sum(isinstance(part, nn.Linear) for part in pooling.after)
        assert found == layers, "a student with a linear layer must not get a second one"


def test_a_static_student_is_initialised_from_teacher_vectors_and_trained(
    tiny_folder, teacher, tmp_path
):
    tokenizer: Any = load_encoder(tiny_folder).tokenizer  # type: ignore[attr-defined]
    store = TeacherVectors(tmp_path / "store", *teacher)
    text = corpus()
    start = static_student(tokenizer, store, [text.source, text.target])
    ids = tokenizer(" ".join(side for pair in PAIRS for side in pair), add_special_tokens=False)[
        "input_ids"
    ]
    alone = {}
    for number, token in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer)))):
        if token not in tokenizer.all_special_tokens:
            one = Sentences.of([[token.removeprefix("##")]], "en")
            alone[number] = sentence_vectors(teacher[0], one, teacher[1]).data[0]
    mean = np.mean(list(alone.values()), axis=0)
    number = ids[0]
    weight = 1e-3 / (1e-3 + ids.count(number) / len(ids))
    np.testing.assert_allclose(
        start.model.weight[number].detach().numpy(), weight * (alone[number] - mean), atol=1e-5
    )
    method = Distillation(towards="en", batch=4, learning_rate=0.05, epochs=20, ranking=0.3)
    found = method.distil(start, SentencePooling.of(start), store, [text])
    assert found.history[-1]["mse"] < 0.3 * found.history[0]["mse"]
    found.encoder.save(tmp_path / "static")
    read = load_encoder(tmp_path / "static")
    pooling = SentencePooling.of(read)
    vectors = sentence_vectors(read, text.target, pooling)
    np.testing.assert_array_equal(
        vectors.data, sentence_vectors(found.encoder, text.target, pooling).data
    )
    rows = found.encoder.model.weight.detach()
    for vector, pair in zip(vectors.data, PAIRS, strict=True):
        ids = tokenizer(pair[1], add_special_tokens=False)["input_ids"]
        expected = torch.nn.functional.normalize(rows[ids].mean(0), dim=0)
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    words = read.encode(text.target)
    ids = tokenizer("Katze", add_special_tokens=False)["input_ids"]
    np.testing.assert_allclose(words[0][1], rows[ids].mean(0), atol=1e-6)
