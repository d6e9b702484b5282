"""Read and check the TOML file of a study."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from calque.alignment import METHODS, learns_from, methods_for, options_of_method
from calque.alignment.driver import make_method
from calque.corpora.languages import language_of, name_and_path, pair_of
from calque.errors import InputError, SettingError, did_you_mean, similar_path
from calque.input_texts import Words
from calque.maps.unsupervised import STARTS
from calque.named import imported, is_path
from calque.runs.map_options import options_of_maps, options_of_starts
from calque.runs.settings import warn_of_languages
from calque.runs.supervision import IDENTICAL, Averaging
from calque.spec import Count, Few, Files, Layer, check, check_value, types_in, types_of
from calque.tasks.table import TASKS, TaskRow, options_of_task
from calque.wordalign.symmetrization import Symmetrization

BASE = "base"
#: module with `check_pretraining` and `train`, which trains encoders from text
PRETRAINING = "calque.senses.study"
#: names of the options for anchors that a table of texts can contain
OF_ANCHORS = tuple(types_of(Averaging, "layers"))
#: settings of a task that name files, each in one language
PARTS = ("train", "test", "dev", "ceiling", "links")
_KINDS = ("parallel", "dictionary", "text")
Pooling = Literal["last", "first", "mean"]
_CODE = re.compile(r"[A-Za-z]{2,3}([-_]\w+)?")  # code of a language, such as de, deu or pt-BR
Table = TypeVar("Table")


@dataclass(frozen=True)
class Training:
    """Training run for an encoder that the study pretrains.

    Attributes:
        texts: training file for each language.
        dictionaries: dictionary file for each language pair, e.g. `en-de`.
        other: with `pairs`, the language that is paired with the source language; otherwise None.
    """

    texts: Mapping[str, str]
    dictionaries: Mapping[str, str]
    other: str | None = None


def trainings(table: Mapping[str, Any], source: str) -> list[Training]:
    """Return the training runs per seed: one for all languages, one per language, or one per pair
    with the source language.
    """
    texts, dictionaries = table["texts"], table.get("dictionaries", {})
    if table.get("apart"):
        return [Training({lang: file}, {}) for lang, file in texts.items()]
    if not table.get("pairs"):
        return [Training(texts, dictionaries)]
    runs = []
    for lang in texts:
        if lang == source:
            continue
        of_pair = {
            name: path for name, path in dictionaries.items() if pair_of(name, [source, lang])
        }
        runs.append(Training({source: texts[source], lang: texts[lang]}, of_pair, other=lang))
    return runs


@dataclass(frozen=True, kw_only=True)
class EncoderTable:
    """The table `[encoders.NAME]`.

    Attributes:
        path: Hugging Face name, folder, `mini` or word vectors; or one encoder per language, as
            `en=ENCODER,de=ENCODER`.
        pretrain: settings for pretraining the encoder, used instead of `path`. Keys are `model`,
            `texts` by language, `preset`, `limit`, `pretokenized`, options of `calque pretrain`,
            `senses` (a number or a table of options), and `dictionaries` by language pair, e.g.
            `en-de`. `apart = true` trains one encoder per language. `pairs = true` trains one
            encoder for each pair of the source and another language; these encoders share one row
            of the result tables.
        runs: number of pretraining runs with different seeds.
        layers: layers that are evaluated and aligned separately.
        pooling, bidirectional: see `load_encoder`.
    """

    path: str = ""
    pretrain: Mapping[str, Any] | None = None
    runs: Few = 1
    layers: Sequence[Layer] = ()
    pooling: Pooling | None = None
    bidirectional: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SupervisionTable:
    """The table `[supervision.NAME]`.

    Attributes:
        kind: "parallel" has a parallel text for each language. "dictionary" has a dictionary for
            each language, and `texts` for anchors. "text" has only `texts`, for unsupervised maps
            and for methods without translations (`means`).
        texts: plain text for each language.
        entries: range `[first, end]` of source words to use, in the order of the dictionary.
        limit, pretokenized: see `calque align`.
        most, at_least, most_occurrences: see `calque anchors`.
        options: parallel text or dictionary for each target language.
    """

    kind: str = "parallel"
    texts: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[int] = (0,)
    limit: Count | None = None
    pretokenized: bool | None = None
    most: Count | None = None
    at_least: Count | None = None
    most_occurrences: Count | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def languages(self, source: str) -> list[str]:
        """Return the languages of the texts or dictionaries, without the source language."""
        if self.kind == "text":
            return [lang for lang in self.texts if lang != source]
        return list(self.options)


@dataclass(frozen=True, kw_only=True)
class MethodTable:
    """The table `[methods.NAME]`.

    Attributes:
        method: see `calque align`; default: the name of the table. For maps without a dictionary,
            set the option `start`.
        supervision: names of supervision tables; default: all tables that the method can use.
        encoders: names of the encoders to align; default: all encoders.
        runs: number of training runs; default: `runs` of the study.
        views: for methods with one encoder per language, the rows of the result tables, each with
            arguments of `load_encoder`.
        bidirectional: see `load_encoder`.
        options: options of the method.
    """

    method: str
    supervision: Files = ()
    encoders: Files | None = None
    runs: Few | None = None
    bidirectional: bool | None = None
    views: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the arguments of `load_encoder` for each row of the method in the tables, keyed by
        the name of the row.
        """
        return {row: dict(view) for row, view in self.views.items()} or {name: {}}

    def seeds(self, runs: int, number: int | None = None) -> list[int | None]:
        """Return the seed of each run, or only the seed of run `number`; return `[None]` if the
        method is deterministic.

        Args:
            runs: default number of runs.
        """
        start = self.options.get("start")
        if not METHODS[self.method].trains and start in (None, IDENTICAL):
            return [None]
        # A failed initialisation is repeated with the next seeds, so no other run may use these
        # seeds.
        distance = self.options.get("restarts", 3) if start else 1
        first = self.options.get("seed", 0)
        if number is not None:
            return [first + number * distance]
        return [first + run * distance for run in range(self.runs or runs)]


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """The table `[tasks.NAME]`.

    Attributes:
        task: see `calque evaluate`; default: the name of the table.
        encoders, methods: names of the encoders and of the table rows to evaluate; default: all.
        files: `test`, `train`, `dev` and others. Each is a list of files; the language is in the
            file name or given as `de=FILE`. For parallel texts, each is a table with one file per
            language.
        texts: plain text for each language.
        seeds: number of task heads to train; default: `seeds` of the study.
        limit, test_limit, pretokenized: see `calque evaluate`.
        options: options of the task.
    """

    task: str
    encoders: Files | None = None
    methods: Files | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    seeds: Few | None = None
    limit: Count | None = None
    test_limit: Count | None = None
    pretokenized: bool | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study. Paths are relative to `data`; `data` and `out` are relative to the study file.

    Attributes:
        encoders: encoders by name (see `EncoderTable`), or a list of paths.
        methods: methods by name (see `MethodTable`), or a list of names. `base` is the encoder
            without alignment.
        supervision: supervision tables by name (see `SupervisionTable`).
        tasks: tasks by name (see `TaskTable`).
        source: first language of each parallel text.
        towards: language with which all other languages are aligned.
        seeds: number of task heads to train for each task, with seeds 0, 1, …; default: 5, or 3
            with `tune`.
        runs: number of training runs of every random method (fine-tuning, contrastive training,
            unsupervised maps with random initialisation), with consecutive seeds from the method's
            `seed`. The tables show the mean of the runs; differences are not tested with fewer than
            three runs. If an encoder has `runs`, each method is trained once per run.
        words: aligner, symmetrisation and seed for the word links.
        data: folder with the texts.
        out: folder for the steps and results; default: the name of the study file without `.toml`.
        folder: folder that contains the study file.
    """

    encoders: Mapping[str, EncoderTable]
    methods: Mapping[str, MethodTable]
    supervision: Mapping[str, SupervisionTable]
    tasks: Mapping[str, TaskTable]
    source: str = "en"
    towards: str = "en"
    seeds: Few | None = None
    runs: Few = 3
    words: Mapping[str, Any] = field(default_factory=dict)
    data: str = "."
    out: str
    folder: str = "."

    def path(self, name: str) -> str:
        """Return the path of a text or an encoder named in the study."""
        return os.path.join(self.folder, self.data, name)

    def named(self, name: str) -> tuple[str, str]:
        """Return the language and path of a text that is given as `de=FILE` or as a file whose name
        contains the language.
        """
        lang, path = name_and_path(name)
        return lang or language_of(name) or "", self.path(path)

    def texts_of(self, task: TaskTable) -> dict[str, list[tuple[str, str]]]:
        """Return the language and path of each annotated text of a task, for each of `PARTS`."""
        texts: dict[str, list[tuple[str, str]]] = {}
        for part in PARTS:
            named = [self.named(file) for file in listed(task.files.get(part))]
            texts[part] = [(lang or TASKS[task.task].lang or "", file) for lang, file in named]
        return texts

    def own_classes(self) -> list[str]:
        """Return the custom classes (`package.module:Class`) that are used as encoders, methods or
        tasks.
        """
        names = []
        for encoder in self.encoders.values():
            for part in encoder.path.split(","):
                if not os.path.exists(self.path(part)):
                    names.append(name_and_path(part)[1])
        names += [method.method for method in self.methods.values()]
        names += [task.task for task in self.tasks.values()]
        return [name for name in dict.fromkeys(names) if is_path(name)]


def given(table: Any, *names: str) -> dict[str, Any]:
    """Return the settings `names` of a table, without settings that are None."""
    return {name: getattr(table, name) for name in names if getattr(table, name) is not None}


def is_for(names: Files | None, name: str) -> bool:
    """Return whether `name` is among `names`; None allows every name."""
    return names is None or name in listed(names)


def learns(method: str, kind: str) -> bool:
    """Return whether a method, or an initialisation of maps, can use a kind of supervision."""
    if kind == "text":
        return method in (*STARTS, *methods_for("text"))
    return learns_from(method, kind)


def listed(files: Sequence[str] | str | None) -> list[str]:
    """Return a file or a list of files as a list."""
    return [files] if isinstance(files, str) else list(files or [])


# -- reading ---------------------------------------------------------------------------------------
def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file.

    Raises:
        InputError: the file cannot be read, or a key or value is invalid. The message contains the
            key, its value and the expected value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        tables = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        suggestion = similar_path(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"cannot read the study ({reason}){suggestion}", path=path) from error
    try:
        study = _study({"out": default_out(path), **tables}, str(Path(path).resolve().parent))
    except SettingError as error:
        raise InputError(str(error), path=path) from error
    langs = [study.source, study.towards]
    for supervision in study.supervision.values():
        langs += [*supervision.texts, *supervision.options]
    warn_of_languages(langs, f"{path}: language")
    return study


def default_out(path: str | Path) -> str:
    """Return the default folder for the results: the name of the study file without its suffix."""
    name = Path(path).resolve().name
    stem = Path(name).stem
    return f"{name}-results" if stem == name else stem


def _study(tables: dict[str, Any], folder: str) -> Study:
    by_name = Mapping[str, Mapping[str, Any]]
    known = {
        **types_of(Study, "folder"),
        "encoders": Mapping[str, str | Mapping[str, Any]] | Sequence[str],
        "methods": by_name | Sequence[str],
        "supervision": by_name,
        "tasks": by_name,
    }
    check("", tables, known, "a study")
    for name in ("encoders", "methods", "tasks"):
        if not tables.get(name):
            raise SettingError(f"the study has no {name}; add [{name}]")
    models = Literal["auto", "fast-align", "hmm", "gibbs"]
    words = {**types_of(Words), "model": models, "symmetrize": Symmetrization}
    check("words", tables.get("words", {}), words)

    encoders, methods = tables["encoders"], tables["methods"]
    if not isinstance(encoders, dict):  # a list of paths
        encoders = {Path(name).name: name for name in encoders}
    if not isinstance(methods, dict):  # a list of names
        methods = {name: {} for name in methods}
    source, towards = tables.get("source", "en"), tables.get("towards", "en")
    # The order matters for a study with several mistakes: the first one is reported.
    supervision = {
        name: _supervision(f"supervision.{name}", table, source, towards)
        for name, table in tables.get("supervision", {}).items()
    }
    study = Study(
        **{
            **tables,
            "encoders": {
                name: _encoder(f"encoders.{name}", table, source)
                for name, table in encoders.items()
            },
            "methods": {
                name: _method(name, table, supervision, towards) for name, table in methods.items()
            },
            "tasks": {
                name: _task(f"tasks.{name}", {"task": name, **table}, source)
                for name, table in tables["tasks"].items()
            },
            "supervision": supervision,
            "folder": folder,
        }
    )
    _check_names(study)
    return study


def _table(
    table_class: Callable[..., Table],
    where: str,
    table: Mapping[str, Any],
    option_types: Mapping[str, Any],
    *without: str,
    what: str = "",
) -> Table:
    """Read a table into the dataclass `table_class`, without the fields `without`. The settings in
    `option_types` are read into `options`.
    """
    field_types = types_of(table_class, "options", *without)
    field_types = {name: type_ for name, type_ in field_types.items() if name not in option_types}
    check(where, table, {**field_types, **option_types}, what)
    for item in fields(table_class):  # type: ignore[arg-type]
        is_required = item.default is MISSING and item.default_factory is MISSING
        if is_required and not table.get(item.name):
            raise SettingError(f"{where} has no {item.name}")
    settings = {name: value for name, value in table.items() if name in field_types}
    if option_types:
        settings["options"] = {name: value for name, value in table.items() if name in option_types}
    return table_class(**settings)


def _constructed(where: str, make: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Call `make`, and prefix its error messages with the position in the file."""
    try:
        return make(*args, **settings)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def _encoder(where: str, table: Mapping[str, Any] | str, source: str) -> EncoderTable:
    table = {"path": table} if isinstance(table, str) else table
    encoder = _table(EncoderTable, where, table, {})
    if ("path" in table) == ("pretrain" in table) or ("path" in table and "runs" in table):
        raise SettingError(f"{where} must have either path or pretrain; runs is only for pretrain")
    if encoder.pretrain is not None:
        imported(f"{PRETRAINING}:check_pretraining")(
            where.partition(".")[2], encoder.pretrain, source
        )
    return encoder


