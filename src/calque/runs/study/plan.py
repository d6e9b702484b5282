"""What a study compares with what."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calque.alignment import METHODS, learns_from, methods_for
from calque.corpora.languages import language_of, name_and_path, pair_of
from calque.errors import SettingError
from calque.named import is_path
from calque.runs.align import IDENTICAL, STARTS
from calque.runs.study.options import of_anchors

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
            `layers` that the methods and tasks are run on, each separately, `pooling` and `bidirectional`.
        methods: settings of `calque align` by the name that the table shows: `method` and its options; `start` for
            unsupervised maps; `supervision`, the names of those it uses, by default all that it can; `encoders`, the
            only ones that it is for; `runs`, the number of its trainings, by default that of the study. `base` is no method
            but the unchanged encoder. For a method that takes an encoder of each language, `views`: rows by name, each with
            the arguments of `load_encoder` that it shows the result with.
        supervision: by name, `kind` and what belongs to it. "parallel" (the default): a file for each language,
            `limit`, `pretokenized`. "dictionary": a dictionary for each language, `texts` by language whose words get
            anchors, and options of these; `entries = [first, end]` takes these of the dictionary's source words only.
            "text": such texts alone, for starts, and for methods that need no translations (`means`); these
            take the two sides of parallel text for texts, too.
        tasks: settings of `calque evaluate` by name: `task` (default: the name), `train`, `test`, `dev` and options;
            `encoders` and `methods`, the only ones that it is for.
        source: the language of the texts' first side.
        towards: the language that the others are aligned with.
        together: one model for all languages of a supervision, not one for each.
        seeds: heads of every task that does not say its own, with the seeds 0, 1, …; default: 5, and 3 where the encoder
            learns with them (`tune`).
        runs: training runs of every method that involves randomness (fine-tuning, contrastive training and unsupervised
            maps that start at random), with the method's `seed` and those after it; each is measured like a method of its own,
            and the tables pool them, since nothing can be claimed of fewer than three. Other maps come out the same every
            time. Of an encoder with `runs` of its own, every training gets one of each method.
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
    seeds: int | None = None
    runs: int = 3
    words: dict[str, Any] = field(default_factory=dict)
    data: str = "."
    out: str = "study"
    folder: str = "."

    # -- what follows from it ----------------------------------------------------------------------------------------
    def path(self, name: str) -> str:
        """A text or an encoder that the study names."""
        return os.path.join(self.folder, self.data, name)

    def own_classes(self) -> list[str]:
        """Return the names `package.module:Class` of encoders, methods and tasks."""
        encoders = [part for given in self.encoders.values() for part in given.get("path", "").split(",")]
        named = [name_and_path(part)[1] for part in encoders if not os.path.exists(self.path(part))]
        named += [given["method"] for given in self.methods.values() if "method" in given]
        named += [given["task"] for given in self.tasks.values() if "task" in given]
        return [name for name in dict.fromkeys(named) if is_path(name)]

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
        return [s for s in self.supervision if s in wanted and learns(name, self.supervision[s]["kind"])]

    def rows_of(self, name: str, method: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Rows of the tables that show what a method made: their names, and arguments of `load_encoder`."""
        views = method.get("views", {}).items()
        return {row: dict(view) for row, view in views} or {name: {}}

    def training_seeds(self, method: Mapping[str, Any], numbers: Iterable[int] | None = None) -> list[int | None]:
        """Seeds that a method is trained with in these of its runs, by default in all; None for one that has nothing random."""
        if not METHODS[method["method"]].trains and method.get("start") not in RANDOM_STARTS:
            return [None]
        # A start that fails is tried again with the next seeds: those are not another run's.
        apart = method.get("restarts", 3) if "start" in method else 1
        return [method.get("seed", 0) + number * apart for number in numbers or range(method.get("runs", self.runs))]


def listed(files: Sequence[str] | str | None) -> list[str]:
    """Files, of which one may stand without its list."""
    return [files] if isinstance(files, str) else list(files or [])


def is_for(given: Mapping[str, Any], encoder: str, method: str | None = None) -> bool:
    """Whether a method, or a task, is for an encoder, after a method."""
    named, by = given.get("encoders"), given.get("methods")
    return (named is None or encoder in listed(named)) and (by is None or method is None or method in listed(by))


def users(kind: str) -> tuple[str, ...]:
    """What a kind of supervision can be used for."""
    return (*STARTS, *methods_for("text")) if kind == "text" else methods_for(kind)


def learns(method: str, kind: str) -> bool:
    """Whether a method, or a start, can use a kind of supervision."""
    return method in users(kind) if kind == "text" else learns_from(method, kind)


# -- encoders that the study trains itself ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Training:
    """One encoder to train.

    Attributes:
        texts: files by language.
        dictionaries: files by the languages of each, `en-de`.
        other: the language that it is for beside the source; None for all.
    """

    texts: Mapping[str, str]
    dictionaries: Mapping[str, str]
    other: str | None = None


def trainings(given: Mapping[str, Any], source: str) -> list[Training]:
    """The encoders to train with each seed: one of all languages, one of each, or one of each with the source."""
    texts, dictionaries = given["texts"], given.get("dictionaries", {})
    if given.get("apart"):
        return [Training({lang: file}, {}) for lang, file in texts.items()]
    if not given.get("pairs"):
        return [Training(texts, dictionaries)]
    found = []
    for lang in texts:
        if lang != source:
            some = {name: file for name, file in dictionaries.items() if pair_of(name, [source, lang])}
            found.append(Training({source: texts[source], lang: texts[lang]}, some, other=lang))
    return found


def seeds_of(encoder: Mapping[str, Any]) -> list[int]:
    """Seeds of an encoder's trainings."""
    return [encoder["pretrain"].get("seed", 0) + number for number in range(encoder.get("runs", 1))]
