"""What contrast can have beside its loss: each option against a slow literal transcription of what it says."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from calque.alignment.contrastive import Contrastive
from calque.alignment.temperature import scheduled
from calque.alignment.update import Alignment
from calque.distributed import Processes
from calque.errors import SettingError
from calque.runs.realign import TextRealignment
from calque.training.loop import Loop
from linked_text import make_text

CHOSEN = [np.array([3, 0, 7, 8])]


@pytest.fixture(scope="module")
def text():
    return make_text("xx", 12, 0)


def moved(encoder):
    """A copy whose weights are not those of the frozen encoder any more."""
    tuned = copy.copy(encoder)
    tuned.model = copy.deepcopy(encoder.model)
    with torch.no_grad():
        for p in tuned.model.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return tuned


def update(tuner, encoder, text, chosen=CHOSEN, tuned=None):
    """The terms of one update, and the gradients in the model's weights."""
    tuned = tuned or moved(encoder)
    laid = tuner.text(encoder, [text[0]], [text[1]])
    objective = tuner.objective(tuned, encoder, laid, Processes())
    terms = objective.backward(chosen)
    return terms, {name: p.grad for name, p in tuned.model.named_parameters() if p.grad is not None}


def states(encoder, words, layer):
    """`[n_subwords, dim]` straight from transformers, and the word of each."""
    encoded = encoder.tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
    return encoder.model(**encoded, output_hidden_states=True).hidden_states[layer][0], encoded.word_ids()


# -- the term that keeps vectors where they were ----------------------------------------------------------------------
def literal_stay(tuned, frozen, corpus, numbers, scales: dict[int, float], on: str) -> torch.Tensor:
    total = torch.zeros(())
    for layer, scale in scales.items():
        distances = []
        for number in numbers:
            words = corpus[int(number)][1].words
            now, owner = states(tuned, words, layer)
            with torch.no_grad():
                before, _ = states(frozen, words, layer)
            last = [max(k for k, word in enumerate(owner) if word == i) for i in range(len(words))]
            for row in last if on == "words" else range(len(owner)):
                distances.append(((now[row] - before[row]) ** 2).mean())
        total = total + scale * torch.stack(distances).mean()
    return total


@pytest.mark.parametrize("reference", ["cached", "recomputed"])
@pytest.mark.parametrize("on", ["words", "subwords"])
@pytest.mark.parametrize(
    ("settings", "scales"),
    [({}, {3: 1.0}), ({"stay_layers": (1, -1), "stay_scales": (0.5, 2.0), "special": True}, {1: 0.5, 3: 2.0})],
)
def test_vectors_stay_in_the_layers_and_units_asked_for(tiny_encoder, text, on, settings, scales, reference):
    if settings.get("special") and on == "words":
        settings = {**settings, "special": False}  # special subwords would be words
    tuner = Contrastive(towards="xx", weight=0.7, keep=0, stay_on=on, reference=reference, **settings)
    tuned = moved(tiny_encoder)
    expected = 0.7 * literal_stay(tuned, tiny_encoder, text[0], CHOSEN[0], scales, on)
    terms, found = update(tuner, tiny_encoder, text, tuned=tuned)
    assert terms["stay"] == pytest.approx(expected.item(), rel=1e-4)
    bare = Contrastive(towards="xx", keep=0, special=tuner.special)
    _, without = update(bare, tiny_encoder, text)
    slow = moved(tiny_encoder)
    (0.7 * literal_stay(slow, tiny_encoder, text[0], CHOSEN[0], scales, on)).backward()
    for name, p in slow.model.named_parameters():
        if p.grad is not None and name in without:
            torch.testing.assert_close(found[name] - without[name], p.grad, atol=2e-4, rtol=1e-3, msg=name)


def test_how_vectors_stay_is_refused_where_it_says_nothing(tiny_encoder, text):
    for settings, said in (
        ({"stay_layers": (1,)}, "weight above 0"),
        ({"stay_on": "subwords"}, "weight above 0"),
        ({"weight": 1, "stay_on": "letters"}, "words or subwords"),
        ({"weight": 1, "stay_scales": (1,)}, "1 stay_scales for 0 stay_layers"),
        ({"weight": 1, "stay_layers": (1,), "stay_scales": (0,)}, "above 0"),
    ):
        with pytest.raises(SettingError, match=said):
            Contrastive(towards="xx", **settings)
    with pytest.raises(SettingError, match="a layer twice"):
        Contrastive(towards="xx", weight=1, stay_layers=(3, -1)).tune(tiny_encoder, *text)


