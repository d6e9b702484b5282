"""Table of all tasks, with their classes, input files and command-line options.

To add a task, write its class in a new file and add a row to this table. The command line, studies,
reports and the documentation read the table without importing the tasks. Only the options that a
class declares are read from the class, see `TaskRow.options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from calque.named import Table, imported
from calque.spec import Declared, declared
from calque.tasks.base import Languages, Task
from calque.tasks.inputs import FIELDS
from calque.tasks.reporting import (
    CONSISTENCY,
    DISAMBIGUATION,
    LEXICON,
    OTHER_SCORES,
    RETRIEVAL,
    SENTENCES,
    TRAINED_HEADS,
    WORD_ALIGNMENT,
    Reporting,
    of_trained_heads,
)

#: task of the Hugging Face hub for encoders in general
FEATURES = "feature-extraction"


@dataclass(frozen=True)
class TaskRow:
    """Table row that describes one task.

    Attributes:
        target: import path of the task's class, `package.module:Class`.
        help: one-line description.
        title: name of the task in reports.
        files: names of the attributes of `Inputs` that list the files read by the task.
        input_options: names of the options that `Words` or `Inputs` declare (`langs`, `model`,
            `symmetrize`, `seed`, `pretokenized`, `test_limit`, `one_based`).
        languages: "pairs" if `langs` sets the languages of parallel text or dictionaries; "files"
            if each file has its own language.
        one: entries of `files` for which the task accepts only one file.
        lang: default language of files that do not declare a language; None if a language is
            required.
        reads: kind of the files `test`, `train` and `dev` if `languages` is "pairs".
        pretokenized: default of `--pretokenized`; true for tasks with gold links, which refer to
            words separated by spaces.
        reporting: declaration for reports, the same as `reporting` of the class.
        hub_task: most similar task of the Hugging Face hub, for the metadata of model cards.
    """

    target: str
    help: str
    title: str
    files: tuple[str, ...]
    input_options: tuple[str, ...] = ()
    languages: Languages = "files"
    one: tuple[str, ...] = ()
    lang: str | None = None
    pretokenized: bool = False
    reads: Literal["parallel", "dictionary"] = "parallel"
    reporting: Reporting = field(default_factory=Reporting)
    hub_task: str = FEATURES

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the task's options: `input_options`, and those that its class declares. This
        property imports the class.
        """
        return (*self.input_options, *options_of_class(imported(self.target)))

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the files and options of the task. This property imports the class."""
        return self.files + self.options


def options_of_class(task: type[Task]) -> dict[str, Declared]:
    """Return the options that a task class declares: the keyword-only parameters of the functions
    in `Task.takes`, keyed by name. If two functions share a parameter, the first declaration is
    used.
    """
    options: dict[str, Declared] = {}
    for function in task.takes():
        declarations = declared(function)
        passes_options_on = False
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                passes_options_on = True
            # `calque evaluate` declares the attributes of `Inputs` itself.
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in FIELDS:
                options.setdefault(parameter.name, declarations[parameter.name])
        if function == task.from_files and not passes_options_on:
            break  # `from_files` alone chooses the arguments of the remaining functions
    return options


def options_of_task(name: str) -> dict[str, Declared]:
    """Return the options that a task's class declares, keyed by name."""
    return options_of_class(TASKS.load(name))


def trains_head(name: str) -> bool:
    """Return whether a task trains a task head, which can read a choice or a mixture of layers."""
    return "poolings" in options_of_task(name)


# -- groups of options that `Words` and `Inputs` declare, and of files -----------------------------
_LINKING = ("langs", "model", "symmetrize", "seed")
# The languages and links of a trained task are those of the parallel text for label projection.
_TRAINED = ("test_limit", "by_layer", *_LINKING)
_ANNOTATED = ("test", "train", "dev", "ceiling")


def _row_of(name: str, kind: type[Task]) -> TaskRow:
    """Return the row for a class from another package, which may use all of its inputs."""
    summary = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    langs = ("langs",) if kind.languages == "pairs" else ()
    of_words = ("model", "symmetrize", "seed", "pretokenized", "test_limit", "one_based")
    by_layer = ("by_layer",) if kind.reporting.role == "transfer" else ()
    title = name.partition(":")[2]
    return TaskRow(
        name,
        summary,
        title,
        kind.files,
        (*langs, *of_words, *by_layer),
        kind.languages,
        reporting=kind.reporting,
    )


def _tags(help: str, title: str) -> TaskRow:
    return TaskRow(
        "calque.tasks.tagging:Tagging",
        help,
        title,
        (*_ANNOTATED, "project", "links"),
        (*_TRAINED, "one_based"),
        reporting=TRAINED_HEADS,
        hub_task="token-classification",
    )


def _labels(help: str, title: str) -> TaskRow:
    return TaskRow(
        "calque.tasks.classification:Classification",
        help,
        title,
        _ANNOTATED,
        (*_TRAINED, "pretokenized"),
        reporting=TRAINED_HEADS,
        hub_task="text-classification",
    )


