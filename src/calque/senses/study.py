"""Encoders that a study trains itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from calque.corpora.languages import pair_of
from calque.errors import SettingError
from calque.runs.steps import Step
from calque.runs.study.plan import trainings
from calque.runs.study.values import Count, check, of
from calque.senses.pretrain import check_warmup, pretrain, settings_for

Types = dict[str, Any]
_BY_LANGUAGE = Mapping[str, str]
#: what a table of pretraining has beside settings of the language model
_READ = ("model", "texts", "apart", "pairs", "dictionaries", "preset", "senses", "limit", "pretokenized")
#: settings that are not of the language model's class
_BESIDE = ("held_out", "vocabulary", "half", "lower")


def of_pretraining(model: str) -> Types:
    """Settings of an encoder that the study trains."""
    from calque.senses.pretrain import PRESETS

    read = {
        "model": str, "texts": _BY_LANGUAGE, "apart": bool, "pairs": bool, "dictionaries": _BY_LANGUAGE, "limit": Count,
        "pretokenized": bool, "preset": Literal[tuple(PRESETS)], "senses": int | Mapping[str, Any], "held_out": int,
    }  # fmt: skip
    more = {"vocabulary": Count, "half": bool, "lower": bool} if model == "bert" else {}
    return {**of_model(model), **read, **more}


def of_model(model: str) -> Types:
    """Settings of the class of a language model."""
    return of(class_of_model(model), *(("start",) if model == "bert" else ()))


def class_of_model(model: str) -> type:
    """Return the class of a language model.

    Raises:
        SettingError: there is none of this name.
    """
    if model == "elmo":
        from calque.senses.bidirectional import BiLanguageModel

        return BiLanguageModel
    if model == "bert":
        from calque.senses.masked import MaskedLanguageModel

        return MaskedLanguageModel
    raise SettingError(f"unknown model {model!r} to pretrain, expected bert or elmo")


def of_senses() -> Types:
    """Settings of the senses of such an encoder."""
    from calque.senses.training import Senses

    return of(Senses)


def check_pretraining(name: str, given: Mapping[str, Any], source: str) -> None:
    """Check the table of an encoder that the study trains itself."""
    where = f"encoders.{name}.pretrain"
    if not given.get("texts"):
        raise SettingError(f'encoder {name!r} has no text to pretrain on: texts = {{ en = "en.txt.gz" }}')
    model = given.get("model", "bert")
    check(where, given, of_pretraining(model))
    if isinstance(given.get("senses"), Mapping):
        check(f"{where}.senses", given["senses"], of_senses())
    if given.get("apart") and given.get("pairs"):
        raise SettingError(f"{where}: apart and pairs exclude each other")
    if given.get("pairs") and (source not in given["texts"] or len(given["texts"]) < 2):
        raise SettingError(f"{where}.pairs: expected texts in {source}, the source language, and in another")
    dictionaries = given.get("dictionaries", {})
    if dictionaries and ("senses" not in given or given.get("apart")):
        raise SettingError(f"{where}: dictionaries translate the senses of languages that one encoder learns together")
    for name in dictionaries:
        if not any(pair_of(name, list(each.texts)) for each in trainings(given, source)):
            langs = (
                f"{source} and another of {', '.join(given['texts'])}"
                if given.get("pairs")
                else (f"two of {', '.join(given['texts'])}")
            )
            raise SettingError(f"{where}.dictionaries: {name!r} is not {langs}, expected en-de = FILE")
    _check_model(where, model, given)


def _check_model(where: str, model: str, given: Mapping[str, Any]) -> None:
    from calque.senses.bidirectional import BiLanguageModel
    from calque.senses.masked import MaskedLanguageModel

    options = {name: value for name, value in given.items() if name not in _READ}
    about = {"preset": given.get("preset"), "senses": given.get("senses"), "options": options}
    beside = _BESIDE if model == "bert" else _BESIDE[:1]
    try:
        settings = settings_for(model, langs=list(given["texts"]), translated=bool(given.get("dictionaries")), **about)
        kind = BiLanguageModel if model == "elmo" else MaskedLanguageModel
        check_warmup(kind(**{name: value for name, value in settings.items() if name not in beside}))
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def train(step: Step, folder: Path) -> list[dict[str, Any]]:
    """Train the encoder of a step into its folder, and return scores on what was held out."""
    options = dict(step.settings)
    model, langs, named = options.pop("model", "bert"), options.pop("langs"), options.pop("dictionaries", [])
    pairs = [pair for name in named if (pair := pair_of(name, langs)) is not None]
    dictionaries = list(zip(pairs, step.files.get("dictionary", []), strict=True))
    texts = list(zip(langs, step.files["text"], strict=True))
    how = {name: options.pop(name) for name in ("limit", "pretokenized", "preset", "senses") if name in options}
    record = pretrain(texts, out=folder, model=model, dictionaries=dictionaries, options=options, overwrite=True, **how)
    return record.get("scores", [])
