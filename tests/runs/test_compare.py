"""Tests of score comparisons: intervals over runs and texts, paired tests, and their error
rates.
"""

import functools
import json
import math

import numpy as np
import pytest

from calque.algebra import student
from calque.errors import InputError
from calque.report.questions import find_subjects, sort_questions
from calque.report.reading import Record, Results, read_results
from calque.report.verdict import claim
from calque.runs import compare
from calque.tasks import Score
from calque.tasks.bootstrap import KEPT, Measured, measure, ratio


def accuracy(sums):
    return ratio(sums[..., 0], sums[..., 1])


def of_answers(right: np.ndarray, *, samples: int = KEPT) -> tuple[Measured, list[float]]:
    """Return the measured accuracy and the accuracy of each run; `right` marks the correct answers,
    `[texts, runs]`.
    """
    runs = [float(own.mean()) for own in right.T]
    sums = np.stack([right.mean(axis=1), np.ones(len(right))], axis=1)
    return measure(sums, accuracy, samples=samples), runs


def record(right: np.ndarray, *, metric: str = "accuracy", lang: str = "de") -> dict:
    """Return the accuracy of the answers `right` as a parsed line of a result file."""
    measured, runs = of_answers(right)
    several = tuple(runs) if len(runs) > 1 else ()
    score = measured.over_runs(several).score(
        task="nli",
        data="test",
        languages=("en", lang),
        metric=metric,
        n=measured.texts,
        seed=0,
        settings={},
        runs=several,
    )
    return json.loads(score.to_json())


def test_variances_and_degrees_of_freedom_are_summed():
    assert student.total([(2.0, 4), (2.0, 4)]) == pytest.approx((4.0, 8.0))
    assert student.total([(2.0, 4), (0.0, 1)]) == pytest.approx((2.0, 4.0))
    assert student.total([]) == (0, math.inf)
    assert student.half_width((0.0, 1), (0.0, 1)) == 0
    assert student.half_width((0.0, 1), (4.0, math.inf)) == pytest.approx(2 * 1.959964)
    expected = (1 * student.quantile(0.95, 2) + 3 * student.quantile(0.95, 399)) / 4 * 2
    assert student.half_width((1.0, 2), (3.0, 399)) == pytest.approx(expected)


def test_resamples_of_two_methods_contain_the_same_texts():
    rng = np.random.default_rng(0)
    right = (rng.random((80, 1)) < 0.5).astype(float)
    one, other = (
        measure(np.hstack([each, np.ones((80, 1))]), accuracy) for each in (right, 1 - right)
    )
    assert np.array(one.resamples) + np.array(other.resamples) == pytest.approx(1.0, abs=2e-5)
    assert (len(one.resamples), one.texts) == (KEPT, 80)
    drawn = np.random.default_rng(5)
    unrelated = [
        measure(np.stack([drawn.random(80), np.ones(80)], axis=1), accuracy).resamples
        for _ in range(60)
    ]
    common = [np.corrcoef(a, b)[0, 1] for a, b in zip(unrelated[::2], unrelated[1::2], strict=True)]
    assert abs(np.mean(common)) < 0.06  # scores of unrelated texts are uncorrelated on average


def test_resamples_equal_a_loop_over_texts():
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


def test_records_contain_runs_and_resamples_and_old_records_can_be_read():
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
    assert compare.estimate({**old, "low": -1e300, "high": 1e300}) is None


N = 500  # number of texts in a test set


def trained(rng, chance: np.ndarray, sd: float, *, up: float = 0.0) -> np.ndarray:
    """Draw which answers of three training runs are correct, `[texts, 3]`; `sd` is the standard
    deviation of their accuracies.
    """
    return (
        rng.random((len(chance), 3)) < np.clip(chance + up + rng.normal(0, sd, 3), 0, 1)
    ).astype(float)


def estimated(right: np.ndarray) -> compare.Estimate:
    """Return the same estimate as for `record(right)`, without building the record."""
    counts = _drawing(len(right))
    runs, drawn = tuple(map(float, right.mean(axis=0))), counts @ right.mean(axis=1)
    of_texts = student.over_resamples(drawn, len(right))
    return compare.Estimate(
        float(right.mean()), runs, student.over_runs(runs), of_texts, drawn, len(right)
    )


