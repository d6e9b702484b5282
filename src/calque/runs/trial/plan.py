"""Settings and texts of a trial, and the study that answers it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.corpora.languages import best_match, language_of, name_and_path
from calque.errors import SettingError, did_you_mean
from calque.runs.settings import Overwrite, OwnOption, Quiet, Several, named_pairs
from calque.runs.study.recipe import BASE
from calque.runs.trial.verdict import USES, Use
from calque.spec import Count, Few, argument, files, option
from calque.tasks.table import trains_head

CONTRASTIVE, STANDARDIZE = "contrastive", "standardize"
# Default heads of tagging tasks on frozen vectors: without an LSTM, they train in seconds.
_QUICK_HEADS = {"pos": "linear", "ner": "linear-crf", "slots": "linear-crf"}
_FROZEN_EPOCHS = 40  # epochs of heads on frozen vectors if they are trained again for longer
_LORA = 8


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings of `calque try`."""

    encoder: str = argument(..., "Hugging Face name or folder of the encoder.", "ENCODER")
    pairs: list[str] = option(
        ...,
        "Parallel texts, given as FILE or en-de=FILE; the language of --train comes first.",
        metavar="FILE...",
        several=True,
    )
    task: str = option(..., "Task with a trained head: ner, pos, slots, nli, sentiment, parsing, …")
    train: list[str] = option(
        ...,
        "Training text of the task; write en=FILE if its name has no language.",
        metavar="FILE...",
        several=True,
    )
    test: list[str] = option(
        ...,
        "Test texts of the task: in the languages of --pairs, and best also in that of --train.",
        metavar="FILE...",
        several=True,
    )
    dev: Several = files("Development text in the language of --train, for choosing the epoch.")
    out: Path = option(
        ..., "Folder for the aligned encoder, which is written only if alignment helps."
    )
    folder: Path | None = option(
        None, "Folder for the study, the scores and the report; default: OUT-trial."
    )
    uses: Several = files(
        "Uses of the encoder to compare: frozen (only the task head is trained), mixed (frozen, "
        "with a head on a mixture of all layers) or tuned (the encoder is trained with the head, "
        "which takes longest); default: all three.",
        "USE...",
    )
    runs: Few = option(3, "Number of training runs; three is the fewest that can be tested.")
    limit: Count = option(1000, "Use at most N evenly spaced texts of each --train file.")
    test_limit: Count = option(500, "Use at most N evenly spaced texts of each --test file.")
    pairs_limit: Count = option(2000, "Use at most N evenly spaced sentence pairs of each text.")
    options: OwnOption = None
    overwrite: Overwrite = False
    quiet: Quiet = False

    @property
    def place(self) -> Path:
        """Folder for the study, the scores and the report."""
        return self.folder or self.out.with_name(f"{self.out.name}-trial")

    @property
    def compared_uses(self) -> tuple[Use, ...]:
        """The uses that are compared.

        Raises:
            SettingError: a use is unknown.
        """
        for name in self.uses or ():
            if name not in USES:
                raise SettingError(
                    f"--uses {name}: expected {', '.join(USES)}{did_you_mean(name, USES)}"
                )
        return tuple(use for use in USES if self.uses is None or use in self.uses)


# -- texts ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TrialTexts:
    """Files of a trial by language.

    Attributes:
        source: language of the training text.
        targets: languages of the test texts, without `source`.
        pairs: parallel text of each aligned language.
        train, dev, test: languages and paths of the texts of the task.
    """

    source: str
    targets: tuple[str, ...]
    pairs: Mapping[str, str]
    train: tuple[tuple[str, str], ...]
    dev: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, settings: TrialSettings) -> TrialTexts:
        """Read the languages of all files from their names.

        Raises:
            SettingError: a language is missing, or no aligned language has a test text.
        """
        if not trains_head(settings.task):
            raise SettingError(
                f"--task {settings.task} trains no task head; use calque align and calque evaluate "
                "to measure it"
            )
        train = _named("--train", settings.train)
        source = train[0][0]
        if any(lang != source for lang, _ in train):
            raise SettingError("--train must be in one language")
        paths, langs = named_pairs(settings.pairs, [])
        if len(langs) != len(paths):
            raise SettingError("--pairs: the languages of a text are unknown; write en-de=FILE")
        pairs: dict[str, str] = {}
        for path, (first, second) in zip(paths, langs, strict=True):
            if first != source:
                raise SettingError(
                    f"--pairs {first}-{second}={path}: the first language must be {source}, that "
                    "of --train"
                )
            if second in pairs:
                raise SettingError(f"--pairs: there are two texts in {source} and {second}")
            pairs[second] = str(Path(path).resolve())
        test = _named("--test", settings.test)
        test_langs = [lang for lang, _ in test]
        for lang in test_langs:
            if test_langs.count(lang) > 1:
                raise SettingError(f"--test has several texts in {lang}; give one per language")
        targets = tuple(lang for lang in test_langs if lang != source)
        if not any(best_match(lang, pairs) for lang in targets):
            raise SettingError(
                f"--test has no text in {', '.join(pairs)}, the languages of --pairs"
            )
        return cls(source, targets, pairs, train, _named("--dev", settings.dev or []), test)


