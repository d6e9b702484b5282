"""From text of each language, dictionaries and an encoder to a folder with the encoder aligned by senses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment import METHODS
from calque.corpora.languages import language_and_path
from calque.errors import SettingError
from calque.linking import Say, read_languages
from calque.runs.align import Aligned, leave
from calque.runs.folder import TRAINING, check, writing

if TYPE_CHECKING:
    from calque.annotated import Dictionary


def align_senses(
    dictionaries: Sequence[str],
    *,
    langs: Sequence[tuple[str, str]],
    encoder: str,
    towards: str,
    out: str | Path,
    texts: Sequence[str],
    method: str = "senses",
    options: Mapping[str, Any] | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    load: Mapping[str, Any] | None = None,
    keep_layers: bool = False,
    checkpoint_every: int = 200,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Train an encoder further, on text of each language, with dictionaries for all that the languages have in common.

    Args:
        dictionaries: files (MUSE's, XLing-Eval's).
        langs: their languages, one pair for each file or one for all.
        encoder: hub name, folder or `mini`.
        towards: one of the languages.
        out: folder for the result, which appears when it is complete. Until then everything is in `.OUT.calque-part`; a training
            that was stopped goes on from what it finds there.
        texts: plain text, one sentence a line, in every language (`de=de.txt` where the name does not say it).
        method: one of `trained_with_dictionaries()`.
        options: keyword arguments of the method.
        pretokenized, limit: of the texts: words stand between spaces; read only so many lines.
        load: keyword arguments of `load_encoder`.
        keep_layers, checkpoint_every, overwrite, progress, say: see `calque.runs.align.align`.
    """
    from calque.corpora import read_dictionary
    from calque.encoders import load_encoder

    how = METHODS.load(method)(towards=towards, **dict(options or {}))
    check(out, overwrite=overwrite)
    if len(langs) not in (1, len(dictionaries)):
        raise SettingError(f"{len(dictionaries)} dictionaries but {len(langs)} pairs of --langs")
    pairs = list(langs) * (len(dictionaries) if len(langs) == 1 else 1)
    named = [language_and_path(text) for text in texts]
    for lang in dict.fromkeys(lang for pair in pairs for lang in pair):
        if lang not in dict(named):
            raise SettingError(f"{method} learns from text in every language: give --text {lang}=FILE")
    read = [read_dictionary(path, langs=pair) for path, pair in zip(dictionaries, pairs, strict=True)]
    corpora = read_languages(named, pretokenized=pretokenized, limit=limit, say=say)
    base = load_encoder(encoder, **dict(load or {}))
    with writing(out, overwrite=overwrite) as folder:
        started = time.perf_counter()
        aligned = how.align(
            base, corpora, read, folder=folder / TRAINING, checkpoint_every=checkpoint_every, progress=progress
        )
        record = how.record()
        say(_told(record["counts"]))
        record |= {
            "method": method,
            "towards": towards,
            "langs": sorted(corpora),
            "texts": _described(dictionaries, read)
            + [{"path": Path(path).name, "langs": [lang], "entries": len(corpora[lang])} for lang, path in named],
            "seconds": {"method": round(time.perf_counter() - started, 2)},
        }
        leave(aligned, folder, base, record, keep_layers=keep_layers)
    return Aligned(aligned, Path(out), record)


def _described(paths: Sequence[str], dictionaries: Sequence[Dictionary]) -> list[dict[str, Any]]:
    return [
        {"path": Path(path).name, "langs": list(dictionary.langs), "entries": len(dictionary)}
        for path, dictionary in zip(paths, dictionaries, strict=True)
    ]


def _told(counts: Mapping[str, Any]) -> str:
    """What was learnt from, in a line of news."""
    words = ", ".join(f"{lang} {n:,}" for lang, n in counts["translated_words"].items())
    return (
        f"words with a translation: {words} (those that are one subword); senses: {counts['senses']:,} of "
        f"{counts['subwords']:,} subwords, begun with the encoder's {counts['first_senses_from']}"
    )