@functools.cache
def _drawing(n: int) -> np.ndarray:
    """Return the count of each text in each resample, divided by n; a statistic that stores its
    input gives the counts.
    """
    seen: list[np.ndarray] = []

    def keep(sums: np.ndarray) -> np.ndarray:
        seen.append(sums)
        return sums[..., 0]

    measure(np.eye(n), keep, samples=KEPT)
    return np.concatenate([sums for sums in seen if sums.ndim == 2]) / n


def texts(rng) -> np.ndarray:
    """Draw the probability of a correct answer for each text, `[texts, 1]`; some texts are easier
    than others.
    """
    return 0.5 + rng.normal(0, 0.3, (N, 1))


def test_estimated_equals_the_estimate_of_a_record():
    right = trained(np.random.default_rng(0), texts(np.random.default_rng(1)), 0.02)
    one, other = estimated(right), compare.estimate(record(right))
    assert (one.value, *one.runs, *one.of_runs) == pytest.approx(
        (other.value, *other.runs, *other.of_runs)
    )
    assert one.of_texts == pytest.approx(other.of_texts, rel=1e-3)
    assert one.resamples == pytest.approx(other.resamples, rel=1e-4)


def said_of(rng, chance: np.ndarray, runs: tuple[int, int], up: float = 0.0) -> set[str]:
    """Return the outcomes of comparing two methods; the true score of the second method is higher
    by `up`.

    Scores have a standard deviation of three points between alignments, and of one point between
    heads on one encoder.
    """
    lines = []
    for name, number in zip(("one", "two"), runs, strict=True):
        for seed in range(number):
            shifted = chance + rng.normal(0, 0.03) + up * (name == "two")
            lines.append(
                record(trained(rng, shifted, 0.01)) | {"method": name, "training_seed": seed}
            )
    results = Results(tuple(Record(f"r:{k}", line) for k, line in enumerate(lines)), {})
    subjects = find_subjects(results)
    claims = claim(sort_questions(results.records, subjects)[0], subjects)
    return {
        outcome
        for (comparison,) in claims.comparisons.values()
        for outcome in comparison.outcomes.values()
    }


@pytest.mark.parametrize(
    ("runs", "pairs", "most"), [((1, 1), 20, 0), ((1, 3), 20, 0), ((3, 3), 150, 13)]
)
def test_heads_on_one_alignment_are_not_counted_as_runs(runs, pairs, most):
    """Up to 13 of 150 pairs (5% plus two standard errors) may differ significantly; if heads
    counted as runs, 20% would.
    """
    rng = np.random.default_rng(9)
    assert sum(said_of(rng, texts(rng), runs) != {"unclear"} for _ in range(pairs)) <= most


def test_a_large_effect_is_detected():
    rng = np.random.default_rng(10)
    assert sum(said_of(rng, texts(rng), (5, 5), up=0.2) == {"better"} for _ in range(20)) >= 18


@pytest.mark.parametrize("sd", [0.0, 0.03])
@pytest.mark.parametrize("translated", [False, True])
def test_reports_on_equal_methods_rarely_claim_a_difference(sd, translated):
    """Compare four identical methods in seven languages and on average.

    All languages share the training runs; in translated test sets, easy texts are easy in every
    language.
    """
    rng, wrong, means, pages = np.random.default_rng(2), 0, 0, 100
    for _ in range(pages):
        same = texts(rng)
        chances = [same if translated else texts(rng) for _ in range(7)]
        found = []
        for _ in range(4):
            shift = rng.normal(0, sd, 3)
            found.append(
                [estimated(trained(rng, chance + 0.7 * shift, 0.7 * sd)) for chance in chances]
            )
        found = [
            [*own, compare.over_tests(own)] for own in found
        ]  # the last score is the mean over languages
        p = {
            (k, lang): compare.p_value(found[k][lang], found[0][lang])
            for k in (1, 2, 3)
            for lang in range(8)
        }
        means += sum(p[k, 7] < compare.LEVEL for k in (1, 2, 3))
        wrong += min(compare.holm(p).values()) < compare.LEVEL
    assert wrong <= 0.05 * pages
    assert means <= 0.05 * 3 * pages


@pytest.mark.parametrize("sd", [0.0, 0.03])
def test_intervals_over_runs_and_texts_cover_the_true_score(sd):
    """Check that the interval contains the true score in about 95% of 400 experiments."""
    rng, held = np.random.default_rng(int(1000 * sd)), 0
    for _ in range(400):
        low, high = estimated(trained(rng, texts(rng), sd)).interval
        held += low <= 0.5 <= high
    assert held >= 0.93 * 400