TASKS: Table[TaskRow] = Table(
    "task",
    {
        "retrieval": TaskRow(
            "calque.tasks.retrieval:WordRetrieval",
            "Is the nearest word in the other language the translation in context?",
            "word retrieval",
            ("test", "train", "links", "train_links"),
            (*_LINKING, "one_based", "by_layer", "pretokenized"),
            languages="pairs",
            reporting=RETRIEVAL,
        ),
        "sentences": TaskRow(
            "calque.tasks.sentences:SentenceRetrieval",
            "Is the nearest sentence in the other language the translation? Also computes xsim "
            "and mining scores.",
            "sentence retrieval",
            ("test", "dev"),
            ("langs", "pretokenized"),
            languages="pairs",
            reporting=SENTENCES,
            hub_task="sentence-similarity",
        ),
        "word-alignment": TaskRow(
            "calque.tasks.alignment:WordAlignment",
            "Are the word links found by vector similarity correct? Error rate, precision, recall "
            "and F1.",
            "word alignment",
            ("test", "links"),
            ("langs", "seed", "pretokenized", "one_based"),
            languages="pairs",
            pretokenized=True,
            reporting=WORD_ALIGNMENT,
        ),
        "consistency": TaskRow(
            "calque.tasks.consistency:Consistency",
            "Is a word's nearest same-language neighbour another occurrence of it?",
            "same-language consistency",
            ("test",),
            ("langs", "seed", "pretokenized"),
            reporting=CONSISTENCY,
        ),
        "ner": _tags("Named entity recognition: F1 over whole spans.", "named entities"),
        "slots": _tags(
            "Slot filling and intent detection: F1 over whole spans, and accuracy.", "slot filling"
        ),
        "pos": _tags("Part-of-speech tagging: accuracy.", "part-of-speech tagging"),
        "nli": _labels("Natural language inference, on text pairs: accuracy.", "inference"),
        "sentiment": _labels(
            "Sentiment classification, on single texts: accuracy and macro-F1.", "sentiment"
        ),
        "parsing": TaskRow(
            "calque.tasks.parsing:Parsing",
            "Dependency parsing: LAS and UAS without punctuation.",
            "parsing",
            _ANNOTATED,
            _TRAINED,
            reporting=of_trained_heads("las"),
            hub_task="token-classification",
        ),
        "probing": TaskRow(
            "calque.tasks.probing:Probing",
            "Edge probing of spans and pairs of spans: micro-averaged F1, precision and recall.",
            "edge probing",
            _ANNOTATED,
            _TRAINED,
            reporting=of_trained_heads("f1"),
            hub_task="token-classification",
        ),
        "qa": TaskRow(
            "calque.tasks.answering:Answering",
            "Extractive question answering: F1 and exact match.",
            "question answering",
            _ANNOTATED,
            _TRAINED,
            reporting=of_trained_heads("f1"),
            hub_task="question-answering",
        ),
        "lexicon": TaskRow(
            "calque.tasks.lexicon:Lexicon",
            "Bilingual lexicon induction: precision at 1, 5 and 10, and mean reciprocal rank.",
            "bilingual lexicon",
            ("test", "text"),
            ("langs", "pretokenized"),
            languages="pairs",
            one=("test",),
            reads="dictionary",
            reporting=LEXICON,
        ),
        "wsd": TaskRow(
            "calque.senses.disambiguation:Disambiguation",
            "Word sense disambiguation by the nearest sense vector: F1.",
            "word senses",
            ("test", "train", "first_senses"),
            ("test_limit",),
            one=("train",),
            lang="en",
            reporting=DISAMBIGUATION,
            hub_task="token-classification",
        ),
    },
    base="calque.tasks.base:Task",
    row_of=_row_of,
)


def users(name: str) -> Sequence[str]:
    """Return the tasks that accept a file or option, or an empty list if all tasks or no tasks
    accept it.

    Only names that are not in `FIELDS` import the classes of the tasks, which takes seconds.
    """
    tasks = []
    for task, row in TASKS.items():
        names = (*row.files, *row.input_options) if name in FIELDS else row.takes
        if name in names:
            tasks.append(task)
    return [] if len(tasks) == len(TASKS) else tasks


#: metrics of calque's tasks for which lower values are better
LOWER_IN_TASKS = frozenset(
    metric
    for each in (*(row.reporting for row in TASKS.rows.values()), *OTHER_SCORES.values())
    for metric in each.lower
)


def reporting_of(task: str) -> Reporting | None:
    """Return the declaration for reports of a task in the table or of another score of calque; None
    if the name is unknown.
    """
    return TASKS.rows[task].reporting if task in TASKS.rows else OTHER_SCORES.get(task)


def title_of(task: str) -> str | None:
    """Return the title of a task in the table or of another score of calque; None if the name is
    unknown.
    """
    if task in TASKS.rows:
        return TASKS.rows[task].title
    return OTHER_SCORES[task].title if task in OTHER_SCORES else None


def hub_task_of(task: str) -> str | None:
    """Return the task of the Hugging Face hub that is most similar to a task in the table; None if
    the name is unknown.
    """
    return TASKS.rows[task].hub_task if task in TASKS.rows else None


def likely_reporting(settings: Collection[str]) -> Reporting:
    """Return the declaration of the task that recorded the given settings, for results without the
    name of their task.

    Studies of earlier versions recorded only the name that the user gave to a task. A task is
    recognised if three of the settings that it declares as descriptive were recorded, or all of
    them if it declares fewer.
    """
    known = [row.reporting for row in TASKS.rows.values()] + list(OTHER_SCORES.values())
    shared = {
        number: len(set(each.descriptive) & set(settings)) for number, each in enumerate(known)
    }
    best = max(shared, key=shared.__getitem__)
    return known[best] if shared[best] >= min(3, len(known[best].descriptive)) else Reporting()
