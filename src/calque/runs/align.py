"""Align an encoder with parallel text, dictionaries, plain text or released maps, and save it with a model card."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment import METHODS
from calque.alignment.driver import make_method
from calque.corpora.by_name import name_of
from calque.corpora.languages import language_and_path, name_and_path
from calque.distributed import is_first
from calque.encoders.card_blocks import keep_user_text
from calque.encoders.folder import RUN_FILE, read_run
from calque.encoders.mapped import Combine
from calque.encoders.names import recorded_place
from calque.errors import InputError, SettingError
from calque.input_texts import Say, Words, check_pairs, read_languages, skipped
from calque.maps.dictionary import Normalisation
from calque.runs.anchors import open_folder
from calque.runs.card import add_scores, recorded_scores, scores_of
from calque.runs.folder import TRAINING, check, writing
from calque.runs.settings import AlignSettings, named_pairs
from calque.runs.words import links_of
from calque.storage import finished

if TYPE_CHECKING:
    from calque.alignment.dictionary import DictionaryMaps
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders import Encoder
    from calque.text import ParallelCorpus

IDENTICAL = "identical"  # initialises the map with words that are spelt the same in both languages
STARTS = (IDENTICAL, "distributions", "adversarial")
#: default values of the options for anchors, which `align` accepts in addition to the options of `map_method`
AVERAGING: dict[str, Any] = {"layers": None, "most": 50_000, "at_least": 1, "most_occurrences": None}


@dataclass
class Aligned:
    """Result of a run that aligns an encoder."""

    encoder: Encoder
    folder: Path
    record: dict[str, Any] = field(default_factory=dict)


def align(
    how: AlignSettings,
    *,
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Align an encoder with parallel text, dictionaries, plain text in each language, or no translations at all (option `start`),
    or add released maps to the encoder.

    Args:
        how: settings. `out` is written only when the result is complete; interrupted training resumes from `.OUT.calque-part`.
        words: settings for tokenisation and word alignment.
        load: keyword arguments of `load_encoder` (layer, pooling, …).
        options: options of the method. For maps, these are the options of `map_method` and `AVERAGING`; with `start`, the maps
            are fitted without a dictionary.

    Returns:
        the encoder, its folder and a record. The record's key `failed` lists the languages and layers for which no map could be
        fitted without a dictionary; each failure also causes a warning.
    """
    from calque.encoders import load_encoder

    options, load, towards, method = dict(options or {}), dict(load or {}), how.towards, how.method or ""
    check(how.out, overwrite=how.overwrite)
    base: Any
    if how.released:
        base = load_encoder(how.encoder, **load)
        aligned, record = _released(base, how.released, towards=towards, **options)
        with writing(how.out, overwrite=how.overwrite) as folder:
            leave(aligned, folder, base, record, place=how.encoder)
        return Aligned(aligned, how.out, record)
    files, langs = named_pairs(how.train or how.dictionary or (), how.langs or ())
    texts, links = how.text or [], how.links or []
    kind = "parallel" if how.train else "dictionary" if how.dictionary or "start" in options else "text"
    averaging = {name: options.pop(name, usual) for name, usual in AVERAGING.items()} if kind == "dictionary" else {}
    further: dict[str, Any] = {}
    if averaging:
        made: Any = map_method(method, towards=towards, **options)
    else:
        made, further = make_method(method, towards, options, kind)
    linked = kind == "parallel" and METHODS[method].needs_links
    words = Words(symmetrize=METHODS[method].symmetrize) if words is None else words
    if options.get("identical") and not files:
        raise SettingError("identical words can only be added to a dictionary, but no dictionary was given")
    if links and not linked:
        raise SettingError(f"{method} does not use word links; leave out --links")
    if links and len(links) != len(files):
        raise SettingError(f"expected one --links per text, got {len(links)} files of links for {len(files)} texts")
    corpora: Any = ()
    pairs: Any = ()
    wanted: dict[str, list[str]] = {}
    if kind == "parallel":
        corpora = words.read_all(files, langs)
        rows = []
        for path, corpus in zip(files, corpora, strict=True):
            if towards not in corpus.langs:
                raise SettingError(f"--towards {towards} is not a language of {path} ({', '.join(corpus.langs)})")
            about = {"path": name_of(path), "langs": list(corpus.langs), "sentence_pairs": len(corpus)}
            rows.append({**about, "unusable_lines": sum(corpus.skipped.values())})
    elif kind == "text":
        corpora, rows = _texts(method, towards, texts, words, say)
    else:
        pairs, wanted, rows = _dictionaries(files, langs, towards)
    base = load_encoder(how.encoder, alike=not METHODS[method].of_each, **load)
    with writing(how.out, overwrite=how.overwrite) as folder:
        started = time.perf_counter()
        if kind == "dictionary":
            folders = how.anchors or []
            corpora, sources = _anchors(base, wanted, texts, folders, words, averaging, progress=progress, say=say)
            rows += sources
        elif links:
            pairs = [words.open_pairs(path, corpus) for path, corpus in zip(links, corpora, strict=True)]
        elif linked:
            pairs = links_of(corpora, words, folder=folder / TRAINING, say=say, progress=progress)
        begun = time.perf_counter()
        if kind == "parallel":
            count = f", {sum(map(len, pairs)):,} word links" if linked else ""
            say(f"{method}: {sum(map(len, corpora)):,} sentence pairs{count}")
        run = {"folder": folder / TRAINING, "checkpoint_every": how.checkpoint_every, "progress": progress}
        aligned = made.align(base, corpora, pairs, **run, **further)
        record = {"towards": towards, "texts": rows, **({} if kind == "parallel" else {"langs": sorted(corpora)})}
        if kind == "dictionary":
            record |= _of_maps(made, method, options, averaging, files, say)
        else:
            record |= made.record() | {"method": method}
            read = {"pretokenized": words.pretokenized}
            model = "given links" if links else words.model
            linking = {"model": model, "symmetrize": words.symmetrize, "seed": words.seed, **read}
            record |= {"words": linking} if linked else read
        if kind == "parallel":
            warn_of_unused(record.get("counts", {}), record["settings"].get("max_words"), corpora)
            for row, found in zip(rows, pairs, strict=linked):
                row["word_pairs"] = len(found)
        prepared = {"dictionary": "anchors", "parallel": "words"}.get(kind)
        record["seconds"] = {} if prepared is None else {prepared: round(begun - started, 2)}
        record["seconds"]["method"] = round(time.perf_counter() - begun, 2)
        leave(aligned, folder, base, record, place=how.encoder, keep_layers=how.keep_layers)
        scores = [score.to_dict() for score in scores_of(made.held_out_scores())]
        if scores and is_first():
            add_scores(folder, scores)
            record["scores"] = scores
    return Aligned(aligned, how.out, record)


