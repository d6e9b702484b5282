"""Tests of the report: reading results, claims, and the source given for each number."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest

from calque.algebra.student import quantile
from calque.annotated import Dictionary
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.report import report
from calque.report.content import compose
from calque.report.questions import common_name, find_subjects, sort_questions
from calque.report.reading import Record, Results, read_results, short_names
from calque.tasks import SentenceRetrieval, WordAlignment, WordRetrieval
from calque.tasks.consistency import Consistency
from calque.tasks.lexicon import Lexicon
from calque.text import ParallelCorpus
from command import fails, works
from html_page import Page
from planted import Planted, jobs, words
from report_results import HOSTILE, analyses, hostile_lines, line, run_record, study, write


def parallel(n: int = 12) -> ParallelCorpus:
    """Return sentences in the languages of `Planted`, with words that occur several times."""
    text = words(np.random.default_rng(0), n, "en", 2, 6, vocabulary=8)
    target = [[f"d{word[1:]}" for word in sentence] for sentence in text]
    return ParallelCorpus.of(text, target, ("en", "de"))


def links() -> WordPairs:
    return WordPairs.of([[(k, k) for k in range(len(source))] for source, _ in parallel()])


#: tasks that train a task head, and functions that build the others
TRAINED = ("ner", "slots", "pos", "sentiment", "nli", "parsing", "probing", "qa")
UNTRAINED = {
    "retrieval": lambda: WordRetrieval(parallel(), links(), train=parallel(4), bootstrap=2),
    "sentences": lambda: SentenceRetrieval(parallel(), dev=parallel(6), bootstrap=2),
    "word-alignment": lambda: WordAlignment(parallel(), links(), bootstrap=2),
    "consistency": lambda: Consistency(parallel().source, letters=1, bootstrap=2),
    "lexicon": lambda: Lexicon(
        Dictionary(("e1", "e2", "e3"), ("d1", "d2", "d3"), ("en", "de")),
        texts=dict(en=parallel().source, de=parallel().target),
    ),
}


# -- expected numbers, computed naively ------------------------------------------------------------
class Lines:
    """Lines of result files, keyed by `FILE:LINE`, and the outcome of each line on the page."""

    def __init__(self, *paths: Path, page: Page | None = None):
        self.found: dict = {}
        self.signs = {} if page is None else signs_of(page)
        for path in paths:
            for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                if text:
                    place = f"{path.parent.name}/{path.name}:{number}".replace(" ", "%20")
                    self.found[place] = json.loads(text)

    def part(self, token: str, name: str):
        """Return a value of one line, or the mean value of several lines whose keys are joined by
        +.
        """
        values = []
        for place in token.split("+"):
            plain = self.found[place]
            values.append(plain["settings"]["sd"] if name == "sd" else plain[name])
        return sum(values) / len(values)

    def number(self, kind: str, source: str) -> float:
        kind, _, name = kind.partition(".")
        groups = [group.split() for group in source.split(" | ")]
        first = groups[0]
        if kind == "line":
            assert len(first) == 1
            assert "+" not in first[0]
            return self.part(first[0], name)
        if kind == "average":
            values = [self.part(place, "value") for place in first[0].split("+")]
            middle, n = sum(values) / len(values), len(values)
            sd = math.sqrt(sum((value - middle) ** 2 for value in values) / (n - 1))
            if name in ("low", "high"):
                width = (
                    sum(
                        self.part(place, "high") - self.part(place, "low")
                        for place in first[0].split("+")
                    )
                    / n
                )
                parts = (
                    sd**2 / n,
                    (width / 3.91993) ** 2,
                )  # variance over runs and variance over texts
                reach = (parts[0] * quantile(0.95, n - 1) + parts[1] * 1.959964) / sum(parts)
                half = reach * math.sqrt(sum(parts))
                return middle + half if name == "high" else middle - half
            return sd if name == "sd" else self.part(first[0], name)
        if kind == "mean":
            values = [self.part(token, "value") for token in first]
            middle = sum(values) / len(values)
            if name == "value":
                return middle
            halves = [
                self.part(token, name) - value for token, value in zip(first, values, strict=True)
            ]
            half = math.sqrt(sum(half**2 for half in halves)) / len(halves)
            return middle + half if name == "high" else middle - half
        if kind == "difference":
            one, other = (
                sum(self.part(token, "value") for token in group) / len(group) for group in groups
            )
            return one - other
        if kind in ("better", "worse", "unclear", "compared"):
            pairs = list(zip(*groups, strict=True))
            return (
                len(pairs)
                if kind == "compared"
                else sum(self.signs[one] == kind for one, _ in pairs)
            )
        assert kind == "pearson", kind
        x, y = ([self.part(token, "value") for token in group] for group in groups)
        mx, my = sum(x) / len(x), sum(y) / len(y)
        r = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / math.sqrt(
            sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y)
        )
        step = {"value": 0, "low": -1.959963985, "high": 1.959963985}[name] / math.sqrt(len(x) - 3)
        return math.tanh(math.atanh(r) + step)

    def percent(self, source: str) -> bool:
        return self.found[re.split(r"[ +|]", source)[0]].get("percent", True)


def signs_of(page: Page) -> dict[str, str]:
    """Return the outcome that the tables of a page show for each line: better, worse or unclear."""
    signs, sources = {}, {}
    for element in page.find("span"):
        above = {each["tag"]: each for each in element["above"]}
        if (
            not re.fullmatch(
                r"[a-z-]+-\d+", above.get("table", {"attrs": {}})["attrs"].get("id", "")
            )
            or "td" not in above
        ):
            continue
        classes = element["attrs"].get("class", "").split()
        for name, outcome in (("up", "better"), ("down", "worse")):
            if name in classes:
                signs[id(above["td"])] = outcome
        if "fig" in classes:
            sources[element["attrs"]["data-source"]] = id(above["td"])
    return {source: signs.get(cell, "unclear") for source, cell in sources.items()}


def read_number(shown: str) -> tuple[float, int]:
    """Return the number in a text, and how many decimals it has."""
    text = shown.replace("−", "-").replace(",", "").replace("±", "").replace("+", "")
    return float(text), len(text.partition(".")[2])


def check_number(lines: Lines, shown: str, kind: str, source: str) -> None:
    expected = lines.number(kind, source)
    whole = kind.endswith(".n") or kind in ("better", "worse", "unclear", "compared")
    scale = 100 if lines.percent(source) and not whole and not kind.startswith("pearson") else 1
    value, digits = read_number(shown)
    assert abs(value - scale * expected) <= 0.5001 * 10**-digits, (shown, expected, kind, source)


def source_of(element: dict) -> str:
    return next(
        e["attrs"]["data-source"]
        for e in [element, *reversed(element["above"])]
        if "data-source" in e["attrs"]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "my study"
    write(folder / "results.jsonl", study())
    write(folder / "analyses.jsonl", analyses())
    (folder / "contrastive").mkdir()
    (folder / "contrastive" / "calque-run.json").write_text(json.dumps(run_record()))
    (folder / "training").mkdir()
    (folder / "training" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    (folder / "losses.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    return folder


@pytest.fixture(scope="module")
def built(folder) -> str:
    """Build a page with eight languages, five methods, five tasks, three seeds and analyses in at
    most ten seconds.
    """
    began = time.process_time()
    report([folder], out=folder / "out" / "report.html")
    assert time.process_time() - began < 10
    return (folder / "out" / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(built) -> Page:
    return Page(built)


# -- the page --------------------------------------------------------------------------------------
def test_each_number_equals_the_number_in_its_result_line(page, folder):
    lines = Lines(folder / "results.jsonl", folder / "analyses.jsonl", page=page)
    kinds: dict[str, int] = {}
    for element in page.find("data"):
        kind = element["attrs"]["data-kind"]
        check_number(lines, element["text"], kind, source_of(element))
        assert math.isclose(
            float(element["attrs"]["value"]),
            lines.number(kind, source_of(element)),
            rel_tol=1e-5,
            abs_tol=1e-9,
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    with pytest.raises(AssertionError):  # check that a wrong number would be detected
        check_number(lines, "101.0", kind, source_of(element))
    assert kinds["line.value"] > 1000
    for kind in (
        "line.low",
        "line.n",
        "line.sd",
        "mean.high",
        "difference.value",
        "better",
        "compared",
        "pearson.low",
    ):
        assert kinds[kind] > 0, kind


def test_tooltips_of_plots_show_the_scores_of_the_marks(page, folder):
    lines = Lines(folder / "results.jsonl", folder / "analyses.jsonl")
    marks = [element for element in page.find("g") if element["attrs"].get("class") == "mark"]
    assert len(marks) > 500
    seen = set()
    for mark in marks:
        source = mark["attrs"]["data-source"]
        tip = mark["text"]
        if "▲" in tip or "▼" in tip or "→" in tip:  # a heat map, whose cells show the difference
            shown = re.search(r"[+−±][\d,.]+$", tip)
            assert shown is not None
            check_number(lines, shown[0], "difference.value", source)
            seen.add("heat")
        elif " | " in source:  # a scatter plot, whose points have their own scores
            found = re.findall(r"(−?[\d.,]+) \((−?[\d.,]+) to (−?[\d.,]+)\)", tip)
            assert len(found) == 2
            for shown, part in zip(found, source.split(" | "), strict=True):
                for number, name in zip(shown, ("value", "low", "high"), strict=True):
                    check_number(lines, number, f"line.{name}", part)
            seen.add("scatter")
        else:
            kind = "mean" if len(source.split()) > 1 else "line"
            found = re.search(r": (−?[\d.,]+)(?: \((−?[\d.,]+) to (−?[\d.,]+)\))?$", tip)
            assert found is not None, tip
            for number, name in zip(found.groups(), ("value", "low", "high"), strict=True):
                if number is not None:
                    check_number(lines, number, f"{kind}.{name}", source)
            seen.add(kind)
    assert seen == {"heat", "scatter", "mean", "line"}


def test_every_score_on_the_page_has_a_source(page):
    """Digits without a source are allowed only in names, ticks, headings, users' text and
    provenance.
    """

    free = {
        "script",
        "style",
        "title",
        "desc",
        "th",
        "caption",
        "h1",
        "h3",
        "h4",
        "summary",
        "dt",
        "dd",
        "q",
        "pre",
        "nav",
        "header",
    }

    loose = []
    for above, text in page.texts:
        if not re.search(r"\d", re.sub(r"\bF1\b", "", text)):
            continue
        if any("data-source" in e["attrs"] or e["tag"] in free for e in above):
            continue
        classes = {name for e in above for name in (e["attrs"].get("class") or "").split()}
        ids = {e["attrs"].get("id") for e in above}
        if classes & {"tick", "title", "name", "label", "sr", "occurrence"} or ids & {
            "reading",
            "provenance",
        }:
            continue
        if above[-1]["tag"] == "td" and "lang" in above[-1]["attrs"]:
            continue
        loose.append(" ".join(text.split()))
    assert loose == []


def test_the_page_is_a_single_self_contained_file(built, page):
    assert len(built.encode()) < 5_000_000
    for element in page.elements:
        for name in ("src", "href", "data-src", "srcset", "action", "xlink:href"):
            target = element["attrs"].get(name)
            assert target is None or target.startswith(("#", "data:")), element
        assert not [name for name in element["attrs"] if name.startswith("on") or name == "style"]
    (policy,) = [e["attrs"]["content"] for e in page.find("meta") if "http-equiv" in e["attrs"]]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"@import|url\(", built.partition("<body>")[0])


def test_ids_are_unique_and_every_plot_has_a_table_of_its_scores(page):
    ids = [e["attrs"]["id"] for e in page.elements if "id" in e["attrs"]]
    assert len(ids) == len(set(ids))
    assert len([e for e in page.find("svg") if e["attrs"].get("role") == "img"]) > 30
    for figure in page.find("figure"):
        assert any(e["tag"] == "details" and figure in e["above"] for e in page.elements), figure[
            "attrs"
        ]["id"]


# -- the verdict -----------------------------------------------------------------------------------
def verdict_of(lines, tmp_path, **options) -> list[str]:
    """Return the sentences of the verdict in the report."""
    path = write(tmp_path / "study" / "results.jsonl", lines)

    def words(piece) -> str:
        return piece if isinstance(piece, str) else getattr(piece, "label", None) or piece.shown

    return [
        "".join(map(words, text))
        for text in compose(read_results([path]), title="x", **options).summary
    ]


def two(
    task: str, metric: str, values: dict[str, tuple[float, float]], half: float = 0.02
) -> list[dict]:
    """Return result lines of the methods `base` and `new` in each language."""
    return [
        line(task, ("en", lang), metric, pair[k], half, settings={"encoder": method}, method=method)
        for lang, pair in values.items()
        for k, method in enumerate(("base", "new"))
    ]


def test_every_lower_score_is_listed(tmp_path):
    """Include significant and insignificant decreases, in single languages and on average, for
    every main metric.
    """
    lines = two("ner", "f1", {"en": (0.8, 0.6), "de": (0.2, 0.5), "fr": (0.2, 0.195)})
    lines += two(
        "nli", "accuracy", {"en": (0.7, 0.69), "de": (0.5, 0.45), "fr": (0.5, 0.45)}, half=0.03
    )
    lines += two("retrieval", "accuracy.unseen", {"de": (0.1, 0.4), "fr": (0.1, 0.4)})
    lines += two("retrieval", "accuracy.all", {"de": (0.3, 0.2), "fr": (0.3, 0.3)})
    lines += two("word-alignment", "aer", {"de": (0.3, 0.31), "fr": (0.3, 0.2)})
    lines += two(
        "word-alignment", "precision", {"de": (0.9, 0.2), "fr": (0.9, 0.2)}
    )  # not a main metric
    summary = verdict_of(lines, tmp_path)
    clear, further, within, compared = summary
    assert compared == (
        "The method is compared with base on named entities, inference, word retrieval and word "
        "alignment. “Clearly” means significantly, in tests over training runs and texts, "
        "corrected for the number of comparisons."
    )
    assert clear == (
        "new raises word retrieval by 30.0 on average (clearly in 2 of 2 languages), raises named "
        "entities by 14.8 on average (clearly in 1 of 2 languages), and lowers the error of word "
        "alignment by 4.5 on average (clearly in 1 of 2 languages), but is clearly worse by 20.0 "
        "in en (the training language) on named entities; 5.0 on average on inference."
    )
    assert further == (
        "new, in further metrics, is clearly worse by 10.0 in de and 5.0 on average on word "
        "retrieval (all linked words)."
    )
    assert within == (
        "new is worse, but not clearly, by 5.0 in de, 5.0 in fr and 1.0 in en (the training "
        "language) on inference; 1.0 in de on word alignment; 0.5 in fr on named entities."
    )


def test_gains_and_losses_are_counted_in_the_same_metrics(tmp_path):
    """A method that gains only in a further metric must not be called nowhere better."""
    lines = two("retrieval", "accuracy.unseen", {"de": (0.1, 0.1), "fr": (0.1, 0.072)}, half=0.01)
    lines += two("retrieval", "form.unseen", {"de": (0.1, 0.51), "fr": (0.1, 0.506)})
    headline, further, _ = verdict_of(lines, tmp_path)
    assert headline == (
        "new is nowhere clearly better than base in the headline metrics and is clearly worse by "
        "2.8 in fr and 1.4 on average on word retrieval."
    )
    assert further == (
        "new, in further metrics, raises word retrieval (by word type, unseen pairs) by 40.8 on "
        "average (clearly in 2 of 2 languages)."
    )


NOT_CONVERGED = "not converged: the best epoch was the last"


def test_scores_of_heads_that_have_not_converged_get_no_verdict(tmp_path):
    lines = two("ner", "f1", {"de": (0.1, 0.3), "fr": (0.1, 0.4)}) + two(
        "pos", "accuracy", {"de": (0.1, 0.3)}
    )
    lines += two("nli", "accuracy", {"de": (0.3, 0.1), "fr": (0.1, 0.3)})
    for each in (
        lines[1],
        lines[3],
        lines[7],
    ):  # both entity scores of `new`, and one inference score
        each["settings"]["warnings"] = [NOT_CONVERGED]
    clear, *_, entities, inference = verdict_of(lines, tmp_path)
    assert clear == (
        "new raises part-of-speech tagging by 20.0 in de, and raises inference by 20.0 in fr; "
        "nothing is clearly worse."
    )
    assert entities == (
        f"No verdict on named entities (F1): {NOT_CONVERGED} (new). Train the task heads for more "
        "epochs."
    )
    assert inference.startswith(
        f"No verdict on inference (accuracy) in some languages: {NOT_CONVERGED} (new)"
    )
    report([tmp_path / "study"], out=tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text())
    shown = [each for each in page.find("small") if each["attrs"].get("class") == "warning"]
    # the two scores and their mean for entities, and one score and the mean for inference
    assert [(each["text"], each["attrs"]["title"]) for each in shown] == [
        ("not converged", NOT_CONVERGED)
    ] * 5
    composed = compose(read_results([tmp_path / "study"]), title="x")
    assert composed.glance.lines[0].cells[0].text == ("not converged",)
    assert not any(
        cell.best or cell.outcome
        for line in composed.sections[0].blocks[0].lines
        for cell in line.cells
    )


def test_heads_of_older_results_that_have_not_converged_are_recognised(tmp_path):
    lines = two("ner", "f1", {"de": (0.1, 0.3)})
    for each, chosen in zip(lines, ([6, 5], [2, 3]), strict=True):
        each["settings"] |= {"features": "frozen", "epochs": 6, "chosen_epochs": chosen}
    (said,) = verdict_of(lines, tmp_path)
    assert said.startswith(f"No verdict on named entities (F1): {NOT_CONVERGED} (base)")
    lines[0]["settings"]["chosen_epochs"] = [5, 5]
    assert verdict_of(lines, tmp_path)[0].startswith("new raises named entities by 20.0 in de")


def test_the_verdict_says_which_number_of_runs_to_increase(tmp_path):
    """Task heads on a base that was not trained, and training runs of a method, are different
    numbers.
    """
    heads = (
        "two task heads per encoder; train five heads (seeds = 5 in a study, --seeds 5 with calque "
        "evaluate)."
    )
    lines = two("ner", "f1", {"de": (0.1, 0.3)})
    for each in lines:
        each["runs"] = [each["value"] - 0.01, each["value"] + 0.01]
    assert (
        verdict_of(lines, tmp_path)[0]
        == f"new: a difference from base cannot be shown with {heads}"
    )
    new = [
        {**lines[1], "training_seed": seed, "settings": {"encoder": f"{seed}"}} for seed in range(3)
    ]
    assert (
        verdict_of([lines[0], *new], tmp_path)[0]
        == f"new: a difference from base cannot be shown with {heads}"
    )
    lines[0]["runs"] = [0.1, 0.1, 0.1]
    assert verdict_of([lines[0], *new[:2]], tmp_path)[0] == (
        "new: a difference from base cannot be shown with two training runs; align with five seeds "
        "(runs = 5 in a study, --seed with calque align)."
    )


def test_outcomes_follow_corrected_tests_instead_of_overlapping_intervals(tmp_path):
    """Compare marks and counts with corrected tests computed in this test."""
    lines = study(
        ("de", "es", "fr"), ("base", "finetune", "contrastive"), ("ner", "nli", "word-alignment")
    )
    path = write(tmp_path / "study" / "results.jsonl", lines)
    report([path], out=tmp_path / "r.html")
    shown, found = signs_of(Page((tmp_path / "r.html").read_text(encoding="utf-8"))), Lines(path)

    def tested(one: list[str], other: list[str]) -> tuple[float, float]:
        gap = sum(
            found.part(a, "value") - found.part(b, "value") for a, b in zip(one, other, strict=True)
        ) / len(one)
        spread = sum(
            ((found.part(each, "high") - found.part(each, "low")) / 3.919928) ** 2
            for each in (*one, *other)
        )
        return gap, math.erfc(abs(gap) / (math.sqrt(spread) / len(one)) / math.sqrt(2))

    rows: dict[tuple, dict] = {}
    for place, each in found.found.items():
        if each["metric"] != "precision":
            rows.setdefault((each["task"], each["languages"][-1]), {})[each["method"]] = place
    means, rest, best = {}, {}, 0
    for task in ("ner", "nli", "word-alignment"):
        best += 1  # one test for the best mean
        for (own, _), row in rows.items():
            if own == task:
                best += 1
                for method in ("finetune", "contrastive"):
                    rest[row[method]] = tested([row[method]], [row["base"]])
        for method in ("finetune", "contrastive"):
            langs = [row for (own, lang), row in rows.items() if own == task and lang != "en"]
            one, other = ([row[name] for row in langs] for name in (method, "base"))
            means[" ".join(one)] = tested(one, other)
    # Holm's correction marks every difference that Bonferroni's would mark, and none with an
    # uncorrected p above 0.05.
    for part, all_of in ((means, len(means)), (rest, len(rest) + best)):
        for place, (gap, p) in part.items():
            up = (gap > 0) != (found.found[place.split()[0]]["metric"] == "aer")
            if 2 * all_of * p < 0.05:
                assert shown[place] == ("better" if up else "worse")
            if p > 0.05:
                assert shown[place] == "unclear"
    assert {"better", "unclear"} <= set(shown.values())


def test_the_base_of_a_comparison_is_recorded_chosen_or_the_first_encoder(tmp_path):
    lines = [
        asked(
            value,
            "retrieval",
            "accuracy.all",
            settings={"encoder": name, "encoder_fingerprint": name},
        )
        for name, value in (("a", 0.2), ("b", 0.5), ("b+rotation", 0.8))
    ]
    summary = verdict_of(lines, tmp_path)
    assert summary[0] == "b raises word retrieval by 30.0 in de; nothing is clearly worse."
    assert summary[1] == "b+rotation raises word retrieval by 30.0 in de; nothing is clearly worse."
    assert summary[2].startswith("Each method is compared with a and b on word retrieval. ")
    assert summary[3] == "No result names the base encoder, so the first encoder is the base: a."
    about = {
        "encoder": "c",
        "encoder_fingerprint": "c",
        "aligned": {"seed": None, "base_fingerprint": "b"},
    }
    summary = verdict_of(
        [asked(0.9, "retrieval", "accuracy.all", settings=about), lines[1]], tmp_path
    )
    assert summary[0] == "c raises word retrieval by 40.0 in de; nothing is clearly worse."
    summary = verdict_of(lines, tmp_path, base="b")
    assert summary[1].startswith(
        "a is nowhere clearly better than b and is clearly worse by 30.0 in de on word retrieval"
    )
    with pytest.raises(SettingError, match="base must be one of a, b, .*, got 'c'"):
        verdict_of(lines, tmp_path, base="c")


def aligned_runs(values, names="aligned-{}", setting="x", **more) -> list[dict]:
    """Return result lines of `calque evaluate` for a base and for encoders whose alignments differ
    only in their seeds.
    """
    about = {"method": "contrastive", "base": "m", "base_fingerprint": "m", "setting": setting}
    lines = [
        asked(0.2, settings={"encoder_fingerprint": "m", "aligned": None}, runs=[0.19, 0.2, 0.21])
    ]
    for seed, value in enumerate(values):
        name = names.format(seed)
        own = {
            "encoder": name,
            "encoder_fingerprint": name + setting,
            "aligned": {**about, "seed": seed},
        }
        lines.append(asked(value, settings=own, runs=[value - 0.01, value + 0.01], **more))
    return lines


def test_encoders_that_differ_only_in_the_seed_of_their_alignment_are_one_method(tmp_path):
    lines = aligned_runs((0.4, 0.5, 0.6))
    (table,) = tables_of(lines, tmp_path)
    assert [(line.label, line.detail) for line in table.lines] == [
        ("m", ""),
        ("aligned", "3 training runs"),
    ]
    figure = table.lines[1].cells[0].figure
    assert (figure.known.trainings, figure.known.runs) == (3, (0.4, 0.5, 0.6))
    assert figure.high - figure.low > 0.4  # Student's t with two degrees of freedom
    assert verdict_of(aligned_runs((0.49, 0.5, 0.51)), tmp_path)[0].startswith(
        "aligned raises named entities by 30.0 in de"
    )
    assert (
        "cannot be shown with two training runs"
        in verdict_of(aligned_runs((0.4, 0.5)), tmp_path)[0]
    )


def test_encoders_with_other_settings_or_a_repeated_seed_stay_apart(tmp_path):
    lines = [
        *aligned_runs((0.4, 0.5)),
        *aligned_runs((0.6, 0.7), names="other-{}", setting="y")[1:],
    ]
    (table,) = tables_of(lines, tmp_path)
    assert [line.label for line in table.lines] == ["m", "aligned", "other"]
    lines[2]["settings"]["aligned"]["seed"] = 0  # the encoder with seed 0 was trained twice
    assert [line.label for line in tables_of(lines, tmp_path)[0].lines] == [
        "m",
        "aligned-0",
        "aligned-1",
        "other",
    ]
    lines = [
        *aligned_runs((0.4, 0.5)),
        *aligned_runs((0.6, 0.7), names="aligned-b{}", setting="y")[1:],
    ]
    assert len(tables_of(lines, tmp_path)[0].lines) == 3


def test_training_runs_are_found_in_the_results_of_several_folders(tmp_path):
    base, *runs = aligned_runs((0.4, 0.5, 0.6))
    for number, run in enumerate(runs):
        write(tmp_path / "apart" / f"{number}" / "results.jsonl", [base, run])
    for name in ("one", "two"):
        write(tmp_path / "repeated" / name / "results.jsonl", [base, *runs])
    for name in ("apart", "repeated"):
        subjects = find_subjects(read_results([tmp_path / name])).all
        assert [(subject.label, subject.runs) for subject in subjects] == [("m", 0), ("aligned", 3)]


def test_training_runs_of_two_settings_with_the_same_names_stay_apart(tmp_path):
    write(tmp_path / "one" / "results.jsonl", aligned_runs((0.4, 0.5), setting="first"))
    write(tmp_path / "two" / "results.jsonl", aligned_runs((0.6, 0.7), setting="second"))
    subjects = find_subjects(read_results([tmp_path])).all
    assert [(subject.label, subject.runs) for subject in subjects] == [
        ("m", 0),
        ("aligned (aligned-0, aligned-1) · first", 2),
        ("aligned (aligned-0, aligned-1) · second", 2),
    ]


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["aligned-seed0", "aligned-seed1"], "aligned"),
        (["out10", "out11"], "out"),
        (["run_0", "run_1"], "run"),
        (["models", "models-1"], "models"),
        (["a", "b"], "a, b"),
    ],
)
def test_training_runs_have_the_common_beginning_of_their_names(names, common):
    assert common_name(names) == common


def test_the_statistical_aligner_is_a_reference_and_not_a_compared_method(tmp_path):
    lines = two("word-alignment", "aer", {"de": (0.6, 0.4), "fr": (0.6, 0.4)})
    lines += [
        line("word-alignment", ("en", lang), "aer", 0.1, 0.01, method="statistical aligner")
        for lang in ("de", "fr")
    ]
    assert not any("statistical" in text for text in verdict_of(lines, tmp_path))
    composed = compose(read_results([tmp_path / "study"]), title="x")
    plot, table = composed.sections[0].blocks
    assert plot.kind == "bars"  # there are too few differences for a heat map
    assert [line.detail for line in table.lines] == ["", "", "no encoder"]


# -- several lines for one test item ---------------------------------------------------------------
def asked(value, task="ner", metric="f1", lang="de", settings=(), **more) -> dict:
    """Return a result line of the encoder `m`."""
    return line(
        task, ("en", lang), metric, value, 0.02, settings={"encoder": "m", **dict(settings)}, **more
    )


def results_of(lines) -> Results:
    """Return lines as if they were read from a file."""
    return Results(
        tuple(Record(f"r.jsonl:{number}", line) for number, line in enumerate(lines, 1)), {}
    )


def tables_of(lines, tmp_path) -> list:
    """Return the tables of a report on a single task."""
    composed = compose(read_results([write(tmp_path / "r.jsonl", lines)]), title="x")
    return [block for block in composed.sections[0].blocks if hasattr(block, "caption")]


def test_models_with_several_seeds_are_averaged(tmp_path):
    lines = [
        asked(value, settings={"encoder_fingerprint": str(k)}, method=method)
        for method, values in (("base", (0.2,)), ("new", (0.4, 0.5, 0.6)))
        for k, value in enumerate(values)
    ]
    path = write(tmp_path / "study" / "results.jsonl", lines)
    report([path], out=tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text())
    found = Lines(path)
    for element in page.find("data"):
        if element["attrs"]["data-kind"] != "average.sd":
            check_number(found, element["text"], element["attrs"]["data-kind"], source_of(element))
    shown = {element["attrs"]["data-kind"]: element["text"] for element in page.find("data")}
    assert (shown["average.value"], shown["average.sd"]) == ("50.0", "10.0")


def test_repeated_and_superseded_lines_are_counted(tmp_path):
    first = line("ner", ("en", "de"), "f1", 0.2, 0.02, settings={"encoder": "m"}, method="base")
    again = {**first, "value": 0.3, "low": 0.28, "high": 0.32}
    path = write(tmp_path / "study" / "results.jsonl", [first, first, again])
    composed = compose(read_results([path]), title="x")
    assert any("1 lines were skipped because they repeat" in note for note in composed.notes)
    assert any("1 lines were replaced" in note for note in composed.notes)
    cell = composed.sections[0].blocks[0].lines[0].cells[0].figure
    assert (cell.value, cell.sources) == (0.3, ("study/results.jsonl:3",))


def test_results_of_two_studies_are_not_mixed(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "results.jsonl", two("ner", "f1", {"de": (0.2, 0.5)}))
    composed = compose(read_results([tmp_path]), title="x")
    assert [subject.label for subject in find_subjects(read_results([tmp_path])).all] == [
        "one · base",
        "one · new",
        "two · base",
        "two · new",
    ]
    assert len(composed.summary) == 2 or "one · new" in str(composed.summary)


#: settings of calque's tasks that define the question, and the headline metric of the task
SETTINGS = {
    "retrieval": (
        "accuracy.unseen",
        "contextual candidates similarity k special links symmetrize train training_sentence_pairs",
    ),
    "sentences": ("accuracy", "sentence_pooling pooled prompt similarity k margin_k dev"),
    "word-alignment": ("aer", "links_from threshold temperature"),
    "lexicon": ("p@1", "similarity k anchors lower entries text text_sentences"),
    "wsd": ("f1", "restrict first_senses train training_words"),
    "consistency": ("same-form", "letters similarity"),
    "ner": (
        "f1",
        "protocol features head hidden layers dropout unknown select epochs batch patience train "
        "train_texts dev",
    ),
    "parsing": ("las", "arc label upos learning_rate warmup decay clip per_epoch text"),
    "probing": ("f1", "probe width"),
    "qa": ("f1", "max_answer"),
    "never-heard-of": ("quality", "centred candidates links share threshold labels train"),
}


@pytest.mark.parametrize("task", SETTINGS)
def test_results_with_different_task_settings_are_kept(tmp_path, task):
    """Check that results are in separate tables, whose captions contain the setting."""
    metric, names = SETTINGS[task]
    for name in names.split():
        settings = [
            {"encoder_fingerprint": "f", name: setting} for setting in ("one way", "another")
        ]
        lines = [
            asked(value, task, metric, settings=s)
            for value, s in zip((0.2, 0.4), settings, strict=True)
        ]
        lines.append(
            {**lines[-1], "value": 0.5, "low": 0.48, "high": 0.52}
        )  # replaces the previous line
        tables = tables_of(lines, tmp_path)
        assert [table.lines[0].cells[0].figure.value for table in tables] == [0.2, 0.5], name
        assert ["one way" in tables[0].caption, "another" in tables[1].caption] == [True, True], (
            name
        )


def values_of(tables) -> list[float]:
    """Return all values in tables, without means."""
    cells = [cell for table in tables for line in table.lines for cell in line.cells]
    return [
        cell.figure.value
        for cell in cells
        if cell.figure is not None and cell.figure.kind == "line"
    ]


def test_a_task_unknown_to_calque_loses_no_line(tmp_path):
    """Two settings and two training texts in two languages, with metrics that calque does not know
    either.
    """
    lines = [
        asked(
            k / 100,
            "weather",
            "skill",
            lang,
            settings={"encoder_fingerprint": "f", "centred": way, "train": [text]},
        )
        for k, (lang, way, text) in enumerate(
            (lang, way, text)
            for lang in ("de", "fr")
            for way in (False, True)
            for text in ("a.en.tsv", "b.en.tsv")
        )
    ]
    composed = compose(read_results([write(tmp_path / "r.jsonl", lines)]), title="x")
    tables = [block for block in composed.sections[0].blocks if hasattr(block, "caption")]
    assert sorted(values_of(tables)) == [k / 100 for k in range(8)]
    assert len({table.caption for table in tables}) == 4
    assert not any("replaced" in note for note in composed.notes)


def test_results_with_and_without_a_setting_are_kept(tmp_path):
    lines = [
        asked(0.2, "weather", "skill", settings={"encoder_fingerprint": "f"}),
        asked(0.4, "weather", "skill", settings={"encoder_fingerprint": "f", "centred": True}),
    ]
    assert values_of(tables_of(lines, tmp_path)) == [0.2, 0.4]
    older = [
        lines[0],
        {
            **lines[1],
            "settings": {**lines[1]["settings"], "encoder_fingerprint": "g", "encoder": "n"},
        },
    ]
    assert len(tables_of(older, tmp_path)) == 1  # a line of an older version may lack settings


def test_settings_that_a_task_declares_as_descriptive_do_not_separate_its_results(tmp_path):
    declared = {
        "descriptive": ["skipped"],
        "main": ["wer"],
        "lower": ["wer"],
        "by_test_set": ["train"],
        "title": "speech",
    }
    lines = [
        asked(
            value,
            "mine",
            "wer",
            lang,
            method=method,
            reporting=declared,
            settings={"skipped": k, "train": [f"{lang}.tsv"]},
        )
        for k, (method, lang, value) in enumerate(
            [("base", "de", 0.6), ("base", "fr", 0.6), ("new", "de", 0.2), ("new", "fr", 0.2)]
        )
    ]
    (table,) = tables_of(lines, tmp_path)
    assert [head.label for head in table.heads] == ["de", "fr", "mean"]
    assert table.caption.startswith("Speech: wer, per cent, lower is better")
    assert verdict_of(lines, tmp_path)[0].startswith(
        "new lowers the error of speech by 40.0 on average"
    )
    lines[0]["reporting"] = {"descriptive": "skipped"}
    with pytest.raises(
        InputError, match="reporting.descriptive must be written by calque, got 'skipped'"
    ):
        tables_of(lines, tmp_path)


def test_a_task_with_a_name_of_its_own_keeps_the_questions_of_its_kind(tmp_path):
    """In a study, `[tasks.topics]` with `task = "sentiment"` is titled by its name; older lines
    have no `kind`.
    """
    head = {
        "features": "frozen",
        "select": "source",
        "seeds": [0],
        "dev_scores": [0.5],
        "epochs": 20,
    }
    for kind in ({"kind": "sentiment"}, {}):
        lines = [
            asked(
                value,
                "topics",
                "accuracy",
                settings={**head, "chosen_epochs": [k], "encoder": str(k)},
                **kind,
            )
            for k, value in enumerate((0.2, 0.4))
        ]
        (table,) = tables_of(lines, tmp_path)
        assert table.caption.startswith("Topics: accuracy")
        assert values_of([table]) == [0.2, 0.4]


@pytest.mark.parametrize(("features", "tables"), [("tuned", 1), ("frozen", 2)])
def test_fine_tuned_encoders_with_different_default_learning_rates_share_a_table(
    tmp_path, features, tables
):
    lines = [
        asked(0.2, settings={"encoder": name, "features": features, "learning_rate": rate})
        for name, rate in (("small", 5e-4), ("large", 5e-5))
    ]
    assert len(tables_of(lines, tmp_path)) == tables
    lines.append({**lines[1], "settings": {**lines[1]["settings"], "learning_rate": 1e-3}})
    assert len(tables_of(lines, tmp_path)) == 3  # the same encoder with two learning rates


def test_results_are_distinguished_by_test_texts_and_training_seeds(tmp_path):
    """Results on half of a test set are in a separate table; a second training run of a method
    counts as a second run.
    """
    lines = [
        asked(value, method="new", texts=texts, training_seed=seed)
        for value, texts, seed in ((0.2, 500, 0), (0.4, 500, 1), (0.9, 1000, 0))
    ]
    small, large = tables_of(lines, tmp_path)
    assert ("texts: 500" in small.caption, "texts: 1,000" in large.caption) == (True, True)
    assert small.lines[0].cells[0].figure.known.runs == (0.2, 0.4)
    assert large.lines[0].cells[0].figure.value == 0.9


def test_languages_with_different_training_texts_share_a_table(tmp_path):
    lines = [
        asked(0.2, "retrieval", "accuracy.unseen", lang, settings={"train": [f"train.{lang}.tsv"]})
        for lang in ("de", "fr")
    ]
    (table,) = tables_of(lines, tmp_path)
    assert [head.label for head in table.heads] == ["de", "fr", "mean"]


@pytest.mark.parametrize("task", [*TRAINED, *UNTRAINED])
def test_scores_of_two_encoders_on_the_same_text_answer_the_same_questions(task, tmp_path):
    """Check that each setting that depends on the encoder is declared as descriptive."""
    job = (
        UNTRAINED[task]()
        if task in UNTRAINED
        else jobs(n=20, options={"epochs": 2}, bootstrap=2)[task]
    )
    lines = []
    for number, encoder in enumerate((Planted(), Planted(apart=True), Planted(constant=True))):
        encoder.name = encoder.fingerprint = f"encoder {number}"
        lines += [{**score.to_dict(), "task": task} for score in job.evaluate(encoder)]
    questions, superseded = sort_questions(
        results_of(lines).records, find_subjects(results_of(lines))
    )
    assert {question.variant for question in questions} == {""}
    assert (superseded, {len(question.subjects) for question in questions}) == (0, {3})


# -- one cell for each question in the overview ----------------------------------------------------
def test_the_overview_has_a_labelled_cell_for_each_setting_of_a_task(tmp_path):
    lines = [
        {**each, "settings": {**each["settings"], "epochs": epochs}}
        for epochs, values in ((6, (0.286, 0.368)), (20, (0.534, 0.488)))
        for each in two("ner", "f1", {"de": values})
    ]
    composed = compose(
        read_results([write(tmp_path / "study" / "results.jsonl", lines)]), title="x"
    )
    assert [(head.label, head.detail) for head in composed.glance.heads] == [
        ("named entities", "F1, epochs: 6"),
        ("named entities", "F1, epochs: 20"),
    ]
    assert [cell.number.shown for cell in composed.glance.lines[0].cells] == ["+8.2", "−4.6"]


# -- invalid and hostile files ---------------------------------------------------------------------


def test_hostile_text_is_escaped(tmp_path):
    folder = tmp_path / "a b|c+d%20'<x>"
    path = write(folder / "results.jsonl", hostile_lines())
    (folder / "calque-run.json").write_text(
        json.dumps(dict.fromkeys(("command", "encoder", "texts"), HOSTILE[0]))
    )
    report([path], out=tmp_path / "r.html", title=HOSTILE[0], plots=tmp_path / "plots")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(page.find("script")) == 1
    assert not page.find("img")
    assert not page.find("b") or all("onerror" not in e["attrs"] for e in page.elements)
    text = " ".join(page.find("main")[0]["text"].split())
    for wanted in HOSTILE:
        assert " ".join(wanted.split()) in text
    for plot in (tmp_path / "plots").iterdir():
        assert not Page(plot.read_text(encoding="utf-8")).find("script")


def plain(**changed) -> str:
    return json.dumps(
        {
            "task": "t",
            "data": "",
            "languages": ["a"],
            "metric": "m",
            "value": 1,
            "low": 1,
            "high": 1,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "line 2: is not valid JSON"),
        ('{"task": "ner"}', "line 2: has no data, languages, metric"),
        ('{"task": "ner", "metric": "accuracy\\ud800"}', "line 2: is not valid JSON"),
        (plain(value="1"), "value must be a number or null, got '1'"),
        (plain(analysis="x"), "got 'x'"),
        (
            plain(analysis="points", items=[{"x": "1", "y": 1, "word": "a", "pair": 1}]),
            "must be finite numbers",
        ),
    ],
)
def test_the_error_for_an_invalid_line_names_the_line(tmp_path, text, wrong):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(line("ner", ("en", "de"), "f1", 0.2, 0.1)) + "\n" + text + "\n")
    with pytest.raises(InputError, match=re.escape(wrong)) as error:
        read_results([path])
    assert str(path) in str(error.value)


def test_missing_empty_and_invalid_paths_raise_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "results.jsonl").write_bytes(b"\xff\xfe")
    for path, message in (
        ("nothing", "does not exist"),
        ("empty", "contains no results"),
        (".", "is not UTF-8"),
    ):
        with pytest.raises(InputError, match=message):
            read_results([tmp_path / path])


def test_undefined_scores_are_shown_as_undefined(tmp_path):
    lines = two("ner", "f1", {"de": (0.2, 0.5), "fr": (0.2, 0.5)})
    lines[0] |= {"value": None, "low": None, "high": None}
    path = write(tmp_path / "study" / "results.jsonl", lines)
    text = path.read_text().replace("null", "NaN", 1)
    path.write_text(text)
    report([path], out=tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text())
    assert "undefined" in page.find("main")[0]["text"]
    assert "nan" not in page.find("main")[0]["text"].lower().split()


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (
            ["/home/me/runs/a/results.jsonl", "/home/me/runs/b/results.jsonl"],
            ["a/results.jsonl", "b/results.jsonl"],
        ),
        (["/x/a/r.jsonl", "/y/a/r.jsonl"], ["x/a/r.jsonl", "y/a/r.jsonl"]),
        (
            ["/x/.demo.calque-part/new/r.jsonl"],
            ["demo/r.jsonl"],
        ),  # a temporary folder is shown with its final name
        (["/x/demo/.calque-part/.new.calque-saving/new/r.jsonl"], ["demo/r.jsonl"]),
    ],
)
def test_short_names_of_result_files_are_distinct(paths, names):
    assert short_names(list(map(Path, paths))) == names


# -- the command -----------------------------------------------------------------------------------
def test_the_report_command_writes_the_page_and_plots(folder, tmp_path, capsys):
    page, plots = tmp_path / "r.html", tmp_path / "p"
    out, err = works(capsys, "report", folder, "--out", page, "--plots", plots, "--title", "Mine")
    assert out.strip() == str(page)
    assert "plots saved to" in err
    assert "<h1>Mine</h1>" in page.read_text(encoding="utf-8")
    names = [path.name for path in plots.iterdir()]
    assert {"retrieval-heat.svg", "points-de-contrastive.svg"} <= set(names)
    assert len(names) == len(set(map(str.lower, names))) > 40
    for text in (path.read_text(encoding="utf-8") for path in list(plots.iterdir())[:40]):
        Page(text)
        assert "var(" not in text  # CSS variables are defined only in the page
        assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    said = fails(capsys, "report", folder, "--out", tmp_path / "r.doc")
    assert "the name of a report must end in .html, got r.doc" in said
