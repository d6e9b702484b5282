"""Verdict of a report: gains and losses of each method, with their size and significance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.document import Name, Piece, Text
from calque.report.numbers import Figure, counted, difference, distance
from calque.report.questions import Column, Question, Subject, Subjects
from calque.runs.compare import (
    LEVEL,
    TooFew,
    above_all,
    cannot_be_shown,
    holm,
    outcome,
    p_value,
    too_few,
)
from calque.tasks.reporting import NOT_CONVERGED

Key = tuple[object, ...]
Pairs = dict[Column | None, tuple[Figure, Figure]]


@dataclass(frozen=True)
class Comparison:
    """Comparison of a subject with its baseline on one question.

    Attributes:
        question, subject, base: question, and the two compared subjects.
        pairs: the two scores on each common test set; the key None maps to the means over the
            targets, if both exist.
        outcomes: outcome of each pair: "better", "worse" or "unclear".
        left_out: pairs of scores that are not compared, because one of them has warnings, see
            `Figure`.
    """

    question: Question
    subject: Subject
    base: Subject
    pairs: Pairs
    outcomes: Mapping[Column | None, str]
    left_out: Pairs

    @property
    def warnings(self) -> dict[str, list[Subject]]:
        """Reasons why scores are left out, each with the subjects whose scores have this
        warning.
        """
        found: dict[str, list[Subject]] = {}
        for pair in self.left_out.values():
            for subject, figure in zip((self.subject, self.base), pair, strict=True):
                for warning in figure.warnings:
                    found.setdefault(warning, []).append(subject)
        return {warning: list(dict.fromkeys(subjects)) for warning, subjects in found.items()}

    @property
    def on_targets(self) -> dict[Column, str]:
        """Outcomes on the targets of the question."""
        return {
            column: self.outcomes[column]
            for column in self.question.targets
            if column in self.outcomes
        }

    @property
    def few(self) -> list[TooFew]:
        """Kinds of training with too few runs for a significance test, see `too_few`."""
        return [
            few for one, other in self.pairs.values() for few in too_few(one.known, other.known)
        ]

    @property
    def whole(self) -> list[Column | None]:
        """Key of the mean over the targets (None) or, if there is no mean, the targets
        themselves.
        """
        return [None] if None in self.pairs else list(self.on_targets)

    def gain(self, column: Column | None) -> float:
        """Return the improvement over the baseline, significant or not, on one test set, or on
        average if `column` is None.
        """
        gap = difference(*self.pairs[column]).value
        return -gap if self.question.lower_is_better else gap


@dataclass(frozen=True)
class Claims:
    """All comparisons on a page.

    Attributes:
        comparisons: comparisons by question.
        best: subject that is significantly better than all others, by question and column; the
            column None stands for the mean.
        number: number of tested comparisons.
    """

    comparisons: Mapping[tuple[str, str, str], Sequence[Comparison]]
    best: Mapping[tuple[tuple[str, str, str], Column | None], Subject]
    number: int

    def of(self, question: Question) -> Sequence[Comparison]:
        """Return the comparisons of a question."""
        return self.comparisons.get(question.key, ())


def claim(questions: Iterable[Question], subjects: Subjects) -> Claims:
    """Test all comparisons of a page. Each subject is compared with its baseline in each column and
    on average, and the best subject of each column with all others. Half of the 5% significance
    level is allotted to the tests of means, or of the target column if there is only one. Subjects
    with too few runs, and scores with warnings, are not tested."""
    compared: list[tuple[Question, Subject, Subject, Pairs, Pairs]] = []
    p: dict[Key, float] = {}
    first: set[Key] = set()
    tops: dict[Key, Subject] = {}
    for question in questions:
        scores = {subject: _scores(question, subject) for subject in question.subjects}
        for subject, own in scores.items():
            base = subjects.base.get(subject)
            others = {} if base is None else scores.get(base, {})
            both: Pairs = {
                column: (own[column], others[column]) for column in own if column in others
            }
            if base is None or not both.keys() & set(question.targets):
                continue
            doubtful = {
                column: pair
                for column, pair in both.items()
                if pair[0].warnings or pair[1].warnings
            }
            pairs = {column: pair for column, pair in both.items() if column not in doubtful}
            compared.append((question, subject, base, pairs, doubtful))
            for column, (one, other) in pairs.items():
                if (
                    one.known is not None
                    and other.known is not None
                    and not too_few(one.known, other.known)
                ):
                    key = (question.key, subject, column)
                    p[key] = p_value(one.known, other.known)
                    if column is None or (
                        len(question.targets) == 1 and column in question.targets
                    ):
                        first.add(key)
        for column in (*question.columns, *([None] if len(question.targets) > 1 else [])):
            figures = {subject: own[column] for subject, own in scores.items() if column in own}
            known = {
                subject: figure.known
                for subject, figure in figures.items()
                if figure.known is not None
            }
            comparable = len(known) == len(figures) and not any(
                figure.warnings for figure in figures.values()
            )
            top = above_all(known, lower=question.lower_is_better) if comparable else None
            if top is not None:  # with two subjects, this is the comparison with the baseline
                same = [s for s in known if len(known) == 2 and subjects.base.get(s) in known]
                key = (question.key, same[0] if same else "best", column)
                tops[key], p[key] = top
    weights = {key: 1 / len(first) if key in first else 1 / (len(p) - len(first)) for key in p}
    corrected = holm(p, weights)
    comparisons: dict[tuple[str, str, str], list[Comparison]] = {}
    for question, subject, base, pairs, doubtful in compared:
        outcomes: dict[Column | None, str] = dict.fromkeys(pairs, "unclear")
        for column, (one, other) in pairs.items():
            tested = corrected.get((question.key, subject, column))
            if tested is not None and one.known is not None and other.known is not None:
                outcomes[column] = outcome(
                    one.known, other.known, tested, lower=question.lower_is_better
                )
        comparison = Comparison(question, subject, base, pairs, outcomes, doubtful)
        comparisons.setdefault(question.key, []).append(comparison)
    best = {(key[0], key[2]): subject for key, subject in tops.items() if corrected[key] < LEVEL}
    return Claims(comparisons, best, len(p))  # type: ignore[arg-type]


def _scores(question: Question, subject: Subject) -> dict[Column | None, Figure]:
    """Return the scores of a subject by column; the key None maps to their mean."""
    figures: dict[Column | None, Figure | None] = {
        c: question.cells.get((subject, c)) for c in question.columns
    }
    figures[None] = question.mean(subject)
    return {
        column: figure
        for column, figure in figures.items()
        if figure is not None and figure.value is not None
    }


METRICS = {
    "accuracy": "accuracy",
    "accuracy.all": "accuracy, all linked words",
    "accuracy.unseen": "accuracy, pairs unseen in training",
    "same-form": "nearest word is the same word type",
    "similarities": "correlation with similarities before alignment",
    "form.all": "correct word type, all linked words",
    "form.unseen": "correct word type, pairs unseen in training",
    "aer": "error rate",
    "f1": "F1",
    "macro-f1": "macro F1",
    "intent": "intent accuracy",
    "em": "exact match",
    "las": "labelled attachment",
    "uas": "unlabelled attachment",
    "xsim": "xsim error rate",
    "p@1": "precision at 1",
    "p@5": "precision at 5",
    "p@10": "precision at 10",
    "mrr": "mean reciprocal rank",
}


def metric_name(metric: str) -> str:
    """Return the name of a metric in the report."""
    return METRICS.get(metric, metric)


def summary(
    headlines: Sequence[Question], claims: Claims, guessed: Sequence[Subject] = ()
) -> tuple[Text, ...]:
    """Return the verdict: for each subject, its gains and losses, with the most improved subject
    first. Both cover all main
    metrics: first the `headlines`, which are the main questions of the tasks, then the further
    metrics, which are named as such. The last sentences describe the comparison and the scores that
    were left out."""
    asked = {question.key for question in headlines}
    every: dict[Subject, list[Comparison]] = {}
    for comparison in (
        comparison for of_question in claims.comparisons.values() for comparison in of_question
    ):
        if comparison.outcomes:
            every.setdefault(comparison.subject, []).append(comparison)
    left_out = _left_out(claims)
    if not every:
        return left_out or _without_base(headlines)
    better, worse = (
        {
            s: sum(list(c.outcomes.values()).count(outcome) for c in comparisons)
            for s, comparisons in every.items()
        }
        for outcome in ("better", "worse")
    )
    verdict: list[Text] = []
    if not any(better.values()) and any(
        not comparison.few for own in every.values() for comparison in own
    ):
        verdict.append(("No method is clearly better than its base in any language.",))
    gains = {
        s: max((c.gain(column) for c in own for column in c.whole), default=0.0)
        for s, own in every.items()
    }
    for subject in sorted(
        every, key=lambda s: (worse[s] - better[s], -round(gains[s], 9), s.number)
    ):
        comparisons = every[subject]
        first = [comparison for comparison in comparisons if comparison.question.key in asked]
        further = [comparison for comparison in comparisons if comparison.question.key not in asked]
        verdict += _overall(subject, first, further)
        for word in ("better", "worse"):
            moved = [
                text
                for some in (first, further)
                for text in _by_size(
                    _moved(each, asked, better=word == "better", clear=False) for each in some
                )
            ]
            if moved:
                verdict.append(
                    (
                        _name(subject),
                        f" is {word}, but not clearly, by ",
                        *_joined(moved, "; "),
                        ".",
                    )
                )
    verdict.append(_compared(every))
    verdict += left_out
    taken = (
        ("No result names the base encoder, so the first encoder is the base: ", _name(s), ".")
        for s in guessed
    )
    return (*verdict, *taken)


def _left_out(claims: Claims) -> tuple[Text, ...]:
    """Return a sentence for each question with scores that were not compared, with the reasons and
    the methods.
    """
    texts: list[Text] = []
    for comparisons in claims.comparisons.values():
        concerned = [comparison for comparison in comparisons if comparison.left_out]
        reasons: dict[str, dict[Subject, None]] = {}
        for comparison in concerned:
            for reason, subjects in comparison.warnings.items():
                reasons.setdefault(reason, {}).update(dict.fromkeys(subjects))
        if not reasons:
            continue
        part = " in some languages" if any(comparison.outcomes for comparison in concerned) else ""
        parts: list[Piece] = [
            f"No verdict on {_asked(concerned[0].question, headline=False)}{part}: "
        ]
        for number, (reason, subjects) in enumerate(reasons.items()):
            named = sorted(subjects, key=lambda subject: subject.number)
            names = _joined([(_name(subject),) for subject in named])
            parts += [f"{'; ' if number else ''}{reason} (", *names, ")"]
        remedy = " Train the task heads for more epochs." if NOT_CONVERGED in reasons else ""
        texts.append((*parts, f".{remedy}"))
    return tuple(texts)


def _compared(by_subject: Mapping[Subject, Sequence[Comparison]]) -> Text:
    """Return sentences that name the baselines and tasks and explain the tests."""
    comparisons = [comparison for of_subject in by_subject.values() for comparison in of_subject]
    bases = dict.fromkeys(_name(comparison.base) for comparison in comparisons)
    tasks = list(dict.fromkeys(comparison.question.title for comparison in comparisons))
    return (
        "Each method is compared with " if len(by_subject) > 1 else "The method is compared with ",
        *_joined([(base,) for base in bases], " and "),
        " on ",
        *_joined([(task,) for task in tasks]),
        ". ",
        "“Clearly” means significantly, in tests over training runs and texts, corrected for the "
        "number of comparisons.",
    )


def _name(subject: Subject) -> Name:
    return Name(subject.label, subject.number)


def _overall(
    subject: Subject, first: Sequence[Comparison], further: Sequence[Comparison]
) -> list[Text]:
    """Return a sentence about the significant gains and losses in headline metrics, and one about
    those in further metrics. If there are too few training runs for any test, return only a note
    about this."""
    every = [*first, *further]
    name, base = _name(subject), _name(every[0].base)
    if all(comparison.few for comparison in every):
        few = [each for comparison in every for each in comparison.few]
        return [(name, ": a difference from ", base, f" {cannot_be_shown(few)}.")]
    sentences: list[Text] = []
    gains, costs = _clear(first, headline=True)
    more_gains, more_costs = _clear(further, headline=False)
    if first:
        parts: list[Piece] = [name, *_listed(gains)]
        if not gains:
            parts += [" is nowhere clearly better than ", base]
        if (more_gains or more_costs) and not (gains and costs):
            parts.append(" in the headline metrics")
        parts += _losses(costs, after_gains=bool(gains))
        sentences.append((*parts, "."))
    if more_gains or more_costs:
        parts = [name, ", in further metrics,", *_listed(more_gains)]
        if more_costs:
            parts += _losses(more_costs, after_gains=bool(more_gains), start=not more_gains)
        sentences.append((*parts, "."))
    return sentences or [(name, " is nowhere clearly better than ", base, ", nor clearly worse.")]


def _clear(comparisons: Sequence[Comparison], *, headline: bool) -> tuple[list[Text], list[Text]]:
    """Return texts about the significant gains and about the significant losses, largest first."""
    named = {comparison.question.key for comparison in comparisons} if headline else set()
    gains = _by_size(
        (max(map(each.gain, each.outcomes)), _gained(each, headline=headline))
        for each in comparisons
    )
    return gains, _by_size(_moved(each, named, better=False, clear=True) for each in comparisons)


def _listed(gains: Sequence[Text]) -> list[Piece]:
    """Join the gains of a sentence."""
    parts: list[Piece] = []
    for k, gain in enumerate(gains):
        separator = ", and " if k == len(gains) - 1 else ", "
        parts += [separator if k else " ", *gain]
    return parts


def _losses(costs: Sequence[Text], *, after_gains: bool, start: bool = False) -> list[Piece]:
    """Return the part of a sentence about losses, after its part about gains."""
    if not costs:
        return ["; nothing is clearly worse" if after_gains else ", nor clearly worse"]
    opening = ", but is clearly worse by " if after_gains else " and is clearly worse by "
    return [" is clearly worse by " if start else opening, *_joined(costs, "; ")]


def _gained(comparison: Comparison, *, headline: bool) -> Text:
    """Return the significant gain in the mean on a task or, if the mean has none, the significant
    gains on single test sets.
    """
    question, outcomes = comparison.question, comparison.on_targets
    verb = "lowers the error of" if question.lower_is_better else "raises"
    what = f"{verb} {_asked(question, headline=headline)}"
    if comparison.outcomes.get(None) == "better":
        pairs = [comparison.pairs[column] for column in outcomes]
        clear, of = (
            counted(name, tuple(outcomes.values()), pairs) for name in ("better", "compared")
        )
        unit = (
            "language" if len({column.lang for column in outcomes}) == len(outcomes) else "test set"
        )
        where = f"{unit}{'s' if len(outcomes) > 1 else ''}"
        return (
            f"{what} by ",
            distance(*comparison.pairs[None]),
            " on average (clearly in ",
            clear,
            " of ",
            of,
            f" {where})",
        )
    parts: list[Piece] = []
    better = [column for column, found in outcomes.items() if found == "better"]
    for column in sorted(better, key=comparison.gain, reverse=True):
        parts += [", " if parts else "", distance(*comparison.pairs[column]), f" in {column.label}"]
    return (f"{what} by ", *parts) if better else ()


def _moved(
    comparison: Comparison,
    headlines: Collection[tuple[str, str, str]],
    *,
    better: bool,
    clear: bool,
) -> tuple[float, Text]:
    """Return the largest difference and a text about the scores that are better (or worse) than the
    baseline's; `clear` selects significant differences. The text names the metric unless it is
    among the `headlines`. Gains below two points (or a tenth of the baseline's score, if it is not
    a fraction) are left out."""
    sign, found = 1 if better else -1, {}
    for column in (
        comparison.whole
        if better
        else dict.fromkeys([*comparison.whole, *comparison.on_targets, *comparison.outcomes])
    ):
        one, other = comparison.pairs[column]
        large = 0.02 if one.percent else 0.1 * abs(other.value or 0.0)
        size, clearly = sign * comparison.gain(column), comparison.outcomes[column] != "unclear"
        if size > 0 and clearly == clear and (not better or size >= large):
            found[column] = size
    parts: list[Text] = []
    for column in sorted(found, key=found.__getitem__, reverse=True):
        where = " on average" if column is None else f" in {column.label}"
        home = (
            ""
            if column is None or column in comparison.question.targets
            else " (the training language)"
        )
        parts.append((distance(*comparison.pairs[column]), where + home))
    about = _asked(comparison.question, headline=comparison.question.key in headlines)
    return max(found.values(), default=0.0), (*_joined(parts), f" on {about}") if parts else ()


def _by_size(effects: Iterable[tuple[float, Text]]) -> list[Text]:
    """Return the non-empty texts, sorted by the size of their effects, largest first."""
    return [text for _, text in sorted(effects, key=lambda effect: -effect[0]) if text]


def _joined(texts: Sequence[Text], between: str = ", ") -> list[Piece]:
    """Join texts into a list in a sentence; only a list that is separated by commas contains
    "and".
    """
    parts: list[Piece] = []
    for k, text in enumerate(texts):
        last = k == len(texts) - 1 and between == ", "
        parts += ["" if not k else " and " if last else between, *text]
    return parts


def _asked(question: Question, *, headline: bool = True) -> str:
    """Describe a question by its task, its settings and, unless it is a headline, its metric."""
    stem, _, selection = question.metric.partition(".")
    links = {"all": "all linked words", "unseen": "unseen pairs"}.get(selection)
    short = {"uas": "UAS", "mrr": "MRR", "similarities": "similarities as before"}
    metric = short.get(question.metric, metric_name(question.metric))
    if links is not None:
        metric = f"by word type, {links}" if stem == "form" else links
    details = [*([] if headline else [metric]), *([question.variant] if question.variant else [])]
    return question.title + (f" ({', '.join(details)})" if details else "")


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("The results contain analyses, but no task scores.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder, so no comparison is possible."),)
    return (("No two encoders have scores on the same data, so no comparison is possible.",),)
