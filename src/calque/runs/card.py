"""Add scores to model cards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.distributed.environment import environment
from calque.encoders.folder import RUN_FILE
from calque.storage import json_text, locked, write_text
from calque.tasks.base import Score
from calque.tasks.bootstrap import measure

if TYPE_CHECKING:
    from calque.alignment.base import HeldOutScore


def add_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    """Append scores, as returned by `Score.to_dict`, to the model card and to `calque-run.json` of an encoder."""
    with locked(folder / RUN_FILE, wait=True):  # the file is read, changed and written under one lock
        _add_scores(folder / RUN_FILE, scores)


def _add_scores(path: Path, scores: list[dict[str, Any]]) -> None:
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else environment()
    bare = [{name: value for name, value in score.items() if name != "resamples"} for score in scores]
    record.setdefault("scores", []).extend(bare)
    write_text(path, json_text(record, indent=2, default=str, ensure_ascii=False) + "\n")
    rows = [
        f"| {s['task']} | {s['metric']} | {s['data']} | {'-'.join(s['languages'])} | {_shown(s['value'])} "
        f"| {_shown(s['low'])} – {_shown(s['high'])} | {s['n']:,} |"
        for s in record["scores"]
    ]
    table = ["## Scores", "", "| task | metric | data | languages | value | 95% interval | n |",
             "|---|---|---|---|---:|---|---:|", *rows, ""]  # fmt: skip
    card = path.with_name("README.md")
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    write_text(card, text.split("## Scores")[0] + "\n".join(table))


def _shown(value: float | None) -> str:
    """Format a value; return an empty string if the value is missing."""
    return "" if value is None else f"{value:.4f}"


# -- scores on held-out text -----------------------------------------------------------------------------
def scores_of(held_out: Sequence[HeldOutScore], *, seed: int = 0) -> list[Score]:
    """Return a score with a confidence interval over sentences for each metric that has counts for at least one sentence."""
    found = []
    for each in held_out:
        if n := len(each.counts):
            measured = measure(each.counts, each.statistic)
            about, data = {"model": each.model, "sentences": n}, f"held out, {each.model}"
            score = (each.table, data, each.langs, each.metric, *measured.ends, n, seed, about)
            found.append(Score(*score, percent=each.percent, **measured.kept))
    return found
