"""A study from its TOML file, checked before anything is run."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from calque.alignment import METHODS
from calque.corpora.languages import name_and_path
from calque.errors import InputError, SettingError
from calque.named import imported, is_path
from calque.runs.align import STARTS
from calque.runs.study.options import (
    LOADED,
    OF_ENCODER,
    OF_METHOD,
    PARTS,
    PRETRAINING,
    TOP,
    from_text,
    of_method,
    of_start,
    of_supervision,
    of_task,
    of_words,
)
from calque.runs.study.plan import BASE, KINDS, OWN, Study, is_for, learns, listed, users
from calque.runs.study.values import Files, check, check_value, no_repetition, of
from calque.tasks.table import TASKS


def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file.

    Raises:
        InputError: it cannot be read, or a key or value in it is not valid; the message names the key, what is there and
            what was expected.
    """
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise InputError(f"not a study that can be read ({reason})", path=path) from error
    for name in tables:
        if name not in TOP:
            raise InputError(f"unknown part {name!r} of a study, expected {', '.join(sorted(TOP))}", path=path)
    for name in ("encoders", "methods", "tasks"):
        if not tables.get(name):
            raise InputError(f"it has no {name}", path=path)
    try:
        check("", tables, TOP)
        study = Study(**{**tables, **_in_full(tables)}, folder=str(Path(path).resolve().parent))
        _check_study(study)
    except SettingError as error:
        raise InputError(str(error), path=path) from error
    return study


def _in_full(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a study without the short forms that the file may have."""
    encoders, methods = tables["encoders"], tables["methods"]
    if not isinstance(encoders, dict):
        no_repetition("encoders", [Path(name).name for name in encoders])
        encoders = {Path(name).name: name for name in encoders}
    if not isinstance(methods, dict):
        no_repetition("methods", methods)
        methods = {name: {} for name in methods}
    return {
        "encoders": {name: {"path": given} if isinstance(given, str) else given for name, given in encoders.items()},
        "methods": {name: given if name == BASE else _method(name, given) for name, given in methods.items()},
        "supervision": {name: {"kind": "parallel", **given} for name, given in tables.get("supervision", {}).items()},
        "tasks": {name: {"task": name, **given} for name, given in tables["tasks"].items()},
    }


def _method(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    settings = {"method": "rotation" if "start" in given else name, **given}
    if settings["method"] in list(STARTS):
        settings = {**settings, "start": settings["method"], "method": "rotation"}
    if isinstance(settings.get("supervision"), str):
        settings["supervision"] = [settings["supervision"]]
    return settings


def tested_on(study: Study, more: Sequence[str]) -> Study:
    """Add test files to a study, `TASK=FILE` or `TASK=LANG=FILE`, relative to the working directory."""
    tasks = {name: dict(given) for name, given in study.tasks.items()}
    for item in more:
        name, file = name_and_path(item)
        if name not in tasks or not isinstance(tasks[name]["test"], list):
            several = [name for name, given in tasks.items() if isinstance(given["test"], list)]
            raise SettingError(f"{item}: expected TASK=FILE, with one of the tasks {', '.join(several)}")
        lang, path = name_and_path(file)
        before = f"{lang}=" if lang else ""
        tasks[name]["test"] = [*tasks[name]["test"], before + os.path.abspath(path)]
    changed = replace(study, tasks=tasks)
    for name, given in tasks.items() if more else ():
        _check_task(changed, name, given)
    return changed


# -- checks: each raises a SettingError with the place in the file, and what was expected there --------------------------
def _check_study(study: Study) -> None:
    check("words", study.words, of_words())
    for name, given in study.encoders.items():
        _check_encoder(study, name, given)
    for name, given in study.supervision.items():
        _check_supervision(study, name, given)
    for name, given in study.methods.items():
        _check_method(study, name, given)
    for name, given in study.methods.items():
        _check_rows(study, f"methods.{name}", given)
    for name, given in study.tasks.items():
        _check_task(study, name, given)


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
    _check_entries(where, given)
    if kind != "parallel" and not given.get("texts"):
        raise SettingError(f'supervision {name!r} has no text for anchors: texts = {{ en = "en.txt.gz" }}')
    if not study.languages(given):
        raise SettingError(f'supervision {name!r} has no text: expected de = "train.en-de.tsv"')
    if kind != "parallel":
        _covered(study, f"supervision {name!r}", given["texts"], study.languages(given))
    for lang in study.languages(given):
        _check_other(study, where, lang)
        if study.towards not in (study.source, lang):
            fact = f"towards = {study.towards!r}, but {where} is between {study.source} and {lang}"
            raise SettingError(f"{fact}: expected {study.source!r}")


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
    if METHODS[method].trains or from_text(method) or is_path(method):
        _made(study, where, given)
    _check_views(study, where, given)


def _check_task(study: Study, name: str, given: Mapping[str, Any]) -> None:
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
    _check_rows(study, where, given)
    _check_entries(where, given)
    _check_rows_of_vectors(study, where, given)
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
    from calque.tasks.zeroshot import ZeroShot
    from calque.training.supervised import Supervised

    if issubclass(TASKS.load(task), ZeroShot):
        known = of(Supervised, "seed")
        _make(where, Supervised, {"epochs": 1, **{key: value for key, value in given.items() if key in known}})


def _check_entries(where: str, given: Mapping[str, Any]) -> None:
    entries = given.get("entries", [0])
    if len(entries) > 2 or (len(entries) == 2 and entries[0] >= entries[1]):
        raise SettingError(f"{where}.entries = {entries!r}, expected [first] or [first, end] with first < end")


def _make(where: str, kind: Any, settings: Mapping[str, Any]) -> Any:
    """Construct a class, which checks its settings."""
    try:
        return kind(**settings)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


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


def check_pretraining(name: str, given: Mapping[str, Any], source: str) -> None:
    """Check the table of an encoder that the study trains itself."""
    imported(f"{PRETRAINING}:check_pretraining")(name, given, source)


# -- methods that take an encoder of each language, and what rows of vectors are ----------------------------------------
def _made(study: Study, where: str, given: Mapping[str, Any]) -> Any:
    """Construct the class of a method with its settings."""
    without = (*OF_METHOD, *LOADED)
    settings = {key: value for key, value in given.items() if key not in without}
    return _make(where, METHODS.load(given["method"]), {"towards": study.towards, **settings})


def _check_views(study: Study, where: str, given: Mapping[str, Any]) -> None:
    """Complain of views that no encoder of the method can have."""
    for row, load in given.get("views", {}).items():
        if row in study.methods:
            raise SettingError(f"{where}.views.{row}: there is a method of that name")
        try:
            _made(study, where, given).rows(load)
        except SettingError as error:
            raise SettingError(f"{where}.views.{row}: {error}") from error


def _check_rows_of_vectors(study: Study, where: str, given: Mapping[str, Any]) -> None:
    """Complain of a task that is to be done on rows that it does not take, such as one on words on key points."""
    takes = TASKS.load(given["task"]).rows
    for name, method in study.methods.items():
        if name == BASE or not METHODS[method["method"]].of_each:
            continue
        if not any(is_for(method, encoder) and is_for(given, encoder) for encoder in study.encoders):
            continue
        for row, load in study.rows_of(name, method).items():
            if not is_for({"methods": given.get("methods")}, "", row):
                continue
            if (rows := _made(study, f"methods.{name}", method).rows(load)) not in takes:
                raise SettingError(
                    f"{where}: {given['task']} is on {takes[0]}, and row {row!r} of methods.{name} has {rows}: {where}.methods "
                    "names the rows that it is for"
                )
