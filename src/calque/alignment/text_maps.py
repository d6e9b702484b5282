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
from calque.maps.linear import LinearMap, shrunk_mean
from calque.maps.shrinkage import Shrinkage
from calque.progress import bar
from calque.spec import Layer, option
from calque.text import ParallelCorpus, Sentences
from calque.vectors import Embeddings

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
    shrinkage: Shrinkage = option(
        "auto",
        "how much of each shift is left out, from 0 (nothing; the published method) to 1 (vectors "
        "do not change), or auto, which is the expected fraction of sampling error in the squared "
        "shift.",
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
            fitted = shifts(
                of_layer, towards=self.towards, offset=self.offset, shrinkage=self.shrinkage
            )
            for lang, shift in fitted.items():
                maps.setdefault(lang, {})[layer] = shift
        settings = {
            "method": "means",
            **self.settings(),
            "layers": list(next(iter(maps.values()))),
            "sentences": {lang: sum(map(len, parts)) for lang, parts in texts.items()},
            "word_vectors": {
                lang: next(iter(by_layer.values())).n for lang, by_layer in moments.items()
            },
        }
        if self.shrinkage != 0:
            settings["fits"] = _about_shifts(maps)
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


class TextMoments(Moments):
    """Moments of the word vectors of a text, and the sampling error of their mean.

    The words of a sentence are not independent, so the error is computed over sentences.
    """

    def __init__(self, dim: int):
        super().__init__(dim, 0)
        # Σ ‖s‖², Σ c·s and Σ c² over sentences with c words whose vectors have the sum s
        self._squares, self._weighted, self._counts = 0.0, np.zeros(dim), 0.0

    def add(self, vectors: Embeddings) -> None:
        """Add the vectors of all words that have one."""
        rows = vectors.data
        covered = np.ones(len(rows), dtype=bool)
        if vectors.covered is not None:
            covered = vectors.covered
            rows = rows[covered]
        self.update(rows, np.empty((len(rows), 0)))
        sentence = np.repeat(np.arange(len(vectors)), np.diff(vectors.offsets))
        counts = np.bincount(sentence[covered], minlength=len(vectors))
        sums = vectors.sentence_means() * counts[:, None]
        self._squares += float(np.einsum("ij,ij->", sums, sums))
        self._weighted += counts @ sums
        self._counts += float(counts @ counts)

    @property
    def mean_error(self) -> float:
        """Expected squared error of the mean: Σ ‖s − c·x̄‖² / n², where s is the sum of the vectors
        of a sentence, c their number, x̄ the mean and n the number of all vectors.
        """
        mean = self.source_mean
        squares = self._squares - 2 * mean @ self._weighted + mean @ mean * self._counts
        return max(0.0, float(squares)) / self.n**2


def shifts(
    moments: Mapping[str, TextMoments],
    *,
    towards: str,
    offset: bool = True,
    shrinkage: Shrinkage = 0.0,
) -> dict[str, LinearMap]:
    """Return the maps that shift each language's mean x̄ to the mean ȳ of `towards`: x → x − x̄ +
    ȳ.

    Libovický et al. (2020, Findings of EMNLP) only subtract the mean (`offset=False`). Adding the
    mean of `towards` preserves distances but not cosines. The vectors of `towards` do not change,
    so task heads trained on them can still be used.

    Args:
        moments: moments of each language's word vectors, see `TextMoments`.
        towards: reference language.
        offset: whether to add the mean of `towards`; if false, all languages are centred, including
            `towards`.
        shrinkage: fraction of the shift ȳ − x̄ that is left out. "auto" is the expected squared
            error of the shift divided by its squared length, at most 1: the positive-part estimator
            of James and Stein (1961, "Estimation with quadratic loss").

    Returns:
        maps by language, only for languages whose vectors change.
    """
    target = moments[towards].source_mean * offset
    maps = {}
    for lang, own in moments.items():
        if not offset or lang != towards:
            amount = shrinkage
            if amount == "auto":
                error = own.mean_error + moments[towards].mean_error * offset
                amount = _error_fraction(error, target - own.source_mean)
            maps[lang] = _shift(own.source_mean, target, own.n, amount)
    return maps


def _error_fraction(error: float, shift: np.ndarray) -> float:
    """Return the fraction of error in the squared length of a shift, at most 1."""
    squared = float(shift @ shift)
    return min(1.0, error / squared) if squared else 1.0


def _shift(source: np.ndarray, target: np.ndarray, n: int, shrinkage: float = 0.0) -> LinearMap:
    """Return the map x → x − x̄ + ȳ, where x̄ (`source`) is the mean of `n` vectors and ȳ is
    `target`; the fraction `shrinkage` of the shift is left out.
    """
    if shrinkage:
        target = shrunk_mean(source, target, shrinkage)
    arrays = {"matrix": np.eye(len(source)), "source_mean": source, "target_mean": target}
    shift = LinearMap.from_arrays(arrays, n)
    shift.shrinkage = shrinkage
    return shift


def _about_shifts(
    maps: Mapping[str, Mapping[int, VectorMap]],
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the record of each shift by language and layer."""
    fits: dict[str, dict[str, dict[str, Any]]] = {}
    for lang, by_layer in maps.items():
        fits[lang] = {}
        for layer, shift in by_layer.items():
            fits[lang][str(layer)] = {
                "pairs": shift.n_pairs,
                "dim": len(shift.arrays()["matrix"]),
                "shrinkage": round(shift.shrinkage, 6),
                "to_identity": round(shift.shrinkage, 4),
            }
    return fits


def moments_of(
    encoder: Any,
    texts: Mapping[str, Sequence[Sentences]],
    layers: Sequence[int] | None = None,
    *,
    block: int = 2048,
    progress: bool = False,
) -> dict[str, dict[int, TextMoments]]:
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
    moments: dict[str, dict[int, TextMoments]] = {}
    for lang, parts in blocks.items():
        moments[lang] = {layer: TextMoments(encoder.dim) for layer in numbers}
        for part in parts:
            for layer, vectors in encoder.encode_layers(part, numbers).items():
                moments[lang][layer].add(vectors)
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
