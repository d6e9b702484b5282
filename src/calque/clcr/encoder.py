"""Encoder that represents sentences by key points: words whose vectors and order should be the same
in all languages.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calque.clcr.networks import ORDERS, KeyPointHead, Order, key_points
from calque.clcr.pivots import find_pivots
from calque.clcr.transform import Transform
from calque.corpora import read_labelled, read_parallel
from calque.corpora.languages import best_match, name_and_path
from calque.encoders.base import Encoder
from calque.encoders.folder import ABOUT_FILE, open_folder, read_about, saving, write_about
from calque.encoders.per_language import sentences_by_language
from calque.errors import InputError, SettingError, check_number
from calque.offsets import ranges
from calque.pairs import WordPairs
from calque.storage import json_text
from calque.text import ParallelCorpus, Sentence, Sentences
from calque.vectors import Embeddings, write_arrays

Step = Literal["transform", "extract", "reorder"]
STEPS: tuple[Step, ...] = ("transform", "extract", "reorder")
# value of `steps` that selects pivots as key points, see `KeyPointEncoder.with_pivots`
PIVOTS = "pivots"
PARTS_FILE = "key-points.safetensors"
# for each sentence, given as its words, the words of its translation into the pivot language
Translations = dict[tuple[str, ...], tuple[str, ...]]
# attribute of `Parts` that each step needs
_MODULE_OF_STEP = {"transform": "to_pivot", "extract": "head", "reorder": "order"}
_BLOCK = 65_536  # number of vectors that are transformed at a time
# names of the module classes in saved folders
_CLASSES: Mapping[str, type[nn.Module]] = {
    "transform": Transform,
    "key-points": KeyPointHead,
    "relative-order": ORDERS["relative"],
    "absolute-order": ORDERS["absolute"],
}


def named_steps(steps: str | Sequence[str] | None) -> tuple[Step, ...] | None:
    """Parse steps such as `transform,extract` into a tuple; None is returned unchanged.

    Raises:
        SettingError: the steps are not the first one, the first two or all three of `STEPS`.
    """
    if steps is None:
        return None
    if isinstance(steps, str):
        steps = steps.split(",")
    names = tuple(step.strip() for step in steps)
    if not names or names != STEPS[: len(names)]:
        raise SettingError(
            "steps must be transform, or transform,extract, or transform,extract,reorder, got "
            f"{','.join(names)}"
        )
    return STEPS[: len(names)]


def check_view(steps: str | None, delta: float | None, translations: object) -> None:
    """Check that translations are given if and only if the steps are "pivots", and that no
    threshold is given with "pivots".
    """
    if (steps == PIVOTS) != bool(translations):
        raise SettingError(
            "translations must be given if and only if steps=pivots; try translations=de=FILE,FILE"
        )
    if steps == PIVOTS and delta is not None:
        raise SettingError(
            "delta must not be set for pivots, which have no key-point probability; leave out delta"
        )


@dataclass(frozen=True)
class Parts:
    """Trained modules for one language: transforms into the pivot language's vector space and back,
    the key-point classifier P (`head`), and the model R, which predicts the key points' order in a
    translation. The pivot language has only `head`."""

    to_pivot: Transform | None = None
    from_pivot: Transform | None = None
    head: KeyPointHead | None = None
    order: Order | None = None


@dataclass(frozen=True)
class KeyPoints:
    """Positions of key points. `data`, int64 `[n_rows]`, contains the index of each key point's
    word in its sentence; `offsets`, int64 `[n_sentences + 1]`, contains the index of each
    sentence's first key point in `data`."""

    data: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> np.ndarray:
        return self.data[self.offsets[sentence] : self.offsets[sentence + 1]]


