"""From a study that is done to the table that advice is fitted on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import calque
from calque.analyses.advice import Cell, Question, leave_out
from calque.errors import InputError, SettingError
from calque.linking import Say, Words
from calque.runs.advice_table import AdviceTable, Row
from calque.runs.advise import LinkedText, gradient_of, learns
from calque.runs.compare import Estimate, error_of_gap, estimate, over_tests, over_trainings, read_scores
from calque.runs.shown import columns
from calque.runs.steps import Step, Steps
from calque.runs.study.grid import Grid
from calque.runs.study.grid import Row as Encoded
from calque.runs.study.plan import BASE, Study, listed
from calque.runs.study.reading import read_study
from calque.runs.study.work import WORK, encoder_of
from calque.tasks.table import TASKS, option_names

MEASURED = "measured.json"
Key = tuple[str, int | None, str, str, str, str, str]  # encoder, layer, method, supervision, task, test, language
Gain = tuple[Key, float, float]  # in points, and its standard error


def fit(
    study: str | Path,
    *,
    data: str | Path | None = None,
    results: str | Path | None = None,
    say: Say = lambda line: None,
) -> AdviceTable:
    """Measure the encoders of a study on its own texts, each once, and put beside that what each alignment brought.

    Of its results count those of tasks that are learnt, on text in languages that were aligned on parallel text and in the
    language that was learnt from. What is measured is kept among the study's steps, so that a fit that was stopped goes on.

    Args:
        study: TOML file.
        data: folder of its texts, instead of its own.
        results: folder of its results, instead of its own.
        say: takes a line of news.

    Raises:
        InputError: there are no results of it yet.
        SettingError: nothing in it can be learnt from.
    """
    plan = read_study(study)
    if data is not None:
        plan = replace(plan, data=str(Path(data).resolve()))
    folder = Path(plan.folder) / plan.out if results is None else Path(results)
    file = folder / "results.jsonl"
    if not file.exists():
        raise InputError(f"no results yet: do `calque study {study}` first", path=file)
    found = _Results(plan, read_scores(file))
    if found.without_error:
        say(f"{found.without_error:,} figures without an interval left out")
    gains = [each for each in found.gains() if plan.supervision.get(each[0][3], {}).get("kind") == "parallel"]
    if not gains:
        raise SettingError(
            f"{study}: no task that is learnt was measured before and after a method that learns from parallel text, so there "
            "is nothing to fit"
        )
    steps = Steps(folder / "steps", {**WORK, "features": _features, "gradient": _gradient})
    measures = _Measures(plan, Grid(plan, steps), steps, say)
    rows = list(_rows(plan, gains, found.tuned, measures))
    about = {"study": Path(study).name, "source": plan.source, "encoders": measures.names, "calque": calque.__version__}
    return AdviceTable(about, rows)


# -- what was found ----------------------------------------------------------------------------------------------------
class _Results:
    """Figures of a study by what they are of: the first metric of each task that is learnt, several trainings as one."""

    def __init__(self, plan: Study, records: Sequence[Mapping[str, Any]]):
        self.plan, self.metrics, self.without_error = plan, {}, 0
        groups: dict[Key, dict[Any, list[Estimate]]] = {}
        self.tuned: dict[str, bool] = {}
        for record in records:
            task, settings = record["task"], record.get("settings") or {}
            if task not in plan.tasks or settings.get("protocol") != "zero-shot" or len(record["languages"]) < 2:
                continue
            if record["metric"] != self.metrics.setdefault(task, record["metric"]):
                continue
            known = estimate(record)
            if known is None:
                self.without_error += 1
            else:
                self.tuned[task] = settings.get("features") == "tuned"
                scale = 100.0 if record.get("percent", True) else 1.0
                named = (str(record["encoder"]), record.get("layer"), str(record["method"]), str(record["supervision"]))
                key = (*named, task, str(record["data"]), str(record["languages"][-1]))
                groups.setdefault(key, {}).setdefault(record.get("training_seed"), []).append(_scaled(known, scale))
        # Encoders of one seed that are made for a language each: all are measured in the language that was learnt from.
        self.figures = {
            key: over_trainings([over_tests(several) for several in seeds.values()]) for key, seeds in groups.items()
        }

    def gains(self) -> Iterator[Gain]:
        """Of every figure of a method, over the encoder before it."""
        for key, figure in self.figures.items():
            encoder, layer, method, _, task, test, lang = key
            before = self.figures.get((encoder, layer, BASE, "", task, test, lang))
            if method != BASE and before is not None:
                yield key, figure.value - before.value, error_of_gap(figure, before)


def _scaled(figure: Estimate, scale: float) -> Estimate:
    return Estimate(
        scale * figure.value, tuple(scale * run for run in figure.runs),
        (scale**2 * figure.of_runs[0], figure.of_runs[1]), (scale**2 * figure.of_texts[0], figure.of_texts[1]),
        None if figure.resamples is None else scale * figure.resamples, figure.texts,
    )  # fmt: skip


def _rows(plan: Study, gains: Sequence[Gain], tuned: Mapping[str, bool], measures: _Measures) -> Iterator[Row]:
    unaligned: dict[str, int] = {}
    languages: dict[str, set[str]] = {}  # in which a task is tested
    for key, *_ in gains:
        languages.setdefault(key[4], set()).add(key[6])
    for (encoder, layer, method, learnt, name, test, lang), gain, error in gains:
        langs, source = plan.languages(plan.supervision[learnt]), lang == plan.source
        if not source and lang not in langs:  # nothing is measured of it
            unaligned[lang] = unaligned.get(lang, 0) + 1
            continue
        own = [lang] if not source else [each for each in langs if each in languages[name]] or langs
        measured = [measures.of(encoder, layer, learnt, each, name) for each in own]
        shared = set.intersection(*(set(each.values) for each in measured))
        values = {key: sum(each.values[key] for each in measured) / len(measured) for key in measured[0].values
                  if key in shared}  # fmt: skip
        task = str(plan.tasks[name]["task"])
        kind = f"{task}, tuned" if tuned[name] else task
        about = Question(measured[0].fingerprint, lang, kind, values)
        yield Row(method, source, f"{name}: {Path(test).name}", Cell(about, gain, error))
    if unaligned:
        counts = ", ".join(f"{lang} {count:,}" for lang, count in unaligned.items())
        measures.say(f"cells of languages that were not aligned, left out: {counts}")


# -- what is measured --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Measured:
    fingerprint: str
    values: dict[str, float]


class _Measures:
    """What is measured of the encoders before any method, each once.

    Attributes:
        names: of the encoders, by fingerprint.
    """

    def __init__(self, plan: Study, grid: Grid, steps: Steps, say: Say):
        self.plan, self.grid, self.steps, self.say = plan, grid, steps, say
        self.names: dict[str, str] = {}

    def of(self, encoder: str, layer: int | None, learnt: str, lang: str, task: str) -> _Measured:
        """Of an encoder and a text, and of a task's gradient."""
        row, texts, given = self._base(encoder, layer, lang), self.plan.supervision[learnt], self.plan.tasks[task]
        read = {name: texts[name] for name in ("limit", "pretokenized") if name in texts}
        about = {"langs": [self.plan.source, lang], "words": {**self.plan.words, **read}, "load": row.load}
        label = f"{encoder}, {self.plan.source}-{lang}, {learnt}"
        files = {"text": [self.plan.path(texts[lang])]}
        found = self._done("features", row, about, files, label)
        self.names[found["fingerprint"]] = encoder
        values = dict(found["features"])
        train = [self.plan.named(file) for file in listed(given.get("train"))]
        if learns(given["task"]) and train:
            own = [*option_names(TASKS.load(given["task"])), "pretokenized"]
            options = {name: given[name] for name in own if name in given}
            settings = {**about, "task": given["task"], "train": [name for name, _ in train], "options": options}
            files = {**files, "train": [file for _, file in train]}
            cosine = self._done("gradient", row, settings, files, f"{label}, {task}")["gradient"]
            values |= {} if cosine is None else {"gradient": cosine}
        return _Measured(found["fingerprint"], values)

    def _base(self, encoder: str, layer: int | None, lang: str) -> Encoded:
        """The encoder itself; the first of several trainings."""
        for row in self.grid.rows:
            about = row.about
            asked = (about["encoder"], about["layer"], about["method"]) == (encoder, layer, BASE)
            if asked and (row.langs is None or lang in row.langs):
                return row
        raise SettingError(f"the study has no {encoder} of its own, before any method: add `base` to its methods")

    def _done(self, kind: str, row: Encoded, about: Mapping[str, Any], files: Mapping[str, Any], label: str) -> Any:
        settings, after = dict(about), {}
        files = dict(files)
        self.grid.refer("encoder", row.encoder, settings, files, after)
        if isinstance(row.encoder, Step) and not self.steps.is_done(row.encoder):
            raise InputError("this encoder of the study is not there: do the study first", path=after["encoder"][0])
        step = self.steps.step(kind, settings, files, after, label)
        if not self.steps.is_done(step):
            self.say(f"{kind} of {label}")
        return json.loads((self.steps.do(step) / MEASURED).read_text(encoding="utf-8"))


