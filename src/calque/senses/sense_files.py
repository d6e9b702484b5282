"""The file of the senses that a language model has learnt, beside the encoder: what they are looked at with afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from calque.errors import InputError
from calque.senses.sense_table import SenseTable

SENSES_FILE = "senses.safetensors"
_KEPT = ("weight", "bias", "centres", "projection", "mean", "counts", "live")


class SavedSenses(NamedTuple):
    """What the file holds.

    Attributes:
        tables: one; or two, of the model that reads forwards and of that which reads backwards. Their queues are empty.
        settings: how the senses were found, and whatever else was said when they were saved.
    """

    tables: list[SenseTable]
    settings: dict[str, Any]


def save_senses(tables: Sequence[SenseTable], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `senses.safetensors`: of each table, by its number, the parts in `_KEPT` and how many senses each word has.

    The queue of states is left out: it is of use to nobody but the training.

    Args:
        settings: for `SavedSenses`; whatever JSON takes.
    """
    parts: dict[str, Tensor] = {}
    for k, table in enumerate(tables):
        parts |= {f"{k}.{name}": getattr(table, name).detach().cpu().contiguous() for name in _KEPT}
        parts[f"{k}.senses"] = (table.index >= 0).sum(1).to(torch.int32).cpu()
    # One entry: safetensors writes several in an order of their own, another one each time.
    about = json.dumps({"tables": len(tables), "settings": dict(settings)}, sort_keys=True)
    save_file(parts, folder / SENSES_FILE, metadata={"senses": about})


def has_senses(folder: str | Path) -> bool:
    return (Path(folder) / SENSES_FILE).is_file()


def open_senses(folder: str | Path) -> SavedSenses:
    """Read what `save_senses` wrote.

    Raises:
        InputError: there are no senses in this folder, or the file is damaged.
    """
    path = Path(folder) / SENSES_FILE
    if not path.is_file():
        raise InputError(f"no {SENSES_FILE} in this folder; calque pretrain --senses writes one", path=folder)
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["senses"])
            settings = about["settings"]
            tables = [
                _table({name: file.get_tensor(f"{k}.{name}") for name in (*_KEPT, "senses")})
                for k in range(int(about["tables"]))
            ]
        if not tables or not isinstance(settings, dict):
            raise ValueError("no tables, or no settings")
    except Exception as error:  # whatever a damaged file provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not the senses of a language model ({reason})", path=path) from error
    return SavedSenses(tables, settings)


def _table(parts: dict[str, Tensor]) -> SenseTable:
    senses, dim = parts.pop("senses"), parts["weight"].shape[1]
    axes = parts["projection"].shape[1]
    with torch.random.fork_rng(devices=[]):  # a table begins at random
        table = SenseTable(senses.numpy(), dim, axes=axes, queue=axes)
    table.load_state_dict(parts, strict=False)  # all but the queue, which the file does not hold
    return table
