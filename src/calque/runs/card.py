"""The model card of an aligned encoder: what was done to which encoder with which text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import calque
from calque.corpora.by_name import hub_ids
from calque.encoders.folder import RUN_FILE
from calque.encoders.hub import word_vector_code
from calque.runs.compare import asked, fallen
from calque.runs.environment import environment
from calque.storage import locked, write_text


def model_card(folder: Path, record: dict[str, Any]) -> None:
    """Write `README.md` (for people and the hub) and `calque-run.json` (the same, for programs) into the folder."""
    write_text(folder / RUN_FILE, json.dumps(environment() | record, indent=2, default=str, ensure_ascii=False) + "\n")
    languages = record.get("langs") or sorted({lang for text in record["texts"] for lang in text["langs"]})
    others = [lang for lang in languages if lang != record["towards"]]
    library = {"huggingface": "transformers", "adapters": "peft"}.get(record.get("kind", "huggingface"), "calque")
    data = hub_ids(text["path"] for text in record["texts"])
    front = ["---", f"library_name: {library}", "language:", *[f"- {lang}" for lang in languages],
             *(["datasets:", *[f"- {name}" for name in data]] if data else []),
             f"base_model: {record['encoder']}", "tags:", "- cross-lingual", "- word-alignment", "- calque", "---"]  # fmt: skip
    trained, plain = "updates" in record, "vectors" in record
    lines = [
        *front, "",
        f"# {_title(record)}", "",
        _done(record, others), "",
        *([f"**Not to be trusted**: the maps of {', '.join(record['failed'])} failed.", ""] if record.get("failed") else []),
        "## Use", "", *_use(record, others, plain), "",
        *_data(record["texts"]),
        *_left_out(record.get("counts", {}) | {"max_words": record["settings"].get("max_words")}),
        *([f"Word links: {record['words']['model']}, {record['words']['symmetrize']}.", ""] if "words" in record else []),
        "## Settings", "", "```json", json.dumps(record["settings"], indent=2, default=str), "```", "",
    ]  # fmt: skip
    if trained:
        lines += ["## Training", "", "```json", json.dumps(record["schedule"], indent=2, default=str), "```", "",
                  f"{record['updates']:,} updates; loss {record['first_loss']:.4g} at the first and "
                  f"{record['last_loss']:.4g} at the last.", ""]  # fmt: skip
    if cost := record.get("sentence_cost"):
        lines += ["## What alignment cost sentence vectors", "",
                  f"Of {cost['sentences']:,} training sentences in {cost['lang']}, the cosines of all pairs correlate "
                  f"{cost['correlation']:.2f} with those before alignment. Their mean, the cosine of unrelated sentences, is "
                  f"{cost['unrelated_before']:.2f} before and {cost['unrelated_after']:.2f} after.", ""]  # fmt: skip
    lines += [
        "## Scores",
        "",
        "None recorded yet: `calque evaluate` measures them, and `--record` writes them here.",
        "",
    ]
    write_text(folder / "README.md", "\n".join(lines))


def _title(record: Mapping[str, Any]) -> str:
    if "teacher" in record:
        return f"{record['encoder']}, distilled from {record['teacher']}"
    return f"{record['encoder']}, aligned by {record['method']}"


def _use(record: dict[str, Any], others: list[str], plain: bool) -> list[str]:
    """How to get vectors of the folder: of sentences where these were trained, else of words."""
    if "teacher" in record:
        return _with_sentence_transformers()
    return word_vector_code(record["vectors"]) if plain else _with_calque(record, others)


def add_scores(folder: Path, scores: list[dict[str, Any]], base: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Append scores to the card and to `calque-run.json`.

    Args:
        folder: of an aligned encoder.
        scores: as `Score.to_dict` gives them.
        base: those of the encoder before alignment; the card names every figure that fell.
    """
    path = folder / RUN_FILE
    with locked(path, wait=True):  # reads, changes and writes
        _add_scores(path, scores, base)


