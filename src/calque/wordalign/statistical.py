"""Statistical word alignment: from parallel text alone to links, and to an aligner for further text."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from os import PathLike, fspath
from typing import Any

import numpy as np
import pyarrow as pa

from calque.errors import InputError, SettingError, check_number
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.progress import bar
from calque.storage import whole
from calque.text import ParallelCorpus, Sentences
from calque.wordalign.bitext import Bitext, Side, loop, mix
from calque.wordalign.fast_align import DiagonalModel, FastAlignSettings
from calque.wordalign.gibbs import GibbsModel, GibbsSettings
from calque.wordalign.hmm import HmmModel, HmmSettings
from calque.wordalign.model import Job, Links, Model, n_threads
from calque.wordalign.similarity import Similarities
from calque.wordalign.spelling import CodePoints, code_points, joined, shared
from calque.wordalign.symmetrization import check_method
from calque.wordalign.symmetrization import symmetrize as join_directions
from calque.wordalign.vocabulary import Classes, Vocabulary

Prior = Callable[[ParallelCorpus], Similarities]
Settings = FastAlignSettings | HmmSettings | GibbsSettings
FEW = 2_000  # sentence pairs below which the sampler costs next to nothing, and small texts gain most from it
MAX_WORDS = 500
FORMAT = "calque word aligner 1"
BLOCK = 1 << 15  # sentence pairs linked at a time where they come one after the other
_KINDS: dict[str, type[Model]] = {kind.kind: kind for kind in (DiagonalModel, HmmModel, GibbsModel)}


def align_words(
    corpus: ParallelCorpus,
    *,
    extra: ParallelCorpus | None = None,
    model: str = "auto",
    symmetrize: str = "one-to-one",
    settings: Settings | None = None,
    classes: Classes | None = None,
    seed: int = 0,
    threads: int | None = None,
    max_words: int = MAX_WORDS,
    prior: Prior | None = None,
    prior_weight: float | None = None,
    progress: bool = False,
) -> WordPairs:
    """Link the words of parallel text that translate each other, by what occurs together in it.

    Args:
        corpus: the text to align.
        extra: more text in the same languages, to learn from. Few sentences align much better together with many.
        model: `fast-align`, IBM model 2 near the diagonal, the fastest; `hmm`, two hidden Markov models trained to
            agree; `gibbs`, a sampler with fertilities, the most accurate; `auto`, the sampler for texts of fewer than
            2,000 sentence pairs, else the HMM.
        symmetrize: how the links of both directions are combined: `one-to-one` (the intersection, without words that have
            two links), `intersection`, `union`, `grow-diag`, `grow-diag-final` or `grow-diag-final-and`; see
            `calque.wordalign.symmetrize`. Results under different ones cannot be compared.
        settings: of the model: `FastAlignSettings`, `HmmSettings` or `GibbsSettings`.
        classes: which words count as one; None takes what suits the model (words as they are for `fast-align`, else
            lower case, and rare words by their first five letters).
        seed: of the sampler; the other models draw nothing.
        threads: as many as there are processors, if None. Links do not depend on it.
        max_words: sentence pairs with a longer side get no links; a warning tells how many.
        prior: how similar words are before any is counted, for `hmm` and `gibbs`: from a text to its similarities, such as
            `calque.Linker("mini").similarities`. Both make fewer errors than either if the encoder knows the languages.
            An encoder that is first aligned on this very text is best cross-fitted: `calque.HeldOut`.
        prior_weight: what similarities are multiplied by, in place of that of the settings.
        progress: show a bar on standard error.

    Returns:
        links with posteriors, for every sentence pair of `corpus`; those with an empty side have none.

    Raises:
        SettingError: no such model or symmetrisation, settings of another model, `extra` in other languages, or the weight of a
            prior that is not given.
    """
    check_method(symmetrize)
    aligner = WordAligner.train(
        corpus, extra=extra, model=model, settings=settings, classes=classes, seed=seed, threads=threads,
        max_words=max_words, prior=prior, prior_weight=prior_weight, progress=progress,
    )  # fmt: skip
    return aligner.align(corpus, symmetrize=symmetrize)


class WordAligner:
    """A trained word aligner: `WordAligner.train(corpus)`, then `align`, `save` and `WordAligner.open`.

    Args:
        model: the trained tables.
        vocabularies: of the source and the target language.
        langs: these languages.
        max_words: longest side of a sentence pair.
        prior: see `align_words`; it is not saved with the tables.
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
        if prior is not None and model.kind == DiagonalModel.kind:
            raise SettingError(f"model={model.kind!r} takes no prior: take hmm or gibbs")
        self.model, self.vocabularies, self.langs = model, vocabularies, langs
        self.max_words, self.prior = max_words, prior
        self._trained_on: tuple[ParallelCorpus, Links] | None = None

    def __repr__(self) -> str:
        sizes = " × ".join(f"{len(vocabulary):,}" for vocabulary in self.vocabularies)
        return f"WordAligner({self.model.kind}, {'-'.join(self.langs)}, {sizes} types)"

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
        if model == "auto":
            fitting = (name for name, kind in _KINDS.items() if isinstance(settings, kind.settings_type))
            model = next(fitting, "gibbs" if len(text) < FEW else "hmm")
        if model not in _KINDS:
            raise SettingError(f"model={model!r}, expected auto, {', '.join(_KINDS)}")
        kind = _KINDS[model]
        chosen: Any = settings or kind.settings_type()
        if not isinstance(chosen, kind.settings_type):
            expected = kind.settings_type.__name__
            raise SettingError(f"{type(chosen).__name__} for model={model!r}, which takes {expected}")
        if prior is not None and kind is DiagonalModel:
            raise SettingError(f"model={model!r} takes no prior: take hmm or gibbs")
        if prior_weight is not None:
            if prior is None:
                raise SettingError(f"prior_weight={prior_weight:g} is of a prior: give one, or leave it out")
            check_number("prior_weight", prior_weight, least=0)
            chosen = chosen.weighted(prior_weight)
        if max_words < 1:
            raise SettingError(f"max_words={max_words}, expected 1 or more")
        workers = n_threads(threads)
        classes = classes or kind.classes
        source, source_words, source_offsets = Vocabulary.build(text.source, classes)
        target, target_words, target_offsets = Vocabulary.build(text.target, classes)
        sides = Side(source_words, source_offsets, len(source)), Side(target_words, target_offsets, len(target))
        bitext = _bitext(*sides, max_words)
        similar = None if prior is None else prior(text)
        with _bar(chosen.passes, model, text.langs, progress) as shown:
            alike = lambda: shared(bitext.pairs, source.points, target.points)  # noqa: E731
            trained, links = kind.fit(Job(bitext, alike, seed, None, workers, shown.update, similar), chosen)
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
        """Link the words of a text, which may be new: words and pairs of words that training never met go by spelling
        and position. The links of a sentence pair do not depend on the others, however the text is cut. For the very
        corpus it was trained on, they are those of the training.

        Args:
            corpus: the text, in the languages of the aligner.
            symmetrize: see `align_words`.
            seed: of the sampler.
            threads: as many as there are processors, if None. Links do not depend on it.
            progress: show a bar on standard error.

        Raises:
            SettingError: another language, or no such symmetrisation.
        """
        check_method(symmetrize)
        directions = self.directions(corpus, seed=seed, threads=threads, progress=progress)
        return join_directions(*directions, symmetrize)

    def aligned(
        self,
        corpus: ParallelCorpus,
        *,
        symmetrize: str = "one-to-one",
        seed: int = 0,
        threads: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[WordPairs]:
        """Return the links of `align` in parts, so that no more than those of a block of sentence pairs are in memory.

        Args:
            corpus, symmetrize, seed, threads: see `align`.
            block: sentence pairs of a block.

        Yields:
            links of one block after the other, whose sentence pairs count from 0.
        """
        check_method(symmetrize)
        kept = self._trained_on[1] if self._trained_on is not None and corpus is self._trained_on[0] else None
        before = np.zeros(2, dtype=np.int64)
        for first in range(0, len(corpus), block):
            part = corpus[first : first + block]
            if kept is None:
                yield self.align(part, symmetrize=symmetrize, seed=seed, threads=threads)
                continue
            after = before + np.array([part.source.lengths().sum(), part.target.lengths().sum()])
            links, before = kept.part(before, after), after
            yield join_directions(links.pairs(part, True), links.pairs(part, False), symmetrize)

    def directions(
        self, corpus: ParallelCorpus, *, seed: int = 0, threads: int | None = None, progress: bool = False
    ) -> tuple[WordPairs, WordPairs]:
        """Return the links of both directions, not joined: at most one for each target word, and for each source word."""
        if corpus.langs != self.langs:
            raise SettingError(f"an aligner for {'-'.join(self.langs)} and a text in {'-'.join(corpus.langs)}")
        if self._trained_on is not None and corpus is self._trained_on[0]:
            links = self._trained_on[1]
        else:
            (source, source_points), (target, target_points) = (
                _encode_further(vocabulary, sentences)
                for vocabulary, sentences in zip(self.vocabularies, (corpus.source, corpus.target), strict=True)
            )
            bitext = _bitext(source, target, self.max_words)
            keys = sentence_keys(
                source.words, source.offsets, len(self.vocabularies[0]), target.words, target.offsets, len(self.vocabularies[1])
            )  # fmt: skip
            alike = partial(shared, bitext.pairs, source_points, target_points)
            similar = self.prior and self.prior(corpus)
            with _bar(None, self.model.kind, self.langs, progress) as shown:
                links = self.model.links(Job(bitext, alike, seed, keys, n_threads(threads), shown.update, similar))
        return links.pairs(corpus, True), links.pairs(corpus, False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write words and tables as one safetensors file."""
        from safetensors.numpy import save_file

        arrays = {f"model.{name}": np.ascontiguousarray(array) for name, array in self.model.arrays().items()}
        for name, vocabulary in zip(("source", "target"), self.vocabularies, strict=True):
            for part in ("names", "forms"):
                arrays |= _packed(f"{name}.{part}", getattr(vocabulary, part))
        about = {
            "format": FORMAT,
            "model": self.model.kind,
            "langs": list(self.langs),
            "max_words": self.max_words,
            "settings": asdict(self.model.settings),
            "classes": asdict(self.vocabularies[0].classes),
        }
        # One entry: safetensors writes several in an order that changes from one time to the next.
        record = json.dumps({**about, "digest": _digest(json.dumps(about), arrays)})
        with whole(path) as part:
            save_file(arrays, part, metadata={"calque": record})

    @classmethod
    def open(cls, path: str | PathLike[str], *, prior: Prior | None = None) -> WordAligner:
        """Read what `save` wrote.

        Raises:
            InputError: the file cannot be read, or is no word aligner.
        """
        from safetensors import SafetensorError, safe_open

        if os.path.isdir(path):
            raise InputError(
                "is a folder, expected the file of a word aligner, as calque words --tables writes it", path=path
            )
        try:
            with safe_open(fspath(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(metadata["calque"])
            # Compiled loops follow these numbers without asking whether they stay in their arrays.
            if about.pop("digest") != _digest(json.dumps(about), arrays):
                raise ValueError("its check sum is wrong: the file is damaged; train it again")
            kind, classes = _KINDS[about["model"]], Classes(**about["classes"])
            learnt = {k.removeprefix("model."): v for k, v in arrays.items() if k.startswith("model.")}
            source, target = (
                Vocabulary(_unpacked(f"{name}.names", arrays), _unpacked(f"{name}.forms", arrays), classes)
                for name in ("source", "target")
            )
            model = kind.from_arrays(learnt, kind.settings_of(about["settings"]))
            langs, max_words = tuple(about["langs"]), about["max_words"]
            if len(langs) != 2 or not all(isinstance(lang, str) for lang in langs):
                raise ValueError(f"languages {langs!r:.60}, expected two names")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError,
                RecursionError, SettingError) as error:  # fmt: skip
            raise InputError(f"not a word aligner saved by calque ({error})", path=path) from error
        return cls(model, (source, target), (langs[0], langs[1]), max_words=max_words, prior=prior)


def is_aligner(path: str) -> bool:
    """Return whether a file says that it is one of `WordAligner.save`; it may be damaged."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return FORMAT.rpartition(" ")[0] in (file.metadata() or {}).get("calque", "")
    except (OSError, SafetensorError):
        return False


def _digest(record: str, arrays: dict[str, np.ndarray]) -> str:
    """Return a hash of everything in the file."""
    digest = hashlib.blake2b(record.encode("utf-8", "replace"), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"\n{name} {arrays[name].dtype} {arrays[name].shape} ".encode("utf-8", "replace"))
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _packed(name: str, words: pa.Array) -> dict[str, np.ndarray]:
    text = [word.encode() for word in words.to_pylist()]
    offsets = offsets_of([len(word) for word in text])
    return {f"{name}.bytes": np.frombuffer(b"".join(text), np.uint8), f"{name}.offsets": offsets}


def _unpacked(name: str, arrays: dict[str, np.ndarray]) -> pa.Array:
    offsets = arrays[f"{name}.offsets"]
    large = pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.tobytes()), pa.py_buffer(arrays[f"{name}.bytes"].tobytes())
    )
    large.validate(full=True)
    return large.cast(pa.string())


