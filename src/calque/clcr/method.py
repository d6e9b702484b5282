"""CLCR: encoders of single languages brought together by parallel text alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from calque.alignment.base import Judged, Method
from calque.clcr.encoder import PIVOTS, STEPS, KeyPointEncoder, named_steps
from calque.clcr.extracting import Extracting
from calque.clcr.heads import HeadTraining
from calque.clcr.learning import learn
from calque.clcr.reordering import Reordering
from calque.clcr.step import TOLERANCE, Transformed, TransformStep
from calque.clcr.text import paired_texts
from calque.clcr.transform import Score
from calque.encoders.base import Encoder, made_of, require
from calque.encoders.per_language import PerLanguage
from calque.errors import SettingError, check_number
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.training.loop import Schedule, rate_by_width

PHASES = Schedule(warmup=0.1, decay="linear")


def transform_rate(dim: int) -> float:
    """Learning rate of transforms, where nobody says: an update of Adam moves a row by up to dim · rate.

    5e-3 was as good as any at 48 dimensions, 4e-3 to 8e-3 at 128, 2e-3 at 256 (planted text, and en-de with `mini`).
    """
    return min(5e-3, 0.5 / dim)


@dataclass(kw_only=True, eq=False)
class KeyPointAlignment(Method):
    """Encoders of single languages, of which nothing is known but sentences that translate one another, become one whose
    rows are key points (CLCR, ICLR 2020 submission).

    Step 1, transform (§3.1): T of Eq. 1 from each language into the space of the pivot language and back, which make

        D(T₁₂(s¹) ‖ s²) + D(T₂₁(s²) ‖ s¹)

    small, where D finds the match of each word by attention (Eqs. 2 and 3, `attention_distance`). In three phases: the
    transforms alone; with them the encoder of each language beside the pivot; with them the pivot's, for all languages
    together. Never two encoders at once, which could agree on making all vectors the same. Encoders without weights to train
    have the first phase only. Mutual best pairs of words under the transforms are pivots, below a cost that is chosen on
    held-out text by statistical links.

    What the paper does not say is settled here, and an argument each. `score="dot", scale="raw"` is the usual reading of the
    word attention. With it the annealing is needed where vectors are small: at τ = 1 attention is soft or sharp as ‖r‖²/√d is
    below or above 1. With vectors scaled to a variance of 1 it is sharp enough from the beginning, and the annealing takes
    away what is left of other words.

    Step 2, extract, and step 3, reorder, are learnt from these pivots: see `Extracting` and `Reordering`.

    Args:
        hidden: rows of B; None for as many as dimensions.
        linear: T(r) = A·r + a, "linear regression" of Table 1.
        score: what attention goes by, see `attention_distance`.
        scale: "spread" centres the vectors of each language and divides them by the root of their mean variance, for the
            transforms and the distance; "raw" leaves them. The transforms that come of it are for the vectors as they are.
        beta: β of the annealing in each of the three phases; 0 for none, τ = 1. It begins anew in each.
        epochs: of each of the three phases, over the longest corpus; 0 leaves phase 2 or 3 out.
        refine: epochs of a last phase, in which the transforms alone learn from mutual best pairs of words, see `Refining`; 0
            leaves it out, as published.
        learning_rate: of each phase; None for `transform_rate` of the larger encoder in the first one, and in the others
            5e-5 · (768 / dim)^(5/3), as `FineTune` has it.
        seed: see `Schedule`.
        batch: sentence pairs of each corpus in an update.
        max_words: leave out pairs with a longer side.
        held_out: fraction of the pairs that is not trained on; what a pivot may cost is chosen there.
        threshold: what a pivot may cost; None to choose it.
        steps: "transform", "transform,extract" or "transform,extract,reorder".
        delta: δ, see `KeyPointEncoder`, whose `threshold` it is.
        beam: see `KeyPointEncoder`.
        confident: see `Extracting`.
        order: see `Reordering`.
        head_epochs: passes over the text for P and R.
        compare: also train what Tables 2 and 3 compare with, for their figures: P from labels as they are, R of the other
            kind.
        as_published: leave out what is ours in the choice of pivots and labels: `refine` becomes 0, the cost of a pivot has the
            highest F1 (`choose_threshold`), and flip rates are the paper's (`Extracting`).
    """

    towards: str
    hidden: int | None = None
    linear: bool = False
    score: Score = "distance"
    scale: Literal["spread", "raw"] = "spread"
    beta: Sequence[float] = (0.01, 0.01, 0.01)
    epochs: Sequence[float] = (5.0, 1.0, 1.0)
    refine: float = 2.0
    learning_rate: Sequence[float] | None = None
    seed: int = 0
    batch: int = 32
    max_words: int | None = 64
    held_out: float = 0.05
    threshold: float | None = None
    steps: str = ",".join(STEPS)
    delta: float = 0.2
    beam: int = 10
    confident: bool = True
    order: Literal["relative", "absolute"] = "relative"
    head_epochs: float = 10.0
    compare: bool = False
    as_published: bool = False

    def __post_init__(self):
        for name in ("batch", "max_words", "hidden"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=1, whole=True)
        allowed = {"score": ("distance", "dot"), "scale": ("spread", "raw")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise SettingError(f"{name} is {' or '.join(values)}, got {getattr(self, name)!r}")
        for name in ("beta", "epochs", "learning_rate"):
            values = getattr(self, name)
            if values is not None and (isinstance(values, str) or not isinstance(values, Sequence) or len(values) != 3):
                raise SettingError(f"{name} has a number for each of the three phases, got {values!r}")
        check_number("the first of epochs", self.epochs[0], above=0)
        for number in range(3):
            check_number("each of beta", self.beta[number], least=0)
            check_number("each of epochs", self.epochs[number], least=0)
            self._schedule(number, 1.0)
        self.refine = 0.0 if self.as_published else self.refine
        check_number("refine", self.refine, least=0)
        check_number("held_out", self.held_out, least=0, below=1)
        if self.threshold is not None:
            check_number("threshold", self.threshold, least=0)
        self._steps = named_steps(self.steps) or STEPS
        check_number("delta", self.delta, least=0, below=1)
        check_number("beam", self.beam, least=1, whole=True)
        check_number("head_epochs", self.head_epochs, above=0)
        Reordering(kind=self.order)

    def align(
        self,
        encoder: Encoder | Mapping[str, Encoder],
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs] | None = None,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> KeyPointEncoder:
        """All steps.

        Args:
            encoder: of each language, see `transform`; or one that reads all of them, of which each language gets its own.
            corpus, pairs, folder, checkpoint_every, progress: see `transform`.

        Raises:
            SettingError: see `transform`.
        """
        corpora = [corpus] if isinstance(corpus, ParallelCorpus) else list(corpus)
        if isinstance(encoder, Encoder) and not isinstance(encoder, PerLanguage):
            encoder = {lang: encoder for each in corpora for lang in each.langs}
        first = self.transform(
            encoder, corpora, pairs, folder=folder, checkpoint_every=checkpoint_every, progress=progress
        )
        training = HeadTraining(epochs=self.head_epochs, seed=self.seed, progress=progress)
        self.learnt = learn(
            first, pivot=self.towards, steps=self._steps, threshold=self.delta, compare=self.compare, progress=progress,
            extract=Extracting(confident=self.confident, as_published=self.as_published, training=training),
            reorder=Reordering(kind=self.order, training=training),
        )  # fmt: skip
        self.transformed = first
        aligned = KeyPointEncoder(
            {lang: first.encoders[lang] for lang in self.learnt.parts}, self.learnt.parts, pivot=self.towards,
            steps=self._steps, threshold=self.delta, beam=self.beam, costs=first.thresholds, settings=self.settings(),
        )  # fmt: skip
        base = encoder if isinstance(encoder, Encoder) else PerLanguage(encoder)
        langs = list(dict.fromkeys(lang for each in corpora for lang in each.langs))
        aligned.made = made_of(base, "clcr", self.towards, [], [], self.record()) | {"langs": langs}
        return aligned

    def record(self) -> dict[str, Any]:
        first = self.transformed
        counts: dict[str, Any] = {"too_long": 0, "empty": 0}
        for text in first.texts:
            for name in counts:
                counts[name] += text.counts[name]
        return {
            "settings": self.settings(),
            "counts": counts,
            "phases": {name: {"updates": len(h), "first": h[0], "last": h[-1]} for name, h in first.history.items()},
            "pivots": {lang: {"threshold": cost, "f1": first.f1.get(lang)} for lang, cost in first.thresholds.items()},
            "spreads": first.spreads,
            "key_points": self.learnt.counts,
            "flip_rates": self.learnt.rates,
            "examples": self.learnt.examples,
        }

    def judged(self) -> list[Judged]:
        """Figures of the last `align` on held-out text: the distances (Table 1), P (Table 2) and R (Table 3)."""
        return self.learnt.judged

    def transform(
        self,
        encoder: PerLanguage | Mapping[str, Encoder],
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs] | None = None,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> Transformed:
        """The first step.

        Vectors of all sentences that are not being learnt are held in memory, 4 · dim bytes a word.

        Args:
            encoder: of each language; they may differ in their dimensions. They stay as they are.
            corpus: parallel text, each of the pivot language and another.
            pairs: its word links, which only the threshold of pivots is chosen by; None for none.
            folder: where each phase keeps its checkpoints and metrics; a run that was stopped there is continued, bit by bit
                the same. P and R, which take minutes, are trained anew.
            checkpoint_every, progress: see `Tuner.tune`.

        Raises:
            SettingError: languages without an encoder, settings that do not fit together, nothing to train on, or a
                checkpoint of another run in `folder`.
        """
        encoders = dict(encoder.encoders if isinstance(encoder, PerLanguage) else encoder)
        corpora = [corpus] if isinstance(corpus, ParallelCorpus) else list(corpus)
        links = [pairs] if isinstance(pairs, WordPairs) else None if pairs is None else list(pairs)
        for each in encoders.values():
            require(each, "measured")
        texts = paired_texts(
            encoders, corpora, links, pivot=self.towards, max_words=self.max_words, held_out=self.held_out,
            seed=self.seed, progress=progress,
        )  # fmt: skip
        step = TransformStep(
            encoders, texts, pivot=self.towards, hidden=0 if self.linear else self.hidden, score=self.score,
            scaled=self.scale == "spread", batch=self.batch, seed=self.seed,
            folder=None if folder is None else Path(folder), checkpoint_every=checkpoint_every, progress=progress,
        )  # fmt: skip
        used = {text.lang for text in texts}
        first = transform_rate(max(encoders[lang].dim for lang in (*used, self.towards)))
        step.learn_transforms(self._schedule(0, first), self.beta[0])
        if self.epochs[1]:
            rate = rate_by_width(max(encoders[lang].dim for lang in used), 5 / 3)
            step.learn_encoders(self._schedule(1, rate), self.beta[1], again=bool(self.epochs[2] or self.refine))
        if self.epochs[2]:
            rate = rate_by_width(encoders[self.towards].dim, 5 / 3)
            step.learn_pivot_encoder(self._schedule(2, rate), self.beta[2], again=bool(self.refine))
        if self.refine:
            step.refine(replace(self._schedule(0, first / 2), epochs=self.refine))
        return step.result(self.threshold, 0.0 if self.as_published else TOLERANCE)

    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"method": "clcr", **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}}

    def rows(self, load: Mapping[str, Any]) -> str:
        if unknown := load.keys() - {"steps", "delta", "translations"}:
            raise SettingError(f"unknown {', '.join(sorted(unknown))}, expected steps, delta or translations")
        if (load.get("steps") == PIVOTS) != ("translations" in load):
            raise SettingError("steps = 'pivots' needs translations, { de = [FILE, FILE] }, and no other steps do")
        for lang, two in dict(load.get("translations", {})).items():
            if not isinstance(two, list) or len(two) != 2:
                raise SettingError(
                    f"translations.{lang} = {two!r}, expected the file in {self.towards} and that in {lang}"
                )
        if "delta" in load:
            check_number("delta", load["delta"], least=0, below=1)
        if load.get("steps") == PIVOTS:
            if "delta" in load:
                raise SettingError(f"delta does not apply to {PIVOTS}")
            return "key points"
        steps = named_steps(load.get("steps")) or self._steps
        if len(steps) > len(self._steps):
            raise SettingError(f"{steps[-1]} is not learnt with steps = {self.steps!r}")
        return "key points" if "extract" in steps else "words"

    def _schedule(self, number: int, rate: float) -> Schedule:
        """Of phase `number`, from 0; `rate` is the default."""
        if self.learning_rate is not None:
            rate = self.learning_rate[number]
        return replace(PHASES, epochs=self.epochs[number] or 1.0, learning_rate=rate, seed=self.seed)
