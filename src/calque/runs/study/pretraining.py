"""The encoders that a study trains itself: what its table of one stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calque.errors import SettingError
from calque.runs.pretrain import check_warmup, pair_of, settings_for
from calque.runs.study.options import of_pretraining, of_senses
from calque.runs.study.values import check

#: what a table says beside settings of the language model
_READ = ("model", "texts", "apart", "pairs", "dictionaries", "preset", "senses", "limit", "pretokenized")
#: settings that are not of the language model's class
_BESIDE = ("held_out", "vocabulary", "half", "lower")


@dataclass(frozen=True)
class Training:
    """One encoder to train.

    Attributes:
        texts: files by language.
        dictionaries: files by the languages of each, `en-de`.
        other: the language that it is for beside the source; None for all.
    """

    texts: Mapping[str, str]
    dictionaries: Mapping[str, str]
    other: str | None = None


def trainings(given: Mapping[str, Any], source: str) -> list[Training]:
    """The encoders to train with each seed: one of all languages, one of each, or one of each with the source.

    Args:
        given: the table.
        source: the study's source language.
    """
    texts, dictionaries = given["texts"], given.get("dictionaries", {})
    if given.get("apart"):
        return [Training({lang: file}, {}) for lang, file in texts.items()]
    if not given.get("pairs"):
        return [Training(texts, dictionaries)]
    found = []
    for lang in texts:
        if lang != source:
            some = {name: file for name, file in dictionaries.items() if pair_of(name, [source, lang])}
            found.append(Training({source: texts[source], lang: texts[lang]}, some, other=lang))
    return found


def seeds_of(encoder: Mapping[str, Any]) -> list[int]:
    """Seeds of an encoder's trainings."""
    return [encoder["pretrain"].get("seed", 0) + number for number in range(encoder.get("runs", 1))]


def check_pretraining(name: str, given: Mapping[str, Any], source: str) -> None:
    """Complain of a table by which no encoder can be trained.

    Args:
        name: of the encoder.
        given: its table.
        source: the study's source language.

    Raises:
        SettingError: with the key, what is there and what was expected.
    """
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
    _make(where, model, given)


def _make(where: str, model: str, given: Mapping[str, Any]) -> None:
    """Let the classes say whether they can have these settings."""
    from calque.pretraining.bidirectional import BiLanguageModel
    from calque.pretraining.masked import MaskedLanguageModel

    options = {name: value for name, value in given.items() if name not in _READ}
    about = {"preset": given.get("preset"), "senses": given.get("senses"), "options": options}
    beside = _BESIDE if model == "bert" else _BESIDE[:1]
    try:
        settings = settings_for(model, langs=list(given["texts"]), translated=bool(given.get("dictionaries")), **about)
        kind = BiLanguageModel if model == "elmo" else MaskedLanguageModel
        check_warmup(kind(**{name: value for name, value in settings.items() if name not in beside}))
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error
