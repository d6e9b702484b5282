"""Add scores to model cards, and measure the effect of an alignment on held-out text and sentence vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.distributed.environment import environment
from calque.encoders.folder import RUN_FILE
from calque.runs.compare import asked, fallen
from calque.storage import locked, write_text
from calque.tasks.base import Score
from calque.tasks.bootstrap import measure

if TYPE_CHECKING:
    from calque.alignment.base import HeldOutScore
    from calque.encoders import Encoder
    from calque.text import ParallelCorpus

_SENTENCES = 1000  # number of sentences that are compared before and after alignment


def add_scores(folder: Path, scores: list[dict[str, Any]], base: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Append scores to the card and to `calque-run.json`.

    Args:
        folder: folder of an aligned encoder.
        scores: scores as returned by `Score.to_dict`.
        base: scores of the encoder before alignment; the card lists every score that fell.
    """
    path = folder / RUN_FILE
    with locked(path, wait=True):  # read, change and write under one lock
        _add_scores(path, scores, base)


def _add_scores(path: Path, scores: list[dict[str, Any]], base: Sequence[Mapping[str, Any]] | None) -> None:
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else environment()
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
    """Return a list of all scores that are worse than before alignment."""
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


def _shown(value: float | None) -> str:
    """Format a value; empty if there were no items."""
    return "" if value is None else f"{value:.4f}"


# -- scores on held-out text -----------------------------------------------------------------------------
def scores_of(held_out: Sequence[HeldOutScore], *, seed: int = 0) -> list[Score]:
    """Return a score with its interval over sentences for each metric that has sentences."""
    found = []
    for each in held_out:
        if not len(each.counts):
            continue
        measured = measure(each.counts, each.statistic)
        found.append(
            Score(
                each.table, f"held out, {each.model}", each.langs, each.metric, *measured.ends, len(each.counts), seed,
                {"model": each.model, "sentences": len(each.counts)}, percent=each.percent, **measured.kept,
            )
        )  # fmt: skip
    return found


def sentence_cost(
    base: Encoder, aligned: Encoder, corpora: Sequence[ParallelCorpus], lang: str
) -> dict[str, float | int | str] | None:
    """Compare a sentence encoder's vectors of one language before and after alignment.

    Args:
        lang: language of the vectors, `towards`.

    Returns:
        number of distinct sentences, evenly spaced; Pearson's correlation of the cosines of all sentence pairs before and after;
        and the mean cosine before and after. None if the base is not a sentence encoder, or for fewer than three sentences.
    """
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors

    if not isinstance(aligned, HuggingFaceEncoder) or getattr(base, "modules", None) is None:
        return None
    corpus = next(each for each in corpora if lang in each.langs)
    text = corpus.source if corpus.langs[0] == lang else corpus.target
    first = np.unique([" ".join(sentence.words) for sentence in text], return_index=True)[1]
    rows = np.sort(first)[np.linspace(0, len(first) - 1, min(len(first), _SENTENCES)).astype(int)]
    if len(rows) < 3:
        return None
    pairs, cosines, pooling = np.triu_indices(len(rows), 1), [], SentencePooling.of(base)
    for encoder in (base, aligned):
        vectors = sentence_vectors(encoder, text.take(rows), pooling).data.astype(np.float64)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        cosines.append((unit @ unit.T)[pairs])
    return {
        "lang": lang, "sentences": len(rows), "correlation": round(float(np.corrcoef(*cosines)[0, 1]), 4),
        "unrelated_before": round(float(cosines[0].mean()), 4), "unrelated_after": round(float(cosines[1].mean()), 4),
    }  # fmt: skip