def _supervision(
    where: str, table: Mapping[str, Any], source: str, towards: str
) -> SupervisionTable:
    kind = table.get("kind", "parallel")
    check_value(f"{where}.kind", kind, Literal[_KINDS])
    unused = {"parallel": ("texts", "entries", *OF_ANCHORS), "text": ("entries",)}.get(kind, ())
    settings = types_of(SupervisionTable, "options")
    langs = [] if kind == "text" else [name for name in table if name not in settings]
    # Any other key names a language, so a misspelt setting must be recognised by its similarity.
    for lang in langs:
        suggestion = "" if _CODE.fullmatch(lang) else did_you_mean(lang, settings)
        if suggestion:
            expected = f"{', '.join(settings)}, or a language with its file, such as de"
            raise SettingError(
                f"unknown setting {lang!r} of {where}, expected {expected}{suggestion}"
            )
    supervision = _table(SupervisionTable, where, table, dict.fromkeys(langs, str), *unused)
    _check_entries(where, supervision.entries)
    languages = supervision.languages(source)
    if not languages:
        raise SettingError(f"{where} has no text; add {'texts' if kind == 'text' else 'de'} = …")
    if kind != "parallel":
        _covered(where, supervision.texts, (source, *languages))
    for lang in languages:
        _check_other(where, lang, source)
        if towards not in (source, lang):
            fact = f"towards = {towards!r}, but {where} has the languages {source} and {lang}"
            raise SettingError(f"{fact}; expected {source!r}")
    return supervision