class KeyPointEncoder(Encoder):
    """Encoder with language-independent sentence representations, built from one encoder per
    language (CLCR, §3 and Appendix A).

    A sentence in the pivot language is encoded, and its key points are extracted. For a sentence in
    another language, the key points are also transformed into the pivot language's space and put
    into the order of their translations. `steps` can leave out the later steps; with "transform"
    alone, the encoder returns one vector per word, like other encoders.

    Args:
        parts: trained modules for each language.
        pivot: language whose vector space and key-point order all languages share.
        steps: the first one, the first two or all three of `STEPS` (T, T+E and T+E+R in the paper).
        threshold: threshold δ (0.2 in the paper). Words with a higher key-point probability are key
            points. If a sentence has no such word, the word with the highest probability is its
            only key point.
        beam: beam size for the order search (10 in the paper).
        costs: maximum cost of a pivot in each language, see `pivots`.
        settings: training settings to save with the encoder.

    Attributes:
        translations: for each language, the translation of each sentence into the pivot language;
            None unless pivots are used.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        parts: Mapping[str, Parts],
        *,
        pivot: str,
        steps: Sequence[Step] = STEPS,
        threshold: float = 0.2,
        beam: int = 10,
        costs: Mapping[str, float] | None = None,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ):
        if pivot not in encoders or set(parts) != set(encoders):
            raise SettingError(
                f"encoders must be for {', '.join(parts)} and {pivot!r}, got {', '.join(encoders)}"
            )
        check_number("threshold", threshold, least=0, below=1)
        self.encoders = dict(encoders)
        self.parts = {lang: parts[lang] for lang in encoders}
        self.pivot = pivot
        self.steps = self._checked(steps)
        self.dim = self.encoders[pivot].dim
        self.threshold = threshold
        self.beam = beam
        self.costs = dict(costs or {})
        self.settings = dict(settings or {})
        self.translations: dict[str, Translations] | None = None
        self._name = name
        self._weights_hash: str | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        if self._name:
            names = [self._name]
        else:
            names = [encoder.name for encoder in self.encoders.values()]
        letters = [step[0].upper() for step in self.steps]  # as in Table 4, for example T+E+R
        if self.translations is not None:
            letters.append("pGA")
        return "+".join(names + letters)

    @property
    def rows(self) -> Literal["words", "key points"]:  # type: ignore[override]
        if self.steps == ("transform",) and self.translations is None:
            return "words"
        return "key points"

    @property
    def languages(self) -> tuple[str, ...]:
        if self.translations is None:
            return tuple(self.encoders)
        return (self.pivot, *self.translations)

    def with_steps(self, steps: Sequence[Step], *, threshold: float | None = None) -> Self:
        """Return a copy with other steps and, if given, another threshold."""
        other = copy.copy(self)
        other.steps = self._checked(steps)
        if threshold is not None:
            check_number("threshold", threshold, least=0, below=1)
            other.threshold = threshold
        return other

    def with_pivots(self, corpora: Sequence[ParallelCorpus]) -> Self:
        """Return a copy that uses pivots instead of the predictions of the modules P and R (CLCR,
        Table 4, T+pGA).

        In the pivot language, every word has a vector, as with "transform" alone. In other
        languages, only the pivots have vectors, in the order of the translation. `corpora` are
        parallel texts between the pivot language and other languages; they must contain a
        translation of every sentence that is encoded.
        """
        translations: dict[str, Translations] = {}
        for corpus in corpora:
            if corpus.side(self.pivot) == "target":
                corpus = corpus.swapped()
            translation_of = translations.setdefault(self._language(corpus.langs[1]), {})
            for translation, sentence in zip(corpus.source, corpus.target, strict=True):
                # a sentence can occur several times; its first translation is used
                translation_of.setdefault(sentence.words, translation.words)
        other = self.with_steps(("transform",))
        other.translations = translations
        return other

    def pivots(
        self, corpus: ParallelCorpus, *, at_least_one: bool = False, progress: bool = False
    ) -> WordPairs:
        """Return the pivots: word pairs that are mutual nearest neighbours under both transforms
        and whose cost is at most the maximum (CLCR, §3.2). If `at_least_one`, also return the
        cheapest word pair of each sentence pair without a pivot.

        Raises:
            SettingError: a language has no encoder, no trained transforms or no maximum cost.
        """
        if corpus.side(self.pivot) == "source":
            pairs = self.pivots(corpus.swapped(), at_least_one=at_least_one, progress=progress)
            return pairs.swapped()
        lang = self._language(corpus.langs[0])
        parts = self.parts[lang]
        if parts.to_pivot is None or parts.from_pivot is None or lang not in self.costs:
            raise SettingError(
                f"pivots need transforms and a maximum cost; train on text in {lang} and "
                f"{self.pivot}"
            )
        source = self.encoders[lang].encode(corpus.source, progress=progress)
        target = self.encoders[self.pivot].encode(corpus.target, progress=progress)
        candidates = find_pivots(source, target, parts.to_pivot, parts.from_pivot)
        return candidates.within(self.costs[lang], at_least_one=at_least_one)

    def _language(self, lang: str) -> str:
        """Return the language whose encoder is used for `lang`; a variety such as de-AT uses the
        encoder for its language.
        """
        match = best_match(lang, self.encoders)
        if match is None:
            raise SettingError(
                f"there is no encoder for language {lang!r}, only for {', '.join(self.encoders)}"
            )
        return match

    def _checked(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Return the steps, after checking that every language has the modules that they need."""
        steps = named_steps(steps) or STEPS
        for lang, parts in self.parts.items():
            for step in steps:
                # The pivot language's own space and order are the common ones, so it only needs P.
                is_needed = lang != self.pivot or step == "extract"
                if is_needed and getattr(parts, _MODULE_OF_STEP[step]) is None:
                    raise SettingError(
                        f"step {step} was not trained for {lang}; train with --steps "
                        f"{','.join(steps)}"
                    )
        return steps

    # -- encoding ----------------------------------------------------------------------------------
    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per key point, in the pivot language's order."""
        vectors, _ = self._encode_all(sentences, progress)
        return vectors

    def encode_to(
        self, path: str | PathLike[str], sentences: Iterable[Sentence], *, progress: bool = False
    ) -> Embeddings:
        """Write one vector per key point, and the index of each key point's word as `words`, to a
        safetensors file.
        """
        vectors, words = self._encode_all(sentences, progress)
        arrays = {"data": vectors.data, "offsets": vectors.offsets}
        if vectors.covered is not None:
            arrays["covered"] = vectors.covered
        arrays["words"] = words
        write_arrays(path, arrays)
        return Embeddings.open(path)

    def key_points(self, sentences: Iterable[Sentence], *, progress: bool = False) -> KeyPoints:
        """Return the index of the word that each vector returned by `encode` represents."""
        vectors, words = self._encode_all(sentences, progress)
        return KeyPoints(words, vectors.offsets)

    def _encode_all(
        self, sentences: Iterable[Sentence | Sequence[str]], progress: bool
    ) -> tuple[Embeddings, np.ndarray]:
        """Return the vectors of sentences, and the index of each vector's word in its sentence."""
        if isinstance(sentences, Sentences):
            return self._encode_language(sentences, progress)
        parts = sentences_by_language(list(sentences))
        if not parts:
            nothing = Embeddings(np.zeros((0, self.dim), dtype=np.float32), np.array([0]))
            return nothing, np.zeros(0, dtype=np.int64)
        encoded = [self._encode_language(part, progress) for part, _ in parts]
        vectors = Embeddings.joined([vectors for vectors, _ in encoded])
        words = np.concatenate([words for _, words in encoded])
        # Sentences are now sorted by language; restore the order in which they were given.
        order = np.argsort(np.concatenate([numbers for _, numbers in parts]))
        rows = ranges(vectors.offsets[order], np.diff(vectors.offsets)[order])
        return vectors.take(order), words[rows]

    def _encode_language(
        self, sentences: Sentences, progress: bool
    ) -> tuple[Embeddings, np.ndarray]:
        """Return the vectors of sentences in one language, and the index of each vector's word in
        its sentence.
        """
        lang = self._language(sentences.lang)
        states = self.encoders[lang].encode(sentences, progress=progress)
        starts = states.offsets[:-1]
        if self.translations is not None and lang != self.pivot:
            words, offsets = self._pivot_words(lang, sentences, self.translations.get(lang, {}))
        elif "extract" in self.steps:
            words, offsets = self._extracted_words(lang, states)
        else:
            positions = np.arange(states.n_words) - np.repeat(starts, np.diff(states.offsets))
            return self._transformed(lang, states), positions
        rows = np.repeat(starts, np.diff(offsets)) + words
        chosen = Embeddings(np.ascontiguousarray(states.data[rows]), offsets)
        return self._transformed(lang, chosen), words

    def _extracted_words(self, lang: str, states: Embeddings) -> tuple[np.ndarray, np.ndarray]:
        """Return the words that the module P selects as key points, in the order predicted by R,
        and each sentence's offset.
        """
        head, order_model = self.parts[lang].head, self.parts[lang].order
        assert head is not None
        probabilities = head.probabilities(states.data)
        mask = key_points(probabilities, states.offsets, self.threshold, states.covered)
        rows = np.flatnonzero(mask)
        offsets = np.searchsorted(rows, states.offsets)
        lengths = np.diff(offsets)
        words = rows - np.repeat(states.offsets[:-1], lengths)
        if lang != self.pivot and "reorder" in self.steps:
            assert order_model is not None
            # R was trained on the vectors of the language's own encoder, before the transform.
            vectors = torch.from_numpy(np.ascontiguousarray(states.data[rows], dtype=np.float32))
            order, _ = order_model.search(
                vectors, torch.from_numpy(words), torch.from_numpy(lengths), self.beam
            )
            words = words[np.repeat(offsets[:-1], lengths) + order]
        return words, offsets

    def _pivot_words(
        self, lang: str, sentences: Sentences, translation_of: Translations
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the pivots of each sentence in the word order of its translation, and the offset
        of each sentence.
        """
        texts = [sentence.words for sentence in sentences]
        missing = [words for words in texts if words not in translation_of]
        if missing:
            raise SettingError(
                f"{len(missing):,} of {len(texts):,} sentences in {lang} have no translation "
                f"(first: {' '.join(missing[0])[:60]!r}), but pivots need one for every sentence; "
                "add these sentences to `translations`"
            )
        translations = [translation_of[words] for words in texts]
        corpus = ParallelCorpus.of(texts, translations, (lang, self.pivot))
        pairs = self.pivots(corpus, at_least_one=True)
        by_target = np.lexsort((pairs.target, pairs.sentence))
        return pairs.source[by_target], pairs.offsets()

    @torch.inference_mode()
    def _transformed(self, lang: str, states: Embeddings) -> Embeddings:
        transform = self.parts[lang].to_pivot
        if lang == self.pivot or transform is None:
            return states
        data = np.empty((states.n_words, self.dim), dtype=np.float32)
        for start in range(0, len(data), _BLOCK):
            rows = np.ascontiguousarray(states.data[start : start + _BLOCK], dtype=np.float32)
            data[start : start + _BLOCK] = transform(torch.from_numpy(rows)).numpy()
        if states.covered is not None:
            data[~states.covered] = 0.0
        return Embeddings(data, states.offsets, states.covered)

    # -- disk --------------------------------------------------------------------------------------
    def _modules(
        self, langs: Iterable[str]
    ) -> list[tuple[str, str, Transform | KeyPointHead | Order]]:
        """Return the language, the name and the object of each trained module."""
        modules = []
        for lang in langs:
            for name, module in vars(self.parts[lang]).items():
                if module is not None:
                    modules.append((lang, name, module))
        return modules

    @property
    def fingerprint(self) -> str:
        if self._weights_hash is None:
            digest = hashlib.blake2b(digest_size=16)
            for lang, name, module in self._modules(sorted(self.parts)):
                for key, weights in sorted(module.state_dict().items()):
                    digest.update(f"{lang}.{name}.{key}{tuple(weights.shape)}".encode())
                    digest.update(weights.detach().cpu().contiguous().numpy().tobytes())
            self._weights_hash = digest.hexdigest()
        encoders = [[lang, self.encoders[lang].fingerprint] for lang in sorted(self.encoders)]
        settings = [self.pivot, self.steps, self.threshold, self.beam, self._weights_hash]
        identity: list[object] = [encoders, settings]
        for lang, translation_of in sorted((self.translations or {}).items()):
            identity.append([lang, sorted(translation_of.items())])
        text = json_text(identity, undefined="name")
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder with the encoder for each language, the trained modules, and
        `calque.json`, which describes both.
        """
        if self.translations is not None:
            raise SettingError(
                "pivots depend on one text and cannot be saved; load the encoder with other steps"
            )
        class_names = {module_class: name for name, module_class in _CLASSES.items()}
        langs = list(self.parts)
        parts: dict[str, dict[str, object]] = {lang: {} for lang in langs}
        weights: dict[str, torch.Tensor] = {}
        for lang, name, module in self._modules(langs):
            parts[lang][name] = {"kind": class_names[type(module)], **module.settings}
            for key, value in module.state_dict().items():
                weights[f"{langs.index(lang)}.{name}.{key}"] = value.detach().cpu().contiguous()
        with saving(folder, self) as path:
            for number, encoder in enumerate(self.encoders.values()):
                encoder.save_whole(path / f"encoder-{number}")
            save_file(weights, path / PARTS_FILE)
            about = {
                "langs": list(self.encoders),
                "name": self._name or "",
                "towards": self.pivot,
                "steps": list(self.steps),
                "threshold": self.threshold,
                "beam": self.beam,
                "costs": self.costs,
                "parts": parts,
                "settings": self.settings,
            }
            write_about(path, "key-points", about)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        *,
        about: Mapping[str, Any] | None = None,
        steps: str | None = None,
        delta: float | None = None,
        translations: str | Sequence[str] = (),
        pretokenized: bool = False,
        **options: Any,
    ) -> Self:
        """Read an encoder from a folder that `save` wrote.

        Args:
            folder, about: see `Encoder.open`.
            steps: steps to use instead of the saved steps; "pivots" applies `with_pivots`.
            delta: threshold to use instead of the saved threshold.
            translations: translations for pivots, as `de=FILE` for a file of parallel text, or as
                `de=FILE,FILE` for two line-aligned files of labelled text (the file in the pivot
                language first).
            pretokenized: whether the translations are already tokenised, with words separated by
                spaces.
            options: options for each language's encoder, except layer and pooling, which were fixed
                in training.
        """
        path = Path(folder)
        if about is None:
            about = read_about(path)
        fixed = ", ".join(sorted(options.keys() & {"layer", "pooling"}))
        if fixed:
            raise SettingError(
                f"{fixed} cannot be changed: the key points of {path} need the {fixed} used in "
                "training"
            )
        check_view(steps, delta, translations)
        try:
            parts = _open_parts(path / PARTS_FILE, about["parts"])
            langs = list(about["langs"])
            settings = {name: about[name] for name in ("threshold", "beam", "costs", "settings")}
            saved_steps, pivot, name = tuple(about["steps"]), about["towards"], about["name"]
        except (KeyError, TypeError) as error:
            raise InputError(
                f"is not from a key-point encoder ({error} is missing)", path=path / ABOUT_FILE
            ) from error
        encoders = {
            lang: open_folder(path / f"encoder-{number}", **options)
            for number, lang in enumerate(langs)
        }
        encoder = cls(
            encoders, parts, pivot=pivot, steps=saved_steps, name=name or None, **settings
        )
        if steps != PIVOTS:
            return encoder.with_steps(named_steps(steps) or saved_steps, threshold=delta)
        if isinstance(translations, str):
            translations = [translations]
        corpora = [_read_translations(text, pivot, pretokenized) for text in translations]
        return encoder.with_pivots(corpora)


