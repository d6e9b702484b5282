"""Maps fitted on monolingual text: shifts of language means, and standardisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.algebra.procrustes import Moments
from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import LinkedText, PlainText
from calque.alignment.maps import with_maps
from calque.corpora.identify import LanguageIdentifier
from calque.encoders.base import made_of, require
from calque.encoders.mapped import Combine, MappedEncoder, identifier_of
from calque.encoders.standard import standardized
from calque.encoders.static import StaticEncoder
from calque.errors import SettingError
from calque.maps.linear import LinearMap
from calque.progress import bar
from calque.spec import Layer, option
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.maps import VectorMap


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageMeans(Method):
    """Shift each language's mean vector to the mean of `towards`, see `shifts`."""

    towards: str = option(
        ..., "reference language, which must be one of the languages of the text."
    )
    layers: Sequence[Layer] | None = option(
        None, "layers to map; default: the encoder's output layer."
    )
    combine: Combine = option(
        "last",
        "how to combine the mapped layers: sum, mean, concat, or last (use only the last layer).",
    )
    offset: bool = option(
        True,
        "whether to add the mean of `towards`, so that its vectors do not change; if false, the "
        "means are only subtracted.",
    )

    def fit(self, encoder: Any, data: LinkedText | PlainText, run: Run = Run()) -> Fitted:
        """Return the encoder with its maps. A static encoder stores the maps itself; its maps are
        fitted on word vectors alone.

        Args:
            encoder: encoder to map.
            data: text in each language, or parallel text, whose sides are used as monolingual text.
                Duplicate sentences are counted each time they occur. Word links are not used.
            run: `folder` is not used.

        Raises:
            SettingError: there are fewer than two languages, `towards` is missing, or a language
                has no word vectors.
        """
        texts = data.by_language()
        if self.towards not in texts or len(texts) < 2:
            raise SettingError(
                f"method means requires text in {self.towards} and in another language, got "
                f"{', '.join(texts) or 'no text'}"
            )
        words = (
            encoder.replace(sentence=None, maps=None)
            if isinstance(encoder, StaticEncoder)
            else encoder
        )
        moments = moments_of(words, texts, self.layers, progress=run.progress)
        maps: dict[str, dict[int, VectorMap]] = {}
        for layer in next(iter(moments.values())):
            of_layer = {lang: by_layer[layer] for lang, by_layer in moments.items()}
            for lang, fitted in shifts(of_layer, towards=self.towards, offset=self.offset).items():
                maps.setdefault(lang, {})[layer] = fitted
        settings = {
            "method": "means",
            **self.settings(),
            "layers": list(next(iter(maps.values()))),
            "sentences": {lang: sum(map(len, parts)) for lang, parts in texts.items()},
            "word_vectors": {
                lang: next(iter(by_layer.values())).n for lang, by_layer in moments.items()
            },
        }
        record = {"settings": settings}
        aligned = with_maps(
            encoder, maps, towards=self.towards, combine=self.combine, settings=settings
        )
        if isinstance(aligned, MappedEncoder):
            aligned.identifier = LanguageIdentifier.fit(texts)
        aligned.made = made_of(encoder, "means", self.towards, [], [], record) | {
            "langs": sorted(texts)
        }
        return Fitted(aligned, record)


@dataclass(frozen=True, kw_only=True, eq=False)
class Standardize(Method):
    """Standardise every dimension over the texts of all languages, see `standardized`. This does
    not align the languages.
    """

    towards: str = option(
        ...,
        "one of the languages of the text. Every method has this argument, but it does not affect "
        "this method.",
    )
    layers: Sequence[Layer] | None = option(
        None, "layers to standardise; default: the encoder's output layer."
    )

    def fit(self, encoder: Any, data: LinkedText | PlainText, run: Run = Run()) -> Fitted:
        """Return the encoder with standardised vectors; the arguments are those of
        `LanguageMeans.fit`.
        """
        texts, record = data.by_language(), {"settings": self.settings()}
        aligned = standardized(
            encoder, [part for parts in texts.values() for part in parts], self.layers, wanted=True
        )
        aligned.made = made_of(encoder, "standardize", self.towards, [], [], record) | {
            "langs": sorted(texts)
        }
        return Fitted(aligned, record)