def _encode_further(vocabulary: Vocabulary, sentences: Sentences) -> tuple[Side, CodePoints]:
    """Return new sentences, and the spelling of each type in them, known or not."""
    words, offsets, unknown = vocabulary.encode(sentences)
    return Side(words, offsets, len(vocabulary) + len(unknown)), joined(vocabulary.points, code_points(unknown))


def _bitext(source: Side, target: Side, max_words: int) -> Bitext:
    bitext = Bitext(source, target, max_words=max_words)
    if bitext.too_long:
        warnings.warn(
            f"{bitext.too_long:,} of {len(bitext):,} sentence pairs have more than {max_words:,} words on one side and "
            "get no links; raise max_words to align them",
            UserWarning,
            stacklevel=3,
        )
    return bitext


def _bar(n: int | None, model: str, langs: tuple[str, str], progress: bool):
    return bar(n, unit="pass", title=f"{model} {langs[0]}-{langs[1]}", show=progress, leave=False)


@loop
def sentence_keys(source, source_offsets, n_source, target, target_offsets, n_target):
    """Return a number for every sentence pair, uint64, from its words alone; unknown words, from `n_source` and `n_target` on,
    count by which of the sentence's unknown words they are."""
    keys = np.empty(len(source_offsets) - 1, np.uint64)
    for b in range(len(keys)):
        key = mix(np.uint64(source_offsets[b + 1] - source_offsets[b]))
        key = _with_words(key, source, source_offsets[b], source_offsets[b + 1], n_source)
        keys[b] = _with_words(key, target, target_offsets[b], target_offsets[b + 1], n_target)
    return keys


@loop
def _with_words(key, words, low, high, known):
    first = -1
    for k in range(low, high):
        word = np.int64(words[k])
        if word >= known:
            if first < 0:
                first = word
            word += known - first
        key = mix(key ^ np.uint64(word))
    return key