def _open_parts(path: Path, about: Mapping[str, Mapping[str, Any]]) -> dict[str, Parts]:
    """Read the trained modules for each language.

    Args:
        about: settings of each module, keyed by language and by attribute of `Parts`.
    """
    try:
        weights = load_file(path)
        parts = {}
        for number, (lang, settings_of_module) in enumerate(about.items()):
            modules = {
                name: _open_module(settings, weights, f"{number}.{name}")
                for name, settings in settings_of_module.items()
            }
            parts[lang] = Parts(**modules)
    except Exception as error:  # reading a corrupt file can raise many kinds of errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"must contain the trained weights of a key-point encoder ({reason})", path=path
        ) from error
    return parts


def _open_module(
    settings: Mapping[str, Any], weights: Mapping[str, torch.Tensor], prefix: str
) -> Any:
    """Build a module, and load its weights, whose names start with the prefix."""
    settings = dict(settings)
    module = _CLASSES[settings.pop("kind")](**settings)
    module.load_state_dict({key: weights[f"{prefix}.{key}"] for key in module.state_dict()})
    return module.eval()


def _read_translations(text: str, pivot: str, pretokenized: bool) -> ParallelCorpus:
    """Read parallel text from one file, or from two line-aligned files.

    Args:
        text: `LANG=FILE`, or `LANG=FILE,FILE` with the file in the pivot language first.
    """
    lang, paths = name_and_path(text)
    if not lang:
        raise SettingError(f"translations must start with a language, got {text}; try de={text}")
    first, *second = paths.split(",")
    if not second:
        return read_parallel(first, langs=(pivot, lang), pretokenized=pretokenized)
    translations = _read_texts(first, pivot, pretokenized)
    sentences = _read_texts(second[0], lang, pretokenized)
    if len(translations) != len(sentences):
        raise SettingError(
            f"translations {text}: both files must have the same number of texts, got "
            f"{len(translations):,} and {len(sentences):,}"
        )
    return ParallelCorpus.of(translations, sentences, (pivot, lang))


def _read_texts(path: str, lang: str, pretokenized: bool) -> list[tuple[str, ...]]:
    """Return the words of all texts in a file of labelled text, one column after another."""
    labelled = read_labelled(path, lang=lang, pretokenized=pretokenized)
    texts = []
    for column in labelled.texts:
        texts += [sentence.words for sentence in column]
    return texts
