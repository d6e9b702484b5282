"""Which settings the tables of a study may have, so that none is dropped quietly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from inspect import signature
from typing import Any

from calque.errors import SettingError
from calque.runs.align import TUNERS
from calque.runs.dictionary import align_dictionary
from calque.runs.evaluate import TASKS as PARALLEL
from calque.runs.meaning import disambiguate, lexicon
from calque.runs.transfer import CLASSIFICATION, TAGGING, transfer
from calque.runs.transfer import TASKS as ZERO_SHOT

#: tasks that have a test for each language, by language
BY_LANGUAGE = (*PARALLEL, "lexicon")
TASKS = (*PARALLEL, "lexicon", "wsd", *ZERO_SHOT)
#: files of a zero-shot task, each in a language
PARTS = ("train", "test", "dev", "ceiling")
_RUN = ("encoder", "task", "langs", "load", "out", "overwrite", "progress", "say")  # what the study itself says
_PROJECTION = ("project", "project_links", "project_langs", "words")


def only(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Complain of a setting that nothing would heed.

    Raises:
        SettingError: there is one.
    """
    for name in given:
        if name not in known:
            raise SettingError(f"unknown setting {name!r} of {where}, expected {', '.join(known)}")


def of_pretraining(model: str) -> list[str]:
    """Settings of an encoder that the study trains."""
    read = ["model", "texts", "apart", "limit", "pretokenized"]
    if model == "elmo":
        from calque.training.bilm import BiLanguageModel

        return [*read, "held_out", *signature(BiLanguageModel).parameters]
    if model == "bert":
        from calque.training.language_model import MaskedLanguageModel

        return [*read, "vocabulary", "half", *_but(MaskedLanguageModel, "start")]
    raise SettingError(f"unknown model {model!r} to pretrain, expected bert or elmo")


def of_method(given: Mapping[str, Any], kind: str) -> list[str]:
    """Settings of a method where it has a supervision of some kind."""
    if kind != "parallel":
        own = ("dictionaries", "towards", "texts", "anchors", *of_anchors())
        return ["supervision", *_but(align_dictionary, *_RUN, *own)]
    shared = ["method", "supervision", "layer", "pooling"]
    if given["method"] not in TUNERS:
        return [*shared, "layers", "combine"]
    from calque.training import TUNERS as BY_NAME

    return [*shared, *_but(BY_NAME[given["method"]], "towards")]


def of_anchors() -> tuple[str, ...]:
    """Settings of a supervision whose words get anchors."""
    return ("limit", "pretokenized", "most", "at_least", "most_occurrences")


def of_task(task: str) -> list[str]:
    """Settings of a task, besides `task`."""
    if task == "retrieval":
        return ["train", "test", "limit", "candidates", "similarity", "contextual"]
    if task == "word-alignment":
        return ["test", "limit", "method"]
    if task in ("lexicon", "wsd"):
        return _but(lexicon if task == "lexicon" else disambiguate, *_RUN)
    return [*PARTS, *(name for names in of_transfer(task) for name in names)]


def of_transfer(task: str) -> tuple[list[str], list[str], list[str]]:
    """Settings of a zero-shot task: those of the protocol, of the training and of the head."""
    from calque.tasks.classification import Classification
    from calque.tasks.parsing import Parsing
    from calque.tasks.tagging import Tagging
    from calque.tasks.zeroshot import ZeroShot
    from calque.training.supervised import Supervised

    made: Any = Tagging if task in TAGGING else Classification if task in CLASSIFICATION else Parsing
    protocol = _but(transfer, *_RUN, *PARTS, *_PROJECTION, "seeds", "options", "head")
    head = _but(made, *signature(ZeroShot).parameters, "kind", "tests", "protocol")
    return protocol, _but(Supervised, "seed"), head


def _but(function: Any, *names: str) -> list[str]:
    return [name for name in signature(function).parameters if name not in names]
