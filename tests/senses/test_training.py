"""Tests of SaELMo and SaBERT: updates against a naive implementation, training with several
processes, and resuming.
"""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import sense_training
from calque.distributed import Processes
from calque.errors import SettingError
from calque.nn.ragged import Ragged
from calque.senses.bidirectional import LOSS_SCALE, WordPrediction
from calque.senses.elmo import BEGIN, END
from calque.senses.masked import MaskedPrediction
from calque.senses.sense_table import SenseTable, nearest
from calque.senses.text import FIRST_WORD, mask
from calque.senses.training import Prediction, Senses, SenseTraining, group
from sense_training import DICTIONARY, KINDS, TRANSLATIONS, model, outcome, tables_of, train
from two_processes import run_two

pytest.importorskip("h5py")
PREDICTION = {"elmo": WordPrediction, "bert": MaskedPrediction}


# -- one update ------------------------------------------------------------------------------------
class Predicted(NamedTuple):
    """Prediction of a word from a state; for each table, `own` contains the state that selects the
    word's sense.
    """

    side: int
    state: Tensor
    own: dict[int, Tensor]
    word: str
    lang: str


def elmo_predictions(module, update, mixture, joint: bool) -> list[Predicted]:
    """Return the predictions of each sentence by itself, computed from the network's layers."""
    found, names = [], ["<begin>", "<end>", "<unknown>", *module.vocabulary.words]
    for lang, numbers in update:
        blocks = mixture.languages[lang]
        for k in numbers:
            ids = blocks.ids[blocks.offsets[k] : blocks.offsets[k + 1]].tolist()
            words = [names[i] for i in ids[1:-1]]
            assert ids == [BEGIN, *module.vocabulary.numbers(words).tolist(), END]
            rows = torch.from_numpy(module.rows(words))
            left, right = module.network.read(
                module.network.words(rows[[0, *range(FIRST_WORD, FIRST_WORD + len(words)), 1]]),
                Ragged([len(ids)]),
            )
            for t in range(1, len(ids)):
                for side, state, place in ((0, left[-1][t - 1], t), (1, right[-1][t], t - 1)):
                    own = {0: left[-1][place].detach(), 1: right[-1][place].detach()}
                    own = own if joint else {side: own[side]}
                    found.append(Predicted(side, state, own, names[ids[place]], lang))
    return found


