"""What a study may say, and what goes together in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from calque.errors import SettingError
from calque.named import is_path
from calque.runs.dictionary import STARTS
from calque.runs.study.key_points import check_rows, check_views
from calque.runs.study.options import (
    OF_ENCODER,
    PARTS,
    check_entries,
    make_method,
    make_training,
    of_method,
    of_start,
    of_supervision,
    of_task,
    of_words,
)
from calque.runs.study.plan import BASE, KINDS, OWN, Study, learns, listed, users
from calque.runs.study.pretraining import check_pretraining
from calque.runs.study.realigning import check_realign
from calque.runs.study.values import Files, check, check_value, no_repetition
from calque.tasks.table import TASKS


def check_study(study: Study) -> None:
    """Complain of a study that cannot be done.

    Raises:
        SettingError: with the place in the file, and what was expected there.
    """
    check("words", study.words, of_words())
    for name, given in study.encoders.items():
        _check_encoder(study, name, given)
    for name, given in study.supervision.items():
        _check_supervision(study, name, given)
    if study.towards == "target" and study.together:
        raise SettingError('towards = "target" aligns each language pair separately: set together = false')
    for name, given in study.methods.items():
        _check_method(study, name, given)
    for name, given in study.methods.items():
        _check_rows(study, f"methods.{name}", given)
    for name, given in study.tasks.items():
        check_task(study, name, given)


def _check_encoder(study: Study, name: str, given: Mapping[str, Any]) -> None:
    check(f"encoders.{name}", given, OF_ENCODER)
    no_repetition(f"encoders.{name}.layers", given.get("layers", []))
    if ("path" in given) == ("pretrain" in given):
        raise SettingError(f"encoder {name!r}: expected either a path or what to pretrain it on")
    if "path" in given:
        if "runs" in given:
            raise SettingError(f"encoders.{name}.runs: a path stands for one encoder, runs are of what is pretrained")
        if any(part.endswith("=") for part in given["path"].split(",")):
            raise SettingError(f"encoders.{name}.path = {given['path']!r}: a language has no encoder")
        return
    check_pretraining(name, given["pretrain"], study.source)


def _check_supervision(study: Study, name: str, given: Mapping[str, Any]) -> None:
    where, kind = f"supervision.{name}", given["kind"]
    if kind not in KINDS:
        raise SettingError(f"supervision {name!r} is of kind {kind!r}, expected {', '.join(KINDS)}")
    options = of_supervision(kind)
    langs = [lang for lang in given if lang not in OWN] if kind != "text" else []
    check(where, given, {**options, **dict.fromkeys(langs, str)})
    check_entries(where, given)
    if kind != "parallel" and not given.get("texts"):
        raise SettingError(f'supervision {name!r} has no text for anchors: texts = {{ en = "en.txt.gz" }}')
    if not study.languages(given):
        raise SettingError(f'supervision {name!r} has no text: expected de = "train.en-de.tsv"')
    if kind != "parallel":
        _covered(study, f"supervision {name!r}", given["texts"], study.languages(given))
    for lang in study.languages(given):
        _check_other(study, where, lang)
        if study.towards not in ("target", study.source, lang):
            raise SettingError(
                f"towards = {study.towards!r}, but {where} is between {study.source} and {lang}: expected "
                f"{study.source!r}, or 'target' with together = false"
            )


def _check_method(study: Study, name: str, given: Mapping[str, Any]) -> None:
    where = f"methods.{name}"
    if name == BASE:
        check(where, given, {})
        return
    method, every = given["method"], {method for kind in KINDS for method in users(kind)}
    check_value(f"{where}.method", method, str)
    check_value(f"{where}.supervision", given.get("supervision", "all"), Files)
    if method not in every and not is_path(method):
        raise SettingError(f"unknown method {method!r}, expected {', '.join(sorted(every))}")
    if "start" in given:
        check_value(f"{where}.start", given["start"], Literal[STARTS])
        check_value(f"{where}.method", method, Literal[users("dictionary")])
    if not study.supervisions(given):
        kinds = [kind for kind in KINDS if learns(given.get("start") or method, kind)]
        raise SettingError(
            f"method {name!r} has nothing to learn from: expected [supervision.NAME] with "
            f"kind = {' or '.join(map(repr, kinds))}"
        )
    for kind in {study.supervision[supervision]["kind"] for supervision in study.supervisions(given)}:
        check(where, given, of_method(given, kind), f"{where} with a supervision of kind {kind!r}")
    no_repetition(f"{where}.layers", given.get("layers", []))
    check(f"{where}.start_options", given.get("start_options", {}), of_start(given.get("start", "")))
    make_method(where, given, study.towards)
    check_views(study, where, given)


def check_task(study: Study, name: str, given: Mapping[str, Any]) -> None:
    where, task = f"tasks.{name}", given["task"]
    check_value(f"{where}.task", task, str)
    row = TASKS[task]
    if not given.get("test"):
        raise SettingError(f"task {name!r} has nothing to test on: test")
    by_language = row.languages == "pairs"
    if by_language != isinstance(given["test"], dict):
        what = 'a table by language, { de = "FILE" }' if by_language else "a list of files"
        raise SettingError(f"task {name!r}: test is {given['test']!r}, expected {what}")
    check(where, given, {"task": str, **of_task(task)})
    if "realign" in given:
        check_realign(study, where, given)
    _check_rows(study, where, given)
    check_entries(where, given)
    check_rows(study, where, given)
    if by_language:
        for lang in given["test"]:
            _check_other(study, f"{where}.test", lang)
        for part in PARTS:
            for lang in given.get(part, {}):
                if lang not in given["test"]:
                    raise SettingError(f"{where}.{part} names {lang}, in which there is no test")
        if given.get("texts"):
            _covered(study, f"task {name!r}", given["texts"], given["test"])
        return
    if "train" in row.files and not given.get("train"):
        raise SettingError(f"{where} has nothing to learn from: train")
    for part in PARTS:
        no_repetition(f"{where}.{part}", listed(given.get(part)))
        for file in listed(given.get(part)):
            lang, path = study.named(file)
            if not lang and row.lang is None:
                raise SettingError(f"{file}: give the language before the name, e.g. de={file}")
            if not os.path.basename(path):
                raise SettingError(f"{where}.{part} = {file!r}: no file after the language")
    for part in row.one:
        if len(listed(given[part])) != 1:
            raise SettingError(f"{where}.{part}: {task} takes one file, got {len(given[part])}")
    make_training(where, task, given)


def _check_rows(study: Study, where: str, given: Mapping[str, Any]) -> None:
    """The encoders and methods that something is restricted to are among those that there are."""
    rows = [row for name, method in study.methods.items() for row in study.rows_of(name, method)]
    no_repetition("methods.*.views", rows)
    for kind, known in (("encoders", list(study.encoders)), ("methods", rows)):
        for each in listed(given.get(kind)):
            if each not in known:
                raise SettingError(f"{where}.{kind}: unknown {each!r}, expected {', '.join(known)}")


def _check_other(study: Study, where: str, lang: str) -> None:
    if lang == study.source:
        raise SettingError(f"{where}.{lang}: that is the source language; expected a text between it and another")


def _covered(study: Study, what: str, texts: Mapping[str, str], langs: Iterable[str]) -> None:
    missing = {study.source, *langs} - set(texts)
    if missing:
        raise SettingError(f"{what} has no texts in {', '.join(sorted(missing))}")
