"""CLCR: alignment of monolingual encoders, supervised only by parallel text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import LinkedText
from calque.clcr.encoder import PIVOTS, STEPS, KeyPointEncoder, check_view, named_steps
from calque.clcr.learning import (
    HeadTraining,
    PairedText,
    TrainedParts,
    Transformed,
    paired_texts,
    train_parts,
)
from calque.clcr.pivots import TOLERANCE, choose_threshold, covered_words, find_pivots
from calque.clcr.transform import Side, Space, Transform, Transforming
from calque.distributed import Processes
from calque.encoders.base import Encoder, made_of
from calque.encoders.checkpoint import weights_digest
from calque.encoders.per_language import PerLanguage
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError, check_number, did_you_mean
from calque.offsets import offsets_of
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.plan import BatchPlan
from calque.training.sources import ChosenWords, TrainedSource, VectorSource, float32_copy
from calque.vectors import Embeddings

_BUDGET = (
    1024  # maximum number of subwords, including padding, in a forward pass of a trained encoder
)
PHASES = Schedule(warmup=0.1, decay="linear")


def transform_rate(dim: int) -> float:
    """Return the default learning rate for transforms, which depends on the dimension.

    An Adam update changes a component of a mapped vector by up to about dim · rate. The best rates
    were 5e-3 with 48 dimensions, 4e-3 to 8e-3 with 128, and 2e-3 with 256 (on synthetic text, and
    on en-de with `mini`).
    """
    return min(5e-3, 0.5 / dim)


@dataclass(frozen=True)
class FittedKeyPoints(Fitted):
    """Result of `KeyPointAlignment`.

    Attributes:
        transformed: transforms and encoders after the first step.
        trained: classifiers P and R of the other steps. The `scores` are distances (Table 1), and
            scores of P and R (Tables 2 and 3), on held-out text.
    """

    transformed: Transformed = field(kw_only=True)
    trained: TrainedParts = field(kw_only=True)


@dataclass(kw_only=True, eq=False)
class KeyPointAlignment(Method):
    """Alignment of monolingual encoders into one key-point encoder, supervised only by parallel
    sentences (CLCR, ICLR 2020 submission).

    Step 1, transform (§3.1), trains the transforms T (Eq. 1) from each language into the space of
    the pivot language and back, minimising

        D(T₁₂(s¹) ‖ s²) + D(T₂₁(s²) ‖ s¹)

    where D matches words by attention (Eqs. 2 and 3, `attention_distance`). Phase 1 trains only the
    transforms. Phase 2 also trains the encoder of each non-pivot language. Phase 3 trains the
    encoder of the pivot language together with the transforms of all languages. Two encoders are
    never trained at the same time, because they could collapse to equal vectors. Encoders without
    trainable weights skip phases 2 and 3. A last phase, refinement, is not in the paper. It trains
    only the transforms, on mutual best word pairs. A mutual best pair is a pivot if its cost does
    not exceed a threshold, which is chosen with word alignments of held-out text.

    During training, vectors are scaled to mean 0 and variance 1, because the softness of the
    attention at τ = 1 depends on ‖r‖²/√d. The returned transforms apply to unscaled vectors.

    Steps 2 (extract) and 3 (reorder) train classifiers on the pivots, see `train_key_points` and
    `train_order`.

    Args:
        hidden: number of rows of B in Eq. 1; default: the dimension of the transform's input.
        linear: whether to use the linear transform T(r) = A·r + a ("linear regression" in Table 1).
        beta: annealing rate β of the temperature τ, which restarts in each phase; 0 keeps τ at 1.
        epochs: numbers of epochs for phase 1, phase 2, phase 3, the refinement, and the training of
            P and R. In the first four, an epoch is a pass over the longest corpus. With 0, phase 2,
            phase 3 or the refinement is skipped.
        learning_rate: learning rates of phases 1 to 3; the defaults depend on the largest encoder
            dimension (see `transform_rate` and `FineTune`): phases 2 and 3 use 5e-5 · (768 /
            dimension)^(5/3).
        seed: random seed, see `Schedule`.
        batch: number of sentence pairs per corpus in an update.
        max_words: maximum number of words on each side of a sentence pair; longer pairs are left
            out.
        held_out: fraction of pairs held out from training, for choosing the cost threshold of
            pivots and for scores.
        steps: steps to train: "transform", "transform,extract" or "transform,extract,reorder".
        compare: whether to also train and score baselines (Tables 2, 3): P with uncorrected labels,
            and R with absolute ranks.
        as_published: whether to follow the paper: no refinement, the cost threshold with the
            highest F1 (see `choose_threshold`), and the paper's estimate of flip rates (see
            `train_key_points`).
    """

    towards: str
    hidden: int | None = None
    linear: bool = False
    beta: float = 0.01
    epochs: Sequence[float] = (5.0, 1.0, 1.0, 2.0, 10.0)
    learning_rate: Sequence[float] | None = None
    seed: int = 0
    batch: int = 32
    max_words: int | None = 64
    held_out: float = 0.05
    steps: str = ",".join(STEPS)
    compare: bool = False
    as_published: bool = False

    def __post_init__(self):
        for name in ("batch", "max_words", "hidden"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=1, whole=True)
        phases = "transform, encoder, pivot's encoder"
        for name, n, what in (
            ("epochs", 5, f"{phases}, refinement, heads"),
            ("learning_rate", 3, phases),
        ):
            values = getattr(self, name)
            if values is not None and (
                isinstance(values, str) or not isinstance(values, Sequence) or len(values) != n
            ):
                raise SettingError(f"{name} must be {n} numbers ({what}), got {values!r}")
        for value in self.epochs:
            check_number("each number of epochs", value, least=0)
        for value in (self.epochs[0], self.epochs[4]):
            check_number("the first and the last number of epochs", value, above=0)
        for rate in self.learning_rate or ():
            check_number("each number of learning_rate", rate, above=0)
        check_number("beta", self.beta, least=0)
        check_number("held_out", self.held_out, least=0, below=1)
        self._steps = named_steps(self.steps) or STEPS

    def fit(
        self,
        encoder: Encoder | Mapping[str, Encoder],
        data: LinkedText,
        run: Run = Run(),
    ) -> FittedKeyPoints:
        """Train all steps. The vectors of frozen encoders are stored in memory and need 4 · dim
        bytes per word.

        Args:
            encoder: encoder for each language (dimensions may differ), or one multilingual encoder,
                which is copied for each language. The given encoders are not modified.
            data: parallel texts, each between the pivot language and another language. Word links
                are used only to choose the pivot threshold; without links, there is no threshold.
            run: how to run the training. Only the training of P and R starts again after an
                interruption, which takes minutes.

        Raises:
            SettingError: a language has no encoder, settings are incompatible, there are no pairs
                to train on, or `run.folder` contains a checkpoint of another run.
        """
        if isinstance(encoder, Encoder) and not isinstance(encoder, PerLanguage):
            encoder = dict.fromkeys(data.langs, encoder)
        base = encoder if isinstance(encoder, PerLanguage) else PerLanguage(encoder, alike=False)
        encoders = base.encoders
        texts = paired_texts(
            encoders,
            data.corpora,
            data.pairs or None,
            pivot=self.towards,
            max_words=self.max_words,
            held_out=self.held_out,
            seed=self.seed,
            progress=run.progress,
        )
        transformed = _Phases(self, encoders, texts, run).run()
        training = HeadTraining(epochs=self.epochs[4], seed=self.seed, progress=run.progress)
        trained = train_parts(
            transformed,
            pivot=self.towards,
            steps=self._steps,
            compare=self.compare,
            as_published=self.as_published,
            training=training,
            progress=run.progress,
        )
        aligned = KeyPointEncoder(
            {lang: transformed.encoders[lang] for lang in trained.parts},
            trained.parts,
            pivot=self.towards,
            steps=self._steps,
            costs=transformed.thresholds,
            settings=self.settings(),
        )
        record = self._record(transformed, trained)
        aligned.made = made_of(base, "clcr", self.towards, [], [], record) | {"langs": data.langs}
        return FittedKeyPoints(
            aligned, record, scores=trained.scores, transformed=transformed, trained=trained
        )

    def _record(self, transformed: Transformed, trained: TrainedParts) -> dict[str, Any]:
        counts = {
            name: sum(text.counts[name] for text in transformed.texts)
            for name in ("too_long", "empty")
        }
        phases = {
            name: {"updates": len(history), "first": history[0], "last": history[-1]}
            for name, history in transformed.history.items()
        }
        pivots = {
            lang: {"threshold": cost, "f1": transformed.f1.get(lang)}
            for lang, cost in transformed.thresholds.items()
        }
        return {
            "settings": self.settings(),
            "counts": counts,
            "phases": phases,
            "pivots": pivots,
            "key_points": trained.counts,
            "flip_rates": trained.rates,
        }

    def rows(self, load: Mapping[str, Any]) -> str:
        known = ("steps", "delta", "translations")
        if unknown := sorted(load.keys() - {*known}):
            meant = did_you_mean(unknown[0], known)
            raise SettingError(
                f"settings must be steps, delta or translations, got {', '.join(unknown)}{meant}"
            )
        if "delta" in load:
            check_number("delta", load["delta"], least=0, below=1)
        translations = load.get("translations", {})
        if not isinstance(translations, Mapping):
            raise SettingError(
                f"translations must map each language to two files, got {translations!r}"
            )
        check_view(load.get("steps"), load.get("delta"), translations)
        for lang, two in translations.items():
            if (
                not isinstance(two, list)
                or len(two) != 2
                or not all(isinstance(file, str) for file in two)
            ):
                raise SettingError(
                    f"translations.{lang} must be a file in {self.towards} and a file in {lang}, "
                    f"got {two!r}"
                )
        if load.get("steps") == PIVOTS:
            return "key points"
        steps = named_steps(load.get("steps")) or self._steps
        if len(steps) > len(self._steps):
            raise SettingError(f"{steps[-1]} is not trained with steps = {self.steps!r}")
        return "key points" if "extract" in steps else "words"

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, to be saved with the result."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            "method": "clcr",
            **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()},
        }


# -- the first step
# --------------------------------------------------------------------------------------------------
@dataclass
class _Language:
    """Non-pivot language during training. `stored` and `translated` are the vectors of its
    sentences and of their translations, computed by the current encoders."""

    text: PairedText
    space: Space
    to_pivot: Transform
    from_pivot: Transform
    stored: Embeddings
    translated: Embeddings


class _Phases:
    """Training phases of step 1. Each phase writes its checkpoints to a subfolder of `folder`;
    `encoders` is not modified.
    """

    def __init__(
        self,
        how: KeyPointAlignment,
        encoders: Mapping[str, Encoder],
        texts: Sequence[PairedText],
        run: Run,
    ):
        self._how, self.encoders, self._texts, self._pivot = (
            how,
            dict(encoders),
            list(texts),
            how.towards,
        )
        self._run = run
        self.history: dict[str, list[dict[str, float]]] = {}
        self._processes = Processes()
        dim = encoders[self._pivot].dim
        self._space = Space.of([(t.pivot_vectors, t.train) for t in texts])
        self._languages = []
        hidden = 0 if how.linear else how.hidden
        for text in texts:
            own = encoders[text.lang].dim
            torch.manual_seed(how.seed)
            there, back = (
                Transform(*dims, hidden).to(self._processes.device)
                for dims in ((own, dim), (dim, own))
            )
            space = Space.of([(text.vectors, text.train)])
            self._languages.append(
                _Language(text, space, there, back, text.vectors, text.pivot_vectors)
            )

    def run(self) -> Transformed:
        """Run the phases that the settings select."""
        how, dims = self._how, [self.encoders[text.lang].dim for text in self._texts]
        pivot_dim, refined = (
            self.encoders[self._pivot].dim,
            0.0 if how.as_published else how.epochs[3],
        )
        first = transform_rate(max(*dims, pivot_dim))
        self._train_transforms(self._schedule(0, first))
        for text in self._texts if how.epochs[1] else ():
            schedule = self._schedule(1, rate_by_width(max(dims), 5 / 3))
            self._train_encoder(text.lang, schedule, again=bool(how.epochs[2] or refined))
        if how.epochs[2]:
            schedule = self._schedule(2, rate_by_width(pivot_dim, 5 / 3))
            self._train_encoder(self._pivot, schedule, again=bool(refined))
        if refined:
            self._train_transforms(
                replace(self._schedule(0, first / 2), epochs=refined), mutual=True
            )
        return self._result(0.0 if how.as_published else TOLERANCE)

    def _schedule(self, number: int, rate: float) -> Schedule:
        """Return the schedule of phase `number` (counted from 0); `rate` is the default learning
        rate of the phase.
        """
        rate = rate if self._how.learning_rate is None else self._how.learning_rate[number]
        return replace(
            PHASES, epochs=self._how.epochs[number], learning_rate=rate, seed=self._how.seed
        )

    def _train_transforms(self, schedule: Schedule, *, mutual: bool = False) -> None:
        """Train the transforms of each language separately on fixed vectors (phase 1, or the
        refinement if `mutual`).
        """
        for language in self._languages:
            side, pivot = (
                self._side(language, self._frozen(language.stored)),
                self._frozen(language.translated),
            )
            self._train(
                f"{'refine' if mutual else 'transform'}-{side.lang}",
                [side],
                pivot,
                schedule,
                mutual=mutual,
            )

    def _train_encoder(self, lang: str, schedule: Schedule, *, again: bool) -> None:
        """Train the encoder for a language, if it is trainable, on the text in that language (phase
        2) or, for the pivot language, on all texts together (phase 3). If `again`, recompute the
        stored vectors afterwards."""
        if not isinstance(encoder := self.encoders[lang], TrainableEncoder):
            return
        pivots = lang == self._pivot
        mine = [language for language in self._languages if pivots or language.text.lang == lang]
        texts = [
            language.text.corpus.target if pivots else language.text.corpus.source
            for language in mine
        ]
        tuned = float32_copy(encoder, self._processes.device)
        tuned.model.train()
        split = SplitSentences.joined([encoder.split(text) for text in texts])
        source = TrainedSource(tuned, split.covered_words(), self._processes, budget=_BUDGET)
        begins = zip(mine, offsets_of(list(map(len, texts)))[:-1].tolist(), strict=True)
        sides = [
            self._side(each, self._frozen(each.stored) if pivots else source, begin)
            for each, begin in begins
        ]
        self._train(
            f"encoder-{lang}",
            sides,
            source if pivots else self._frozen(mine[0].translated),
            schedule,
        )
        tuned.model.eval().requires_grad_(True)
        self.encoders[lang] = tuned
        for language, text in zip(mine, texts, strict=True) if again else ():
            setattr(
                language,
                "translated" if pivots else "stored",
                tuned.encode(text, progress=self._run.progress),
            )

    def _result(self, tolerance: float) -> Transformed:
        """Return the transforms for unscaled vectors, and the thresholds chosen on held-out links
        in each language.
        """
        there = self._space.mean, self._space.spread
        found = Transformed(self.encoders, {}, {}, {}, {}, self.history, self._texts)
        for language in self._languages:
            text, here = language.text, (language.space.mean, language.space.spread)
            lang = text.lang
            found.to_pivot[lang] = language.to_pivot.between(here, there).cpu().eval()
            found.from_pivot[lang] = language.from_pivot.between(there, here).cpu().eval()
            found.thresholds[lang] = float("inf")
            if text.links is None or not len(text.held_out):
                continue
            sides = text.corpus.source.take(text.held_out), text.corpus.target.take(text.held_out)
            vectors = (
                self.encoders[lang].encode(sides[0]),
                self.encoders[self._pivot].encode(sides[1]),
            )
            pivots = find_pivots(*vectors, found.to_pivot[lang], found.from_pivot[lang])
            links = text.links.take(text.held_out)
            found.thresholds[lang], found.f1[lang] = choose_threshold(
                pivots, links, tolerance=tolerance
            )
        return found

    # -- one phase
    # ----------------------------------------------------------------------------------------------
    def _train(
        self,
        name: str,
        sides: list[Side],
        pivot: VectorSource,
        schedule: Schedule,
        *,
        mutual: bool = False,
    ) -> None:
        """Train the transforms of the given languages in place, together with the trainable encoder
        if a source has one.
        """
        beta, batch = 0.0 if mutual else self._how.beta, self._how.batch
        languages = [*(side.lang for side in sides), self._pivot]
        maps = nn.ModuleList(
            [module for side in sides for module in (side.to_pivot, side.from_pivot)]
        )
        objective = Transforming(
            sides,
            pivot,
            self._space,
            name=self._pivot,
            processes=self._processes,
            beta=beta,
            mutual=mutual,
        )
        identity = {
            "batch": batch,
            "phase": name,
            "beta": beta,
            "transforms": weights_digest(maps),
            "encoders": [self.encoders[lang].fingerprint for lang in languages],
            "text": [text.fingerprint for text in self._texts if text.lang in languages],
        }
        loop = Loop(
            objective,
            schedule=schedule,
            processes=self._processes,
            identity=identity,
            folder=None if self._run.folder is None else Path(self._run.folder, name),
            checkpoint_every=self._run.checkpoint_every,
            progress=self._run.progress,
            title=name,
        )
        plan = BatchPlan(objective.sizes, batch=batch, seed=schedule.seed)
        self.history[name] = loop.run(plan)

    def _side(self, language: _Language, source: VectorSource, begin: int = 0) -> Side:
        """Return the data of a language; the translations of its sentences begin at index `begin`
        of the pivot text.
        """
        train = language.text.train
        return Side(
            language.text.lang,
            source,
            language.space,
            language.to_pivot,
            language.from_pivot,
            train,
            train + begin,
        )

    def _frozen(self, vectors: Embeddings) -> VectorSource:
        return ChosenWords(vectors, covered_words(vectors), self._processes.device)
