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


# -- subjects: encoders before and after alignment
# ---------------------------------------------------------------------
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
    """All subjects in the results, with their baselines.

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
    scores = [record for record in results.records if record.analysis is None]
    named = [
        {**record.plain, "folder": _folder(record)}
        for record in scores
        if record.plain.get("method")
    ]
    keys = ("folder", "encoder", "supervision", "layer")
    values = {key: {plain.get(key) for plain in named} - {None, ""} for key in keys}
    hashes: dict[str, set[str]] = {}
    for record in scores:
        if not record.plain.get("method"):
            hashes.setdefault(_encoder(record), set()).add(_hash(record))

    merged = _training_runs(scores)
    labels: dict[str, tuple[str, tuple[str, str]]] = {}  # maps each label to its method and group
    label_of: dict[str, str] = {}  # maps the source of each line to its label
    by_hash: dict[str, str] = {}  # maps the fingerprint of each encoder to its label
    before: dict[str, str] = {}  # maps each label to the fingerprint of its base encoder
    with_encoder: set[str] = set()
    for record in sorted(
        results.records, key=lambda record: record.analysis is not None
    ):  # scores come first
        if record.analysis in _ABOUT_SEVERAL:
            continue
        folder, method, plain = _folder(record), record.plain.get("method"), record.plain
        run = folder if len(values["folder"]) > 1 and folder in values["folder"] else ""
        if method:
            layer = "" if plain.get("layer") is None else f"layer {plain['layer']}"
            known = {
                "encoder": plain.get("encoder"),
                "layer": layer,
                "": method,
                "supervision": plain.get("supervision"),
            }
            parts = [
                run,
                *(part or "" for key, part in known.items() if not key or len(values[key]) > 1),
            ]
            group = (folder, f"{plain.get('encoder') or ''} {plain.get('layer')}")
        else:
            method = _encoder(record)
            several = record.analysis is None and len(hashes[method]) > 1
            if _hash(record) in merged:
                method, several = merged[_hash(record)], False
            parts, group = [run, method, _hash(record)[:6] if several else ""], (run, "")
        label = " · ".join(part for part in parts if part)
        labels.setdefault(label, (method, group))
        label_of[record.source] = label
        if not plain.get("method") and record.analysis is None:
            by_hash[_hash(record)] = label
            before[label] = (record.settings.get("aligned") or {}).get("base_fingerprint", "")
        if record.settings.get("encoder") or record.analysis is not None:
            with_encoder.add(label)
    n_runs = Counter(merged.values())
    subjects = {
        label: Subject(
            label,
            method,
            group,
            number,
            reference=bool(with_encoder) and label not in with_encoder,
            runs=n_runs[method],
        )
        for number, (label, (method, group)) in enumerate(labels.items())
    }
    of = {source: subjects[label] for source, label in label_of.items()}
    made_of = {
        subjects[label]: subjects[by_hash[each]]
        for label, each in before.items()
        if each in by_hash
    }
    return Subjects(tuple(subjects.values()), of, *_bases(list(subjects.values()), base, made_of))


def _training_runs(records: Sequence[Record]) -> dict[str, str]:
    """Return the common name of encoders whose alignments differ only in their seeds, by the
    fingerprints of the encoders.
    """
    runs = _encoders_by_setting(records)
    names = {setting: list(encoders.values()) for setting, encoders in runs.items()}
    labels = {setting: common_name(each) for setting, each in names.items()}
    others = {
        _encoder(record) for record in records if _hash(record) not in set().union(*runs.values())
    }
    for setting in _repeated(labels, others):
        labels[setting] += f" ({', '.join(names[setting])})"
    for setting in _repeated(
        labels, others
    ):  # encoders in different folders can have the same names
        labels[setting] += f" · {setting[:6]}"
    return {
        fingerprint: labels[setting]
        for setting, encoders in runs.items()
        for fingerprint in encoders
    }


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
    return {
        setting: {
            fingerprint: name
            for encoders in seeds.values()
            for fingerprint, name in encoders.items()
        }
        for setting, seeds in by_seed.items()
        if len(seeds) > 1 and all(len(encoders) == 1 for encoders in seeds.values())
    }


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
    subjects: Sequence[Subject], base: str | None, made_of: Mapping[Subject, Subject]
) -> tuple[dict[Subject, Subject], tuple[Subject, ...]]:
    """Return the baseline of each subject, and the guessed baselines; `made_of` contains the
    baselines named in the lines.
    """
    compared = [subject for subject in subjects if not subject.reference]
    if base is not None:
        chosen = next((subject for subject in compared if subject.label == base), None)
        if chosen is None:
            raise SettingError(
                f"base must be one of {', '.join(s.label for s in compared)}, got {base!r}"
            )
        return {subject: chosen for subject in compared if subject != chosen}, ()
    bases, guessed = {}, {}
    for subject in compared:
        group = [other for other in compared if other.group == subject.group]
        named = (
            [made_of[subject]]
            if subject in made_of
            else [other for other in group if other in made_of.values()]
        )
        plain = named or [other for other in group if other.method == BASE]
        shorter = [other for other in group if subject.method.startswith(f"{other.method}+")]
        chosen = (
            plain[0] if plain else max(shorter or group[:1], key=lambda other: len(other.method))
        )
        if chosen != subject and (subject in made_of or subject not in made_of.values()):
            bases[subject] = chosen
            guessed |= {} if plain or shorter else {chosen: None}
    return bases, tuple(guessed)


# -- questions: a task and metric, with subjects as rows and test sets as columns
# --------------------------------------
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
        cells = [
            cell
            for column in self.targets
            if (cell := self.cells.get((subject, column))) is not None
        ]
        return mean_of(cells) if len(cells) == len(self.targets) > 1 else None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task, self.metric, self.variant

    @property
    def is_main(self) -> bool:
        """Whether the metric is a main metric of the task rather than, for example, recall or the
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
    superseded = 0
    records = [record for record in records if record.analysis is None]
    declared = {record.source: reporting_of(record) for record in records}
    variants = _variants(records, declared)
    about = _declared_questions(records, declared)
    sources_of: dict[str, set[str]] = {}
    for record in records:
        sources_of.setdefault(record["task"], set()).update(
            record.pair[:1] if len(record.pair) > 1 else ()
        )
    groups: dict[tuple[str, str, str], dict[tuple[Subject, Column], dict[object, Record]]] = {}
    for record in records:
        *sources, tested = pair = record.pair
        lang = "-".join(pair) if len(sources_of[record["task"]]) > 1 and len(pair) == 2 else tested
        column = Column(lang, record["data"], tested in sources, label=lang)
        key = (record["task"], record["metric"], variants[record.source])
        cell = groups.setdefault(key, {}).setdefault((subjects[record], column), {})
        model = _model(record)
        superseded += model in cell
        cell[model] = record
    questions = []
    for key, lines in groups.items():
        columns = sorted(
            dict.fromkeys(column for _, column in lines), key=lambda column: not column.is_source
        )
        langs = [column.lang for column in columns]
        files = [
            f" ({PurePath(c.data).name})" if c.data and langs.count(c.lang) > 1 else ""
            for c in columns
        ]
        columns = [
            replace(c, label=f"{c.lang}{file}") for c, file in zip(columns, files, strict=True)
        ]
        cells = {place: pooled(list(own.values())) for place, own in lines.items()}
        answered = sorted({subject for subject, _ in lines}, key=lambda s: s.number)
        questions.append(Question(*key, tuple(columns), tuple(answered), cells, about[key[:2]]))
    return questions, superseded


