"""Tests of `calque try`: the comparisons, the answer in one sentence, and the saved encoder."""

import json

import numpy as np
import pytest
from transformers import AutoModel

from calque.encoders import load_encoder
from calque.runs import trial
from calque.runs.compare import estimate, over_tests, over_trainings, p_value
from calque.runs.trial.verdict import Comparison, Gain, Verdict, compared, judge
from calque.tasks.reporting import NOT_CONVERGED
from command import fails, works
from planted import tagged, write_tags, write_translations

pytestmark = [
    pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning"),
    pytest.mark.filterwarnings("ignore::calque.errors.CalqueWarning"),
]
TEXTS = 200


def record(method, lang, value, *, seed=None, runs=(), task="pos", metric="accuracy", **settings):
    """Return a score of a study with resamples that are the same for all methods."""
    noise = np.random.default_rng(len(lang) + sum(map(ord, lang))).standard_normal(300) * 0.01
    return {
        "task": task,
        "data": f"{lang}.tsv",
        "languages": ["en", lang],
        "metric": metric,
        "method": method,
        "training_seed": seed,
        "value": value,
        "low": value - 0.02,
        "high": value + 0.02,
        "n": 1000,
        "texts": TEXTS,
        "runs": list(runs),
        "resamples": (value + noise).tolist(),
        "settings": {"warnings": [], **settings},
    }


def scores(gains, *, task="pos", spread=0.002, metric="accuracy", warnings=()):
    """Return the scores of a published encoder with three heads, and of three encoders aligned with
    gains by language.
    """
    records = []
    for lang, gain in gains.items():
        heads = [0.6 - spread, 0.6, 0.6 + spread]
        more = {"task": task, "metric": metric, "warnings": list(warnings)}
        records.append(record("base", lang, 0.6, runs=heads, **more))
        for seed, shift in enumerate((-spread, 0, spread)):
            value = 0.6 + gain + shift
            records.append(record("contrastive", lang, value, seed=seed, runs=[value], **more))
    return records


def answer(records, targets=("de", "tr")):
    return judge(compared(records, "en", targets), "part-of-speech tagging", "en")


def test_gains_are_those_of_the_formulas():
    records = scores({"de": 0.05, "tr": 0.07, "en": 0.01})
    (comparison,) = compared(records, "en", ("de", "tr"))
    assert comparison.mean.value == pytest.approx(0.06)
    assert comparison.by_language["tr"].value == pytest.approx(0.07)
    assert comparison.source.value == pytest.approx(0.01)
    assert (comparison.base, comparison.aligned) == pytest.approx((0.6, 0.66))

    def figure(method, lang):
        own = [r for r in records if r["method"] == method and r["languages"][-1] == lang]
        return over_trainings([estimate(r) for r in own], [r["training_seed"] for r in own])

    of_method = {
        method: over_tests([figure(method, lang) for lang in ("de", "tr")])
        for method in ("base", "contrastive")
    }
    assert p_value(of_method["contrastive"], of_method["base"]) < 0.05  # only one mean is tested
    assert comparison.mean.outcome == "better"
    assert comparison.mean.low < 0.06 < comparison.mean.high


def test_a_clear_gain_is_shipped():
    verdict = answer(scores({"de": 0.05, "tr": 0.07, "en": 0.01}))
    assert verdict.method == "contrastive"
    (sentence,) = verdict.sentences
    assert sentence.startswith("Ship it: +6.0 on part-of-speech tagging (mean of de, tr; 95% ")
    assert sentence.endswith(", en +1.0.")


def test_losses_are_named_with_their_sizes():
    verdict = answer(scores({"de": -0.028, "tr": -0.063, "en": 0.0}))
    assert verdict.method is None
    assert verdict.sentences == (
        "Don't: scores on part-of-speech tagging fall by 2.8 to 6.3 points (de, tr); keep the "
        "published encoder.",
    )


def test_a_clear_loss_in_one_language_is_a_reason_not_to_ship():
    verdict = answer(scores({"de": 0.12, "tr": -0.06}))
    assert verdict.method is None
    assert "fall by 6.0 points (tr)" in verdict.sentences[0]


