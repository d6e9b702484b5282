"""Align the words of parallel texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora.languages import pair_and_path
from calque.distributed import is_first
from calque.errors import SettingError
from calque.input_texts import Say, Words, check_pairs, digest_of
from calque.pairs import WordPairs
from calque.progress import bar
from calque.runs.settings import LinkSettings, pairs_of
from calque.storage import json_text, locked, write_lines
from calque.text import ParallelCorpus

if TYPE_CHECKING:
    from calque.alignment.held_out import HeldOut


def link_words(
    how: LinkSettings,
    *,
    words: Words,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> tuple[int, int]:
    """Link the words of a parallel text, and write the links in Pharaoh format, with one line per
    sentence pair.

    Args:
        how: settings. With `cross_fit`, the text is split into parts, and the similarities of each
            part are computed by a copy of the encoder that was aligned on the other parts, see
            `calque.HeldOut`.
        words: settings for tokenisation and word alignment.
        load: keyword arguments of `load_encoder`.

    Returns:
        the number of links, and the number of sentence pairs.

    Raises:
        SettingError: settings are incompatible, or the languages of a text in `also` are missing.
    """
    from calque.linker import Linker
    from calque.wordalign import WordAligner

    trains = how.extra or how.tables is not None or how.sample is not None
    if how.cross_fit is not None and (how.use is not None or trains):
        raise SettingError(
            "--cross-fit aligns the encoder on the text to link; leave out --use, --extra, "
            "--tables and --sample"
        )
    if how.use is not None and how.prior_weight is not None:
        raise SettingError(
            "the aligner loaded with --use has its own prior weight; leave out --prior-weight"
        )
    if how.use is not None and trains:
        raise SettingError(
            "--use links words without training; leave out --extra, --tables and --sample"
        )
    pairs, similar, linker = pairs_of([how.train], how.langs or ()), None, None
    if not pairs:
        raise SettingError("--langs is missing; give the languages of the text, e.g. --langs en de")
    check_pairs([how.train], pairs)
    langs = pairs[0]
    if how.encoder is not None and not how.prior:
        linker = Linker(how.encoder, langs=langs, method=how.extract, **(load or {}))
    elif how.encoder is not None and how.cross_fit is None:
        similar = Linker(how.encoder, langs=langs, **(load or {})).similarities
    with locked(how.out), nullcontext() if how.tables is None else locked(how.tables):
        corpus = words.read(how.train, langs)
        if linker is not None:
            with bar(len(corpus), unit="pair", show=progress) as progress_bar:
                return _write(how, linker.aligned(corpus), words, progress_bar.update), len(corpus)
        if how.use is not None:
            aligner = WordAligner.open(how.use, prior=similar)
        else:
            if how.encoder is not None and how.cross_fit is not None:
                # The encoder is aligned only when it is needed, so that errors in the aligner's
                # settings are found before.
                about = {"load": load or {}, "progress": progress, "say": say}
                fit = cache(
                    partial(
                        held_out, how.encoder, corpus, how.also or (), words, how.cross_fit, **about
                    )
                )
                similar = lambda text: fit()(text)  # noqa: E731
            more = (
                reduce(add, parts)
                if (parts := [words.read(path, langs) for path in how.extra or ()])
                else None
            )
            text = corpus
            if how.sample is not None:
                text, more = (
                    drawn(corpus if more is None else corpus + more, how.sample, words.seed),
                    None,
                )
            about = {
                "model": words.model,
                "seed": words.seed,
                "prior": similar,
                "prior_weight": how.prior_weight,
            }
            aligner = WordAligner.train(text, extra=more, progress=progress, **about)
            if how.tables is not None:
                aligner.save(how.tables)
        links = aligner.aligned(corpus, symmetrize=words.symmetrize, seed=words.seed)
        return _write(how, links, words), len(corpus)


def _write(
    how: LinkSettings,
    parts: Iterable[WordPairs],
    words: Words,
    done: Callable[[int], object] = lambda n: None,
) -> int:
    """Write links in Pharaoh format, call `done` with the sentence count of each part, and return
    the number of links.
    """
    counts = []

    def lines() -> Iterator[str]:
        for pairs in parts:
            counts.append(len(pairs))
            written = pairs.pharaoh_lines(
                posteriors=how.posteriors, one_based=bool(words.one_based)
            )
            yield from (f"{line}\n" for line in written)
            done(pairs.n_sentences)

    write_lines(how.out, lines())
    return sum(counts)


def held_out(
    encoder: str,
    corpus: ParallelCorpus,
    also: Sequence[str],
    words: Words,
    parts: int,
    *,
    load: Mapping[str, Any],
    progress: bool = False,
    say: Say = lambda line: None,
) -> HeldOut:
    """Align copies of the encoder, each without one part of the text; return cross-fitted
    similarities, see `calque.HeldOut`.

    Args:
        words: settings for tokenisation and word alignment of the training text; the same seed is
            used to train the encoder.

    Raises:
        SettingError: the languages of a text in `also` are missing, or the encoder cannot be
            trained.
    """
    from calque.alignment.held_out import HeldOut, common, small
    from calque.encoders.loading import load_encoder
    from calque.encoders.trainable import TrainableEncoder

    named = [pair_and_path(each) for each in also]
    if unknown := [path for pair, path in named if pair is None]:
        raise SettingError(
            f"--also {unknown[0]}: put the languages before the file, e.g. en-nl={unknown[0]}"
        )
    loaded = load_encoder(encoder, **load)
    if not isinstance(loaded, TrainableEncoder):
        raise SettingError(
            f"{loaded.name} cannot be cross-fitted, because it has no trainable weights"
        )
    corpora = [corpus, *(words.read(path, pair) for pair, path in named if pair is not None)]
    learning = replace(words, symmetrize="one-to-one")
    pairs = [learning.link(text, progress=progress) for text in corpora]
    n, links = sum(map(len, corpora)), sum(map(len, pairs))
    say(
        f"aligning the encoder {parts} times on {links:,} links in {n:,} sentence pairs, each time "
        "without one part"
    )
    tuner = small(loaded, common(corpora), seed=words.seed)
    return HeldOut(loaded, corpora, pairs, parts=parts, tuner=tuner, progress=progress)


def drawn(corpus: ParallelCorpus, n: int, seed: int) -> ParallelCorpus:
    """Draw `n` random sentence pairs from a text, and return them in the order of the text."""
    if n >= len(corpus):
        return corpus
    return corpus.take(
        np.sort(np.random.default_rng(seed).choice(len(corpus), n, replace=False, shuffle=False))
    )


def links_of(
    corpora: Sequence[ParallelCorpus],
    words: Words,
    *,
    folder: Path,
    say: Say,
    progress: bool = False,
) -> list[WordPairs]:
    """Link each corpus with the statistical aligner, or load the links that an interrupted run
    saved in the folder for the same text and settings."""
    linked = []
    for corpus in corpora:
        settings = [corpus.langs, words.model, words.symmetrize, words.seed]
        digest = hashlib.blake2b(json_text(settings, undefined="name").encode(), digest_size=16)
        digest.update((digest_of(corpus.source) + digest_of(corpus.target)).encode())
        path = folder / f"{digest.hexdigest()}.align"
        about = f"{len(corpus):,} sentence pairs ({'-'.join(corpus.langs)})"
        if path.is_file():
            say(f"loading word links of {about} from an interrupted run")
            linked.append(WordPairs.open(path, one_based=False))
            continue
        say(f"linking the words of {about}")
        linked.append(words.link(corpus, progress=progress))
        if is_first():
            path.parent.mkdir(parents=True, exist_ok=True)
            linked[-1].save(path, posteriors=linked[-1].posterior is not None)
    return linked
