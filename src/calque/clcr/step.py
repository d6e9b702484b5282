"""CLCR's first step from beginning to end: transforms, then each encoder in turn, then how much a pivot may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from calque.clcr.pivots import Pivots, covered_words, find_pivots
from calque.clcr.text import PairedText
from calque.clcr.transform import Score, Transform
from calque.clcr.transforming import ScaledSource, Side, Space, Transforming
from calque.distributed import Processes
from calque.encoders.base import Encoder
from calque.encoders.checkpoint import weights_digest
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.training.loop import Loop, Schedule
from calque.training.plan import BatchPlan
from calque.training.sources import ChosenWords, TrainedSource, VectorSource, float32_copy
from calque.vectors import Embeddings

_BUDGET = 1024  # most subwords of a batch of an encoder that learns, padding included
_LEAST = 1e-9  # cost below which pivots are alike
TOLERANCE = 0.05  # F1 that a threshold in a gap between costs may lose

History = list[dict[str, float]]


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


class TransformStep:
    """The phases over some texts.

    Args:
        encoders: by language, as they were given; they stay as they are.
        texts: of the languages beside the pivot.
        hidden: rows of B, see `Transform`.
        score: see `attention_distance`.
        scaled: whether vectors are centred, and divided by their spread, for the transforms and the distance; what comes of
            it are transforms between the vectors as they are.
        batch: sentence pairs of each corpus in an update.
        folder: each phase keeps its checkpoints and metrics in a folder of its name there; None keeps none.
        checkpoint_every, progress: see `Loop`.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        texts: Sequence[PairedText],
        *,
        pivot: str,
        hidden: int | None,
        score: Score,
        scaled: bool,
        batch: int,
        seed: int,
        folder: Path | None,
        checkpoint_every: int,
        progress: bool,
    ):
        self.encoders, self.history = dict(encoders), {}
        self._texts, self._pivot, self._batch, self._folder = list(texts), pivot, batch, folder
        self._score: Score = score
        self._every, self._progress = checkpoint_every, progress
        self._how = {"score": score, "scaled": scaled, "batch": batch}
        self._processes = Processes()
        dim = encoders[self._pivot].dim
        self._space = Space.of([(t.pivot_vectors, t.train) for t in texts]) if scaled else Space.plain(dim)
        self._languages = []
        for text in texts:
            own = encoders[text.lang].dim
            torch.manual_seed(seed)
            self._languages.append(_Language(
                text,
                Space.of([(text.vectors, text.train)]) if scaled else Space.plain(own),
                Transform(own, dim, hidden).to(self._processes.device),
                Transform(dim, own, hidden).to(self._processes.device),
                text.vectors,
                text.pivot_vectors,
            ))  # fmt: skip

    def learn_transforms(self, schedule: Schedule, beta: float) -> None:
        """Phase 1, of each language by itself: all vectors stay as they were."""
        for language in self._languages:
            side = self._side(language, self._frozen(language.stored, language.space))
            self._run(f"transform-{side.lang}", [side], self._frozen(language.translated, self._space), schedule, beta)

    def learn_encoders(self, schedule: Schedule, beta: float, *, again: bool) -> None:
        """Phase 2: the encoder of each language beside the pivot, if it has weights to train.

        Args:
            again: whether the vectors of all sentences will be needed once more.
        """
        for language in self._languages:
            text, lang = language.text, language.text.lang
            if not isinstance(encoder := self.encoders[lang], TrainableEncoder):
                continue
            tuned, source = self._trained(encoder, encoder.split(text.corpus.source), language.space)
            pivot = self._frozen(text.pivot_vectors, self._space)
            self._run(f"encoder-{lang}", [self._side(language, source)], pivot, schedule, beta)
            self.encoders[lang] = _ready(tuned)
            if again:
                language.stored = tuned.encode(text.corpus.source, progress=self._progress)

    def learn_pivot_encoder(self, schedule: Schedule, beta: float, *, again: bool) -> None:
        """Phase 3: the pivot's encoder, if it has weights to train; one for all languages, so over all texts together.

        Args:
            schedule, beta, again: see `learn_encoders`.
        """
        if not isinstance(encoder := self.encoders[self._pivot], TrainableEncoder):
            return
        begins = offsets_of([len(text.corpus) for text in self._texts])
        sides = [
            self._side(language, self._frozen(language.stored, language.space), int(begin))
            for language, begin in zip(self._languages, begins[:-1], strict=True)
        ]
        split = SplitSentences.joined([encoder.split(text.corpus.target) for text in self._texts])
        tuned, pivot = self._trained(encoder, split, self._space)
        self._run(f"encoder-{self._pivot}", sides, pivot, schedule, beta)
        self.encoders[self._pivot] = _ready(tuned)
        for language in self._languages if again else ():
            language.translated = tuned.encode(language.text.corpus.target, progress=self._progress)

    def refine(self, schedule: Schedule) -> None:
        """The transforms once more, of each language by itself, from mutual best pairs of words alone."""
        for language in self._languages:
            side = self._side(language, self._frozen(language.stored, language.space))
            pivot = self._frozen(language.translated, self._space)
            self._run(f"refine-{side.lang}", [side], pivot, schedule, 0.0, mutual=True)

    def result(self, threshold: float | None, tolerance: float) -> Transformed:
        """Return transforms between vectors as they are, and thresholds.

        Args:
            threshold: of pivots; None to choose it on the held-out text of each language, by its links.
            tolerance: see `choose_threshold`.
        """
        there = self._space.mean, self._space.spread
        found = Transformed(self.encoders, {}, {}, {}, {}, {}, self.history, self._texts)
        for language in self._languages:
            text, here = language.text, (language.space.mean, language.space.spread)
            lang = text.lang
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
                found.thresholds[lang], found.f1[lang] = choose_threshold(pivots, links, tolerance=tolerance)
        return found

    # -- what a phase needs ----------------------------------------------------------------------------------------------
    def _run(
        self,
        name: str,
        sides: list[Side],
        pivot: VectorSource,
        schedule: Schedule,
        beta: float,
        *,
        mutual: bool = False,
    ) -> None:
        """Train the transforms of some languages, and the encoder that one of the sources reads, if any, in place."""
        languages = [*(side.lang for side in sides), self._pivot]
        maps = nn.ModuleList([module for side in sides for module in (side.to_pivot, side.from_pivot)])
        objective = Transforming(
            sides, pivot, name=self._pivot, processes=self._processes, beta=beta, score=self._score, mutual=mutual
        )
        loop = Loop(
            objective,
            schedule=schedule,
            processes=self._processes,
            identity={
                **self._how,
                "phase": name,
                "beta": beta,
                "encoders": [self.encoders[lang].fingerprint for lang in languages],
                "transforms": weights_digest(maps),
                "text": [text.fingerprint for text in self._texts if text.lang in languages],
            },
            folder=None if self._folder is None else self._folder / name,
            checkpoint_every=self._every,
            progress=self._progress,
            title=name,
        )
        plan = BatchPlan(objective.lengths, batch=self._batch, seed=schedule.seed, window=1)
        self.history[name] = loop.run(plan)

    def _side(self, language: _Language, source: VectorSource, begin: int = 0) -> Side:
        """Return a language's side, whose translations begin with number `begin` of the pivot's sentences."""
        train = language.text.train
        return Side(language.text.lang, source, language.to_pivot, language.from_pivot, train, train + begin)

    def _frozen(self, vectors: Embeddings, space: Space) -> VectorSource:
        device = self._processes.device
        return ScaledSource(ChosenWords(vectors, covered_words(vectors), device), space, device)

    def _trained(
        self, encoder: TrainableEncoder, split: SplitSentences, space: Space
    ) -> tuple[TrainableEncoder, VectorSource]:
        """Return a copy of an encoder, ready to be trained, and the vectors that it gives."""
        tuned = float32_copy(encoder, self._processes.device)
        tuned.model.train()
        source = TrainedSource(tuned, split.covered_words(), self._processes, budget=_BUDGET)
        return tuned, ScaledSource(source, space, self._processes.device)


