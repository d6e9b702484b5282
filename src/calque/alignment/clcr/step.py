"""CLCR's first step from beginning to end: transforms, then each encoder in turn, then how much a pivot may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from calque.alignment.clcr.phases import Course, History, Phase
from calque.alignment.clcr.pivots import choose_threshold
from calque.alignment.clcr.text import PairedText, covered_words
from calque.alignment.clcr.transforming import ScaledSource, Side, Space
from calque.encoders.base import Encoder
from calque.encoders.checkpoint import weights_digest
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.nn.pivots import find_pivots
from calque.nn.transform import Transform
from calque.offsets import offsets_of
from calque.threads import Threads
from calque.training.passes import shares_at_once
from calque.training.sources import ChosenWords, TrainedSource, VectorSource, float32_copy, freeze_below
from calque.vectors import Embeddings


@dataclass
class Transformed:
    """What the first step gives.

    Attributes:
        encoders: of each language, fine-tuned if they can be.
        to_pivot, from_pivot: by language, the transforms into the space of the pivot language's encoder and back.
        thresholds: by language, the highest cost of a pivot, see `choose_threshold`; infinite where nothing tells.
        f1: by language, what the threshold gave on held-out text, if it was chosen there.
        spreads: by language, the root of the mean variance of a component, before the fine-tuning and after it, on the
            pairs held out with that language (of the pivot, with the first): encoders could make distances small by making
            all vectors alike.
        history: by phase (`transform-de`, `encoder-de`, and of the pivot `encoder-en`), the metrics of every update: the
            distances `de-en`, D(T(s_de) ‖ s_en), and `en-de`, their sum `loss`, and the `temperature`. They are in units
            of the variance of a component, if the vectors were scaled.
        texts: what was trained on, and what was held out.
    """

    encoders: dict[str, Encoder]
    to_pivot: dict[str, Transform]
    from_pivot: dict[str, Transform]
    thresholds: dict[str, float]
    f1: dict[str, float]
    spreads: dict[str, tuple[float, float]]
    history: dict[str, History]
    texts: list[PairedText] = field(repr=False)


@dataclass
class _Language:
    """A language beside the pivot, while it is learnt.

    Attributes:
        text: with the pivot.
        space: of its vectors.
        to_pivot, from_pivot: transforms between the scaled spaces.
        stored, translated: vectors of its sentences, and of their translations, by the encoders as they are now.
    """

    text: PairedText
    space: Space
    to_pivot: Transform
    from_pivot: Transform
    stored: Embeddings
    translated: Embeddings

    @property
    def name(self) -> str:
        return self.text.lang


class TransformStep:
    """The three phases over some texts.

    Args:
        encoders: by language, as they were given; they stay as they are.
        texts: of the languages beside the pivot.
        course: what the phases have in common.
        hidden: rows of B, see `Transform`.
        scaled: whether vectors are centred, and divided by their spread, for the transforms and the distance; what comes of
            it are transforms between the vectors as they are.
        freeze: see `Tuner`.
        seed: of the transforms.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        texts: Sequence[PairedText],
        course: Course,
        *,
        hidden: int | None,
        scaled: bool,
        freeze: int | None,
        seed: int,
    ):
        self.encoders, self.history = dict(encoders), {}
        self._texts, self._course, self._freeze = list(texts), course, freeze
        self._device, self._pivot = course.processes.device, course.pivot
        dim = encoders[self._pivot].dim
        self._space = Space.of([(t.pivot_vectors, t.train) for t in texts]) if scaled else Space.plain(dim)
        self._languages = []
        for text in texts:
            own = encoders[text.lang].dim
            torch.manual_seed(seed)
            self._languages.append(_Language(
                text,
                Space.of([(text.vectors, text.train)]) if scaled else Space.plain(own),
                Transform(own, dim, hidden).to(self._device),
                Transform(dim, own, hidden).to(self._device),
                text.vectors,
                text.pivot_vectors,
            ))  # fmt: skip

    def learn_transforms(self, phase: Phase) -> None:
        """Phase 1, of each language by itself: all vectors stay as they were."""
        for language in self._languages:
            text = language.text
            side = self._side(language, self._frozen(language.stored, language.space), text.train)
            self._run(phase, f"transform-{language.name}", [side], self._frozen(text.pivot_vectors, self._space))

    def learn_encoders(self, phase: Phase, *, again: bool) -> None:
        """Phase 2: the encoder of each language beside the pivot, if it has weights to train.

        Args:
            phase: its schedule.
            again: whether the vectors of all sentences will be needed once more.
        """
        for language in self._languages:
            text, lang = language.text, language.name
            if not isinstance(encoder := self.encoders[lang], TrainableEncoder):
                continue
            tuned = self._copy(encoder)
            with Threads(shares_at_once(encoder, self._device)) as threads:
                source = self._trained(tuned, encoder.split(text.corpus.source), language.space, threads)
                pivot = self._frozen(text.pivot_vectors, self._space)
                self._run(phase, f"encoder-{lang}", [self._side(language, source, text.train)], pivot, tuned, threads)
            self.encoders[lang] = _ready(tuned)
            if again:
                language.stored = tuned.encode(text.corpus.source, progress=self._course.progress)

    def learn_pivot_encoder(self, phase: Phase, *, again: bool) -> None:
        """Phase 3: the pivot's encoder, if it has weights to train; one for all languages, so over all texts together.

        Args:
            phase, again: see `learn_encoders`.
        """
        if not isinstance(encoder := self.encoders[self._pivot], TrainableEncoder):
            return
        tuned = self._copy(encoder)
        begins = offsets_of([len(text.corpus) for text in self._texts])
        sides = [
            self._side(language, self._frozen(language.stored, language.space), language.text.train + begin)
            for language, begin in zip(self._languages, begins[:-1], strict=True)
        ]
        with Threads(shares_at_once(encoder, self._device)) as threads:
            split = SplitSentences.joined([encoder.split(text.corpus.target) for text in self._texts])
            pivot = self._trained(tuned, split, self._space, threads)
            self._run(phase, f"encoder-{self._pivot}", sides, pivot, tuned, threads)
        self.encoders[self._pivot] = _ready(tuned)
        for language in self._languages if again else ():
            language.translated = tuned.encode(language.text.corpus.target, progress=self._course.progress)

    def refine(self, phase: Phase) -> None:
        """The transforms once more, of each language by itself, from mutual best pairs of words alone."""
        for language in self._languages:
            side = self._side(language, self._frozen(language.stored, language.space), language.text.train)
            self._run(phase, f"refine-{language.name}", [side], self._frozen(language.translated, self._space))

    def result(self, threshold: float | None) -> Transformed:
        """Transforms between vectors as they are, and thresholds.

        Args:
            threshold: of pivots; None to choose it on the held-out text of each language, by its links.
        """
        there = self._space.mean, self._space.spread
        found = Transformed(self.encoders, {}, {}, {}, {}, {}, self.history, self._texts)
        for language in self._languages:
            lang, text, here = language.name, language.text, (language.space.mean, language.space.spread)
            found.to_pivot[lang] = language.to_pivot.between(here, there).cpu().eval()
            found.from_pivot[lang] = language.from_pivot.between(there, here).cpu().eval()
            found.thresholds[lang] = float("inf") if threshold is None else threshold
            if not len(text.held_out):
                continue
            sides = text.corpus.source.take(text.held_out), text.corpus.target.take(text.held_out)
            vectors = self.encoders[lang].encode(sides[0]), self.encoders[self._pivot].encode(sides[1])
            old = text.vectors, text.pivot_vectors
            for name, was, now in zip((lang, self._pivot), old, vectors, strict=True):
                everything = np.arange(len(now))
                spreads = Space.of([(was, text.held_out)]).spread, Space.of([(now, everything)]).spread
                found.spreads.setdefault(name, spreads)
            if threshold is None and text.links is not None:
                pivots = find_pivots(*vectors, found.to_pivot[lang], found.from_pivot[lang])
                links = text.links.take(text.held_out)
                found.thresholds[lang], found.f1[lang] = choose_threshold(pivots, links)
        return found

    # -- what a phase needs ----------------------------------------------------------------------------------------------
    def _run(
        self,
        phase: Phase,
        name: str,
        sides: list[Side],
        pivot: VectorSource,
        trained: TrainableEncoder | None = None,
        threads: Threads | None = None,
    ) -> None:
        maps = nn.ModuleList([module for side in sides for module in (side.to_pivot, side.from_pivot)])
        languages = [*(side.lang for side in sides), self._pivot]
        texts = [language.text.fingerprint for language in self._languages if language.name in languages]
        identity: dict[str, Any] = {
            "encoders": [self.encoders[lang].fingerprint for lang in languages],
            "transforms": weights_digest(maps),
            "text": texts,
            "freeze": self._freeze,
        }
        self.history[name] = self._course.run(
            phase, name, sides, pivot, trained=trained, threads=threads, identity=identity
        )

    def _side(self, language: _Language, source: VectorSource, translations: np.ndarray) -> Side:
        return Side(
            language.name, source, language.to_pivot, language.from_pivot, language.text.train, translations
        )  # fmt: skip

    def _frozen(self, vectors: Embeddings, space: Space) -> VectorSource:
        return ScaledSource(ChosenWords(vectors, covered_words(vectors), self._device), space, self._device)

    def _trained(self, tuned: TrainableEncoder, split: SplitSentences, space: Space, threads: Threads) -> VectorSource:
        source = TrainedSource(
            tuned, split.covered_words(), threads, self._course.processes, budget=self._course.budget
        )  # fmt: skip
        return ScaledSource(source, space, self._device)

    def _copy(self, encoder: TrainableEncoder) -> TrainableEncoder:
        tuned = float32_copy(encoder, self._device)
        tuned.model.train()
        freeze_below(tuned.model, self._freeze)
        return tuned


def _ready(encoder: TrainableEncoder) -> TrainableEncoder:
    """No longer in training."""
    encoder.model.eval().requires_grad_(True)
    return encoder