def _method(
    name: str, table: Mapping[str, Any], supervision: Mapping[str, SupervisionTable], towards: str
) -> MethodTable:
    where = f"methods.{name}"
    if name == BASE:
        check(where, table, {})
        return MethodTable(method=BASE)
    table = {"method": "rotation" if "start" in table else name, **table}
    if table["method"] in list(STARTS):  # an initialisation as method stands for `rotation` with it
        table |= {"start": table["method"], "method": "rotation"}
    method, start = table["method"], table.get("start")
    if not (isinstance(method, str) and is_path(method)):
        methods = set(STARTS).union(*(methods_for(kind) for kind in _KINDS))
        known = Literal[tuple(sorted(methods))]
        check_value(f"{where}.method", method, known, ", or package.module:Class")
        if start is not None:
            check_value(f"{where}.start", start, Literal[STARTS])
    table["supervision"] = _usable_supervision(where, table, start or method, supervision)
    read = MethodTable(method=method)
    # A method is checked once for each kind of supervision, because its options depend on the kind.
    for kind in dict.fromkeys(supervision[used].kind for used in table["supervision"]):
        read = _method_for(where, table, kind, towards)
    return read


def _usable_supervision(
    where: str,
    table: Mapping[str, Any],
    learner: str,
    supervision: Mapping[str, SupervisionTable],
) -> list[str]:
    """Return the names of the supervision tables that a method, or an initialisation of maps, can
    use: those that its table names, or else all.
    """
    if "supervision" in table:
        names = Literal[tuple(supervision)]
        check_value(f"{where}.supervision", table["supervision"], names | Sequence[names])
    requested = listed(table.get("supervision", list(supervision)))
    usable = [
        name
        for name, candidate in supervision.items()
        if name in requested and learns(learner, candidate.kind)
    ]
    if not usable:
        kinds = " or ".join(repr(kind) for kind in _KINDS if learns(learner, kind))
        raise SettingError(
            f"{where} has no supervision; add [supervision.NAME] with kind = {kinds}"
        )
    return usable


