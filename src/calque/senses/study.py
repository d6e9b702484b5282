"""Pretrain encoders as steps of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from calque.corpora.languages import pair_of
from calque.errors import SettingError
from calque.runs.steps import Step
from calque.runs.study.recipe import trainings
from calque.runs.study.values import Count, check, of
from calque.senses.pretrain import PRESETS, model_class, pretrain, settings_for
from calque.senses.training import Senses

_BY_LANGUAGE = Mapping[str, str]
# : value types of the keys in a table `[encoders.NAME.pretrain]`, except the settings of the
# language model
_READ: dict[str, Any] = {
    "model": str,
    "texts": _BY_LANGUAGE,
    "apart": bool,
    "pairs": bool,
    "dictionaries": _BY_LANGUAGE,
    "limit": Count,
    "pretokenized": bool,
    "preset": Literal[tuple(PRESETS)],
    "senses": int | Mapping[str, Any],
    "held_out": int,
}
#: keys that are passed to `pretrain` as arguments
_HOW = ("limit", "pretokenized", "preset", "senses", "held_out")


def check_pretraining(name: str, given: Mapping[str, Any], source: str) -> None:
    """Check the table `[encoders.NAME.pretrain]` in a study."""
    where = f"encoders.{name}.pretrain"
    if not given.get("texts"):
        raise SettingError(f'{where} has no texts, expected e.g. texts = {{ en = "en.txt.gz" }}')
    model = given.get("model", "bert")
    check(where, given, {**of(model_class(model), "start"), **_READ})
    if isinstance(given.get("senses"), Mapping):
        check(f"{where}.senses", given["senses"], of(Senses))
    if given.get("apart") and given.get("pairs"):
        raise SettingError(f"{where}: apart and pairs cannot be combined")
    if given.get("pairs") and (source not in given["texts"] or len(given["texts"]) < 2):
        raise SettingError(
            f"{where}: pairs needs texts in the source language {source} and in another language"
        )
    dictionaries = given.get("dictionaries", {})
    if dictionaries and ("senses" not in given or given.get("apart")):
        raise SettingError(f"{where}: dictionaries need senses, and cannot be combined with apart")
    for name in dictionaries:
        if not any(pair_of(name, list(each.texts)) for each in trainings(given, source)):
            langs = f"{source} and another of" if given.get("pairs") else "two of"
            raise SettingError(
                f"{where}.dictionaries: keys must name {langs} {', '.join(given['texts'])}, e.g. "
                f"en-de, got {name!r}"
            )
    options = {name: value for name, value in given.items() if name not in _READ}
    try:
        model_class(model)(
            **settings_for(
                model,
                preset=given.get("preset"),
                senses=given.get("senses"),
                langs=list(given["texts"]),
                translated=bool(dictionaries),
                options=options,
            )
        )
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def train(step: Step, folder: Path) -> list[dict[str, Any]]:
    """Pretrain the encoder of a step, and return its scores on held-out text."""
    options = dict(step.settings)
    model, langs, named = (
        options.pop("model", "bert"),
        options.pop("langs"),
        options.pop("dictionaries", []),
    )
    pairs = [pair for name in named if (pair := pair_of(name, langs)) is not None]
    dictionaries = list(zip(pairs, step.files.get("dictionary", []), strict=True))
    texts = list(zip(langs, step.files["text"], strict=True))
    how = {name: options.pop(name) for name in _HOW if name in options}
    record = pretrain(
        texts,
        out=folder,
        model=model,
        dictionaries=dictionaries,
        options=options,
        overwrite=True,
        **how,
    )
    return record["scores"]