def test_the_error_of_a_mean_over_translations_includes_shared_texts():
    """If easy texts are shared, the mean has nearly the standard error of a single language."""
    rng = np.random.default_rng(3)
    chance = np.clip(0.5 + rng.normal(0, 0.6, (N, 1)), 0, 1)
    right = [(rng.random((N, 1)) < chance).astype(float) for _ in range(7)]
    whole = [estimated(own) for own in right]
    mean = compare.over_tests(whole)
    mean_of_texts = np.hstack(right).mean(axis=1)
    drawn = [mean_of_texts[rng.integers(0, N, N)].mean() for _ in range(2000)]
    assert math.sqrt(mean.of_texts[0]) == pytest.approx(np.std(drawn), rel=0.1)
    apart = (
        math.sqrt(sum(each.of_texts[0] for each in whole)) / 7
    )  # the standard error if the texts were unrelated
    assert math.sqrt(mean.of_texts[0]) > 1.5 * apart


def test_the_p_value_equals_a_direct_calculation():
    """Compute Welch's variance of runs, and the variance of paired differences of resamples."""
    rng = np.random.default_rng(5)
    chance = texts(rng)
    one, other = record(trained(rng, chance, 0.02, up=0.12)), record(trained(rng, chance, 0.02))
    gap = one["value"] - other["value"]
    parts = [(np.var(each["runs"], ddof=1) / 3, 2) for each in (one, other)]
    parts.append(
        (np.var(np.array(one["resamples"]) - np.array(other["resamples"]), ddof=1), KEPT - 1)
    )
    of_runs, of_texts = parts[0][0] + parts[1][0], parts[2][0]
    df = of_runs**2 / sum(part**2 / own for part, own in parts[:2])
    p = compare.p_value(compare.estimate(one), compare.estimate(other))
    threshold = of_runs * student.quantile(1 - p, df) + of_texts * student.quantile(1 - p, KEPT - 1)
    threshold /= of_runs + of_texts
    assert 1e-4 < p < 0.05
    assert threshold == pytest.approx(abs(gap) / math.sqrt(of_runs + of_texts), rel=1e-4)


def test_a_difference_on_three_texts_is_not_significant():
    few, many = (estimated(np.ones((n, 1))) for n in (3, 60))
    none_of_few, none_of_many = (estimated(np.zeros((n, 1))) for n in (3, 60))
    assert compare.p_value(few, none_of_few) > 0.05
    assert compare.p_value(many, none_of_many) < 1e-6
    assert compare.p_value(few, few) == 1


def test_the_holm_correction_equals_a_calculation_by_hand():
    assert compare.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    weighted = compare.holm({"a": 0.02, "b": 0.012, "c": 0.6}, {"a": 0.5, "b": 0.25, "c": 0.25})
    # Tests are sorted by p / weight: a gives 0.02 · 1 / 0.5 = 0.04, b gives 0.012 · 0.5 / 0.25 but
    # at least 0.04, c gives 0.6.
    assert weighted == pytest.approx({"a": 0.04, "b": 0.04, "c": 0.6})
    assert compare.holm({}) == {}


# -- checks of result files ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resamples", "text"),
        ("resamples", [0.5, "0.5"]),
        ("resamples", {"a": 1}),
        ("runs", [[1]]),
        ("runs", 3),
        ("texts", "7"),
        ("settings", []),
        ("settings", {"aligned": "x"}),
        ("languages", [1]),
        ("value", "0.5"),
        ("value", True),
        ("task", 3),
    ],
)
def test_a_line_with_a_value_of_the_wrong_type_is_an_error(tmp_path, key, value):
    line = Score(
        "retrieval", "t", ("en", "de"), "accuracy", 0.5, 0.4, 0.6, 9, 0, resamples=(0.4, 0.6)
    ).to_dict()
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps(line) + "\n")
    compare.check_results(path)
    assert len(read_results([path]).records) == 1
    path.write_text(json.dumps(line | {key: value}) + "\n")
    with pytest.raises(InputError, match=r"scores\.jsonl.* line 1: .*must be"):
        read_results([path])
    with pytest.raises(InputError, match=r"calque did not write this file \(line 1: .*must be"):
        compare.check_results(path)