def _method_for(where: str, table: Mapping[str, Any], kind: str, towards: str) -> MethodTable:
    """Read the table of a method for one kind of supervision, and check its options and views."""
    method = table["method"]
    row = METHODS[method]
    # Any other method is a map that is fitted to anchors, with its own options.
    is_class = kind == "parallel" or row.trains or "text" in row.learns_from
    option_types = types_in(options_of_method(method) if is_class else options_of_maps())
    option_types.pop("method", None)
    used = {"views": row.of_each, "runs": row.trains, "bidirectional": is_class}
    unused = [setting for setting, is_used in used.items() if not is_used]
    what = f"{where} with supervision of kind {kind!r}"
    read = _table(MethodTable, where, table, option_types, *unused, what=what)
    start_options = read.options.get("start_options", {})
    check(
        f"{where}.start_options",
        start_options,
        types_in(options_of_starts(table.get("start") or "")),
    )
    if is_class:
        built = _constructed(where, make_method, method, towards, read.options, kind)
        for view, load in read.views.items():
            _constructed(f"{where}.views.{view}", built.rows, load)
    return read


def _task(where: str, table: Mapping[str, Any], source: str) -> TaskTable:
    name = table["task"]
    check_value(f"{where}.task", name, str)
    row = TASKS[name]
    _check_test(where, row, table.get("test"))
    file_types = _file_types(row)
    used = {
        "texts": "text" in row.files,
        "seeds": "seeds" in row.options,
        "test_limit": "test_limit" in row.options,
        "pretokenized": "pretokenized" in row.options,
    }
    unused = [setting for setting, is_used in used.items() if not is_used]
    not_options = (*PARTS, "text", "train_links", "project")
    option_types = {
        **types_in(options_of_task(name)),
        **{part: str for part in row.files if part not in not_options},
        **file_types,
    }
    read = _table(TaskTable, where, table, option_types, "files", *unused)
    # `_table` reads the files into the options, because the task defines their keys.
    options = {key: value for key, value in read.options.items() if key not in file_types}
    files = {key: read.options[key] for key in file_types if key in read.options}
    task = replace(read, files=files, options=options)
    _check_entries(where, options.get("entries", (0,)))
    if used["seeds"]:
        _check_training(where, options)
    if row.languages == "pairs":
        _check_files_of_pairs(where, task, source)
    else:
        _check_texts(where, task)
    return task


