"""Find out whether alignment helps one task: train, compare, and save the encoder only if it helps.

A trial is a study that ends with an answer in one sentence. The published encoder and the aligned
encoders are measured on the user's task in three uses: frozen, so that only a task head is trained
on the output layer; frozen, with a head on a learned mixture of all layers; and trained together
with the head. The trial writes its study file, so every score can be computed again with
`calque study`.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.corpora.languages import best_match, language_of, name_and_path
from calque.errors import SettingError, did_you_mean
from calque.input_texts import Say, Words
from calque.runs import study as studies
from calque.runs.compare import (
    Estimate,
    difference_interval,
    estimate,
    holm,
    lower_is_better,
    outcome,
    over_tests,
    over_trainings,
    p_value,
    too_few,
)
from calque.runs.folder import check
from calque.runs.reading import Wish, linked_sample, read_encoder
from calque.runs.settings import Overwrite, OwnOption, Quiet, Several, named_pairs
from calque.runs.steps import Steps
from calque.runs.study.grid import Grid
from calque.runs.study.recipe import BASE, Study, read_study
from calque.runs.study.work import WORK
from calque.runs.study.writing import study_text
from calque.spec import Count, Few, argument, files, option
from calque.storage import json_text, write_text
from calque.tasks.reporting import NOT_CONVERGED, warnings_of
from calque.tasks.table import TASKS, trains_head

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.text import ParallelCorpus, Sentences

Record = Mapping[str, Any]
Use = Literal["frozen", "mixed", "tuned"]
Decision = Literal["ship", "don't", "unknown"]

#: how each use is described in a sentence
USES: dict[Use, str] = {
    "frozen": "a frozen encoder",
    "mixed": "a frozen encoder whose layers are mixed",
    "tuned": "an encoder that is trained on the task",
}
ENCODER, PAIRS, CONTRASTIVE, STANDARDIZE = "encoder", "pairs", "contrastive", "standardize"
STUDY_FILE, RESULTS, VERDICT, REPORT = "study.toml", "results.jsonl", "verdict.json", "report.html"
# Default heads of tagging tasks on frozen vectors: without an LSTM, they train in seconds.
_QUICK_HEADS = {"pos": "linear", "ner": "linear-crf", "slots": "linear-crf"}
# Heads on frozen vectors that have not converged are trained again, with this many times the epochs.
_LONGER = (1, 3, 8)
_FROZEN_EPOCHS = 40
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
        "Uses of the encoder to compare: frozen (only the task head is trained), mixed (frozen, with "
        "a head on a mixture of all layers) or tuned (the encoder is trained with the head, which "
        "takes longest); default: all three.",
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


# -- result ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gain:
    """Difference between an aligned and the published encoder, in the unit of the score.

    Attributes:
        value: gain; positive if the aligned encoder is better.
        low, high: ends of its 95% interval over training runs and texts.
        outcome: "better", "worse" or "unclear", after correction for all comparisons of the trial.
    """

    value: float
    low: float
    high: float
    outcome: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of one method with the published encoder in one use.

    Attributes:
        mean: gain on average over the target languages; None if it cannot be tested.
        by_language: gain in each target language.
        source: gain in the language of the training text; None if there is no such test text.
        base, aligned: mean scores over the target languages.
        warnings: reasons why the scores must not be compared.
    """

    use: Use
    method: str
    mean: Gain | None
    by_language: Mapping[str, Gain]
    source: Gain | None
    base: float
    aligned: float
    warnings: tuple[str, ...] = ()

    @property
    def decision(self) -> Decision:
        """Whether to use the aligned encoder: yes, if the mean gain is clear, and no target
        language clearly loses.
        """
        if self.mean is None:
            return "unknown"
        losses = [gain for gain in self.by_language.values() if gain.outcome == "worse"]
        if self.mean.outcome == "better" and not losses:
            return "ship"
        return "don't"


@dataclass(frozen=True)
class Verdict:
    """Answer of a trial.

    Attributes:
        method: method of the encoder to ship; None if there is none.
        sentences: the answer in one sentence, and one for each further use.
        comparisons: the comparisons that the answer rests on.
    """

    method: str | None
    sentences: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()


