"""Compare the published encoder with aligned encoders, and put the answer into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from calque.runs.compare import (
    Estimate,
    Record,
    difference_interval,
    estimate,
    holm,
    lower_is_better,
    outcome,
    over_tests,
    over_trainings,
    p_value,
    too_few,
)
from calque.runs.study.recipe import BASE
from calque.tasks.reporting import warnings_of

Use = Literal["frozen", "mixed", "tuned"]
Decision = Literal["ship", "don't", "unknown"]

#: how each use is described in a sentence
USES: dict[Use, str] = {
    "frozen": "a frozen encoder",
    "mixed": "a frozen encoder whose layers are mixed",
    "tuned": "an encoder that is trained on the task",
}


@dataclass(frozen=True)
class Gain:
    """Difference between an aligned and the published encoder, in the unit of the score.

    Attributes:
        value: gain; positive if the aligned encoder is better.
        low, high: ends of its 95% interval over training runs and texts.
        outcome: "better", "worse" or "unclear", after correction for all comparisons of the trial.
    """

    value: float
    low: float
    high: float
    outcome: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of one method with the published encoder in one use.

    Attributes:
        mean: gain on average over the target languages; None if it cannot be tested.
        by_language: gain in each target language.
        source: gain in the language of the training text; None if there is no such test text.
        base, aligned: mean scores over the target languages.
        warnings: reasons why the scores must not be compared.
        lower_is_better: whether the scores are error rates.
    """

    use: Use
    method: str
    mean: Gain | None
    by_language: Mapping[str, Gain]
    source: Gain | None
    base: float
    aligned: float
    warnings: tuple[str, ...] = ()
    lower_is_better: bool = False

    @property
    def decision(self) -> Decision:
        """Whether to use the aligned encoder: yes, if the mean gain is clear, and no target
        language clearly loses.
        """
        if self.mean is None:
            return "unknown"
        losses = [gain for gain in self.by_language.values() if gain.outcome == "worse"]
        if self.mean.outcome == "better" and not losses:
            return "ship"
        return "don't"