def _check_test(where: str, row: TaskRow, test: object) -> None:
    """Check that a task has test files, and that they are in the form that the task requires."""
    if row.languages == "pairs":
        is_valid, expected = isinstance(test, dict), 'a table by language, { de = "FILE" }'
    else:
        is_valid, expected = isinstance(test, list | str), "a list of files"
    if not test or not is_valid:
        raise SettingError(f"{where}.test = {test!r}, expected {expected}")


def _check_training(where: str, options: Mapping[str, Any]) -> None:
    """Check the options of a task that train its head."""
    from calque.training.supervised import Supervised

    names = types_of(Supervised, "seed")
    training = {name: value for name, value in options.items() if name in names}
    # `Supervised` requires `epochs`, because its default depends on the task.
    _constructed(where, Supervised, **{"epochs": 1, **training})


def _file_types(row: TaskRow) -> dict[str, Any]:
    """Return the types of the settings that name files of a task."""
    if row.languages == "pairs":
        return {part: Mapping[str, str] for part in PARTS if part in row.files}
    return {
        part: str | tuple[str] if part in row.one else Files
        for part in PARTS
        if part in row.files and part != "links"
    }


def _check_files_of_pairs(where: str, task: TaskTable, source: str) -> None:
    """Check that each file of a task on parallel texts belongs to a language of its test texts."""
    tests = task.files["test"]
    for part, by_lang in task.files.items():
        for lang in by_lang:
            _check_other(f"{where}.{part}", lang, source)
            if lang not in tests:
                raise SettingError(
                    f"{where}.{part} has a text in {lang}, but {where}.test has none"
                )
    if task.texts:
        _covered(where, task.texts, (source, *tests))


