"""What is told of the senses that a language model has learnt: in the record of the run, and in the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from calque.annotated import Dictionary
    from calque.nn.senses import SenseTable
    from calque.pretraining.base import LanguageModel


def about_senses(
    method: LanguageModel, tables: Sequence[SenseTable], dictionaries: Sequence[Dictionary]
) -> dict[str, Any]:
    """What the record says under `senses`: of each table how many senses a word has left, and what translates what."""
    about: dict[str, Any] = {"tables": [_table(table) for table in tables]}
    if method.translations is not None:
        about["translated_words"] = dict(method.translations.words)
        about["dictionaries"] = [
            {"path": Path(d.path or "").name, "langs": list(d.langs), "pairs": len(d)} for d in dictionaries
        ]
    return about


def settings_of(method: LanguageModel) -> dict[str, Any]:
    """For the file of the senses."""
    return {} if method.senses is None else asdict(method.senses)


def _table(table: SenseTable) -> dict[str, Any]:
    used = (table.live.cpu()[table.index.cpu().clamp(min=0)] & (table.index.cpu() >= 0)).sum(1).numpy()
    n = np.bincount(used)
    return {
        "words": len(used),
        "senses_per_word": round(float(used.mean()), 3),
        "several": round(float((used > 1).mean()), 4),
        "words_by_senses": {str(k): int(n[k]) for k in range(1, len(n)) if n[k]},
    }


def card_lines(about: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Paragraphs for the model card.

    Args:
        about: what `about_senses` gave.
        settings: of the senses.
    """
    tables, most = about["tables"], settings["senses"]
    names = ["forwards", "backwards"] if len(tables) == 2 else [""]
    left = "; ".join(
        f"{name + ': ' if name else ''}{row['senses_per_word']:.2f} senses a word in use after training, several for "
        f"{row['several']:.1%} of the words"
        for name, row in zip(names, tables, strict=True)
    )
    lines = [
        f"It is sense-aware: its output layer had up to {most} vectors for each word while it was trained, and the model's "
        f"own state told which of them was meant. {left[0].upper()}{left[1:]}. The encoder has the same size as without; "
        "the senses are in `senses.safetensors`.",
        "",
    ]
    if "dictionaries" in about:
        files = ", ".join(f"{d['path']} ({'-'.join(d['langs'])}, {d['pairs']:,} pairs)" for d in about["dictionaries"])
        words = ", ".join(f"{n:,} words in {lang}" for lang, n in about["translated_words"].items())
        lines += [f"It also learnt to predict the senses of translations, from {files}: {words} had any.", ""]
    return lines
