"""Results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calque.runs.compare import stands_out

Record = Mapping[str, Any]


def tables(records: Sequence[Record]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent with the standard deviation
    over seeds. A value is set in bold where its interval lies apart from, and on the better side of, those of all
    other methods."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        metric, _, part = record["metric"].partition(".")
        if part in ("", "all", "unseen"):  # not those of single kinds of spans
            groups.setdefault((record["task"], metric), []).append(record)
    return "\n\n".join(_table(f"## {task}, {metric}", mine) for (task, metric), mine in groups.items())


def _table(title: str, records: Sequence[Record]) -> str:
    columns, rows = list(dict.fromkeys(map(_column, records))), list(dict.fromkeys(map(_row, records)))
    cells = {(_row(record), _column(record)): record for record in records}
    several = len({supervision for *_, supervision in rows if supervision}) > 1
    lines = [
        title,
        "",
        f"| encoder | method | {' | '.join(columns)} | mean |",
        "|---|---|" + "---:|" * (len(columns) + 1),
    ]
    for row in rows:
        encoder, layer, method, supervision = row
        found = [cells.get((row, column)) for column in columns]
        others = [[cells[r, column] for r in rows if r != row and (r, column) in cells] for column in columns]
        shown = ["" if c is None or c["value"] is None else _shown(c, o) for c, o in zip(found, others, strict=True)]
        known = [cell["value"] * _scale(cell) for cell in found if cell is not None and cell["value"] is not None]
        name = encoder if layer is None else f"{encoder}, layer {layer}"
        how = f"{method} ({supervision})" if several and supervision else method
        mean = f"{sum(known) / len(known):.1f}" if known else ""
        lines.append(f"| {name} | {how} | {' | '.join(shown)} | {mean} |")
    return "\n".join(lines)


def _row(record: Record) -> tuple[str, int | None, str, str]:
    protocol = record["settings"].get("protocol", "zero-shot")
    method = record["method"] if protocol == "zero-shot" else f"{record['method']}, {protocol}"
    return record["encoder"], record.get("layer"), method, record["supervision"]


def _column(record: Record) -> str:
    part = record["metric"].partition(".")[2]
    return f"{record['languages'][-1]} {Path(record['data']).name}" + (f" {part}" if part else "")


def _shown(cell: Record, others: Sequence[Record]) -> str:
    scale, sd = _scale(cell), cell["settings"].get("sd")
    text = f"{scale * cell['value']:.1f}" + (f" ± {scale * sd:.1f}" if sd else "")
    return f"**{text}**" if stands_out(cell, others) else text


def _scale(cell: Record) -> int:
    return 100 if cell.get("percent", True) else 1