def _check_texts(where: str, task: TaskTable) -> None:
    """Check that the language of each text is known, and that a task with a trained head has
    training text.
    """
    row = TASKS[task.task]
    for part in PARTS:
        for file in listed(task.files.get(part)):
            if not (name_and_path(file)[0] or language_of(file) or row.lang):
                raise SettingError(
                    f"{where}: the language of {file} is unknown; write, for example, de={file}"
                )
    if "train" in row.files and not task.files.get("train"):
        raise SettingError(f"{where} has no training text; add train = …")


def _check_names(study: Study) -> None:
    """Check that all referenced encoders and rows exist, and that the names of rows are
    distinct.
    """
    rows: list[str] = []
    views: list[str] = []
    for name, method in study.methods.items():
        rows += method.rows(name)
        views += method.views
    repeated = [row for row in rows if rows.count(row) > 1]
    repeated += [view for view in views if view in study.methods]
    if repeated:
        raise SettingError(f"methods: row names must be unique, got {repeated[0]} several times")
    for name, method in study.methods.items():
        _check_references(f"methods.{name}.encoders", method.encoders, study.encoders)
    for name, task in study.tasks.items():
        _check_references(f"tasks.{name}.encoders", task.encoders, study.encoders)
        _check_references(f"tasks.{name}.methods", task.methods, rows)
    _check_rows_of_vectors(study)


def _check_references(where: str, names: Files | None, known: Iterable[str]) -> None:
    known = list(known)
    for name in listed(names):
        if name not in known:
            expected = f"{', '.join(known)}{did_you_mean(name, known)}"
            raise SettingError(f"{where}: unknown {name!r}, expected {expected}")


def _check_rows_of_vectors(study: Study) -> None:
    """Check that each task supports the vectors of its rows. For example, word-level tasks cannot
    use vectors of key points.
    """
    for name, method in study.methods.items():
        if method.method == BASE or not METHODS[method.method].of_each:
            continue
        built = make_method(method.method, study.towards, method.options)
        vectors = {row: built.rows(load) for row, load in method.rows(name).items()}
        encoders = [encoder for encoder in study.encoders if is_for(method.encoders, encoder)]
        for task_name, task in study.tasks.items():
            if not any(is_for(task.encoders, encoder) for encoder in encoders):
                continue
            accepted, where = TASKS.load(task.task).rows, f"tasks.{task_name}"
            for row, row_vectors in vectors.items():
                if not is_for(task.methods, row) or row_vectors in accepted:
                    continue
                fact = (
                    f"{where}: {task.task} needs vectors of {accepted[0]}, but {row!r} of "
                    f"methods.{name} has {row_vectors}"
                )
                raise SettingError(f"{fact}; list the rows to evaluate in {where}.methods")


def _check_entries(where: str, entries: Sequence[int]) -> None:
    if len(entries) > 2 or (len(entries) == 2 and entries[0] >= entries[1]):
        raise SettingError(
            f"{where}.entries = {entries!r}, expected [first] or [first, end] with first < end"
        )


def _check_other(where: str, lang: str, source: str) -> None:
    if lang == source:
        raise SettingError(
            f"{where}.{lang}: {lang} is the source language; expected another language"
        )


def _covered(where: str, texts: Mapping[str, str], langs: Iterable[str]) -> None:
    """Check that there is a text in each language."""
    if missing := sorted(set(langs) - set(texts)):
        raise SettingError(
            f'{where} has no texts in {", ".join(missing)}; add texts = {{ en = "en.txt.gz" }}'
        )