def leave(
    aligned: Encoder, folder: Path, base: Encoder, record: dict[str, Any], *, place: str, keep_layers: bool = False
) -> None:
    """Add the name, path, fingerprint and precision of `base`, the encoder before alignment, to the record. Then save the
    aligned encoder with its model card (only in the first of several processes).

    Args:
        place: name or path from which the base was loaded.
    """
    record |= {"encoder": base.name, "encoder_fingerprint": base.fingerprint, "encoder_precision": base.precision}
    if (path := recorded_place(place, finished(folder))) is not None:
        record["encoder_path"] = path
    if is_first():
        save_with_card(aligned, folder, record, keep_layers=keep_layers)


def save_with_card(encoder: Encoder, folder: Path, record: dict[str, Any], *, keep_layers: bool = False) -> None:
    """Save an encoder with its model card, and add the kind of encoder and its vector settings to the record."""
    from calque.encoders import HuggingFaceEncoder
    from calque.encoders.card import write_card

    encoder.made = record
    if isinstance(encoder, HuggingFaceEncoder):
        encoder.save(folder, keep_layers=keep_layers)
    else:
        encoder.save(folder)
    if not (folder / RUN_FILE).is_file():  # the `save` method of a class in another package may not write a card
        write_card(folder, encoder, record)


