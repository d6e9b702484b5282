"""From an encoder and annotated files to zero-shot scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calque.errors import SettingError
from calque.runs.texts import Say, Words

if TYPE_CHECKING:
    from calque.tasks import Score
    from calque.tasks.zeroshot import Named, ZeroShot

D = TypeVar("D")
TAGGING, CLASSIFICATION = ("ner", "slots", "pos"), ("nli", "sentiment")
TASKS = (*TAGGING, *CLASSIFICATION, "parsing")


def transfer(
    encoder: str,
    task: str,
    *,
    train: Sequence[str],
    test: Sequence[str],
    dev: Sequence[str] = (),
    seeds: int = 3,
    tune: bool = False,
    select: str = "source",
    rename: Mapping[str, str] | None = None,
    project: Sequence[str] = (),
    project_links: Sequence[str] = (),
    project_langs: Sequence[tuple[str, str]] = (),
    words: Words | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    on_error: str = "raise",
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Train a task in some languages and test it in others.

    Args:
        encoder: hub name, folder, `mini`, or a file of static vectors.
        task: one of `TASKS`.
        train, test, dev: files; the language of each is in its name (`panx.dev.de.tsv`) or stands before it
            (`de=dev.tsv`).
        seeds: training runs, with the seeds 0, 1, ….
        tune: train the encoder as well, instead of a head on its frozen vectors.
        select: what chooses the epoch: source, target or last, see `ZeroShot`.
        rename: other names for labels that the files do not share; an empty name drops a kind of span or tag.
        project: parallel texts with the source language: what the source tagger says there is carried over word links, and
            each other language's test sets are tagged by what is learnt from that (label projection, ner, slots and pos).
        project_links, project_langs, words: Pharaoh files with their links, their languages, and how they are read and
            linked where there is no such file.
        pretokenized: words of texts are separated by white space (nli, sentiment).
        limit: read only so many texts of each training file.
        on_error: "raise", or "skip" to leave out what cannot be read.
        load: keyword arguments of `load_encoder`.
        options: settings of the training (epochs, batch, learning_rate, patience).
        head: keyword arguments of the task (head, hidden, layers, dropout; unknown).
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.encoders import load_encoder

    if task not in TASKS:
        raise SettingError(f"task {task!r} is not known, expected one of {', '.join(TASKS)}")
    read = _reader(task, dict(rename or {}), pretokenized, on_error)
    trained = [_limited(each, limit) for each in _read(train, read, say)]
    tests, loaded = _read(test, read, say), load_encoder(encoder, **dict(load or {}))
    settings: dict[str, Any] = {
        "options": {k: v for k, v in dict(options or {}).items() if v is not None},
        **{k: v for k, v in dict(head or {}).items() if v is not None},
    }
    protocol = {"dev": _read(dev, read, say), "seeds": range(seeds), "tune": tune, "select": select}
    if not project:
        return _task(task, trained, tests, **protocol, **settings).evaluate(loaded, progress=progress)
    if task not in TAGGING:
        raise SettingError(f"labels can be projected for {', '.join(TAGGING)}, not for {task}")
    words = words or Words()
    corpora = words.read_all(project, project_langs, say)
    if project_links and len(project_links) != len(corpora):
        raise SettingError(f"{len(corpora)} texts to project over, but {len(project_links)} files of links")
    scores = []
    for number, corpus in enumerate(corpora):
        from calque.tasks.projection import projected

        links = words.open_links(project_links[number], corpus) if project_links else words.link(corpus)
        learnt = projected(task, trained, loaded, corpus, links, progress=progress, **settings)  # type: ignore[arg-type]
        say(f"{project[number]}: {learnt.name}")
        own = [each for each in tests if each.lang == learnt.lang]
        if own:
            job = _task(task, [learnt], own, **{**protocol, "dev": [], "select": "source"}, **settings)
            scores += job.evaluate(loaded, progress=progress)
    if not scores:
        raise SettingError("no test set is in a language that labels are projected to")
    return scores


def _reader(task: str, rename: dict[str, str], pretokenized: bool, on_error: str) -> Callable[[str, str], Any]:
    skip: Any = on_error
    if task in TAGGING:
        from calque.corpora import read_tagged
        from calque.tasks.tagging import renamed

        def tagged(path: str, lang: str):
            text = read_tagged(path, lang=lang, on_error=skip)
            return renamed(text, rename) if rename else text

        return tagged
    if rename:
        raise SettingError("--rename is for ner, slots and pos")
    if task == "parsing":
        from calque.corpora import read_treebank

        return lambda path, lang: read_treebank(path, lang=lang, on_error=skip)
    from calque.corpora import read_labelled

    return lambda path, lang: read_labelled(path, lang=lang, pretokenized=pretokenized, on_error=skip)


def _task(task: str, *data: Any, **settings: Any) -> ZeroShot[Any]:
    if task in TAGGING:
        from calque.tasks.tagging import Tagging

        return Tagging(task, *data, **settings)  # type: ignore[arg-type]
    if task in CLASSIFICATION:
        from calque.tasks.classification import Classification

        return Classification(task, *data, **settings)  # type: ignore[arg-type]
    from calque.tasks.parsing import Parsing

    if settings.pop("head", None) is not None:
        raise SettingError("parsing has one head, the biaffine parser: leave out --head")
    return Parsing(*data, **settings)


def _read(files: Sequence[str], read: Callable[[str, str], D], say: Say) -> list[Named[D]]:
    from calque.corpora.languages import language_of
    from calque.tasks.zeroshot import Named

    found = []
    for file in files:
        lang, equals, path = file.partition("=")
        if not equals or "/" in lang:
            path, lang = file, language_of(file) or ""
        if not lang:
            raise SettingError(f"{file}: which language is it in? Say it before the name, as in de={file}")
        data = read(path, lang)
        repaired = getattr(data, "repaired", 0)
        say(f"{path}: {len(data):,} texts in {lang}{f', {repaired:,} tags repaired' if repaired else ''}")  # type: ignore[arg-type]
        found.append(Named(Path(path).name, lang, data))
    return found


def _limited(each: Named[D], limit: int | None) -> Named[D]:
    if limit is None or len(each.data) <= limit:  # type: ignore[arg-type]
        return each
    from dataclasses import replace

    return replace(each, data=each.data.take(np.arange(limit)))  # type: ignore[attr-defined]


def table(scores: Sequence[Score]) -> str:
    """Scores as lines of text: one row for each test set and figure; without those of single kinds of spans."""
    rows = [("test", "language", "metric", "value", "s.d.", "95% interval", "gap", "n")]
    for score in scores:
        if score.metric.startswith("f1."):
            continue
        value, low, high = score.shown(1)
        sd, gap = score.settings.get("sd"), score.settings.get("gap")
        rows.append((
            score.data, score.languages[-1], score.metric, value, "" if sd is None else f"{100 * sd:.1f}",
            f"{low} – {high}", "" if gap is None else f"{100 * gap:.1f}", f"{score.n:,}",
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(widths[i]) if i < 3 else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
