"""The functions that run the steps of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calque.errors import SettingError
from calque.named import imported
from calque.runs.steps import SCORES, Step
from calque.runs.study.options import PRETRAINING
from calque.runs.study.recipe import LOADED, PARTS
from calque.storage import write_text

LINKS, ENTRIES = "links.align", "entries.tsv"


# -- encoders --------------------------------------------------------------------------------------------------------
def _pretrain(step: Step, folder: Path) -> None:
    _write_scores(folder, imported(f"{PRETRAINING}:train")(step, folder))


def _join(step: Step, folder: Path) -> None:
    from calque.encoders import load_encoder
    from calque.encoders.per_language import PerLanguage

    langs = step.settings["langs"]
    encoders = {lang: load_encoder(place) for lang, place in zip(langs, step.after["encoder"], strict=True)}
    PerLanguage(encoders, name=step.settings["name"], alike=False).save(folder)


# -- alignment -------------------------------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.input_texts import Words
    from calque.runs.settings import LinkSettings
    from calque.runs.words import link_words

    (text,), langs = step.files["text"], list(step.settings["langs"])
    how = LinkSettings(train=text, langs=langs, out=folder / LINKS, posteriors=True)
    link_words(how, words=Words(**step.settings["words"]))


def _entries(step: Step, folder: Path) -> None:
    """Write the entries of a dictionary's source words number `first` to `end`, in the order of the file."""
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
    """Align on parallel text, on dictionaries and the anchors of words, or on text of each language."""
    from calque.input_texts import Words
    from calque.runs.align import align

    options = {name: value for name, value in step.settings.items() if name != "encoder"}
    load = {**options.pop("load", {}), **{name: options.pop(name) for name in LOADED if name in options}}
    how = {name: options.pop(name) for name in ("method", "towards")}
    words = Words(**options.pop("words", {}), **_read(options))
    texts, named = step.files.get("text", ()), options.pop("texts", ())
    langs = [tuple(pair) for pair in options.pop("langs")]
    after = {role: [Path(place) for place in places] for role, places in step.after.items()}
    done = align(
        [f"{lang}={file}" for lang, file in zip(named, texts, strict=True)] if named and texts else texts,
        langs=langs if step.kind != "plain" else [],
        links=[str(place / LINKS) for place in after.get("links", ())],
        dictionaries=[str(place / ENTRIES) for place in after.get("dictionary", ())],
        anchors=[f"{lang}={place}" for lang, place in zip(named, after.get("anchors", ()), strict=False)],
        encoder=encoder_of(step), out=folder, overwrite=True, load=load, words=words, options=options, **how,
    )  # fmt: skip
    _write_scores(folder, done.record.get("scores", []))


def _anchors(step: Step, folder: Path) -> None:
    from calque.runs.anchors import make_anchors
    from calque.runs.settings import AnchorSettings

    named = {"most_occurrences": "occurrences"}
    options = {named.get(name, name): value for name, value in step.settings.items() if name != "encoder"}
    load, layers = options.pop("load", None), options.pop("layers", None)
    options |= {} if layers is None else {"layers": ",".join(map(str, layers))}
    text = list(step.files["text"])
    make_anchors(AnchorSettings(text=text, encoder=encoder_of(step), out=folder, **options), load=load)


def _read(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options.pop(name) for name in ("limit", "pretokenized") if name in options}


# -- tasks -----------------------------------------------------------------------------------------------------------
def _score(step: Step, folder: Path) -> None:
    from calque.input_texts import Words
    from calque.runs.evaluate import evaluate
    from calque.tasks.inputs import Inputs
    from calque.tasks.table import TASKS

    options, files = dict(step.settings), step.files
    options.pop("encoder", None)
    task, load, langs = options.pop("task"), options.pop("load"), options.pop("langs")
    row = TASKS[task]
    read = {name: options.pop(name) for name in ("pretokenized", "limit") if name in options}
    words = Words(**{"pretokenized": row.pretokenized, **options.pop("words", {}), **read})
    if row.languages == "pairs":
        texts = [f"{lang}={file}" for lang, file in zip(langs, files["text"], strict=True)] if files.get("text") else ()
        given: dict[str, Any] = {part: files.get(part, ()) for part in PARTS} | {"text": texts, "langs": [tuple(langs)]}
    else:
        given = {part: _texts(step, part, row.lang or "") for part in PARTS if part in row.files}
        given |= {"first_senses": files["first_senses"][0]} if files.get("first_senses") else {}
    inputs = Inputs(task, words=words, test_limit=options.pop("test_limit", None), **given)
    if langs := options.pop("translations", ()):
        first, second = files["translations"][::2], files["translations"][1::2]
        translations = [f"{lang}={a},{b}" for lang, a, b in zip(langs, first, second, strict=True)]
        load = {**load, "translations": translations, "pretokenized": words.pretokenized}
    scores = evaluate(encoder_of(step), inputs, options=options, load=load)
    _write_scores(folder, [score.to_dict() for score in scores])


def _write_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    write_text(folder / SCORES, json.dumps(scores, ensure_ascii=False, indent=1) + "\n")


def encoder_of(step: Step) -> str:
    """Return a finished step's folder, or the argument of `load_encoder`: a local path or a name."""
    if "encoder" in step.after:
        return step.after["encoder"][0]
    local = iter(step.files["encoder"])
    named = [(lang, next(local) if name is None else name) for lang, name in step.settings["encoder"]]
    return ",".join(f"{lang}={where}" if lang else where for lang, where in named)


def _texts(step: Step, part: str, usual: str = "") -> list[str]:
    """Return files with their languages, if known."""
    langs = [lang or usual for lang in step.settings["langs"][part]]
    return [f"{lang}={file}" if lang else file for lang, file in zip(langs, step.files[part], strict=True)]


WORK = {
    "pretrain": _pretrain, "join": _join, "links": _link, "entries": _entries, "anchors": _anchors,
    "align": _align, "fit": _align, "plain": _align, "score": _score,
}  # fmt: skip
