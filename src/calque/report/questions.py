"""Group result lines by encoder or method ("subject") and by task, metric and test settings ("question")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from calque.errors import SettingError
from calque.report.numbers import Figure, average, figure_of, mean_of
from calque.report.reading import FORMER, Record, Results

BASE = "base"
_ABOUT_SEVERAL = (*FORMER, "examples")
_HEAD = (
    "protocol", "features", "head", "hidden", "layers", "arc", "label", "upos", "dropout", "unknown", "select", "epochs", "batch",
    "learning_rate", "warmup", "decay", "clip", "patience", "per_epoch",
)  # fmt: skip
_HEADS = ("ner", "slots", "pos", "nli", "sentiment", "parsing", "probing", "qa")
# Settings of each task that must be equal for two results to be comparable. Other settings only describe a result.
# A result line replaces an earlier line only if all of these settings are equal.
DEFINE = dict.fromkeys(_HEADS, _HEAD) | {
    "retrieval": ("contextual", "candidates", "similarity", "k", "special"),
    "sentences": ("sentence_pooling", "similarity", "k", "margin_k"),
    "word-alignment": ("links_from", "threshold", "temperature"),
    "lexicon": ("similarity", "k", "anchors", "lower", "candidates_from", "max_candidates"),
    "wsd": ("restrict", "first_senses"),
    "consistency": ("letters",),
    "masked-words": ("share",),
    "probing": ("probe", "width", *_HEAD),
    "qa": ("max_answer", *_HEAD),
}
# Settings that may differ between languages. They distinguish questions only if they differ for the same test set.
DEFINE_HERE = dict.fromkeys(_HEADS, ("train", "dev", "text")) | {
    "retrieval": ("links", "symmetrize", "train", "training_sentence_pairs"),
    "sentences": ("dev",),
    "lexicon": ("entries", "text"),
    "wsd": ("train",),
}
_WORDS = {
    "links": "links", "symmetrize": "symmetrisation", "train": "training text", "training_sentence_pairs": "training pairs",
    "links_from": "extraction", "dev": "development text",
    "learning_rate": "learning rate", "per_epoch": "texts per epoch", "first_senses": "first senses",
    "max_answer": "maximum answer length", "sentence_pooling": "pooling", "margin_k": "neighbours of margins",
}  # fmt: skip
# Main metrics by task; collapsed tables show the other metrics.
_MAIN = {
    "word-alignment": ("aer",), "lexicon": ("p@1",), "parsing": ("las",), "probing": ("f1",), "qa": ("f1",),
    "sentences": ("accuracy", "f1"),
}  # fmt: skip

_OF_TEXTS = ("unigram-perplexity",)  # metrics that describe a text and do not depend on the encoder


# -- subjects: encoders before and after alignment ---------------------------------------------------------------------
@dataclass(frozen=True)
class Subject:
    """Encoder before or after alignment, shown as a table row and as a series in plots.

    Attributes:
        label: name in the report.
        method: name of the method if the result lines contain one, otherwise the name of the encoder.
        group: folder of the study, and base encoder with its layer; subjects in the same group are comparable.
        number: index in order of first appearance, which determines the colour and shape of the marker.
        reference: whether the subject is not an encoder but, for example, a statistical aligner.
    """

    label: str
    method: str
    group: tuple[str, str]
    number: int
    reference: bool = False


@dataclass(frozen=True)
class Subjects:
    """All subjects in the results, with their baselines.

    Attributes:
        of: subject of each result line, by the line's source; lines about several encoders have no entry.
        base: baseline of each subject; baselines, references and subjects without a baseline have no entry.
        guessed: baselines chosen as the first subject of their group because no line names a baseline.
    """

    all: tuple[Subject, ...]
    of: Mapping[str, Subject]
    base: Mapping[Subject, Subject]
    guessed: tuple[Subject, ...] = ()

    def __getitem__(self, record: Record) -> Subject:
        return self.of[record.source]


def find_subjects(results: Results, base: str | None = None) -> Subjects:
    """Find the subjects, their labels and their baselines. A label consists of the values that differ between subjects.

    Lines of a study or demo name a method, and each folder is one experiment. Lines of `calque evaluate` name an encoder.
    `base` is the label of one baseline for all subjects. By default, the baseline of an aligned encoder is the base encoder
    that its lines name. For a method, it is `base`; for an encoder `X+…`, it is X; otherwise, it is the first subject.

    Raises:
        SettingError: no subject has the label `base`.
    """
    scores = [record for record in results.records if record.analysis is None]
    named = [{**record.plain, "folder": _folder(record)} for record in scores if record.plain.get("method")]
    keys = ("folder", "encoder", "supervision", "layer")
    values = {key: {plain.get(key) for plain in named} - {None, ""} for key in keys}
    hashes: dict[str, set[str]] = {}
    for record in scores:
        if not record.plain.get("method"):
            hashes.setdefault(_encoder(record), set()).add(_hash(record))

    labels: dict[str, tuple[str, tuple[str, str]]] = {}  # maps each label to its method and group
    label_of: dict[str, str] = {}  # maps the source of each line to its label
    by_hash: dict[str, str] = {}  # maps the fingerprint of each encoder to its label
    before: dict[str, str] = {}  # maps each label to the fingerprint of its base encoder
    with_encoder: set[str] = set()
    for record in sorted(results.records, key=lambda record: record.analysis is not None):  # scores come first
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
            parts = [run, *(part or "" for key, part in known.items() if not key or len(values[key]) > 1)]
            group = (folder, f"{plain.get('encoder') or ''} {plain.get('layer')}")
        else:
            method = _encoder(record)
            several = record.analysis is None and len(hashes[method]) > 1
            parts, group = [run, method, _hash(record)[:6] if several else ""], (run, "")
        label = " · ".join(part for part in parts if part)
        labels.setdefault(label, (method, group))
        label_of[record.source] = label
        if not plain.get("method") and record.analysis is None:
            by_hash[_hash(record)] = label
            before[label] = (record.settings.get("aligned") or {}).get("base_fingerprint", "")
        if record.settings.get("encoder") or record.analysis is not None:
            with_encoder.add(label)
    subjects = {
        label: Subject(label, method, group, number, bool(with_encoder) and label not in with_encoder)
        for number, (label, (method, group)) in enumerate(labels.items())
    }
    of = {source: subjects[label] for source, label in label_of.items()}
    made_of = {subjects[label]: subjects[by_hash[each]] for label, each in before.items() if each in by_hash}
    return Subjects(tuple(subjects.values()), of, *_bases(list(subjects.values()), base, made_of))


def _folder(record: Record) -> str:
    return record.file.rpartition("/")[0]


def _encoder(record: Record) -> str:
    return record.plain.get("encoder") or str(record.settings.get("encoder") or "no encoder")


def _hash(record: Record) -> str:
    return str(record.settings.get("encoder_fingerprint"))


def _bases(
    subjects: Sequence[Subject], base: str | None, made_of: Mapping[Subject, Subject]
) -> tuple[dict[Subject, Subject], tuple[Subject, ...]]:
    """Return the baseline of each subject, and the guessed baselines; `made_of` contains the baselines named in the lines."""
    compared = [subject for subject in subjects if not subject.reference]
    if base is not None:
        chosen = next((subject for subject in compared if subject.label == base), None)
        if chosen is None:
            raise SettingError(f"base must be one of {', '.join(s.label for s in compared)}, got {base!r}")
        return {subject: chosen for subject in compared if subject != chosen}, ()
    bases, guessed = {}, {}
    for subject in compared:
        group = [other for other in compared if other.group == subject.group]
        named = [made_of[subject]] if subject in made_of else [other for other in group if other in made_of.values()]
        plain = named or [other for other in group if other.method == BASE]
        shorter = [other for other in group if subject.method.startswith(f"{other.method}+")]
        chosen = plain[0] if plain else max(shorter or group[:1], key=lambda other: len(other.method))
        if chosen != subject and (subject in made_of or subject not in made_of.values()):
            bases[subject] = chosen
            guessed |= {} if plain or shorter else {chosen: None}
    return bases, tuple(guessed)


# -- questions: a task and metric, with subjects as rows and test sets as columns --------------------------------------
@dataclass(frozen=True)
class Column:
    """Test set. `lang` is its language, or the pair if source languages differ. `data` is its file or data set. `is_source`
    is true for the training language. `label` is the column header, with the file name if several columns share a language."""

    lang: str
    data: str
    is_source: bool = False
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class Question:
    """Scores for one task, metric and variant by subject and test set. `variant` describes the settings that distinguish this
    question from other questions of the task. In `columns`, the training language comes first."""

    task: str
    metric: str
    variant: str
    columns: tuple[Column, ...]
    subjects: tuple[Subject, ...]
    cells: Mapping[tuple[Subject, Column], Figure]

    @property
    def targets(self) -> tuple[Column, ...]:
        """Columns in languages other than the training language; all columns if there are no other languages."""
        return tuple(column for column in self.columns if not column.is_source) or self.columns

    def mean(self, subject: Subject) -> Figure | None:
        """Return the mean over `targets`; None if there is only one target or the subject has no score on one of them."""
        cells = [cell for column in self.targets if (cell := self.cells.get((subject, column))) is not None]
        return mean_of(cells) if len(cells) == len(self.targets) > 1 else None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task, self.metric, self.variant

    @property
    def is_main(self) -> bool:
        """Whether the metric is a main metric of the task rather than, for example, recall or the score of one direction."""
        stem, _, part = self.metric.partition(".")
        return part in ("", "all", "unseen") and stem in _MAIN.get(self.task, (stem,)) and stem not in _OF_TEXTS


def sort_questions(records: Iterable[Record], subjects: Subjects) -> tuple[list[Question], int]:
    """Group scores into questions in the order of the lines; return the questions and the number of replaced lines.

    Lines for the same subject and question are averaged if their encoders (fingerprints), seeds or training seeds differ:
    first within each training run, then over runs. A line replaces an earlier line if both agree in encoder, seed, training seed
    and all settings that define the question (`DEFINE`).
    """
    superseded = 0
    records = [record for record in records if record.analysis is None]
    variants = _variants(records)
    sources_of: dict[str, set[str]] = {}
    for record in records:
        sources_of.setdefault(record["task"], set()).update(record.pair[:1] if len(record.pair) > 1 else ())
    groups: dict[tuple[str, str, str], dict[tuple[Subject, Column], dict[object, Record]]] = {}
    for record in records:
        *sources, tested = pair = record.pair
        lang = "-".join(pair) if len(sources_of[record["task"]]) > 1 and len(pair) == 2 else tested
        column = Column(lang, record["data"], tested in sources, label=lang)
        key = (record["task"], record["metric"], variants[record.source])
        cell = groups.setdefault(key, {}).setdefault((subjects[record], column), {})
        model = _hash(record), str(record.plain.get("seed")), str(record.plain.get("training_seed"))
        superseded += model in cell
        cell[model] = record
    questions = []
    for key, lines in groups.items():
        columns = sorted(dict.fromkeys(column for _, column in lines), key=lambda column: not column.is_source)
        langs = [column.lang for column in columns]
        files = [f" ({PurePath(c.data).name})" if c.data and langs.count(c.lang) > 1 else "" for c in columns]
        columns = [replace(c, label=f"{c.lang}{file}") for c, file in zip(columns, files, strict=True)]
        cells = {place: pooled(list(own.values())) for place, own in lines.items()}
        answered = sorted({subject for subject, _ in lines}, key=lambda s: s.number)
        questions.append(Question(*key, tuple(columns), tuple(answered), cells))
    return questions, superseded


def pooled(lines: Sequence[Record]) -> Figure:
    """Return the mean over the training runs of one method. If the lines have no seeds, each encoder is one run."""
    seeds = [line.plain.get("training_seed") for line in lines]
    runs = [line.settings.get("encoder_fingerprint") if s is None else s for s, line in zip(seeds, lines, strict=True)]
    return average([figure_of(line) for line in lines], runs)


def _variants(records: Sequence[Record]) -> dict[str, str]:
    """Describe the settings that distinguish the question of each line from other questions of its task, keyed by source.

    Missing settings do not distinguish questions, because lines from older versions have fewer settings.
    """
    keys = {record.source: _asked(record) for record in records}
    values: dict[object, set[str]] = {}
    for asked in keys.values():
        for place, value in asked.items():
            values.setdefault(place, set()).add(value)
    return {
        source: ", ".join(_in_words(place[-1], value) for place, value in asked.items() if len(values[place]) > 1)
        for source, asked in keys.items()
    }


def _asked(record: Record) -> dict[tuple[str, ...], str]:
    """Return the settings that define the question of a line, by scope and name."""
    task, metric, settings = record["task"], record["metric"], record.settings
    here, define = (task, metric, record["data"], *record.pair), DEFINE.get(task, ())
    asked: dict[tuple[str, ...], str] = {(task, name): str(settings[name]) for name in define if name in settings}
    if settings.get("features") == "tuned" and (task, "learning_rate") in asked:
        # The default depends on the encoder's dimension, so learning rates are compared only within one encoder.
        asked[*here, str(settings.get("encoder")), "learning_rate"] = asked.pop((task, "learning_rate"))
    for name in DEFINE_HERE.get(task, ()):
        indifferent = task == "retrieval" and name.startswith("train") and metric.split(".")[1:2] != ["unseen"]
        if name in settings and not indifferent:  # the training text matters only for unseen pairs
            value = settings[name]
            asked[*here, name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if record.plain.get("texts") and task != "lexicon":  # in a lexicon, the number of texts depends on the encoder
        asked[*here, "texts"] = f"{record.plain['texts']:,}"
    return asked


def _in_words(name: str, value: str) -> str:
    if value in ("True", "False"):
        return name.replace("_", " ") if value == "True" else f"non-{name.replace('_', ' ')}"
    return f"{_WORDS.get(name, name)}: {value}"
