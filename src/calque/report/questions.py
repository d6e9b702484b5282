"""Group result lines by encoder or method ("subject") and by task, metric and test settings
("question").
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from calque.errors import SettingError
from calque.report.numbers import Figure, average, figure_of, mean_of
from calque.report.reading import FORMER, Record, Results
from calque.runs.compare import lower_is_better
from calque.tasks.reporting import ALWAYS_DESCRIPTIVE, Reporting, is_part
from calque.tasks.table import likely_reporting, title_of
from calque.tasks.table import reporting_of as declared_for

BASE = "base"
_ABOUT_SEVERAL = (*FORMER, "examples")
_WORDS = {
    "links": "links",
    "symmetrize": "symmetrisation",
    "train": "training text",
    "training_sentence_pairs": "training pairs",
    "train_texts": "training texts",
    "links_from": "extraction",
    "dev": "development text",
    "text_sentences": "sentences of text",
    "training_words": "training words",
    "learning_rate": "learning rate",
    "per_epoch": "texts per epoch",
    "first_senses": "first senses",
    "max_answer": "maximum answer length",
    "sentence_pooling": "pooling",
    "pooled": "pooled as",
    "margin_k": "neighbours of margins",
}
_LONGEST = 60  # maximum length of the value of a setting in the name of a question, in characters


# -- subjects: encoders before and after alignment -------------------------------------------------
@dataclass(frozen=True)
class Subject:
    """Encoder before or after alignment, shown as a table row and as a series in plots.

    Attributes:
        label: name in the report.
        method: name of the method if the result lines contain one, otherwise the name of the
            encoder.
        group: folder of the study, and base encoder with its layer; subjects in the same group are
            comparable.
        number: index in order of first appearance, which determines the colour and shape of the
            marker.
        reference: whether the subject is not an encoder but, for example, a statistical aligner.
        runs: number of encoders that differ only in the seed of their training and are shown as one
            method; otherwise 0.
    """

    label: str
    method: str
    group: tuple[str, str]
    number: int
    reference: bool = False
    runs: int = 0


@dataclass(frozen=True)
class Subjects:
    """Subjects in the results, with their baselines.

    Attributes:
        of: subject of each result line, by the line's source; lines about several encoders have no
            entry.
        base: baseline of each subject; baselines, references and subjects without a baseline have
            no entry.
        guessed: baselines chosen as the first subject of their group because no line names a
            baseline.
    """

    all: tuple[Subject, ...]
    of: Mapping[str, Subject]
    base: Mapping[Subject, Subject]
    guessed: tuple[Subject, ...] = ()

    def __getitem__(self, record: Record) -> Subject:
        return self.of[record.source]


def find_subjects(results: Results, base: str | None = None) -> Subjects:
    """Find the subjects, their labels and their baselines. A label consists of the values that
    differ between subjects.

    Lines of a study or demo name a method, and each folder is one experiment. Lines of `calque
    evaluate` name an encoder. Encoders whose alignments differ only in their seeds are training
    runs of one method, and share a subject. `base` is the label of one baseline for all subjects.
    By default, the baseline of an aligned encoder is the base encoder that its lines name. For a
    method, it is `base`; for an encoder `X+…`, it is X; otherwise, it is the first subject.

    Raises:
        SettingError: no subject has the label `base`.
    """
    labelling = _Labelling([record for record in results.records if record.analysis is None])
    identities: dict[str, _Identity] = {}  # by label, in the order of the subjects' numbers
    label_of: dict[str, str] = {}  # maps the source of each line to its label
    label_of_hash: dict[str, str] = {}  # maps the fingerprint of each encoder to its label
    base_hashes: dict[str, str] = {}  # maps each label to the fingerprint of its base encoder
    with_encoder: set[str] = set()
    # Scores come before analyses, because they determine the order of the subjects.
    for record in sorted(results.records, key=lambda record: record.analysis is not None):
        if record.analysis in _ABOUT_SEVERAL:
            continue
        identity = labelling.identify(record)
        label = identity.label
        identities.setdefault(label, identity)
        label_of[record.source] = label
        if not record.plain.get("method") and record.analysis is None:
            label_of_hash[_hash(record)] = label
            aligned = record.settings.get("aligned") or {}
            base_hashes[label] = aligned.get("base_fingerprint", "")
        if record.settings.get("encoder") or record.analysis is not None:
            with_encoder.add(label)

    n_runs = Counter(labelling.merged.values())
    subjects: dict[str, Subject] = {}
    for number, (label, identity) in enumerate(identities.items()):
        subjects[label] = Subject(
            label,
            identity.method,
            identity.group,
            number,
            reference=bool(with_encoder) and label not in with_encoder,
            runs=n_runs[identity.method],
        )
    subject_of = {source: subjects[label] for source, label in label_of.items()}
    aligned_from = {
        subjects[label]: subjects[label_of_hash[fingerprint]]
        for label, fingerprint in base_hashes.items()
        if fingerprint in label_of_hash
    }
    every = tuple(subjects.values())
    bases, guessed = _bases(every, base, aligned_from)
    return Subjects(every, subject_of, bases, guessed)


class _Identity(NamedTuple):
    """Label, method and group of a subject, see `Subject`."""

    label: str
    method: str
    group: tuple[str, str]


class _Labelling:
    """Labels of subjects, which contain only what distinguishes the subjects from one another.

    Attributes:
        merged: common name of encoders that are training runs of one method, by fingerprint.
    """

    def __init__(self, scores: Sequence[Record]):
        self.merged = _training_runs(scores)
        # distinct values in the lines that name a method
        self._values: dict[str, set[object]] = {
            key: set() for key in ("folder", "encoder", "supervision", "layer")
        }
        # fingerprints of the encoders of each name, in the lines that name no method
        self._hashes: dict[str, set[str]] = {}
        for record in scores:
            if not record.plain.get("method"):
                self._hashes.setdefault(_encoder(record), set()).add(_hash(record))
                continue
            values = {**record.plain, "folder": _folder(record)}
            for key, distinct in self._values.items():
                if values.get(key) not in (None, ""):
                    distinct.add(values[key])

    def identify(self, record: Record) -> _Identity:
        """Return the label, method and group of a line's subject."""
        folder = _folder(record)
        is_one_of_several = self._differs("folder") and folder in self._values["folder"]
        experiment = folder if is_one_of_several else ""
        if record.plain.get("method"):
            return self._method(record, experiment)
        name = _encoder(record)
        if _hash(record) in self.merged:
            name = self.merged[_hash(record)]
            parts = [experiment, name]
        elif record.analysis is None and len(self._hashes[name]) > 1:
            parts = [experiment, name, _hash(record)[:6]]
        else:
            parts = [experiment, name]
        return _Identity(_joined(parts), name, (experiment, ""))

    def _method(self, record: Record, experiment: str) -> _Identity:
        plain = record.plain
        method, encoder, layer = plain["method"], plain.get("encoder") or "", plain.get("layer")
        parts = [experiment]
        if self._differs("encoder"):
            parts.append(encoder)
        if self._differs("layer") and layer is not None:
            parts.append(f"layer {layer}")
        parts.append(method)
        if self._differs("supervision"):
            parts.append(plain.get("supervision") or "")
        return _Identity(_joined(parts), method, (_folder(record), f"{encoder} {layer}"))

    def _differs(self, key: str) -> bool:
        return len(self._values[key]) > 1


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def _training_runs(records: Sequence[Record]) -> dict[str, str]:
    """Return the common name of encoders whose alignments differ only in their seeds, by the
    fingerprints of the encoders.
    """
    runs = _encoders_by_setting(records)
    names = {setting: list(encoders.values()) for setting, encoders in runs.items()}
    labels = {setting: common_name(of_setting) for setting, of_setting in names.items()}
    in_runs = set().union(*runs.values())
    others = {_encoder(record) for record in records if _hash(record) not in in_runs}
    for setting in _repeated(labels, others):
        labels[setting] += f" ({', '.join(names[setting])})"
    # Encoders in different folders can have the same names.
    for setting in _repeated(labels, others):
        labels[setting] += f" · {setting[:6]}"
    merged: dict[str, str] = {}
    for setting, encoders in runs.items():
        merged |= dict.fromkeys(encoders, labels[setting])
    return merged


