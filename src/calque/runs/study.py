"""A study: encoders × methods × supervision × tasks in one file, done step by step, every step once."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from calque.errors import InputError, SettingError
from calque.runs.align import MAPS, TUNERS
from calque.runs.compare import stands_out
from calque.runs.steps import Step, Steps, unique
from calque.runs.texts import Say

BASE = "base"
_OWN = {"langs", "limit", "pretokenized"}  # settings in a table of supervision that are not languages


@dataclass(frozen=True)
class Study:
    """What is compared with what. Paths are relative to `data`, that and `out` to the file.

    Attributes:
        encoders: hub name, folder or `mini`, by the name that the table shows.
        methods: settings of `calque align` by the name that the table shows: `method` and its options. `base` is no
            method: the encoder as it is.
        supervision: parallel text by name: a file for each language, and `limit`, `pretokenized`.
        tasks: settings of `calque evaluate` by name: `task` (default: the name), `train`, `test`, `dev` and options.
        source: the language of the texts' first side.
        towards: the language that the others move towards; "target": each language pair's other language.
        together: one model for all languages of a supervision, not one for each.
        seeds: training runs of every task.
        words: aligner, symmetrisation and seed of the word links.
        data: folder of the texts.
        out: folder for the steps and the results.
    """

    encoders: dict[str, str]
    methods: dict[str, dict[str, Any]]
    supervision: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    source: str = "en"
    towards: str = "en"
    together: bool = True
    seeds: int = 3
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
                found = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read as a study ({error})", path=path) from error
        known = set(cls.__dataclass_fields__) - {"folder"}
        for name in found:
            if name not in known:
                raise InputError(f"{name!r} is not a part of a study, expected {', '.join(sorted(known))}", path=path)
        for name in ("encoders", "methods", "tasks"):
            if not found.get(name):
                raise InputError(f"no {name} in it", path=path)
        found = {"supervision": {}, **found}
        if not isinstance(found["encoders"], dict):
            found["encoders"] = {Path(name).name: name for name in found["encoders"]}
        if not isinstance(found["methods"], dict):
            found["methods"] = {name: {} for name in found["methods"]}
        found["methods"] = {
            name: {"method": name, **settings} if name != BASE else {} for name, settings in found["methods"].items()
        }
        found["tasks"] = {name: {"task": name, **settings} for name, settings in found["tasks"].items()}
        study = cls(**found, folder=str(Path(path).resolve().parent))
        study._check(path)
        return study

    def _check(self, path: str | Path) -> None:
        for name, settings in self.methods.items():
            if name != BASE and settings["method"] not in MAPS + TUNERS:
                raise InputError(
                    f"method {settings['method']!r} is not known, expected {', '.join(MAPS + TUNERS)}", path=path
                )
        if set(self.methods) - {BASE} and not self.supervision:
            raise InputError('methods need parallel text: [supervision.NAME] with de = "train.en-de.tsv"', path=path)
        if self.towards == "target" and self.together:
            raise InputError('towards = "target" moves each language pair on its own: together = false', path=path)

    def path(self, name: str) -> str:
        """A text or an encoder that the study names."""
        return os.path.join(self.folder, self.data, name)

    def named(self, name: str) -> tuple[str, str]:
        """Language and path of a text, from `de=FILE` or from the file's name."""
        from calque.corpora.languages import language_of

        lang, equals, path = name.partition("=")
        return (lang, self.path(path)) if equals and "/" not in lang else (language_of(name) or "", self.path(name))


def study(
    path: str | Path,
    *,
    workers: int = 1,
    data: str | Path | None = None,
    out: str | Path | None = None,
    say: Say = lambda line: None,
) -> list[dict[str, Any]]:
    """Do a study, or what is left of it.

    Args:
        path: TOML file, see `Study`.
        workers: processes side by side, which share the cores.
        data, out: folders instead of the study's own.
        say: takes a line of news.

    Returns:
        a record for each score: `encoder`, `method`, `supervision`, `task`, and what `Score.to_dict` has. They are in
        `results.jsonl` of the folder, too.
    """
    plan = Study.read(path)
    if data is not None:
        plan = replace(plan, data=str(Path(data).resolve()))
    folder = Path(plan.folder) / plan.out if out is None else Path(out)
    steps = Steps(folder / "steps", WORK)
    aligned: list[tuple[str, str, str, tuple[str, ...] | None, Step | str]] = []
    links: list[Step] = []
    for encoder, where in plan.encoders.items():
        if BASE in plan.methods:
            aligned.append((encoder, BASE, "", None, where))
        for kind, texts in plan.supervision.items():
            for langs in _groups(plan, texts):
                own = [_linking(plan, texts, lang) for lang in langs]
                links += own
                for name, settings in plan.methods.items():
                    if name != BASE:
                        step = _aligning(plan, steps, where, settings, texts, langs, own)
                        aligned.append((encoder, name, kind, None if plan.together else tuple(langs), step))
    with _Workers(steps, workers, say) as do:
        do("linking words", links)
        do("aligning", [step for *_, step in aligned if isinstance(step, Step)])
        scoring = [
            ({"encoder": encoder, "method": method, "supervision": kind, "task": name}, step)
            for encoder, method, kind, langs, made in aligned
            for name, settings in plan.tasks.items()
            for step in _scoring(plan, steps, made, settings, langs)
        ]
        do("evaluating", [step for _, step in scoring])
    records = []
    for about, step in scoring:
        scores = json.loads((steps.place(step) / "scores.json").read_text(encoding="utf-8"))
        records += [about | score | {"task": about["task"]} for score in scores]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "results.md").write_text(tables(records) + "\n", encoding="utf-8")
    return records


