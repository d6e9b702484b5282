"""Vectors into vectors without training or translations: means that are taken over plain text of each language, and moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.algebra.procrustes import Moments
from calque.alignment.base import Method
from calque.alignment.maps import with_maps
from calque.encoders.base import made_of, require
from calque.encoders.mapped import Combine, MappedEncoder
from calque.encoders.standard import standardized
from calque.encoders.static import StaticEncoder
from calque.errors import SettingError
from calque.maps.linear import LinearMap
from calque.progress import bar
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.maps import VectorMap

#: text by language, or parallel text, whose two sides are then plain text
Text = ParallelCorpus | Sequence[ParallelCorpus] | Mapping[str, Sentences]


@dataclass(kw_only=True, eq=False)
class LanguageMeans(Method):
    """Each language's mean onto that of `towards`, see `shifts`.

    Args:
        towards: the language that stays nearest to where it was; it must have text, too.
        layers: layers to map; None for the encoder's own.
        combine: see `MappedEncoder`.
        offset: add the mean of `towards`, whose vectors stay as they are; without it, every language is only centred.
    """

    towards: str
    layers: Sequence[int] | None = None
    combine: Combine = "last"
    offset: bool = True

    def __post_init__(self):
        self._settings: dict[str, Any] = {}

    def align(
        self,
        encoder: Any,
        corpus: Text,
        pairs: Any = (),
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> Encoder:
        """The encoder with maps; static vectors take them in, fitted without their sentence part.

        Args:
            encoder: the one to map.
            corpus: sentences of each language; or parallel text, of which each side is text of its language. A sentence
                that stands there twice counts twice.
            pairs, folder, checkpoint_every: of methods that learn from links, or train.
            progress: show a bar on standard error.

        Raises:
            SettingError: fewer than two languages, none of them `towards`, or a language without word vectors.
        """
        texts = _by_language(corpus)
        if self.towards not in texts or len(texts) < 2:
            raise SettingError(
                f"means needs text in {self.towards} and in another language, got {', '.join(texts) or 'none'}"
            )
        static = isinstance(encoder, StaticEncoder)
        words = encoder.replace(sentence=None, maps=None) if static else encoder
        moments = moments_of(words, texts, self.layers, progress=progress)
        maps: dict[str, dict[int, VectorMap]] = {}
        for layer in next(iter(moments.values())):
            of_layer = {lang: by_layer[layer] for lang, by_layer in moments.items()}
            for lang, fitted in shifts(of_layer, towards=self.towards, offset=self.offset).items():
                maps.setdefault(lang, {})[layer] = fitted
        self._settings = {
            "method": "means",
            **self.settings(),
            "layers": list(next(iter(maps.values()))),
            "sentences": {lang: sum(map(len, parts)) for lang, parts in texts.items()},
            "word_vectors": {lang: next(iter(by_layer.values())).n for lang, by_layer in moments.items()},
        }
        aligned = with_maps(encoder, maps, towards=self.towards, combine=self.combine, settings=self._settings)
        aligned.made = made_of(encoder, "means", self.towards, [], [], self.record()) | {"langs": sorted(texts)}
        return aligned

    def record(self) -> dict[str, Any]:
        return {"settings": self._settings}


@dataclass(kw_only=True, eq=False)
class Standardize(Method):
    """All dimensions with mean 0 and variance 1 over the text of all languages, see `standardized`; no language moves.

    Args:
        towards: a language of the text, as every method has it.
        layers: layers to standardise; None for the encoder's own.
    """

    towards: str
    layers: Sequence[int] | None = None

    def align(self, encoder: Any, corpus: Text, pairs: Any = (), **options: Any) -> Encoder:
        """The encoder with standardised vectors; see `LanguageMeans.align` for what it takes."""
        texts = _by_language(corpus)
        aligned = standardized(encoder, [part for parts in texts.values() for part in parts], self.layers, wanted=True)
        aligned.made = made_of(encoder, "standardize", self.towards, [], [], self.record()) | {"langs": sorted(texts)}
        return aligned


def shifts(moments: Mapping[str, Moments], *, towards: str, offset: bool = True) -> dict[str, LinearMap]:
    """Move each language's mean onto that of `towards`: x → x − x̄ + ȳ.

    Libovický et al. (2020, Findings of EMNLP) subtract from each language its own mean and add none: `offset=False`. With
    that of `towards`, distances are those of the centred vectors, and vectors of `towards` stay as they are, so that heads
    trained on them still fit; cosines differ.

    Args:
        moments: of each language's word vectors, see `Moments`; one side of them.
        towards: the language whose mean the others get.
        offset: add that mean; without it every language is centred, `towards` too.

    Returns:
        a map for each language that moves.
    """
    target = moments[towards].source_mean * offset
    return {
        lang: _shift(own.source_mean, target, own.n)
        for lang, own in moments.items()
        if not (offset and lang == towards)
    }


def _shift(source: np.ndarray, target: np.ndarray, n: int) -> LinearMap:
    """Return the map that moves one mean, taken over `n` vectors, onto another: x → x − x̄ + ȳ."""
    return LinearMap.from_arrays({"matrix": np.eye(len(source)), "source_mean": source, "target_mean": target}, n)


def moments_of(
    encoder: Any,
    texts: Mapping[str, Sequence[Sentences]],
    layers: Sequence[int] | None = None,
    *,
    block: int = 2048,
    progress: bool = False,
) -> dict[str, dict[int, Moments]]:
    """Moments of each language's word vectors, by language and layer, in one pass.

    The text is encoded a block at a time and only its moments are kept, so that memory does not grow with it. Words
    without a vector do not count.

    Args:
        texts: one or more texts of each language.
        layers: of the encoder; None for its own.
        block: sentences encoded at a time.
        progress: show a bar on standard error.

    Raises:
        SettingError: a language without word vectors, or an encoder that cannot be mapped.
    """
    require(encoder, "mapped")
    numbers = sorted(set(encoder.layer_numbers(layers)))
    found = {lang: {n: Moments(encoder.dim, 0) for n in numbers} for lang in texts}
    total = sum(len(text) for parts in texts.values() for text in parts)
    shown = bar(total, unit="sentence", title="average", show=progress)
    for lang, parts in texts.items():
        for text in parts:
            for start in range(0, len(text), block):
                part = text[start : start + block]
                for n, vectors in encoder.encode_layers(part, numbers).items():
                    rows = vectors.data if vectors.covered is None else vectors.data[vectors.covered]
                    found[lang][n].update(rows, np.empty((len(rows), 0)))
                shown.update(len(part))
        if not found[lang][numbers[0]].n:
            raise SettingError(f"the text in {lang} has no word for which {encoder.name} has a vector")
    shown.close()
    return found


def centred(
    encoder: Encoder, corpora: Sequence[ParallelCorpus], *, towards: str, progress: bool = False
) -> MappedEncoder:
    """Return the encoder with each language's mean moved onto that of its translations in `towards`: x → x − x̄ + ȳ.

    A contrast with words of the *other* language as negatives cannot see how far the means lie apart: what moves all words
    of a language adds nearly the same to all scores that compete. Means are taken over all words of both sides of the text, so
    that its topic cancels; where a language has several texts, each counts by its words. Vectors of `towards` stay as they are.

    Args:
        encoder: one that was aligned; its own layer is shifted.
        corpora: parallel texts; those without `towards` do not count.
        towards: the language whose mean the others get.

    Raises:
        SettingError: no text has `towards` on a side.
    """
    layer = encoder.layer_numbers(None)[0]
    found: dict[str, list[tuple[Moments, Moments]]] = {}
    for corpus in corpora:
        if towards in corpus.langs:
            sides = {corpus.langs[0]: [corpus.source], corpus.langs[1]: [corpus.target]}
            moments = moments_of(encoder, sides, progress=progress)
            (lang,) = set(sides) - {towards}
            found.setdefault(lang, []).append((moments[lang][layer], moments[towards][layer]))
    if not found:
        raise SettingError(f"no text has {towards} on one side, whose mean the other languages would get")
    maps = {}
    for lang, parts in found.items():
        counts = [own.n for own, _ in parts]
        own, other = (np.average([each[k].source_mean for each in parts], axis=0, weights=counts) for k in (0, 1))
        maps[lang] = {layer: _shift(own, other, sum(counts))}
    return MappedEncoder(encoder, maps, towards=towards, settings={"method": "centred", "towards": towards})


def _by_language(corpus: Text) -> dict[str, list[Sentences]]:
    """The texts of each language."""
    if isinstance(corpus, Mapping):
        return {lang: [text] for lang, text in corpus.items()}
    texts: dict[str, list[Sentences]] = {}
    for each in [corpus] if isinstance(corpus, ParallelCorpus) else corpus:
        for lang, side in zip(each.langs, (each.source, each.target), strict=True):
            texts.setdefault(lang, []).append(side)
    return texts
