"""Word links of a parallel text, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from calque.errors import SettingError
from calque.linking import Say, Words
from calque.pairs import WordPairs
from calque.runs.lock import locked


def link_words(
    text: str,
    *,
    langs: tuple[str, str],
    out: Path,
    words: Words,
    extra: Sequence[str] = (),
    posteriors: bool = False,
    tables: Path | None = None,
    use: Path | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> WordPairs:
    """Link the words of `text` and write them in Pharaoh format.

    Args:
        text: parallel text in any format that `read_parallel` knows.
        langs: its languages.
        out: Pharaoh file: one line for each sentence pair, also for those without a link.
        words: how words are found and linked.
        extra: more text in the same languages to learn from.
        posteriors: write each link's probability.
        tables: save the trained aligner here.
        use: link with an aligner saved earlier instead of training one.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.wordalign import WordAligner

    if use is not None and (extra or tables is not None):
        raise SettingError("--use does no training: leave out --extra and --tables")
    with locked(out), nullcontext() if tables is None else locked(tables):
        corpus = words.read(text, langs)
        if use is not None:
            aligner = WordAligner.open(use)
        else:
            more = None
            for path in extra:
                part = words.read(path, langs)
                more = part if more is None else more + part
            aligner = WordAligner.train(corpus, extra=more, model=words.model, seed=words.seed, progress=progress)
            if tables is not None:
                aligner.save(tables)
        pairs = aligner.align(corpus, symmetrize=words.symmetrize, seed=words.seed)
        pairs.save(out, posteriors=posteriors)
    return pairs