def _repeated(labels: Mapping[str, str], others: Collection[str]) -> list[str]:
    """Return the keys of labels that occur several times or are among the others."""
    counts = Counter(labels.values())
    return [key for key, label in labels.items() if counts[label] > 1 or label in others]


def _encoders_by_setting(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Return the encoders of each setting that was aligned with several seeds, as names by
    fingerprints.

    If a seed has several encoders, an encoder was trained again, so it is not clear which encoders
    belong together. Such settings are left out.
    """
    by_seed: dict[str, dict[int, dict[str, str]]] = {}  # names by fingerprint, by seed, by setting
    for record in records:
        aligned = record.settings.get("aligned")
        if record.plain.get("method") or not isinstance(aligned, Mapping):
            continue
        if aligned.get("setting") and aligned.get("seed") is not None:
            seeds = by_seed.setdefault(str(aligned["setting"]), {})
            seeds.setdefault(aligned["seed"], {})[_hash(record)] = _encoder(record)
    by_setting: dict[str, dict[str, str]] = {}
    for setting, seeds in by_seed.items():
        if len(seeds) > 1 and all(len(encoders) == 1 for encoders in seeds.values()):
            by_setting[setting] = {}
            for encoders in seeds.values():
                by_setting[setting] |= encoders
    return by_setting


def common_name(names: Sequence[str]) -> str:
    """Return the common beginning of names such as `aligned-seed0` and `aligned-seed1`, or all
    names if there is none.
    """
    equal = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    start = re.sub(r"\d+$", "", "".join(letters[0] for letters in equal))
    start = re.sub(r"[-_. ]+(seed|run|s|r)?[-_. ]*$", "", start)
    return start or ", ".join(dict.fromkeys(names))


def _folder(record: Record) -> str:
    return record.file.rpartition("/")[0]


def _encoder(record: Record) -> str:
    return record.plain.get("encoder") or str(record.settings.get("encoder") or "no encoder")


def _hash(record: Record) -> str:
    return str(record.settings.get("encoder_fingerprint"))


def _bases(
    subjects: Sequence[Subject], base: str | None, aligned_from: Mapping[Subject, Subject]
) -> tuple[dict[Subject, Subject], tuple[Subject, ...]]:
    """Return the baseline of each subject, and the guessed baselines; `aligned_from` contains the
    baselines named in the lines.
    """
    compared = [subject for subject in subjects if not subject.reference]
    if base is not None:
        for chosen in compared:
            if chosen.label == base:
                return {subject: chosen for subject in compared if subject != chosen}, ()
        labels = ", ".join(subject.label for subject in compared)
        raise SettingError(f"base must be one of {labels}, got {base!r}")
    bases: dict[Subject, Subject] = {}
    guessed: dict[Subject, None] = {}
    for subject in compared:
        if subject in aligned_from.values() and subject not in aligned_from:
            continue  # a base encoder has no baseline
        group = [other for other in compared if other.group == subject.group]
        baseline, is_guess = _baseline(subject, group, aligned_from)
        if baseline != subject:
            bases[subject] = baseline
            if is_guess:
                guessed[baseline] = None
    return bases, tuple(guessed)


def _baseline(
    subject: Subject, group: Sequence[Subject], aligned_from: Mapping[Subject, Subject]
) -> tuple[Subject, bool]:
    """Return the baseline of a subject in its group, and whether it is a guess."""
    if subject in aligned_from:
        return aligned_from[subject], False
    named = [other for other in group if other in aligned_from.values()]
    plain = named or [other for other in group if other.method == BASE]
    if plain:
        return plain[0], False
    prefixes = [other for other in group if subject.method.startswith(f"{other.method}+")]
    if prefixes:
        return max(prefixes, key=lambda other: len(other.method)), False
    return group[0], True


# -- questions: a task and metric, with subjects as rows and test sets as columns ------------------
@dataclass(frozen=True)
class Column:
    """Test set. `lang` is its language, or the pair if source languages differ. `data` is its file
    or data set. `is_source` is true for the training language. `label` is the column header, with
    the file name if several columns share a language."""

    lang: str
    data: str
    is_source: bool = False
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class Question:
    """Scores for one task, metric and variant by subject and test set. `variant` describes the
    settings that distinguish this question from other questions of the task. In `columns`, the
    training language comes first."""

    task: str
    metric: str
    variant: str
    columns: tuple[Column, ...]
    subjects: tuple[Subject, ...]
    cells: Mapping[tuple[Subject, Column], Figure]
    about: Asked = field(default_factory=lambda: Asked(""))

    @property
    def targets(self) -> tuple[Column, ...]:
        """Columns in languages other than the training language; all columns if there are no other
        languages.
        """
        return tuple(column for column in self.columns if not column.is_source) or self.columns

    def mean(self, subject: Subject) -> Figure | None:
        """Return the mean over `targets`; None if there is only one target or the subject has no
        score on one of them.
        """
        figures = [self.cells.get((subject, column)) for column in self.targets]
        known = [figure for figure in figures if figure is not None]
        if len(figures) == 1 or len(known) < len(figures):
            return None
        return mean_of(known)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task, self.metric, self.variant

    @property
    def is_main(self) -> bool:
        """True if the metric is a main metric of the task rather than, for example, recall or the
        score of one direction.
        """
        return self.about.is_main

    @property
    def lower_is_better(self) -> bool:
        return self.about.lower_is_better

    @property
    def title(self) -> str:
        """Name of the task in the report."""
        return self.about.title or self.task


@dataclass(frozen=True)
class Asked:
    """Declarations of a task about a question, see `Reporting`.

    Attributes:
        title: name of the task in the report.
        is_part: whether the metric is a part of another metric of the task, such as the score of
            one direction.
        is_main: see `Question`.
        lower_is_better: whether lower values of the metric are better.
        role: role of the task in the plot of retrieval and transfer.
    """

    title: str
    is_part: bool = False
    is_main: bool = True
    lower_is_better: bool = False
    role: str = ""


def sort_questions(records: Iterable[Record], subjects: Subjects) -> tuple[list[Question], int]:
    """Group scores into questions in the order of the lines; return the questions and the number of
    replaced lines.

    Lines for the same subject and question are averaged if their encoders (fingerprints), seeds or
    training seeds differ: first within each training run, then over runs. A line replaces an
    earlier line if both agree in encoder, seed, training seed and all settings that define the
    question (see `Reporting`).
    """
    n_replaced = 0
    records = [record for record in records if record.analysis is None]
    declared = {record.source: reporting_of(record) for record in records}
    variants = _variants(records, declared)
    about = _declared_questions(records, declared)
    sources: dict[str, set[str]] = {}  # source languages of each task
    for record in records:
        of_task = sources.setdefault(record["task"], set())
        if len(record.pair) > 1:
            of_task.add(record.pair[0])
    # lines by question, by subject and column, and by model
    groups: dict[tuple[str, str, str], dict[tuple[Subject, Column], dict[object, Record]]] = {}
    for record in records:
        key = (record["task"], record["metric"], variants[record.source])
        place = (subjects[record], _column(record, sources[record["task"]]))
        cell = groups.setdefault(key, {}).setdefault(place, {})
        model = _model(record)
        n_replaced += model in cell
        cell[model] = record
    questions = []
    for key, lines in groups.items():
        columns = _labelled({column: None for _, column in lines})
        with_scores = {subject for subject, _ in lines}
        ordered = sorted(with_scores, key=lambda subject: subject.number)
        cells = {place: pooled(list(by_model.values())) for place, by_model in lines.items()}
        questions.append(Question(*key, columns, tuple(ordered), cells, about[key[:2]]))
    return questions, n_replaced


def _column(record: Record, sources: Collection[str]) -> Column:
    """Return the column of a line; `sources` contains the source languages of its task."""
    *source_langs, tested = record.pair
    lang = tested
    if len(sources) > 1 and len(record.pair) == 2:
        lang = "-".join(record.pair)
    return Column(lang, record["data"], tested in source_langs, label=lang)


def _labelled(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of a question, the training language first. The labels of columns that
    share a language contain the names of their files.
    """
    ordered = sorted(columns, key=lambda column: not column.is_source)
    counts = Counter(column.lang for column in ordered)
    labelled = []
    for column in ordered:
        label = column.lang
        if column.data and counts[column.lang] > 1:
            label += f" ({PurePath(column.data).name})"
        labelled.append(replace(column, label=label))
    return tuple(labelled)


def pooled(lines: Sequence[Record]) -> Figure:
    """Return the mean over the training runs of one method. If the lines have no seeds, each
    encoder is one run.
    """
    runs = []
    for line in lines:
        seed = line.plain.get("training_seed")
        runs.append(line.settings.get("encoder_fingerprint") if seed is None else seed)
    return average([figure_of(line) for line in lines], runs)


def _model(record: Record) -> tuple[str, ...]:
    """Return a key that is equal for results of the same encoder, test seed and training seed."""
    return _hash(record), str(record.plain.get("seed")), str(record.plain.get("training_seed"))


# -- what tasks declare ----------------------------------------------------------------------------
def reporting_of(record: Record) -> Reporting:
    """Return the declaration of a line's task: the one stored in the line or, for calque's own
    tasks, the one in the table.

    Older lines of studies contain only the user's name of a task; the declaration is then inferred
    from the recorded settings.
    """
    stored = record.plain.get("reporting")
    if stored is not None:
        return Reporting.from_dict(stored)
    known = declared_for(record.plain.get("kind") or record["task"])
    return likely_reporting(record.settings) if known is None else known


def _declared_questions(
    records: Sequence[Record], declared: Mapping[str, Reporting]
) -> dict[tuple[str, str], Asked]:
    """Return what the tasks declare about each task and metric. If the lines of a task differ, the
    first line decides.
    """
    metrics: dict[str, set[str]] = {}
    for record in records:
        metrics.setdefault(record["task"], set()).add(record["metric"])
    about: dict[tuple[str, str], Asked] = {}
    for record in records:
        task, metric = record["task"], record["metric"]
        if (task, metric) in about:
            continue
        reporting, stem = declared[record.source], metric.partition(".")[0]
        of_another = is_part(metric, metrics[task])
        is_main = not of_another and (reporting.main is None or stem in reporting.main)
        lower = stem in reporting.lower or metric in reporting.lower or lower_is_better(metric)
        title = _title(record, reporting)
        about[task, metric] = Asked(title, of_another, is_main, lower, reporting.role)
    return about


def _title(record: Record, reporting: Reporting) -> str:
    """Return the name of a line's task: the name that the user gave to it, or else the title that
    the task declares.
    """
    task = record["task"]
    if record.plain.get("kind") is not None:  # the task has a name of its own in the study
        return task
    declared = title_of(task) if record.plain.get("reporting") is None else reporting.title
    return declared or task


# -- settings that distinguish questions -----------------------------------------------------------
_Place = tuple[object, ...]  # scores among which a setting is compared, and the name of the setting


def _variants(records: Sequence[Record], declared: Mapping[str, Reporting]) -> dict[str, str]:
    """Describe the settings that distinguish the question of each line from other questions of its
    task, keyed by source.

    A missing setting distinguishes questions only if the same encoder has scores with and without
    this setting on the same test set, because lines from older versions have fewer settings.
    """
    settings = {record.source: _defining(record, declared[record.source]) for record in records}
    values: dict[_Place, set[str]] = {}
    for of_line in settings.values():
        for place, value in of_line.items():
            values.setdefault(place, set()).add(value)
    distinguishing = {place for place, distinct in values.items() if len(distinct) > 1}

    same_test: dict[tuple[object, ...], list[dict[_Place, str]]] = {}
    for record in records:
        key = (*_test_of(record), _encoder(record), *_model(record))
        same_test.setdefault(key, []).append(settings[record.source])
    for lines in same_test.values():
        names = [{place[-1] for place in of_line} for of_line in lines]
        in_all = set.intersection(*names)
        for of_line in lines:
            distinguishing |= {place for place in of_line if place[-1] not in in_all}

    variants: dict[str, str] = {}
    for source, of_line in settings.items():
        words = [
            _in_words(str(place[-1]), value)
            for place, value in of_line.items()
            if place in distinguishing
        ]
        variants[source] = ", ".join(words)
    return variants


def _test_of(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for results in the same metric on the same test set."""
    return record["task"], record["metric"], record["data"], *record.pair


def _defining(record: Record, reporting: Reporting) -> dict[_Place, str]:
    """Return the settings that define the question of a line, by the scores among which they are
    compared and by name.
    """
    settings, parts = record.settings, record["metric"].split(".")[1:]
    descriptive = {*ALWAYS_DESCRIPTIVE, *reporting.descriptive}
    everywhere, here = (record["task"], record["metric"]), _test_of(record)
    defining: dict[_Place, str] = {}
    for name, value in settings.items():
        # Some settings concern only one part of a metric, such as `accuracy.unseen`.
        if name in descriptive or reporting.only_for.get(name, "") not in ("", *parts):
            continue
        condition, expected = reporting.by_encoder.get(name, ("", None))
        if condition and settings.get(condition) == expected:
            place = (*here, str(settings.get("encoder")), name)
        elif name in reporting.by_test_set:
            place = (*here, name)
        else:
            place = (*everywhere, name)
        defining[place] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if record.plain.get("texts") and "texts" not in descriptive:
        defining[*here, "texts"] = f"{record.plain['texts']:,}"
    return defining


def _in_words(name: str, value: str) -> str:
    """Describe a setting; a value of True or False becomes `NAME` or `non-NAME`."""
    words = _WORDS.get(name, name.replace("_", " "))
    if value == "True":
        return words
    if value == "False":
        return f"non-{words}"
    if len(value) > _LONGEST:  # a hash of the value keeps the names of questions distinct
        digest = hashlib.blake2b(value.encode(), digest_size=2).hexdigest()
        value = f"{value[:_LONGEST]}… ({digest})"
    return f"{words}: {value}"