def _named(flag: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the language and the absolute path of each file."""
    texts = []
    for name in names:
        lang, path = name_and_path(name)
        lang = lang or language_of(path) or ""
        if not lang:
            raise SettingError(
                f"{flag} {name}: the language is unknown; write, for example, de={name}"
            )
        texts.append((lang, str(Path(path).resolve())))
    return tuple(texts)


# -- the study -------------------------------------------------------------------------------------
def study_tables(
    settings: TrialSettings,
    texts: TrialTexts,
    methods: Sequence[str],
    load: Mapping[str, Any],
    options: Mapping[str, Any],
    longer: float = 1,
) -> dict[str, Any]:
    """Return the tables of the study file.

    Args:
        methods: methods to compare with the published encoder.
        load, options: see `try_alignment`.
        longer: number by which the epochs of heads on frozen vectors are multiplied.
    """
    encoder = Path(settings.encoder)
    table: dict[str, Any] = {
        "path": str(encoder.resolve()) if encoder.exists() else settings.encoder
    }
    if load.get("layer") is not None:
        table["layers"] = [load["layer"]]
    table["pooling"] = load.get("pooling")
    of_methods: dict[str, dict[str, Any]] = {BASE: {}}
    for method in methods:
        of_methods[method] = {}
    has_adapters = importlib.util.find_spec("peft") is not None
    if has_adapters:
        of_methods[CONTRASTIVE]["lora"] = _LORA
    task = {
        "task": settings.task,
        "train": _with_language(texts.train),
        "test": _with_language(texts.test),
        "dev": _with_language(texts.dev) or None,
        "limit": settings.limit,
        "test_limit": settings.test_limit,
        **options,
    }
    frozen = {**task, "seeds": settings.runs}
    if settings.task in _QUICK_HEADS:
        frozen.setdefault("head", _QUICK_HEADS[settings.task])
    if longer != 1:
        frozen["epochs"] = options.get("epochs", _FROZEN_EPOCHS) * longer
    tuned = {**task, "tune": True}
    tuned.pop("head", None)
    # One head on each encoder that is trained on the task; for the published encoder, as many
    # heads as there are training runs.
    published, aligned = _tuned_names(settings.task)
    tasks: dict[str, dict[str, Any]] = {}
    for use in settings.compared_uses:
        if use == "frozen":
            tasks[_name(settings.task, use)] = frozen
        elif use == "mixed":
            tasks[_name(settings.task, use)] = {**frozen, "layers": "mix"}
        else:
            tasks[published] = {**tuned, "seeds": settings.runs, "methods": [BASE]}
            tasks[aligned] = {**tuned, "seeds": 1, "methods": [CONTRASTIVE]}
    return {
        "source": texts.source,
        "towards": texts.source,
        "runs": settings.runs,
        "out": "study",
        "encoders": {"encoder": table},
        "methods": of_methods,
        "supervision": {"pairs": {"limit": settings.pairs_limit, **texts.pairs}},
        "tasks": tasks,
    }


def _with_language(texts: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{lang}={path}" for lang, path in texts]


def _name(task: str, use: Use) -> str:
    """Return the name of a task in the scores of a trial."""
    return task if use == "frozen" else f"{task}, {use}"


def _tuned_names(task: str) -> tuple[str, str]:
    """Return the names of the two tables of the study that train the published and the aligned
    encoders on the task.
    """
    name = _name(task, "tuned")
    return f"{name}, published", f"{name}, aligned"


def renamed(record: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return a record of the study with one name for the task that has two tables in the study."""
    if record["task"] in _tuned_names(task):
        return {**record, "task": _name(task, "tuned"), "kind": task}
    return dict(record)
