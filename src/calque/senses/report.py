"""Plots of the senses of words among their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calque.report.document import Cell, Head, Line, Panel, Plot, Section, Table
from calque.report.plots.charts import Sense, neighbourhood
from calque.report.questions import Subjects
from calque.report.reading import Record

_NAMED = 12  # neighbours in the table


def senses(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """Plot the senses of each word in pairs, each with its nearest senses in the plane of all senses."""
    panels: list[Panel] = []
    for record in (record for record in records if record.items):
        word, label = str(record["data"]), subjects[record].label
        by_sense: dict[int, list[Mapping[str, Any]]] = {}
        for item in record.items:
            by_sense.setdefault(int(item["of"]), []).append(item)
        # Colour 0, grey, is for baselines.
        langs = {lang: k for k, lang in enumerate(sorted({str(i["lang"]) for i in record.items if i.get("lang")}), 1)}
        numbers = sorted(by_sense)
        for first in range(0, len(numbers), 2):
            two = numbers[first : first + 2]
            drawings = tuple(_drawing(word, number, by_sense[number], langs, label, record) for number in two)
            choice = {"model": label, "word": word, "senses": " and ".join(map(str, two))}
            lines = []
            for number in two:
                own, *others = by_sense[number]  # sorted by cosine
                nearest = ", ".join(f"{item['word']}_{int(item['number'])}" for item in others[:_NAMED])
                cells = Cell(text=(f"{100 * own['share']:.0f}%",)), Cell(text=(nearest,))
                lines.append(Line(f"{word}_{number}", cells))
            heads = (Head("share of its uses", numeric=False), Head("nearest senses", numeric=False))
            caption = f"Senses of {word} and those nearest to them ({record.source})"
            name = f"senses-{len(panels)}"
            table = Table(name, caption, "sense", heads, tuple(lines), sortable=False)
            panels.append(Panel(choice, drawings, (table,)))
    if not panels:
        return None
    note = (
        "The senses nearest to a sense (star) by the cosine of their vectors, on the first two principal axes of the vectors of "
        "all senses. A name is a word and the number of its sense, the most frequent sense of a word being 1. Only the cosine "
        "is exact; a plane cannot show all distances.",
    )
    plot = Plot("senses-plot", "Senses among their neighbours", note, tuple(panels), kind="around")
    return Section("senses", "Senses of words", (), (plot,))


def _drawing(
    word: str, number: int, items: Sequence[Mapping[str, Any]], langs: Mapping[str, int], label: str, record: Record
):  # fmt: skip
    name = f"{word}_{number}"
    points = []
    for item in items:
        lang = str(item["lang"]) if item.get("lang") else ""
        called, own = f"{item['word']}_{int(item['number'])}", item["word"] == word and int(item["number"]) == number
        about = f"{100 * item['share']:.0f}% of its word's uses" if own else f"cosine {item['cosine']:.2f} with {name}"
        points.append(Sense(
            item["x"], item["y"], called, f"{called}{f' ({lang})' if lang else ''}: {about}", langs.get(lang, 1), own
        ))  # fmt: skip
    return neighbourhood(
        points, label=name, title=f"Neighbours of {name}: {label}", source=record.source,
        description=f"{name} and the {len(points) - 1} senses nearest to it in two dimensions; the nearest are in the table "
        "below.",
        langs=list(langs.items()) if len(langs) > 1 else (),
    )  # fmt: skip
