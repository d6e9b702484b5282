"""Open every file of a study before its first step runs, so that a missing or wrong file is found
at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calque.corpora import read_dictionary
from calque.corpora.languages import pair_of
from calque.corpora.parallel import check_parallel
from calque.corpora.plain import stream_sentences
from calque.errors import CalqueError, CalqueWarning, InputError
from calque.input_texts import Words
from calque.named import is_path
from calque.pairs import WordPairs
from calque.runs.steps import files_at
from calque.runs.study.recipe import PARTS, EncoderTable, Study, TaskTable, given, listed
from calque.tasks.inputs import Inputs
from calque.tasks.table import TASKS
from calque.text_files import check_content, readable_lines

_FIRST = 64  # number of lines that are read to recognise plain text
_SHOWN = 3  # maximum number of further problems in the message


@dataclass(frozen=True)
class Check:
    """Check of the files that one setting of a study names.

    Attributes:
        where: name of the setting, e.g. `tasks.ner.test`.
        paths: files that must exist.
        read: function that reads the beginning of the files, or all of them if they are small.
    """

    where: str
    paths: Sequence[str]
    read: Callable[[], object]


def check_files(study: Study, path: str | Path) -> None:
    """Check that all files named in a study exist, can be read and are of the right kind.

    Parallel and plain text are read up to the first usable line. Dictionaries and annotated text
    are read completely.

    Raises:
        InputError: a file is missing or of the wrong kind. The message gives the first problem and
            the settings of the others.
    """
    problems: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalqueWarning)  # the steps repeat these warnings
        for check in [
            *_encoders(study),
            *_supervision(study),
            *_translations(study),
            *_tasks(study),
        ]:
            try:
                for file in check.paths:
                    files_at(file)
                check.read()
            except CalqueError as error:
                problems.setdefault(str(error), check.where)
    if problems:
        (first, where), *others = problems.items()
        more = [place for _, place in others[:_SHOWN]] + (["…"] if len(others) > _SHOWN else [])
        also = f" (and {len(others)} more: {', '.join(more)})" if others else ""
        raise InputError(f"{where}: {first}{also}", path=path)


# -- encoders
# --------------------------------------------------------------------------------------------------
def _encoders(study: Study) -> Iterator[Check]:
    from calque.encoders.names import check_encoder

    for name, table in study.encoders.items():
        where = f"encoders.{name}"
        if table.pretrain is not None:
            yield from _pretraining(study, f"{where}.pretrain", table)
        else:
            yield Check(where, [], partial(check_encoder, table.path, folder=study.path("")))


def _pretraining(study: Study, where: str, table: EncoderTable) -> Iterator[Check]:
    texts, dictionaries = (
        dict((table.pretrain or {}).get(kind, {})) for kind in ("texts", "dictionaries")
    )
    for lang, file in texts.items():
        yield _plain(study, f"{where}.texts.{lang}", lang, file)
    for name, file in dictionaries.items():
        langs = pair_of(name, list(texts))
        if langs is not None:
            yield _dictionary(study, f"{where}.dictionaries.{name}", langs, file)


# -- supervision
# --------------------------------------------------------------------------------------------------
def _supervision(study: Study) -> Iterator[Check]:
    for name, table in study.supervision.items():
        where = f"supervision.{name}"
        for lang, file in table.options.items():
            check = _dictionary if table.kind == "dictionary" else _parallel
            yield check(study, f"{where}.{lang}", (study.source, lang), file)
        for lang, file in table.texts.items():
            yield _plain(study, f"{where}.texts.{lang}", lang, file)


def _translations(study: Study) -> Iterator[Check]:
    for name, method in study.methods.items():
        for view, load in method.views.items():
            for lang, two in load.get("translations", {}).items():
                paths = [study.path(file) for file in two]
                where = f"methods.{name}.views.{view}.translations.{lang}"
                yield Check(where, paths, partial(_first_blocks, paths))


# -- tasks
# --------------------------------------------------------------------------------------------------
def _tasks(study: Study) -> Iterator[Check]:
    for name, table in study.tasks.items():
        where, row = f"tasks.{name}", TASKS[table.task]
        if row.languages == "pairs":
            yield from _of_pairs(study, where, table)
            continue
        further = listed(table.options.get("first_senses")) if "first_senses" in row.files else []
        paths = {
            part: [study.named(file)[1] for file in listed(table.files.get(part))] for part in PARTS
        }
        paths["first_senses"] = [study.path(file) for file in further]
        for part, files in paths.items():
            for file in files:
                yield Check(f"{where}.{part}", [file], partial(_first_blocks, [file]))
        existing = all(os.path.exists(file) for files in paths.values() for file in files)
        if existing and not is_path(
            table.task
        ):  # reading the files of another package's task could take long
            yield Check(where, [], partial(_build_task, study, table))


def _of_pairs(study: Study, where: str, table: TaskTable) -> Iterator[Check]:
    row = TASKS[table.task]
    for part, by_lang in table.files.items():
        for lang, file in by_lang.items():
            place, path, langs = f"{where}.{part}.{lang}", study.path(file), (study.source, lang)
            if is_path(table.task):
                yield Check(place, [path], partial(_first_blocks, [path]))
            elif part == "links":
                yield Check(place, [path], partial(_read_links, path))
            elif row.reads == "dictionary":
                yield _dictionary(study, place, langs, file, table.options.get("on_error", "raise"))
            else:
                yield _parallel(study, place, langs, file)
    for lang, file in table.texts.items():
        yield _plain(study, f"{where}.texts.{lang}", lang, file)


def _build_task(study: Study, table: TaskTable) -> None:
    """Read the annotated text of a task, and check its labels and the settings of the task."""
    from calque.tasks.zeroshot import ZeroShot

    row, options = TASKS[table.task], dict(table.options)
    named = {
        part: [study.named(file) for file in listed(table.files.get(part))]
        for part in PARTS
        if part in row.files
    }
    files: dict[str, Any] = {
        part: [f"{lang or row.lang}={file}" for lang, file in each] for part, each in named.items()
    }
    if "first_senses" in row.files:
        first = options.pop("first_senses", None)
        files["first_senses"] = None if first is None else study.path(first)
    words = Words(**{"pretokenized": row.pretokenized, **given(table, "limit", "pretokenized")})
    inputs = Inputs(table.task, **files, words=words, **given(table, "test_limit"))
    for task in TASKS.load(table.task).from_files(inputs, **options):
        if isinstance(task, ZeroShot):
            for each in (*task.train, *task.tests, *task.dev):
                task.answers(each)


# -- kinds of files
# --------------------------------------------------------------------------------------------------
def _parallel(study: Study, where: str, langs: tuple[str, str], file: str) -> Check:
    path = study.path(file)
    return Check(where, [path], lambda: check_parallel(path, langs=langs))


def _plain(study: Study, where: str, lang: str, file: str) -> Check:
    path = study.path(file)
    return Check(where, [path], lambda: _read_first_words(path, lang))


def _dictionary(
    study: Study, where: str, langs: tuple[str, str], file: str, on_error: Any = "raise"
) -> Check:
    path = study.path(file)
    return Check(where, [path], lambda: read_dictionary(path, langs=langs, on_error=on_error))


def _read_first_words(path: str, lang: str) -> None:
    """Read plain text up to the first block of lines that contains a word."""
    for part in stream_sentences(path, lang=lang, pretokenized=True, block=_FIRST):
        if part.lengths().any():
            return


def _read_links(path: str) -> None:
    """Read the first line of a file of word links."""
    first = next(readable_lines(path), None)
    if first is None:
        raise InputError(
            "the file is empty, expected one line of word links (i-j) per sentence pair", path=path
        )
    WordPairs.parse([first], path=path, one_based=False)


def _first_blocks(paths: Sequence[str]) -> None:
    for path in paths:
        for file in files_at(path):
            check_content(file)
