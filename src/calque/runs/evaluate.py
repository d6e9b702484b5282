"""From an encoder and test files to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.runs.compare import ONE_RUN
from calque.runs.texts import Say, Words

if TYPE_CHECKING:
    from calque.tasks import Score
    from calque.text import ParallelCorpus

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
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Scores of one encoder on one task, the main one first.

    Args:
        encoder: hub name, folder, `mini`, or a file of static vectors.
        task: one of `TASKS`.
        test, langs: parallel text and its languages.
        links: word links of the test text; for word-alignment the gold ones, default: its third column.
        train, train_links: training text of the encoder, to tell word pairs it has seen, and its links.
        words: how words are found and linked; its limit cuts the test text only: what has been seen stays seen.
        load: keyword arguments of `load_encoder`.
        options: keyword arguments of the task; those it does not have are left out.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.encoders import load_encoder

    if task not in TASKS:
        raise SettingError(f"unknown task {task!r}, expected one of {', '.join(TASKS)}")
    words, options = words or Words(), dict(options or {})
    corpus = words.read(test, langs, say)
    if task == "word-alignment":
        from calque.corpora import gold_links
        from calque.tasks import WordAlignment

        if train is not None or train_links is not None:
            raise SettingError("--train and --train-links are only for retrieval")
        found = WordPairs.open(links) if links else gold_links(corpus, check=False)
        corpus, gold = _fitting(corpus, found, path=links or test, say=say)
        job: Any = WordAlignment(corpus, gold, method=options.get("method", "mutual"), data=test, seed=words.seed)
    else:
        from calque.tasks import WordRetrieval

        if train_links is not None and train is None:
            raise SettingError("--train-links needs --train")
        seen = words.whole.read(train, langs, say) if train else None
        names = ("candidates", "similarity", "contextual")
        job = WordRetrieval(
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
    return job.evaluate(load_encoder(encoder, **dict(load or {})), progress=progress)


def _fitting(corpus: ParallelCorpus, gold: WordPairs, *, path: str, say: Say) -> tuple[ParallelCorpus, WordPairs]:
    """The sentence pairs whose gold links fit their words. A few that do not are an annotator's slip: they are left out
    and told. Many are text cut in another way: an error."""
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
    say(
        f"{path}: {len(wrong)} sentence pairs skipped: their gold links point beyond the sentence (first: line {wrong[0] + 1})"
    )
    keep = np.flatnonzero(fits)
    return corpus.take(keep), gold.take(keep)


def table(scores: Sequence[Score]) -> str:
    """Scores as lines of text: name, value in per cent, interval, number; and what the interval cannot know."""
    rows = [("metric", "value", "95% interval", "n")]
    for score in scores:
        value, low, high = score.shown(2)
        rows.append((f"{score.task} {score.metric}", value, f"{low} – {high}", f"{score.n:,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join([row[0].ljust(widths[0]), *[row[i].rjust(widths[i]) for i in (1, 2, 3)]]) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", ONE_RUN])
