"""Open every file of a study before its first step runs, so that a missing or wrong file is found
at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calque.corpora import read_dictionary
from calque.corpora.languages import pair_of
from calque.corpora.parallel import check_parallel
from calque.corpora.plain import stream_sentences
from calque.errors import CalqueError, CalqueWarning, InputError
from calque.named import is_path
from calque.pairs import WordPairs
from calque.runs.steps import files_at
from calque.runs.study.recipe import Study, TaskTable, given, listed
from calque.runs.study.work import inputs_of
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

    def run(self) -> None:
        """Raise a `CalqueError` if a file does not exist or cannot be read."""
        for file in self.paths:
            files_at(file)
        self.read()


def check_files(study: Study, path: str | Path) -> None:
    """Check that all files named in a study exist, can be read and are of the right kind.

    Parallel and plain text are read up to the first usable line. Dictionaries and annotated text
    are read completely.

    Raises:
        InputError: a file is missing or of the wrong kind. The message gives the first problem and
            the settings of the others.
    """
    checks = [*_encoders(study), *_supervision(study), *_translations(study), *_tasks(study)]
    problems: dict[str, str] = {}  # messages, each with the first setting that causes it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalqueWarning)  # the steps repeat these warnings
        for check in checks:
            try:
                check.run()
            except CalqueError as error:
                problems.setdefault(str(error), check.where)
    if not problems:
        return
    (first, where), *others = problems.items()
    also = ""
    if others:
        settings = [setting for _, setting in others[:_SHOWN]]
        if len(others) > _SHOWN:
            settings.append("…")
        also = f" (and {len(others)} more: {', '.join(settings)})"
    raise InputError(f"{where}: {first}{also}", path=path)


# -- encoders --------------------------------------------------------------------------------------
def _encoders(study: Study) -> Iterator[Check]:
    from calque.encoders.names import check_encoder

    for name, table in study.encoders.items():
        where = f"encoders.{name}"
        if table.pretrain is not None:
            yield from _pretraining(study, f"{where}.pretrain", table.pretrain)
        else:
            yield Check(where, [], partial(check_encoder, table.path, folder=study.path("")))


def _pretraining(study: Study, where: str, pretrain: Mapping[str, Any]) -> Iterator[Check]:
    texts = pretrain.get("texts", {})
    for lang, file in texts.items():
        yield _plain(study, f"{where}.texts.{lang}", lang, file)
    for name, file in pretrain.get("dictionaries", {}).items():
        langs = pair_of(name, list(texts))
        if langs is not None:
            yield _dictionary(study, f"{where}.dictionaries.{name}", langs, file)


# -- supervision -----------------------------------------------------------------------------------
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
            for lang, files in load.get("translations", {}).items():
                paths = [study.path(file) for file in files]
                where = f"methods.{name}.views.{view}.translations.{lang}"
                yield Check(where, paths, partial(_first_blocks, paths))


# -- tasks -----------------------------------------------------------------------------------------
def _tasks(study: Study) -> Iterator[Check]:
    for name, table in study.tasks.items():
        where = f"tasks.{name}"
        if TASKS[table.task].languages == "pairs":
            yield from _of_pairs(study, where, table)
        else:
            yield from _of_texts(study, where, table)


def _of_texts(study: Study, where: str, table: TaskTable) -> Iterator[Check]:
    paths = {part: [file for _, file in texts] for part, texts in study.texts_of(table).items()}
    if "first_senses" in TASKS[table.task].files:
        first_senses = listed(table.options.get("first_senses"))
        paths["first_senses"] = [study.path(file) for file in first_senses]
    for part, files in paths.items():
        for file in files:
            yield Check(f"{where}.{part}", [file], partial(_first_blocks, [file]))
    existing = all(os.path.exists(file) for files in paths.values() for file in files)
    # Reading the files of another package's task could take long.
    if existing and not is_path(table.task):
        yield Check(where, [], partial(_build_task, study, table))


def _of_pairs(study: Study, where: str, table: TaskTable) -> Iterator[Check]:
    for part, by_lang in table.files.items():
        for lang, file in by_lang.items():
            yield _of_pair(study, f"{where}.{part}.{lang}", table, part, lang, file)
    for lang, file in table.texts.items():
        yield _plain(study, f"{where}.texts.{lang}", lang, file)


def _of_pair(study: Study, where: str, table: TaskTable, part: str, lang: str, file: str) -> Check:
    path, langs = study.path(file), (study.source, lang)
    if is_path(table.task):
        return Check(where, [path], partial(_first_blocks, [path]))
    if part == "links":
        return Check(where, [path], partial(_read_links, path))
    if TASKS[table.task].reads == "dictionary":
        on_error = table.options.get("on_error", "raise")
        return _dictionary(study, where, langs, file, on_error)
    return _parallel(study, where, langs, file)


def _build_task(study: Study, table: TaskTable) -> None:
    """Read the annotated text of a task, and check its labels and the settings of the task."""
    from calque.tasks.zeroshot import ZeroShot

    row, options = TASKS[table.task], dict(table.options)
    files: dict[str, list[str]] = {}
    for part, texts in study.texts_of(table).items():
        files[part] = [f"{lang}={file}" for lang, file in texts]
    if "first_senses" in row.files:
        first_senses = listed(options.pop("first_senses", None))
        files["first_senses"] = [study.path(file) for file in first_senses]
    words = {"pretokenized": row.pretokenized, **given(table, "limit", "pretokenized")}
    inputs = inputs_of(files, task=table.task, words=words, **given(table, "test_limit"))
    for task in TASKS.load(table.task).from_files(inputs, **options):
        if isinstance(task, ZeroShot):
            for texts in (*task.train, *task.tests, *task.dev):
                task.answers(texts)


# -- kinds of files --------------------------------------------------------------------------------
def _parallel(study: Study, where: str, langs: tuple[str, str], file: str) -> Check:
    path = study.path(file)
    format = study.words.get("format")
    return Check(where, [path], lambda: check_parallel(path, langs=langs, format=format))


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
    """Check that the beginning of each file is readable text."""
    for path in paths:
        for file in files_at(path):
            check_content(file)
