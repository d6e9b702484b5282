"""Advice against least squares, and in a world in which what is right is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from calque.algebra.student import quantile
from calque.analyses.advice import LEVEL, Advice, Cell, Forecast, LeftOut, Question, leave_out
from calque.analyses.quick import LINKED, SAMPLE, measured, sample_first
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from planted import Planted
from planted_gains import TASKS, gain, planted_cells

FEATURES = ("pairs", "form", "probe", "gradient")


@pytest.fixture(scope="module")
def cells():
    return planted_cells(amounts=(500, 5000))


@pytest.fixture(scope="module")
def advice(cells):
    return Advice(cells, FEATURES)


def question(task="pos", lang="xx", form=0.3, pairs=2000.0, **more):
    own = {"pairs": pairs, "form": form, "probe": 0.97, "gradient": TASKS.get(task, 0) / 50, **more}
    return Question("mini", lang, task, {name: value for name, value in own.items() if value is not None})


def test_a_forecast_is_that_of_least_squares_with_a_row_for_each_coefficient(cells, advice):
    """Columns written out one by one; the variances are those that were found."""
    found, measured = advice._fitted, {name: [] for name in FEATURES}
    for cell in cells:
        about = cell.about
        task = [c.about.features["gradient"] for c in cells if c.about.task == about.task]
        lang = [c.about.features for c in cells if c.about.lang == about.lang]
        measured["pairs"].append(math.log10(about.features["pairs"]))
        measured["gradient"].append(np.mean(task))
        for name in ("form", "probe"):
            measured[name].append(np.mean([features[name] for features in lang]))
    levels = [(group, level) for group in ("encoder", "language", "task", "task in a language")
              for level in dict.fromkeys(c.about.levels[group] for c in cells)]  # fmt: skip
    groups = ["features"] * 3 + ["gradient"] + [group for group, _ in levels] + ["features of a task"] * 3 * len(TASKS)

    def row(about, values):
        x = [(values[name] - np.mean(measured[name])) / np.std(measured[name]) for name in FEATURES]
        own = [float(about.levels[group] == level) for group, level in levels]
        return [1.0, *x, *own, *(value * (about.task == task) for task in TASKS for value in x[:3])]

    z = np.array([row(c.about, {name: measured[name][k] for name in FEATURES}) for k, c in enumerate(cells)])
    weights = np.array([(found.noise + c.error**2) ** -0.5 for c in cells])
    penalties = np.diag([0.0, *(found.variances[group] ** -0.5 for group in groups)])
    gains = np.concatenate([weights * [c.gain for c in cells], np.zeros(len(penalties))])
    w = np.linalg.lstsq(np.concatenate([weights[:, None] * z, penalties]), gains, rcond=None)[0]
    for cell in cells:  # asked with what was measured there and then, not with the means
        values = {**cell.about.features, "pairs": math.log10(cell.about.features["pairs"])}
        assert advice.ask(cell.about).gain == pytest.approx(np.dot(row(cell.about, values), w), abs=1e-8)


def test_what_is_known_is_told_and_what_is_not_is_not(advice):
    for task, own in TASKS.items():
        forecast = advice.ask(question(task, lang="de"))
        low, high = forecast.interval()
        assert abs(forecast.gain - gain(own, 0.3, 2000)) < 1.5
        assert low < gain(own, 0.3, 2000) < high
        if abs(own) > 4:
            assert forecast.outcome == ("align" if own > 0 else "do not align")
    known, new = advice.ask(question(lang="de")), advice.ask(question(lang="xx"))
    other = advice.ask(replace(question(), encoder="another"))
    assert known.error < new.error < other.error
    assert new.error < advice.ask(replace(question(), task="chunking")).error
    half = quantile(LEVEL, 6) * new.error
    assert new.interval() == pytest.approx((new.gain - half, new.gain + half))


def test_both_sides_of_zero_and_too_far_away(advice):
    assert Forecast(1.0, 2.0, 6).outcome == "do not know"
    assert Forecast(-9.0, 2.0, 6).outcome == "do not align"
    far = advice.ask(question(pairs=100_000.0))
    assert far.outcome == "do not know"
    assert far.doubts == ("sentence pairs, 100,000, is far outside of what the fit has seen, 500 to 5,000",)
    assert not advice.ask(question(pairs=10_000.0)).doubts  # a little further than the text that it saw


def test_a_task_never_seen_needs_its_gradient(cells, advice):
    assert advice.ask(question("chunking", gradient=0.22)).outcome == "align"
    without = Advice(cells, ("pairs", "form", "probe")).ask(question("chunking", gradient=None))
    assert without.outcome == "do not know"
    assert without.doubts[0].startswith("the fit has not seen chunking, only pos, slots")


def test_gradients_that_few_cells_have_do_not_cost_the_others(cells):
    bare = [
        Cell(replace(c.about, features={k: v for k, v in c.about.features.items() if k != "gradient"}), c.gain, c.error)
        for c in cells
    ]
    assert "gradient" not in Advice([*bare, *cells[:3]], FEATURES).features
    assert "gradient" in Advice([*bare, *cells], FEATURES).features
    with pytest.raises(SettingError, match=r"98 cells with these measurements, of 1 × language"):
        Advice([replace(c, about=replace(c.about, lang="de")) for c in bare], ("pairs",))


def test_left_out_languages_and_tasks_have_the_right_signs(cells):
    by_language = leave_out(cells, "language").summary()
    assert by_language["cells"] == len(cells)
    assert by_language["signs"] > 0.9
    assert by_language["signs_told"] > 0.95
    assert by_language["within"] > 0.9
    assert by_language["mean_error"] < 1.5 < 4 < by_language["guess"]
    assert by_language["covered"] > 0.7
    by_task = leave_out(cells, "task").summary()  # by the cosine alone
    assert by_task["signs"] > 0.9
    assert by_task["signs_told"] > 0.95
    assert by_task["mean_error"] < 1.5


def test_a_summary_counts_one_by_one():
    def found(gain, forecast, error=1.0, doubts=()):
        return Cell(question(), gain, 0.0), Forecast(forecast, error, math.inf, doubts)

    summary = LeftOut([found(10, 6), found(-1, 2), found(2, 2, 9), found(-5, -4), found(3, 3, 0.1, ("no",))]).summary()
    assert summary["signs"] == 4 / 5
    assert summary["signs_told"] == 2 / 3  # not of the third, on both sides of zero, nor the fifth
    assert summary["unknown"] == 2 / 5
    assert summary["mean_error"] == pytest.approx((4 + 3 + 0 + 1 + 0) / 5)
    assert summary["within"] == 4 / 5
    assert summary["covered"] == 3 / 5
    assert LeftOut().summary()["signs"] is None


# -- what is measured --------------------------------------------------------------------------------------------------
def test_the_sample_is_of_the_whole_text():
    n = 2 * LINKED
    text = [[] if k % 5 == 0 else [f"w{k}"] for k in range(n)]
    sample = sample_first(ParallelCorpus.of(text, text, ("en", "de")))
    assert len(sample) == LINKED
    numbers = [int(sentence.words[0][1:]) for sentence in sample.source]
    assert len(set(numbers)) == LINKED
    assert numbers[:SAMPLE] == sorted(numbers[:SAMPLE])
    assert numbers[0] == 1
    assert np.diff(numbers[:SAMPLE]).max() < n / SAMPLE + 4
    assert numbers[SAMPLE:] == sorted(numbers[SAMPLE:])


def test_an_encoder_that_is_aligned_already_measures_as_such():
    rng = np.random.default_rng(0)
    numbers = [rng.integers(1000, 1030, 6).tolist() for _ in range(60)]
    corpus = ParallelCorpus.of(
        [[f"e{k}" for k in row] for row in numbers], [[f"d{k}" for k in row] for row in numbers], ("en", "de")
    )
    pairs = WordPairs.of([[(k, k) for k in range(6)] for _ in numbers])
    found = {apart: measured(Planted(apart=apart), corpus, pairs) for apart in (False, True)}
    assert set(found[False]) == {"accuracy", "form", "consistency.source", "consistency.target", "isometry", "probe"}
    assert found[False]["form"] == found[False]["isometry"] == pytest.approx(1)
    assert found[True]["form"] < 0.3
    assert found[True]["isometry"] < 0.3
    for values in found.values():
        assert values["consistency.source"] == values["consistency.target"] == 1
        assert values["accuracy"] < 0.5  # of equal vectors the first
