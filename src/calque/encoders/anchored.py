"""Anchors of an encoder's words, and maps between languages that are fitted on them."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.anchors import Anchors, AnchorSums
from calque.annotated import Dictionary
from calque.encoders.base import Encoder
from calque.encoders.mapped import Combine, MappedEncoder
from calque.encoders.static import StaticEncoder
from calque.errors import SettingError
from calque.text import Sentence, Sentences

if TYPE_CHECKING:
    from calque.maps import VectorMap
    from calque.maps.dictionary import DictionaryFit


def compute_anchors(
    encoder: Encoder,
    sentences: Iterable[Sentence],
    layers: Sequence[int] | None = None,
    *,
    at_least: int = 1,
    most: int | None = None,
    **options: Any,
) -> dict[int, Anchors]:
    """The mean vector of each word type of a text, by layer; the text is encoded a block at a time.

    Args:
        encoder: any.
        sentences: of one language.
        layers: layers by number, negative ones counted from the last; None for what `encode` gives, which is called
            by the encoder's own layer, or −1 if that is not one layer.
        at_least: occurrences below which a word is left out.
        most: keep only so many of the most frequent words.
        options: see `sum_anchors`.
    """
    return sum_anchors(encoder, sentences, layers, **options).finish(at_least=at_least, most=most)


def sum_anchors(
    encoder: Encoder,
    sentences: Iterable[Sentence],
    layers: Sequence[int] | None = None,
    *,
    vocabulary: Iterable[str] | None = None,
    most_occurrences: int | None = None,
    samples: int = 0,
    shard: tuple[int, int] = (0, 1),
    block: int = 2048,
    partial: str | PathLike[str] | None = None,
    save_every: float = 60.0,
    seed: int = 0,
    progress: bool = False,
) -> AnchorSums:
    """The sums that anchors are made of; those of several processes are joined with `merge`.

    A sentence that has no word still to be counted, because none is in the vocabulary or all came often enough, is not
    encoded at all: a dictionary's words need a part of the text.

    Args:
        encoder, sentences, layers: see `compute_anchors`.
        vocabulary, most_occurrences, samples, seed: see `AnchorSums`; a shard's seed is its own.
        shard: (k, n): take only the k-th of n parts of the text, from 0.
        block: sentences encoded at a time; what memory holds besides the sums.
        partial: keep the sums so far in this file; a call for the same encoder, text and settings goes on from there.
        save_every: seconds between two writings of that file.
        progress: show a bar on standard error.

    Raises:
        SettingError: sentences of several languages, layers that the encoder has not, or a `partial` of another pass.
    """
    text = _one_language(sentences)
    k, n = shard
    if not 0 <= k < n:
        raise SettingError(f"shard {k} of {n}: expected 0 to {n - 1}")
    text = text[k * len(text) // n : (k + 1) * len(text) // n]
    inner: Any = encoder
    if layers is None:
        numbers = [int(getattr(encoder, "layer", -1))]
    elif not hasattr(encoder, "encode_layers"):
        raise SettingError(f"{encoder.name} does not give its layers one by one: leave layers out")
    else:
        numbers = sorted({inner.layer_number(layer) for layer in layers})
    words = None if vocabulary is None else list(dict.fromkeys(vocabulary))
    sums = AnchorSums(
        encoder.dim, layers=numbers, vocabulary=words, most_occurrences=most_occurrences, samples=samples,
        lang=text.lang, seed=seed * n + k,
    )  # fmt: skip
    note = ""
    if partial is not None:
        about = [encoder.fingerprint, numbers, words, most_occurrences, samples, [k, n], block, seed, text.lang]
        note = hashlib.blake2b(json.dumps(about).encode() + text.lengths().tobytes(), digest_size=16).hexdigest()
        if Path(partial).exists():
            if AnchorSums.note_of(partial) != note:
                raise SettingError(f"{partial} has the sums of another pass (encoder, text or settings): remove it")
            sums = AnchorSums.open(partial)
    bar = _bar(len(text), sums.n_sentences, progress)
    saved, start = time.monotonic(), sums.n_sentences
    while start < len(text):
        part = text[start : start + block]
        wanted = np.flatnonzero(sums.wanted(part))
        chosen = part if len(wanted) == len(part) else part.take(wanted)
        if len(chosen):
            found = {numbers[0]: encoder.encode(chosen)} if layers is None else inner.encode_layers(chosen, numbers)
            sums.add(chosen, found)
        start += len(part)
        sums.n_sentences = start  # those that were not encoded count too: a stopped pass goes on behind them
        if partial is not None and (time.monotonic() - saved >= save_every or start >= len(text)):
            sums.save(partial, note=note)
            saved = time.monotonic()
        if bar is not None:
            bar.update(len(part))
    if bar is not None:
        bar.close()
    return sums


# -- maps ------------------------------------------------------------------------------------------------------------
def fit_anchored(
    encoder: Any,
    anchors: Mapping[str, Mapping[int, Anchors]],
    dictionaries: Sequence[Dictionary] = (),
    *,
    towards: str,
    start: str | None = None,
    combine: Combine = "last",
    **options: Any,
) -> MappedEncoder | StaticEncoder:
    """The encoder with one map for each layer and language, fitted on anchors (Schuster et al. 2019, §4).

    Args:
        encoder: whose anchors they are. Static vectors give static vectors with maps.
        anchors: by language and layer, the most frequent words first; all of the same layers.
        dictionaries: each between `towards` and another language, either way round; several of one language are
            joined.
        towards: the language that the others are mapped into.
        start: without dictionaries, what to begin from (`fit_unsupervised`), for each other language in `anchors`.
        combine: see `MappedEncoder`.
        options: of `fit_dictionary`, or of `fit_unsupervised`.

    Returns:
        an encoder whose `settings["fits"]` (of static vectors: none) tell by language and layer how each map came
        about. With `whitened`, both languages move, and there can be one other language only.

    Raises:
        SettingError: a language without anchors or a dictionary, or what the fit cannot do.
    """
    from calque.maps.dictionary import fit_dictionary
    from calque.maps.unsupervised import fit_unsupervised

    if bool(dictionaries) == (start is not None):
        raise SettingError("maps are fitted on dictionaries, or begin from nothing (start), not both")
    if towards not in anchors:
        raise SettingError(f"towards {towards}: there are anchors of {', '.join(anchors)} only")
    by_lang = joined(dictionaries, towards) if dictionaries else {lang: None for lang in anchors if lang != towards}
    layers, *others = {tuple(sorted(found)) for found in anchors.values()}
    if not by_lang or others:
        raise SettingError(f"expected anchors of two languages or more, of the same layers, got {[layers, *others]}")
    maps: dict[str, dict[int, VectorMap]] = {}
    fits: dict[str, dict[str, Any]] = {}
    for lang, dictionary in by_lang.items():
        if lang not in anchors:
            raise SettingError(f"there is a dictionary of {lang}, but no anchors")
        for layer in layers:
            sides = anchors[lang][layer], anchors[towards][layer]
            if dictionary is None:
                fit = fit_unsupervised(*sides, start=start, **options)  # type: ignore[arg-type]
            else:
                fit = fit_dictionary(*sides, dictionary, **options)
            maps.setdefault(lang, {})[layer] = fit.source
            fits.setdefault(lang, {})[str(layer)] = record_of(fit)
            if fit.target is not None:
                if len(by_lang) > 1:
                    raise SettingError(f"with whitening {towards} moves too, towards one other language, not several")
                maps.setdefault(towards, {})[layer] = fit.target
    method = f"{'dictionary' if start is None else start}-{options.get('method', 'rotation')}"
    if isinstance(encoder, StaticEncoder):
        return encoder.replace(maps={lang: of[0] for lang, of in maps.items()}, name=f"{encoder.name}+{method}")
    settings = {"method": method, "fits": fits}
    return MappedEncoder(encoder, maps, towards=towards, combine=combine, settings=settings)


def record_of(fit: DictionaryFit) -> dict[str, Any]:
    """How a map came about, as JSON has it."""
    rounds = [
        {"pairs": each.pairs, "held_out_p@1": _number(each.held_out), "mutual_csls": _number(each.mutual),
         "mutual_pairs": each.mutual_pairs}
        for each in fit.rounds
    ]  # fmt: skip
    record = {**fit.settings, "seeds": fit.seeds, "left_out": fit.left_out, "best": fit.best, "rounds": rounds}
    if fit.verdict is not None:
        record |= {"failed": fit.verdict.failed, "verdict": fit.verdict.why}
    return record


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def joined(dictionaries: Sequence[Dictionary], towards: str) -> dict[str, Dictionary]:
    """One dictionary from each other language to `towards`.

    Raises:
        SettingError: a dictionary that does not lead there.
    """
    found: dict[str, Dictionary] = {}
    for each in dictionaries:
        if towards not in each.langs or each.langs[0] == each.langs[1]:
            raise SettingError(f"a dictionary of {' and '.join(each.langs)} does not lead to {towards}")
        turned = each.langs[1] == towards
        lang = each.langs[0] if turned else each.langs[1]
        source, target = (each.source, each.target) if turned else (each.target, each.source)
        old = found.get(lang)
        if old is not None:
            source, target = (*old.source, *source), (*old.target, *target)
        found[lang] = Dictionary(source, target, (lang, towards), each.path)
    return found


def table_anchors(encoder: StaticEncoder, lang: str, *, most: int | None = None) -> dict[int, Anchors]:
    """The words of a language's table as anchors, without any text; their counts are not known, and 0.

    Args:
        encoder: static vectors; maps and the sentence part are left out.
        lang: the language.
        most: words, from the first of the table.
    """
    table = encoder.tables.get(lang, encoder.tables.get(""))
    if table is None:
        raise SettingError(f"no word vectors for language {lang!r}, there are tables for {sorted(encoder.tables)}")
    words = list(dict.fromkeys(word for word in table.words[:most] if word))
    found = encoder.replace(sentence=None, maps=None).encode(Sentences.of([[word] for word in words], lang))
    some = np.arange(len(words)) if found.covered is None else np.flatnonzero(found.covered)
    vectors = np.asarray(found.data)[some]
    return {0: Anchors(tuple(words[k] for k in some), vectors, np.zeros(len(some), dtype=np.int64), lang)}


def frequent_words(sentences: Sentences, most: int, also: Iterable[str] = ()) -> list[str]:
    """A vocabulary: the most frequent words of a text, and others that shall have an anchor if they come at all."""
    import pyarrow.compute as pc

    counted = pc.call_function("value_counts", [sentences.flat()[0]])
    order = np.argsort(-counted.field("counts").to_numpy(zero_copy_only=False), kind="stable")[:most]
    words = counted.field("values")
    return list(dict.fromkeys((*(words[int(k)].as_py() for k in order), *also)))


def _one_language(sentences: Iterable[Sentence]) -> Sentences:
    if isinstance(sentences, Sentences):
        return sentences
    found = list(sentences)
    langs = {sentence.lang for sentence in found}
    if len(langs) > 1:
        raise SettingError(f"anchors are of one language, the text is in {', '.join(sorted(langs))}")
    return Sentences.of([sentence.words for sentence in found], next(iter(langs), ""))


def _bar(total: int, done: int, progress: bool):
    if not progress:
        return None
    from tqdm import tqdm

    return tqdm(total=total, initial=done, unit="sentence", desc="anchors", mininterval=0.5, dynamic_ncols=True)
