"""A study from its file, and with further tests."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calque.corpora.languages import name_and_path
from calque.errors import InputError, SettingError
from calque.runs.dictionary import STARTS
from calque.runs.study.checks import check_study, check_task
from calque.runs.study.options import TOP
from calque.runs.study.plan import BASE, Study
from calque.runs.study.values import check, no_repetition


def read_study(path: str | Path) -> Study:
    """A study from a TOML file.

    Raises:
        InputError: it cannot be read, or something in it is not known.
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
        study = _of(tables, str(Path(path).resolve().parent))
        check_study(study)
    except SettingError as error:
        raise InputError(str(error), path=path) from error
    return study


def _of(tables: Mapping[str, Any], folder: str) -> Study:
    """Its tables in full, whatever short form they have in the file."""
    encoders, methods = tables["encoders"], tables["methods"]
    if not isinstance(encoders, dict):
        no_repetition("encoders", [Path(name).name for name in encoders])
        encoders = {Path(name).name: name for name in encoders}
    if not isinstance(methods, dict):
        no_repetition("methods", methods)
        methods = {name: {} for name in methods}
    full = {
        "encoders": {name: {"path": given} if isinstance(given, str) else given for name, given in encoders.items()},
        "methods": {name: given if name == BASE else _method(name, given) for name, given in methods.items()},
        "supervision": {name: {"kind": "parallel", **given} for name, given in tables.get("supervision", {}).items()},
        "tasks": {name: {"task": name, **given} for name, given in tables["tasks"].items()},
    }
    return Study(**{**tables, **full}, folder=folder)


def tested_on(study: Study, more: Sequence[str]) -> Study:
    """A study with further test files, `TASK=FILE` or `TASK=LANG=FILE`, relative to where one is."""
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
        check_task(changed, name, given)
    return changed


def _method(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    settings = {"method": "rotation" if "start" in given else name, **given}
    if settings["method"] in list(STARTS):
        settings = {**settings, "start": settings["method"], "method": "rotation"}
    if isinstance(settings.get("supervision"), str):
        settings["supervision"] = [settings["supervision"]]
    return settings
