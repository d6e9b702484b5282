"""What was measured: which lines are about the same encoder, what it is called, and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calque.errors import SettingError
from calque.report.reading import Record, Results

BASE = "base"
_ABOUT_SEVERAL = ("correlation", "examples")  # the former of older files


@dataclass(frozen=True)
class Subject:
    """A row of the tables and a line of the plots: an encoder, as it is or aligned by a method.

    Attributes:
        label: its name in the report.
        method: the method where the lines name one, otherwise the encoder.
        group: what it shares with the subjects that it may be compared with: the encoder it was made of, and the study.
        number: in the order of the files; decides colour and shape.
        reference: it is no encoder, such as a statistical aligner.
    """

    label: str
    method: str
    group: tuple[str, str]
    number: int
    reference: bool = False


@dataclass(frozen=True)
class Subjects:
    """All subjects of the results.

    Attributes:
        of: the subject of each line, by source. Lines about several encoders at once have none.
        base: with what a subject is compared; not in it: the base itself, references, and what has nothing beside it.
    """

    all: tuple[Subject, ...]
    of: Mapping[str, Subject]
    base: Mapping[Subject, Subject]

    def __getitem__(self, record: Record) -> Subject:
        return self.of[record.source]


def find_subjects(results: Results, base: str | None = None) -> Subjects:
    """Tell the subjects apart and name them by what differs.

    Lines of a study or a demo name a method; each such file is an experiment of its own, whose methods are not mixed with
    another's. Lines of `calque evaluate` name an encoder, wherever they stand.

    Args:
        results: what was read.
        base: label of the subject that all others are compared with. Otherwise a method is compared with `base`, an encoder
            named `X+…` with X, and every other one with the first.

    Raises:
        SettingError: nothing is called `base`.
    """
    scores = [record for record in results.records if record.analysis is None]
    named = [record for record in scores if record.plain.get("method")]
    experiments = list(dict.fromkeys(_folder(record) for record in named))
    encoders = {record.plain.get("encoder") for record in named} - {None, ""}
    supervisions = {record.plain.get("supervision") for record in named} - {None, ""}
    fingerprints: dict[str, set[str]] = {}
    for record in scores:
        if not record.plain.get("method"):
            fingerprints.setdefault(_encoder(record), set()).add(str(record.settings.get("encoder_fingerprint")))

    labels: dict[str, tuple[str, tuple[str, str]]] = {}
    labels_by_source: dict[str, str] = {}
    with_encoder: set[str] = set()
    for record in sorted(results.records, key=lambda record: record.analysis is not None):  # scores decide the order
        if record.analysis in _ABOUT_SEVERAL:
            continue
        folder, method = _folder(record), record.plain.get("method")
        run = folder if len(experiments) > 1 and folder in experiments else ""
        if method:
            encoder = record.plain.get("encoder") or ""
            parts = [run, encoder if len(encoders) > 1 else "", method]
            parts.append((record.plain.get("supervision") or "") if len(supervisions) > 1 else "")
            group = (folder, encoder)
        else:
            encoder = _encoder(record)
            method, parts = encoder, [run, encoder]
            if record.analysis is None and len(fingerprints[encoder]) > 1:
                parts.append(str(record.settings.get("encoder_fingerprint"))[:6])
            group = (run, "")
        label = " · ".join(part for part in parts if part)
        labels.setdefault(label, (method, group))
        labels_by_source[record.source] = label
        if record.settings.get("encoder") or record.analysis is not None:
            with_encoder.add(label)
    subjects = {
        label: Subject(label, method, group, number, bool(with_encoder) and label not in with_encoder)
        for number, (label, (method, group)) in enumerate(labels.items())
    }
    return Subjects(
        tuple(subjects.values()),
        {source: subjects[label] for source, label in labels_by_source.items()},
        _bases(list(subjects.values()), base),
    )


def _folder(record: Record) -> str:
    return record.file.rpartition("/")[0]


def _encoder(record: Record) -> str:
    return record.plain.get("encoder") or str(record.settings.get("encoder") or "no encoder")


def _bases(subjects: Sequence[Subject], base: str | None) -> dict[Subject, Subject]:
    compared = [subject for subject in subjects if not subject.reference]
    if base is not None:
        chosen = next((subject for subject in compared if subject.label == base), None)
        if chosen is None:
            raise SettingError(f"no encoder or method is called {base!r}, only {', '.join(s.label for s in compared)}")
        return {subject: chosen for subject in compared if subject != chosen}
    bases = {}
    for subject in compared:
        group = [other for other in compared if other.group == subject.group]
        plain = [other for other in group if other.method == BASE]
        shorter = [other for other in group if subject.method.startswith(f"{other.method}+")]
        chosen = plain[0] if plain else max(shorter or group[:1], key=lambda other: len(other.method))
        if chosen != subject:
            bases[subject] = chosen
    return bases
