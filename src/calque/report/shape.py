"""The shape of the space: isometry, hubness, anisotropy, the language probe and what is left of one language, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.bins import Place, figures_by_place
from calque.report.document import Cell, Head, Line, More, Section, Table
from calque.report.numbers import Figure, mean_of
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects

SHAPES = {  # what each measure of the space's shape is called, and how to read it
    ("isometry", "eigenvalue-similarity"): ("eigenvalue similarity", "0: same shape"),
    ("isometry", "gromov-hausdorff"): ("Gromov–Hausdorff bound", "0: same shape"),
    ("isometry", "relational-similarity"): ("relational similarity", "1: same shape"),
    ("hubness", "skewness.csls"): ("hubness by CSLS", "0: no hubs"),
    ("hubness", "skewness.cosine"): ("hubness by cosine", "0: no hubs"),
    ("anisotropy", "mean-cosine"): ("cosine of random words", "0: all directions"),
    ("anisotropy", "mean-cosine linked"): ("cosine of translations", "1: the same vector"),
    ("language", "probe-accuracy"): ("language identified by a probe, per cent", "50: chance"),
    ("consistency", "same-form"): ("same word nearest, source language, per cent", "100: always"),
    ("similarities", "similarities"): ("similarities as before, source language", "1: the same"),
}


def shape(records: Sequence[Record], subjects: Subjects) -> Section | None:
    """A table of means over languages, and one for each measure."""
    by_measure: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_measure.setdefault(_measure(record), []).append(record)
    measures = [key for key in SHAPES if key in by_measure]
    if not by_measure:
        return None
    cells: dict[tuple[Subject, tuple[str, str]], Figure | None] = {}
    folded: list[Table] = []
    for number, key in enumerate([*measures, *(key for key in by_measure if key not in SHAPES)]):
        grid = {s: _by_language(by_lang) for s, by_lang in figures_by_place(by_measure[key], subjects).items()}
        langs = list(dict.fromkeys(lang for by_lang in grid.values() for lang in by_lang))
        for subject, by_lang in grid.items():
            figures = [figure for lang in langs for figure in by_lang.get(lang, {}).values()]
            complete = set(by_lang) == set(langs)
            cells[subject, key] = figures[0] if len(figures) == 1 else mean_of(figures) if complete else None
        folded.append(_by_language_table(f"shape-{number}", SHAPES[key][0] if key in SHAPES else key[1], grid, langs))
    rows = sorted({subject for subject, _ in cells}, key=lambda s: s.number)
    heads = tuple(Head(*SHAPES[key]) for key in measures)
    lines = tuple(Line(s.label, tuple(Cell(cells.get((s, key))) for key in measures), s.number) for s in rows)
    table = Table(
        "shape-table", "Shape of the space, mean over languages and directions", "encoder", heads, lines,
        note=("None of these measures is better or worse in itself; what counts is the tasks.",),
    )  # fmt: skip
    more = More("Each measure by language", tuple(folded))
    return Section("shape", "Shape of the space", (), (table, more) if measures else (more,))


def _measure(record: Record) -> tuple[str, str]:
    """Which column a line belongs to: one of `SHAPES`, or one that only stands in the tables behind."""
    analysis, metric, group = record.analysis or "", record["metric"], record.plain.get("group")
    if (analysis, metric) == ("anisotropy", "mean-cosine"):
        if group in record.pair:
            return analysis, "cosine of random words of one language"
        return analysis, f"{metric} linked" if group and group.endswith("linked") else metric
    if analysis in ("consistency", "similarities") and group != record.pair[0]:
        return analysis, {"same-form": "same word nearest, target language, per cent"}.get(
            metric, "similarities as before, target language"
        )
    if (analysis, metric) == ("anisotropy", "explained-variance") and record.plain.get("x") is not None:
        return analysis, f"variance in the first {record['x']:g} principal components, per cent"
    return analysis, metric


def _by_language(by_lang: Mapping[str, Mapping[Place, Figure]]) -> dict[str, dict[str, Figure]]:
    return {lang: {place.group or "": f for place, f in by_place.items()} for lang, by_place in by_lang.items()}


def _by_language_table(
    name: str, title: str, grid: Mapping[Subject, Mapping[str, Mapping[str, Figure]]], langs: Sequence[str]
) -> Table:
    columns = dict.fromkeys(
        (lang, group) for by_lang in grid.values() for lang in langs for group in by_lang.get(lang, {})
    )
    several = {lang for lang in langs if [other for other, _ in columns].count(lang) > 1}
    heads = tuple(Head(lang, group if lang in several else "") for lang, group in columns)
    lines = tuple(
        Line(s.label, tuple(Cell(grid[s].get(lang, {}).get(group)) for lang, group in columns), s.number)
        for s in sorted(grid, key=lambda s: s.number)
    )
    return Table(name, title[:1].upper() + title[1:], "encoder", heads, lines)