@dataclass(frozen=True)
class Verdict:
    """Answer of a trial.

    Attributes:
        method: method of the encoder to ship; None if there is none.
        sentences: the answer in one sentence, and one for each further use.
        comparisons: the comparisons that the answer rests on.
    """

    method: str | None
    sentences: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-compatible values."""
        comparisons = [{**asdict(one), "decision": one.decision} for one in self.comparisons]
        return {
            "ship": self.method is not None,
            "method": self.method,
            "sentences": list(self.sentences),
            "comparisons": comparisons,
        }


# -- comparisons -----------------------------------------------------------------------------------
def use_of(record: Record) -> Use:
    """Return the use whose score a record of a trial contains."""
    use = str(record["task"]).rpartition(", ")[2]
    if use == "mixed" or use == "tuned":
        return use
    return "frozen"


@dataclass
class _Scores:
    """Scores of one method in one use, by language."""

    records: dict[str, list[Record]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.records.setdefault(record["languages"][-1], []).append(record)

    def figures(self) -> dict[str, Estimate]:
        """Return the mean over training runs in each language; languages whose score has no
        variance are left out.
        """
        by_language = {}
        for lang, records in self.records.items():
            known = [figure for figure in map(estimate, records) if figure is not None]
            if len(known) == len(records):
                runs = [record.get("training_seed") for record in records]
                by_language[lang] = over_trainings(known, runs)
        return by_language

    def warnings(self) -> list[str]:
        reasons: list[str] = []
        for records in self.records.values():
            for record in records:
                reasons += warnings_of(record["settings"])
        return reasons


def compared(
    records: Sequence[Record], source: str, targets: Sequence[str]
) -> tuple[Comparison, ...]:
    """Compare each method with the published encoder in each use.

    The p-values of the means over the target languages are corrected for the number of means, and
    those of single languages for the number of languages, uses and methods (Holm 1979).

    Args:
        records: scores of the study; the first metric of each use is compared.
        source: language of the training text.
        targets: languages of the other test texts.
    """
    metrics: dict[Use, str] = {}
    by_row: dict[tuple[Use, str], _Scores] = {}
    for record in records:
        use = use_of(record)
        if record["metric"] == metrics.setdefault(use, record["metric"]):
            by_row.setdefault((use, record["method"]), _Scores()).add(record)
    pairs: dict[tuple[Use, str, str | None], tuple[Estimate, Estimate]] = {}
    for (use, method), scores in by_row.items():
        if method == BASE or (use, BASE) not in by_row:
            continue
        figures, base = scores.figures(), by_row[use, BASE].figures()
        for lang in (*targets, source):
            if lang in figures and lang in base:
                pairs[use, method, lang] = figures[lang], base[lang]
        if all((use, method, lang) in pairs for lang in targets):
            of_targets = [pairs[use, method, lang] for lang in targets]
            pairs[use, method, None] = (
                over_tests([figure for figure, _ in of_targets]),
                over_tests([figure for _, figure in of_targets]),
            )
    # The answer rests on the means over the target languages. The single languages are a second
    # family of tests, because a loss in any of them is a reason not to ship.
    tested = {key: p_value(*pair) for key, pair in pairs.items() if not too_few(*pair)}
    corrected = {
        **holm({key: p for key, p in tested.items() if key[2] is None}),
        **holm({key: p for key, p in tested.items() if key[2] is not None}),
    }

    comparisons = []
    for use, method in by_row:
        if method == BASE:
            continue
        lower = lower_is_better(metrics[use])
        gains = {
            lang: _gain(*pair, corrected.get((use, method, lang), 1.0), lower)
            for (of_use, of_method, lang), pair in pairs.items()
            if (of_use, of_method) == (use, method)
        }
        mean = pairs.get((use, method, None))
        reasons = dict.fromkeys([*by_row[use, method].warnings(), *by_row[use, BASE].warnings()])
        is_tested = (use, method, None) in tested and not reasons
        comparisons.append(
            Comparison(
                use,
                method,
                gains[None] if is_tested else None,
                {lang: gains[lang] for lang in targets if lang in gains},
                gains.get(source),
                base=mean[1].value if mean else float("nan"),
                aligned=mean[0].value if mean else float("nan"),
                warnings=tuple(reasons),
                lower_is_better=lower,
            )
        )
    return tuple(comparisons)


def _gain(figure: Estimate, base: Estimate, p: float, lower: bool) -> Gain:
    low, high = difference_interval(figure, base)
    value = figure.value - base.value
    if lower:
        value, low, high = -value, -high, -low
    return Gain(value, low, high, outcome(figure, base, p, lower=lower))


def judge(comparisons: Sequence[Comparison], title: str, source: str) -> Verdict:
    """Return the answer. Alignment is worth it if it helps in one of the uses and harms in none.

    Args:
        title: name of the task in a sentence.
        source: language of the training text.
    """
    best: dict[Use, Comparison] = {}
    for comparison in comparisons:
        other = best.get(comparison.use)
        if other is None or _rank(comparison) > _rank(other):
            best[comparison.use] = comparison
    shipped = [one for one in best.values() if one.decision == "ship"]
    harmed = [one for one in best.values() if _losses(one)]
    sentences = []
    if shipped and not harmed:
        better = min if shipped[0].lower_is_better else max
        first = better(shipped, key=lambda one: one.aligned)
        where = "" if len(best) == 1 else f" (as {USES[first.use]})"
        sentences.append(f"Ship it{where}: {_gained(first, title, source)}.")
    else:
        first = harmed[0] if harmed else next(iter(best.values()))
        sentences.append(_dont(first, title, source))
    for comparison in best.values():
        if comparison is not first:
            sentences.append(f"As {USES[comparison.use]}: {_in_short(comparison, source)}.")
    if len(best) > 1:
        sentences.append(_best_score(best))
    method = first.method if shipped and not harmed else None
    return Verdict(method, tuple(sentences), tuple(comparisons))


def _rank(comparison: Comparison) -> tuple[int, float]:
    """Return a key that is largest for the method to prefer."""
    order = {"ship": 2, "don't": 1, "unknown": 0}
    value = comparison.mean.value if comparison.mean is not None else float("-inf")
    return order[comparison.decision], value


def _losses(comparison: Comparison) -> dict[str, Gain]:
    """Return the languages that clearly lose; with a clear loss of the mean, all that lose."""
    if comparison.mean is None:
        return {}
    by_language = comparison.by_language
    if comparison.mean.outcome == "worse":
        return {lang: gain for lang, gain in by_language.items() if gain.value < 0}
    return {lang: gain for lang, gain in by_language.items() if gain.outcome == "worse"}


def _points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def _interval(gain: Gain) -> str:
    return f"95% interval {_points(gain.low)} to {_points(gain.high)}"


def _languages(comparison: Comparison) -> str:
    langs = list(comparison.by_language)
    return langs[0] if len(langs) == 1 else f"mean of {', '.join(langs)}"


def _gained(comparison: Comparison, title: str, source: str) -> str:
    mean = comparison.mean
    assert mean is not None
    text = f"{_points(mean.value)} on {title} ({_languages(comparison)}; {_interval(mean)})"
    if comparison.source is not None:
        text += f", {source} {_points(comparison.source.value)}"
        if comparison.source.outcome == "worse":
            text += ", which is a clear loss"
    return text


def _dont(comparison: Comparison, title: str, source: str) -> str:
    """Return the sentence for an encoder that is not worth shipping."""
    if comparison.mean is None:
        reason = "; ".join(comparison.warnings) or "there are too few training runs"
        return f"No verdict on {title}: {reason}; keep the published encoder until it is known."
    losses = _losses(comparison)
    if losses:
        sizes = sorted(-100 * gain.value for gain in losses.values())
        span = f"{sizes[0]:.1f}"
        if f"{sizes[-1]:.1f}" != span:
            span += f" to {sizes[-1]:.1f}"
        langs = ", ".join(losses)
        return (
            f"Don't: scores on {title} fall by {span} points ({langs}); keep the published encoder."
        )
    return (
        f"Don't: no gain on {title} can be shown ({_languages(comparison)}: "
        f"{_points(comparison.mean.value)}, {_interval(comparison.mean)}); keep the published "
        "encoder."
    )


def _in_short(comparison: Comparison, source: str) -> str:
    mean = comparison.mean
    if mean is None:
        return "; ".join(comparison.warnings) or "there are too few training runs"
    words = {"better": "it gains", "worse": "it loses", "unclear": "no clear difference"}
    text = f"{words[mean.outcome]}, {_points(mean.value)} ({_interval(mean)})"
    if comparison.source is not None:
        text += f", {source} {_points(comparison.source.value)}"
    return text


def _best_score(best: Mapping[Use, Comparison]) -> str:
    """Return a sentence that names the best of all mean scores."""
    scores: dict[str, float] = {}
    lower = False
    for use, comparison in best.items():
        lower = comparison.lower_is_better
        scores[f"the published encoder, used as {USES[use]}"] = comparison.base
        scores[f"{comparison.method}, used as {USES[use]}"] = comparison.aligned
    name = sorted(scores, key=lambda each: scores[each], reverse=not lower)[0]
    return f"The best score, {100 * scores[name]:.1f}, is that of {name}."