def pooled(lines: Sequence[Record]) -> Figure:
    """Return the mean over the training runs of one method. If the lines have no seeds, each
    encoder is one run.
    """
    seeds = [line.plain.get("training_seed") for line in lines]
    runs = [
        line.settings.get("encoder_fingerprint") if s is None else s
        for s, line in zip(seeds, lines, strict=True)
    ]
    return average([figure_of(line) for line in lines], runs)


def _model(record: Record) -> tuple[str, ...]:
    """Return a key that is equal for results of the same encoder, test seed and training seed."""
    return _hash(record), str(record.plain.get("seed")), str(record.plain.get("training_seed"))


# -- what tasks declare
# ------------------------------------------------------------------------------------------------
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
    found: dict[tuple[str, str], Asked] = {}
    for record in records:
        task, metric = record["task"], record["metric"]
        if (task, metric) in found:
            continue
        reporting, stem = declared[record.source], metric.partition(".")[0]
        of_another = is_part(metric, metrics[task])
        is_main = not of_another and (reporting.main is None or stem in reporting.main)
        title = _title(record, reporting)
        lower = stem in reporting.lower or metric in reporting.lower or lower_is_better(metric)
        found[task, metric] = Asked(title, of_another, is_main, lower, reporting.role)
    return found


def _title(record: Record, reporting: Reporting) -> str:
    """Return the name of a line's task: the name that the user gave to it, or else the title that
    the task declares.
    """
    task = record["task"]
    if record.plain.get("kind") is not None:  # the task has a name of its own in the study
        return task
    declared = title_of(task) if record.plain.get("reporting") is None else reporting.title
    return declared or task