# -- methods -----------------------------------------------------------------------------------------------------------
def map_method(
    method: str = "rotation",
    *,
    towards: str,
    start: str | None = None,
    start_options: Mapping[str, Any] | None = None,
    normalise: Normalisation | None = None,
    identical: bool = False,
    refine: int = 5,
    held_out: float = 0.1,
    restarts: int = 3,
    combine: Combine = "last",
    seed: int = 0,
) -> DictionaryMaps:
    """Build a method that fits maps with or without a dictionary.

    Args:
        start: initialisation without a dictionary: identical, distributions or adversarial.
        start_options: options of the initialisation, see `calque.maps.unsupervised.start_options`.
        normalise: normalisation of the vectors (none, unit, centre, centre-unit or unit-centre-unit, see
            `fit_dictionary`); default: centre for normalized-rotation, otherwise unit, or unit-centre-unit without a dictionary.
        refine: number of refinement rounds.
        held_out: fraction of the dictionary that is held out for choosing the best round.
        restarts: maximum number of random initialisations to try.
        identical: add all words that are spelt the same in both languages to the dictionary.
        combine: how the mapped layers are combined: sum, mean, concat, or last (only the last layer).
        seed: random seed for the initialisation and for the choice of held-out entries.
    """
    from calque.alignment.dictionary import DictionaryMaps
    from calque.maps.refine import Refinement
    from calque.maps.unsupervised import check_start

    given: dict[str, Any] = {"refinement": Refinement(rounds=refine, held_out=held_out, seed=seed)}
    if normalise is not None:
        given["normalise"] = normalise
    if start is not None:
        check_start(start, start_options)
        given |= {"restarts": restarts, "seed": seed, "options": dict(start_options or {})}
    return DictionaryMaps(method, towards=towards, start=start, identical=identical, combine=combine, **given)


def warn_of_unused(counts: Mapping[str, Any], max_words: int | None, corpora: Sequence[ParallelCorpus]) -> None:
    """Warn about sentence pairs that training skips, except unusable lines, which were reported when the text was read."""
    unusable = sum(sum(corpus.skipped.values()) for corpus in corpora)
    reasons = {
        f"with more than {max_words} words on a side": counts.get("too_long", 0),
        "without a word link": counts.get("without_links", 0) - unusable,
    }
    unused = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n > 0)
    if unused and is_first():
        skipped(f"training skips some of the {sum(map(len, corpora)):,} sentence pairs: {unused}")


# -- text in each language, and dictionaries ---------------------------------------------------------------------------
def _texts(method: str, towards: str, files: Sequence[str], words: Words, say: Say) -> tuple[Any, list[dict[str, Any]]]:
    """Read plain text, and return the sentences of each language and the entries for the record."""
    named = [language_and_path(text) for text in files]
    langs = list(dict.fromkeys(lang for lang, _ in named))
    if towards not in langs or len(langs) < 2:
        raise SettingError(
            f"{method} needs text in {towards} and in another language, got {', '.join(langs)}; give --text for each language"
        )
    read = read_languages(named, pretokenized=words.pretokenized, limit=words.limit, say=say)
    paths = {lang: ", ".join(Path(path).name for other, path in named if other == lang) for lang in read}
    return read, [{"path": paths[lang], "langs": [lang], "sentences": len(text)} for lang, text in read.items()]