def bert_predictions(module, update, objective, tokenizer) -> list[Predicted]:
    """Return the predictions of the masked subwords, computed with the full BERT model."""
    ids, _ = objective.blocks(update)
    special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
    rng = np.random.default_rng(
        int(torch.randint(1 << 62, (1,), generator=torch.Generator().manual_seed(77)))
    )
    read, chosen = mask(
        ids, special, mask_id=tokenizer.mask_token_id, vocabulary=len(tokenizer), share=0.3, rng=rng
    )
    languages = [lang for lang, numbers in update for _ in numbers]
    states = module["transform"](
        module["model"](
            input_ids=torch.from_numpy(read.astype(np.int64)),
            attention_mask=torch.from_numpy((read != tokenizer.pad_token_id).astype(np.int64)),
        ).last_hidden_state
    ).flatten(0, 1)
    subwords, width = tokenizer.convert_ids_to_tokens(ids.flatten().tolist()), ids.shape[1]
    found = []
    for place in chosen.tolist():
        alone = not subwords[place].startswith("##") and not subwords[place + 1].startswith("##")
        word = subwords[place] if alone else f"part {subwords[place]}"
        found.append(
            Predicted(
                0, states[place], {0: states[place].detach()}, word, languages[place // width]
            )
        )
    return found


def literal_update(
    tables, predictions: list[Predicted], numbers: dict[str, int]
) -> tuple[Tensor, list[list[int]]]:
    """Return the loss of Eq. 7 with a softmax over all active senses, and the senses selected in
    each direction.
    """
    translations: dict[tuple[str, str], list[str]] = {}
    for english, german in TRANSLATIONS:
        # Words of several subwords have no translations.
        if english not in numbers or german not in numbers:
            continue
        translations.setdefault(("en", english), []).append(german)
        translations.setdefault(("de", german), []).append(english)
    total, chosen = torch.zeros(()), [[] for _ in tables]

    def nearest(own: dict[int, Tensor], words: list[str]) -> int:
        among = [numbers[word.removeprefix("part ")] for word in words]
        possible = [
            c
            for word in among
            for c in tables[0].index[word].tolist()
            if c >= 0 and tables[0].live[c]
        ]
        similarity = torch.zeros(len(possible))
        for side, state in own.items():
            table = tables[side]
            centres = (table.centres[possible] - table.mean) @ table.projection
            similarity += torch.cosine_similarity(
                ((state - table.mean) @ table.projection)[None], centres
            )
        return possible[int(similarity.argmax())]

    for side, state, own, word, lang in predictions:
        table = tables[side]
        live = table.live.nonzero().flatten()
        shares = (state @ table.weight[live].t() + table.bias[live]).log_softmax(0)
        selected = nearest(own, [word])
        chosen[side].append(selected)
        loss = -shares[live == selected].sum()
        several = translations.get((lang, word), [])
        if several:
            loss = (loss - shares[live == nearest(own, several)].sum()) / 2
        total = total + loss
    return total, chosen


@pytest.mark.parametrize(("kind", "joint"), [("elmo", False), ("elmo", True), ("bert", True)])
def test_an_update_equals_a_naive_implementation(kind, joint, monkeypatch):
    """Compare the last of eleven updates on text in two languages."""
    method, kept = model(kind, {} if joint else {"start": "fresh"}, updates=11), {}
    backward = PREDICTION[kind].backward

    def spy(self: Prediction, update):
        kept["n"] = kept.get("n", 0) + 1
        if kept["n"] < 11:
            return backward(self, update)
        assert self.training is not None
        used = torch.rand(len(self.training.tables[0])) < 0.7
        # Put centres among the states, so each word selects several senses.
        for table in self.training.tables:
            table.centres.copy_(table.queue[torch.randint(len(table.queue), (len(table),))])
            table.live[:] = used
            table.live[table.index[:, 0]] = True
        kept.update(before=copy.deepcopy(self.module), update=update, objective=self)
        torch.manual_seed(77)
        kept["loss"] = backward(self, update)["loss"]
        kept["gradients"] = {
            n: None if p.grad is None else p.grad.clone() for n, p in self.module.named_parameters()
        }
        return {"loss": kept["loss"]}

    monkeypatch.setattr(PREDICTION[kind], "backward", spy)
    trained = train(method)
    encoder: Any = trained.encoder
    before, objective = kept["before"], kept["objective"]
    if kind == "elmo":
        predictions = elmo_predictions(before, kept["update"], objective.mixture, joint)
        numbers = {
            name: k
            for k, name in enumerate(["<begin>", "<end>", "<unknown>", *before.vocabulary.words])
        }
        tables, scale = list(before.head.tables), LOSS_SCALE
    else:
        predictions = bert_predictions(before, kept["update"], objective, encoder.tokenizer)
        numbers, tables, scale = encoder.tokenizer.get_vocab(), list(before["senses"].tables), 1.0
    total, chosen = literal_update(tables, predictions, numbers)
    loss = total / len(predictions)
    assert kept["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert {p.lang for p in predictions} == {"en", "de"}
    # Some of the predicted words have translations.
    assert not {("en", "bank"), ("de", "die")}.isdisjoint((p.lang, p.word) for p in predictions)
    several = [
        table.words[torch.tensor(chosen[side]).unique()].unique(return_counts=True)[1]
        for side, table in enumerate(tables)
    ]
    # Several senses of the same word were selected.
    assert max(int(counts.max()) for counts in several) > 1

    named = dict(before.named_parameters())
    expected = torch.autograd.grad(
        scale * loss, list(named.values()), allow_unused=True, materialize_grads=True
    )
    largest = max(float(g.abs().max()) for g in expected)
    for (name, _), theirs in zip(named.items(), expected, strict=True):
        ours = (
            torch.zeros_like(theirs) if kept["gradients"][name] is None else kept["gradients"][name]
        )
        torch.testing.assert_close(
            ours, theirs, rtol=1e-3, atol=1e-5 * largest, msg=lambda m, name=name: f"{name} {m}"
        )

    for side, (old, new) in enumerate(zip(tables, tables_of(trained), strict=True)):
        states = torch.stack([p.own[p.side] for p in predictions if p.side == side])
        centres, counts = old.centres.clone(), old.counts.clone()
        for c in set(chosen[side]):
            members = states[torch.tensor(chosen[side]) == c]
            centres[c] = 0.9 * centres[c] + 0.1 * members.mean(0)
            counts[c] += len(members)
        torch.testing.assert_close(new.centres, centres, rtol=1e-4, atol=1e-5)
        assert new.counts.tolist() == counts.tolist()
        # The queue is in text order.
        last = (int(old.seen) + np.arange(len(states))) % len(old.queue)
        last = last[-len(old.queue) :]
        torch.testing.assert_close(new.queue[last], states[-len(last) :], rtol=1e-4, atol=1e-5)


# -- several processes and resuming ----------------------------------------------------------------
def assert_alike(one: dict[str, Any], other: dict[str, Any], atol: float) -> None:
    """Compare two training runs whose sums are computed in different orders."""
    assert other["losses"] == pytest.approx(one["losses"], rel=1e-4)
    for a, b in zip(one["tables"], other["tables"], strict=True):
        for name in ("counts", "live", "seen"):
            assert torch.equal(a[name], b[name]), name
        for name in ("weight", "bias", "centres", "queue", "mean"):
            torch.testing.assert_close(
                b[name], a[name], rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
            )
        # Independent of the signs of the axes.
        planes = [x["projection"] @ x["projection"].T for x in (a, b)]
        torch.testing.assert_close(planes[1], planes[0], rtol=0, atol=10 * atol)
    for name, weight in one["model"].items():
        if not name.startswith("head.") and "key.bias" not in name:  # key biases differ by rounding
            torch.testing.assert_close(
                other["model"][name], weight, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """Return the results of training in a single process with one thread."""
    found = {}
    for kind in KINDS:
        found[kind] = outcome(train(model(kind)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_runs_include_all_phases(alone, kind):
    for table in alone[kind]["tables"]:
        assert int(table["counts"].sum()) > 0
        # First senses of 18 words; all others are further senses.
        firsts = 18 if kind == "elmo" else 0
        assert firsts < int(table["live"].sum()) < len(table["live"])
        assert int(table["seen"]) > len(table["queue"])


def test_two_processes_give_the_results_of_one_process(alone, tmp_path):
    run_two(str(Path(sense_training.__file__)), str(tmp_path))
    for kind in KINDS:
        assert_alike(alone[kind], torch.load(tmp_path / f"{kind}.pt", weights_only=True), 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_stopped_several_times_gives_the_same_result(
    alone, kind, tmp_path, monkeypatch
):
    """Stop around the end of the warm-up (update 3 or 6) and around pruning (updates 4 and 8)."""

    class Stopped(Exception):
        pass

    after, calls = SenseTraining.after_update, []

    def stop(self, step):
        if step in stops:
            stops.remove(step)
            raise Stopped
        after(self, step)
        calls.append(step)

    stops = [2, 3, 4, 6, 7, 8, 9]
    monkeypatch.setattr(SenseTraining, "after_update", stop)
    while stops:
        with pytest.raises(Stopped):
            train(model(kind), folder=tmp_path / "run", checkpoint_every=1)
    trained = train(model(kind), folder=tmp_path / "run", checkpoint_every=1)
    assert calls == list(range(1, 11))
    found, whole = outcome(trained), alone[kind]
    assert found["losses"] == whole["losses"]
    for one, other in zip(
        [found["model"], *found["tables"]], [whole["model"], *whole["tables"]], strict=True
    ):
        assert all(torch.equal(one[name], value) for name, value in other.items())
    shorter = replace(DICTIONARY, source=DICTIONARY.source[:-1], target=DICTIONARY.target[:-1])
    with pytest.raises(SettingError, match="other settings or data: translations: "):
        train(model(kind), dictionaries=[shorter], folder=tmp_path / "run")


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_without_text_is_allowed(kind, monkeypatch):
    monkeypatch.setattr(Processes, "share", lambda self, items: items[:0])
    trained = train(model(kind, updates=7))
    assert [line["loss"] for line in trained.history] == [0] * 7
    for table in tables_of(trained):
        assert int(table.seen) == 0
        assert table.live[table.index[:, 0]].all()
        # The warm-up ends, but there are no states to group.
        assert table.live.all() == (kind == "bert")


# -- settings --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_training_does_not_change_the_settings(kind):
    method = model(kind, updates=7)
    before = copy.deepcopy(vars(method))
    first = train(method)
    assert vars(method) == before
    assert first.settings == method.settings()
    assert outcome(train(method))["losses"] == [line["loss"] for line in first.history]
    with pytest.raises(FrozenInstanceError):
        method.updates = 8  # type: ignore[misc]


def test_the_number_of_senses_of_a_word_depends_on_its_frequency():
    counts = np.array([0, 4, 5, 9, 10, 14, 15, 16, 1000])
    for expected, given in [
        ([1, 1, 1, 1, 2, 2, 3, 3, 3], {"occurrences": 5}),
        ([1, *[3] * 8], {"occurrences": 0}),
        ([1, 1, 1, 1, 3, 3, 4, 4, 4], {"occurrences": 5, "start": "fresh"}),
    ]:
        assert (Senses(senses=3, **given).tables(counts, 20)[0].index >= 0).sum(
            1
        ).tolist() == expected
    for expected, given, updates in [
        (300, {}, 600),
        (60, {"start": "kept"}, 600),
        (1, {"start": "kept"}, 6),
        (20_000, {"start": "fresh"}, 1_000_000),
    ]:
        assert Senses(**given).warmup_of(updates) == expected


def test_invalid_settings_are_rejected():
    for message, bad in {
        "senses must be at least 2, got 1": {"senses": 1},
        "rate": {"rate": np.nan},
        "below": {"below": 1},
        "start must be grouped, kept or fresh, got 'cold'": {"start": "cold"},
        "warmup must be at least 1 with start=grouped": {"warmup": 0},
    }.items():
        with pytest.raises(SettingError, match=message):
            Senses(**bad)


# -- how many senses a word has --------------------------------------------------------------------
DIM, N_WORDS, DOUBLE = 12, 80, 4  # the first four words have two planted senses each


def planted(seed: int = 0, n: int = 8000) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return states `[n, 2, DIM]`, words and senses; the first state predicts the word, and the
    second also encodes it.

    The last word is too rare to be clustered.
    """
    rng = np.random.default_rng(seed)
    words = rng.integers(0, N_WORDS - 1, n)
    words[np.linspace(0, n - 1, 19).astype(int)] = N_WORDS - 1
    truth = np.where(words < DOUBLE, rng.integers(0, 2, n), 0)
    context = 3 * rng.normal(size=(N_WORDS, 2, DIM))[words, truth] + rng.normal(size=(n, DIM)) + 5
    own = context + 20 * rng.normal(size=(N_WORDS, DIM))[words]
    states = torch.from_numpy(np.stack([context, own], axis=1)).float()
    return states, torch.from_numpy(words), torch.from_numpy(truth)


def table_of(states: torch.Tensor, words: torch.Tensor) -> SenseTable:
    torch.manual_seed(0)
    table = SenseTable([3] * N_WORDS, DIM, axes=6, queue=50, recent=60, states_per_use=2)
    for part, of_part in zip(states.split(700), words.split(700), strict=True):
        table.remember(part[:, -1])
        table.keep_recent(part, of_part)
    table.project(centred=True)
    return table


def test_the_latest_states_of_every_word_are_stored():
    states, words, _ = planted()
    table = table_of(states, words)
    for word in range(N_WORDS):
        own = states[words == word]
        assert int(table.n_recent[word]) == len(own)
        slots = [k % 60 for k in range(max(0, len(own) - 60), len(own))]
        assert torch.equal(table.recent[word, slots], own[-60:])
    few = words < 6
    assert int(group([table_of(states[few], words[few])], seed=0).sum()) == N_WORDS
    # No states are stored for a word with one sense.
    one = SenseTable([1, 2], DIM, axes=4, queue=9, recent=60)
    one.keep_recent(states[:5, :1], torch.tensor([0, 1, 0, 0, -1]))
    assert one.recent.shape[0] == 1
    assert one.n_recent.tolist() == [1]


def test_words_with_two_senses_are_found_by_the_states_that_predict_them():
    """Check that each word's latest states are clustered; the queue has only 50 states."""
    states, words, truth = planted()
    table = table_of(states, words)
    live = group([table], seed=0)
    found = [int(live[row[row >= 0]].sum()) for row in table.index]
    assert found[:DOUBLE] == [2] * DOUBLE
    assert found[DOUBLE:] == [1] * (N_WORDS - DOUBLE)
    table.open(start="copied", live=live)
    agreeing = []
    for word in range(DOUBLE):
        own = words == word
        classes = nearest([table.compare(states[own, -1], words[own, None])])
        alike = float((classes == table.index[word, truth[own]]).float().mean())
        agreeing.append(max(alike, 1 - alike))
    assert np.mean(agreeing) > 0.9