# -- running ---------------------------------------------------------------------------------------
def try_alignment(
    settings: TrialSettings,
    *,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int = 1,
    say: Say = lambda line: None,
    then: Callable[[Path, Verdict], object] = lambda folder, verdict: None,
) -> Verdict:
    """Compare the published encoder with aligned encoders on a task, and save the better one.

    Finished steps are not repeated, so an interrupted trial resumes.

    Args:
        load: keyword arguments of `load_encoder` (layer, pooling).
        options: options of the task.
        workers: number of parallel processes.
        then: function that is called with the folder of the trial and the verdict, to add files.

    Raises:
        SettingError: the task trains no head, or a language is missing.
    """
    from calque.encoders.loading import load_encoder

    check(settings.out, overwrite=settings.overwrite)
    uses, texts = settings.compared_uses, _Texts.of(settings)
    place = settings.place
    corpora = _corpora(settings, texts)
    wish = Wish.of(load, usual=True)
    with wish.loading():
        encoder = load_encoder(settings.encoder, **wish.load)
    load = _reading(encoder, wish, corpora, place, say)
    sample = [side for corpus in corpora for side in (corpus.source[:256], corpus.target[:256])]
    methods = _methods(encoder, sample)
    cost = estimated_cost(encoder, sample, settings, texts)
    minutes = _minutes(cost / max(1, workers))
    say(
        f"{settings.runs} training runs, compared as {', '.join(uses)}: about {minutes} on this "
        "machine; finished steps are kept"
    )
    del encoder

    records: list[dict[str, Any]] = []
    for longer in _LONGER:
        tables = study_tables(settings, texts, methods, load, options or {}, longer)
        comment = "Written by calque try; calque study repeats it."
        write_text(place / STUDY_FILE, study_text(tables, comment))
        records = [
            dict(_renamed(record, settings.task))
            for record in studies.study(place / STUDY_FILE, workers=workers, say=say)
        ]
        if not any(
            NOT_CONVERGED in warnings_of(record["settings"]) for record in _with_head(records)
        ):
            break
        if longer != _LONGER[-1]:
            say("task heads have not converged; they are trained again for more epochs")
    lines = [json_text(record, ensure_ascii=False) + "\n" for record in records]
    write_text(place / RESULTS, "".join(lines))

    comparisons = compared(records, texts.source, texts.targets)
    verdict = judge(comparisons, TASKS[settings.task].title, texts.source)
    about = {"task": settings.task, **_plain(verdict)}
    write_text(place / VERDICT, json_text(about, indent=2, ensure_ascii=False) + "\n")
    if verdict.method is not None:
        plan = read_study(place / STUDY_FILE)
        _ship(plan, verdict.method, records, settings)
    then(place, verdict)
    return verdict


@dataclass(frozen=True)
class _Texts:
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
    def of(cls, settings: TrialSettings) -> _Texts:
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
        targets = tuple(dict.fromkeys(lang for lang, _ in test if lang != source))
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


def _corpora(settings: TrialSettings, texts: _Texts) -> list[ParallelCorpus]:
    """Return the parallel texts that the encoders are aligned with."""
    from calque.corpora import read_parallel

    return [
        read_parallel(path, langs=(texts.source, lang), on_error="skip", limit=settings.pairs_limit)
        for lang, path in texts.pairs.items()
    ]


def _reading(
    encoder: Encoder, wish: Wish, corpora: Sequence[ParallelCorpus], place: Path, say: Say
) -> dict[str, Any]:
    """Return the keyword arguments of `load_encoder` for all encoders of the trial. A layer and a
    pooling that neither the user nor the folder sets are chosen on the parallel text.
    """
    _, choice = read_encoder(
        encoder,
        wish,
        lambda: linked_sample(corpora, Words()),
        unit="words",
        folder=place,
        say=say,
    )
    load = dict(wish.load)
    if choice is not None:
        load["pooling"] = choice.pooling
        # The default layer is left out, so that the study has one layer and no column of layers.
        if choice.layer != getattr(encoder, "layer", None):
            load["layer"] = choice.layer
    return load


