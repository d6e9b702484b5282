"""Functions that run the steps of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.named import imported
from calque.runs.steps import SCORES, Step
from calque.runs.study.recipe import PRETRAINING
from calque.storage import json_text, write_text

if TYPE_CHECKING:
    from calque.input_texts import Words
    from calque.tasks.inputs import Inputs

LINKS, ENTRIES = "links.align", "entries.tsv"


# -- encoders --------------------------------------------------------------------------------------
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


# -- alignment -------------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.input_texts import Words
    from calque.runs.settings import LinkSettings
    from calque.runs.words import link_words

    (text,), langs = step.files["text"], list(step.settings["langs"])
    settings = LinkSettings(train=text, langs=langs, out=folder / LINKS, posteriors=True)
    link_words(settings, words=_counting_from_0(Words(**step.settings["words"])))


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

    (path,), (first, *end) = step.files["dictionary"], step.settings["entries"]
    dictionary = read_dictionary(path, langs=tuple(step.settings["langs"]))
    part = by_frequency(dictionary, first, end[0] if end else None)
    if not part.source:
        raise SettingError(f"{path} has no entries in the range {step.settings['entries']}")
    pairs = zip(part.source, part.target, strict=True)
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    (folder / ENTRIES).write_text("".join(lines), encoding="utf-8")


def _align(step: Step, folder: Path) -> None:
    """Align an encoder with parallel text, with anchors (with or without dictionaries), or with
    text in each language.
    """
    from calque.input_texts import Words
    from calque.runs.align import align
    from calque.runs.settings import AlignSettings

    fields = dict(step.settings)
    words = _counting_from_0(Words(**fields.pop("words")))
    load, options = fields.pop("load"), fields.pop("options")
    fields.pop("encoder", None)
    # AlignSettings takes the languages as a flat list, like the option --langs.
    langs = [lang for pair in fields.pop("langs", ()) for lang in pair]
    fields["train" if step.kind == "align" else "text"] = list(step.files.get("text", ()))
    settings = AlignSettings(
        **fields,
        encoder=encoder_of(step),
        langs=langs,
        links=[f"{place}/{LINKS}" for place in step.after.get("links", ())],
        dictionary=[f"{place}/{ENTRIES}" for place in step.after.get("dictionary", ())],
        anchors=list(step.after.get("anchors", ())),
        out=folder,
        overwrite=True,
    )
    aligned = align(settings, words=words, load=load, options=options)
    _write_scores(folder, aligned.record.get("scores", []))


def _anchors(step: Step, folder: Path) -> None:
    from calque.runs.anchors import make_anchors
    from calque.runs.settings import AnchorSettings

    fields = {**step.settings, "encoder": encoder_of(step), "text": list(step.files["text"])}
    load = fields.pop("load")
    make_anchors(AnchorSettings(out=folder, **fields), load=load)


# -- tasks -----------------------------------------------------------------------------------------
def _score(step: Step, folder: Path) -> None:
    from calque.runs.evaluate import evaluate

    fields = dict(step.settings)
    fields.pop("encoder", None)
    load, options = fields.pop("load"), fields.pop("options")
    langs = fields.pop("translations", ())
    inputs = inputs_of(step.files, **fields)
    if langs:  # the files of translations alternate: source texts, then their translations
        files = step.files["translations"]
        pairs = zip(langs, files[::2], files[1::2], strict=True)
        translations = [f"{lang}={source},{target}" for lang, source, target in pairs]
        load = {**load, "translations": translations, "pretokenized": inputs.words.pretokenized}
    scores = evaluate(encoder_of(step), inputs, options=options, load=load)
    _write_scores(folder, [score.to_dict() for score in scores])


def inputs_of(
    files: Mapping[str, Sequence[str]], *, words: Mapping[str, Any], **settings: Any
) -> Inputs:
    """Return the inputs of a task from the files of its step. Files that no task reads, such as
    those of the encoder, are ignored.

    Args:
        files: paths by name, with at most one path for `first_senses`.
        words: fields of `Words`.
        settings: further fields of `Inputs`.
    """
    from calque.input_texts import Words
    from calque.tasks.inputs import FILES, Inputs

    fields: dict[str, Any] = {name: files[name] for name in FILES if files.get(name)}
    if "first_senses" in fields:  # the only field with a single path
        (fields["first_senses"],) = fields["first_senses"]
    return Inputs(words=Words(**words), **fields, **settings)


def _write_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    write_text(folder / SCORES, json_text(scores, ensure_ascii=False, indent=1) + "\n")


def encoder_of(step: Step) -> str:
    """Return the argument for `load_encoder`: the folder of a finished step, or comma-separated
    paths and hub names.
    """
    if "encoder" in step.after:
        return step.after["encoder"][0]
    paths = iter(step.files["encoder"])
    encoders = []
    for lang, name in step.settings["encoder"]:
        encoder = next(paths) if name is None else name  # None stands for the next local path
        encoders.append(f"{lang}={encoder}" if lang else encoder)
    return ",".join(encoders)


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