def shifts(
    moments: Mapping[str, Moments], *, towards: str, offset: bool = True
) -> dict[str, LinearMap]:
    """Return the maps that shift each language's mean x̄ to the mean ȳ of `towards`: x → x − x̄ +
    ȳ.

    Libovický et al. (2020, Findings of EMNLP) only subtract the mean (`offset=False`). Adding the
    mean of `towards` preserves distances but not cosines. The vectors of `towards` do not change,
    so task heads trained on them can still be used.

    Args:
        moments: moments of each language's word vectors, see `Moments`.
        towards: reference language.
        offset: whether to add the mean of `towards`; if false, all languages are centred, including
            `towards`.

    Returns:
        maps by language, only for languages whose vectors change.
    """
    target = moments[towards].source_mean * offset
    return {
        lang: _shift(own.source_mean, target, own.n)
        for lang, own in moments.items()
        if not offset or lang != towards
    }


def _shift(source: np.ndarray, target: np.ndarray, n: int) -> LinearMap:
    """Return the map x → x − x̄ + ȳ, where x̄ (`source`) is the mean of `n` vectors and ȳ is
    `target`.
    """
    return LinearMap.from_arrays(
        {"matrix": np.eye(len(source)), "source_mean": source, "target_mean": target}, n
    )


def moments_of(
    encoder: Any,
    texts: Mapping[str, Sequence[Sentences]],
    layers: Sequence[int] | None = None,
    *,
    block: int = 2048,
    progress: bool = False,
) -> dict[str, dict[int, Moments]]:
    """Return the moments of word vectors by language and layer.

    The text is encoded block by block, and only the moments are kept in memory. Words without a
    vector are ignored.

    Args:
        texts: one or more texts in each language.
        layers: layers of the encoder; default: the encoder's output layer.
        block: number of sentences encoded at a time.
        progress: whether to show a progress bar on standard error.

    Raises:
        SettingError: a language has no word vectors, or the encoder cannot be mapped.
    """
    require(encoder, "mapped")
    numbers = sorted(set(encoder.layer_numbers(layers)))
    blocks: dict[str, list[Sentences]] = {}
    for lang, of_lang in texts.items():
        blocks[lang] = []
        for text in of_lang:
            blocks[lang] += [text[at : at + block] for at in range(0, len(text), block)]
    n_sentences = sum(map(len, [part for parts in blocks.values() for part in parts]))
    shown = bar(n_sentences, unit="sentence", title="average", show=progress)
    moments: dict[str, dict[int, Moments]] = {}
    for lang, parts in blocks.items():
        moments[lang] = {layer: Moments(encoder.dim, 0) for layer in numbers}
        for part in parts:
            for layer, vectors in encoder.encode_layers(part, numbers).items():
                rows = vectors.data
                if vectors.covered is not None:
                    rows = rows[vectors.covered]
                moments[lang][layer].update(rows, np.empty((len(rows), 0)))
            shown.update(len(part))
        if not moments[lang][numbers[0]].n:
            raise SettingError(
                f"{encoder.name} must have a vector for at least one word of the text in {lang}"
            )
    shown.close()
    return moments


def centred(
    encoder: Encoder, corpora: Sequence[ParallelCorpus], *, towards: str, progress: bool = False
) -> MappedEncoder:
    """Return the encoder with each language's mean shifted to the mean of its translations in
    `towards`: x → x − x̄ + ȳ.

    A contrastive loss with negatives from the *other* language does not align the means, because
    shifting all words of a language changes all competing scores nearly equally. The means are
    computed over all words on both sides of the same text, so the topic of the text cancels out.
    The vectors of `towards` do not change.

    Args:
        encoder: aligned encoder; its default layer of word vectors is shifted.
        corpora: parallel texts; texts without `towards` are ignored.
        towards: reference language.

    Raises:
        SettingError: no text has a side in the language `towards`.
    """
    layer = encoder.layer_numbers(None)[0]
    # moments of both sides of each text, by the language that is not `towards`
    by_lang: dict[str, list[tuple[Moments, Moments]]] = {}
    for corpus in corpora:
        if towards in corpus.langs:
            sides = {corpus.langs[0]: [corpus.source], corpus.langs[1]: [corpus.target]}
            moments = moments_of(encoder, sides, progress=progress)
            (lang,) = set(sides) - {towards}
            by_lang.setdefault(lang, []).append((moments[lang][layer], moments[towards][layer]))
    if not by_lang:
        raise SettingError(
            f"at least one text must have a side in {towards}, whose mean is the reference"
        )
    maps = {}
    for lang, parts in by_lang.items():
        counts = [own.n for own, _ in parts]
        own_means = [own.source_mean for own, _ in parts]
        target_means = [target.source_mean for _, target in parts]
        own_mean = np.average(own_means, axis=0, weights=counts)
        target_mean = np.average(target_means, axis=0, weights=counts)
        maps[lang] = {layer: _shift(own_mean, target_mean, sum(counts))}
    return MappedEncoder(
        encoder,
        maps,
        towards=towards,
        settings={"method": "centred", "towards": towards},
        identifier=identifier_of(corpora),
    )
