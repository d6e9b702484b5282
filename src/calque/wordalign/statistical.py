"""Statistical word alignment of parallel text, and trained aligners that can be applied to new
text.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from calque.errors import InputError, SettingError, check_number, similar_path
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.progress import bar
from calque.storage import json_text, whole
from calque.text import ParallelCorpus, Sentences
from calque.wordalign.bitext import Bitext, Side, loop, mix
from calque.wordalign.fast_align import DiagonalModel, FastAlignSettings
from calque.wordalign.gibbs import GibbsModel, GibbsSettings
from calque.wordalign.hmm import HmmModel, HmmSettings
from calque.wordalign.model import Job, Links, Model, n_threads
from calque.wordalign.similarity import Similarities
from calque.wordalign.symmetrization import check_method
from calque.wordalign.symmetrization import symmetrize as join_directions
from calque.wordalign.vocabulary import Classes, CodePoints, Vocabulary, code_points, joined, shared

if TYPE_CHECKING:
    from tqdm import tqdm

Prior = Callable[[ParallelCorpus], Similarities]
Settings = FastAlignSettings | HmmSettings | GibbsSettings
# `auto` uses the Gibbs sampler below this number of sentence pairs, where it is fast and helps most
FEW = 2_000
MAX_WORDS = 500
FORMAT = "calque word aligner 1"
BLOCK = 1 << 15  # number of sentence pairs that `WordAligner.aligned` aligns at a time
_MODELS: dict[str, type[Model[Any]]] = {
    model_class.name: model_class for model_class in (DiagonalModel, HmmModel, GibbsModel)
}


def align_words(
    corpus: ParallelCorpus,
    *,
    symmetrize: str = "one-to-one",
    extra: ParallelCorpus | None = None,
    model: str = "auto",
    settings: Settings | None = None,
    classes: Classes | None = None,
    seed: int = 0,
    threads: int | None = None,
    max_words: int = MAX_WORDS,
    prior: Prior | None = None,
    prior_weight: float | None = None,
    progress: bool = False,
) -> WordPairs:
    """Link words that are translations of each other, based on word co-occurrence in parallel text.

    Args:
        corpus: parallel text to align.
        symmetrize: symmetrisation method: `one-to-one` (the intersection, without the links of
            words with several links), `intersection`, `union`, `grow-diag`, `grow-diag-final` or
            `grow-diag-final-and`; see `calque.wordalign.symmetrize`. Results of different methods
            are not comparable.
        extra: additional parallel text in the same languages, used only for training. It improves
            the links of small texts.
        model: `fast-align` (IBM model 2 with a preference for the diagonal; the fastest), `hmm`
            (two hidden Markov models trained to agree), `gibbs` (a Gibbs sampler with fertilities;
            the most accurate) or `auto` (`gibbs` for fewer than 2,000 sentence pairs, otherwise
            `hmm`).
        settings: settings of the model: `FastAlignSettings`, `HmmSettings` or `GibbsSettings`.
        classes: settings of the word classes. By default, `fast-align` uses unchanged words, and
            the other models use lower-cased words, with rare words represented by their first five
            letters.
        seed: random seed of `gibbs`; the other models are deterministic.
        threads: number of threads, which does not affect the links; default: the number of
            available processors.
        max_words: maximum number of words per side. Longer sentence pairs get no links, and a
            warning reports their number.
        prior: function that computes the word similarities of a text, such as
            `calque.Linker("mini").similarities`; only for `hmm` and `gibbs`. If the encoder
            supports the languages, an aligner with this prior makes fewer errors than the aligner
            or the encoder alone. To use an encoder that is first aligned on this text, see
            `calque.HeldOut`.
        prior_weight: weight of the similarities; default: the value of `similarity` in the settings
            of the model.
        progress: whether to show a progress bar.

    Returns:
        links with posteriors for all sentence pairs of `corpus`; pairs with an empty side have no
        links.

    Raises:
        SettingError: the model or the symmetrisation method is unknown, the settings are for
            another model, `extra` is in other languages, or `prior_weight` is set without a prior.
    """
    check_method(symmetrize)
    aligner = WordAligner.train(
        corpus,
        extra=extra,
        model=model,
        settings=settings,
        classes=classes,
        seed=seed,
        threads=threads,
        max_words=max_words,
        prior=prior,
        prior_weight=prior_weight,
        progress=progress,
    )
    return aligner.align(corpus, symmetrize=symmetrize)


class WordAligner:
    """A trained word aligner, which is built by `WordAligner.train` or read from a file by
    `WordAligner.open`.

    Args:
        model: the trained model.
        vocabularies: vocabularies of the source language and of the target language.
        langs: language codes of the source and the target.
        max_words, prior: see `align_words`; the prior is not saved.
    """

    def __init__(
        self,
        model: Model,
        vocabularies: tuple[Vocabulary, Vocabulary],
        langs: tuple[str, str],
        *,
        max_words: int = MAX_WORDS,
        prior: Prior | None = None,
    ):
        _check_prior(model.name, prior)
        self.model, self.vocabularies, self.langs = model, vocabularies, langs
        self.max_words, self.prior = max_words, prior
        self._trained_on: tuple[ParallelCorpus, Links] | None = None

    def __repr__(self) -> str:
        sizes = " × ".join(f"{len(vocabulary):,}" for vocabulary in self.vocabularies)
        return f"WordAligner({self.model.name}, {'-'.join(self.langs)}, {sizes} types)"

    @classmethod
    def train(
        cls,
        corpus: ParallelCorpus,
        *,
        extra: ParallelCorpus | None = None,
        model: str = "auto",
        settings: Settings | None = None,
        classes: Classes | None = None,
        seed: int = 0,
        threads: int | None = None,
        max_words: int = MAX_WORDS,
        prior: Prior | None = None,
        prior_weight: float | None = None,
        progress: bool = False,
    ) -> WordAligner:
        """Train on parallel text; the arguments are those of `align_words`."""
        text = corpus if extra is None else corpus + extra
        model_class = _model_class(model, settings, len(text))
        settings = _model_settings(model_class, settings, prior, prior_weight)
        check_number("max_words", max_words, least=1, whole=True)
        n_workers = n_threads(threads)
        classes = classes or model_class.classes
        source, source_words, source_offsets = Vocabulary.build(text.source, classes)
        target, target_words, target_offsets = Vocabulary.build(text.target, classes)
        bitext = _bitext(
            Side(source_words, source_offsets, len(source)),
            Side(target_words, target_offsets, len(target)),
            max_words,
        )
        similarities = None if prior is None else prior(text)
        with _bar(settings.passes, model_class.name, text.langs, progress) as updates:
            job = Job(
                bitext,
                alike=partial(shared, bitext.pairs, source.points, target.points),
                seed=seed,
                threads=n_workers,
                step=updates.update,
                similarities=similarities,
            )
            trained, links = model_class.fit(job, settings)
        aligner = cls(trained, (source, target), text.langs, max_words=max_words, prior=prior)
        aligner._trained_on = corpus, links
        return aligner

    def align(
        self,
        corpus: ParallelCorpus,
        *,
        symmetrize: str = "one-to-one",
        seed: int = 0,
        threads: int | None = None,
        progress: bool = False,
    ) -> WordPairs:
        """Link the words of the training corpus or of a new text.

        Out-of-vocabulary words are linked based on spelling and position. The links of a sentence
        pair do not depend on the other sentence pairs. For the training corpus itself, the links
        computed in training are returned.

        Args:
            corpus: text in the languages of the aligner.
            symmetrize, seed, threads, progress: see `align_words`.

        Raises:
            SettingError: the corpus and the aligner have different languages, or the symmetrisation
                method is unknown.
        """
        check_method(symmetrize)
        if corpus.langs != self.langs:
            raise SettingError(
                f"corpus must have the aligner's languages, {'-'.join(self.langs)}, got "
                f"{'-'.join(corpus.langs)}"
            )
        links = self._training_links(corpus)
        if links is None:
            links = self._new_links(corpus, seed, n_threads(threads), progress)
        return join_directions(links.pairs(corpus, True), links.pairs(corpus, False), symmetrize)

    def aligned(
        self,
        corpus: ParallelCorpus,
        *,
        symmetrize: str = "one-to-one",
        seed: int = 0,
        threads: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[WordPairs]:
        """Yield the links of `align` block by block, so that only the links of one block are in
        memory.

        Args:
            corpus, symmetrize, seed, threads: see `align`.
            block: number of sentence pairs in a block.

        Yields:
            the links of each block, whose sentence pairs are numbered from 0.
        """
        check_method(symmetrize)
        trained = self._training_links(corpus)
        # Numbers of source and target words before the block.
        before = np.zeros(2, dtype=np.int64)
        for first in range(0, len(corpus), block):
            part = corpus[first : first + block]
            if trained is None:
                yield self.align(part, symmetrize=symmetrize, seed=seed, threads=threads)
                continue
            after = before + np.array([part.source.lengths().sum(), part.target.lengths().sum()])
            links = trained.part(before, after)
            before = after
            yield join_directions(links.pairs(part, True), links.pairs(part, False), symmetrize)

    def _training_links(self, corpus: ParallelCorpus) -> Links | None:
        """Return the links computed in training if `corpus` is the training corpus, else None."""
        if self._trained_on is None:
            return None
        training_corpus, links = self._trained_on
        return links if corpus is training_corpus else None

    def _new_links(self, corpus: ParallelCorpus, seed: int, threads: int, progress: bool) -> Links:
        """Return the links of a new text in both directions."""
        source_vocabulary, target_vocabulary = self.vocabularies
        source, source_spellings = _encoded(source_vocabulary, corpus.source)
        target, target_spellings = _encoded(target_vocabulary, corpus.target)
        bitext = _bitext(source, target, self.max_words)
        keys = sentence_keys(
            source.words,
            source.offsets,
            len(source_vocabulary),
            target.words,
            target.offsets,
            len(target_vocabulary),
        )
        similarities = None if self.prior is None else self.prior(corpus)
        with _bar(None, self.model.name, self.langs, progress) as updates:
            job = Job(
                bitext,
                alike=partial(shared, bitext.pairs, source_spellings, target_spellings),
                seed=seed,
                keys=keys,
                threads=threads,
                step=updates.update,
                similarities=similarities,
            )
            return self.model.links(job)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the vocabularies and the model to a safetensors file."""
        from safetensors.numpy import save_file

        arrays = {
            f"model.{name}": np.ascontiguousarray(array)
            for name, array in self.model.arrays().items()
        }
        for side, vocabulary in zip(("source", "target"), self.vocabularies, strict=True):
            arrays |= _packed(f"{side}.names", vocabulary.names)
            arrays |= _packed(f"{side}.forms", vocabulary.spellings)
        about = {
            "format": FORMAT,
            "model": self.model.name,
            "langs": list(self.langs),
            "max_words": self.max_words,
            "settings": asdict(self.model.settings),
            "classes": asdict(self.vocabularies[0].classes),
        }
        # All metadata is in one entry, because safetensors writes several entries in an order that
        # varies between processes.
        record = json_text({**about, "digest": _digest(json_text(about), arrays)})
        with whole(path) as part:
            save_file(arrays, part, metadata={"calque": record})

    @classmethod
    def open(cls, path: str | PathLike[str], *, prior: Prior | None = None) -> WordAligner:
        """Read a file written by `save`.

        Raises:
            InputError: the file cannot be read or does not contain a word aligner.
        """
        from safetensors import safe_open

        if os.path.isdir(path):
            raise InputError(
                "must be a file written by calque words --tables, but is a folder", path=path
            )
        if not os.path.exists(path):
            raise InputError(f"no such file{similar_path(path)}", path=path)
        try:
            with safe_open(fspath(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(metadata["calque"])
            # Compiled loops do not check array bounds, so corrupt arrays must be rejected here.
            if about.pop("digest") != _digest(json_text(about), arrays):
                raise ValueError(
                    "the checksum is wrong, so the file is corrupt; train the aligner again"
                )
            model_class = _MODELS[about["model"]]
            tables = {
                name.removeprefix("model."): array
                for name, array in arrays.items()
                if name.startswith("model.")
            }
            model = model_class.from_arrays(tables, model_class.settings_of(about["settings"]))
            classes = Classes(**about["classes"])
            source, target = (
                Vocabulary(
                    _unpacked(f"{side}.names", arrays), _unpacked(f"{side}.forms", arrays), classes
                )
                for side in ("source", "target")
            )
            source_lang, target_lang = about["langs"]
            return cls(
                model,
                (source, target),
                (source_lang, target_lang),
                max_words=about["max_words"],
                prior=prior,
            )
        except Exception as error:  # a corrupt file can raise any exception
            raise InputError(f"not a word aligner saved by calque ({error})", path=path) from error


def is_aligner(path: str) -> bool:
    """Return whether a file has the metadata of a saved `WordAligner`; the file may still be
    corrupt.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return FORMAT.rpartition(" ")[0] in (file.metadata() or {}).get("calque", "")
    except (OSError, SafetensorError):
        return False


def _model_class(model: str, settings: Settings | None, n_sentence_pairs: int) -> type[Model[Any]]:
    """Return the class of the named model; `auto` follows the type of the settings, or the size of
    the text.
    """
    if model == "auto":
        for model_class in _MODELS.values():
            if isinstance(settings, model_class.settings_type):
                return model_class
        return GibbsModel if n_sentence_pairs < FEW else HmmModel
    if model not in _MODELS:
        raise SettingError(f"model must be one of auto, {', '.join(_MODELS)}, got {model!r}")
    return _MODELS[model]


def _model_settings(
    model_class: type[Model[Any]],
    settings: Settings | None,
    prior: Prior | None,
    prior_weight: float | None,
) -> Settings:
    """Return the settings of a model, with the weight of the prior; default: those of the class."""
    chosen: Settings = model_class.settings_type() if settings is None else settings
    if not isinstance(chosen, model_class.settings_type):
        expected = model_class.settings_type.__name__
        raise SettingError(
            f"settings must be {expected} for model={model_class.name!r}, got "
            f"{type(chosen).__name__}"
        )
    _check_prior(model_class.name, prior)
    if prior_weight is None:
        return chosen
    if prior is None:
        raise SettingError(
            f"prior_weight={prior_weight:g} needs a prior; set prior, or leave out prior_weight"
        )
    check_number("prior_weight", prior_weight, least=0)
    assert not isinstance(chosen, FastAlignSettings)  # fast_align cannot use a prior
    return chosen.weighted(prior_weight)


def _encoded(vocabulary: Vocabulary, sentences: Sentences) -> tuple[Side, CodePoints]:
    """Return one side of a new text, and the spellings of all types, including new types."""
    words, offsets, unknown = vocabulary.encode(sentences)
    side = Side(words, offsets, len(vocabulary) + len(unknown))
    return side, joined(vocabulary.points, code_points(unknown))


def _check_prior(model: str, prior: Prior | None) -> None:
    if prior is not None and model == DiagonalModel.name:
        raise SettingError(f"model={model!r} cannot use a prior; use hmm or gibbs")


def _digest(record: str, arrays: dict[str, np.ndarray]) -> str:
    """Return a hash of the metadata and arrays of a saved aligner."""
    digest = hashlib.blake2b(record.encode("utf-8", "replace"), digest_size=16)
    for name in sorted(arrays):
        digest.update(
            f"\n{name} {arrays[name].dtype} {arrays[name].shape} ".encode("utf-8", "replace")
        )
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _packed(name: str, words: pa.Array) -> dict[str, np.ndarray]:
    """Store words as arrays of UTF-8 bytes and offsets."""
    encoded = [word.encode() for word in words.to_pylist()]
    offsets = offsets_of([len(word) for word in encoded])
    return {f"{name}.bytes": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.offsets": offsets}


def _unpacked(name: str, arrays: dict[str, np.ndarray]) -> pa.Array:
    """Read words stored by `_packed`."""
    encoded, offsets = arrays[f"{name}.bytes"].tobytes(), arrays[f"{name}.offsets"].tolist()
    words = [encoded[start:end].decode() for start, end in pairwise(offsets)]
    return pa.array(words, pa.string())


def _bitext(source: Side, target: Side, max_words: int) -> Bitext:
    bitext = Bitext(source, target, max_words=max_words)
    if bitext.too_long:
        warnings.warn(
            f"{bitext.too_long:,} of {len(bitext):,} sentence pairs have more than {max_words:,} "
            "words on one side and get no links; split these lines into sentences",
            UserWarning,
            stacklevel=3,
        )
    return bitext


def _bar(n_passes: int | None, model: str, langs: tuple[str, str], progress: bool) -> tqdm:
    return bar(
        n_passes, unit="pass", title=f"{model} {langs[0]}-{langs[1]}", show=progress, leave=False
    )


@loop
def sentence_keys(source, source_offsets, n_source, target, target_offsets, n_target):
    """Return a uint64 key for each sentence pair that depends only on the words of the pair.
    Out-of-vocabulary words (with indices of at least `n_source` or `n_target`) are numbered within
    their sentence.
    """
    keys = np.empty(len(source_offsets) - 1, np.uint64)
    for b in range(len(keys)):
        key = mix(np.uint64(source_offsets[b + 1] - source_offsets[b]))
        key = _with_words(key, source, source_offsets[b], source_offsets[b + 1], n_source)
        keys[b] = _with_words(key, target, target_offsets[b], target_offsets[b + 1], n_target)
    return keys


@loop
def _with_words(key, words, low, high, known):
    """Return `key` mixed with the words from `low` to `high`; see `sentence_keys`."""
    # Indices of out-of-vocabulary words depend on earlier sentences, so they are counted from the
    # first one of this sentence.
    first = -1
    for k in range(low, high):
        word = np.int64(words[k])
        if word >= known:
            if first < 0:
                first = word
            word += known - first
        key = mix(key ^ np.uint64(word))
    return key