def test_without_a_clear_difference_the_published_encoder_is_kept():
    verdict = answer(scores({"de": 0.002, "tr": -0.001}, spread=0.02))
    assert verdict.method is None
    assert verdict.sentences[0].startswith(
        "Don't: no gain on part-of-speech tagging can be shown (mean of de, tr: +0.1"
    ) or verdict.sentences[0].startswith(
        "Don't: no gain on part-of-speech tagging can be shown (mean of de, tr: +0.0"
    )


def test_lower_error_rates_are_gains():
    verdict = answer(scores({"de": -0.05, "tr": -0.07}, metric="aer"))
    assert verdict.method == "contrastive"
    assert verdict.sentences[0].startswith("Ship it: +6.0 on ")
    mixed = scores({"de": -0.01, "tr": -0.02}, task="pos, mixed", metric="aer")
    verdict = answer([*scores({"de": -0.05, "tr": -0.07}, metric="aer"), *mixed])
    assert verdict.sentences[-1].startswith("The best score, 54.0, is that of contrastive, used as")


@pytest.mark.parametrize("change", ["not converged", "one run"])
def test_scores_that_cannot_be_compared_give_no_verdict(change):
    if change == "one run":
        records = [r for r in scores({"de": 0.2, "tr": 0.2}) if r["training_seed"] in (None, 0)]
        expected = "there are too few training runs"
    else:
        records = scores({"de": 0.2, "tr": 0.2}, warnings=[NOT_CONVERGED])
        expected = NOT_CONVERGED
    verdict = answer(records)
    assert verdict.method is None
    assert verdict.sentences[0].startswith(f"No verdict on part-of-speech tagging: {expected}")


def test_both_uses_are_judged():
    gains, none = {"de": 0.05, "tr": 0.07}, {"de": 0.001, "tr": 0.0}
    frozen, tuned = scores(gains), scores(none, task="pos, tuned")
    verdict = answer([*frozen, *tuned])
    assert verdict.method == "contrastive"
    assert verdict.sentences[0].startswith("Ship it (as a frozen encoder): +6.0 on ")
    assert verdict.sentences[1].startswith(
        "As an encoder that is trained on the task: no clear difference, +0."
    )
    assert verdict.sentences[2].startswith("The best score, 66.0, is that of contrastive, used")
    # A loss in one use is a reason not to ship.
    tuned = scores({"de": -0.05, "tr": -0.07}, task="pos, tuned")
    verdict = answer([*frozen, *tuned])
    assert verdict.method is None
    assert verdict.sentences[0].startswith("Don't: scores on part-of-speech tagging fall by 5.0")


def test_the_best_score_may_be_that_of_the_published_encoder_in_another_use():
    frozen = scores({"de": 0.05, "tr": 0.07})
    mixed = scores({"de": 0.001, "tr": 0.0}, task="pos, mixed")
    mixed = [
        {**r, "value": r["value"] + 0.2, "runs": [run + 0.2 for run in r["runs"]]} for r in mixed
    ]
    for r in mixed:
        r["resamples"] = [value + 0.2 for value in r["resamples"]]
        if r["method"] == "contrastive":
            r["value"] -= 0.002
    verdict = answer([*frozen, *mixed])
    assert verdict.sentences[0].startswith("Ship it (as a frozen encoder): +6.0 on ")
    assert verdict.sentences[1].startswith("As a frozen encoder whose layers are mixed: no clear")
    assert verdict.sentences[2] == (
        "The best score, 80.0, is that of the published encoder, used as a frozen encoder whose "
        "layers are mixed."
    )


def test_the_better_of_two_methods_is_shipped():
    records = scores({"de": 0.05, "tr": 0.05})
    others = scores({"de": 0.08, "tr": 0.08})
    records += [{**r, "method": "other"} for r in others if r["method"] != "base"]
    assert answer(records).method == "other"


def test_a_decision_needs_a_tested_mean():
    gain = Gain(0.1, 0.0, 0.2, "better")
    comparison = Comparison("frozen", "m", None, {"de": gain}, None, 0.5, 0.6)
    assert comparison.decision == "unknown"


