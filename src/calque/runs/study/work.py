"""What is done in a step, in whatever process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calque.errors import SettingError
from calque.runs.steps import Step
from calque.runs.study.options import PARTS

LINKS, ENTRIES, SCORES = "links.align", "entries.tsv", "scores.json"


# -- encoders --------------------------------------------------------------------------------------------------------
def _pretrain(step: Step, folder: Path) -> None:
    from calque.runs.pretrain import pair_of, pretrain

    options = dict(step.settings)
    model, langs, named = options.pop("model", "bert"), options.pop("langs"), options.pop("dictionaries", [])
    pairs = [pair for name in named if (pair := pair_of(name, langs)) is not None]
    dictionaries = list(zip(pairs, step.files.get("dictionary", []), strict=True))
    texts = list(zip(langs, step.files["text"], strict=True))
    how = {name: options.pop(name) for name in ("limit", "pretokenized", "preset", "senses") if name in options}
    record = pretrain(texts, out=folder, model=model, dictionaries=dictionaries, options=options, overwrite=True, **how)
    _write_scores(folder, record.get("scores", []))


def _join(step: Step, folder: Path) -> None:
    from calque.encoders import load_encoder
    from calque.encoders.per_language import PerLanguage

    langs = step.settings["langs"]
    encoders = {lang: load_encoder(place) for lang, place in zip(langs, step.after["encoder"], strict=True)}
    PerLanguage(encoders, name=step.settings["name"], alike=False).save(folder)


# -- alignment -------------------------------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.linking import Words
    from calque.runs.words import link_words

    langs, words = tuple(step.settings["langs"]), Words(**step.settings["words"])
    link_words(step.files["text"][0], langs=langs, out=folder / LINKS, words=words, posteriors=True)


def _entries(step: Step, folder: Path) -> None:
    """A part of a dictionary: the entries of source words number `first` to `end` in its own order, the frequent first."""
    from calque.corpora import read_dictionary
    from calque.tasks.lexicon import by_frequency

    first, *end = step.settings["entries"]
    dictionary = read_dictionary(step.files["dictionary"][0], langs=tuple(step.settings["langs"]))
    part = by_frequency(dictionary, first, end[0] if end else None)
    if not part.source:
        raise SettingError(f"{step.files['dictionary'][0]} has no entries {step.settings['entries']}")
    lines = [f"{a}\t{b}\n" for a, b in zip(part.source, part.target, strict=True)]
    (folder / ENTRIES).write_text("".join(lines), encoding="utf-8")


def _align(step: Step, folder: Path) -> None:
    from calque.linking import Words
    from calque.runs.align import align

    options = dict(step.settings)
    options.pop("encoder", None)
    langs, words = [tuple(pair) for pair in options.pop("langs")], Words(**options.pop("words"))
    load = {**options.pop("load"), **{name: options.pop(name) for name in ("layer", "pooling") if name in options}}
    done = align(
        step.files["text"], langs=langs, encoder=encoder_of(step), method=options.pop("method"),
        towards=options.pop("towards"), out=folder, links=[str(Path(place) / LINKS) for place in step.after["links"]],
        words=words, load=load, options=options, overwrite=True,
    )  # fmt: skip
    _write_scores(folder, done.record.get("scores", []))


def _anchors(step: Step, folder: Path) -> None:
    from calque.runs.anchors import make_anchors

    options = dict(step.settings)
    options.pop("encoder", None)
    make_anchors(step.files["text"], encoder=encoder_of(step), out=folder, **options)


def _fit(step: Step, folder: Path) -> None:
    from calque.runs.dictionary import align_dictionary

    options = dict(step.settings)
    options.pop("encoder", None)
    langs, texts = [tuple(pair) for pair in options.pop("langs")], options.pop("texts")
    align_dictionary(
        [str(Path(place) / ENTRIES) for place in step.after.get("dictionary", ())], langs=langs, encoder=encoder_of(step),
        anchors=[f"{lang}={place}" for lang, place in zip(texts, step.after["anchors"], strict=True)], out=folder,
        overwrite=True, **options,
    )  # fmt: skip


def _train(step: Step, folder: Path) -> None:
    from calque.runs.sense_alignment import align_senses

    options = dict(step.settings)
    options.pop("encoder", None)
    langs, texts = [tuple(pair) for pair in options.pop("langs")], options.pop("texts")
    load = {**options.pop("load"), **{name: options.pop(name) for name in ("layer", "pooling") if name in options}}
    read = {name: options.pop(name) for name in ("limit", "pretokenized") if name in options}
    align_senses(
        [str(Path(place) / ENTRIES) for place in step.after["dictionary"]], langs=langs, encoder=encoder_of(step),
        texts=[f"{lang}={file}" for lang, file in zip(texts, step.files["text"], strict=True)],
        method=options.pop("method"), towards=options.pop("towards"), out=folder, load=load, options=options,
        overwrite=True, **read,
    )  # fmt: skip


def _plain(step: Step, folder: Path) -> None:
    from calque.runs.text_alignment import align_text

    options = dict(step.settings)
    options.pop("encoder", None)
    options.pop("langs")
    texts = zip(options.pop("texts"), step.files["text"], strict=True)
    load = {**options.pop("load"), **{name: options.pop(name) for name in ("layer", "pooling") if name in options}}
    read = {name: options.pop(name) for name in ("limit", "pretokenized") if name in options}
    align_text(
        [f"{lang}={file}" for lang, file in texts], encoder=encoder_of(step), method=options.pop("method"),
        towards=options.pop("towards"), out=folder, load=load, options=options, overwrite=True, **read,
    )  # fmt: skip


# -- tasks -----------------------------------------------------------------------------------------------------------
def _score(step: Step, folder: Path) -> None:
    from calque.linking import Words
    from calque.runs.evaluate import evaluate
    from calque.runs.study.realigning import realignment_of
    from calque.tasks.inputs import Inputs
    from calque.tasks.table import TASKS

    options, files = dict(step.settings), step.files
    options.pop("encoder", None)
    if "base" in step.after or "base" in files:
        options["base"] = encoder_of(step, "base")
    task, load, langs = options.pop("task"), options.pop("load"), options.pop("langs")
    row = TASKS[task]
    read = {name: options.pop(name) for name in ("pretokenized", "limit") if name in options}
    words = Words(**{"pretokenized": row.pretokenized, **options.pop("words", {}), **read})
    if row.languages == "pairs":
        texts = [f"{lang}={file}" for lang, file in zip(langs, files["text"], strict=True)] if files.get("text") else ()
        given: dict[str, Any] = {part: files.get(part, ()) for part in PARTS} | {"text": texts, "langs": [tuple(langs)]}
        if "altered" in files:
            lang, (file,) = options.pop("altered"), files["altered"]
            given["altered"] = f"{lang}={file}" if lang else file
    else:
        given = {part: _texts(step, part, row.lang or "") for part in PARTS if part in row.files}
        given |= {"first_senses": files["first_senses"][0]} if files.get("first_senses") else {}
    if "realign" in options:
        given["realign"] = realignment_of(step, Words(**options.pop("realign")["words"]), LINKS)
    inputs = Inputs(task, words=words, test_limit=options.pop("test_limit", None), **given)
    both = iter(files.get("translations", ()))
    translations = [
        f"{lang}={file},{next(both)}" for lang, file in zip(options.pop("translations", ()), both, strict=False)
    ]
    scores = evaluate(encoder_of(step), inputs, options=options, load=load, translations=translations)
    _write_scores(folder, [score.to_dict() for score in scores])


def _write_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    (folder / SCORES).write_text(json.dumps(scores, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def encoder_of(step: Step, role: str = "encoder") -> str:
    """A finished step's folder, or what `load_encoder` takes: local files and folders by their place, others by name."""
    if role in step.after:
        return step.after[role][0]
    local = iter(step.files[role])
    named = [(lang, next(local) if name is None else name) for lang, name in step.settings[role]]
    return ",".join(f"{lang}={where}" if lang else where for lang, where in named)


def _texts(step: Step, part: str, usual: str = "") -> list[str]:
    """Files with their languages, where these are known."""
    langs = [lang or usual for lang in step.settings["langs"][part]]
    return [f"{lang}={file}" if lang else file for lang, file in zip(langs, step.files[part], strict=True)]


WORK = {
    "pretrain": _pretrain, "join": _join, "links": _link, "entries": _entries, "anchors": _anchors,
    "align": _align, "fit": _fit, "train": _train, "plain": _plain, "score": _score,
}  # fmt: skip