# -- settings that distinguish questions
# -------------------------------------------------------------------------------
_Place = tuple[object, ...]  # scores among which a setting is compared, and the name of the setting


def _variants(records: Sequence[Record], declared: Mapping[str, Reporting]) -> dict[str, str]:
    """Describe the settings that distinguish the question of each line from other questions of its
    task, keyed by source.

    A missing setting distinguishes questions only if the same encoder has scores with and without
    this setting on the same test set, because lines from older versions have fewer settings.
    """
    settings = {record.source: _defining(record, declared[record.source]) for record in records}
    values: dict[_Place, set[str]] = {}
    for own in settings.values():
        for place, value in own.items():
            values.setdefault(place, set()).add(value)
    distinguishing = {place for place, found in values.items() if len(found) > 1}
    same_test: dict[tuple[object, ...], list[dict[_Place, str]]] = {}
    for record in records:
        key = (*_test_of(record), _encoder(record), *_model(record))
        same_test.setdefault(key, []).append(settings[record.source])
    for lines in same_test.values():
        always = set.intersection(*({place[-1] for place in own} for own in lines))
        distinguishing |= {place for own in lines for place in own if place[-1] not in always}
    return {
        source: ", ".join(
            _in_words(str(place[-1]), value)
            for place, value in own.items()
            if place in distinguishing
        )
        for source, own in settings.items()
    }


def _test_of(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for results in the same metric on the same test set."""
    return record["task"], record["metric"], record["data"], *record.pair


def _defining(record: Record, reporting: Reporting) -> dict[_Place, str]:
    """Return the settings that define the question of a line, by the scores among which they are
    compared and by name.
    """
    settings, parts = record.settings, record["metric"].split(".")[1:]
    left_out = {*ALWAYS_DESCRIPTIVE, *reporting.descriptive}
    everywhere, here = (record["task"], record["metric"]), _test_of(record)
    found: dict[_Place, str] = {}
    for name, value in settings.items():
        if name in left_out or reporting.only_for.get(name, "") not in ("", *parts):
            continue
        other, expected = reporting.by_encoder.get(name, ("", None))
        if other and settings.get(other) == expected:
            place = (*here, str(settings.get("encoder")), name)
        else:
            place = (*(here if name in reporting.by_test_set else everywhere), name)
        found[place] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if record.plain.get("texts") and "texts" not in left_out:
        found[*here, "texts"] = f"{record.plain['texts']:,}"
    return found


def _in_words(name: str, value: str) -> str:
    words = _WORDS.get(name, name.replace("_", " "))
    if value in ("True", "False"):
        return words if value == "True" else f"non-{words}"
    if len(value) > _LONGEST:  # a hash of the value keeps the names of questions distinct
        value = (
            f"{value[:_LONGEST]}… ({hashlib.blake2b(value.encode(), digest_size=2).hexdigest()})"
        )
    return f"{words}: {value}"
