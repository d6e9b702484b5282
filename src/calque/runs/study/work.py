"""What is done in a step, in whatever process."""

from __future__ import annotations

import json
import os
from pathlib import Path

from calque.runs.steps import Step


# -- the work, in whatever process -----------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.runs.texts import Words
    from calque.runs.words import link_words

    link_words(
        step.files[0], langs=tuple(step.settings["langs"]), out=folder / "links.align",
        words=Words(**step.settings["words"]),
    )  # fmt: skip


def _align(step: Step, folder: Path) -> None:
    from calque.runs.align import align
    from calque.runs.texts import Words

    settings = dict(step.settings)
    langs = [tuple(pair) for pair in settings.pop("langs")]
    named = {name: settings.pop(name) for name in ("encoder", "method", "towards")}
    words, load = Words(**settings.pop("words")), {k: settings.pop(k) for k in ("layer", "pooling") if k in settings}
    encoder = step.files[len(langs)] if len(step.files) > len(langs) else named["encoder"]
    links = [str(Path(place) / "links.align") for place in step.after]
    align(
        step.files[: len(langs)], langs=langs, encoder=encoder, method=named["method"], towards=named["towards"],
        out=folder, links=links, words=words, load=load, options=settings, overwrite=True,
    )  # fmt: skip


def _score(step: Step, folder: Path) -> None:
    from calque.runs.evaluate import evaluate
    from calque.runs.meaning import disambiguate, lexicon
    from calque.runs.texts import Words
    from calque.runs.transfer import TASKS, transfer

    settings = dict(step.settings)
    task, seeds = settings.pop("task"), settings.pop("seeds")
    if task in TASKS:
        files = iter(step.files)
        train, test, dev = ([f"{lang}={next(files)}" for lang in part] for part in settings["langs"])
        known = ("tune", "select", "rename", "pretokenized", "limit", "on_error")
        training = ("epochs", "batch", "learning_rate", "patience")
        scores = transfer(
            _encoder(step), task, train=train, test=test, dev=dev, seeds=seeds,
            **{k: settings[k] for k in known if k in settings},
            options={k: settings[k] for k in training if k in settings},
            head={k: settings[k] for k in ("head", "hidden", "layers", "dropout", "unknown") if k in settings},
        )  # fmt: skip
    elif task == "wsd":
        first, tests, _ = map(len, settings["langs"])
        scores = disambiguate(_encoder(step), train=step.files[0], test=step.files[first : first + tests])
    elif task == "lexicon":
        scores = lexicon(_encoder(step), test=step.files[0], langs=tuple(settings["langs"]))
    else:
        names = ("candidates", "similarity", "contextual", "method")
        scores = evaluate(
            _encoder(step), task, test=step.files[0], langs=tuple(settings["langs"]),
            train=step.files[1] if settings.get("train") else None,
            words=Words(**{"pretokenized": task == "word-alignment", **settings["words"]}),
            options={k: settings[k] for k in names if k in settings},
        )  # fmt: skip
    text = json.dumps([score.to_dict() for score in scores], ensure_ascii=False, indent=1)
    (folder / "scores.json").write_text(text + "\n", encoding="utf-8")


def _encoder(step: Step) -> str:
    """Of a finished step, of a local folder, or by its name."""
    if step.after:
        return step.after[0]
    local = [file for file in step.files if os.path.isfile(os.path.join(file, "config.json"))]
    return local[0] if local else step.settings["encoder"]


WORK = {"links": _link, "align": _align, "score": _score}