def _dictionaries(
    files: Sequence[str], langs: Sequence[tuple[str, str]], towards: str
) -> tuple[list[Dictionary], dict[str, list[str]], list[dict[str, Any]]]:
    """Return the dictionaries, the words of each language and the entries for the record. The words are in the order of the
    dictionaries, which later breaks ties between equally frequent words."""
    from calque.corpora import read_dictionary

    words: dict[str, dict[str, None]] = {lang: {} for lang in (towards, *(lang for pair in langs for lang in pair))}
    for a, b in langs:
        if towards not in (a, b):
            raise SettingError(f"--towards must be one of the languages {a} and {b}, got {towards}")
    pairs = list(langs) * (len(files) if len(langs) == 1 else 1)
    read, rows = [], []
    check_pairs(files, pairs if files else ())
    for path, pair in zip(files, pairs, strict=False):
        read.append(each := read_dictionary(path, langs=pair))
        rows.append({"path": Path(path).name, "langs": list(each.langs), "entries": len(each.source)})
        for lang, side in zip(each.langs, (each.source, each.target), strict=True):
            words[lang] |= dict.fromkeys(side)
    return read, {lang: list(known) for lang, known in words.items()}, rows


def _anchors(
    base: Encoder, wanted: Mapping[str, Sequence[str]], texts: Sequence[str], folders: Sequence[str], words: Words,
    averaging: Mapping[str, Any], *, progress: bool, say: Say,
) -> tuple[dict[str, dict[int, Anchors]], list[dict[str, Any]]]:  # fmt: skip
    """Return the anchors of each language, and the record entries for their texts and folders."""
    from calque.encoders.anchors import compute_anchors, frequent_words, table_anchors
    from calque.encoders.static import StaticEncoder

    most = averaging["most"]
    if isinstance(base, StaticEncoder):
        if texts or folders:
            say("--text and --anchors are ignored, because a static encoder already has one vector per word")
        return {lang: table_anchors(base, lang, most=most, also=also) for lang, also in wanted.items()}, []
    by_lang: dict[str, dict[int, Anchors]] = {}
    sources = []
    for folder in folders:
        lang, path = name_and_path(folder)
        found = open_folder(path, lang=lang, encoder=base)
        first = next(iter(found.values()))
        lang = first.lang or language_and_path(folder)[0]
        by_lang[lang] = found
        sources.append({"path": Path(path).name, "langs": [lang], "entries": len(first)})
    named = [language_and_path(text) for text in texts]
    if missing := [lang for lang in wanted if lang not in by_lang and lang not in dict(named)]:
        remedy = f"give --text {missing[0]}=FILE or --anchors {missing[0]}=DIR"
        raise SettingError(f"the word vectors of {missing[0]} must be averaged over a text; {remedy}")
    read = read_languages(named, pretokenized=words.pretokenized, limit=words.limit, say=say)
    numbers = base.layer_numbers(averaging["layers"])
    how = {name: averaging[name] for name in ("at_least", "most_occurrences")}
    for lang, text in read.items():
        if lang in wanted and lang not in by_lang:
            say(f"{lang}: anchors from {len(text):,} sentences")
            vocabulary = frequent_words(text, most, wanted[lang])
            by_lang[lang] = compute_anchors(base, text, numbers, vocabulary=vocabulary, progress=progress, **how)
    rows = [{"path": Path(path).name, "langs": [lang], "entries": len(read[lang])} for lang, path in named]
    return by_lang, sources + rows


