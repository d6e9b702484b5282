"""Read and write `calque.json`, list the kinds of encoders, and save folders atomically."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, Protocol

from calque.encoders.card_blocks import keep_user_text
from calque.encoders.sentence_folders import MODULES_FILE, static_folder
from calque.errors import InputError, SettingError
from calque.named import Table, is_path
from calque.storage import (
    JsonObject,
    check_links,
    check_temporary,
    json_text,
    part_of,
    read_json_object,
    readable,
    remove,
    temporary_folder,
)

ABOUT_FILE, RUN_FILE = "calque.json", "calque-run.json"
ADAPTERS_FILE = "adapter_config.json"  # written by PEFT
#: subfolder for the model of an encoder whose vectors other programs cannot compute, such as an
#: encoder with maps; the outer folder has no config.json, so other programs cannot open it by
#: mistake and compute vectors without maps
BASE_FOLDER = "base"
ELMO_FILES = "options.json", "weights.hdf5"  # in the format of bilm-tf and AllenNLP
#: folders of the bundled encoders, keyed by name
BUNDLED = {"mini": Path(__file__).parent.parent / "data" / "mini"}
# increased with every change that older versions would misread; a file without a format number has
# format 1, and a file without the keys of a later format is written with format 1
FORMAT = 2
_KEYS_OF_FORMAT_2 = {"folded", "only"}
OWN = "own"  # kind of an encoder whose class cannot be imported by name
ENCODER_MARKS = (ABOUT_FILE, "config.json", "options.json", ADAPTERS_FILE)
#: files that identify the content of a folder as an encoder or another result; they are moved last
#: and removed first
MARKS = (RUN_FILE, *ENCODER_MARKS, MODULES_FILE)


# -- types of the values in `calque.json` and `calque-run.json` ------------------------------------
def _is(value_type: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, value_type)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list_of(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


_NUMBERS = ("layer", "max_length", "dim", "seed", "beam")
_SWITCHES = ("cut", "own_pooling", "bidirectional", "lower", "normalise", "unit")
_TEXTS = (
    "name",
    "base",
    "base_fingerprint",
    "fingerprint",
    "towards",
    "combine",
    "pooling",
    "precision",
    "folded",
    "only",
    "identifier",
)
#: keys of `calque.json`, with a test of their values and its description
_ABOUT_VALUES: tuple[tuple[tuple[str, ...], Callable[[object], bool], str], ...] = (
    (_NUMBERS, _is_whole, "a whole number"),
    (("scale", "threshold"), _is_number, "a finite number"),
    (_SWITCHES, _is(bool), "true or false"),
    (_TEXTS, _is(str), "text"),
    (("settings", "maps", "tables", "parts", "adapted"), _is(dict), "an object"),
    (("langs",), _is_list_of(_is(str)), "a list of names"),
    (("layers", "standardized"), _is_list_of(_is_whole), "a list of whole numbers"),
    (("mix", "sentence"), _is_list_of(_is_number), "a list of finite numbers"),
)
_CAN_BE_NULL = ("max_length", "bidirectional", "mix", "sentence", "settings")
#: keys of `calque-run.json`, with the types of their values and their description
_RUN_VALUES: tuple[tuple[tuple[str, ...], UnionType, str], ...] = (
    (
        ("method", "encoder", "encoder_path", "encoder_fingerprint", "towards", "kind", "calque"),
        str | None,
        "text",
    ),
    (("settings", "schedule", "counts", "seconds", "vectors"), dict | None, "an object"),
    (("texts", "langs", "scores", "files"), list | None, "a list"),
)
# null is read as a missing value
_NOT_NULL = ("settings", "counts", "seconds", "texts", "langs", "scores", "files")


@dataclass(frozen=True)
class Kind:
    """A kind of encoder in `calque.json`. `target` names its class as `package.module:Class`;
    `Class.open` loads the folder. `help` describes it in messages, and `options` are the arguments
    of `open` that other kinds do not have."""

    target: str
    help: str = ""
    options: tuple[str, ...] = ()


#: kinds of encoders by name; a class from another package is a kind named `package.module:Class`
ENCODERS: Table[Kind] = Table(
    "kind of encoder",
    {
        "huggingface": Kind(
            "calque.encoders.huggingface:HuggingFaceEncoder", "a Transformers model"
        ),
        "adapters": Kind(
            "calque.encoders.adapted:AdaptedEncoder", "LoRA adapters of a Transformers model"
        ),
        "mapped": Kind(
            "calque.encoders.mapped:MappedEncoder", "an encoder with maps of its layers"
        ),
        "static": Kind(
            "calque.encoders.static:StaticEncoder", "static word vectors, with or without maps"
        ),
        "subwords": Kind(
            "calque.encoders.subword_vectors:SubwordVectors", "static subword vectors"
        ),
        "elmo": Kind("calque.senses.elmo:ElmoEncoder", "an ELMo model"),
        "per-language": Kind(
            "calque.encoders.per_language:PerLanguage", "an encoder for each language"
        ),
        "key-points": Kind(
            "calque.clcr.encoder:KeyPointEncoder",
            "a key-point encoder",
            ("steps", "delta", "translations", "pretokenized"),
        ),
        "random": Kind(
            "calque.encoders.random_vectors:RandomVectors", "a random vector for each word type"
        ),
    },
    base="calque.encoders.base:Encoder",
    row_of=lambda name, _: Kind(name),
)


def encoder_kind(encoder: object) -> str:
    """Return the kind of an encoder in `calque.json`: a name in `ENCODERS`, `package.module:Class`
    or `OWN`.
    """
    target = f"{type(encoder).__module__}:{type(encoder).__qualname__}"
    for name, row in ENCODERS.items():
        if row.target == target:
            return name
    can_be_imported = is_path(target) and not target.startswith("__main__:")
    return target if can_be_imported else OWN


def open_folder(place: str | PathLike[str], *, alike: bool = True, **options: Any) -> Any:
    """Open an encoder from a folder, from files in another format, or from the Hugging Face hub.

    Args:
        alike: see `PerLanguage`; ignored for other kinds of encoders.
        options: arguments that the caller passed to `load_encoder`.
    """
    path = Path(place)
    about = read_about(path)
    class_name = about["kind"] if about else _kind_by_files(path, place)
    if class_name == "huggingface":
        _check_adapters(path, (path / "config.json").is_file())
    if class_name in ENCODERS.rows:  # a user's class has options of its own
        supported = set(ENCODERS[class_name].options)
        for row in ENCODERS.rows.values():
            wrong = options.keys() & set(row.options) - supported
            if wrong:
                raise SettingError(
                    f"{', '.join(sorted(wrong))} does not apply to {place}, only to {row.help}"
                )
    if class_name == "per-language" and not alike:
        options["alike"] = False
    return ENCODERS.load_from_file(class_name, place).open(place, about=about, **options)


def _kind_by_files(path: Path, place: str | PathLike[str]) -> str:
    """Return the kind of an encoder without `calque.json`, which is a name in `ENCODERS`."""
    pair = file_pair(path)
    if path.is_file() and pair is None:
        return "static"
    if pair is not None and not (path / "config.json").is_file():
        return "elmo"
    if (path / ADAPTERS_FILE).is_file():
        return "adapters"
    if static_folder(place) is not None:
        return "subwords"
    return "huggingface"


def _check_adapters(path: Path, plain: bool) -> None:
    """Check that no adapters would be ignored in the folder of a transformers model; `plain` is
    true if there is a model.
    """
    if (path / ADAPTERS_FILE).is_file():
        fact = (
            f"{ABOUT_FILE} describes an encoder without adapters, but there is a file "
            f"{ADAPTERS_FILE}"
        )
        raise InputError(f"{fact}; remove one of the two files", path=path)
    inside = [] if plain else sorted(file.parent.name for file in path.glob(f"*/{ADAPTERS_FILE}"))
    if inside:
        fact = f"this folder has adapters only in its subfolders ({', '.join(inside)})"
        raise InputError(f"{fact}; give one of the subfolders", path=path)


def file_pair(path: Path) -> tuple[Path, Path] | None:
    """Return the options file and the weights file of an ELMo model, or None for other paths.

    Args:
        path: folder with both files, or the weights file `NAME_weights.hdf5`, whose options are in
            `NAME_options.json`.
    """
    if path.is_dir():
        pair = path / ELMO_FILES[0], path / ELMO_FILES[1]
        return pair if all(file.is_file() for file in pair) else None
    if path.suffix not in (".hdf5", ".h5"):
        return None
    return path.with_name(path.stem.replace("weights", "options") + ".json"), path


def holds_encoder(folder: Path) -> bool:
    """Return whether a folder seems to contain an encoder."""
    return any((folder / name).is_file() for name in ENCODER_MARKS)


def read_about(folder: str | PathLike[str]) -> JsonObject:
    """Return the content of `calque.json`, or an empty dictionary if there is no such file."""
    path = Path(folder) / ABOUT_FILE
    if not path.is_file():
        return {}
    about = read_json_object(path, "this file was not written by calque")
    if "kind" not in about:
        raise InputError('this file was not written by calque: it has no key "kind"', path=path)
    format, kind = about.get("format", FORMAT), about["kind"]
    if not isinstance(format, int) or not 0 < format <= FORMAT:
        fact = (
            f"format must be at most {FORMAT}, got {format!r:.60}; is the file from a later "
            "version of calque?"
        )
        raise InputError(fact, path=path)
    if not isinstance(kind, str) or kind not in ENCODERS:
        raise InputError(
            f"unknown kind {kind!r:.60}; is the file from a later version of calque?", path=path
        )
    _check_values(about, path)
    return about


def _check_values(about: JsonObject, path: Path) -> None:
    """Check the types of the values that calque's own kinds of encoders write; other kinds may use
    the same keys freely.
    """
    if any(is_path(str(about.get(name, ""))) for name in ("kind", "base")):
        return
    for names, is_right, expected in _ABOUT_VALUES:
        for name in names:
            value = about.get(name)
            if name not in about or (value is None and name in _CAN_BE_NULL):
                continue
            if not is_right(value):
                fact = (
                    f"{name} must be {expected}, got {value!r:.60}; restore the file as calque "
                    "wrote it"
                )
                raise InputError(fact, path=path)


def read_run(folder: str | PathLike[str]) -> JsonObject:
    """Return the content of `calque-run.json`, or an empty dictionary if there is no such file.

    Raises:
        InputError: the file was not written by calque, or a value has the wrong type.
    """
    path = Path(folder) / RUN_FILE
    if not path.is_file():
        return {}
    record = read_json_object(path, "this file was not written by calque")
    _check_run(record, path)
    return {
        name: value for name, value in record.items() if value is not None or name not in _NOT_NULL
    }


def _check_run(record: JsonObject, path: Path) -> None:
    """Check the types of the values in `calque-run.json`."""
    for names, types, expected in _RUN_VALUES:
        for name in names:
            if not isinstance(record.get(name), types):
                fact = (
                    f"{name} must be {expected}, got {record[name]!r:.60}; restore the file as "
                    "calque wrote it"
                )
                raise InputError(fact, path=path)
    for text in record.get("texts") or ():
        if not isinstance(text, dict) or not isinstance(text.get("langs", []), list):
            raise InputError(
                "texts must be a list of objects; restore the file as calque wrote it", path=path
            )


def write_about(folder: Path, kind: str, about: Mapping[str, object]) -> None:
    """Write `calque.json` with the kind of encoder and the settings that its class needs to open
    the folder.
    """
    format = 2 if _KEYS_OF_FORMAT_2 & about.keys() else 1
    head = {"kind": kind, "format": format}
    about = {**head, **about, **head}  # `head` comes first and overrides `about`
    text = json_text(about, undefined="refuse", indent=2)
    (folder / ABOUT_FILE).write_text(text + "\n", encoding="utf-8")


class HasCard(Protocol):
    """An encoder that may have a model card; see `Encoder.write_card`."""

    def write_card(self, folder: Path) -> None: ...


@contextmanager
def saving(folder: str | PathLike[str], encoder: HasCard | None = None) -> Iterator[Path]:
    """Yield a temporary folder for the files of an encoder, and move it to `folder` at the end of
    the block.

    A new folder is created atomically; in an existing folder, files are replaced one by one.
    Aligned encoders get a model card, in which the user's text of an existing card is kept.
    """
    folder = Path(folder).absolute()
    check_links(folder)
    place = part_of(folder, "saving")
    check_temporary(place)
    remove(place)
    part = temporary_folder(place, folder)
    try:
        yield part
        if encoder is not None:
            encoder.write_card(part)
        for file in part.rglob("*.safetensors"):
            readable(file)
        if folder.is_dir():
            keep_user_text(folder, part)
            move_into(part, folder)
        else:
            os.rename(part, folder)
    finally:
        remove(place)


def move_into(part: Path, folder: Path) -> None:
    """Move the contents of the folder `part` into `folder`, replacing files with the same names,
    and remove `part`.
    """
    ours = any((folder / name).is_file() for name in (RUN_FILE, ABOUT_FILE))
    for mark in MARKS:
        if ours or (part / mark).is_file():
            (folder / mark).unlink(missing_ok=True)
    names = os.listdir(part)
    # Files that mark the folder as an encoder come last, when everything else is in its place.
    names.sort(key=lambda name: len(MARKS) - MARKS.index(name) if name in MARKS else 0)
    for name in names:
        if (folder / name).is_dir() and (part / name).is_dir():
            move_into(part / name, folder / name)
        else:
            os.replace(part / name, folder / name)
    part.rmdir()
