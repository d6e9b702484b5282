"""Format scores as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.runs.compare import ONE_RUN
from calque.tasks.reporting import NOT_CONVERGED, is_part, warnings_of

if TYPE_CHECKING:
    from calque.analyses.questions import Finding
    from calque.tasks import Score


def table(scores: Sequence[Score]) -> str:
    """Format the scores of one task as a table. Only the JSON output contains the F1 of each span
    type.
    """
    return _trained(scores) if "seeds" in scores[0].settings else _plain(scores)


def table_of_encoders(by_encoder: Mapping[str, Sequence[Score]]) -> str:
    """Format the scores of several encoders on one task as one table, with one row per encoder for
    each test set and metric.

    Args:
        by_encoder: scores of each encoder, keyed by its name.
    """
    by_question: dict[tuple[Any, ...], list[tuple[str, Score]]] = {}
    for name, scores in by_encoder.items():
        for score in scores:
            question = (
                score.task,
                score.data,
                score.languages,
                score.metric,
                score.settings.get("protocol"),
            )
            by_question.setdefault(question, []).append((name, score))
    pairs = [pair for same in by_question.values() for pair in same]
    names, scores = [name for name, _ in pairs], [score for _, score in pairs]
    is_trained = "seeds" in scores[0].settings
    rows = _trained_rows(scores, names) if is_trained else _plain_rows(scores, names)
    notes = {
        name: (_notes if is_trained else _plain_notes)(of_one)
        for name, of_one in by_encoder.items()
    }
    return "\n".join([*rows, "", *_merged(notes)])


def _merged(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the notes on the scores of several encoders. A note that concerns all encoders is
    given once; any other note follows the name of its encoder."""
    lines: dict[str, None] = {}
    for name, own in notes.items():
        for note in own:
            is_common = all(note in other for other in notes.values())
            lines[note if is_common else f"{name}: {note}"] = None
    return list(lines)