# -- the temperature --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_temperature_goes_from_one_end_to_the_other(schedule):
    a, b, n = 0.1, 0.02, 7
    for k in range(n):
        u = k / (n - 1)
        expected = a + (b - a) * u if schedule == "linear" else b + (a - b) * (1 + math.cos(math.pi * u)) / 2
        assert scheduled(schedule, a, b, k, n) == pytest.approx(expected, rel=1e-12)
    assert scheduled(schedule, a, b, 0, 1) == pytest.approx(a)
    assert scheduled(schedule, a, b, n + 5, n) == pytest.approx(b)


def test_each_update_has_the_temperature_of_its_schedule(tiny_encoder, text):
    """And `keep` that of the beginning."""
    seen = []

    class Watched(Contrastive):
        def loss(self, groups, processes, *, temperature=None):
            seen.append(temperature)
            terms = super().loss(groups, processes, temperature=temperature)
            fixed = Contrastive(towards="en", keep=0.3, temperature=temperature).loss(groups, processes)
            begun = Contrastive(towards="en", keep=0.3, temperature=0.2).loss(groups, processes)
            assert terms["contrast"].item() == fixed["contrast"].item()
            assert terms["keep"].item() == begun["keep"].item()
            return terms

    tuner = Watched(
        towards="en", batch=4, keep=0.3, temperature=0.2, temperature_schedule="linear", temperature_end=0.1
    )
    tuner.tune(tiny_encoder, *text)
    assert seen == [pytest.approx(0.2 - 0.1 * k / 5) for k in range(6)]
    assert [line["temperature"] for line in tuner.history] == seen
    assert tuner.record()["temperature"] == {"first": 0.2, "last": seen[-1]}


def test_a_learned_temperature_is_clipped_and_has_the_gradient_of_the_formula(tiny_encoder, text):
    tuner = Contrastive(towards="en", keep=0, sentences=0.5, temperature=0.05, temperature_schedule="learned")
    laid, tuned = tuner.text(tiny_encoder, [text[0]], [text[1]]), moved(tiny_encoder)
    objective = tuner.objective(tuned, tiny_encoder, laid, Processes())
    objective.backward(CHOSEN)
    small, losses = 0.02, []
    for step in (-small, small):  # of log 1/τ
        other = Contrastive(
            towards="en", keep=0, sentences=0.5, same="each", temperature=1 / math.exp(math.log(20) + step)
        )
        losses.append(update(other, tiny_encoder, text, tuned=moved(tiny_encoder))[0]["loss"])
    assert float(objective.scale.log.grad) == pytest.approx((losses[1] - losses[0]) / (2 * small), rel=2e-2)
    with torch.no_grad():
        objective.scale.log.fill_(9.0)
    objective.after_update(1)
    assert objective.temperature().item() == pytest.approx(0.01)
    tuner.tune(tiny_encoder, *text)
    taus = [line["temperature"] for line in tuner.history]
    assert taus[0] == pytest.approx(0.05)
    assert len(set(taus)) == len(taus)
    assert tuner.record()["temperature"]["last"] == taus[-1]


def test_temperatures_that_cannot_be_are_refused():
    for settings, said in (
        ({"temperature_schedule": "warm"}, "fixed, linear, cosine or learned"),
        ({"temperature_schedule": "linear"}, "temperature_end must be"),
        ({"temperature_end": 0.1}, "no effect on a fixed temperature"),
        ({"temperature_schedule": "learned", "temperature": 0.001}, "at least 0.01"),
    ):
        with pytest.raises(SettingError, match=said):
            Contrastive(towards="en", **settings)
    with pytest.raises(SettingError, match="learned temperature during"):
        TextRealignment(lambda: ([], []), when="during", options={"temperature_schedule": "learned"})