# -- the command -----------------------------------------------------------------------------------
@pytest.fixture
def job(tmp_path, tiny_folder, monkeypatch):
    """Return the arguments of a small trial in the current folder."""
    write_tags(tagged(40, "en"), tmp_path / "ner.train.en.tsv")
    for lang in ("en", "de"):
        write_tags(tagged(12, lang, 1), tmp_path / f"ner.test.{lang}.tsv")
    write_translations(tmp_path / "text.en-de.tsv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "_LONGER", (1,))
    return [
        "try",
        tiny_folder,
        *("--pairs", "text.en-de.tsv", "--task", "ner", "--train", "ner.train.en.tsv"),
        *("--test", "ner.test.en.tsv", "ner.test.de.tsv", "--runs", 3, "--out", "shipped"),
        *("--option", "epochs=1", "--option", "batch=16"),
    ]


def changed_job(job, flag, *values):
    """Return the arguments with other values of one option."""
    at = job.index(flag) + 1
    end = next(k for k in range(at, len(job)) if str(job[k]).startswith("--"))
    return [*job[:at], *values, *job[end:]]


def test_the_command_prints_the_answer_and_resumes(job, capsys, tmp_path):
    out, err = works(capsys, *job)
    folder = tmp_path / "shipped-trial"
    verdict = json.loads((folder / "verdict.json").read_text())
    assert out.splitlines() == verdict["sentences"]
    assert "3 training runs, compared as frozen, mixed, tuned: about 1 minute on this" in err
    names = {path.name for path in folder.iterdir() if not path.name.startswith("reading-")}
    assert names == {
        "study.toml",
        "study",
        "results.jsonl",
        "verdict.json",
        "report.html",
    }
    records = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {record["task"] for record in records} == {"ner", "ner, mixed", "ner, tuned"}
    page = (folder / "report.html").read_text()
    assert page.index("answer") < page.index("<svg") < page.index('<table id="ner-0"')
    # The second time, no step is left to do.
    again, err = works(capsys, *job, "--overwrite")
    assert again == out
    assert [line.split()[1] for line in err.splitlines() if "steps to do" in line] == ["0"] * 3
    assert "0 steps" not in again


def test_the_encoder_of_the_first_run_is_shipped_with_its_scores(
    job, capsys, tmp_path, monkeypatch
):
    """Save the encoder as if it were better: the tiny encoder gains nothing."""

    def ship(comparisons, title, source):
        return Verdict("contrastive", ("Ship it.",), tuple(comparisons))

    monkeypatch.setattr(trial, "judge", ship)
    works(capsys, *job, "--uses", "frozen")
    shipped = load_encoder("shipped")
    sentences = [["the", "a"], ["der"]]
    places = list((tmp_path / "shipped-trial" / "study" / "steps").glob("align-*"))
    steps = {place: json.loads((place / "done.json").read_text()) for place in places}
    seeds = {step["settings"]["options"]["seed"]: place for place, step in steps.items()}
    assert sorted(seeds) == [0, 1, 2]
    expected = load_encoder(seeds[0]).encode(sentences).data
    np.testing.assert_allclose(shipped.encode(sentences).data, expected, atol=1e-5)
    assert not (tmp_path / "shipped" / "adapter_config.json").exists()
    AutoModel.from_pretrained("shipped")
    run = json.loads((tmp_path / "shipped" / "calque-run.json").read_text())
    assert {tuple(score["languages"]) for score in run["scores"]} == {("en", "en"), ("en", "de")}
    assert "already contains" in fails(capsys, *job)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--pairs", "de-en=text.en-de.tsv"], "the first language must be en"),
        (["--pairs", "text.tsv"], "--pairs"),
        (["--test", "ner.test.en.tsv"], "--test has no text in de"),
        (
            ["--test", "ner.test.de.tsv", "de=ner.test.en.tsv"],
            "--test has several texts in de; give one per language",
        ),
        (["--runs", "3", "--uses", "frosen"], "--uses frosen: expected frozen, mixed, tuned"),
        (["--train", "unnamed.tsv"], "the language is unknown; write, for example, de=unnamed.tsv"),
    ],
)
def test_wrong_inputs_are_refused_before_anything_runs(job, capsys, changed, message, tmp_path):
    job = changed_job(job, *changed)
    assert message in fails(capsys, *job)
    assert not (tmp_path / "shipped-trial").exists()


def test_a_task_without_a_head_is_refused(job, capsys):
    job = [part for part in job if part not in ("--option", "epochs=1", "batch=16")]
    message = fails(capsys, *changed_job(job, "--task", "wsd"))
    assert "--task wsd trains no task head; use calque align and calque evaluate" in message
    assert "no such option" in fails(capsys, *job, "--tune")