def columns(rows: Sequence[Sequence[str]], right: range) -> list[str]:
    """Format rows as lines with an underlined header; columns whose indices are in `right` are
    right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def layer_table(findings: Sequence[Finding]) -> str:
    """Format the result of `compare_layers` as one row per layer, followed by the test scores of
    the best layer.
    """
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
        rows += [
            (f"{'* ' if n == chosen else ''}{n}", *(cells[n, metric] for metric in metrics))
            for n in layers
        ]
        lines += [f"{Path(data).name} {'-'.join(langs)}", *columns(rows, range(len(rows[0]))), ""]
    lines.append(
        f"* Layer {chosen} is best on the dev half (sentence pairs 1, 3, 5, …). On the test half "
        "(2, 4, 6, …):\n"
    )
    return "\n".join([*lines, _plain(halves)])


def _plain(scores: Sequence[Score]) -> str:
    """Format the scores of a task without a trained head, followed by notes."""
    return "\n".join([*_plain_rows(scores), "", *_plain_notes(scores)])


def _plain_notes(scores: Sequence[Score]) -> list[str]:
    return [*_reasons_against(scores), *_candidates(scores), *_poolings(scores), ONE_RUN]


def _plain_rows(scores: Sequence[Score], names: Sequence[str] = ()) -> list[str]:
    """Format the name, value, interval and number of items of each score, and the test set if
    several test sets were used.

    Args:
        names: name of the encoder of each score, shown in the first column; empty if there is only
            one encoder.
    """
    rows = [("test", "metric", "value", "95% interval", "n")]
    for score in scores:
        value, low, high = score.shown(2)
        test = f"{Path(score.data).name} {'-'.join(score.languages)}"
        rows.append(
            (test, f"{score.task} {score.metric}", value, f"{low} – {high}", f"{score.n:,}")
        )
    metrics = {(score.task, score.metric) for score in scores}
    questions = {(score.task, score.metric, score.data, score.languages) for score in scores}
    numbers = range(2, 5)
    if len(questions) == len(metrics):  # there is only one test set
        rows, numbers = [row[1:] for row in rows], range(1, 4)
    return _columns(rows, numbers, names)


def _columns(rows: Sequence[Sequence[str]], numbers: range, names: Sequence[str]) -> list[str]:
    """Format rows with a header; the names of encoders, if there are any, become the first
    column.
    """
    if not names:
        return columns(rows, numbers)
    named = [(name, *row) for name, row in zip(("encoder", *names), rows, strict=True)]
    return columns(named, range(numbers.start + 1, numbers.stop + 1))


def _poolings(scores: Sequence[Score]) -> Iterator[str]:
    """Yield the sentence pooling of the scores; if encoders differ in their pooling, one line for
    each pooling.
    """
    encoders: dict[tuple[str, str], dict[str, None]] = {}
    for score in scores:
        if pooled := score.settings.get("pooled"):
            used = (pooled, score.settings.get("pooling_note", ""))
            encoders.setdefault(used, {})[str(score.settings.get("encoder"))] = None
    for (pooled, note), names in encoders.items():
        whose = f" of {', '.join(names)}" if len(encoders) > 1 else ""
        reason = f", because {note}; compare only scores with the same pooling" if note else ""
        yield f"Sentence pooling{whose}: {pooled}{reason}."


def _candidates(scores: Sequence[Score]) -> Iterator[str]:
    """Describe the candidates and the skipped entries of each dictionary."""
    of_tests = {
        (score.data, score.languages): score.settings
        for score in scores
        if "candidates_from" in score.settings
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
    return "\n".join([*_trained_rows(scores), "", *_notes(scores)])


def _trained_rows(scores: Sequence[Score], names: Sequence[str] = ()) -> list[str]:
    """Format one row for each test set and metric, without the F1 of each span type."""
    metrics = {score.metric for score in scores}
    shown = [number for number, score in enumerate(scores) if not is_part(score.metric, metrics)]
    scores, names = (
        [scores[number] for number in shown],
        [names[number] for number in shown if names],
    )
    rows = [
        ("test", "language", "metric", "value", "s.d.", "95% interval", "gap", "n", "trained on")
    ]
    for score in scores:
        value, low, high = score.shown(1)
        sd, gap = score.settings.get("sd"), score.settings.get("gap")
        protocol = score.settings.get("protocol", "zero-shot")
        train = "+".join(score.languages[:-1]) + (
            f" ({protocol})" if protocol != "zero-shot" else ""
        )
        rows.append(
            (
                score.data,
                score.languages[-1],
                score.metric,
                value,
                "" if sd is None else f"{100 * sd:.1f}",
                f"{low} – {high}",
                "" if gap is None else f"{100 * gap:.1f}",
                f"{score.n:,}",
                train,
            )
        )
    return _columns(rows, range(3, 8), names)


def _reasons_against(scores: Sequence[Score]) -> list[str]:
    """Return a line for each reason why reports do not compare the scores, with the remedy."""
    lines: dict[str, None] = {}
    for score in scores:
        about, protocol = score.settings, score.settings.get("protocol", "zero-shot")
        for reason in warnings_of(about):
            line = f"{reason[0].upper()}{reason[1:]}"
            if protocol != "zero-shot":
                line = f"{protocol.capitalize()}: {reason}"
            lines[f"{line}{_remedy(reason, about)}. Reports do not compare these scores."] = None
    return list(lines)


def _remedy(reason: str, about: Mapping[str, Any]) -> str:
    """Return the number of task heads that a reason against a score concerns, and what to
    change.
    """
    heads = about.get("converged")
    if not heads:  # the score of a task from another package
        return ""
    if reason == NOT_CONVERGED:
        return (
            f" for {heads.count(False)} of {len(heads)} heads; set --epochs above "
            f"{about['epochs']:g}"
        )
    return "; increase --epochs, or use more training text"


def _notes(scores: Sequence[Score]) -> list[str]:
    """Return notes that are needed to interpret the scores."""
    about = scores[0].settings
    chosen = about.get("dev", "")
    by = chosen if isinstance(chosen, str) else ", ".join(chosen)
    leak = " (TARGET text: the scores are not zero-shot)" if about.get("select") == "target" else ""
    n = len(about.get("seeds", ()))
    return [
        *_reasons_against(scores),
        f"{about.get('features')} features, head {about.get('head')}, mean of {n} "
        f"{'run' if n == 1 else 'runs'}; "
        f"epoch chosen by {by}{leak}",
        "The intervals cover the variation between training runs and between test texts."
        if n > 1
        else ONE_RUN,
    ]