# -- from the plan to steps ------------------------------------------------------------------------------------------
def _groups(plan: Study, texts: Mapping[str, Any]) -> list[list[str]]:
    langs = [lang for lang in texts if lang not in _OWN]
    if not langs:
        raise SettingError('a supervision names no text: expected de = "train.en-de.tsv"')
    return [langs] if plan.together else [[lang] for lang in langs]


def _linking(plan: Study, texts: Mapping[str, Any], lang: str) -> Step:
    settings = {"langs": [plan.source, lang], "words": _words(plan, texts)}
    return Step("links", settings, (plan.path(texts[lang]),))


def _words(plan: Study, texts: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: texts[name] for name in ("limit", "pretokenized") if name in texts}
    return {"symmetrize": "one-to-one", **plan.words, **given}


def _aligning(plan: Study, steps: Steps, encoder: str, settings, texts, langs, links: Sequence[Step]) -> Step:
    about = {
        "encoder": encoder,
        "langs": [[plan.source, lang] for lang in langs],
        "towards": langs[0] if plan.towards == "target" else plan.towards,
        "words": _words(plan, texts),
        **settings,
    }
    files = tuple(plan.path(texts[lang]) for lang in langs)
    return Step("align", about, (*files, *_local(plan, encoder)), tuple(str(steps.place(step)) for step in links))


def _local(plan: Study, encoder: str) -> tuple[str, ...]:
    """The encoder's folder, whose content counts; a name on the hub stands for itself."""
    return (plan.path(encoder),) if os.path.exists(plan.path(encoder)) else ()


def _scoring(plan: Study, steps: Steps, made: Step | str, settings: Mapping[str, Any], langs) -> list[Step]:
    """The steps of a task for one encoder: one, or one for each parallel test text."""
    encoder = made if isinstance(made, str) else str(steps.place(made))
    local = _local(plan, made) if isinstance(made, str) else ()
    about = {"encoder": encoder, "seeds": plan.seeds, **settings}
    after = () if isinstance(made, str) else (encoder,)
    if settings["task"] in ("retrieval", "word-alignment", "lexicon"):
        tests = {lang: file for lang, file in settings["test"].items() if langs is None or lang in langs}
        found = []
        for lang, test in tests.items():
            limit = {"limit": settings["limit"]} if "limit" in settings else {}
            own = {"langs": [plan.source, lang], "words": {**plan.words, **limit}}
            trained = settings.get("train", {}).get(lang)
            files = tuple(plan.path(file) for file in (test, trained) if file)
            found.append(Step("score", {**about, **own, "test": None, "train": bool(trained)}, (*files, *local), after))
        return found
    parts = [[plan.named(file) for file in settings.get(part, [])] for part in ("train", "test", "dev")]
    if langs is not None:
        parts[1] = [(lang, file) for lang, file in parts[1] if lang in (plan.source, *langs)]
    about |= {"train": None, "test": None, "dev": None, "langs": [[lang for lang, _ in part] for part in parts]}
    return [Step("score", about, (*(file for part in parts for _, file in part), *local), after)]


# -- the work, in whatever process -----------------------------------------------------------------------------------
def _link(step: Step, folder: Path) -> None:
    from calque.runs.texts import Words
    from calque.runs.words import link_words

    link_words(
        step.files[0], langs=tuple(step.settings["langs"]), out=folder / "links.align",
        words=Words(**step.settings["words"]),
    )  # fmt: skip


def _align(step: Step, folder: Path) -> None:
    from calque.runs.align import align
    from calque.runs.texts import Words

    settings = dict(step.settings)
    langs = [tuple(pair) for pair in settings.pop("langs")]
    named = {name: settings.pop(name) for name in ("encoder", "method", "towards")}
    words, load = Words(**settings.pop("words")), {k: settings.pop(k) for k in ("layer", "pooling") if k in settings}
    encoder = step.files[len(langs)] if len(step.files) > len(langs) else named["encoder"]
    links = [str(Path(place) / "links.align") for place in step.after]
    align(
        step.files[: len(langs)], langs=langs, encoder=encoder, method=named["method"], towards=named["towards"],
        out=folder, links=links, words=words, load=load, options=settings, overwrite=True,
    )  # fmt: skip