# -- sentences --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("special", [False, True])
def test_sentences_rank_their_translations(tiny_encoder, text, special):
    tuner = Contrastive(towards="en", keep=0, sentences=0.4, temperature=0.3, special=special)
    tuned = moved(tiny_encoder)
    terms, found = update(tuner, tiny_encoder, text, tuned=tuned)
    slow, sides = moved(tiny_encoder), []
    for side in (0, 1):
        vectors = []
        for number in CHOSEN[0]:
            words = text[0][int(number)][side].words
            rows, owner = states(slow, words, 3)
            last = [max(k for k, word in enumerate(owner) if word == i) for i in range(len(words))]
            mean = torch.stack([rows[k] for k in last]).mean(0)
            vectors.append(mean / mean.norm())
        sides.append(vectors)
    total = torch.zeros(())
    for a, b in (sides, sides[::-1]):
        for k in range(4):
            over = sum(torch.exp(a[k] @ b[j] / 0.3) for j in range(4))
            total = total - torch.log(torch.exp(a[k] @ b[k] / 0.3) / over) / 8
    assert terms["sentences"] == pytest.approx(0.4 * total.item(), rel=1e-4)
    (0.4 * total).backward()
    _, without = update(Contrastive(towards="en", keep=0, temperature=0.3, special=special), tiny_encoder, text)
    for name, p in slow.model.named_parameters():
        if p.grad is not None and name in without:
            torch.testing.assert_close(found[name] - without[name], p.grad, atol=2e-4, rtol=1e-3, msg=name)


# -- all of them ------------------------------------------------------------------------------------------------------
MANY = [
    {"sentences": 0.5, "weight": 0.4, "stay_layers": (1, 3), "stay_scales": (2, 1), "stay_on": "subwords",
     "temperature_schedule": "learned", "special": True},
    {"sentences": 0.5, "weight": 0.4, "stay_layers": (0, 2), "subword_dropout": 0.3, "temperature_schedule": "cosine",
     "temperature_end": 0.02},
]  # fmt: skip


@pytest.mark.parametrize("settings", MANY)
@pytest.mark.parametrize("reference", ["cached", "recomputed"])
def test_a_batch_in_parts_equals_the_whole_batch(tiny_encoder, text, settings, reference):
    found = [
        update(Contrastive(towards="en", accumulate=n, reference=reference, **settings), tiny_encoder, text)
        for n in (1, 3)
    ]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    scale = max(float(g.abs().max()) for g in found[0][1].values())
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, atol=1e-4 * scale, rtol=1e-3, msg=name)


@pytest.mark.parametrize("settings", MANY)
def test_a_run_that_died_ends_with_the_same_bits(tiny_encoder, text, settings, tmp_path, monkeypatch):
    tuner = Contrastive(towards="en", batch=4, epochs=2, **settings)
    whole = tuner.tune(tiny_encoder, *text, folder=tmp_path / "whole", checkpoint_every=1)
    history = tuner.history
    original, deaths = Loop.save, []

    def dying(self):
        original(self)
        if self.step in (1, 4) and self.step not in deaths:
            deaths.append(self.step)
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "save", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tuner.tune(tiny_encoder, *text, folder=tmp_path / "broken", checkpoint_every=1)
    broken = tuner.tune(tiny_encoder, *text, folder=tmp_path / "broken", checkpoint_every=1)
    assert tuner.history == history
    weights = broken.model.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in whole.model.state_dict().items())


def test_what_is_left_at_its_default_changes_no_bit(tiny_encoder, text):
    """Neither the options, nor that there could be some: objectives keep nothing of their own in a checkpoint."""
    plain = Contrastive(towards="en", batch=4)
    laid = plain.text(tiny_encoder, [text[0]], [text[1]])
    objective = plain.objective(tiny_encoder, tiny_encoder, laid, Processes())
    assert (type(objective), objective.module, objective.state()) == (Alignment, tiny_encoder.model, {})
    assert laid.row_counts is laid.word_counts
    (part,) = laid.update(CHOSEN, budget=100)
    assert part.table is laid.table
    assert part.groups[0].sentences is part.groups[0].subwords is None
    whole = Contrastive(towards="en", batch=4, weight=1.0)
    named = Contrastive(towards="en", batch=4, weight=1.0, stay_layers=(-1,), stay_scales=(1.0,))
    weights = [tuner.tune(tiny_encoder, *text).model.state_dict() for tuner in (whole, named)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
