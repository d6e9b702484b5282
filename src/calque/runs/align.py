"""Align an encoder with parallel text, dictionaries, plain text or released maps, and save it with
a model card.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment.base import Run
from calque.distributed import is_first
from calque.encoders.card_blocks import keep_user_text
from calque.encoders.folder import RUN_FILE, read_run
from calque.encoders.mapped import Combine
from calque.encoders.names import recorded_place
from calque.errors import InputError, SettingError
from calque.input_texts import Say, Words
from calque.runs.card import add_scores, recorded_scores, scores_of
from calque.runs.folder import TRAINING, check, writing
from calque.runs.reading import Wish
from calque.runs.settings import AlignSettings
from calque.runs.supervision import supervision_of
from calque.storage import finished

if TYPE_CHECKING:
    from calque.encoders import Encoder


@dataclass
class Aligned:
    """Result of a run that aligns an encoder."""

    encoder: Encoder
    folder: Path
    record: dict[str, Any] = field(default_factory=dict)


def align(
    settings: AlignSettings,
    *,
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    choose: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Align an encoder with parallel text, dictionaries, plain text in each language, or no
    translations at all (option `start`), or add released maps to the encoder.

    Args:
        settings: settings of the command. `out` is written only when the result is complete;
            interrupted training resumes from `.OUT.calque-part`.
        words: settings for tokenisation and word alignment.
        load: keyword arguments of `load_encoder` (layer, pooling, …). With parallel text, `layer`
            and `pooling` can be "auto", see `choose_reading`.
        choose: whether "auto" is the default of a layer and a pooling that the folder of the
            encoder does not record, if there is parallel text.
        options: options of the method. For maps, these are the options of `DictionaryMaps` and
            `Averaging`; with `start`, the maps are fitted without a dictionary.

    Returns:
        the encoder, its folder and a record. The record's key `failed` lists the languages and
        layers for which no map could be fitted without a dictionary; each failure also causes a
        warning.
    """
    from calque.encoders import load_encoder

    check(settings.out, overwrite=settings.overwrite)
    if settings.released:
        return _add_released(settings, load or {}, options or {})
    supervision = supervision_of(settings, options or {}, words, say)
    wish = supervision.wish(load, choose)
    with wish.loading():
        base = load_encoder(settings.encoder, alike=not supervision.of_each, **wish.load)
    with writing(settings.out, overwrite=settings.overwrite) as folder:
        started = time.perf_counter()
        run = Run(folder / TRAINING, settings.checkpoint_every, progress)
        data = supervision.prepared(base, run, say)
        base, reading = supervision.read(base, data, wish, run, say)
        begun = time.perf_counter()
        fitted = supervision.method.fit(base, data, run)
        record = {"towards": settings.towards, **supervision.record(data, fitted, say)}
        if reading is not None:
            record["reading"] = reading.record()
        seconds = {"method": round(time.perf_counter() - begun, 2)}
        if supervision.preparing:
            seconds = {supervision.preparing: round(begun - started, 2), **seconds}
        record["seconds"] = seconds
        save_result(
            fitted.encoder,
            folder,
            base,
            record,
            place=settings.encoder,
            keep_layers=settings.keep_layers,
        )
        scores = [score.to_dict() for score in scores_of(fitted.scores)]
        if scores and is_first():
            add_scores(folder, scores)
            record["scores"] = scores
    return Aligned(fitted.encoder, settings.out, record)


def save_result(
    aligned: Encoder,
    folder: Path,
    base: Encoder,
    record: dict[str, Any],
    *,
    place: str,
    keep_layers: bool = False,
) -> None:
    """Add the name, path, fingerprint and precision of `base`, the encoder before alignment, to the
    record. Then save the aligned encoder with its model card (only in the first of several
    processes).

    Args:
        place: name or path from which the base was loaded.
    """
    record |= {
        "encoder": base.name,
        "encoder_fingerprint": base.fingerprint,
        "encoder_precision": base.precision,
    }
    path = recorded_place(place, finished(folder))
    if path is not None:
        record["encoder_path"] = path
    if is_first():
        save_with_card(aligned, folder, record, keep_layers=keep_layers)


