"""Will alignment pay? An encoder, parallel text and the name of a task into a prediction, or into none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.analyses.advice import FEATURES, LEVEL, Advice, Forecast, Question
from calque.analyses.quick import measured, sample_first
from calque.encoders.base import Encoder, require
from calque.encoders.trainable import TrainableEncoder
from calque.errors import CalqueWarning, SettingError
from calque.linking import Say, Words
from calque.runs.advice_table import SHIPPED, AdviceTable, of_source
from calque.runs.realign import gradient_cosine
from calque.runs.shown import columns
from calque.tasks.inputs import Inputs
from calque.tasks.table import TASKS

if TYPE_CHECKING:
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

_TEXTS = 2000  # of a task's training text, at even distances, from which its gradient is


@dataclass(frozen=True)
class LinkedText:
    """Parallel text that an encoder may be aligned on.

    Attributes:
        corpus, pairs: a part of it and its word links, as `sample_first` gives it.
        sentence_pairs: how many there are in all.
    """

    corpus: ParallelCorpus
    pairs: WordPairs
    sentence_pairs: int

    @classmethod
    def read(cls, path: str, langs: tuple[str, str], words: Words) -> LinkedText:
        """From a file.

        Raises:
            InputError: there is nothing in it that could be used.
        """
        corpus = words.read(path, langs)
        usable = int(((corpus.source.lengths() > 0) & (corpus.target.lengths() > 0)).sum())
        part = sample_first(corpus)
        return cls(part, words.link(part), usable)

    def features(self, encoder: Encoder, *, seed: int = 0) -> dict[str, float]:
        """What is measured of an encoder on it, and how much text it is."""
        require(encoder, "measured")
        return {"pairs": float(self.sentence_pairs), **measured(encoder, self.corpus, self.pairs, seed=seed)}


def gradient_of(
    encoder: Encoder, task: str, train: Sequence[str], text: LinkedText, options: Mapping[str, Any] | None = None, *,
    pretokenized: bool = False, seed: int = 0, say: Say = lambda line: None,
) -> float | None:  # fmt: skip
    """The cosine between the gradients of a task and of contrastive alignment, each summed over some batches; None where one
    of them is zero.

    Args:
        encoder: before either.
        task: its name.
        train: its training text.
        text: what the encoder may be aligned on.
        options: of the task.
        pretokenized: whether the words of the task's texts are between spaces.
        seed: of both.
        say: takes a line of news.

    Raises:
        SettingError: the encoder cannot be trained, or the task trains none.
    """
    require(encoder, "trained")
    if not learns(task):
        raise SettingError(f"{task} is not learnt from training text, so it has no gradient: leave out --train")
    if not isinstance(encoder, TrainableEncoder):
        raise SettingError(f"{encoder.name} has no weights to train, so no gradient: leave out --train")
    words = Words(pretokenized=pretokenized, limit=_TEXTS, seed=seed)
    inputs = Inputs(task, train, train=train, words=words, test_limit=_TEXTS, say=say)
    with warnings.catch_warnings():  # it is tested on nothing, and aligned with nothing yet
        warnings.simplefilter("ignore", CalqueWarning)
        (learning,) = TASKS.load(task).from_files(inputs, **{**dict(options or {}), "tune": True, "seeds": 1})
        found = gradient_cosine(encoder, learning, [text.corpus], [text.pairs], seed=seed)  # type: ignore[arg-type]
    return None if math.isnan(found.whole) else found.whole


def learns(task: str) -> bool:
    """Whether a task is learnt in one language and tested in others."""
    return "tune" in TASKS[task].options


# -- what is asked, and answered ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Advised:
    """What is said of alignment for a task.

    Attributes:
        encoder: its name.
        method: of alignment.
        langs: source and target.
        question: what was measured.
        target, source: what is expected in either language; None where no fit says anything.
        doubts: why no sign is told, beside those of `target`.
        fitted: where the fit is from; empty without one.
    """

    encoder: str
    method: str
    langs: tuple[str, str]
    question: Question
    target: Forecast | None
    source: Forecast | None
    doubts: tuple[str, ...] = ()
    fitted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        return "do not know" if self.target is None or self.doubts else self.target.outcome

    @property
    def why(self) -> tuple[str, ...]:
        """Why it does not know; nothing where it does."""
        doubts = (*self.doubts, *(() if self.target is None else self.target.doubts))
        if self.outcome == "do not know" and not doubts and self.target is not None:
            return (f"{_ends(self.target)} points in {self.langs[1]}, on both sides of zero",)
        return doubts

    @property
    def sentence(self) -> str:
        """The advice."""
        if self.outcome == "do not know":
            return f"do not know: {'; '.join(self.why)}"
        assert self.target is not None
        cost = "" if self.source is None else f"; {_ends(self.source)} in {self.langs[0]}"
        task = "" if self.outcome == "align" else f" for {self.question.task}"
        return f"{self.outcome}{task}: {_ends(self.target)} points expected in {self.langs[1]}{cost}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; gains in points."""
        expected = {
            lang: None if forecast is None else {"gain": forecast.gain, "low": forecast.interval()[0],
                                                 "high": forecast.interval()[1]}
            for lang, forecast in zip(self.langs, (self.source, self.target), strict=True)
        }  # fmt: skip
        return {
            "encoder": self.encoder, "encoder_fingerprint": self.question.encoder, "method": self.method,
            "languages": list(self.langs), "task": self.question.task, "features": dict(self.question.features),
            "expected": expected, "level": LEVEL, "outcome": self.outcome, "why": list(self.why),
            "advice": self.sentence, "fit": dict(self.fitted),
        }  # fmt: skip

    def __str__(self) -> str:
        langs = dict(zip(("source", "target"), self.langs, strict=True))
        rows = [("measured before alignment", "-".join(self.langs))]
        for name, feature in FEATURES.items():
            if name in self.question.features:
                words = feature.words
                for side, lang in langs.items():
                    words = words.replace(f", {side}", f", {lang}")
                rows.append((words, feature.shown(self.question.features[name])))
        lines = columns(rows, range(1, 2))
        if self.target is not None:
            expected = [(f"expected of {self.method} for {self.question.task}", "points", f"{LEVEL:.0%} interval")]
            for lang, forecast in ((self.langs[1], self.target), (self.langs[0], self.source)):
                if forecast is not None:
                    expected.append((lang, _signed(forecast.gain, 1), " to ".join(_exact(forecast))))
            lines += ["", *columns(expected, range(1, 3))]
        return "\n".join([*lines, "", self.sentence])