def _features(step: Step, folder: Path) -> None:
    from calque.encoders import load_encoder

    encoder = load_encoder(encoder_of(step), **step.settings["load"])
    text = LinkedText.read(step.files["text"][0], tuple(step.settings["langs"]), Words(**step.settings["words"]))
    _write(folder, {"fingerprint": encoder.fingerprint, "features": text.features(encoder)})


def _gradient(step: Step, folder: Path) -> None:
    from calque.encoders import load_encoder

    about = step.settings
    encoder = load_encoder(encoder_of(step), **about["load"])
    text = LinkedText.read(step.files["text"][0], tuple(about["langs"]), Words(**about["words"]))
    lang = TASKS[about["task"]].lang or ""
    train = [f"{own or lang}={file}" for own, file in zip(about["train"], step.files["train"], strict=True)]
    options = dict(about["options"])
    pretokenized = bool(options.pop("pretokenized", False))
    found = gradient_of(encoder, about["task"], train, text, options, pretokenized=pretokenized)
    _write(folder, {"gradient": found})


def _write(folder: Path, found: Mapping[str, Any]) -> None:
    (folder / MEASURED).write_text(json.dumps(found) + "\n", encoding="utf-8")


# -- how good it is ----------------------------------------------------------------------------------------------------
def assessment(table: AdviceTable) -> str:
    """What the fit says of cells that it has not seen, by method: of left-out languages, and of left-out tasks."""
    heads = ("cells", "signs", "signs told", "unknown", "error", "of the mean", "within 3", "covered")
    rows: list[tuple[str, ...]] = [("method", "left out", *heads)]
    untested = []
    for method in table.methods:
        for group in ("language", "task"):
            try:
                found = leave_out(table.cells(method), group).summary()
            except SettingError as error:
                untested.append(f"{method}, without each {group} in turn: {error}")
                continue
            shares = [_share(found[name]) for name in ("signs", "signs_told", "unknown")]
            errors = ["" if found[name] is None else f"{found[name]:.1f}" for name in ("mean_error", "guess")]
            ends = [_share(found[name]) for name in ("within", "covered")]
            rows.append((method, f"each {group}", str(found["cells"]), *shares, *errors, *ends))
    note = (
        "Cells: a task in a language. Signs: of the gain, right in so many of all cells, and of those of which one is told. "
        "Error: mean, in points, of the fit, and of the mean gain as a guess. Covered: by the interval."
    )
    return "\n".join([*columns(rows, range(2, 10)), "", note, *untested])


def _share(value: float | int | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"
