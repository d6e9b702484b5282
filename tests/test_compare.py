"""What may be said of two figures: intervals over runs and texts, paired tests, and how often they are wrong."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calque.algebra import student
from calque.runs import compare
from calque.tasks import Score
from calque.tasks.bootstrap import KEPT, Measured, measure, ratio


def accuracy(sums):
    return ratio(sums[..., 0], sums[..., 1])


def of_answers(right: np.ndarray, *, samples: int = KEPT) -> tuple[Measured, list[float]]:
    """What a task measures: right answers `[texts, runs]`, a question a text."""
    runs = [float(own.mean()) for own in right.T]
    sums = np.stack([right.mean(axis=1), np.ones(len(right))], axis=1)
    return measure(sums, accuracy, samples=samples), runs


def record(right: np.ndarray, *, metric: str = "accuracy", lang: str = "de") -> dict:
    """The same as a line of a result file."""
    measured, runs = of_answers(right)
    several = tuple(runs) if len(runs) > 1 else ()
    score = Score("nli", "test", ("en", lang), metric, *measured.over_runs(several), measured.texts, 0, {}, runs=several,
                  **measured.kept)  # fmt: skip
    return json.loads(score.to_json())


# -- Student's t -----------------------------------------------------------------------------------------------------------
def test_tails_and_quantiles_are_those_of_tables():
    # Two-sided quantiles as statistical tables print them.
    for level, df, expected in (
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 4, 2.776),
        (0.99, 10, 3.169),
        (0.999, 30, 3.646),
    ):
        assert student.quantile(level, df) == pytest.approx(expected, abs=6e-4)
        assert student.tail(student.quantile(level, df), df) == pytest.approx(1 - level, rel=1e-9)
    assert student.quantile(0.95, math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert student.tail(-3.0, 1) == pytest.approx(2 * (0.5 - math.atan(3) / math.pi), rel=1e-12)  # Cauchy
    assert student.tail(2.0, 2) == pytest.approx(1 - 2 / math.sqrt(2 + 4), rel=1e-12)
    assert student.tail(0.0, 3) == 1


def test_degrees_of_freedom_of_a_sum():
    assert student.total([(2.0, 4), (2.0, 4)]) == pytest.approx((4.0, 8.0))
    assert student.total([(2.0, 4), (0.0, 1)]) == pytest.approx((2.0, 4.0))
    assert student.total([]) == (0, math.inf)
    assert student.half_width([(0.0, 1)]) == 0


# -- what a record holds ----------------------------------------------------------------------------------------------------
def test_resample_b_of_two_methods_has_the_same_texts():
    rng = np.random.default_rng(0)
    right = (rng.random((80, 1)) < 0.5).astype(float)
    one, other = (
        measure(np.hstack([right, np.ones((80, 1))]), accuracy),
        measure(np.hstack([1 - right, np.ones((80, 1))]), accuracy),
    )
    assert np.array(one.resamples) + np.array(other.resamples) == pytest.approx(1.0, abs=2e-5)
    assert (len(one.resamples), one.texts) == (KEPT, 80)
    drawn = np.random.default_rng(5)
    unrelated = [measure(np.stack([drawn.random(80), np.ones(80)], axis=1), accuracy).resamples for _ in range(60)]
    common = [np.corrcoef(a, b)[0, 1] for a, b in zip(unrelated[::2], unrelated[1::2], strict=True)]
    assert abs(np.mean(common)) < 0.06  # texts that have nothing in common: no harm on average


def test_the_resamples_are_those_of_a_loop_over_texts():
    rng = np.random.default_rng(1)
    right, questions = rng.integers(0, 3, 60), rng.integers(3, 6, 60)
    measured = measure(np.stack([right, questions], axis=1), accuracy, samples=2000)
    loop = []
    for _ in range(2000):
        chosen = rng.integers(0, 60, 60)
        loop.append(right[chosen].sum() / questions[chosen].sum())
    assert np.std(measured.resamples) == pytest.approx(np.std(loop), rel=0.12)
    assert measured.value == right.sum() / questions.sum()
    assert measured.ends[1:] == pytest.approx(np.quantile(loop, [0.025, 0.975]), abs=0.006)


def test_a_record_keeps_its_runs_and_resamples_and_an_old_one_is_read():
    rng = np.random.default_rng(2)
    line = record((rng.random((300, 3)) < 0.5).astype(float))
    assert len(line["runs"]) == 3
    assert (len(line["resamples"]), line["texts"]) == (KEPT, 300)
    assert line["value"] == pytest.approx(np.mean(line["runs"]))
    assert all(float(f"{each:.5g}") == each for each in line["resamples"])
    bare = Score("retrieval", "t", ("en", "de"), "accuracy.all", 0.5, 0.4, 0.6, 10, 0)
    assert not {"runs", "resamples", "texts"} & bare.to_dict().keys()
    old = {**bare.to_dict(), "settings": {"values": [0.4, 0.5, 0.6]}}
    known = compare.estimate(old)
    assert known.runs == (0.4, 0.5, 0.6)
    assert known.of_texts[0] == pytest.approx((0.2 / 2 / 1.959964) ** 2, rel=1e-6)
    assert compare.estimate({**old, "value": None}) is None
    assert compare.estimate({**old, "low": None, "high": None}) is None


def test_an_interval_over_three_runs_is_as_wide_as_three_runs_allow():
    """Mean ± t(df)·√(s²/n + texts), by hand."""
    rng = np.random.default_rng(3)
    right = (rng.random((500, 3)) < np.array([0.45, 0.5, 0.55])).astype(float)
    measured, runs = of_answers(right)
    value, low, high = measured.over_runs(runs)
    of_runs, of_texts = np.var(runs, ddof=1) / 3, np.var(measured.resamples, ddof=1)
    df = (of_runs + of_texts) ** 2 / (of_runs**2 / 2 + of_texts**2 / 399)
    half = student.quantile(0.95, df) * math.sqrt(of_runs + of_texts)
    assert (value - low, high - value) == pytest.approx((half, half), rel=1e-6)
    assert half > 1.5 * (measured.high - measured.low) / 2
    assert measured.over_runs(runs[:1]) == measured.ends  # one run: texts only


@pytest.mark.parametrize("sd", [0.0, 0.01, 0.03])
def test_an_interval_over_runs_and_texts_holds_the_truth(sd):
    """Of 400 experiments with three runs and 300 texts, about 95 in 100 have the true figure in their interval."""
    rng = np.random.default_rng(int(1000 * sd))
    held = 0
    for _ in range(400):
        easy = rng.normal(0, 0.2, (300, 1))
        chance = np.clip(0.5 + easy + rng.normal(0, sd, 3), 0, 1)
        measured, runs = of_answers((rng.random((300, 3)) < chance).astype(float))
        _, low, high = measured.over_runs(runs)
        held += low <= 0.5 <= high
    assert held >= 0.93 * 400
