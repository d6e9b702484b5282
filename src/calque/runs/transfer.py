"""From an encoder and annotated files to zero-shot scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calque.errors import SettingError
from calque.linking import Say, Words
from calque.runs.compare import ONE_RUN

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
    ceiling: Sequence[str] = (),
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
    test_limit: int | None = None,
    on_error: str = "raise",
    format: str = "auto",
    column: str | None = None,
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
        ceiling: training text in languages of the tests, translated from the source's (translate-train) or annotated anew:
            what is learnt from it is tested on the same sets, and says what zero-shot transfer could reach at most.
        seeds: training runs, with the seeds 0, 1, ….
        tune: train the encoder as well, instead of a head on its frozen vectors.
        select: what chooses the epoch: source, target or last, see `ZeroShot`.
        rename: other names for labels that the files do not share; an empty name drops a kind of span or tag.
        project: parallel texts with the source language: what the source tagger says there is carried over word links, and
            each other language's test sets are tagged by what is learnt from that (label projection, ner, slots and pos).
        project_links, project_langs, words: Pharaoh files with their links, their languages, and how they are read and
            linked where there is no such file.
        pretokenized: words of texts are separated by white space (nli, sentiment).
        limit: use only so many texts of each training file, at even distances.
        test_limit: the same of each test and development file.
        on_error: "raise", or "skip" to leave out what cannot be read.
        format: of all files, where what they hold does not show it; see `read_tagged` and `read_labelled`.
        column: where tags stand: number of the column, upos or xpos, or the name of a data set's column (ner, slots, pos).
        load: keyword arguments of `load_encoder`.
        options: settings of the training (epochs, batch, learning_rate, patience, per_epoch).
        head: keyword arguments of the task (head, hidden, layers, dropout; unknown; upos).
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.encoders import load_encoder

    if task not in TASKS:
        raise SettingError(f"unknown task {task!r}, expected one of {', '.join(TASKS)}")
    read = _reader(task, dict(rename or {}), pretokenized, on_error, format, column)
    known: dict[tuple[str, str, int | None], Any] = {}

    def named(files: Sequence[str], most: int | None) -> list[Named[Any]]:
        return _read(files, read, most, known, say)

    trained, tests, chosen = named(train, limit), named(test, test_limit), named(dev, test_limit)
    ceilings = named(ceiling, limit)
    for each in tests:
        _warn_of_overlap(each, [*trained, *(own for own in ceilings if own.lang == each.lang)])
    loaded = load_encoder(encoder, **dict(load or {}))
    settings: dict[str, Any] = {
        "options": {k: v for k, v in dict(options or {}).items() if v is not None},
        **{k: v for k, v in dict(head or {}).items() if v is not None},
    }
    protocol = {"dev": chosen, "seeds": range(seeds), "tune": tune, "select": select}
    if ceilings and project:
        raise SettingError("--ceiling and --project cannot be combined: leave one out")
    if not project:
        job, above = (
            _task(task, trained, tests, **protocol, **settings),
            _ceilings(task, ceilings, tests, protocol, settings),
        )
        found = job.evaluate(loaded, progress=progress)
        tops = [score for each in above for score in each.evaluate(loaded, progress=progress)]
        return _with_ceilings(found, [_about(score, {"protocol": "ceiling"}) for score in tops])
    if task not in TAGGING:
        raise SettingError(f"labels can only be projected for {', '.join(TAGGING)}, not for {task}")
    words = words or Words()
    corpora = words.read_all(project, project_langs, say)
    if project_links and len(project_links) != len(corpora):
        raise SettingError(f"{len(corpora)} texts to project over but {len(project_links)} files of links")
    scores = []
    for number, corpus in enumerate(corpora):
        from calque.tasks.projection import projected

        links = words.open_links(project_links[number], corpus) if project_links else words.link(corpus)
        learnt = projected(task, trained, loaded, corpus, links, progress=progress, **settings)  # type: ignore[arg-type]
        say(f"{project[number]}: {learnt.name}")
        own = [each for each in tests if each.lang == learnt.lang]
        if own:
            job = _task(task, [learnt], own, **{**protocol, "dev": [], "select": "source"}, **settings)
            about = {"protocol": "projection", "text": learnt.name, "train": [each.name for each in trained]}
            scores += [_about(score, about) for score in job.evaluate(loaded, progress=progress)]
    if not scores:
        raise SettingError("no test set is in a language of --project")
    return scores


def _warn_of_overlap(test: Named[Any], trained: Sequence[Named[Any]]) -> None:
    """Compare a test set with every training text, whatever its language: files are also given under a wrong one."""
    from calque.tasks.overlap import shared_texts, warn_of_overlap

    for each in trained:
        own, others = (getattr(text.data, "texts", None) or (text.data.sentences,) for text in (test, each))
        if len(own) == len(others):
            warn_of_overlap(test.name, shared_texts(own, others), each.name)


def _ceilings(
    task: str, texts: Sequence[Named[Any]], tests: Sequence[Named[Any]], protocol, settings
) -> list[ZeroShot[Any]]:
    """For each language, to learn from text in it and be tested in it."""
    jobs = []
    for lang in dict.fromkeys(each.lang for each in texts):
        own = [each for each in tests if each.lang == lang]
        if not own:
            langs = ", ".join(dict.fromkeys(each.lang for each in tests))
            raise SettingError(f"--ceiling has text in {lang}, but the tests are in {langs}")
        # Target development text of the zero-shot run is this run's own language.
        how = {**protocol, "select": "source" if protocol["select"] == "target" else protocol["select"]}
        how["dev"] = [each for each in protocol["dev"] if each.lang == lang]
        jobs.append(_task(task, [each for each in texts if each.lang == lang], own, **how, **settings))
    return jobs


def _with_ceilings(scores: list[Score], ceilings: list[Score]) -> list[Score]:
    """All of them; the zero-shot scores say how far below their ceiling they are."""
    above = {(score.data, score.languages[-1], score.metric): score.value for score in ceilings}
    found = []
    for score in scores:
        top = above.get((score.data, score.languages[-1], score.metric))
        found.append(score if top is None else _about(score, {"below_ceiling": round(top - score.value, 5)}))
    return found + ceilings


def _about(score: Score, more: Mapping[str, Any]) -> Score:
    return replace(score, settings={**score.settings, **more})


def _reader(
    task: str, rename: dict[str, str], pretokenized: bool, on_error: str, format: Any, column: str | None
) -> Callable[[str, str], Any]:
    skip: Any = on_error
    if task in TAGGING:
        from calque.corpora import read_tagged
        from calque.tasks.tagging import renamed

        def tagged(path: str, lang: str):
            where = int(column) if column is not None and column.isdecimal() else column
            text = read_tagged(path, lang=lang, format=format, column=where, on_error=skip)
            return renamed(text, rename) if rename else text

        return tagged
    if column is not None:
        raise SettingError("--column is only for ner, slots and pos")
    if task == "parsing":
        from calque.corpora import read_treebank

        if rename:
            raise SettingError(
                "--rename does not apply to parsing: relations missing from the training text count as wrong"
            )
        if format != "auto":
            raise SettingError("--format is only for tags and labels: trees are read from CoNLL-U or data sets")

        return lambda path, lang: read_treebank(path, lang=lang, on_error=skip)
    from calque.corpora import read_labelled
    from calque.tasks.classification import relabelled

    def labelled(path: str, lang: str):
        text = read_labelled(path, lang=lang, format=format, pretokenized=pretokenized, on_error=skip)
        return relabelled(text, rename) if rename else text

    return labelled


def _task(task: str, *data: Any, **settings: Any) -> ZeroShot[Any]:
    if task in TAGGING:
        from calque.tasks.tagging import Tagging

        return Tagging(task, *data, **settings)  # type: ignore[arg-type]
    if task in CLASSIFICATION:
        from calque.tasks.classification import Classification

        return Classification(task, *data, **settings)  # type: ignore[arg-type]
    from calque.tasks.parsing import Parsing

    if settings.pop("head", None) is not None:
        raise SettingError("--head does not apply to parsing, which always uses the biaffine parser")
    return Parsing(*data, **settings)


def _read(
    files: Sequence[str],
    read: Callable[[str, str], D],
    most: int | None,
    known: dict[tuple[str, str, int | None], D],
    say: Say,
) -> list[Named[D]]:
    """Texts of files, at most so many of each, with their languages; what is known, as development text and test set in
    one, is not read again."""
    from calque.corpora.languages import language_and_path
    from calque.tasks.zeroshot import Named

    found = []
    for file in files:
        lang, path = language_and_path(file)
        if (lang, path, most) not in known:
            data: Any = read(path, lang)
            n, repaired = len(data), getattr(data, "repaired", 0)
            some = spread_over(n, most)
            used = "" if some is None else f", of which {len(some):,} are used"
            say(f"{path}: {n:,} texts in {lang}{f', {repaired:,} tags repaired' if repaired else ''}{used}")
            known[lang, path, most] = data if some is None else data.take(some)
        found.append(Named(Path(path).name, lang, known[lang, path, most]))
    return found


def spread_over(n: int, most: int | None) -> np.ndarray | None:
    """So many numbers below `n` at even distances, None for all. Not the first ones: files are often in the order of
    their labels, or of where they come from."""
    return None if most is None or most >= n else np.arange(most) * n // most


def table(scores: Sequence[Score], *, kinds: bool = False) -> str:
    """Scores as lines of text: one row for each test set and figure, and below them how they came about.

    Args:
        kinds: also the F1 of each kind of span.
    """
    rows = [("test", "language", "metric", "value", "s.d.", "95% interval", "gap", "n", "trained on")]
    for score in scores:
        if score.metric.startswith("f1.") and not kinds:
            continue
        value, low, high = score.shown(1)
        sd, gap = score.settings.get("sd"), score.settings.get("gap")
        protocol = score.settings.get("protocol", "zero-shot")
        learnt = "+".join(score.languages[:-1]) + (f" ({protocol})" if protocol != "zero-shot" else "")
        rows.append((
            score.data, score.languages[-1], score.metric, value, "" if sd is None else f"{100 * sd:.1f}",
            f"{low} – {high}", "" if gap is None else f"{100 * gap:.1f}", f"{score.n:,}", learnt,
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.rjust(widths[i]) if 3 <= i < 8 else cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", *_notes(scores)])


def _notes(scores: Sequence[Score]) -> list[str]:
    """What must be known to read the figures."""
    about = scores[0].settings
    chosen = about.get("dev", "")
    by = chosen if isinstance(chosen, str) else ", ".join(chosen)
    leak = " (TARGET text: the scores are not zero-shot)" if about.get("select") == "target" else ""
    n = len(about.get("seeds", ()))
    notes = [
        f"{about.get('features')} features, head {about.get('head')}, mean of {n} {'run' if n == 1 else 'runs'}; "
        f"epoch chosen by {by}{leak}",
        "The intervals cover both other training runs and other test texts." if n > 1 else ONE_RUN,
    ]
    left_out = sum({(s.data, s.languages[-1]): s.settings.get("left_out", 0) for s in scores}.values())
    if left_out:
        notes.append(f"{left_out:,} sentences with labels missing from the training text skipped")
    return notes
