"""The model card of an aligned encoder: what was done to which encoder with which text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import calque
from calque.disk import write_text
from calque.runs.lock import locked
from calque.runs.surroundings import surroundings


def model_card(folder: Path, record: dict[str, Any]) -> None:
    """Write `README.md` (for people and the hub) and `calque-run.json` (the same, for programs) into the folder."""
    (folder / "calque-run.json").write_text(
        json.dumps(surroundings() | record, indent=2, default=str) + "\n", encoding="utf-8"
    )
    languages = record.get("langs") or sorted({lang for text in record["texts"] for lang in text["langs"]})
    others = [lang for lang in languages if lang != record["towards"]]
    library = "transformers" if record.get("kind", "huggingface") == "huggingface" else "calque"
    front = ["---", f"library_name: {library}", "language:", *[f"- {lang}" for lang in languages],
             f"base_model: {record['encoder']}", "tags:", "- cross-lingual", "- word-alignment", "- calque", "---"]  # fmt: skip
    maps = "updates" not in record
    lines = [
        *front, "",
        f"# {record['encoder']}, aligned by {record['method']}", "",
        f"The word vectors of {', '.join(others)} were moved towards {record['towards']} with calque {calque.__version__} "
        f"by the method *{record['method']}*.", "",
        *([f"**Not to be trusted**: the maps of {', '.join(record['failed'])} failed.", ""] if record.get("failed") else []),
        "## Use", "", "```python", *_usage(record, others, maps), "```", "",
        *_data(record["texts"]),
        *([f"Word links: {record['words']['model']}, {record['words']['symmetrize']}.", ""] if "words" in record else []),
        "## Settings", "", "```json", json.dumps(record["settings"], indent=2, default=str), "```", "",
    ]  # fmt: skip
    if not maps:
        lines += ["## Training", "", "```json", json.dumps(record["schedule"], indent=2, default=str), "```", "",
                  f"{record['updates']:,} updates; loss {record['first_loss']:.4g} at the first and "
                  f"{record['last_loss']:.4g} at the last.", ""]  # fmt: skip
    lines += [
        "## Scores",
        "",
        "None recorded yet: `calque evaluate` measures them, and `--record` writes them here.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def add_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    """Append scores to the card and to `calque-run.json`."""
    path = folder / "calque-run.json"
    with locked(path, wait=True):  # reads, changes and writes
        _add_scores(path, scores)


def _add_scores(path: Path, scores: list[dict[str, Any]]) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    record.setdefault("scores", []).extend(scores)
    write_text(path, json.dumps(record, indent=2, default=str) + "\n")
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


def _data(texts: list[dict[str, Any]]) -> list[str]:
    """A table of the texts: their names, languages, and whatever was counted in them."""
    if not texts:
        return []
    counted = list(dict.fromkeys(name for text in texts for name in text if name not in ("path", "langs")))
    header = ["text", "languages", *(name.replace("_", " ") for name in counted)]
    rows = [
        [text["path"], "-".join(text["langs"]), *(f"{text[name]:,}" if name in text else "" for name in counted)]
        for text in texts
    ]
    lines = [header, ["---", "---", *["---:"] * len(counted)], *rows]
    return ["## Data", "", *(f"| {' | '.join(line)} |" for line in lines), ""]


def _shown(value: float | None) -> str:
    """A figure of a score; nothing where there was no question."""
    return "" if value is None else f"{value:.4f}"


def _usage(record: dict[str, Any], others: list[str], maps: bool) -> list[str]:
    if maps:
        return [
            "import calque",
            "",
            "encoder = calque.load_encoder(FOLDER)  # this folder: the encoder with its maps",
            f'vectors = encoder.encode([calque.Sentence(("…",), lang="{others[0] if others else record["towards"]}")])',
        ] + ([] if record.get("kind", "huggingface") != "huggingface" else [
            "",
            "# Without calque, AutoModel gives the encoder before mapping; maps.safetensors holds, for each language and",
            "# layer, what carries a word vector x over: (x - source_mean) @ matrix + target_mean",
        ])  # fmt: skip
    return [
        "from transformers import AutoModel, AutoTokenizer",
        "",
        "model, tokenizer = AutoModel.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)  # this folder",
    ]
