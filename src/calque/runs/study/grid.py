"""From the plan to steps: each names what it reads, so that it is done once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from calque.errors import SettingError
from calque.runs.steps import Step, Steps
from calque.runs.study.plan import Study

_OWN = {"langs", "limit", "pretokenized"}  # settings in a table of supervision that are not languages


# -- from the plan to steps ------------------------------------------------------------------------------------------
def groups(plan: Study, texts: Mapping[str, Any]) -> list[list[str]]:
    langs = [lang for lang in texts if lang not in _OWN]
    if not langs:
        raise SettingError('a supervision names no text: expected de = "train.en-de.tsv"')
    return [langs] if plan.together else [[lang] for lang in langs]


def linking(plan: Study, texts: Mapping[str, Any], lang: str) -> Step:
    settings = {"langs": [plan.source, lang], "words": _words(plan, texts)}
    return Step("links", settings, (plan.path(texts[lang]),))


def _words(plan: Study, texts: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: texts[name] for name in ("limit", "pretokenized") if name in texts}
    return {"symmetrize": "one-to-one", **plan.words, **given}


def aligning(plan: Study, steps: Steps, encoder: str, settings, texts, langs, links: Sequence[Step]) -> Step:
    about = {
        "encoder": encoder,
        "langs": [[plan.source, lang] for lang in langs],
        "towards": langs[0] if plan.towards == "target" else plan.towards,
        "words": _words(plan, texts),
        **settings,
    }
    files = tuple(plan.path(texts[lang]) for lang in langs)
    return Step("align", about, (*files, *_local(plan, encoder)), tuple(str(steps.place(step)) for step in links))


def _local(plan: Study, encoder: str) -> tuple[str, ...]:
    """The encoder's folder, whose content counts; a name on the hub stands for itself."""
    return (plan.path(encoder),) if os.path.exists(plan.path(encoder)) else ()


def scoring(plan: Study, steps: Steps, made: Step | str, settings: Mapping[str, Any], langs) -> list[Step]:
    """The steps of a task for one encoder: one, or one for each parallel test text."""
    encoder = made if isinstance(made, str) else str(steps.place(made))
    local = _local(plan, made) if isinstance(made, str) else ()
    about = {"encoder": encoder, "seeds": plan.seeds, **settings}
    after = () if isinstance(made, str) else (encoder,)
    if settings["task"] in ("retrieval", "word-alignment", "lexicon"):
        tests = {lang: file for lang, file in settings["test"].items() if langs is None or lang in langs}
        found = []
        for lang, test in tests.items():
            limit = {"limit": settings["limit"]} if "limit" in settings else {}
            own = {"langs": [plan.source, lang], "words": {**plan.words, **limit}}
            trained = settings.get("train", {}).get(lang)
            files = tuple(plan.path(file) for file in (test, trained) if file)
            found.append(Step("score", {**about, **own, "test": None, "train": bool(trained)}, (*files, *local), after))
        return found
    parts = [[plan.named(file) for file in settings.get(part, [])] for part in ("train", "test", "dev")]
    if langs is not None:
        parts[1] = [(lang, file) for lang, file in parts[1] if lang in (plan.source, *langs)]
    about |= {"train": None, "test": None, "dev": None, "langs": [[lang for lang, _ in part] for part in parts]}
    return [Step("score", about, (*(file for part in parts for _, file in part), *local), after)]
