"""Alignment in the run that trains an encoder for a task, as a study says it: `realign = { when = "before" }`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.errors import SettingError
from calque.runs.steps import Step
from calque.runs.study.options import Types, options_of_method
from calque.runs.study.plan import Study
from calque.runs.study.values import check

if TYPE_CHECKING:
    from calque.linking import Words
    from calque.runs.realign import TextRealignment

TYPES: Types = {
    "supervision": str, "when": Literal["before", "during", "after"], "how": Literal["alternating", "summed"], "method": str,
    "towards": str, "weight": float, "options": Mapping[str, Any],
}  # fmt: skip


def check_realign(study: Study, where: str, task: Mapping[str, Any]) -> None:
    """Complain of a realignment that cannot be done.

    Raises:
        SettingError: with the place in the file, and what was expected there.
    """
    from calque.runs.realign import TextRealignment

    given, where = task["realign"], f"{where}.realign"
    check(where, given, TYPES)
    if not task.get("tune"):
        raise SettingError(f"{where}: an encoder is realigned in the run that trains it for the task: set tune = true")
    supervision_of(study, where, given)
    how = {name: value for name, value in given.items() if name not in ("supervision", "options")}
    options = given.get("options", {})
    try:
        TextRealignment(lambda: ((), ()), **how)
        check(f"{where}.options", options, options_of_method(given.get("method", "contrastive")))
        TextRealignment(lambda: ((), ()), **how, options=options)
    except SettingError as error:
        raise SettingError(str(error) if where in str(error) else f"{where}: {error}") from error


def supervision_of(study: Study, where: str, given: Mapping[str, Any]) -> str:
    """The name of the parallel text: the one that is named, or the only one.

    Raises:
        SettingError: there is none, or several of which none is named.
    """
    known = [name for name, texts in study.supervision.items() if texts["kind"] == "parallel"]
    name = given.get("supervision", known[0] if len(known) == 1 else None)
    if name not in known:
        said = "names none" if name is None else f"names {name!r}"
        raise SettingError(
            f"{where}.supervision {said}, expected one of parallel text: {', '.join(known) or 'there is none'}"
        )
    return name


def realignment_of(step: Step, words: Words, links: str) -> TextRealignment:
    """From a step's files; `links` is what the file with a text's links is called."""
    from calque.runs.realign import realign_on

    how = dict(step.settings["realign"])
    langs = [(source, target) for source, target in how.pop("langs")]
    how.pop("words")
    places = [str(Path(place) / links) for place in step.after["links"]]
    return realign_on(step.files["realign"], langs=langs, links=places, words=words, **how)
