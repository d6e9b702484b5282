"""Format scores as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calque.runs.compare import ONE_RUN

if TYPE_CHECKING:
    from calque.analyses.questions import Finding
    from calque.tasks import Score


def table(scores: Sequence[Score]) -> str:
    """Format the scores of one task as a table. Only the JSON output contains the F1 of each span type."""
    return _trained(scores) if "seeds" in scores[0].settings else _plain(scores)


def columns(rows: Sequence[Sequence[str]], right: range) -> list[str]:
    """Format rows as lines with an underlined header; columns whose indices are in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def layer_table(findings: Sequence[Finding]) -> str:
    """Format the result of `compare_layers` as one row per layer, followed by the test scores of the best layer."""
    scores = [finding.score for finding in findings]
    halves = [score for score in scores if score.metric.endswith(".test-half")]
    chosen, curve = halves[0].settings["layer"], scores[: -len(halves)]
    layers = dict.fromkeys(score.settings["layer"] for score in curve)
    metrics = list(dict.fromkeys(score.metric for score in curve))
    lines = []
    for data, langs in dict.fromkeys((score.data, score.languages) for score in halves):
        mine = [score for score in curve if (score.data, score.languages) == (data, langs)]
        cells = {(score.settings["layer"], score.metric): score.shown(2)[0] for score in mine}
        rows = [("layer", *metrics)]
        rows += [(f"{'* ' if n == chosen else ''}{n}", *(cells[n, metric] for metric in metrics)) for n in layers]
        lines += [f"{Path(data).name} {'-'.join(langs)}", *columns(rows, range(len(rows[0]))), ""]
    lines.append(
        f"* Layer {chosen} is best on the dev half (sentence pairs 1, 3, 5, …). On the test half (2, 4, 6, …):\n"
    )
    return "\n".join([*lines, _plain(halves)])


def _plain(scores: Sequence[Score]) -> str:
    """Format the name, value, interval and number of items of each score, and the test set if several test sets were used."""
    rows = [("test", "metric", "value", "95% interval", "n")]
    for score in scores:
        value, low, high = score.shown(2)
        test = f"{Path(score.data).name} {'-'.join(score.languages)}"
        rows.append((test, f"{score.task} {score.metric}", value, f"{low} – {high}", f"{score.n:,}"))
    several = len({(score.task, score.metric) for score in scores}) < len(scores)
    lines = columns(rows, range(2, 5)) if several else columns([row[1:] for row in rows], range(1, 4))
    return "\n".join([*lines, "", *_candidates(scores), ONE_RUN])


def _candidates(scores: Sequence[Score]) -> Iterator[str]:
    """Describe the candidates and the skipped entries of each dictionary."""
    of_tests = {
        (score.data, score.languages): score.settings for score in scores if "candidates_from" in score.settings
    }
    for (data, langs), about in of_tests.items():
        source, target = langs
        words = {"vectors": "most frequent words with a vector", "text": "words of the text"}
        kind = words.get(about["candidates_from"], "words of the dictionary")
        yield f"Candidates: {about['candidates']:,} {kind} in {target} ({Path(data).name})."
        if about["left_out"]:
            entries = about["left_out"] + about["entries_tested"]
            yield (
                f"{about['left_out']:,} of {entries:,} entries left out: no vector for "
                f"{about['source_words_without_vector']:,} words in {source} and "
                f"{about['target_words_without_vector']:,} in {target}."
            )


def _trained(scores: Sequence[Score]) -> str:
    """Format one row for each test set and metric, followed by notes on the training runs."""
    rows = [("test", "language", "metric", "value", "s.d.", "95% interval", "gap", "n", "trained on")]
    for score in scores:
        if score.metric.startswith("f1."):
            continue
        value, low, high = score.shown(1)
        sd, gap = score.settings.get("sd"), score.settings.get("gap")
        protocol = score.settings.get("protocol", "zero-shot")
        train = "+".join(score.languages[:-1]) + (f" ({protocol})" if protocol != "zero-shot" else "")
        rows.append((
            score.data, score.languages[-1], score.metric, value, "" if sd is None else f"{100 * sd:.1f}",
            f"{low} – {high}", "" if gap is None else f"{100 * gap:.1f}", f"{score.n:,}", train,
        ))  # fmt: skip
    return "\n".join([*columns(rows, range(3, 8)), "", *_notes(scores)])


def _notes(scores: Sequence[Score]) -> list[str]:
    """Return notes that are needed to interpret the scores."""
    about = scores[0].settings
    chosen = about.get("dev", "")
    by = chosen if isinstance(chosen, str) else ", ".join(chosen)
    leak = " (TARGET text: the scores are not zero-shot)" if about.get("select") == "target" else ""
    n = len(about.get("seeds", ()))
    return [
        f"{about.get('features')} features, head {about.get('head')}, mean of {n} {'run' if n == 1 else 'runs'}; "
        f"epoch chosen by {by}{leak}",
        "The intervals cover the variation between training runs and between test texts." if n > 1 else ONE_RUN,
    ]
