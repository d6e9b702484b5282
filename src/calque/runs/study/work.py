"""Functions that run the steps of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.named import imported
from calque.runs.steps import SCORES, Step
from calque.runs.study.values import PRETRAINING
from calque.storage import json_text, write_text

if TYPE_CHECKING:
    from calque.input_texts import Words

LINKS, ENTRIES = "links.align", "entries.tsv"


# -- encoders
# --------------------------------------------------------------------------------------------------
def _pretrain(step: Step, folder: Path) -> None:
    _write_scores(folder, imported(f"{PRETRAINING}:train")(step, folder))


def _join(step: Step, folder: Path) -> None:
    from calque.encoders import load_encoder
    from calque.encoders.per_language import PerLanguage

    langs = step.settings["langs"]
    encoders = {
        lang: load_encoder(place) for lang, place in zip(langs, step.after["encoder"], strict=True)
    }
    PerLanguage(encoders, name=step.settings["name"], alike=False).save(folder)


# -- alignment
# --------------------------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.input_texts import Words
    from calque.runs.settings import LinkSettings
    from calque.runs.words import link_words

    (text,), langs = step.files["text"], list(step.settings["langs"])
    how = LinkSettings(train=text, langs=langs, out=folder / LINKS, posteriors=True)
    link_words(how, words=_counting_from_0(Words(**step.settings["words"])))


def _counting_from_0(words: Words) -> Words:
    """Return the settings for links between steps. `one_based` in a study applies only to the
    user's own files of links.
    """
    return replace(words, one_based=False)


def _entries(step: Step, folder: Path) -> None:
    """Write the dictionary entries for the source words `first` to `end`, in the order of the
    file.
    """
    from calque.corpora import read_dictionary
    from calque.tasks.lexicon import by_frequency

    first, *end = step.settings["entries"]
    dictionary = read_dictionary(step.files["dictionary"][0], langs=tuple(step.settings["langs"]))
    part = by_frequency(dictionary, first, end[0] if end else None)
    if not part.source:
        raise SettingError(
            f"{step.files['dictionary'][0]} has no entries in the range {step.settings['entries']}"
        )
    lines = [f"{a}\t{b}\n" for a, b in zip(part.source, part.target, strict=True)]
    (folder / ENTRIES).write_text("".join(lines), encoding="utf-8")


def _align(step: Step, folder: Path) -> None:
    """Align an encoder with parallel text, with anchors (with or without dictionaries), or with
    text in each language.
    """
    from calque.input_texts import Words
    from calque.runs.align import align
    from calque.runs.settings import AlignSettings

    settings = dict(step.settings)
    about = {name: settings.pop(name) for name in ("words", "load", "options")}
    langs = [lang for pair in settings.pop("langs", ()) for lang in pair]
    kinds = {"links": f"/{LINKS}", "dictionary": f"/{ENTRIES}", "anchors": ""}
    made = {
        kind: [f"{place}{file}" for place in step.after.get(kind, ())]
        for kind, file in kinds.items()
    }
    texts = {"train" if step.kind == "align" else "text": list(step.files.get("text", ()))}
    settings |= {
        "encoder": encoder_of(step),
        "langs": langs,
        "out": folder,
        "overwrite": True,
        **texts,
        **made,
    }
    done = align(
        AlignSettings(**settings), **{**about, "words": _counting_from_0(Words(**about["words"]))}
    )
    _write_scores(folder, done.record.get("scores", []))


def _anchors(step: Step, folder: Path) -> None:
    from calque.runs.anchors import make_anchors
    from calque.runs.settings import AnchorSettings

    settings = {**step.settings, "encoder": encoder_of(step), "text": list(step.files["text"])}
    make_anchors(load=settings.pop("load"), how=AnchorSettings(out=folder, **settings))


# -- tasks
# --------------------------------------------------------------------------------------------------
def _score(step: Step, folder: Path) -> None:
    from calque.input_texts import Words
    from calque.runs.evaluate import evaluate
    from calque.tasks.inputs import FILES, Inputs

    settings = {**step.settings, "words": Words(**step.settings["words"])}
    settings.pop("encoder", None)
    load, options, langs = (
        settings.pop("load"),
        settings.pop("options"),
        settings.pop("translations", ()),
    )
    files: dict[str, Any] = {
        part: several for part, several in step.files.items() if part in FILES and several
    }
    if "first_senses" in files:
        (files["first_senses"],) = files["first_senses"]
    inputs = Inputs(**settings, **files)
    if langs:
        first, second = step.files["translations"][::2], step.files["translations"][1::2]
        translations = [f"{lang}={a},{b}" for lang, a, b in zip(langs, first, second, strict=True)]
        load = {**load, "translations": translations, "pretokenized": inputs.words.pretokenized}
    scores = evaluate(encoder_of(step), inputs, options=options, load=load)
    _write_scores(folder, [score.to_dict() for score in scores])


def _write_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    write_text(folder / SCORES, json_text(scores, ensure_ascii=False, indent=1) + "\n")


def encoder_of(step: Step) -> str:
    """Return the argument for `load_encoder`: the folder of a finished step, or comma-separated
    paths and hub names.
    """
    if "encoder" in step.after:
        return step.after["encoder"][0]
    local = iter(step.files["encoder"])
    named = [
        (lang, next(local) if name is None else name) for lang, name in step.settings["encoder"]
    ]
    return ",".join(f"{lang}={where}" if lang else where for lang, where in named)


WORK = {
    "pretrain": _pretrain,
    "join": _join,
    "links": _link,
    "entries": _entries,
    "anchors": _anchors,
    "align": _align,
    "fit": _align,
    "plain": _align,
    "score": _score,
}