def _score(step: Step, folder: Path) -> None:
    from calque.runs.evaluate import evaluate
    from calque.runs.meaning import disambiguate, lexicon
    from calque.runs.texts import Words
    from calque.runs.transfer import TASKS, transfer

    settings = dict(step.settings)
    task, seeds = settings.pop("task"), settings.pop("seeds")
    if task in TASKS:
        files = iter(step.files)
        train, test, dev = ([f"{lang}={next(files)}" for lang in part] for part in settings["langs"])
        known = ("tune", "select", "rename", "pretokenized", "limit", "on_error")
        training = ("epochs", "batch", "learning_rate", "patience")
        scores = transfer(
            _encoder(step), task, train=train, test=test, dev=dev, seeds=seeds,
            **{k: settings[k] for k in known if k in settings},
            options={k: settings[k] for k in training if k in settings},
            head={k: settings[k] for k in ("head", "hidden", "layers", "dropout", "unknown") if k in settings},
        )  # fmt: skip
    elif task == "wsd":
        first, tests, _ = map(len, settings["langs"])
        scores = disambiguate(_encoder(step), train=step.files[0], test=step.files[first : first + tests])
    elif task == "lexicon":
        scores = lexicon(_encoder(step), test=step.files[0], langs=tuple(settings["langs"]))
    else:
        names = ("candidates", "similarity", "contextual", "method")
        scores = evaluate(
            _encoder(step), task, test=step.files[0], langs=tuple(settings["langs"]),
            train=step.files[1] if settings.get("train") else None,
            words=Words(**{"pretokenized": task == "word-alignment", **settings["words"]}),
            options={k: settings[k] for k in names if k in settings},
        )  # fmt: skip
    text = json.dumps([score.to_dict() for score in scores], ensure_ascii=False, indent=1)
    (folder / "scores.json").write_text(text + "\n", encoding="utf-8")


def _encoder(step: Step) -> str:
    """Of a finished step, of a local folder, or by its name."""
    if step.after:
        return step.after[0]
    local = [file for file in step.files if os.path.isfile(os.path.join(file, "config.json"))]
    return local[0] if local else step.settings["encoder"]


WORK = {"links": _link, "align": _align, "score": _score}


class _Workers:
    """Does steps, side by side where there are several workers."""

    def __init__(self, steps: Steps, workers: int, say: Say):
        if workers < 1:
            raise SettingError(f"workers must be at least 1, got {workers}")
        self.steps, self.workers, self.say = steps, workers, say
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Workers:
        if self.workers > 1:
            cores = max(1, len(os.sched_getaffinity(0)) // self.workers)
            self._pool = ProcessPoolExecutor(self.workers, get_context("spawn"), initializer=_begin, initargs=(cores,))
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, title: str, steps: Sequence[Step]) -> None:
        left = [step for step in unique(steps) if not self.steps.is_done(step)]
        self.say(f"{title}: {len(left)} of {len(unique(steps))} steps to do")
        done = map(self.steps.do, left) if self._pool is None else self._pool.map(self.steps.do, left)
        for number, place in enumerate(done, 1):
            self.say(f"{title}: {number} of {len(left)} ({place.name})")


def _begin(cores: int) -> None:
    import torch

    torch.set_num_threads(cores)


# -- results ---------------------------------------------------------------------------------------------------------
def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent with the standard deviation
    over seeds. A value is set in bold where its interval lies above those of all other methods."""
    blocks = []
    groups = dict.fromkeys((r["task"], r["metric"].partition(".")[0]) for r in records)
    for task, metric in groups:
        mine = [r for r in records if (r["task"], r["metric"].partition(".")[0]) == (task, metric)]
        mine = [r for r in mine if r["metric"] in (metric, f"{metric}.all", f"{metric}.unseen")]
        columns = list(dict.fromkeys(_column(r) for r in mine))
        rows = list(dict.fromkeys((r["encoder"], r["method"], r["supervision"]) for r in mine))
        cells = {((r["encoder"], r["method"], r["supervision"]), _column(r)): r for r in mine}
        lines = [f"## {task}, {metric}", "", "| encoder | method | " + " | ".join(columns) + " | mean |",
                 "|---|---|" + "---:|" * (len(columns) + 1)]  # fmt: skip
        for row in rows:
            shown = []
            for column in columns:
                cell = cells.get((row, column))
                others = [cells[(r, column)] for r in rows if r != row and (r, column) in cells]
                shown.append("" if cell is None or cell["value"] is None else _shown(cell, others))
            values = [cells[(row, c)]["value"] for c in columns if (row, c) in cells]
            known = [value for value in values if value is not None]
            name = row[1] if len({r[2] for r in rows if r[2]}) < 2 or not row[2] else f"{row[1]} ({row[2]})"
            mean = f"{100 * sum(known) / len(known):.1f}" if known else ""
            lines.append(f"| {row[0]} | {name} | {' | '.join(shown)} | {mean} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _column(record: Mapping[str, Any]) -> str:
    part = record["metric"].partition(".")[2]
    return f"{record['languages'][-1]} {Path(record['data']).name}" + (f" {part}" if part else "")


def _shown(cell: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    sd = cell["settings"].get("sd")
    text = f"{100 * cell['value']:.1f}" + (f" ± {100 * sd:.1f}" if sd else "")
    return f"**{text}**" if stands_out(cell, others) else text
