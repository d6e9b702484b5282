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
from calque.clcr.encoder import PIVOTS, STEPS, KeyPointEncoder, Step, check_view, named_steps
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
from calque.spec import Count, SeedNumber, option
from calque.text import Sentences
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.plan import BatchPlan
from calque.training.sources import ChosenWords, TrainedSource, VectorSource, float32_copy
from calque.vectors import Embeddings

# maximum number of subwords, including padding, in a forward pass of a trained encoder
_BUDGET = 1024
#: schedule of each phase of the first step, apart from its length, rate and seed
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


@dataclass(frozen=True, kw_only=True)
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
    """

    towards: str
    hidden: Count | None = option(
        None, "number of rows of B in Eq. 1; default: the dimension of the transform's input."
    )
    linear: bool = option(
        False,
        'whether to use the linear transform T(r) = A·r + a ("linear regression" in Table 1).',
    )
    beta: float = option(
        0.01, "annealing rate β of the temperature τ, which restarts in each phase; 0 keeps τ at 1."
    )
    epochs: Sequence[float] = option(
        (5.0, 1.0, 1.0, 2.0, 10.0),
        "numbers of epochs for phase 1, phase 2, phase 3, the refinement, and the training of P "
        "and R. In the first four, an epoch is a pass over the longest corpus. With 0, phase 2, "
        "phase 3 or the refinement is skipped.",
    )
    learning_rate: Sequence[float] | None = option(
        None,
        "learning rates of phases 1 to 3; the defaults depend on the largest encoder dimension: "
        "phases 2 and 3 use 5e-5 · (768 / dimension)^(5/3).",
    )
    seed: SeedNumber = option(0, "random seed.")
    batch: Count = option(32, "number of sentence pairs per corpus in an update.")
    max_words: Count | None = option(
        64, "maximum number of words on each side of a sentence pair; longer pairs are left out."
    )
    held_out: float = option(
        0.05,
        "fraction of pairs held out from training, for choosing the cost threshold of pivots and "
        "for scores.",
    )
    steps: str = option(
        ",".join(STEPS),
        'steps to train: "transform", "transform,extract" or "transform,extract,reorder".',
    )
    compare: bool = option(
        False,
        "whether to also train and score baselines (Tables 2, 3): P with uncorrected labels, and "
        "R with absolute ranks.",
    )
    as_published: bool = option(
        False,
        "whether to follow the paper: no refinement, the cost threshold with the highest F1, and "
        "the paper's estimate of flip rates.",
    )

    def __post_init__(self):
        for name in ("batch", "max_words", "hidden"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=1, whole=True)
        phases = "transform, encoder, pivot's encoder"
        _check_length("epochs", self.epochs, 5, f"{phases}, refinement, heads")
        if self.learning_rate is not None:
            _check_length("learning_rate", self.learning_rate, 3, phases)
        for value in self.epochs:
            check_number("each number of epochs", value, least=0)
        for value in (self.epochs[0], self.epochs[4]):
            check_number("the first and the last number of epochs", value, above=0)
        for rate in self.learning_rate or ():
            check_number("each number of learning_rate", rate, above=0)
        check_number("beta", self.beta, least=0)
        check_number("held_out", self.held_out, least=0, below=1)
        named_steps(self.steps)  # checks the steps

    @property
    def trained_steps(self) -> tuple[Step, ...]:
        """Names of the steps to train."""
        return named_steps(self.steps) or STEPS

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
        if isinstance(encoder, PerLanguage):
            base = encoder
        elif isinstance(encoder, Encoder):
            base = PerLanguage(dict.fromkeys(data.langs, encoder), alike=False)
        else:
            base = PerLanguage(encoder, alike=False)
        texts = paired_texts(
            base.encoders,
            data.corpora,
            data.pairs or None,
            pivot=self.towards,
            max_words=self.max_words,
            held_out=self.held_out,
            seed=self.seed,
            progress=run.progress,
        )
        transformed = _TransformTraining(self, base.encoders, texts, run).run()
        training = HeadTraining(epochs=self.epochs[4], seed=self.seed, progress=run.progress)
        trained = train_parts(
            transformed,
            pivot=self.towards,
            steps=self.trained_steps,
            compare=self.compare,
            as_published=self.as_published,
            training=training,
            progress=run.progress,
        )
        aligned = KeyPointEncoder(
            {lang: transformed.encoders[lang] for lang in trained.parts},
            trained.parts,
            pivot=self.towards,
            steps=self.trained_steps,
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
        unknown = sorted(load.keys() - set(known))
        if unknown:
            suggestion = did_you_mean(unknown[0], known)
            raise SettingError(
                f"settings must be steps, delta or translations, got {', '.join(unknown)}"
                f"{suggestion}"
            )
        if "delta" in load:
            check_number("delta", load["delta"], least=0, below=1)
        translations = load.get("translations", {})
        if not isinstance(translations, Mapping):
            raise SettingError(
                f"translations must map each language to two files, got {translations!r}"
            )
        check_view(load.get("steps"), load.get("delta"), translations)
        for lang, files in translations.items():
            self._check_files(lang, files)
        if load.get("steps") == PIVOTS:
            return "key points"
        steps = named_steps(load.get("steps")) or self.trained_steps
        if len(steps) > len(self.trained_steps):
            raise SettingError(f"{steps[-1]} is not trained with steps = {self.steps!r}")
        return "key points" if "extract" in steps else "words"

    def _check_files(self, lang: str, files: object) -> None:
        """Check that the translations of a language are a pair of files."""
        names = files if isinstance(files, list) else []
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise SettingError(
                f"translations.{lang} must be a file in {self.towards} and a file in {lang}, "
                f"got {files!r}"
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, to be saved with the result."""
        settings: dict[str, Any] = {"method": "clcr"}
        for setting in fields(self):
            value = getattr(self, setting.name)
            settings[setting.name] = list(value) if isinstance(value, tuple) else value
        return settings


