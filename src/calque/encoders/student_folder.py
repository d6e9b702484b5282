"""A pooling as the modules of sentence-transformers beside an encoder: what `read_recipe` reads, written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from calque.encoders.sentence_transformers import MODULES_FILE
from calque.encoders.sentence_vectors import SentencePooling, UnitLength

# Names that versions 3 to 6 all know.
_TYPES = {name: f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Dense", "Normalize")}
_FLAGS = {
    "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens", "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}  # fmt: skip


def write_modules(folder: Path, pooling: SentencePooling, dim: int, *, max_length: int | None = None) -> None:
    """Write `modules.json`, the pooling, and a folder for each dense layer; whoever opens the encoder's folder with
    sentence-transformers, or asks calque for its own pooling, gets the sentence vectors of `pooling`.

    Args:
        folder: of a saved encoder.
        pooling: of subwords, and what comes after it.
        dim: of the encoder.
        max_length: most subwords of a text.
    """
    modules: list[dict[str, Any]] = []

    def add(kind: str, about: dict[str, Any] | None) -> Path:
        name = f"{len(modules)}_{kind}" if modules else ""
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": name, "type": _TYPES[kind]})
        if name:
            (folder / name).mkdir(exist_ok=True)
        if about is not None:
            (folder / name / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return folder / name

    add("Transformer", None)
    flags = {flag: mode in pooling.modes for mode, flag in _FLAGS.items()}
    add("Pooling", {"word_embedding_dimension": dim, **flags, "include_prompt": True})
    parts = list(pooling.after)
    for number, part in enumerate(parts):
        if isinstance(part, UnitLength):
            add("Normalize", None)
        elif isinstance(part, nn.Linear):
            activation = type(parts[number + 1])
            place = add("Dense", {
                "in_features": part.in_features, "out_features": part.out_features, "bias": part.bias is not None,
                "activation_function": f"{activation.__module__}.{activation.__name__}",
            })  # fmt: skip
            weights = {f"linear.{name}": weight.detach().cpu().contiguous() for name, weight in part.named_parameters()}
            save_file(weights, place / "model.safetensors")
    limits = {"max_seq_length": max_length or pooling.max_length, "do_lower_case": pooling.lower}
    (folder / MODULES_FILE).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits, indent=2) + "\n", encoding="utf-8")