def _methods(encoder: Encoder, sample: Sequence[Sentences]) -> tuple[str, ...]:
    """Return the methods to compare. Standardisation is worth a row only if one dimension dominates
    the vectors.
    """
    from calque.encoders.standard import standardized

    before = getattr(encoder, "standard", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `calque align` repeats this warning
        after = getattr(standardized(encoder, sample, None, None), "standard", {})
    return (STANDARDIZE, CONTRASTIVE) if len(after) > len(before) else (CONTRASTIVE,)


def estimated_cost(
    encoder: Encoder, sample: Sequence[Sentences], settings: TrialSettings, texts: _Texts
) -> float:
    """Return the estimated number of seconds of one process, from the time that the encoder takes
    for a few sentences.

    Training a sentence takes about as long as encoding it four times: the forward pass, the
    backward pass, and activations that are computed again.
    """
    few = sample[0][:48]
    encoder.encode(few[:8])  # the first call includes loading
    began = time.perf_counter()
    encoder.encode(few)
    per_sentence = (time.perf_counter() - began) / max(1, len(few))
    n_pairs = sum(min(settings.pairs_limit, _count(path)) for path in texts.pairs.values())
    n_train = sum(min(settings.limit, _count(path)) for _, path in texts.train)
    n_test = sum(min(settings.test_limit, _count(path)) for _, path in texts.test)
    aligning = settings.runs * n_pairs * 2 * (2 * 4 + 1)
    encoded = 2 * (n_train + n_test) * (1 + settings.runs)
    tuned = 0
    if "tuned" in settings.compared_uses:
        tuned = 2 * settings.runs * (n_train * 3 * 4 + n_test)
    return per_sentence * (aligning + encoded + tuned)


def _count(path: str) -> int:
    """Return an upper bound of the number of texts in a file: its lines, or for one word a line,
    its empty lines.
    """
    from calque.text_files import readable_lines

    lines = blank = 0
    for line in readable_lines(path):
        lines += 1
        blank += not line.strip()
    return blank or lines


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute" if minutes == 1 else f"{minutes} minutes"


# -- the study -------------------------------------------------------------------------------------
def study_tables(
    settings: TrialSettings,
    texts: _Texts,
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
        "encoders": {ENCODER: table},
        "methods": of_methods,
        "supervision": {PAIRS: {"limit": settings.pairs_limit, **texts.pairs}},
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


def _renamed(record: Record, task: str) -> Record:
    """Return a record of the study with one name for the task that has two tables in the study."""
    if record["task"] in _tuned_names(task):
        return {**record, "task": _name(task, "tuned"), "kind": task}
    return record


def _use_of(record: Record) -> Use:
    use = str(record["task"]).rpartition(", ")[2]
    if use == "mixed" or use == "tuned":
        return use
    return "frozen"


def _with_head(records: Sequence[Record]) -> Iterator[Record]:
    """Return the scores of heads on frozen vectors."""
    return (record for record in records if _use_of(record) != "tuned")


# -- judging ---------------------------------------------------------------------------------------
@dataclass
class _Scores:
    """Scores of one method in one use, by language."""

    records: dict[str, list[Record]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.records.setdefault(record["languages"][-1], []).append(record)

    def figures(self) -> dict[str, Estimate]:
        """Return the mean over training runs in each language; languages whose score has no
        variance are left out.
        """
        by_language = {}
        for lang, records in self.records.items():
            known = [figure for figure in map(estimate, records) if figure is not None]
            if len(known) == len(records):
                runs = [record.get("training_seed") for record in records]
                by_language[lang] = over_trainings(known, runs)
        return by_language

    def warnings(self) -> list[str]:
        reasons: list[str] = []
        for records in self.records.values():
            for record in records:
                reasons += warnings_of(record["settings"])
        return reasons


def compared(
    records: Sequence[Record], source: str, targets: Sequence[str]
) -> tuple[Comparison, ...]:
    """Compare each method with the published encoder in each use.

    The p-values of the means over the target languages are corrected for the number of means, and
    those of single languages for the number of languages, uses and methods (Holm 1979).

    Args:
        records: scores of the study; the first metric of each use is compared.
        source: language of the training text.
        targets: languages of the other test texts.
    """
    metrics: dict[Use, str] = {}
    by_row: dict[tuple[Use, str], _Scores] = {}
    for record in records:
        use = _use_of(record)
        if record["metric"] == metrics.setdefault(use, record["metric"]):
            by_row.setdefault((use, record["method"]), _Scores()).add(record)
    pairs: dict[tuple[Use, str, str | None], tuple[Estimate, Estimate]] = {}
    for (use, method), scores in by_row.items():
        if method == BASE or (use, BASE) not in by_row:
            continue
        figures, base = scores.figures(), by_row[use, BASE].figures()
        for lang in (*targets, source):
            if lang in figures and lang in base:
                pairs[use, method, lang] = figures[lang], base[lang]
        if all((use, method, lang) in pairs for lang in targets):
            of_targets = [pairs[use, method, lang] for lang in targets]
            pairs[use, method, None] = (
                over_tests([figure for figure, _ in of_targets]),
                over_tests([figure for _, figure in of_targets]),
            )
    # The answer rests on the means over the target languages. The single languages are a second
    # family of tests, because a loss in any of them is a reason not to ship.
    tested = {key: p_value(*pair) for key, pair in pairs.items() if not too_few(*pair)}
    corrected = {
        **holm({key: p for key, p in tested.items() if key[2] is None}),
        **holm({key: p for key, p in tested.items() if key[2] is not None}),
    }

    comparisons = []
    for use, method in by_row:
        if method == BASE:
            continue
        lower = lower_is_better(metrics[use])
        gains = {
            lang: _gain(*pair, corrected.get((use, method, lang), 1.0), lower)
            for (of_use, of_method, lang), pair in pairs.items()
            if (of_use, of_method) == (use, method)
        }
        mean = pairs.get((use, method, None))
        reasons = dict.fromkeys([*by_row[use, method].warnings(), *by_row[use, BASE].warnings()])
        is_tested = (use, method, None) in tested and not reasons
        comparisons.append(
            Comparison(
                use,
                method,
                gains[None] if is_tested else None,
                {lang: gains[lang] for lang in targets if lang in gains},
                gains.get(source),
                base=mean[1].value if mean else float("nan"),
                aligned=mean[0].value if mean else float("nan"),
                warnings=tuple(reasons),
            )
        )
    return tuple(comparisons)


def _gain(figure: Estimate, base: Estimate, p: float, lower: bool) -> Gain:
    low, high = difference_interval(figure, base)
    value = figure.value - base.value
    if lower:
        value, low, high = -value, -high, -low
    return Gain(value, low, high, outcome(figure, base, p, lower=lower))


def judge(comparisons: Sequence[Comparison], title: str, source: str) -> Verdict:
    """Return the answer. Alignment is worth it if it helps in one of the uses and harms in none.

    Args:
        title: name of the task in a sentence.
        source: language of the training text.
    """
    best: dict[Use, Comparison] = {}
    for comparison in comparisons:
        other = best.get(comparison.use)
        if other is None or _rank(comparison) > _rank(other):
            best[comparison.use] = comparison
    shipped = [one for one in best.values() if one.decision == "ship"]
    harmed = [one for one in best.values() if _losses(one)]
    sentences = []
    if shipped and not harmed:
        first = max(shipped, key=lambda one: one.aligned)
        where = "" if len(best) == 1 else f" (as {USES[first.use]})"
        sentences.append(f"Ship it{where}: {_gained(first, title, source)}.")
    else:
        first = harmed[0] if harmed else next(iter(best.values()))
        sentences.append(_dont(first, title, source))
    for comparison in best.values():
        if comparison is not first:
            sentences.append(f"As {USES[comparison.use]}: {_in_short(comparison, source)}.")
    if len(best) > 1:
        sentences.append(_highest(best))
    method = first.method if shipped and not harmed else None
    return Verdict(method, tuple(sentences), tuple(comparisons))


def _rank(comparison: Comparison) -> tuple[int, float]:
    """Return a key that is largest for the method to prefer."""
    order = {"ship": 2, "don't": 1, "unknown": 0}
    value = comparison.mean.value if comparison.mean is not None else float("-inf")
    return order[comparison.decision], value


def _losses(comparison: Comparison) -> dict[str, Gain]:
    """Return the languages that clearly lose; with a clear loss of the mean, all that lose."""
    if comparison.mean is None:
        return {}
    by_language = comparison.by_language
    if comparison.mean.outcome == "worse":
        return {lang: gain for lang, gain in by_language.items() if gain.value < 0}
    return {lang: gain for lang, gain in by_language.items() if gain.outcome == "worse"}


def _points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def _interval(gain: Gain) -> str:
    return f"95% interval {_points(gain.low)} to {_points(gain.high)}"


def _languages(comparison: Comparison) -> str:
    langs = list(comparison.by_language)
    return langs[0] if len(langs) == 1 else f"mean of {', '.join(langs)}"


def _gained(comparison: Comparison, title: str, source: str) -> str:
    mean = comparison.mean
    assert mean is not None
    text = f"{_points(mean.value)} on {title} ({_languages(comparison)}; {_interval(mean)})"
    if comparison.source is not None:
        text += f", {source} {_points(comparison.source.value)}"
        if comparison.source.outcome == "worse":
            text += ", which is a clear loss"
    return text


def _dont(comparison: Comparison, title: str, source: str) -> str:
    """Return the sentence for an encoder that is not worth shipping."""
    if comparison.mean is None:
        reason = "; ".join(comparison.warnings) or "there are too few training runs"
        return f"No verdict on {title}: {reason}; keep the published encoder until it is known."
    losses = _losses(comparison)
    if losses:
        sizes = sorted(-100 * gain.value for gain in losses.values())
        span = f"{sizes[0]:.1f}"
        if f"{sizes[-1]:.1f}" != span:
            span += f" to {sizes[-1]:.1f}"
        langs = ", ".join(losses)
        return (
            f"Don't: scores on {title} fall by {span} points ({langs}); keep the published encoder."
        )
    return (
        f"Don't: no gain on {title} can be shown ({_languages(comparison)}: "
        f"{_points(comparison.mean.value)}, {_interval(comparison.mean)}); keep the published "
        "encoder."
    )


def _in_short(comparison: Comparison, source: str) -> str:
    mean = comparison.mean
    if mean is None:
        return "; ".join(comparison.warnings) or "there are too few training runs"
    words = {"better": "it gains", "worse": "it loses", "unclear": "no clear difference"}
    text = f"{words[mean.outcome]}, {_points(mean.value)} ({_interval(mean)})"
    if comparison.source is not None:
        text += f", {source} {_points(comparison.source.value)}"
    return text


def _highest(best: Mapping[Use, Comparison]) -> str:
    """Return a sentence that names the highest of all mean scores."""
    scores: dict[str, float] = {}
    for use, comparison in best.items():
        scores[f"the published encoder, used as {USES[use]}"] = comparison.base
        scores[f"{comparison.method}, used as {USES[use]}"] = comparison.aligned
    name = max(scores, key=lambda each: scores[each])
    return f"The highest score, {100 * scores[name]:.1f}, is that of {name}."


def _plain(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as JSON-compatible values."""
    comparisons = [
        {**asdict(comparison), "decision": comparison.decision}
        for comparison in verdict.comparisons
    ]
    return {
        "ship": verdict.method is not None,
        "method": verdict.method,
        "sentences": list(verdict.sentences),
        "comparisons": comparisons,
    }


# -- shipping --------------------------------------------------------------------------------------
def _ship(plan: Study, method: str, records: Sequence[Record], settings: TrialSettings) -> None:
    """Save the encoder of the first training run, with its scores in the model card."""
    from calque.encoders.adapted import AdaptedEncoder
    from calque.encoders.loading import load_encoder
    from calque.runs.align import merge
    from calque.runs.card import add_scores
    from calque.runs.folder import writing

    steps = Steps(Path(plan.folder) / plan.out / "steps", WORK)
    row = next(row for row in Grid(plan, steps).rows if row.about["method"] == method)
    assert not isinstance(row.encoder, str)
    place = steps.place(row.encoder)
    encoder = load_encoder(place)
    if isinstance(encoder, AdaptedEncoder):
        merge(str(place), out=settings.out, overwrite=settings.overwrite)
    else:
        from calque.encoders.folder import read_run
        from calque.runs.align import save_with_card

        with writing(settings.out, overwrite=settings.overwrite) as folder:
            save_with_card(encoder, folder, read_run(place))
    seed = row.about["training_seed"]
    own = [
        {name: value for name, value in record.items() if name not in row.about}
        for record in records
        if record["method"] == method and record["training_seed"] == seed
    ]
    add_scores(settings.out, own)
