"""A folder with the senses that a language model has learnt, opened to look at them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch

from calque.encoders.checkpoint import weights_as
from calque.encoders.elmo import ElmoEncoder
from calque.encoders.elmo_files import file_pair
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import usable_device
from calque.encoders.sense_files import open_senses
from calque.errors import InputError, SettingError
from calque.pretraining.heads import Head, head_of
from calque.pretraining.sense_inventory import Join, matched, shared
from calque.pretraining.sense_reader import Direction, ElmoSenseReader, MaskedSenseReader, SenseReader
from calque.pretraining.words import Vocabulary


def open_sense_reader(
    folder: str | PathLike[str],
    *,
    direction: Direction | None = None,
    hidden: bool | None = None,
    join: Join | None = None,
    device: str | torch.device | None = None,
) -> SenseReader:
    """The senses that a language model in a folder has learnt, ready to be looked at.

    Args:
        folder: what `calque pretrain --senses` has made.
        direction, join: of an ELMo, see `ElmoSenseReader`; by default both, with the senses that they share, or if each was
            trained to select for itself, those that are `matched`.
        hidden: of a masked language model, see `MaskedSenseReader`.
        device: where the model is to be; None for a graphics card if there is one.

    Raises:
        InputError: a file is missing or damaged.
        SettingError: an option of the other kind of model.
    """
    path = Path(folder)
    tables, settings = open_senses(path)
    if file_pair(path) is not None and not (path / "config.json").is_file():
        if hidden is not None:
            raise SettingError(f"{path} is an ELMo, which reads words as they stand: there is nothing to hide")
        encoder, vocabulary = ElmoEncoder.open(path, device=device), Vocabulary.open(path)
        if len(tables) != 2 or any(table.n_words != len(vocabulary) for table in tables):
            raise InputError(f"senses of another vocabulary than that of {len(vocabulary):,} words here", path=path)
        if join is None:
            join = shared if settings.get("joint") else matched
        return ElmoSenseReader(encoder, tables, vocabulary, direction=direction or "both", join=join)
    if direction is not None or join is not None:
        raise SettingError(f"{path} is a masked language model, which reads in both directions at once: no --direction")
    if len(tables) != 1:
        raise InputError(f"{len(tables)} tables of senses, but a masked language model has one", path=path)
    encoder, head = _masked(path, device)
    if tables[0].dim != head.weight.shape[1]:
        raise InputError(f"senses of {tables[0].dim} dimensions, but a model of {head.weight.shape[1]}", path=path)
    return MaskedSenseReader(encoder, head.transform, tables[0], hidden=hidden is not False)


def _masked(path: Path, device: str | torch.device | None) -> tuple[HuggingFaceEncoder, Head]:
    """A masked language model's body as an encoder, and its head."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForMaskedLM.from_pretrained(
            str(path), **weights_as(torch.float32), output_loading_info=True
        )
        model, report = loaded
        tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
        head = head_of(model)
    except Exception as error:  # whatever a damaged folder provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not a masked language model with senses ({reason})", path=path) from error
    if head is None or report["missing_keys"] or tokenizer.mask_token_id is None:
        raise InputError("no head of a language model in this folder; calque pretrain saves one", path=path)
    model.to(usable_device(device)).eval()
    return HuggingFaceEncoder(model.base_model, tokenizer, name=path.resolve().name), head