def _check_length(name: str, values: object, n: int, meanings: str) -> None:
    """Check that a setting is a sequence of `n` numbers."""
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != n:
        raise SettingError(f"{name} must be {n} numbers ({meanings}), got {values!r}")


# -- the first step --------------------------------------------------------------------------------
@dataclass
class _Language:
    """Non-pivot language during training.

    Attributes:
        text: sentences in the language and their translations.
        space: mean and spread of the language's vectors before training.
        to_pivot, from_pivot: transforms for scaled vectors, which are trained in place.
        vectors, pivot_vectors: vectors of the sentences and of their translations, computed by the
            current encoders.
    """

    text: PairedText
    space: Space
    to_pivot: Transform
    from_pivot: Transform
    vectors: Embeddings
    pivot_vectors: Embeddings


class _TransformTraining:
    """Training phases of step 1. Each phase writes its checkpoints to a subfolder of the run's
    folder; the given encoders are not modified.

    Attributes:
        encoders: current encoder for each language; a phase that trains an encoder replaces it.
        history: metrics of every update, keyed by phase.
    """

    def __init__(
        self,
        settings: KeyPointAlignment,
        encoders: Mapping[str, Encoder],
        texts: Sequence[PairedText],
        run: Run,
    ):
        self.encoders = dict(encoders)
        self.history: dict[str, list[dict[str, float]]] = {}
        self._settings = settings
        self._texts = list(texts)
        self._pivot = settings.towards
        self._run = run
        self._processes = Processes()
        self._space = Space.of([(text.pivot_vectors, text.train) for text in texts])
        self._languages = [self._language(text) for text in texts]

    def _language(self, text: PairedText) -> _Language:
        """Return the initial state of a language, with untrained transforms."""
        hidden = 0 if self._settings.linear else self._settings.hidden
        dim, pivot_dim = self.encoders[text.lang].dim, self.encoders[self._pivot].dim
        torch.manual_seed(self._settings.seed)
        to_pivot = Transform(dim, pivot_dim, hidden).to(self._processes.device)
        from_pivot = Transform(pivot_dim, dim, hidden).to(self._processes.device)
        space = Space.of([(text.vectors, text.train)])
        return _Language(text, space, to_pivot, from_pivot, text.vectors, text.pivot_vectors)

    def run(self) -> Transformed:
        """Run the phases that the settings select."""
        settings = self._settings
        refinement_epochs = 0.0 if settings.as_published else settings.epochs[3]
        dims = [self.encoders[text.lang].dim for text in self._texts]
        pivot_dim = self.encoders[self._pivot].dim
        rate = transform_rate(max(*dims, pivot_dim))
        # Phase 1: transforms
        self._train_transforms(self._schedule(0, rate))
        # Phase 2: encoder of each non-pivot language. A phase that trains an encoder recomputes its
        # vectors only if a later phase needs them.
        if settings.epochs[1]:
            schedule = self._schedule(1, rate_by_width(max(dims), 5 / 3))
            is_followed = bool(settings.epochs[2] or refinement_epochs)
            for language in self._languages:
                self._train_encoder(language, schedule, update_vectors=is_followed)
        # Phase 3: encoder of the pivot language
        if settings.epochs[2]:
            schedule = self._schedule(2, rate_by_width(pivot_dim, 5 / 3))
            self._train_pivot_encoder(schedule, update_vectors=bool(refinement_epochs))
        # Refinement: transforms, on mutual best word pairs
        if refinement_epochs:
            schedule = replace(self._schedule(0, rate / 2), epochs=refinement_epochs)
            self._train_transforms(schedule, mutual=True)
        return self._result(0.0 if settings.as_published else TOLERANCE)

    def _schedule(self, number: int, default_rate: float) -> Schedule:
        """Return the schedule of phase `number`, counted from 0."""
        settings = self._settings
        rate = default_rate
        if settings.learning_rate is not None:
            rate = settings.learning_rate[number]
        return replace(
            PHASES, epochs=settings.epochs[number], learning_rate=rate, seed=settings.seed
        )

    def _train_transforms(self, schedule: Schedule, *, mutual: bool = False) -> None:
        """Train the transforms of each language separately on fixed vectors (phase 1, or the
        refinement if `mutual`).
        """
        phase = "refine" if mutual else "transform"
        for language in self._languages:
            side = self._side(language, self._fixed(language.vectors))
            pivot = self._fixed(language.pivot_vectors)
            self._train(f"{phase}-{side.lang}", [side], pivot, schedule, mutual=mutual)

    def _train_encoder(
        self, language: _Language, schedule: Schedule, *, update_vectors: bool
    ) -> None:
        """Train the encoder of a non-pivot language, if it is trainable (phase 2). If
        `update_vectors`, recompute the stored vectors afterwards."""
        lang, sentences = language.text.lang, language.text.corpus.source
        encoder = self.encoders[lang]
        if not isinstance(encoder, TrainableEncoder):
            return
        tuned, source = self._tuned_copy(encoder, [sentences])
        pivot = self._fixed(language.pivot_vectors)
        self._train(f"encoder-{lang}", [self._side(language, source)], pivot, schedule)
        self.encoders[lang] = tuned
        tuned.model.eval().requires_grad_(True)
        if update_vectors:
            language.vectors = tuned.encode(sentences, progress=self._run.progress)

    def _train_pivot_encoder(self, schedule: Schedule, *, update_vectors: bool) -> None:
        """Train the encoder of the pivot language, if it is trainable, on all texts together
        (phase 3). If `update_vectors`, recompute the stored vectors afterwards."""
        encoder = self.encoders[self._pivot]
        if not isinstance(encoder, TrainableEncoder):
            return
        sentences = [language.text.corpus.target for language in self._languages]
        tuned, source = self._tuned_copy(encoder, sentences)
        # The source contains the pivot language's sentences of all texts, one text after another.
        begins = offsets_of([len(text) for text in sentences])[:-1].tolist()
        sides = [
            self._side(language, self._fixed(language.vectors), begin)
            for language, begin in zip(self._languages, begins, strict=True)
        ]
        self._train(f"encoder-{self._pivot}", sides, source, schedule)
        self.encoders[self._pivot] = tuned
        tuned.model.eval().requires_grad_(True)
        if update_vectors:
            for language, text in zip(self._languages, sentences, strict=True):
                language.pivot_vectors = tuned.encode(text, progress=self._run.progress)

    def _tuned_copy(
        self, encoder: TrainableEncoder, texts: Sequence[Sentences]
    ) -> tuple[TrainableEncoder, TrainedSource]:
        """Return a copy of the encoder for training, and the source of its vectors of the texts."""
        tuned = float32_copy(encoder, self._processes.device)
        tuned.model.train()
        split = SplitSentences.joined([encoder.split(text) for text in texts])
        source = TrainedSource(tuned, split.covered_words(), self._processes, budget=_BUDGET)
        return tuned, source

    def _result(self, tolerance: float) -> Transformed:
        """Return the transforms for unscaled vectors, and the thresholds chosen on held-out links
        in each language.
        """
        result = Transformed(self.encoders, {}, {}, {}, {}, self.history, self._texts)
        pivot_scale = self._space.mean, self._space.spread
        for language in self._languages:
            lang, scale = language.text.lang, (language.space.mean, language.space.spread)
            to_pivot = language.to_pivot.between(scale, pivot_scale).cpu().eval()
            from_pivot = language.from_pivot.between(pivot_scale, scale).cpu().eval()
            result.to_pivot[lang], result.from_pivot[lang] = to_pivot, from_pivot
            result.thresholds[lang] = float("inf")
            links, held_out = language.text.links, language.text.held_out
            if links is None or not len(held_out):
                continue
            corpus = language.text.corpus
            vectors = self.encoders[lang].encode(corpus.source.take(held_out))
            pivot_vectors = self.encoders[self._pivot].encode(corpus.target.take(held_out))
            candidates = find_pivots(vectors, pivot_vectors, to_pivot, from_pivot)
            result.thresholds[lang], result.f1[lang] = choose_threshold(
                candidates, links.take(held_out), tolerance=tolerance
            )
        return result

    # -- one phase ---------------------------------------------------------------------------------
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
        # The refinement has no attention, and thus no temperature to anneal.
        beta = 0.0 if mutual else self._settings.beta
        batch = self._settings.batch
        languages = [*(side.lang for side in sides), self._pivot]
        transforms = nn.ModuleList()
        for side in sides:
            transforms.extend([side.to_pivot, side.from_pivot])
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
            "transforms": weights_digest(transforms),
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
            sentences=train,
            translations=train + begin,
        )

    def _fixed(self, vectors: Embeddings) -> VectorSource:
        """Return a source of stored vectors, which are not trained."""
        return ChosenWords(vectors, covered_words(vectors), self._processes.device)
