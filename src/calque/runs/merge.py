"""From adapters to a whole encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calque.errors import InputError, SettingError
from calque.runs.align import save_with_card
from calque.runs.card import add_scores
from calque.runs.folder import writing


def merge(adapters: str, *, out: str | Path, keep_layers: bool = False, overwrite: bool = False) -> Path:
    """Put adapters (LoRA) into the weights of the encoder that they are for.

    Arguments not listed here are the options of `calque merge`.

    Raises:
        InputError: a file instead of their folder.
        SettingError: there are no adapters.
    """
    from calque.encoders.adapted import AdaptedEncoder
    from calque.encoders.loading import load_encoder

    if Path(adapters).is_file():
        raise InputError("is a file, expected a folder of adapters, as calque align --lora saves them", path=adapters)
    encoder = load_encoder(adapters)
    if not isinstance(encoder, AdaptedEncoder):
        raise SettingError(f"{adapters} has no adapters to merge: expected what calque align --lora saves")
    with writing(out, overwrite=overwrite) as folder:
        plain, run = encoder.merged(), Path(adapters) / "calque-run.json"
        if not run.is_file():
            plain.save(folder, keep_layers=keep_layers)
            return Path(out)
        record: dict[str, Any] = json.loads(run.read_text(encoding="utf-8"))
        scores = record.pop("scores", [])
        save_with_card(plain, folder, record, keep_layers=keep_layers)
        if scores:
            add_scores(folder, scores)
    return Path(out)
