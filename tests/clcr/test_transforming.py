"""Tests of the first step of CLCR: loss, planted languages, resuming, and skipped text."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

import clcr_job
from calque.alignment.data import training_data
from calque.clcr import method
from calque.clcr.method import KeyPointAlignment
from calque.clcr.pivots import covered_words, find_pivots
from calque.clcr.transform import Side, Space, Transform, Transforming
from calque.distributed import Processes
from calque.encoders.batches import collate
from calque.encoders.extraction import UncoveredWordsWarning
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.text import ParallelCorpus
from calque.training.sources import ChosenWords, TrainedSource
from calque.vectors import Embeddings
from linked_text import make_text
from planted_vectors import f1, languages


# -- distance and transform ------------------------------------------------------------------------
def literal(keys, queries, temperature):
    """Return the distance of each word of the second sentence (Eqs. 2 and 3), computed one word at
    a time.
    """
    d, distances = queries.shape[1], []
    for word in queries:
        a = torch.stack([-(key - word).square().sum() / 2 for key in keys]) / d**0.5
        found = sum(
            share * key for share, key in zip(torch.softmax(a / temperature, 0), keys, strict=True)
        )
        distances.append((found - word).square().sum() / d)
    return distances


def rows(lengths, dim, seed, dtype=torch.float32):
    return torch.randn(
        sum(lengths), dim, generator=torch.Generator().manual_seed(seed), dtype=dtype
    ).requires_grad_()


def filled(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return module


@pytest.mark.parametrize("hidden", [None, 7, 0])
def test_the_transform_matches_its_formula(hidden):
    module = filled(Transform(5, 4, hidden))
    r = rows([6], 5, 0)
    state = module.state_dict()
    expected = r @ state["linear.weight"].T + state["linear.bias"]
    if hidden != 0:
        inside = r @ state["inner.weight"].T + state["inner.bias"]
        expected = expected + inside.clamp(min=0) @ state["outer.weight"].T
        assert state["inner.weight"].shape == (5 if hidden is None else hidden, 5)
    else:
        assert set(state) == {"linear.weight", "linear.bias"}
    torch.testing.assert_close(module(r), expected)
    again = Transform(**module.settings)
    again.load_state_dict(state)
    torch.testing.assert_close(again(r), module(r))
    module, r = module.double(), r.double()
    m, k = (
        rows([1], 5, 1, torch.float64)[0],
        rows([1], 4, 2, torch.float64)[0],
    )  # means of the two scaled spaces
    torch.testing.assert_close(
        module.between((m, 0.7), (k, 3.0))(r), module((r - m) / 0.7) * 3.0 + k
    )


# -- one update ------------------------------------------------------------------------------------
def word_vectors(encoder, sentence, space):
    split = encoder.split([sentence])
    rows = encoder.forward(collate(split, np.array([0])), [encoder.layer])[encoder.layer][
        split.covered
    ]
    return (rows - space.mean.float()) / space.spread


def gradients(*modules):
    found = {}
    for number, module in enumerate(modules):
        found |= {
            (number, name): p.grad.clone()
            for name, p in module.named_parameters()
            if p.grad is not None
        }
        module.zero_grad(set_to_none=True)
    return found


@pytest.mark.filterwarnings("ignore::calque.encoders.extraction.UncoveredWordsWarning")
@pytest.mark.parametrize("trained", ["nothing", "language", "pivot"])
def test_losses_and_gradients_of_an_update_match_the_formula(tiny_encoder, trained):
    """Compare with a loop over the sentence pairs of two languages and one pivot language; words
    without a vector are ignored.
    """
    encoder = copy.copy(tiny_encoder)
    encoder.model = copy.deepcopy(tiny_encoder.model).eval()
    corpora = [make_text(lang, 8, number)[0].swapped() for number, lang in enumerate(("xx", "yy"))]
    words = [list(sentence.words) for sentence in corpora[0].source]
    words[3] = ["\x00", *words[3]]
    corpora[0] = ParallelCorpus.of(words, [s.words for s in corpora[0].target], ("xx", "en"))
    spaces = [Space(torch.linspace(-1, 1, 32, dtype=torch.float64) * k, 0.5 + k) for k in range(3)]
    maps = [
        (filled(Transform(32), 2 * k), filled(Transform(32, hidden=7), 2 * k + 1)) for k in range(2)
    ]
    update = [np.array([5, 0, 3, 6]), np.array([2, 4, 1])]
    step, beta = 7, 0.1

    def source(texts, trainable):
        splits = [encoder.split(text) for text in texts]
        if trainable:
            return TrainedSource(
                encoder, type(splits[0]).joined(splits).covered_words(), Processes(), budget=40
            )
        vectors = Embeddings.joined([encoder.encode(text) for text in texts])
        return ChosenWords(vectors, covered_words(vectors))

    pivot = source([corpus.target for corpus in corpora], trained == "pivot")
    begins = offsets_of([len(corpus) for corpus in corpora])
    sides = [
        Side(
            lang,
            source([corpus.source], trained == "language" and k == 0),
            spaces[k],
            *maps[k],
            np.arange(8),
            np.arange(8) + begins[k],
        )
        for k, (lang, corpus) in enumerate(zip(("xx", "yy"), corpora, strict=True))
    ]
    objective = Transforming(sides, pivot, spaces[2], name="en", processes=Processes(), beta=beta)
    objective.after_update(step)
    terms = objective.backward(update)
    ours = gradients(*(module for pair in maps for module in pair), encoder.model)

    expected, loss = {}, torch.zeros(())
    for k, (lang, corpus) in enumerate(zip(("xx", "yy"), corpora, strict=True)):
        forth, back = [], []
        for number in update[k]:
            with torch.set_grad_enabled(trained == "language" and k == 0):
                x = word_vectors(encoder, corpus.source[int(number)], spaces[k])
            with torch.set_grad_enabled(trained == "pivot"):
                y = word_vectors(encoder, corpus.target[int(number)], spaces[2])
            forth += literal(maps[k][0](x), y.detach(), 1 / (1 + beta * step))
            back += literal(maps[k][1](y), x.detach(), 1 / (1 + beta * step))
        for name, several in ((f"{lang}-en", forth), (f"en-{lang}", back)):
            expected[name] = torch.stack(several).mean()
            loss = loss + expected[name]
    loss.backward()
    theirs = gradients(*(module for pair in maps for module in pair), encoder.model)

    assert terms["temperature"] == pytest.approx(1 / (1 + beta * step))
    assert terms["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, value in expected.items():
        assert terms[name] == pytest.approx(float(value.detach()), rel=1e-5)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(
            ours[name], gradient, atol=2e-5 * max(1.0, float(gradient.abs().max())), rtol=1e-3
        )
    assert any(number == 4 for number, _ in ours) == (trained != "nothing")


def test_refinement_minimises_the_cost_of_mutual_best_pairs():
    """Compare costs and gradients with a loop over the mutual best pairs."""
    rng = np.random.default_rng(0)
    lengths = [np.array([3, 1, 5, 2]), np.array([2, 4, 3, 2])]
    vectors = [
        Embeddings(rng.standard_normal((n.sum(), dim)).astype(np.float32), offsets_of(n))
        for n, dim in zip(lengths, (6, 4), strict=True)
    ]
    sources = [ChosenWords(side, np.ones(side.n_words, dtype=bool)) for side in vectors]
    maps = filled(Transform(6, 4), 0), filled(Transform(4, 6), 1)
    plain = [Space(torch.zeros(side.dim, dtype=torch.float64), 1.0) for side in vectors]
    side = Side("xx", sources[0], plain[0], *maps, np.arange(4), np.arange(4))
    objective = Transforming(
        [side], sources[1], plain[1], name="en", processes=Processes(), beta=0.0, mutual=True
    )
    update = np.array([2, 0, 3])
    terms = objective.backward([update])
    ours = gradients(*maps)

    found = find_pivots(*vectors, *maps).pairs
    forth, back = torch.zeros(()), torch.zeros(())
    for k in np.flatnonzero(np.isin(found.sentence, update)):
        x, y = (torch.from_numpy(side[found.sentence[k]]) for side in vectors)
        i, j = found.source[k], found.target[k]
        forth, back = (
            forth + (maps[0](x)[i] - y[j]).square().sum() / 4,
            back + (maps[1](y)[j] - x[i]).square().sum() / 6,
        )
    forth, back = forth / lengths[1][update].sum(), back / lengths[0][update].sum()
    (forth + back).backward()
    assert terms["xx-en"] == pytest.approx(float(forth.detach()), rel=1e-5)
    assert terms["en-xx"] == pytest.approx(float(back.detach()), rel=1e-5)
    for name, gradient in gradients(*maps).items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-4)


# -- planted languages -----------------------------------------------------------------------------
def held_out_f1(found, planted):
    (text,) = found.texts
    sides = (
        (text.corpus.source, "aa", found.encoders["aa"]),
        (text.corpus.target, "bb", found.encoders["bb"]),
    )
    vectors = [encoder.encode(side.take(text.held_out)) for side, _, encoder in sides]
    pivots = find_pivots(*vectors, found.to_pivot["aa"], found.from_pivot["aa"]).within(
        found.thresholds["aa"]
    )
    return f1(pivots, planted.links.take(text.held_out))


def transformed(planted, links=None, **settings):
    method = KeyPointAlignment(towards="bb", steps="transform", **settings)
    return method.fit(planted.encoders, training_data(planted.corpus, links)).transformed


def mean_of_last(history, name, n=20):
    return float(np.mean([line[name] for line in history[-n:]]))


@pytest.mark.parametrize("settings", [{}, {"linear": True}], ids=["default", "linear"])
def test_a_planted_language_is_aligned_with_sentence_pairs_alone(settings):
    planted = languages()
    found = transformed(planted, planted.links, epochs=(8, 1, 1, 2, 1), **settings)
    assert found.f1["aa"] >= 0.95
    assert held_out_f1(found, planted) == pytest.approx(found.f1["aa"])
    history = found.history["transform-aa"]
    assert found.history.keys() == {"transform-aa", "refine-aa"}, (
        "an encoder with fixed vectors must not be trained"
    )
    assert mean_of_last(found.history["refine-aa"], "loss") < mean_of_last(history, "loss")
    assert mean_of_last(history, "aa-bb") < 0.35 * history[0]["aa-bb"]
    temperatures = [line["temperature"] for line in history]
    assert temperatures == pytest.approx(
        [1 / (1 + 0.01 * step) for step in range(len(temperatures))]
    )
    assert found.encoders == planted.encoders


def test_distance_is_to_the_nearest_word_and_soft_distance_has_temperature_1():
    """Compare the distances of Table 1 with a loop over held-out sentences."""
    planted = languages(200, scale=0.2)
    method = KeyPointAlignment(towards="bb", epochs=(2, 0, 0, 0, 1), steps="transform")
    fitted = method.fit(planted.encoders, training_data(planted.corpus))
    found, judged = (
        fitted.transformed,
        [each for each in fitted.scores if each.langs == ("aa", "bb")],
    )
    figures = {each.metric: each.statistic(each.counts.sum(axis=0)) for each in judged}
    (text,), transform = found.texts, found.to_pivot["aa"]
    x, y = (vectors.take(text.held_out) for vectors in (text.vectors, text.pivot_vectors))
    pairs = [
        (transform(torch.from_numpy(x[k])).detach(), torch.from_numpy(y[k])) for k in range(len(x))
    ]
    nearest = [(keys - word).square().mean(1).min() for keys, queries in pairs for word in queries]
    soft = [distance for pair in pairs for distance in literal(*pair, 1.0)]
    assert figures["distance"] == pytest.approx(float(torch.stack(nearest).mean()), rel=1e-3)
    assert figures["soft distance"] == pytest.approx(float(torch.stack(soft).mean()), rel=1e-4)
    assert figures["soft distance"] > 1.1 * figures["distance"]


def test_published_settings_skip_refinement_and_choose_the_threshold_with_the_highest_f1():
    """With all mutual best pairs as links, the highest threshold has the highest F1."""
    planted = languages(400)
    first = transformed(planted, epochs=(8, 0, 0, 0, 1))
    sides = first.texts[0].vectors, first.texts[0].pivot_vectors
    every = find_pivots(*sides, first.to_pivot["aa"], first.from_pivot["aa"])
    published = transformed(planted, every.pairs, epochs=(8, 0, 0, 2, 1), as_published=True)
    ours = transformed(planted, every.pairs, epochs=(8, 0, 0, 0, 1))
    assert published.history.keys() == {"transform-aa"}
    highest = every.costs[np.isin(every.pairs.sentence, published.texts[0].held_out)].max()
    assert (published.thresholds["aa"], published.f1["aa"]) == pytest.approx((highest, 1.0))
    assert ours.thresholds["aa"] < published.thresholds["aa"]


# -- phases with trainable encoders ----------------------------------------------------------------
def test_only_one_encoder_is_trained_at_a_time(tiny_folder, tmp_path, monkeypatch):
    trained = []
    original = Transforming.__init__

    def watched(self, sides, pivot, space, **options):
        original(self, sides, pivot, space, **options)
        models = [source.model is not None for source in (*(side.source for side in sides), pivot)]
        trained.append(([side.lang for side in sides], models))

    monkeypatch.setattr(Transforming, "__init__", watched)
    given = clcr_job.two_languages(str(tiny_folder))
    before = {lang: encoder.fingerprint for lang, encoder in given.items()}
    monkeypatch.setattr(clcr_job, "two_languages", lambda *_: given)
    found, _ = clcr_job.run(str(tiny_folder), tmp_path, epochs=(2, 1, 1, 0, 1))
    assert trained == [
        (["xx"], [False, False]),
        (["yy"], [False, False]),
        (["xx"], [True, False]),
        (["yy"], [True, False]),
        (["xx", "yy"], [False, False, True]),
    ]
    names = ["transform-xx", "transform-yy", "encoder-xx", "encoder-yy", "encoder-en"]
    assert list(found.history) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert {"loss", "xx-en", "en-xx", "yy-en", "en-yy", "temperature"} <= found.history[
        "encoder-en"
    ][0].keys()
    for name in names:
        lines = [
            json.loads(line)
            for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        ]
        assert lines == found.history[name]
        assert lines[0]["temperature"] == 1.0, "annealing must restart in each phase"
    assert {lang: encoder.fingerprint for lang, encoder in given.items()} == before
    for lang, encoder in found.encoders.items():
        assert encoder.fingerprint != before[lang]
        assert not encoder.model.training
        assert all(p.requires_grad for p in encoder.model.parameters())


def test_each_phase_has_its_own_number_of_epochs_and_learning_rate(tiny_folder, monkeypatch):
    used, loop = [], method.Loop

    def watched(*args, schedule, **options):
        used.append(schedule.learning_rate)
        return loop(*args, schedule=schedule, **options)

    monkeypatch.setattr(method, "Loop", watched)
    rates = (5e-3, 1e-3, 2e-3)
    found, _ = clcr_job.run(
        str(tiny_folder), None, sizes=(14,), epochs=(1, 2, 3, 4, 1), learning_rate=rates
    )
    updates = {name: len(history) for name, history in found.history.items()}
    once = updates["transform-xx"]
    assert once > 1
    assert updates == {
        "transform-xx": once,
        "encoder-xx": 2 * once,
        "encoder-en": 3 * once,
        "refine-xx": 4 * once,
    }
    assert used[:3] == list(rates)


class Killed(Exception):
    pass


def test_training_resumed_in_any_phase_equals_uninterrupted_training(
    tiny_folder, tmp_path, monkeypatch
):
    """Kill training (with dropout) in the first, a middle and the last update of each phase, and
    resume it.
    """
    whole, expected = clcr_job.run(str(tiny_folder), tmp_path / "whole", dropout=0.1)
    updates = [len(history) for history in whole.history.values()]
    assert min(updates) >= 2
    backward, done = Transforming.backward, []
    ends = np.cumsum(updates)
    kills = sorted(
        {
            int(k)
            for end, n in zip(ends, updates, strict=True)
            for k in (end - n + 1, end - n // 2, end)
        }
    )

    def dying(self, update):
        done.append(1)
        if kills and len(done) >= kills[0]:
            raise Killed
        return backward(self, update)

    monkeypatch.setattr(Transforming, "backward", dying)
    for _ in range(len(kills)):
        with pytest.raises(Killed):
            clcr_job.run(str(tiny_folder), tmp_path / "killed", dropout=0.1)
        kills.pop(0)
    found, weights = clcr_job.run(str(tiny_folder), tmp_path / "killed", dropout=0.1)
    assert found.history == whole.history
    assert found.thresholds == whole.thresholds
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name


def test_a_checkpoint_of_another_run_is_rejected(tiny_folder, tmp_path):
    clcr_job.run(str(tiny_folder), tmp_path, sizes=(12,), epochs=(1, 1, 0, 0, 1))
    with pytest.raises(SettingError, match="transform-xx.*: beta: 0.01 → 0.1"):
        clcr_job.run(str(tiny_folder), tmp_path, sizes=(12,), epochs=(1, 1, 0, 0, 1), beta=0.1)
    with pytest.raises(SettingError, match="encoder-xx.*: epochs: 1 → 2"):
        clcr_job.run(str(tiny_folder), tmp_path, sizes=(12,), epochs=(1, 2, 0, 0, 1))


# -- skipped text and errors -----------------------------------------------------------------------
def test_unusable_sentence_pairs_are_counted(tiny_encoder):
    source = [
        ["the", "cat"],
        [],
        ["\x00"],
        ["water"] * 70,
        ["a", "\x00"],
        ["house"],
        ["of", "time"],
    ]
    target = [["THE"], ["WATER"], ["A"], ["WATER"], ["A", "IN"], ["HOUSE"], []]
    corpus = ParallelCorpus.of(source, target, ("xx", "en"))
    encoders = {"xx": tiny_encoder, "en": tiny_encoder}
    method = KeyPointAlignment(
        towards="en", epochs=(1, 1, 1, 2, 1), held_out=0, batch=2, steps="transform"
    )
    with pytest.warns(UncoveredWordsWarning):
        found = method.fit(encoders, training_data(corpus)).transformed
    assert found.texts[0].counts == {"trained": 3, "held_out": 0, "too_long": 1, "empty": 3}
    assert found.thresholds == {"xx": float("inf")}
    assert all(np.isfinite(line["loss"]) for history in found.history.values() for line in history)


def test_unusable_corpora_are_rejected(tiny_encoder):
    text, _ = make_text("xx", 6, 0)
    encoders = {"en": tiny_encoder, "xx": tiny_encoder}
    method = KeyPointAlignment(towards="en")
    with pytest.raises(SettingError, match="must have one corpus, got two for xx-en"):
        method.align(encoders, [text, text])
    with pytest.raises(SettingError, match="the corpus is in .* and .*, not in 'de'"):
        KeyPointAlignment(towards="de").align(encoders, text)
    empty = ParallelCorpus.of([["a"], []], [[], ["b"]], ("xx", "en"))
    with pytest.raises(
        SettingError,
        match="of 2 pairs for xx-en, 2 have a side without word vectors, and 0 are too long",
    ):
        method.align(encoders, empty)


def test_invalid_settings_are_rejected():
    for settings, message in (
        (
            {"epochs": (1, 1)},
            "epochs must be 5 numbers .transform, encoder, pivot's encoder, refinement, heads., "
            "got",
        ),
        ({"epochs": (0, 1, 1, 1, 1)}, "the first and the last number of epochs must be above 0"),
        ({"beta": -1}, "beta must be at least 0"),
        ({"held_out": 1}, "held_out must be at least 0 and below 1"),
    ):
        with pytest.raises(SettingError, match=message):
            KeyPointAlignment(towards="en", **settings)