def _add_scores(path: Path, scores: list[dict[str, Any]], base: Sequence[Mapping[str, Any]] | None) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    bare = [{name: value for name, value in score.items() if name != "resamples"} for score in scores]
    record.setdefault("scores", []).extend(bare)
    if base is not None:
        record.setdefault("compared", 0)
        record["compared"] += sum(any(asked(score) == asked(other) for other in base) for score in scores)
        record.setdefault("fell", []).extend(
            {**{name: after[name] for name in ("task", "metric", "data", "languages")}, "percent": after.get("percent", True),
             "before": before["value"], "after": after["value"], "clear": clear}
            for before, after, clear in fallen(base, scores)
        )  # fmt: skip
    write_text(path, json.dumps(record, indent=2, default=str, ensure_ascii=False) + "\n")
    rows = [
        f"| {s['task']} | {s['metric']} | {s['data']} | {'-'.join(s['languages'])} | {_shown(s['value'])} "
        f"| {_shown(s['low'])} – {_shown(s['high'])} | {s['n']:,} |"
        for s in record["scores"]
    ]
    table = ["## Scores", "", "| task | metric | data | languages | value | 95% interval | n |",
             "|---|---|---|---|---:|---|---:|", *rows, "", *_cost(record), ""]  # fmt: skip
    card = path.with_name("README.md")
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    write_text(card, text.split("## Scores")[0] + "\n".join(table))


def _cost(record: Mapping[str, Any]) -> list[str]:
    """What alignment cost: every figure that is worse than before."""
    if "compared" not in record:
        return ["What alignment costs is not known here: `calque evaluate … --record --against FILE`, with the scores of the",
                "encoder before alignment, names every figure that fell."]  # fmt: skip
    lines = []
    for clear, said in ((True, "Clearly worse than before alignment"), (False, "Worse, but not clearly so")):
        fell = [figure for figure in record["fell"] if figure["clear"] == clear]
        lines += [f"{said}:", "", *(_fell(figure) for figure in fell), ""] if fell else []
    many = f"{record['compared']:,} figures were compared with those before alignment"
    return [*lines, f"{many}{'.' if lines else '; none fell.'}"]


def _fell(figure: Mapping[str, Any]) -> str:
    scale = 100 if figure["percent"] else 1
    where = f"{figure['task']} {figure['metric']}, {'-'.join(figure['languages'])}, {figure['data']}"
    return f"- {where}: {scale * figure['before']:.1f} → {scale * figure['after']:.1f}"


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


def _done(record: dict[str, Any], others: list[str]) -> str:
    """What the method did, in a sentence. Contrast, senses and projections move all languages, all others one side towards
    the other."""
    langs, towards, method = ", ".join(others), record["towards"], record["method"]
    if method == "contrastive":
        what = f"Words of {langs} and the words in {towards} that translate them were trained to have similar vectors"
    elif method in ("lsar", "lir") or record["settings"].get("offset") is False:
        what = f"What tells languages apart was removed from the word vectors of {langs} and {towards}"
    elif method == "distillation":
        what = f"Sentences in {', '.join([towards, *others])} were trained to have the sentence vectors of *{record['teacher']}*"
        if record["settings"].get("words"):
            what += ", and words and their translations its vectors of the words in their sentences"
    else:
        what = f"The word vectors of {langs} were moved towards those of {towards}"
    means = f" Then each language's mean was moved onto that of {towards}." if record["settings"].get("centre") else ""
    return f"{what}, with calque {calque.__version__} by the method *{method}*.{means}"


def _left_out(counts: dict[str, Any]) -> list[str]:
    """What of the texts was not trained on."""
    names = {
        "too_long": "sentence pairs longer than {max_words} words on a side",
        "without_links": "sentence pairs without word links",
        "links_without_vector": "links of words that have no vector",
        "truncated_words": "words beyond the encoder's length limit",
    }
    limit = counts.get("max_words")
    reasons = [f"{counts[name]:,} {what.format(max_words=limit)}" for name, what in names.items() if counts.get(name)]
    return [f"Not used in training: {', '.join(reasons)}.", ""] if reasons else []


def _with_sentence_transformers() -> list[str]:
    return [
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        'FOLDER = "."  # this folder, or its name on the hub',
        'vectors = SentenceTransformer(FOLDER).encode(["a bank by the river"])',
        "```",
        "",
        "With calque: `calque evaluate FOLDER sentences`, and `sentence_vectors` of `calque.encoders.sentence_vectors`.",
    ]


def _with_calque(record: dict[str, Any], others: list[str]) -> list[str]:
    lang = others[0] if others else record["towards"]
    lines = [
        "```python",
        "import calque",
        "",
        'FOLDER = "."  # this folder',
        "encoder = calque.load_encoder(FOLDER)  # the encoder with its maps",
        f'vectors = encoder.encode([calque.Sentence(("one", "word", "each"), lang="{lang}")])[0]',
        "```",
    ]
    if record.get("kind", "huggingface") == "huggingface":
        lines += [
            "",
            "Without calque, `AutoModel` gives the encoder *before* mapping; `maps.safetensors` holds, for each language and",
            "layer, what maps a word vector x: `(x - source_mean) @ matrix + target_mean`.",
        ]
    return lines
