"""What a study may say of methods that take an encoder of each language, and of rows that are key points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calque.alignment import METHODS
from calque.encoders.key_points import PIVOTS, STEPS, named_steps
from calque.errors import SettingError
from calque.runs.study.options import OF_VIEW
from calque.runs.study.plan import BASE, Study, is_for, listed
from calque.runs.study.values import check
from calque.tasks.table import TASKS


def check_views(study: Study, where: str, given: Mapping[str, Any]) -> None:
    """Complain of views that no encoder of the method can have.

    Raises:
        SettingError: with the place in the file.
    """
    learnt = named_steps(given["steps"]) if "steps" in given else STEPS
    for row, view in given.get("views", {}).items():
        here = f"{where}.views.{row}"
        if row in study.methods:
            raise SettingError(f"{here}: there is a method of that name")
        if not isinstance(view, str):
            check(here, view, OF_VIEW)
        load = study.rows_of("", {"views": {row: view}})[row]
        if load.get("steps") == PIVOTS:
            if "delta" in load:
                raise SettingError(f"{here}.delta does not apply to {PIVOTS}")
            continue
        try:
            steps = named_steps(load.get("steps"))
        except SettingError as error:
            raise SettingError(f"{here}: {error}, or {PIVOTS}") from error
        if steps is not None and learnt is not None and len(steps) > len(learnt):
            raise SettingError(f"{here}: {steps[-1]} is not learnt with {where}.steps = {given['steps']!r}")


def check_rows(study: Study, where: str, given: Mapping[str, Any]) -> None:
    """Complain of a task on words that is to be done on key points, and of pivots without translations of the tests.

    Raises:
        SettingError: with the row, and how the task leaves it out.
    """
    kind, pivot = TASKS.load(given["task"]), study.source if study.towards == "target" else study.towards
    tested = list(dict.fromkeys(study.named(file)[0] for file in listed(given["test"])))
    for lang, two in given.get("translations", {}).items():
        if lang not in tested:
            raise SettingError(f"{where}.translations names {lang}, in which there is no test")
        if len(two) != 2:
            raise SettingError(
                f"{where}.translations.{lang} = {two!r}, expected the file in {pivot} and that in {lang}"
            )
    for row, method, steps in _rows_of_key_points(study, given):
        others = f"{where}.methods names the rows that it is for"
        if "key points" not in kind.rows:
            raise SettingError(
                f"{where}: {given['task']} is on words, and row {row!r} of methods.{method} has key points: {others}"
            )
        if steps != PIVOTS or study.towards == "target":
            continue
        langs = [lang for lang in tested if lang not in ("", pivot)]
        missing = [lang for lang in langs if lang not in given.get("translations", {})]
        if missing or not langs:
            of = f" of the tests in {', '.join(missing)}" if missing else ""
            raise SettingError(f"{where}: row {row!r} of methods.{method} needs translations{of}, or {others}")


def _rows_of_key_points(study: Study, task: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a task that are key points: row, method and steps."""
    for name, method in study.methods.items():
        if name == BASE or not METHODS[method["method"]].of_each:
            continue
        if not any(is_for(method, encoder) and is_for(task, encoder) for encoder in study.encoders):
            continue
        for row, load in study.rows_of(name, method).items():
            steps = load.get("steps") or method.get("steps") or ",".join(STEPS)
            if "methods" in task and not is_for({"methods": task["methods"]}, "", row):
                continue
            if steps == PIVOTS or "extract" in steps:
                yield row, name, steps
