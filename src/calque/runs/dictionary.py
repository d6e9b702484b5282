"""From a dictionary, or from none, and an encoder to a folder with the encoder and maps between its languages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora.languages import language_and_path, name_and_path
from calque.errors import SettingError
from calque.linking import Say, read_languages
from calque.runs.align import Aligned, leave
from calque.runs.anchors import open_folder
from calque.runs.folder import check, writing

if TYPE_CHECKING:
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders import Encoder

IDENTICAL = "identical"
STARTS = (IDENTICAL, "distributions", "adversarial")


def align_dictionary(
    dictionaries: Sequence[str] = (),
    *,
    langs: Sequence[tuple[str, str]],
    encoder: str,
    towards: str,
    out: str | Path,
    texts: Sequence[str] = (),
    anchors: Sequence[str] = (),
    start: str | None = None,
    start_options: Mapping[str, Any] | None = None,
    method: str = "rotation",
    normalise: str | None = None,
    identical: bool = False,
    refine: int = 5,
    held_out: float = 0.1,
    restarts: int = 3,
    layers: Sequence[int] | None = None,
    combine: str = "last",
    most: int = 50_000,
    at_least: int = 1,
    most_occurrences: int | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    load: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Fit a map for each language and layer on the anchors of words that translate each other.

    Arguments not listed here are the options of `calque align`.

    Args:
        dictionaries: files (MUSE's, XLing-Eval's), each between `towards` and another language; none for maps from
            nothing (`start`).
        langs: their languages, one pair for each file or one for all; without files, the pairs that shall be mapped.
        texts: plain text, one sentence a line, in every language (`de=de.txt` where the name does not say it), whose
            words get anchors. Static vectors need none.
        anchors: instead of texts, folders with anchors that `calque anchors` wrote for this encoder (`de=FOLDER`, or as
            they say themselves).
        start: without a dictionary: identical, distributions or adversarial.
        start_options: of that start, see `calque.maps.unsupervised.start_options`.

    Returns:
        the encoder, its folder and a record, whose `failed` names the languages (and layers) for which a map without a
        dictionary is not to be trusted; a warning says so, too.
    """
    from calque.alignment.dictionary import DictionaryMaps
    from calque.corpora import read_dictionary
    from calque.encoders import load_encoder
    from calque.maps.refine import Refinement
    from calque.maps.unsupervised import check_start

    options: dict[str, Any] = {"refinement": Refinement(rounds=refine, held_out=held_out, seed=seed)}
    if normalise is not None:
        options["normalise"] = normalise
    if start is not None:
        check_start(start, start_options)
        options |= {"restarts": restarts, "seed": seed, "options": dict(start_options or {})}
    options |= {"identical": identical, "combine": combine}
    how = DictionaryMaps(method, towards=towards, start=start, **options)
    check(out, overwrite=overwrite)
    if (start is None) != bool(dictionaries):
        raise SettingError("give dictionaries or an unsupervised start, not both")
    if identical and not dictionaries:
        raise SettingError("identical words are added to a dictionary, and there is none")
    if dictionaries and len(langs) not in (1, len(dictionaries)):
        raise SettingError(f"{len(dictionaries)} dictionaries but {len(langs)} pairs of --langs")
    pairs = list(langs) * (len(dictionaries) if dictionaries and len(langs) == 1 else 1)
    for a, b in pairs:
        if towards not in (a, b) or a == b:
            raise SettingError(f"--towards {towards} is not one of the languages {a} and {b}")
    read = [read_dictionary(path, langs=pair) for path, pair in zip(dictionaries, pairs, strict=bool(dictionaries))]
    base = load_encoder(encoder, **dict(load or {}))
    started = time.perf_counter()
    wanted = {
        lang: _words_of(read, lang) for lang in dict.fromkeys((towards, *(lang for pair in pairs for lang in pair)))
    }
    averages, sources = _anchors(
        base, wanted, texts, anchors, layers=layers, most=most, at_least=at_least, most_occurrences=most_occurrences,
        pretokenized=pretokenized, limit=limit, progress=progress, say=say,
    )  # fmt: skip
    averaged = time.perf_counter()
    aligned = how.align(base, averages, read)
    records = how.record()["settings"]["fits"]
    for lang, fits in records.items():
        for layer, fit in fits.items():
            say(f"{lang}, layer {layer}: {_told(fit)}")
    record = {
        "method": f"{method} from {_named(dictionaries, start)}",
        "towards": towards,
        "langs": sorted(wanted),
        "texts": [
            {"path": Path(path).name, "langs": list(pair), "entries": len(entries.source)}
            for path, pair, entries in zip(dictionaries, pairs, read, strict=bool(dictionaries))
        ] + sources,
        "settings": {"method": method, "start": start, "start_options": dict(start_options or {}),
                     "identical": identical, "combine": combine, "most": most, "at_least": at_least,
                     "most_occurrences": most_occurrences, "fits": records},
        "failed": [f"{lang}, layer {layer}" for lang, fits in records.items() for layer in fits if fits[layer].get("failed")],
        "seconds": {"anchors": round(averaged - started, 2), "maps": round(time.perf_counter() - averaged, 2)},
    }  # fmt: skip
    with writing(out, overwrite=overwrite) as folder:
        leave(aligned, folder, base, record)
    return Aligned(aligned, Path(out), record)


