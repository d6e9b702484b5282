"""What is done in a step, in whatever process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calque.errors import SettingError
from calque.linking import Words
from calque.runs.steps import ENTRIES, LINKS, SCORES
from calque.storage import write_text


def _pretrain(settings: dict[str, Any], folder: Path) -> None:
    from calque.runs.pretrain import pretrain

    _write_scores(folder, pretrain(out=folder, overwrite=True, **settings).get("scores", []))


def _join(settings: dict[str, Any], folder: Path) -> None:
    from calque.encoders import load_encoder
    from calque.encoders.per_language import PerLanguage

    encoders = {lang: load_encoder(place) for lang, place in settings["encoders"].items()}
    PerLanguage(encoders, name=settings["name"], alike=False).save(folder)


def _link(settings: dict[str, Any], folder: Path) -> None:
    from calque.runs.words import link_words

    link_words(out=folder / LINKS, posteriors=True, **_with_words(settings))


def _take_entries(settings: dict[str, Any], folder: Path) -> None:
    """Write a part of a dictionary: the entries of source words number `first` to `end` in its own order, the frequent first."""
    from calque.corpora import read_dictionary
    from calque.tasks.lexicon import by_frequency

    first, *end = settings["entries"]
    part = by_frequency(
        read_dictionary(settings["dictionary"], langs=settings["langs"]), first, end[0] if end else None
    )
    if not part.source:
        raise SettingError(f"{settings['dictionary']} has no entries {settings['entries']}")
    lines = [f"{a}\t{b}\n" for a, b in zip(part.source, part.target, strict=True)]
    (folder / ENTRIES).write_text("".join(lines), encoding="utf-8")


def _average(settings: dict[str, Any], folder: Path) -> None:
    from calque.runs.anchors import make_anchors

    make_anchors(out=folder, encoder=",".join(settings.pop("encoder")), **settings)


def _align(settings: dict[str, Any], folder: Path) -> None:
    """Align on parallel text, on the anchors of words, or on text of each language."""
    from calque.runs.align import align

    encoder = ",".join(settings.pop("encoder"))
    done = align(encoder=encoder, out=folder, overwrite=True, **_with_words(settings))
    _write_scores(folder, done.record.get("scores", []))


def _score(settings: dict[str, Any], folder: Path) -> None:
    from calque.runs.evaluate import evaluate
    from calque.runs.realign import realign_on
    from calque.tasks.inputs import Inputs
    from calque.tasks.table import TASKS

    task, encoder, given, options = (settings.pop(name) for name in ("task", "encoder", "inputs", "options"))
    if "realign" in settings:
        given["realign"] = realign_on(**_with_words(settings.pop("realign")))
    if isinstance(options.get("base"), list):
        options["base"] = ",".join(options["base"])
    words = Words(**{"pretokenized": TASKS[task].pretokenized, **settings.pop("words")})
    translations = list(map(",".join, settings.pop("translations", ())))
    inputs = Inputs(task, words=words, **given)
    scores = evaluate(",".join(encoder), inputs, options=options, translations=translations, **settings)
    _write_scores(folder, [score.to_dict() for score in scores])


def _with_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "words": Words(**settings.get("words", {}))}


def _write_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    write_text(folder / SCORES, json.dumps(scores, ensure_ascii=False, indent=1) + "\n")


WORK = {
    "pretrain": _pretrain, "join": _join, "links": _link, "entries": _take_entries, "anchors": _average,
    "align": _align, "fit": _align, "plain": _align, "score": _score,
}  # fmt: skip