def _of_maps(
    how: Any, method: str, options: Mapping[str, Any], averaging: Mapping[str, Any], dictionaries: Sequence[str], say: Say
) -> dict[str, Any]:  # fmt: skip
    """Return the record for maps fitted with or without dictionaries, and print the quality of each map."""
    fits = how.record()["settings"]["fits"]
    failed = []
    for lang, by_layer in fits.items():
        for layer, fit in by_layer.items():
            chosen, named = fit["rounds"][fit["best"]], f"{lang}, layer {layer}"
            line = f"{named}: {chosen['pairs']:,} pairs in round {fit['best']} of {len(fit['rounds']) - 1}"
            if chosen["held_out_p@1"] is not None:
                line += f", {100 * chosen['held_out_p@1']:.1f}% of the held-out words correct"
            say(line + (f", {fit['left_out']:,} entries without vectors skipped" if fit["left_out"] else ""))
            failed += [named] if fit.get("failed") else []
    unsupervised = "words spelt alike" if how.start == IDENTICAL else f"no dictionary ({how.start})"
    source = "a dictionary" if dictionaries else unsupervised
    settings = {"method": method, "start": how.start, "start_options": dict(options.get("start_options") or {}),
                "identical": how.identical, "combine": how.combine,
                **{name: averaging[name] for name in ("most", "at_least", "most_occurrences")}, "fits": fits}  # fmt: skip
    return {"method": f"{method} from {source}", "settings": settings, "failed": failed}


# -- released maps -----------------------------------------------------------------------------------------------------
def _released(
    base: Any, folders: Sequence[str], *, towards: str, layers: Sequence[int] | None = None, combine: Combine = "last"
) -> tuple[Encoder, dict[str, Any]]:
    """Add released maps, such as the maps of Schuster et al. (2019), to an encoder, and return the encoder with a record. Each
    layer has its own folder, with a file `XX_best_mapping.pth` for each language XX."""
    from calque.alignment.maps import with_maps
    from calque.maps.released import read_released

    numbers = base.layer_numbers(layers or None)
    if len(numbers) != len(folders):
        raise SettingError(f"{len(folders)} folders of maps for {len(numbers)} layers; give one folder per layer")
    maps: dict[str, dict[int, Any]] = {}
    files: list[str] = []
    for layer, folder in zip(numbers, map(Path, folders), strict=True):
        found = sorted(folder.glob("?*_best_mapping.pth"))
        if not found:
            raise InputError("the folder has no file XX_best_mapping.pth, where XX is a language", path=folder)
        for path in found:
            loaded = maps.setdefault(path.name.removesuffix("_best_mapping.pth"), {})[layer] = read_released(path)
            if loaded.matrix is None or loaded.matrix.shape != (base.dim, base.dim):
                shape = None if loaded.matrix is None else loaded.matrix.shape
                fact = f"the map has shape {shape}, but the vectors of the encoder have {base.dim} dimensions"
                raise InputError(fact, path=path)
            files.append(f"{folder.name}/{path.name}")
    settings = {"method": "released", "files": files}
    aligned = with_maps(base, maps, towards=towards, combine=combine, settings=settings)
    about = {"method": "released maps", "towards": towards, "langs": sorted(maps), "texts": []}
    return aligned, {**about, "settings": settings | {"layers": numbers}}


# -- adapters ------------------------------------------------------------------------------------------------------------
def merge(adapters: str, *, out: str | Path, keep_layers: bool = False, overwrite: bool = False) -> Path:
    """Merge LoRA adapters into the weights of their encoder.

    Raises:
        SettingError: the folder contains no adapters, or they cannot be merged.
        OutputError: the folder that was written does not contain a complete encoder.
    """
    from calque.encoders.adapted import AdaptedEncoder
    from calque.encoders.checkpoint import check_complete
    from calque.encoders.loading import load_encoder

    encoder = load_encoder(adapters)
    if not isinstance(encoder, AdaptedEncoder):
        raise SettingError(f"{adapters} has no adapters to merge; expected a folder saved by calque align --lora")
    with writing(out, overwrite=overwrite) as folder:
        plain, run = encoder.merged(), Path(adapters) / RUN_FILE
        if not run.is_file():
            plain.save(folder, keep_layers=keep_layers)
            check_complete(folder)
            return Path(out)
        record = read_run(adapters)
        scores = recorded_scores(record, run)
        record.pop("scores", None)
        save_with_card(plain, folder, record, keep_layers=keep_layers)
        keep_user_text(Path(adapters), folder)
        check_complete(folder)
        if scores:
            add_scores(folder, scores)
    return Path(out)