def _ready(encoder: TrainableEncoder) -> TrainableEncoder:
    """No longer in training."""
    encoder.model.eval().requires_grad_(True)
    return encoder


def choose_threshold(
    pivots: Pivots, links: WordPairs, *, tolerance: float = TOLERANCE, gap: float = 1.25
) -> tuple[float, float]:
    """The threshold with the highest F1 of the pivots within it against links, of all that there are.

    Words that links join, directly or through others, are one group, the finest common granularity (§2.2): a word and the
    pieces that translate it. A group is to have one pivot, whichever of its words these are: the cheapest one between words
    of a group is right, and finds it. Where links are one to one, a group is a link, and this is their usual F1.

    F1 changes only where a pivot is added, so they are sorted by cost and all of these places are tried. The threshold is
    half-way to the next pivot, or the cost of the last one; of equal F1, the lower.

    Links can be wrong in a regular way: articles linked to the particles that stand wherever they do, for instance. Such pairs
    cost more than translations, with a gap between them. So where there is a gap below the best threshold, in which no
    pivot lies though one end costs `gap` times the other, and F1 there is lower by no more than `tolerance`, the
    threshold is half-way in the widest such gap. Ours; the paper only says "a threshold".

    Args:
        pivots: of held-out text.
        links: of the same text, all of them, possible ones too.
        tolerance, gap: see above; tolerance 0 takes the highest F1 as it is.

    Returns:
        the threshold and its F1.

    Raises:
        SettingError: links of other sentences; no pivot, or no link.
    """
    if links.n_sentences != pivots.pairs.n_sentences:
        raise SettingError(f"links of {links.n_sentences} sentence pairs for pivots of {pivots.pairs.n_sentences}")
    if not len(pivots) or not len(links):
        raise SettingError(
            f"no threshold can be chosen from {len(pivots)} pivots and {len(links)} links of the held-out text: hold out "
            "more, or name a threshold"
        )
    order = np.argsort(pivots.costs, kind="stable")
    costs = pivots.costs[order].astype(np.float64)
    group, n_groups = _groups(pivots.pairs, links)
    numbers, places = np.unique(group[order], return_index=True)
    right = np.isin(np.arange(len(costs)), places[numbers >= 0]).cumsum()
    f1 = 2 * right / (np.arange(1, len(costs) + 1) + n_groups)
    f1[:-1][np.diff(costs) == 0] = -1.0  # no threshold lies between equal costs
    best = int(f1.argmax())
    wide = np.where(f1[:best] >= f1[best] - tolerance, costs[1 : best + 1] / np.maximum(costs[:best], _LEAST), 0.0)
    if tolerance and len(wide) and wide.max() >= gap:
        best = int(wide.argmax())
    threshold = costs[best] if best + 1 == len(costs) else (costs[best] + costs[best + 1]) / 2
    return float(threshold), float(f1[best])


def _groups(pairs: WordPairs, links: WordPairs) -> tuple[np.ndarray, int]:
    """Return the group that both words of each pair are in, int64 `[n_pairs]`, −1 where there is none; and the number of
    groups."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sentence, *sides = (np.append(getattr(links, of), getattr(pairs, of)) for of in ("sentence", "source", "target"))
    words = np.concatenate([[sentence, side, np.full_like(side, k)] for k, side in enumerate(sides)], axis=1)
    ends = np.unique(words, axis=1, return_inverse=True)[1].reshape(2, -1)
    linked, (i, j), n = ends[:, : len(links)], ends[:, len(links) :], int(ends.max()) + 1
    group = connected_components(coo_array((np.ones(len(links)), tuple(linked)), shape=(n, n)), directed=False)[1]
    return np.where(group[i] == group[j], group[i], -1), len(np.unique(group[linked[0]]))
