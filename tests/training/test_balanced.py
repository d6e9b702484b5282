"""Batches in which origins have shares of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calque.alignment.contrastive import Contrastive
from calque.errors import SettingError
from calque.text import ParallelCorpus
from calque.training.plan import BalancedPlan, quotas
from linked_text import make_text


def literal_quotas(sizes, batch, alpha):
    """Groups in proportion to n^alpha; whoever has too few gives all, and the others share the rest, until all fit."""
    full: dict[int, float] = {}
    while True:
        rest = batch - sum(full.values())
        others = [k for k in range(len(sizes)) if k not in full]
        weight = sum(sizes[k] ** alpha for k in others)
        wanted = {k: rest * sizes[k] ** alpha / weight for k in others}
        if not (over := [k for k in others if wanted[k] >= sizes[k]]):
            return [full.get(k, wanted.get(k)) for k in range(len(sizes))]
        full |= {k: sizes[k] for k in over}


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sizes", [(50, 30, 20), (200, 3, 9, 40), (90, 10)])
def test_groups_have_their_shares_and_no_pair_comes_before_its_turn(sizes, alpha):
    batch = 16
    expected = literal_quotas(sizes, batch, alpha)
    np.testing.assert_allclose(quotas(np.array(sizes), batch, alpha), expected)
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    plan = BalancedPlan([groups], batch=batch, alpha=alpha, seed=1)
    for number in range(2):
        updates = plan.epoch(number)
        assert len(updates) == plan.steps_per_epoch == -(-sum(sizes) // batch)
        drawn = np.zeros(len(sizes))
        for step, (pairs,) in enumerate(updates, start=1):
            assert len(pairs) == len(set(pairs.tolist())) == batch
            drawn += np.bincount(groups[pairs], minlength=len(sizes))
            assert np.abs(drawn - step * np.array(expected)).max() <= 1.5
        seen = np.bincount(np.concatenate([pairs for (pairs,) in updates]), minlength=sum(sizes))
        for group in range(len(sizes)):
            assert np.ptp(seen[groups == group]) <= 1
    again = BalancedPlan([groups], batch=batch, alpha=alpha, seed=1).epoch(1)
    assert all((a == b).all() for (a,), (b,) in zip(again, updates, strict=True))


def test_a_text_below_one_batch_gives_all_it_has():
    plan = BalancedPlan([np.repeat([0, 1], [30, 10]), np.array([5, 5, 7])], batch=8, alpha=0.0, seed=0)
    for large, small in plan.epoch(0):
        assert sorted(small) == [0, 1, 2]
        assert np.bincount(plan_groups(large)).tolist() == [4, 4]


def plan_groups(pairs):
    return np.repeat([0, 1], [30, 10])[pairs]


def test_training_goes_by_the_third_column(tiny_encoder, tmp_path):
    corpus, pairs = make_text("xx", 12, 0)
    named = ParallelCorpus(corpus.table.append_column("column_3", [["news"] * 10 + ["po", " "]]), corpus.langs)
    tuner = Contrastive(towards="en", batch=3, balance_origins=0, epochs=1)
    text = tuner.text(tiny_encoder, [named], [pairs])
    for (batch,) in tuner.plan(text, 0).epoch(0):
        assert sorted(text.origins[0][batch].tolist()) == sorted(set(text.origins[0].tolist()))
    tuner.tune(tiny_encoder, named, pairs, folder=tmp_path, checkpoint_every=2)
    assert len(tuner.history) == 4
    assert json.loads(json.dumps(tuner.settings()))["balance_origins"] == 0
    other = ParallelCorpus(corpus.table.append_column("column_3", [["news"] * 6 + ["po"] * 6]), corpus.langs)
    assert tuner.text(tiny_encoder, [other], [pairs]).fingerprint != text.fingerprint
    with pytest.raises(SettingError, match="xx-en: no third column.* so it has no origins to balance"):
        tuner.tune(tiny_encoder, corpus, pairs)
    for settings, said in (({"window": 2}, "leave one out"), ({"balance_origins": 2}, "balance_origins must be")):
        with pytest.raises(SettingError, match=said):
            Contrastive(**{"towards": "en", "balance_origins": 0.5, **settings})
