"""Results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calque.runs.compare import stands_out


# -- results ---------------------------------------------------------------------------------------------------------
def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent with the standard deviation
    over seeds. A value is set in bold where its interval lies above those of all other methods."""
    blocks = []
    groups = dict.fromkeys((r["task"], r["metric"].partition(".")[0]) for r in records)
    for task, metric in groups:
        mine = [r for r in records if (r["task"], r["metric"].partition(".")[0]) == (task, metric)]
        mine = [r for r in mine if r["metric"] in (metric, f"{metric}.all", f"{metric}.unseen")]
        columns = list(dict.fromkeys(_column(r) for r in mine))
        rows = list(dict.fromkeys((r["encoder"], r["method"], r["supervision"]) for r in mine))
        cells = {((r["encoder"], r["method"], r["supervision"]), _column(r)): r for r in mine}
        lines = [f"## {task}, {metric}", "", "| encoder | method | " + " | ".join(columns) + " | mean |",
                 "|---|---|" + "---:|" * (len(columns) + 1)]  # fmt: skip
        for row in rows:
            shown = []
            for column in columns:
                cell = cells.get((row, column))
                others = [cells[(r, column)] for r in rows if r != row and (r, column) in cells]
                shown.append("" if cell is None or cell["value"] is None else _shown(cell, others))
            values = [cells[(row, c)]["value"] for c in columns if (row, c) in cells]
            known = [value for value in values if value is not None]
            name = row[1] if len({r[2] for r in rows if r[2]}) < 2 or not row[2] else f"{row[1]} ({row[2]})"
            mean = f"{100 * sum(known) / len(known):.1f}" if known else ""
            lines.append(f"| {row[0]} | {name} | {' | '.join(shown)} | {mean} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _column(record: Mapping[str, Any]) -> str:
    part = record["metric"].partition(".")[2]
    return f"{record['languages'][-1]} {Path(record['data']).name}" + (f" {part}" if part else "")


def _shown(cell: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    sd = cell["settings"].get("sd")
    text = f"{100 * cell['value']:.1f}" + (f" ± {100 * sd:.1f}" if sd else "")
    return f"**{text}**" if stands_out(cell, others) else text
