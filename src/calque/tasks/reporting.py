"""Declarations of tasks for reports: the main metrics, and the settings that define which question
a score answers.

A report contains no names of tasks. Each task class declares a `Reporting`, and the rows of
`calque.tasks.table` refer to the same objects, so that reports read them without importing the
classes. A task from another package has its declaration stored with its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

#: settings that `Task.evaluate` or `calque evaluate` records for every task, and that never define
#: the question
ALWAYS_DESCRIPTIVE = (
    "encoder",
    "encoder_fingerprint",
    "aligned",
    "chosen_reading",
    "bootstrap",
    "values",
    "sd",
    "gap",
    "warnings",
)


def is_part(metric: str, metrics: Collection[str]) -> bool:
    """Return whether a metric is a part of another metric, as `f1.PER` is of `f1`, and
    `accuracy.all.en-de` of `accuracy.all`.
    """
    names = metric.split(".")
    wholes = (".".join(names[:end]) for end in range(1, len(names)))
    return any(whole in metrics for whole in wholes)


NOT_CONVERGED = "not converged: the best epoch was the last"


def warnings_of(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the recorded reasons why a score must not be compared with other scores.

    Results of earlier versions have no such reasons. Their epochs show whether a head on frozen
    vectors has converged.
    """
    if "warnings" in settings or "converged" in settings:
        reasons = settings.get("warnings")
        return tuple(str(reason) for reason in reasons) if isinstance(reasons, list) else ()
    if settings.get("features") == "frozen" and _reached_last_epoch(settings):
        return (NOT_CONVERGED,)
    return ()


def _reached_last_epoch(settings: Mapping[str, object]) -> bool:
    """Return whether the last epoch was the best one in a training run."""
    chosen_epochs, max_epochs = settings.get("chosen_epochs"), settings.get("epochs")
    if not isinstance(chosen_epochs, list) or not isinstance(max_epochs, int | float):
        return False
    return any(isinstance(epoch, int) and epoch >= max_epochs for epoch in chosen_epochs)