def save_with_card(
    encoder: Encoder, folder: Path, record: dict[str, Any], *, keep_layers: bool = False
) -> None:
    """Save an encoder with its model card, and add the kind of encoder and its vector settings to
    the record.
    """
    from calque.encoders import HuggingFaceEncoder
    from calque.encoders.card import write_card

    encoder.made = record
    if isinstance(encoder, HuggingFaceEncoder):
        encoder.save(folder, keep_layers=keep_layers)
    else:
        encoder.save(folder)
    # The `save` method of a class in another package may not write a card.
    if not (folder / RUN_FILE).is_file():
        write_card(folder, encoder, record)


# -- released maps ---------------------------------------------------------------------------------
def _add_released(
    settings: AlignSettings, load: Mapping[str, Any], options: Mapping[str, Any]
) -> Aligned:
    """Add the released maps that the settings name to an encoder, and save the result."""
    from calque.encoders import load_encoder

    base = load_encoder(settings.encoder, **Wish.of(load).without_choice().load)
    aligned, record = _released(base, settings.released or (), towards=settings.towards, **options)
    with writing(settings.out, overwrite=settings.overwrite) as folder:
        save_result(aligned, folder, base, record, place=settings.encoder)
    return Aligned(aligned, settings.out, record)


def _released(
    base: Any,
    folders: Sequence[str],
    *,
    towards: str,
    layers: Sequence[int] | None = None,
    combine: Combine = "last",
) -> tuple[Encoder, dict[str, Any]]:
    """Add released maps, such as the maps of Schuster et al. (2019), to an encoder, and return the
    encoder with a record. Each layer has its own folder, with a file `XX_best_mapping.pth` for each
    language XX."""
    from calque.alignment.maps import with_maps
    from calque.maps.released import read_released

    numbers = base.layer_numbers(layers or None)
    if len(numbers) != len(folders):
        raise SettingError(
            f"{len(folders)} folders of maps for {len(numbers)} layers; give one folder per layer"
        )
    maps: dict[str, dict[int, Any]] = {}
    files: list[str] = []
    for layer, folder in zip(numbers, map(Path, folders), strict=True):
        paths = sorted(folder.glob("?*_best_mapping.pth"))
        if not paths:
            raise InputError(
                "the folder has no file XX_best_mapping.pth, where XX is a language", path=folder
            )
        for path in paths:
            lang = path.name.removesuffix("_best_mapping.pth")
            loaded = read_released(path)
            maps.setdefault(lang, {})[layer] = loaded
            if loaded.matrix is None or loaded.matrix.shape != (base.dim, base.dim):
                shape = None if loaded.matrix is None else loaded.matrix.shape
                fact = (
                    f"the map has shape {shape}, but the vectors of the encoder have {base.dim} "
                    "dimensions"
                )
                raise InputError(fact, path=path)
            files.append(f"{folder.name}/{path.name}")
    settings = {"method": "released", "files": files}
    aligned = with_maps(base, maps, towards=towards, combine=combine, settings=settings)
    about = {"method": "released maps", "towards": towards, "langs": sorted(maps), "texts": []}
    return aligned, {**about, "settings": settings | {"layers": numbers}}


# -- adapters --------------------------------------------------------------------------------------
def merge(
    adapters: str, *, out: str | Path, keep_layers: bool = False, overwrite: bool = False
) -> Path:
    """Merge LoRA adapters into the weights of their encoder.

    Raises:
        SettingError: the folder contains no adapters, or they cannot be merged.
        OutputError: the folder that was written does not contain a complete encoder.
    """
    from calque.encoders.adapted import AdaptedEncoder
    from calque.encoders.checkpoint import check_complete
    from calque.encoders.loading import load_encoder

    encoder = load_encoder(adapters)
    if not isinstance(encoder, AdaptedEncoder):
        raise SettingError(
            f"{adapters} has no adapters to merge; expected a folder saved by calque align --lora"
        )
    with writing(out, overwrite=overwrite) as folder:
        plain, run = encoder.merged(), Path(adapters) / RUN_FILE
        if not run.is_file():
            plain.save(folder, keep_layers=keep_layers)
            check_complete(folder)
            return Path(out)
        record = read_run(adapters)
        scores = recorded_scores(record, run)
        record.pop("scores", None)
        save_with_card(plain, folder, record, keep_layers=keep_layers)
        keep_user_text(Path(adapters), folder)
        check_complete(folder)
        if scores:
            add_scores(folder, scores)
    return Path(out)
