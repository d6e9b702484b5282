"""Write an artificial run record of `calque align --method clcr`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from report_results import line

MODELS = ("labels as they are", "confident labels")


def write_key_points(folder: Path) -> Path:
    """Write the record to a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calque-run.json").write_text(json.dumps(record()), encoding="utf-8")
    return folder


def record() -> dict[str, Any]:
    """Return the content of `calque-run.json` for a run of CLCR."""
    return {
        "calque": "0.1.0",
        "command": "calque align --method clcr train.tsv",
        "method": "clcr",
        "towards": "en",
        "texts": [
            {"path": "train.tsv", "langs": ["en", "de"], "sentence_pairs": 1000, "word_pairs": 8123}
        ],
        "settings": {"method": "clcr", "delta": 0.2, "linear": False, "beta": [0.01, 0.01, 0.01]},
        "pivots": {"de": {"threshold": 0.9, "f1": 0.8}},
        "scores": _scores(),
    }


def _scores() -> list[dict[str, Any]]:
    found = []

    def add(
        task: str,
        langs: tuple[str, str],
        model: str,
        values: dict[str, float],
        percent: bool = True,
    ) -> None:
        for metric, value in values.items():
            about = {
                "data": f"held out, {model}",
                "settings": {"model": model, "sentences": 50},
                "percent": percent,
            }
            found.append(line(task, langs, metric, value, 0.02, n=50, **about))

    for langs, value in ((("de", "en"), 0.031), (("en", "de"), 0.043)):
        add(
            "distance",
            langs,
            "transform",
            {"distance": value, "relative distance": 4 * value},
            False,
        )
    for lang in ("en", "de"):
        for k, model in enumerate(MODELS):
            of_classes = {"accuracy": 0.85 + 0.01 * k, "precision": 0.83, "recall": 0.91 + 0.01 * k}
            values = {**of_classes, "ambiguous": 0.2 - 0.1 * k}
            add("key-points", (lang, lang), model, values)
    orders = (
        "as it stands",
        "relative, n = 1",
        "relative, n = 10",
        "absolute, n = 1",
        "absolute, n = 10",
    )
    for k, model in enumerate(orders):
        add(
            "order", ("de", "en"), model, {f"bleu-{n}": 0.6 - 0.1 * n + 0.01 * k for n in (2, 3, 4)}
        )
    return found