@dataclass(frozen=True)
class Reporting:
    """Declaration of a task for reports.

    Two scores answer the same question if they agree in every recorded setting. A report compares
    only such scores, and a score replaces an earlier score of the same encoder only if both answer
    the same question. The attributes name the exceptions.

    Attributes:
        title: name of the task in reports; default: the name under which its scores are recorded.
        main: main metrics; None if every metric is a main metric. A part of another metric
            (`f1.PER`) is never a main metric.
        lower: metrics for which lower values are better.
        descriptive: settings that only describe a score, such as the number of skipped items. They
            never define the question. "texts" stands for the number of test texts, for tasks in
            which this number depends on the encoder.
        by_test_set: settings that may differ between the test sets of a question, such as a
            training text in each language. They distinguish only scores on the same test set.
        by_encoder: settings whose default depends on the encoder if another setting has a certain
            value, as `{setting: (other, value)}`. They then distinguish only scores of the same
            encoder.
        only_for: settings that affect only the metrics with a certain part, such as
            `accuracy.unseen`, as `{setting: part}`.
        role: "retrieval" or "transfer" for tasks that reports plot against each other; otherwise
            "".
        hub_task: task type in the metadata of model cards, such as a task of the Hugging Face hub;
            only for tasks that are not in `calque.tasks.table`.
    """

    title: str = ""
    main: tuple[str, ...] | None = None
    lower: tuple[str, ...] = ()
    descriptive: tuple[str, ...] = ()
    by_test_set: tuple[str, ...] = ()
    by_encoder: Mapping[str, tuple[str, object]] = field(default_factory=dict)
    only_for: Mapping[str, str] = field(default_factory=dict)
    role: Literal["", "retrieval", "transfer"] = ""
    hub_task: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the values that differ from the defaults, as JSON-compatible lists and
        dictionaries.
        """
        defaults = Reporting()
        plain = {}
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if value != getattr(defaults, attribute.name):
                plain[attribute.name] = list(value) if isinstance(value, tuple) else value
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, object]) -> Reporting:
        """Return the declaration that `to_dict` wrote. Unknown keys, which a later version may add,
        are ignored.

        Raises:
            ValueError: a value has the wrong type.
        """
        values = {}
        for name, value in plain.items():
            if name in _READERS:
                try:
                    values[name] = _READERS[name](value)
                except TypeError as error:
                    raise ValueError(
                        f"reporting.{name} must be written by calque, got {value!r:.100}"
                    ) from error
        return cls(**values)


# Functions that read one kind of value from JSON, and raise a `TypeError` for other values.
def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(item) for item in value)


def _text_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError
    return {name: _text(item) for name, item in value.items()}


def _conditions(value: object) -> dict[str, tuple[str, object]]:
    """Read `by_encoder`, whose values are pairs of a setting and its value."""
    if not isinstance(value, dict):
        raise TypeError
    conditions = {}
    for name, pair in value.items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise TypeError
        setting, setting_value = pair
        conditions[name] = (setting, setting_value)
    return conditions


_READERS: Mapping[str, Callable[[object], Any]] = {
    "title": _text,
    "main": _texts,
    "lower": _texts,
    "descriptive": _texts,
    "by_test_set": _texts,
    "by_encoder": _conditions,
    "only_for": _text_by_name,
    "role": _text,
    "hub_task": _text,
}


# -- declarations of calque's own tasks ------------------------------------------------------------
RETRIEVAL = Reporting(
    descriptive=(
        "queries",
        "directions",
        "links_not_one_to_one",
        "identical_forms",
        "seen_in_training",
        "test_sentences_in_training",
        "source_candidates",
        "target_candidates",
        "source_words_without_vector",
        "target_words_without_vector",
        "links_without_vector",
    ),
    by_test_set=("links", "symmetrize", "train", "training_sentence_pairs"),
    only_for={
        "train": "unseen",
        "training_sentence_pairs": "unseen",
    },  # the training text determines the unseen pairs
    role="retrieval",
)
SENTENCES = Reporting(
    main=("accuracy", "f1"),
    lower=("xsim",),
    descriptive=(
        "pooling_note",
        "source_texts_repeated",
        "target_texts_repeated",
        "sentences_without_vector",
        "threshold",
        "gold_pairs",
        "mined_pairs",
        "source_sentences",
        "target_sentences",
    ),
    by_test_set=("dev",),
)
WORD_ALIGNMENT = Reporting(
    main=("aer",),
    lower=("aer",),
    descriptive=(
        "sentences",
        "links",
        "sure",
        "possible",
        "source_words_without_vector",
        "target_words_without_vector",
    ),
)
CONSISTENCY = Reporting(descriptive=("repeated_sentences", "words_without_vector"))
LEXICON = Reporting(
    main=("p@1",),
    descriptive=(
        "candidates",
        "left_out",
        "texts",
        "source_words",
        "entries_tested",
        "repeated",
        "source_words_without_vector",
        "target_words_without_vector",
    ),
    by_test_set=("entries", "text", "text_sentences"),
)
DISAMBIGUATION = Reporting(
    descriptive=(
        "senses",
        "senses_without_vector",
        "words_without_vector",
        "training_words_without_vector",
        "answered",
        "frequent",
        "chance",
        "unseen_lemmas",
    ),
    by_test_set=("train", "training_words"),
)


_OF_HEADS = (
    "seeds",
    "chosen_epochs",
    "trained_epochs",
    "converged",
    "dev_scores",
    "read_layers",
    "read_layer",
    "read_pooling",
    "layer_scores",
    "mix_weights",
    "mix_gamma",
    "tags",
    "labels",
    "relations",
    "targets",
    "unknown_labels",
    "repaired_tags",
)


def of_trained_heads(*main: str) -> Reporting:
    """Return the declaration of a task that trains a task head; `main` contains its main metrics
    (default: all metrics).
    """
    return Reporting(
        main=main or None,
        descriptive=_OF_HEADS,
        by_test_set=("train", "train_texts", "dev", "text"),
        # The default learning rate of fine-tuning depends on the encoder's dimension.
        by_encoder={"learning_rate": ("features", "tuned")},
        role="transfer",
    )


TRAINED_HEADS = of_trained_heads()
#: scores that no task of `calque evaluate` computes, by the task name in their records
OTHER_SCORES = {
    "masked-words": Reporting(
        "masked words",
        main=(),
        lower=("perplexity",),
        descriptive=("left_out", "subwords_per_word"),
    ),
    "next-word": Reporting(
        "next word",
        main=("perplexity",),
        lower=("perplexity", "unigram-perplexity"),
        descriptive=("forward", "backward", "unknown"),
    ),
}
