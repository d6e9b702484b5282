"""Pretrain encoders as steps of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from calque.corpora.languages import pair_of
from calque.errors import SettingError
from calque.runs.steps import Step
from calque.runs.study.recipe import trainings
from calque.senses.pretrain import PRESETS, model_class, pretrain, settings_for
from calque.senses.training import Senses
from calque.spec import Count, check, types_of

_BY_LANGUAGE = Mapping[str, str]
#: value types of the keys in a table `[encoders.NAME.pretrain]`, except the settings of the
#: language model
_TYPES: dict[str, Any] = {
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
_ARGUMENTS = ("limit", "pretokenized", "preset", "senses", "held_out")


def check_pretraining(name: str, table: Mapping[str, Any], source: str) -> None:
    """Check the table `[encoders.NAME.pretrain]` in a study.

    Args:
        name: name of the encoder.
        table: content of the table.
        source: source language of the study.

    Raises:
        SettingError: a value is invalid.
    """
    where = f"encoders.{name}.pretrain"
    texts = table.get("texts")
    if not texts:
        raise SettingError(f'{where} has no texts, expected e.g. texts = {{ en = "en.txt.gz" }}')
    model, senses = table.get("model", "bert"), table.get("senses")
    check(where, table, {**types_of(model_class(model), "start"), **_TYPES})
    if isinstance(senses, Mapping):
        check(f"{where}.senses", senses, types_of(Senses))
    _check_runs(where, table, source)
    options = {key: value for key, value in table.items() if key not in _TYPES}
    try:
        settings = settings_for(
            model,
            preset=table.get("preset"),
            senses=senses,
            langs=list(texts),
            translated=bool(table.get("dictionaries")),
            options=options,
        )
        model_class(model)(**settings)  # checks the values
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def _check_runs(where: str, table: Mapping[str, Any], source: str) -> None:
    """Check which texts and dictionaries are used in which training run."""
    apart, pairs, texts = table.get("apart"), table.get("pairs"), table["texts"]
    if apart and pairs:
        raise SettingError(f"{where}: apart and pairs cannot be combined")
    if pairs and (source not in texts or len(texts) < 2):
        raise SettingError(
            f"{where}: pairs needs texts in the source language {source} and in another language"
        )
    dictionaries = table.get("dictionaries", {})
    if dictionaries and ("senses" not in table or apart):
        raise SettingError(f"{where}: dictionaries need senses, and cannot be combined with apart")
    # Each dictionary must be between two languages of a training run.
    runs = trainings(table, source)
    for name in dictionaries:
        if not any(pair_of(name, list(run.texts)) for run in runs):
            langs = f"{source} and another of" if pairs else "two of"
            raise SettingError(
                f"{where}.dictionaries: keys must name {langs} {', '.join(texts)}, e.g. en-de, "
                f"got {name!r}"
            )


def train(step: Step, folder: Path) -> list[dict[str, Any]]:
    """Pretrain the encoder of a step, and return its scores on held-out text."""
    options = dict(step.settings)
    model, langs = options.pop("model", "bert"), options.pop("langs")
    pairs = []  # languages of each dictionary; `pair_of` returns None for other languages
    for name in options.pop("dictionaries", []):
        pair = pair_of(name, langs)
        if pair is not None:
            pairs.append(pair)
    arguments = {name: options.pop(name) for name in _ARGUMENTS if name in options}
    record = pretrain(
        list(zip(langs, step.files["text"], strict=True)),
        out=folder,
        model=model,
        dictionaries=list(zip(pairs, step.files.get("dictionary", []), strict=True)),
        options=options,
        overwrite=True,
        **arguments,
    )
    return record["scores"]
