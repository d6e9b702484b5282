"""Verdict of a report: gains and losses of each method, with their size and significance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from calque.report.document import Name, Piece, Text
from calque.report.numbers import Figure, counted, difference, distance
from calque.report.questions import Column, Question, Subject, Subjects
from calque.runs.compare import (
    LEVEL,
    Estimate,
    TooFew,
    above_all,
    cannot_be_shown,
    holm,
    outcome,
    p_value,
    too_few,
)
from calque.tasks.reporting import NOT_CONVERGED

Key = tuple[str, str, str]  # key of a question
Scores = dict[Column | None, Figure]  # scores of a subject by column; None stands for the mean
Pairs = dict[Column | None, tuple[Figure, Figure]]  # scores of a subject and of its baseline


class _Test(NamedTuple):
    """Key of a significance test: the difference of a subject from its baseline or, if `subject` is
    None, the difference of the best subject from all others.
    """

    question: Key
    subject: Subject | None
    column: Column | None


@dataclass(frozen=True)
class Comparison:
    """Comparison of a subject with its baseline on one question.

    Attributes:
        question, subject, base: question, and the two compared subjects.
        pairs: the two scores on each common test set; the key None maps to the means over the
            targets, if both exist.
        left_out: pairs of scores that are not compared, because one of them has warnings, see
            `Figure`.
        outcomes: outcome of each pair: "better", "worse" or "unclear".
    """

    question: Question
    subject: Subject
    base: Subject
    pairs: Pairs
    left_out: Pairs
    outcomes: Mapping[Column | None, str] = field(default_factory=dict)

    @property
    def warnings(self) -> dict[str, list[Subject]]:
        """Reasons why scores are left out, each with the subjects whose scores have this
        warning.
        """
        warned: dict[str, dict[Subject, None]] = {}
        for figure, base_figure in self.left_out.values():
            for warning in figure.warnings:
                warned.setdefault(warning, {})[self.subject] = None
            for warning in base_figure.warnings:
                warned.setdefault(warning, {})[self.base] = None
        return {warning: list(subjects) for warning, subjects in warned.items()}

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
        few: list[TooFew] = []
        for figure, base_figure in self.pairs.values():
            few += too_few(figure.known, base_figure.known)
        return few

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

    def count(self, outcome: str) -> int:
        """Return the number of test sets, including the mean, with an outcome."""
        return list(self.outcomes.values()).count(outcome)


@dataclass(frozen=True)
class Claims:
    """Comparisons on a page.

    Attributes:
        comparisons: comparisons by question.
        best: subject that is significantly better than all others, by question and column; the
            column None stands for the mean.
        number: number of tested comparisons.
    """

    comparisons: Mapping[Key, Sequence[Comparison]]
    best: Mapping[tuple[Key, Column | None], Subject]
    number: int

    def of(self, question: Question) -> Sequence[Comparison]:
        """Return the comparisons of a question."""
        return self.comparisons.get(question.key, ())


def claim(questions: Iterable[Question], subjects: Subjects) -> Claims:
    """Test all comparisons of a page. Each subject is compared with its baseline in each column and
    on average, and the best subject of each column with all others. Half of the 5% significance
    level is allotted to the tests of means, or of the target column if there is only one. Subjects
    with too few runs, and scores with warnings, are not tested."""
    untested: list[Comparison] = []
    tests = _Tests()
    for question in questions:
        scores = {subject: _scores(question, subject) for subject in question.subjects}
        for subject in scores:
            comparison = _with_baseline(question, subject, scores, subjects)
            if comparison is not None:
                untested.append(comparison)
                tests.add_comparison(comparison)
        columns: list[Column | None] = list(question.columns)
        if len(question.targets) > 1:
            columns.append(None)
        for column in columns:
            tests.add_best(question, column, scores, subjects)
    corrected = tests.corrected()

    comparisons: dict[Key, list[Comparison]] = {}
    for comparison in untested:
        tested = replace(comparison, outcomes=_outcomes(comparison, corrected))
        comparisons.setdefault(comparison.question.key, []).append(tested)
    best = {
        place: subject for place, (subject, key) in tests.best.items() if corrected[key] < LEVEL
    }
    return Claims(comparisons, best, len(corrected))


class _Tests:
    """Significance tests of a page.

    Attributes:
        p_values: p-value of each test, before correction.
        primary: tests of means, or of the target column if there is only one.
        best: best subject of each question and column, with the test of its superiority.
    """

    def __init__(self):
        self.p_values: dict[_Test, float] = {}
        self.primary: set[_Test] = set()
        self.best: dict[tuple[Key, Column | None], tuple[Subject, _Test]] = {}

    def add_comparison(self, comparison: Comparison) -> None:
        """Test the differences of a subject from its baseline."""
        targets = comparison.question.targets
        for column, (figure, base_figure) in comparison.pairs.items():
            one, other = figure.known, base_figure.known
            if one is None or other is None or too_few(one, other):
                continue
            test = _Test(comparison.question.key, comparison.subject, column)
            self.p_values[test] = p_value(one, other)
            if column is None or targets == (column,):
                self.primary.add(test)

    def add_best(
        self,
        question: Question,
        column: Column | None,
        scores: Mapping[Subject, Scores],
        subjects: Subjects,
    ) -> None:
        """Test whether the best subject of a column is better than all others."""
        figures = [
            (subject, by_column[column])
            for subject, by_column in scores.items()
            if column in by_column
        ]
        estimates: dict[Subject, Estimate] = {}
        for subject, figure in figures:
            if figure.known is None or figure.warnings:
                return  # the best subject is unknown
            estimates[subject] = figure.known
        best = above_all(estimates, lower=question.lower_is_better)
        if best is None:
            return
        best_subject, p = best
        tested: Subject | None = None
        if len(estimates) == 2:  # this test may already exist as a comparison with the baseline
            for subject in estimates:
                if subjects.base.get(subject) in estimates:
                    tested = subject
                    break
        test = _Test(question.key, tested, column)
        self.p_values[test] = p
        self.best[question.key, column] = (best_subject, test)

    def corrected(self) -> dict[_Test, float]:
        """Return the p-values, corrected for the number of tests. The primary tests share one half
        of the error rate, and all other tests the other half.
        """
        n_primary = len(self.primary)
        n_others = len(self.p_values) - n_primary
        weights = {
            test: 1 / n_primary if test in self.primary else 1 / n_others for test in self.p_values
        }
        return holm(self.p_values, weights)


def _with_baseline(
    question: Question,
    subject: Subject,
    scores: Mapping[Subject, Scores],
    subjects: Subjects,
) -> Comparison | None:
    """Return the scores of a subject beside those of its baseline; None if they have no target in
    common.
    """
    base = subjects.base.get(subject)
    if base is None or base not in scores:
        return None
    pairs: Pairs = {}
    left_out: Pairs = {}
    for column, figure in scores[subject].items():
        base_figure = scores[base].get(column)
        if base_figure is None:
            continue
        if figure.warnings or base_figure.warnings:
            left_out[column] = (figure, base_figure)
        else:
            pairs[column] = (figure, base_figure)
    if not (pairs.keys() | left_out.keys()) & set(question.targets):
        return None
    return Comparison(question, subject, base, pairs, left_out)


def _outcomes(comparison: Comparison, corrected: Mapping[_Test, float]) -> dict[Column | None, str]:
    """Return the outcome of each pair of scores; pairs that were not tested are "unclear"."""
    question = comparison.question
    outcomes: dict[Column | None, str] = {}
    for column, (figure, base_figure) in comparison.pairs.items():
        p = corrected.get(_Test(question.key, comparison.subject, column))
        if p is None or figure.known is None or base_figure.known is None:
            outcomes[column] = "unclear"
            continue
        lower = question.lower_is_better
        outcomes[column] = outcome(figure.known, base_figure.known, p, lower=lower)
    return outcomes


def _scores(question: Question, subject: Subject) -> Scores:
    """Return the scores of a subject by column; the key None maps to their mean."""
    figures: dict[Column | None, Figure | None] = {
        column: question.cells.get((subject, column)) for column in question.columns
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
    by_subject: dict[Subject, list[Comparison]] = {}
    for comparisons in claims.comparisons.values():
        for comparison in comparisons:
            if comparison.outcomes:
                by_subject.setdefault(comparison.subject, []).append(comparison)
    left_out = _left_out(claims)
    if not by_subject:
        return left_out or _without_base(headlines)

    verdict: list[Text] = []
    compared = [comparison for comparisons in by_subject.values() for comparison in comparisons]
    is_any_better = any(comparison.count("better") for comparison in compared)
    if not is_any_better and any(not comparison.few for comparison in compared):
        verdict.append(("No method is clearly better than its base in any language.",))
    headline_keys = {question.key for question in headlines}
    for subject in sorted(by_subject, key=lambda subject: _rank(subject, by_subject[subject])):
        verdict += _of_subject(subject, by_subject[subject], headline_keys)
    verdict.append(_compared(by_subject))
    verdict += left_out
    for base in guessed:
        verdict.append(
            (
                "No result names the base encoder, so the first encoder is the base: ",
                _name(base),
                ".",
            )
        )
    return tuple(verdict)


def _rank(subject: Subject, comparisons: Sequence[Comparison]) -> tuple[int, float, int]:
    """Return a sorting key: more significant gains than losses first, then larger gains."""
    losses = sum(comparison.count("worse") for comparison in comparisons)
    gains = sum(comparison.count("better") for comparison in comparisons)
    largest = max(
        (comparison.gain(column) for comparison in comparisons for column in comparison.whole),
        default=0.0,
    )
    # Rounding makes the order independent of the rounding errors of equal gains.
    return losses - gains, -round(largest, 9), subject.number


def _of_subject(
    subject: Subject, comparisons: Sequence[Comparison], headlines: Collection[Key]
) -> list[Text]:
    """Return the sentences about one subject: significant differences, then others."""
    first = [comparison for comparison in comparisons if comparison.question.key in headlines]
    further = [comparison for comparison in comparisons if comparison.question.key not in headlines]
    sentences = _overall(subject, first, further)
    for word in ("better", "worse"):
        effects: list[Text] = []
        for group in (first, further):
            effects += _by_size(
                _moved(comparison, headlines, better=word == "better", clear=False)
                for comparison in group
            )
        if effects:
            start = f" is {word}, but not clearly, by "
            sentences.append((_name(subject), start, *_joined(effects, "; "), "."))
    return sentences


def _left_out(claims: Claims) -> tuple[Text, ...]:
    """Return a sentence for each question with scores that were not compared, with the reasons and
    the methods.
    """
    sentences: list[Text] = []
    for comparisons in claims.comparisons.values():
        concerned = [comparison for comparison in comparisons if comparison.left_out]
        warned: dict[str, set[Subject]] = {}
        for comparison in concerned:
            for reason, subjects in comparison.warnings.items():
                warned.setdefault(reason, set()).update(subjects)
        if not warned:
            continue
        question = _asked(concerned[0].question, headline=False)
        is_partial = any(comparison.outcomes for comparison in concerned)
        where = " in some languages" if is_partial else ""
        pieces: list[Piece] = [f"No verdict on {question}{where}: "]
        for number, (reason, subjects) in enumerate(warned.items()):
            separator = "; " if number else ""
            ordered = sorted(subjects, key=lambda subject: subject.number)
            names = _joined([(_name(subject),) for subject in ordered])
            pieces += [f"{separator}{reason} (", *names, ")"]
        remedy = " Train the task heads for more epochs." if NOT_CONVERGED in warned else ""
        sentences.append((*pieces, f".{remedy}"))
    return tuple(sentences)


def _compared(by_subject: Mapping[Subject, Sequence[Comparison]]) -> Text:
    """Return sentences that name the baselines and tasks and explain the tests."""
    comparisons = [comparison for of_subject in by_subject.values() for comparison in of_subject]
    bases = dict.fromkeys(_name(comparison.base) for comparison in comparisons)
    tasks = dict.fromkeys(comparison.question.title for comparison in comparisons)
    subject = "Each method" if len(by_subject) > 1 else "The method"
    return (
        f"{subject} is compared with ",
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
    comparisons = [*first, *further]
    name, base = _name(subject), _name(comparisons[0].base)
    if all(comparison.few for comparison in comparisons):
        few: list[TooFew] = []
        for comparison in comparisons:
            few += comparison.few
        return [(name, ": a difference from ", base, f" {cannot_be_shown(few)}.")]
    sentences: list[Text] = []
    gains, losses = _clear(first, headline=True)
    further_gains, further_losses = _clear(further, headline=False)
    is_further = bool(further_gains or further_losses)  # whether a second sentence follows
    if first:
        pieces: list[Piece] = [name, *_listed(gains)]
        if not gains:
            pieces += [" is nowhere clearly better than ", base]
        if is_further and not (gains and losses):
            pieces.append(" in the headline metrics")
        pieces += _losses(losses, after_gains=bool(gains))
        sentences.append((*pieces, "."))
    if is_further:
        pieces = [name, ", in further metrics,", *_listed(further_gains)]
        if further_losses:
            after_gains = bool(further_gains)
            pieces += _losses(further_losses, after_gains=after_gains, start=not after_gains)
        sentences.append((*pieces, "."))
    return sentences or [(name, " is nowhere clearly better than ", base, ", nor clearly worse.")]


def _clear(comparisons: Sequence[Comparison], *, headline: bool) -> tuple[list[Text], list[Text]]:
    """Return texts about the significant gains and about the significant losses, largest first."""
    headlines = {comparison.question.key for comparison in comparisons} if headline else set()
    gains: list[tuple[float, Text]] = []
    losses: list[tuple[float, Text]] = []
    for comparison in comparisons:
        largest = max(map(comparison.gain, comparison.outcomes))
        gains.append((largest, _gained(comparison, headline=headline)))
        losses.append(_moved(comparison, headlines, better=False, clear=True))
    return _by_size(gains), _by_size(losses)


def _listed(gains: Sequence[Text]) -> list[Piece]:
    """Join the gains of a sentence."""
    pieces: list[Piece] = []
    for number, gain in enumerate(gains):
        if number == 0:
            separator = " "
        elif number == len(gains) - 1:
            separator = ", and "
        else:
            separator = ", "
        pieces += [separator, *gain]
    return pieces


def _losses(losses: Sequence[Text], *, after_gains: bool, start: bool = False) -> list[Piece]:
    """Return the part of a sentence about losses, after its part about gains."""
    if not losses:
        return ["; nothing is clearly worse" if after_gains else ", nor clearly worse"]
    if start:
        opening = " is clearly worse by "
    elif after_gains:
        opening = ", but is clearly worse by "
    else:
        opening = " and is clearly worse by "
    return [opening, *_joined(losses, "; ")]


def _gained(comparison: Comparison, *, headline: bool) -> Text:
    """Return the significant gain in the mean on a task or, if the mean has none, the significant
    gains on single test sets.
    """
    question, outcomes = comparison.question, comparison.on_targets
    verb = "lowers the error of" if question.lower_is_better else "raises"
    start = f"{verb} {_asked(question, headline=headline)} by "
    if comparison.outcomes.get(None) == "better":
        pairs = [comparison.pairs[column] for column in outcomes]
        n_better = counted("better", tuple(outcomes.values()), pairs)
        n_compared = counted("compared", tuple(outcomes.values()), pairs)
        is_by_language = len({column.lang for column in outcomes}) == len(outcomes)
        unit = "language" if is_by_language else "test set"
        if len(outcomes) > 1:
            unit += "s"
        return (
            start,
            distance(*comparison.pairs[None]),
            " on average (clearly in ",
            n_better,
            " of ",
            n_compared,
            f" {unit})",
        )
    better = [column for column, outcome in outcomes.items() if outcome == "better"]
    pieces: list[Piece] = []
    for column in sorted(better, key=comparison.gain, reverse=True):
        separator = ", " if pieces else ""
        pieces += [separator, distance(*comparison.pairs[column]), f" in {column.label}"]
    return (start, *pieces) if better else ()


def _moved(
    comparison: Comparison, headlines: Collection[Key], *, better: bool, clear: bool
) -> tuple[float, Text]:
    """Return the largest difference and a text about the scores that are better (or worse) than the
    baseline's; `clear` selects significant differences. The text names the metric unless it is
    among the `headlines`. Gains below two points (or a tenth of the baseline's score, if it is not
    a fraction) are left out."""
    question = comparison.question
    columns = comparison.whole
    if not better:  # a loss in any single test set is reported as well
        columns = list(dict.fromkeys([*columns, *comparison.on_targets, *comparison.outcomes]))
    sizes: dict[Column | None, float] = {}
    for column in columns:
        figure, base_figure = comparison.pairs[column]
        size = comparison.gain(column) if better else -comparison.gain(column)
        is_clear = comparison.outcomes[column] != "unclear"
        smallest = 0.02 if figure.percent else 0.1 * abs(base_figure.value or 0.0)
        if size > 0 and is_clear == clear and (not better or size >= smallest):
            sizes[column] = size
    if not sizes:
        return 0.0, ()
    effects: list[Text] = []
    for column in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if column is None:
            where = " on average"
        elif column in question.targets:
            where = f" in {column.label}"
        else:
            where = f" in {column.label} (the training language)"
        effects.append((distance(*comparison.pairs[column]), where))
    about = _asked(question, headline=question.key in headlines)
    return max(sizes.values()), (*_joined(effects), f" on {about}")


def _by_size(effects: Iterable[tuple[float, Text]]) -> list[Text]:
    """Return the non-empty texts, sorted by the size of their effects, largest first."""
    return [text for _, text in sorted(effects, key=lambda effect: -effect[0]) if text]


def _joined(texts: Sequence[Text], between: str = ", ") -> list[Piece]:
    """Join texts into a list in a sentence; only a list that is separated by commas contains
    "and".
    """
    pieces: list[Piece] = []
    for number, text in enumerate(texts):
        is_last = number == len(texts) - 1
        if number == 0:
            separator = ""
        elif is_last and between == ", ":
            separator = " and "
        else:
            separator = between
        pieces += [separator, *text]
    return pieces


def _asked(question: Question, *, headline: bool = True) -> str:
    """Describe a question by its task, its settings and, unless it is a headline, its metric."""
    stem, _, selection = question.metric.partition(".")
    links = {"all": "all linked words", "unseen": "unseen pairs"}.get(selection)
    short = {"uas": "UAS", "mrr": "MRR", "similarities": "similarities as before"}
    metric = short.get(question.metric, metric_name(question.metric))
    if links is not None:
        metric = f"by word type, {links}" if stem == "form" else links
    details = [] if headline else [metric]
    if question.variant:
        details.append(question.variant)
    return f"{question.title} ({', '.join(details)})" if details else question.title


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("The results contain analyses, but no task scores.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder, so no comparison is possible."),)
    return (("No two encoders have scores on the same data, so no comparison is possible.",),)
