"""Vectors into vectors without training or translations: maps that are fitted on plain text of each language."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calque.algebra.procrustes import Moments
from calque.alignment.base import Method
from calque.alignment.maps import with_maps
from calque.encoders.base import made_of, require
from calque.encoders.mapped import Combine, MappedEncoder
from calque.encoders.static import StaticEncoder
from calque.errors import SettingError, check_number
from calque.maps.subspaces import lir, lsar, shift, shifts
from calque.progress import bar
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.maps import VectorMap

#: text by language, or parallel text, whose two sides are then plain text
Text = ParallelCorpus | Sequence[ParallelCorpus] | Mapping[str, Sentences]


@dataclass(kw_only=True, eq=False)
class TextMaps(Method):
    """A map for each language and layer, fitted on the moments of word vectors in plain text.

    Args:
        towards: the language that stays nearest to where it was; it must have text, too.
        layers: layers to map; None for the encoder's own.
        combine: see `MappedEncoder`.
    """

    #: what it is called on the command line and in files
    method: ClassVar[str]

    towards: str
    layers: Sequence[int] | None = None
    combine: Combine = "last"

    def __post_init__(self):
        self._settings: dict[str, Any] = {}

    @abstractmethod
    def fit(self, moments: Mapping[str, Moments]) -> Mapping[str, VectorMap]:
        """The maps of one layer, from each language's moments (`source_mean`, `gram`)."""

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
                f"{self.method} needs text in {self.towards} and in another language, got {', '.join(texts) or 'none'}"
            )
        static = isinstance(encoder, StaticEncoder)
        words = encoder.replace(sentence=None, maps=None) if static else encoder
        moments = moments_of(words, texts, self.layers, progress=progress)
        maps: dict[str, dict[int, VectorMap]] = {}
        for layer in next(iter(moments.values())):
            for lang, fitted in self.fit({lang: by_layer[layer] for lang, by_layer in moments.items()}).items():
                maps.setdefault(lang, {})[layer] = fitted
        self._settings = {
            "method": self.method,
            **self.settings(),
            "layers": list(next(iter(maps.values()))),
            "sentences": {lang: sum(map(len, parts)) for lang, parts in texts.items()},
            "word_vectors": {lang: next(iter(by_layer.values())).n for lang, by_layer in moments.items()},
        }
        aligned = with_maps(encoder, maps, towards=self.towards, combine=self.combine, settings=self._settings)
        aligned.made = made_of(encoder, self.method, self.towards, [], [], self.record()) | {"langs": sorted(texts)}
        return aligned

    def record(self) -> dict[str, Any]:
        return {"settings": self._settings}


@dataclass(kw_only=True, eq=False)
class LanguageMeans(TextMaps):
    """Each language's mean onto that of `towards` (Libovický et al. 2020), see `calque.maps.subspaces.shifts`.

    Args:
        towards, layers, combine: see `TextMaps`.
        offset: add the mean of `towards`, whose vectors stay as they are; without it, every language is only centred.
    """

    method = "means"
    offset: bool = True

    def fit(self, moments: Mapping[str, Moments]) -> Mapping[str, VectorMap]:
        return shifts(moments, towards=self.towards, offset=self.offset)


@dataclass(kw_only=True, eq=False)
class LowRankRemoval(TextMaps):
    """LSAR: directions in which the languages' means differ, removed from all (Xie et al. 2022), see `lsar`.

    Args:
        towards, layers, combine: see `TextMaps`. Vectors of `towards` change, too.
        rank: number of directions to remove; None for one fewer than there are languages.

    Raises:
        SettingError: a rank below 1.
    """

    method = "lsar"
    rank: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.rank is not None:
            check_number("rank", self.rank, least=1, whole=True)

    def fit(self, moments: Mapping[str, Moments]) -> Mapping[str, VectorMap]:
        return lsar(moments, rank=self.rank)


@dataclass(kw_only=True, eq=False)
class LanguageInformationRemoval(TextMaps):
    """LIR: each language's principal components, removed from it (Yang et al. 2021), see `calque.maps.subspaces.lir`.

    Args:
        towards, layers, combine: see `TextMaps`. Vectors of `towards` change, too.
        rank: number of directions to remove from each language.

    Raises:
        SettingError: a rank below 1.
    """

    method = "lir"
    rank: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_number("rank", self.rank, least=1, whole=True)

    def fit(self, moments: Mapping[str, Moments]) -> Mapping[str, VectorMap]:
        return lir(moments, rank=self.rank)


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
        maps[lang] = {layer: shift(own, other, sum(counts))}
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
