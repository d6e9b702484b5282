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
    names: list[str] = []
    ordered: list[Score] = []
    for answers in by_question.values():
        for name, score in answers:
            names.append(name)
            ordered.append(score)
    if "seeds" in ordered[0].settings:
        rows = _trained_rows(ordered, names)
        notes = {name: _notes(scores) for name, scores in by_encoder.items()}
    else:
        rows = _plain_rows(ordered, names)
        notes = {name: _plain_notes(scores) for name, scores in by_encoder.items()}
    return "\n".join([*rows, "", *_merged(notes)])


def _merged(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the notes on the scores of several encoders. A note that concerns all encoders is
    given once; any other note follows the name of its encoder."""
    lines: dict[str, None] = {}
    for name, of_encoder in notes.items():
        for note in of_encoder:
            is_common = all(note in other for other in notes.values())
            lines[note if is_common else f"{name}: {note}"] = None
    return list(lines)


def columns(rows: Sequence[Sequence[str]], right: range) -> list[str]:
    """Format rows as lines with an underlined header; columns whose indices are in `right` are
    right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.rjust(width) if index in right else cell.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def layer_table(findings: Sequence[Finding]) -> str:
    """Format the result of `compare_layers` as one row per layer, followed by the test scores of
    the best layer.
    """
    scores = [finding.score for finding in findings]
    # The last scores are those of the best layer on the test half.
    halves = [score for score in scores if score.metric.endswith(".test-half")]
    curve = scores[: -len(halves)]
    best = halves[0].settings["layer"]
    layers = dict.fromkeys(score.settings["layer"] for score in curve)
    metrics = dict.fromkeys(score.metric for score in curve)
    lines = []
    for data, langs in dict.fromkeys((score.data, score.languages) for score in halves):
        cells = {
            (score.settings["layer"], score.metric): score.shown(2)[0]
            for score in curve
            if (score.data, score.languages) == (data, langs)
        }
        rows = [("layer", *metrics)]
        for layer in layers:
            name = f"* {layer}" if layer == best else str(layer)
            rows.append((name, *(cells[layer, metric] for metric in metrics)))
        lines += [f"{Path(data).name} {'-'.join(langs)}", *columns(rows, range(len(rows[0]))), ""]
    lines.append(
        f"* Layer {best} is best on the dev half (sentence pairs 1, 3, 5, …). On the test half "
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
        pooling, note = score.settings.get("pooled"), score.settings.get("pooling_note", "")
        if pooling:
            name = str(score.settings.get("encoder"))
            encoders.setdefault((pooling, note), {})[name] = None
    for (pooling, note), names in encoders.items():
        whose = f" of {', '.join(names)}" if len(encoders) > 1 else ""
        reason = f", because {note}; compare only scores with the same pooling" if note else ""
        yield f"Sentence pooling{whose}: {pooling}{reason}."


def _candidates(scores: Sequence[Score]) -> Iterator[str]:
    """Describe the candidates and the skipped entries of each dictionary."""
    settings_of_tests = {
        (score.data, score.languages): score.settings
        for score in scores
        if "candidates_from" in score.settings
    }
    origins = {"vectors": "most frequent words with a vector", "text": "words of the text"}
    for (data, langs), settings in settings_of_tests.items():
        source, target = langs
        origin = origins.get(settings["candidates_from"], "words of the dictionary")
        yield f"Candidates: {settings['candidates']:,} {origin} in {target} ({Path(data).name})."
        n_left_out = settings["left_out"]
        if n_left_out:
            yield (
                f"{n_left_out:,} of {n_left_out + settings['entries_tested']:,} entries left out: "
                f"no vector for {settings['source_words_without_vector']:,} words in {source} and "
                f"{settings['target_words_without_vector']:,} in {target}."
            )


def _trained(scores: Sequence[Score]) -> str:
    """Format one row for each test set and metric, followed by notes on the training runs."""
    return "\n".join([*_trained_rows(scores), "", *_notes(scores)])


def _trained_rows(scores: Sequence[Score], names: Sequence[str] = ()) -> list[str]:
    """Format one row for each test set and metric, without the F1 of each span type."""
    metrics = {score.metric for score in scores}
    rows = [
        ("test", "language", "metric", "value", "s.d.", "95% interval", "gap", "n", "trained on")
    ]
    names_of_rows = []
    for index, score in enumerate(scores):
        if is_part(score.metric, metrics):
            continue
        value, low, high = score.shown(1)
        protocol = score.settings.get("protocol", "zero-shot")
        training_langs = "+".join(score.languages[:-1])
        if protocol != "zero-shot":
            training_langs += f" ({protocol})"
        rows.append(
            (
                score.data,
                score.languages[-1],
                score.metric,
                value,
                _percent(score.settings.get("sd")),
                f"{low} – {high}",
                _percent(score.settings.get("gap")),
                f"{score.n:,}",
                training_langs,
            )
        )
        if names:
            names_of_rows.append(names[index])
    return _columns(rows, range(3, 8), names_of_rows)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _reasons_against(scores: Sequence[Score]) -> list[str]:
    """Return a line for each reason why reports do not compare the scores, with the remedy."""
    lines: dict[str, None] = {}
    for score in scores:
        protocol = score.settings.get("protocol", "zero-shot")
        for reason in warnings_of(score.settings):
            if protocol == "zero-shot":
                start = f"{reason[0].upper()}{reason[1:]}"
            else:
                start = f"{protocol.capitalize()}: {reason}"
            remedy = _remedy(reason, score.settings)
            lines[f"{start}{remedy}. Reports do not compare these scores."] = None
    return list(lines)


def _remedy(reason: str, settings: Mapping[str, Any]) -> str:
    """Return the number of task heads that a reason against a score concerns, and what to
    change.
    """
    converged = settings.get("converged")  # whether each head has converged
    if not converged:  # the score of a task from another package
        return ""
    if reason == NOT_CONVERGED:
        return (
            f" for {converged.count(False)} of {len(converged)} heads; set --epochs above "
            f"{settings['epochs']:g}"
        )
    return "; increase --epochs, or use more training text"


def _notes(scores: Sequence[Score]) -> list[str]:
    """Return notes that are needed to interpret the scores."""
    settings = scores[0].settings
    dev = settings.get("dev", "")
    chosen_by = dev if isinstance(dev, str) else ", ".join(dev)
    if settings.get("select") == "target":
        chosen_by += " (TARGET text: the scores are not zero-shot)"
    n = len(settings.get("seeds", ()))
    runs = "run" if n == 1 else "runs"
    variation = "The intervals cover the variation between training runs and between test texts."
    return [
        *_reasons_against(scores),
        f"{settings.get('features')} features, head {settings.get('head')}, mean of {n} {runs}; "
        f"epoch chosen by {chosen_by}",
        variation if n > 1 else ONE_RUN,
    ]
