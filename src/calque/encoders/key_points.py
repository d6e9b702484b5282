"""An encoder whose rows are key points: as many, and in the same order, for a sentence and its translation."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from calque.corpora.languages import best_match
from calque.encoders.base import Encoder, stored
from calque.encoders.folder import ABOUT_FILE, open_folder, read_about, saving, write_about
from calque.encoders.key_point_parts import Parts, digest_of, open_parts, save_parts
from calque.encoders.key_point_rows import KeyPoints, by_language
from calque.errors import InputError, SettingError, check_number
from calque.nn.key_points import key_points
from calque.nn.pivots import find_pivots
from calque.nn.ragged import Ragged
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentence, Sentences
from calque.vectors import Embeddings

Step = Literal["transform", "extract", "reorder"]
STEPS: tuple[Step, ...] = ("transform", "extract", "reorder")
PIVOTS = "pivots"  # steps of `PivotedEncoder`
_BLOCK = 65_536  # rows that go through a network at a time
_SENTENCES = 1024  # that are put in order at a time
_FIXED = ("layer", "pooling")  # options of `load_encoder` that the parts have been trained for


def named_steps(steps: str | Sequence[str] | None) -> tuple[Step, ...] | None:
    """`transform,extract` as a tuple; None stays.

    Raises:
        SettingError: not the first one, two or three of `STEPS`.
    """
    if steps is None:
        return None
    named = tuple(part.strip() for part in steps.split(",")) if isinstance(steps, str) else tuple(steps)
    if not named or named != STEPS[: len(named)]:
        raise SettingError(
            f"steps {','.join(named) or 'none'}: expected transform, or transform,extract, or transform,extract,reorder"
        )
    return STEPS[: len(named)]


class KeyPointEncoder(Encoder):
    """Language-independent rows from an encoder of each language (CLCR, §3 and Appendix A).

    A sentence in the pivot language is embedded, and its key points extracted. One in another language is embedded, its
    key points are extracted, transformed into the pivot language's space, and put into the order that their translations
    would have there. Fewer `steps` leave the last ones out; with "transform" alone a row is a word, as of other encoders.

    Args:
        encoders: of each language.
        parts: what was learnt for each of them.
        pivot: the language whose space and order the others take over.
        steps: the first one, two or three of `STEPS`; T, T+E and T+E+R in the paper.
        threshold: δ, a word is a key point if it is one with a greater probability; a sentence without any keeps the
            most probable. 0.2 in the paper.
        beam: hypotheses that the search for the order keeps; 10 in the paper.
        costs: by language what a pivot may cost, see `pivots`.
        name: what reports call it.
        settings: how the parts were learnt, for the record.

    Raises:
        SettingError: a step without a part for it; numbers that cannot be.
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
            raise SettingError(f"encoders of {', '.join(encoders)}, but parts of {', '.join(parts)}, pivot {pivot!r}")
        check_number("threshold", threshold, least=0, below=1)
        check_number("beam", beam, least=1, whole=True)
        self.encoders, self.parts = dict(encoders), {lang: parts[lang] for lang in encoders}
        self.pivot, self.threshold, self.beam = pivot, threshold, beam
        self.steps = self._checked(steps)
        self.dim = self.encoders[pivot].dim
        self.settings = dict(settings or {})
        self.costs, self._name = dict(costs or {}), name
        self._weights: str | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        base = self._name or "+".join(encoder.name for encoder in self.encoders.values())
        return f"{base}+{'+'.join(step[0].upper() for step in self.steps)}"

    @property
    def rows(self) -> Literal["words", "key points"]:  # type: ignore[override]
        return "key points" if "extract" in self.steps else "words"

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(self.encoders)

    def with_steps(self, steps: Sequence[Step], *, threshold: float | None = None) -> Self:
        """The same encoder with other steps, or another threshold.

        Raises:
            SettingError: a step that was not learnt.
        """
        other = copy.copy(self)
        other.steps = self._checked(steps)
        if threshold is not None:
            check_number("threshold", threshold, least=0, below=1)
            other.threshold = threshold
        return other

    def pivots(self, corpus: ParallelCorpus, *, at_least_one: bool = False, progress: bool = False) -> WordPairs:
        """Pairs of words that are nearest to each other under both transforms, and cost little enough (CLCR, §3.2).

        Args:
            corpus: parallel text of the pivot language and another.
            at_least_one: of a sentence pair without a pivot, its cheapest pair of words.
            progress: show bars on standard error.

        Raises:
            SettingError: languages that it was not made for; or transforms that nothing was learnt about.
        """
        if corpus.side(self.pivot) == "source":
            return self.pivots(corpus.swapped(), at_least_one=at_least_one, progress=progress).swapped()
        lang = self._language(corpus.langs[0])
        parts = self.parts[lang]
        if parts.to_pivot is None or parts.from_pivot is None or lang not in self.costs:
            raise SettingError(f"nothing is known of pivots between {corpus.langs[0]} and {self.pivot}")
        source = self.encoders[lang].encode(corpus.source, progress=progress)
        target = self.encoders[self.pivot].encode(corpus.target, progress=progress)
        found = find_pivots(source, target, parts.to_pivot, parts.from_pivot)
        return found.within(self.costs[lang], at_least_one=at_least_one)

    def _language(self, lang: str) -> str:
        """The language whose encoder reads this one: a variety, as de-AT, is read by its language's."""
        match = best_match(lang, self.encoders)
        if match is None:
            raise SettingError(f"no encoder for language {lang!r}, there are those of {', '.join(self.encoders)}")
        return match

    def _checked(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        steps = named_steps(steps) or STEPS
        needed = {"transform": "to_pivot", "extract": "head", "reorder": "order"}
        for lang, of_language in self.parts.items():
            for step in steps:
                if getattr(of_language, needed[step]) is None and (lang != self.pivot or step == "extract"):
                    raise SettingError(f"step {step} was not learnt for {lang}: train with --steps {','.join(steps)}")
        return steps

    # -- encoding ------------------------------------------------------------------------------------------------------
    def encode(
        self, sentences: Iterable[Sentence], *, progress: bool = False, out: str | PathLike[str] | None = None
    ) -> Embeddings:
        """One vector per key point, in the order of the pivot language; with "transform" alone, per word.

        Raises:
            SettingError: a sentence is in a language without an encoder.
        """
        return stored(self._read(sentences, progress)[0], out)

    def key_points(self, sentences: Iterable[Sentence], *, progress: bool = False) -> KeyPoints:
        """The word that each row of `encode` is of.

        Raises:
            SettingError: a sentence is in a language without an encoder.
        """
        return self._read(sentences, progress)[1]

    def _read(self, sentences: Iterable[Sentence], progress: bool) -> tuple[Embeddings, KeyPoints]:
        return by_language(sentences, self.dim, lambda part: self._of_language(part, progress))

    def _of_language(self, sentences: Sentences, progress: bool) -> tuple[Embeddings, KeyPoints]:
        lang = self._language(sentences.lang)
        states = self.encoders[lang].encode(sentences, progress=progress)
        if "extract" not in self.steps:
            words = np.arange(states.n_words) - np.repeat(states.offsets[:-1], np.diff(states.offsets))
            return self._transformed(lang, states), KeyPoints(words, states.offsets)
        rows, words, offsets = self._extracted(lang, states)
        vectors = np.ascontiguousarray(states.data[rows], dtype=np.float32)
        if lang != self.pivot and "reorder" in self.steps:
            order = self._order(lang, vectors, words, offsets)
            vectors, words = vectors[order], words[order]
        return self._transformed(lang, Embeddings(vectors, offsets)), KeyPoints(words, offsets)

    def probabilities(self, lang: str, states: Embeddings) -> np.ndarray:
        """P of each word that it is a key point, float32 `[n_words]`; 0 for a word without a vector.

        Args:
            lang: one of the languages.
            states: of its encoder.

        Raises:
            SettingError: the step extract was not learnt.
        """
        head = self.parts[lang].head
        if head is None:
            raise SettingError(f"step extract was not learnt for {lang}: train with --steps transform,extract")
        found = head.probabilities(states.data)
        if states.covered is not None:
            found[~states.covered] = 0.0
        return found

    def _extracted(self, lang: str, states: Embeddings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of the key points, which words of their sentences these are, and where those of each sentence begin."""
        probabilities = self.probabilities(lang, states)
        rows = np.flatnonzero(key_points(probabilities, states.offsets, self.threshold, states.covered))
        offsets = np.searchsorted(rows, states.offsets)
        return rows, rows - np.repeat(states.offsets[:-1], np.diff(offsets)), offsets

    def _order(self, lang: str, vectors: np.ndarray, words: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Numbers of the key points in the order of the pivot language, some sentences at a time."""
        model = self.parts[lang].order
        assert model is not None
        parts = []
        for start in range(0, len(offsets) - 1, _SENTENCES):
            few = offsets[start : start + _SENTENCES + 1]
            a, b = int(few[0]), int(few[-1])
            rows, positions = torch.from_numpy(vectors[a:b]), torch.from_numpy(words[a:b])
            parts.append(a + model.order(rows, positions, Ragged(np.diff(few)), self.beam).numpy())
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _transformed(self, lang: str, states: Embeddings) -> Embeddings:
        transform = self.parts[lang].to_pivot
        if lang == self.pivot or transform is None:
            return states
        data = _through(transform, states.data)
        if states.covered is not None:
            data[~states.covered] = 0.0
        return Embeddings(data, states.offsets, states.covered)

    # -- disk ----------------------------------------------------------------------------------------------------------
    @property
    def fingerprint(self) -> str:
        if self._weights is None:
            self._weights = digest_of(self.parts)
        about = [[lang, self.encoders[lang].fingerprint] for lang in sorted(self.encoders)]
        how = [self.pivot, self.steps, self.threshold, self.beam, self._weights]
        return hashlib.blake2b(json.dumps([about, how]).encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write each language's encoder to a folder of its own, the parts, and `calque.json`, which names them."""
        with saving(folder) as path:
            for number, encoder in enumerate(self.encoders.values()):
                encoder.save_whole(path / f"encoder-{number}")
            about = {
                "langs": list(self.encoders), "name": self._name or "", "towards": self.pivot, "steps": list(self.steps),
                "threshold": self.threshold, "beam": self.beam, "costs": self.costs, "parts": save_parts(self.parts, path),
                "settings": self.settings,
            }  # fmt: skip
            write_about(path, "key-points", about)

    @classmethod
    def open(cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Read what `save` wrote.

        Args:
            folder, about: see `Encoder.open`.
            options: `steps`, and `delta` for the threshold, others than those that were saved; the rest goes to the encoder
                of each language. Layer and pooling cannot be others than those that the parts were trained with.
        """
        path = Path(folder)
        about = read_about(path) if about is None else about
        for name in _FIXED:
            if name in options:
                raise SettingError(f"{name} does not apply to {path}: its key points were trained with one")
        steps, delta = named_steps(options.pop("steps", None)), options.pop("delta", None)
        try:
            parts = open_parts(path, about["parts"])
            langs = list(about["langs"])
            settings = {name: about[name] for name in ("threshold", "beam", "costs", "settings")}
            saved, pivot, name = tuple(about["steps"]), about["towards"], about["name"]
        except (KeyError, TypeError) as error:
            raise InputError(f"no encoder of key points ({error} is missing)", path=path / ABOUT_FILE) from error
        encoders = {lang: open_folder(path / f"encoder-{n}", **options) for n, lang in enumerate(langs)}
        encoder = cls(encoders, parts, pivot=pivot, steps=saved, name=name or None, **settings)
        return encoder.with_steps(steps or saved, threshold=delta)


@torch.inference_mode()
def _through(network: Any, data: np.ndarray) -> np.ndarray:
    """Rows through a network, a block at a time; float32."""
    blocks: list[Tensor] = [
        network(torch.from_numpy(np.ascontiguousarray(data[start : start + _BLOCK], dtype=np.float32)))
        for start in range(0, max(1, len(data)), _BLOCK)
    ]
    return torch.cat(blocks).numpy()