def _signed(value: float, digits: int) -> str:
    rounded = round(value, digits) + 0.0
    return "0" if not digits and not rounded else f"{rounded:+.{digits}f}".replace("-", "−")


def _exact(forecast: Forecast) -> list[str]:
    return [_signed(end, 1) for end in forecast.interval()]


def _ends(forecast: Forecast) -> str:
    """An interval in whole points, or in tenths where it is narrow or ends near zero."""
    low, high = forecast.interval()
    digits = 0 if high - low >= 2 and min(abs(low), abs(high)) >= 0.5 else 1
    return f"{_signed(low, digits)} to {_signed(high, digits)}"


def advise(
    encoder: str,
    text: str,
    *,
    langs: tuple[str, str],
    task: str,
    train: Sequence[str] = (),
    tune: bool = False,
    method: str = "contrastive",
    options: Mapping[str, Any] | None = None,
    load: Mapping[str, Any] | None = None,
    words: Words | None = None,
    fitted: str | Path | None = None,
    say: Say = lambda line: None,
) -> Advised:
    """Measure an encoder, and say what alignment on a text will bring a task.

    Args:
        encoder: what `load_encoder` takes.
        text: parallel text that it may be aligned on.
        langs: source, in which the task is learnt, and target.
        task: its name, one that is learnt.
        train: its training text; with it the cosine of gradients is measured.
        tune: whether the encoder will be trained along.
        method: of alignment, by its name in the study that was fitted.
        options: of the task.
        load: keyword arguments of `load_encoder`.
        words: how words are found and linked.
        fitted: a table that `calque advise --fit` wrote; None for the one that comes with calque.
        say: takes a line of news.

    Raises:
        SettingError: a task that is not learnt.
    """
    from calque.encoders import load_encoder

    if not learns(task):
        known = ", ".join(name for name in TASKS if learns(name))
        raise SettingError(f"{task} is not learnt in one language and tested in others: expected one of {known}")
    table = None
    if fitted is not None or SHIPPED.exists():
        table = AdviceTable.open(fitted or SHIPPED)
    words = words or Words()
    loaded = load_encoder(encoder, **dict(load or {}))
    require(loaded, "measured")
    linked = LinkedText.read(text, langs, words)
    say(
        f"{text}: {linked.sentence_pairs:,} sentence pairs, {len(linked.pairs):,} links in {len(linked.corpus):,} of them"
    )
    features = linked.features(loaded, seed=words.seed)
    if train:
        how: Any = {"pretokenized": words.pretokenized, "seed": words.seed, "say": say}
        cosine = gradient_of(loaded, task, train, linked, options, **how)
        features |= {} if cosine is None else {"gradient": cosine}
    name = f"{task}, tuned" if tune else task
    question = Question(loaded.fingerprint, langs[1], name, features)
    return answer(loaded.name, method, langs, question, table)


def answer(encoder: str, method: str, langs: tuple[str, str], question: Question, table: AdviceTable | None) -> Advised:
    """What a table says to a question.

    Args:
        encoder: name of the encoder.
        method: of alignment.
        langs: source and target.
        question: of the target.
        table: None where there is none.
    """
    about = {} if table is None else table.about
    known = partial(Advised, encoder, method, langs, question, fitted=about)
    if table is None:
        remedy = "`calque advise --fit STUDY.toml --out FILE` makes one from a study of yours"
        return known(None, None, (f"there is no fit yet; {remedy}",))
    if method not in table.methods:
        return known(None, None, (f"the fit has no {method}, only {', '.join(table.methods)}",))
    try:
        target = Advice(table.cells(method), question.features).ask(question)
    except SettingError as error:
        return known(None, None, (str(error),))
    own, source = of_source(replace(question, lang=langs[0])), None
    with suppress(SettingError):  # too few tasks to say what others lose
        source = Advice(table.cells(method, source=True), own.features, over="task").ask(own)
    other = f"the fit is of tasks learnt in {about['source']}, not in {langs[0]}"
    return known(target, source, (other,) if about["source"] != langs[0] else ())
