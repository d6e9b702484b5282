"""Write an artificial folder of `calque align --method clcr`, with the record of the run and the metrics of its phases."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report_results import line

ENGLISH = "the small cat sat quietly on the old wooden table because nobody had closed the door"
GERMAN = "die kleine Katze saß still auf dem alten Holztisch , weil niemand die Wohnungseingangstür geschlossen hatte"
WORDS = {"en": ENGLISH.split(), "de": GERMAN.split()}
RANKS = [0, 1, 2, 3, 4, 5, 8, 6, 7]
PHASES = ("transform-de", "encoder-de", "encoder-en", "refine-de")
MODELS = ("labels as they are", "confident labels")


def write_key_points(
    folder: Path, *, updates: Sequence[int] = (400, 30, 1, 90), words: Sequence[str] | None = None
) -> Path:
    """Write the folder.

    Args:
        folder: folder of the encoder.
        updates: number of updates of each phase; phases without a number are left out.
        words: number of words of each sentence.

    """
    folder.mkdir(parents=True, exist_ok=True)
    for phase, n in zip(PHASES, updates, strict=False):
        lines = [_update(step, phase) for step in range(1, n + 1)]
        place = folder / "training" / phase / "metrics.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps(each) + "\n" for each in lines))
    plain = json.dumps(record(words), ensure_ascii=False, indent=2)
    (folder / "calque-run.json").write_text(plain, encoding="utf-8")
    return folder


def record(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the `calque-run.json` of such a run."""
    return {
        "calque": "0.1.0", "command": "calque align --method clcr train.tsv", "method": "clcr", "towards": "en",
        "texts": [{"path": "train.tsv", "langs": ["en", "de"], "sentence_pairs": 1000, "word_pairs": 8123}],
        "settings": {"method": "clcr", "delta": 0.2, "linear": False, "beta": [0.01, 0.01, 0.01]},
        "pivots": {"de": {"threshold": 0.9, "f1": 0.8}}, "examples": _examples(words), "scores": _scores(),
    }  # fmt: skip


def _update(step: int, phase: str) -> dict[str, float]:
    distance = 0.05 + (0.9 if phase == PHASES[0] else 0.2) * math.exp(-step / 60) + 0.01 * math.sin(step)
    return {
        "step": step, "rate": 1e-3, "loss": 2.3 * distance, "de-en": distance, "en-de": 1.3 * distance,
        "temperature": 1 / (1 + 0.01 * (step - 1)),
    }  # fmt: skip


def _scores() -> list[dict[str, Any]]:
    found = []

    def add(task: str, langs: tuple[str, str], model: str, values: dict[str, float], percent: bool = True) -> None:
        for metric, value in values.items():
            about = {"data": f"held out, {model}", "settings": {"model": model, "sentences": 50}, "percent": percent}
            found.append(line(task, langs, metric, value, 0.02, n=50, **about))

    for langs, value in ((("de", "en"), 0.031), (("en", "de"), 0.043)):
        add("distance", langs, "transform", {"distance": value, "relative distance": 4 * value}, False)
    for lang in ("en", "de"):
        for k, model in enumerate(MODELS):
            of_classes = {"accuracy": 0.85 + 0.01 * k, "precision": 0.83, "recall": 0.91 + 0.01 * k}
            values = {**of_classes, "ambiguous": 0.2 - 0.1 * k}
            add("key-points", (lang, lang), model, values)
    orders = ("as it stands", "relative, n = 1", "relative, n = 10", "absolute, n = 1", "absolute, n = 10")
    for k, model in enumerate(orders):
        add("order", ("de", "en"), model, {f"bleu-{n}": 0.6 - 0.1 * n + 0.01 * k for n in (2, 3, 4)})
    return found


def _examples(words: Sequence[str] | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for lang, own in WORDS.items():
        text = list(words or own)
        said = [round(abs(math.sin(2.3 * k)) ** 2, 3) for k in range(len(text))]
        sharp = [round(value**2, 3) if value < 0.5 else round(value**0.5, 3) for value in said]
        about = {"lang": lang, "words": text, "pivots": [value > 0.4 for value in said]}
        given = {"probabilities": {MODELS[0]: said, MODELS[1]: sharp}}
        found += [{**about, **given, "sentence": number} for number in range(2)]
    text, n = list(words or (w for w in WORDS["de"] if len(w) > 3))[: len(RANKS)], len(RANKS)
    ranks = RANKS if len(text) == n else list(range(len(text)))
    before = [[round(1 / (1 + math.exp(1.2 * (a - b))), 3) for b in ranks] for a in ranks]
    places = [[round(math.exp(-abs(rank - k)) / 2.2, 3) for k in range(len(ranks))] for rank in ranks]
    order = {"lang": "de", "sentence": 1, "words": text, "ranks": ranks, "places": places, "before": before}
    return [*found, order]
