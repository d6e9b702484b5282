"""From an encoder and test files to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calque.errors import SettingError
from calque.linking import Say, Words, skipped
from calque.pairs import WordPairs
from calque.runs.compare import ONE_RUN

if TYPE_CHECKING:
    from calque.tasks import Score
    from calque.tasks.base import Task
    from calque.text import ParallelCorpus

T = TypeVar("T")
TASKS = ("retrieval", "word-alignment")


def evaluate(
    encoder: str,
    task: str,
    *,
    test: str,
    langs: tuple[str, str],
    links: str | None = None,
    train: str | None = None,
    train_links: str | None = None,
    **others: Any,
) -> list[Score]:
    """Scores on one text, the main one first; see `evaluate_all`."""
    files = {name: () if file is None else (file,) for name, file in
             (("links", links), ("train", train), ("train_links", train_links))}  # fmt: skip
    return evaluate_all(encoder, task, tests=(test,), langs=(langs,), **files, **others)


def evaluate_all(
    encoder: str,
    task: str,
    *,
    tests: Sequence[str],
    langs: Sequence[tuple[str, str]],
    links: Sequence[str] = (),
    train: Sequence[str] = (),
    train_links: Sequence[str] = (),
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Scores of one encoder on one task, of each test the main one first.

    Args:
        encoder: hub name, folder, `mini`, or a file of static vectors.
        task: one of `TASKS`.
        tests, langs: parallel texts and their languages, one pair for each or one for all; one text that has several
            languages (TMX, the prefix of several files) is taken with each pair.
        links: word links of each test text; for word-alignment the gold ones, default: its third column.
        train, train_links: training text of the encoder, to tell word pairs it has seen, and its links; one for each
            test, or one text for all.
        words: how words are found and linked; its limit cuts the test texts only: what has been seen stays seen.
        load: keyword arguments of `load_encoder`.
        options: keyword arguments of the task; those it does not have are left out.
        progress, say: show bars on standard error; take a line of news.

    Raises:
        SettingError: numbers of files that do not fit each other.
    """
    from calque.encoders import load_encoder

    if task not in TASKS:
        raise SettingError(f"unknown task {task!r}, expected one of {', '.join(TASKS)}")
    n = max(len(tests), len(langs))
    tests, langs = _for_each(tests, n, "--test"), _for_each(langs, n, "--langs")
    if links and len(links) != n:
        raise SettingError(f"{len(links)} files of --links for {n} tests: give one for each")
    train = _for_each(train, n, "--train") if train else ()
    if train_links and len(train_links) != len(train):
        fact = f"{len(train_links)} files for {len(train)} training texts" if train else "needs --train"
        raise SettingError(f"--train-links {fact}{': give one for each' if train else ''}")
    jobs = [
        _job(
            task, test, langs=langs[k], links=links[k] if links else None, train=train[k] if train else None,
            train_links=train_links[k] if train_links else None, words=words or Words(), options=options or {}, say=say,
        )
        for k, test in enumerate(tests)
    ]  # fmt: skip
    loaded = load_encoder(encoder, **dict(load or {}))
    found = []
    for k, job in enumerate(jobs):
        about = {"train": [Path(train[k]).name]} if train else {}  # it decides which pairs count as unseen
        scores = job.evaluate(loaded, progress=progress)
        found += [replace(score, settings={**score.settings, **about}) for score in scores]
    return found


def _for_each(given: Sequence[T], n: int, option: str) -> list[T]:
    """One for each of `n` tests."""
    if len(given) not in (1, n):
        raise SettingError(f"{len(given)} × {option} for {n} tests: give one for each, or one for all")
    return list(given) * n if len(given) == 1 else list(given)


def _job(
    task: str, test: str, *, langs: tuple[str, str], links: str | None, train: str | None, train_links: str | None,
    words: Words, options: Mapping[str, Any], say: Say,
) -> Task:  # fmt: skip
    """The task, with its texts."""
    corpus = words.read(test, langs, say)
    if task == "word-alignment":
        from calque.corpora import gold_links
        from calque.tasks import WordAlignment

        if train is not None:
            raise SettingError("--train and --train-links are only for retrieval")
        found = WordPairs.open(links) if links else gold_links(corpus, check=False)
        corpus, gold = _fitting(corpus, found, path=links or test)
        return WordAlignment(corpus, gold, method=options.get("method", "mutual"), data=test, seed=words.seed)
    from calque.tasks import WordRetrieval
    from calque.tasks.overlap import shared_sentences, warn_of_overlap

    seen = words.whole.read(train, langs, say) if train else None
    if seen is not None:
        warn_of_overlap(test, shared_sentences(corpus, seen), str(train))
    names = ("candidates", "similarity", "contextual")
    return WordRetrieval(
        corpus,
        words.open_links(links, corpus) if links else None,
        train=seen,
        train_pairs=words.whole.open_links(train_links, seen) if train_links and seen is not None else None,
        model=words.model,
        symmetrize=words.symmetrize,
        data=test,
        seed=words.seed,
        **{name: options[name] for name in names if name in options},
    )


def _fitting(corpus: ParallelCorpus, gold: WordPairs, *, path: str) -> tuple[ParallelCorpus, WordPairs]:
    """The sentence pairs whose gold links fit their words. A few that do not are an annotator's slip: they are left out
    and a warning counts them. Many are text cut in another way: an error."""
    if gold.n_sentences != len(corpus):
        gold.check(corpus, path=path)
    fits = np.ones(len(corpus), dtype=bool)
    for words, side in ((gold.source, corpus.source), (gold.target, corpus.target)):
        fits[gold.sentence[words >= side.lengths()[gold.sentence]]] = False
    wrong = np.flatnonzero(~fits)
    if not len(wrong):
        return corpus, gold
    if len(wrong) > 0.05 * len(corpus):
        gold.check(corpus, path=path)
    skipped(
        f"{path}: {len(wrong):,} of {len(corpus):,} sentence pairs skipped: their gold links point beyond the sentence "
        f"(first: line {wrong[0] + 1})"
    )
    keep = np.flatnonzero(fits)
    return corpus.take(keep), gold.take(keep)


def table(scores: Sequence[Score]) -> str:
    """Scores as lines of text: name, value in per cent, interval, number; where there are several tests, which one;
    and what the interval cannot know."""
    several = len({(score.task, score.metric) for score in scores}) < len(scores)
    rows = [("test", "metric", "value", "95% interval", "n")]
    for score in scores:
        value, low, high = score.shown(2)
        test = f"{Path(score.data).name} {'-'.join(score.languages)}"
        rows.append((test, f"{score.task} {score.metric}", value, f"{low} – {high}", f"{score.n:,}"))
    rows = rows if several else [("", *row[1:]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [
        "  ".join([*(row[i].ljust(widths[i]) for i in (0, 1)), *(row[i].rjust(widths[i]) for i in (2, 3, 4))])
        for row in rows
    ]
    lines = lines if several else [line.lstrip(" ") for line in lines]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", ONE_RUN])
