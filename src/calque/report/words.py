"""Analyses that show words in their sentences: pairs in the plane, and one form in several senses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.document import (
    Answer,
    Cell,
    Examples,
    Head,
    Line,
    Name,
    Occurrence,
    Panel,
    Plot,
    Section,
    Table,
    Text,
)
from calque.report.plots.words import Point, projection
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects

_MOST_DOTS = 8_000  # in all projections together, so that the page stays small
_MOST_EXAMPLES = 60


def points(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Word pairs in the plane: what each subject is compared with at the left, itself at the right."""
    by_langs: dict[tuple[str, ...], dict[Subject, Record]] = {}
    for record in records:
        if record.items:
            by_langs.setdefault(record.pair, {})[subjects[record]] = record
    views = []
    for langs, by_subject in by_langs.items():
        first = min(by_subject, key=lambda s: s.number)
        for subject in sorted(by_subject, key=lambda s: -s.number):  # what came last is what one wants to see first
            base = subjects.base.get(subject, first)
            base = base if base in by_subject else first
            if subject != base:
                views.append((langs, by_subject[base], base, by_subject[subject], subject))
        if len(by_subject) == 1:
            views.append((langs, None, None, by_subject[first], first))
    if not views:
        return None
    most = max(20, _MOST_DOTS // (4 * len(views)))
    panels, tables, left_out = [], {}, 0
    for langs, before, base, after, subject in views:
        lang, drawings = langs[-1], []
        shown = _chosen_pairs([record for record in (before, after) if record is not None], most)
        for label, record in ((base.label if base else "", before), (subject.label, after)):
            if record is None:
                continue
            words = [word for word in _words(record) if word.pair in shown]
            left_out = max(left_out, len({item["pair"] for item in record.items}) - len(shown))
            text = (
                f"{len(shown)} words of {langs[0]} and their translations in {lang} in two dimensions, with the vectors of "
                f"{label}; a line joins translations. The words and their sentences are in the table below."
            )
            title = f"Word pairs, {'-'.join(langs)}: {label}"
            drawings.append(projection(words, label=label, title=title, description=text, langs=langs))
        tables.setdefault(lang, _pair_table(f"points-{len(tables)}", langs, after, shown))
        panels.append(Panel({"language": lang, "after": subject.label}, tuple(drawings)))
    note = (
        "Open circles: the first language; filled squares: the other; a line joins a word with its translation. Short lines "
        "mean good alignment. Directions, and distances between distant points, mean little in such a projection.",
        *([f" Of many pairs, {most} are drawn."] if left_out else []),
    )
    title = "Word pairs before and after"
    plot = Plot("points-plot", title, note, tuple(panels), tuple(tables.values()), kind="pairs")
    return Section("points", title, (), (plot,))


def _chosen_pairs(records: Sequence[Record], most: int) -> set[int]:
    """Pairs that all have, evenly chosen where there are more than can be drawn."""
    sets = [{item["pair"] for item in record.items} for record in records]
    both = sorted(set.intersection(*sets), key=str)
    if len(both) <= most:
        return set(both)
    return {both[k * len(both) // most] for k in range(most)}


def _words(record: Record) -> list[Point]:
    return [
        Point(item["x"], item["y"], str(item["word"]), str(item.get("sentence", "")), str(item.get("lang", "")), item["pair"])
        for item in record.items
    ]  # fmt: skip


def _pair_table(name: str, langs: tuple[str, ...], record: Record, shown: set[int]) -> Table:
    by_pair: dict[int, dict[str, Point]] = {}
    for word in _words(record):
        if word.pair in shown:
            by_pair.setdefault(word.pair, {})[word.lang] = word
    lines = []
    for pair, words in by_pair.items():
        cells = []
        for lang in (langs[0], langs[-1]):
            word = words.get(lang)
            texts = (word.word, word.sentence) if word else ()
            cells += [Cell(text=texts[k : k + 1], lang=lang) for k in range(2)]
        lines.append(Line(str(len(lines) + 1), tuple(cells), key=f"{langs[-1]}-{pair}"))
    heads = tuple(
        Head(head, numeric=False) for lang in (langs[0], langs[-1]) for head in (f"word, {lang}", f"sentence, {lang}")
    )
    caption = f"Word pairs of {langs[0]} and {langs[-1]} in their sentences"
    return Table(name, caption, "pair", heads, tuple(lines), sortable=False)


def examples(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Forms in several senses, and where each encoder went."""
    numbers = {subject.label: subject.number for subject in subjects.all}
    forms: dict[tuple[str, str], list[Occurrence]] = {}
    total = 0
    for record in records:
        for item in record.items:
            total += 1
            if total <= _MOST_EXAMPLES:
                occurrence = _occurrence(item, record, numbers)
                forms.setdefault((occurrence.form.lower(), occurrence.lang), []).append(occurrence)
    if not forms:
        return None
    note: Text = ()
    if total > _MOST_EXAMPLES:
        note = (f"The first {_MOST_EXAMPLES} of {total:,} occurrences.",)
    block = Examples("examples-list", tuple((form, tuple(group)) for (form, _), group in forms.items()), note)
    intro = (
        "Occurrences of one word form with different translations, and the nearest word in the other language by each "
        "encoder."
    )
    return Section("examples", "One form, several senses", (intro,), (block,))


def _occurrence(item: Mapping, record: Record, numbers: Mapping[str, int]) -> Occurrence:
    before, form, after = around_form(str(item["sentence"]), str(item["form"]), item.get("position"))
    answers = tuple(
        Answer(
            Name(name, numbers.get(name)),
            str(got.get("word") or ""),
            str(got.get("sentence", "")),
            bool(got.get("right")),
        )
        for name, got in item["got"].items()
    )
    lang = str(item.get("lang", record.pair[0]))
    target = next((other for other in reversed(record.pair) if other != lang), record.pair[-1])
    return Occurrence(
        before, form, after, lang, str(item["expected"].get("word", item.get("translation", ""))),
        str(item["expected"].get("sentence", "")), target, answers, record.source,
    )  # fmt: skip


def around_form(sentence: str, form: str, position: object) -> tuple[str, str, str]:
    """A sentence in three parts, of which the middle one is the form: the word at `position` where that is it, otherwise the
    first place where it stands."""
    words = sentence.split(" ")
    if isinstance(position, int) and 0 <= position < len(words) and words[position].lower() == form.lower():
        start = sum(len(word) + 1 for word in words[:position])
        return sentence[:start], words[position], sentence[start + len(words[position]) :]
    start = sentence.lower().find(form.lower())
    if start < 0 or sentence[start : start + len(form)].lower() != form.lower():
        return "", form, f" · {sentence}"
    return sentence[:start], sentence[start : start + len(form)], sentence[start + len(form) :]
