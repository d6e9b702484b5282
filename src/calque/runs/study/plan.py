"""What a study compares with what, from its file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from calque.alignment import METHODS, learns_from, methods_for
from calque.corpora.languages import language_of, name_and_path
from calque.errors import InputError, SettingError
from calque.named import is_path
from calque.runs.dictionary import IDENTICAL, STARTS
from calque.runs.study.options import (
    OF_ENCODER,
    PARTS,
    TOP,
    check_entries,
    make_method,
    make_training,
    of_anchors,
    of_method,
    of_start,
    of_supervision,
    of_task,
    of_words,
)
from calque.runs.study.pretraining import check_pretraining
from calque.runs.study.values import Files, check, check_value, no_repetition
from calque.tasks.table import TASKS

BASE = "base"
RANDOM_STARTS = tuple(start for start in STARTS if start != IDENTICAL)
KINDS = ("parallel", "dictionary", "text")
#: settings in a table of supervision that are not languages
OWN = ("kind", "texts", "entries", *of_anchors())


@dataclass(frozen=True)
class Study:
    """What is compared with what. Paths are relative to `data`, that and `out` to the file.

    Attributes:
        encoders: by the name that the table shows: a hub name, folder or `mini`; or a table with that as `path`, or with
            `pretrain`, the settings of an encoder that the study trains first, `runs` times with different seeds
            (`model`, `texts` by language, `preset`, `limit`, `pretokenized`, and options of `calque pretrain`; `senses`,
            how many or a table of their options, and `dictionaries` by pair of languages, `en-de`; `apart` for an encoder
            of each language, taken as one; `pairs` for one of the source with each other language, all in one row); and
            `layers` that the methods and tasks are run on, each separately, and `pooling`.
        methods: settings of `calque align` by the name that the table shows: `method` and its options; `start` for
            unsupervised maps; `supervision`, the names of those it uses, by default all that it can; `encoders`, the
            only ones that it is for. `base` is no method but the unchanged encoder.
        supervision: by name, `kind` and what belongs to it. "parallel" (the default): a file for each language,
            `limit`, `pretokenized`. "dictionary": a dictionary for each language, `texts` by language whose words get
            anchors, and options of these; `entries = [first, end]` takes these of the dictionary's source words only.
            "text": such texts alone.
        tasks: settings of `calque evaluate` by name: `task` (default: the name), `train`, `test`, `dev` and options;
            `encoders` and `methods`, the only ones that it is for.
        source: the language of the texts' first side.
        towards: the language that the others are aligned with; "target": the other language of each pair.
        together: one model for all languages of a supervision, not one for each.
        seeds: training runs of every task that does not say its own, with the seeds 0, 1, ….
        runs: training runs of every method that involves randomness (fine-tuning, contrastive training and unsupervised
            maps that start at random), with the method's `seed` and those after it; each is measured like a method of its own,
            and the tables pool them. Other maps come out the same every time. Of an encoder with `runs` of its own, every
            training gets one of each method.
        words: aligner, symmetrisation and seed of the word links.
        data: folder of the texts.
        out: folder for the steps and the results.
    """

    encoders: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    supervision: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    source: str = "en"
    towards: str = "en"
    together: bool = True
    seeds: int = 3
    runs: int = 1
    words: dict[str, Any] = field(default_factory=dict)
    data: str = "."
    out: str = "study"
    folder: str = "."

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """From a TOML file.

        Raises:
            InputError: it cannot be read, or something in it is not known.
        """
        try:
            with open(path, "rb") as file:
                tables = tomllib.load(file)
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"not a study that can be read ({error})", path=path) from error
        for name in tables:
            if name not in TOP:
                raise InputError(f"unknown part {name!r} of a study, expected {', '.join(sorted(TOP))}", path=path)
        for name in ("encoders", "methods", "tasks"):
            if not tables.get(name):
                raise InputError(f"it has no {name}", path=path)
        try:
            check("", tables, TOP)
            study = cls._of(tables, str(Path(path).resolve().parent))
            study._check()
        except SettingError as error:
            raise InputError(str(error), path=path) from error
        return study

    @classmethod
    def _of(cls, tables: Mapping[str, Any], folder: str) -> Study:
        """Its tables in full, whatever short form they have in the file."""
        encoders, methods = tables["encoders"], tables["methods"]
        if not isinstance(encoders, dict):
            no_repetition("encoders", [Path(name).name for name in encoders])
            encoders = {Path(name).name: name for name in encoders}
        if not isinstance(methods, dict):
            no_repetition("methods", methods)
            methods = {name: {} for name in methods}
        full = {
            "encoders": {
                name: {"path": given} if isinstance(given, str) else given for name, given in encoders.items()
            },
            "methods": {name: given if name == BASE else _method(name, given) for name, given in methods.items()},
            "supervision": {
                name: {"kind": "parallel", **given} for name, given in tables.get("supervision", {}).items()
            },
            "tasks": {name: {"task": name, **given} for name, given in tables["tasks"].items()},
        }
        return cls(**{**tables, **full}, folder=folder)

    def _check(self) -> None:
        check("words", self.words, of_words())
        for name, given in self.encoders.items():
            self._check_encoder(name, given)
        for name, given in self.supervision.items():
            self._check_supervision(name, given)
        if self.towards == "target" and self.together:
            raise SettingError('towards = "target" aligns each language pair separately: set together = false')
        for name, given in self.methods.items():
            self._check_method(name, given)
        for name, given in self.tasks.items():
            self._check_task(name, given)

    def _check_encoder(self, name: str, given: Mapping[str, Any]) -> None:
        check(f"encoders.{name}", given, OF_ENCODER)
        no_repetition(f"encoders.{name}.layers", given.get("layers", []))
        if ("path" in given) == ("pretrain" in given):
            raise SettingError(f"encoder {name!r}: expected either a path or what to pretrain it on")
        if "path" in given:
            if "runs" in given:
                raise SettingError(
                    f"encoders.{name}.runs: a path stands for one encoder, runs are of what is pretrained"
                )
            if any(part.endswith("=") for part in given["path"].split(",")):
                raise SettingError(f"encoders.{name}.path = {given['path']!r}: a language has no encoder")
            return
        check_pretraining(name, given["pretrain"], self.source)

    def _check_supervision(self, name: str, given: Mapping[str, Any]) -> None:
        where, kind = f"supervision.{name}", given["kind"]
        if kind not in KINDS:
            raise SettingError(f"supervision {name!r} is of kind {kind!r}, expected {', '.join(KINDS)}")
        options = of_supervision(kind)
        langs = [lang for lang in given if lang not in OWN] if kind != "text" else []
        check(where, given, {**options, **dict.fromkeys(langs, str)})
        check_entries(where, given)
        if kind != "parallel" and not given.get("texts"):
            raise SettingError(f'supervision {name!r} has no text for anchors: texts = {{ en = "en.txt.gz" }}')
        if not self.languages(given):
            raise SettingError(f'supervision {name!r} has no text: expected de = "train.en-de.tsv"')
        if kind != "parallel":
            self._covered(f"supervision {name!r}", given["texts"], self.languages(given))
        for lang in self.languages(given):
            self._check_other(where, lang)
            if self.towards not in ("target", self.source, lang):
                raise SettingError(
                    f"towards = {self.towards!r}, but {where} is between {self.source} and {lang}: expected "
                    f"{self.source!r}, or 'target' with together = false"
                )

    def _check_method(self, name: str, given: Mapping[str, Any]) -> None:
        where = f"methods.{name}"
        if name == BASE:
            check(where, given, {})
            return
        method, every = given["method"], {method for kind in KINDS for method in _users(kind)}
        check_value(f"{where}.method", method, str)
        check_value(f"{where}.supervision", given.get("supervision", "all"), Files)
        if method not in every and not is_path(method):
            raise SettingError(f"unknown method {method!r}, expected {', '.join(sorted(every))}")
        if "start" in given:
            check_value(f"{where}.start", given["start"], Literal[STARTS])
            check_value(f"{where}.method", method, Literal[_users("dictionary")])
        if not self.supervisions(given):
            kinds = [kind for kind in KINDS if _learns(given.get("start") or method, kind)]
            raise SettingError(
                f"method {name!r} has nothing to learn from: expected [supervision.NAME] with "
                f"kind = {' or '.join(map(repr, kinds))}"
            )
        for kind in {self.supervision[supervision]["kind"] for supervision in self.supervisions(given)}:
            check(where, given, of_method(given, kind), f"{where} with a supervision of kind {kind!r}")
        self._check_rows(where, given)
        no_repetition(f"{where}.layers", given.get("layers", []))
        check(f"{where}.start_options", given.get("start_options", {}), of_start(given.get("start", "")))
        make_method(where, given, self.towards)

    def _check_task(self, name: str, given: Mapping[str, Any]) -> None:
        where, task = f"tasks.{name}", given["task"]
        check_value(f"{where}.task", task, str)
        row = TASKS[task]
        if not given.get("test"):
            raise SettingError(f"task {name!r} has nothing to test on: test")
        by_language = row.languages == "pairs"
        if by_language != isinstance(given["test"], dict):
            what = 'a table by language, { de = "FILE" }' if by_language else "a list of files"
            raise SettingError(f"task {name!r}: test is {given['test']!r}, expected {what}")
        check(where, given, {"task": str, **of_task(task)})
        self._check_rows(where, given)
        check_entries(where, given)
        if by_language:
            for lang in given["test"]:
                self._check_other(f"{where}.test", lang)
            for part in PARTS:
                for lang in given.get(part, {}):
                    if lang not in given["test"]:
                        raise SettingError(f"{where}.{part} names {lang}, in which there is no test")
            if given.get("texts"):
                self._covered(f"task {name!r}", given["texts"], given["test"])
            return
        if "train" in row.files and not given.get("train"):
            raise SettingError(f"{where} has nothing to learn from: train")
        for part in PARTS:
            no_repetition(f"{where}.{part}", listed(given.get(part)))
            for file in listed(given.get(part)):
                lang, path = self.named(file)
                if not lang and row.lang is None:
                    raise SettingError(f"{file}: give the language before the name, e.g. de={file}")
                if not os.path.basename(path):
                    raise SettingError(f"{where}.{part} = {file!r}: no file after the language")
        for part in row.one:
            if len(listed(given[part])) != 1:
                raise SettingError(f"{where}.{part}: {task} takes one file, got {len(given[part])}")
        make_training(where, task, given)

    def _check_rows(self, where: str, given: Mapping[str, Any]) -> None:
        """The encoders and methods that something is restricted to are among those that there are."""
        for kind, known in (("encoders", self.encoders), ("methods", self.methods)):
            for each in listed(given.get(kind)):
                if each not in known:
                    raise SettingError(f"{where}.{kind}: unknown {each!r}, expected {', '.join(known)}")

    def _check_other(self, where: str, lang: str) -> None:
        if lang == self.source:
            raise SettingError(f"{where}.{lang}: that is the source language; expected a text between it and another")

    def _covered(self, what: str, texts: Mapping[str, str], langs: Iterable[str]) -> None:
        missing = {self.source, *langs} - set(texts)
        if missing:
            raise SettingError(f"{what} has no texts in {', '.join(sorted(missing))}")

    # -- what follows from it ----------------------------------------------------------------------------------------
    def path(self, name: str) -> str:
        """A text or an encoder that the study names."""
        return os.path.join(self.folder, self.data, name)

    def named(self, name: str) -> tuple[str, str]:
        """Language and path of a text, from `de=FILE` or from the file's name."""
        lang, path = name_and_path(name)
        return lang or language_of(name) or "", self.path(path)

    def languages(self, supervision: Mapping[str, Any]) -> list[str]:
        """Those that move towards another."""
        if supervision["kind"] == "text":
            return [lang for lang in supervision["texts"] if lang != self.source]
        return [lang for lang in supervision if lang not in OWN]

    def supervisions(self, method: Mapping[str, Any]) -> list[str]:
        """Names of those that a method uses."""
        wanted = method.get("supervision", list(self.supervision))
        unknown = set(wanted) - set(self.supervision)
        if unknown:
            raise SettingError(f"unknown supervision {', '.join(sorted(unknown))}")
        name = method.get("start") or method["method"]
        return [s for s in self.supervision if s in wanted and _learns(name, self.supervision[s]["kind"])]

    def training_seeds(self, method: Mapping[str, Any], numbers: Iterable[int] | None = None) -> list[int | None]:
        """Seeds that a method is trained with in these of its runs, by default in all; None for one that has nothing random."""
        if not METHODS[method["method"]].trains and method.get("start") not in RANDOM_STARTS:
            return [None]
        # A start that fails is tried again with the next seeds: those are not another run's.
        apart = method.get("restarts", 3) if "start" in method else 1
        return [method.get("seed", 0) + number * apart for number in numbers or range(self.runs)]

    def tested_on(self, more: Sequence[str]) -> Study:
        """The same with further test files, `TASK=FILE` or `TASK=LANG=FILE`, relative to where one is."""
        tasks = {name: dict(given) for name, given in self.tasks.items()}
        for item in more:
            name, file = name_and_path(item)
            if name not in tasks or not isinstance(tasks[name]["test"], list):
                several = [name for name, given in tasks.items() if isinstance(given["test"], list)]
                raise SettingError(f"{item}: expected TASK=FILE, with one of the tasks {', '.join(several)}")
            lang, path = name_and_path(file)
            before = f"{lang}=" if lang else ""
            tasks[name]["test"] = [*tasks[name]["test"], before + os.path.abspath(path)]
        study = replace(self, tasks=tasks)
        for name, given in tasks.items() if more else ():
            study._check_task(name, given)
        return study


def listed(files: Sequence[str] | str | None) -> list[str]:
    """Files, of which one may stand without its list."""
    return [files] if isinstance(files, str) else list(files or [])


def _users(kind: str) -> tuple[str, ...]:
    """What a kind of supervision can be used for."""
    return STARTS if kind == "text" else methods_for(kind)


def _learns(method: str, kind: str) -> bool:
    """Whether a method, or a start, can use a kind of supervision."""
    return method in STARTS if kind == "text" else learns_from(method, kind)


def _method(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    settings = {"method": "rotation" if "start" in given else name, **given}
    if settings["method"] in list(STARTS):
        settings = {**settings, "start": settings["method"], "method": "rotation"}
    if isinstance(settings.get("supervision"), str):
        settings["supervision"] = [settings["supervision"]]
    return settings