def _anchors(
    base: Encoder, wanted: Mapping[str, Sequence[str]], texts: Sequence[str], folders: Sequence[str], *, layers, most,
    at_least, most_occurrences, pretokenized, limit, progress: bool, say: Say,
) -> tuple[dict[str, dict[int, Anchors]], list[dict[str, Any]]]:  # fmt: skip
    """Anchors of each language, and where they come from, for the record."""
    from calque.encoders.anchors import compute_anchors, frequent_words, table_anchors
    from calque.encoders.static import StaticEncoder

    if isinstance(base, StaticEncoder):
        if texts or folders:
            say("static vectors already have one vector per word: the texts are not used")
        return {lang: table_anchors(base, lang, most=most, also=words) for lang, words in wanted.items()}, []
    by_lang: dict[str, dict[int, Anchors]] = {}
    sources = []
    for folder in folders:
        lang, path = name_and_path(folder)
        found = open_folder(path, lang=lang, encoder=base)
        lang = next(iter(found.values())).lang or language_and_path(folder)[0]
        by_lang[lang] = found
        sources.append({"path": Path(path).name, "langs": [lang], "entries": len(next(iter(by_lang[lang].values())))})
    named = [language_and_path(text) for text in texts]
    missing = [lang for lang in wanted if lang not in by_lang and lang not in dict(named)]
    if missing:
        raise SettingError(
            f"averaging word vectors needs text: give --text {missing[0]}=FILE or --anchors {missing[0]}=DIR"
        )
    read = read_languages(named, pretokenized=pretokenized, limit=limit, say=say)
    numbers = base.layer_numbers(layers)
    for lang, text in read.items():
        if lang in wanted and lang not in by_lang:
            say(f"{lang}: anchors from {len(text):,} sentences")
            words = frequent_words(text, most, wanted[lang])
            by_lang[lang] = compute_anchors(
                base, text, numbers, vocabulary=words, at_least=at_least, most_occurrences=most_occurrences,
                progress=progress,
            )  # fmt: skip
    sources += [{"path": Path(path).name, "langs": [lang], "entries": len(read[lang])} for lang, path in named]
    return by_lang, sources


def _words_of(dictionaries: Sequence[Dictionary], lang: str) -> list[str]:
    """A language's words in dictionaries, in their order: it decides between words that are equally frequent."""
    sides = [side for each in dictionaries for side in zip(each.langs, (each.source, each.target), strict=True)]
    return list(dict.fromkeys(word for language, words in sides if language == lang for word in words))


def _named(dictionaries: Sequence[str], start: str | None) -> str:
    if start == IDENTICAL:
        return "words spelt alike"
    return "a dictionary" if dictionaries else f"no dictionary ({start})"


def _told(fit: Mapping[str, Any]) -> str:
    """A map in a line of news."""
    chosen = fit["rounds"][fit["best"]]
    parts = [f"{chosen['pairs']:,} pairs in round {fit['best']} of {len(fit['rounds']) - 1}"]
    if chosen["held_out_p@1"] is not None:
        parts.append(f"{100 * chosen['held_out_p@1']:.1f}% of the held-out words right")
    if fit["left_out"]:
        parts.append(f"{fit['left_out']:,} entries without vectors skipped")
    return ", ".join(parts)
