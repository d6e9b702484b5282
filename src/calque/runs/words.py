"""Align the words of parallel texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora.languages import pair_and_path
from calque.distributed import is_first
from calque.errors import SettingError
from calque.input_texts import Say, Words, check_pairs, digest_of
from calque.linker import Linker
from calque.pairs import WordPairs
from calque.progress import bar
from calque.runs.reading import Wish, linked_sample, read_encoder
from calque.runs.settings import LinkSettings, pairs_of
from calque.storage import json_text, locked, write_lines
from calque.text import ParallelCorpus

if TYPE_CHECKING:
    from calque.alignment.held_out import HeldOut
    from calque.wordalign import WordAligner
    from calque.wordalign.statistical import Prior


def link_words(
    settings: LinkSettings,
    *,
    words: Words,
    load: Mapping[str, Any] | None = None,
    choose: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> tuple[int, int]:
    """Link the words of a parallel text, and write the links in Pharaoh format, with one line per
    sentence pair.

    Args:
        settings: with `cross_fit`, the text is split into parts, and the similarities of each part
            are computed by a copy of the encoder that was aligned on the other parts, see
            `calque.HeldOut`.
        words: settings for tokenisation and word alignment.
        load: keyword arguments of `load_encoder`; `layer` and `pooling` can be "auto". They are then
            chosen by the agreement of the encoder's links with those of the statistical aligner on
            a sample of the text, see `choose_reading`.
        choose: whether "auto" is the default of a layer and a pooling that the folder of the
            encoder does not record.

    Returns:
        the number of links, and the number of sentence pairs.

    Raises:
        SettingError: settings are incompatible, or the languages of a text in `also` are missing.
    """
    _check_compatible(settings)
    pairs = pairs_of([settings.train], settings.langs or ())
    if not pairs:
        raise SettingError("--langs is missing; give the languages of the text, e.g. --langs en de")
    check_pairs([settings.train], pairs)
    langs = pairs[0]
    wish = Wish.of(load, usual=choose)
    linker: Linker | None = None  # compares the vectors of an encoder
    if settings.encoder is not None and settings.cross_fit is None:
        linker = _linker(settings.encoder, wish, langs, settings.extract)
    prior: Prior | None = None  # similarities that the aligner uses
    locked_tables = nullcontext() if settings.tables is None else locked(settings.tables)
    with locked(settings.out), locked_tables:
        corpus = words.read(settings.train, langs)
        if linker is not None and linker.encoder is not None:
            encoder, _ = read_encoder(
                linker.encoder, wish, lambda: linked_sample([corpus], words), unit="links", say=say
            )
            linker = Linker(encoder, langs=langs, method=settings.extract)
        if linker is not None and settings.prior:
            prior = linker.similarities
        elif linker is not None:
            with bar(len(corpus), unit="pair", show=progress) as progress_bar:
                links = linker.aligned(corpus)
                return _write(settings, links, words, progress_bar.update), len(corpus)
        if settings.encoder is not None and settings.cross_fit is not None:
            fit = partial(
                held_out,
                settings.encoder,
                corpus,
                settings.also or (),
                words,
                settings.cross_fit,
                wish=wish,
                progress=progress,
                say=say,
            )
            prior = _when_needed(fit)
        aligner = _aligner(settings, corpus, langs, words, prior, progress=progress)
        links = aligner.aligned(corpus, symmetrize=words.symmetrize, seed=words.seed)
        return _write(settings, links, words), len(corpus)


def _linker(name: str, wish: Wish, langs: tuple[str, str], extract: str | None) -> Linker:
    """Open an encoder, or the tables of an aligner, which have neither layers nor poolings. The
    settings are checked before the text is read.

    Raises:
        SettingError: see `Linker`.
    """
    with wish.loading():
        return Linker(name, langs=langs, method=extract, **wish.load)


def _check_compatible(settings: LinkSettings) -> None:
    trains = bool(settings.extra) or settings.tables is not None or settings.sample is not None
    if settings.cross_fit is not None and (settings.use is not None or trains):
        raise SettingError(
            "--cross-fit aligns the encoder on the text to link; leave out --use, --extra, "
            "--tables and --sample"
        )
    if settings.use is not None and settings.prior_weight is not None:
        raise SettingError(
            "the aligner loaded with --use has its own prior weight; leave out --prior-weight"
        )
    if settings.use is not None and trains:
        raise SettingError(
            "--use links words without training; leave out --extra, --tables and --sample"
        )


def _when_needed(fit: Callable[[], HeldOut]) -> Prior:
    """Return the similarities of `fit()`, which is called once, when the aligner first needs them.

    Errors in the settings of the aligner are therefore found before an encoder is aligned.
    """
    fitted = cache(fit)
    return lambda text: fitted()(text)


def _aligner(
    settings: LinkSettings,
    corpus: ParallelCorpus,
    langs: tuple[str, str],
    words: Words,
    prior: Prior | None,
    *,
    progress: bool,
) -> WordAligner:
    """Open the statistical aligner of the settings, or train one on the corpus and on the further
    texts of the settings.
    """
    from calque.wordalign import WordAligner

    if settings.use is not None:
        return WordAligner.open(settings.use, prior=prior)
    extra: ParallelCorpus | None = None
    for path in settings.extra or ():
        text = words.read(path, langs)
        extra = text if extra is None else extra + text
    if settings.sample is not None:
        corpus = corpus if extra is None else corpus + extra
        corpus, extra = sampled(corpus, settings.sample, words.seed), None
    aligner = WordAligner.train(
        corpus,
        extra=extra,
        model=words.model,
        seed=words.seed,
        prior=prior,
        prior_weight=settings.prior_weight,
        progress=progress,
    )
    if settings.tables is not None:
        aligner.save(settings.tables)
    return aligner


def _write(
    settings: LinkSettings,
    parts: Iterable[WordPairs],
    words: Words,
    advance: Callable[[int], object] = lambda n: None,
) -> int:
    """Write links in Pharaoh format, call `advance` with the sentence count of each part, and
    return the number of links.
    """
    counts: list[int] = []

    def lines() -> Iterator[str]:
        for pairs in parts:
            counts.append(len(pairs))
            for line in pairs.pharaoh_lines(
                posteriors=settings.posteriors, one_based=bool(words.one_based)
            ):
                yield f"{line}\n"
            advance(pairs.n_sentences)

    write_lines(settings.out, lines())
    return sum(counts)


def held_out(
    encoder: str,
    corpus: ParallelCorpus,
    also: Sequence[str],
    words: Words,
    parts: int,
    *,
    wish: Wish,
    progress: bool = False,
    say: Say = lambda line: None,
) -> HeldOut:
    """Align copies of the encoder, each without one part of the text; return cross-fitted
    similarities, see `calque.HeldOut`.

    Args:
        also: further training texts, as `en-nl=FILE`.
        words: settings for tokenisation and word alignment of the training text; the same seed is
            used to train the encoder.
        wish: how the encoder is to be read.

    Raises:
        SettingError: the languages of a text in `also` are missing, or the encoder cannot be
            trained.
    """
    from calque.alignment.held_out import HeldOut, common, small
    from calque.encoders.loading import load_encoder
    from calque.encoders.trainable import TrainableEncoder

    named = [pair_and_path(text) for text in also]
    for pair, path in named:
        if pair is None:
            raise SettingError(
                f"--also {path}: put the languages before the file, e.g. en-nl={path}"
            )
    with wish.loading():
        loaded = load_encoder(encoder, **wish.load)
    if not isinstance(loaded, TrainableEncoder):
        raise SettingError(
            f"{loaded.name} cannot be cross-fitted, because it has no trainable weights"
        )
    corpora = [corpus, *(words.read(path, pair) for pair, path in named if pair is not None)]
    # One-to-one links are more precise than the links that the user requested.
    training_words = replace(words, symmetrize="one-to-one")
    pairs = [training_words.link(text, progress=progress) for text in corpora]
    loaded, _ = read_encoder(loaded, wish, lambda: (corpora, pairs), unit="links", say=say)
    n, n_links = sum(map(len, corpora)), sum(map(len, pairs))
    say(
        f"aligning the encoder {parts} times on {n_links:,} links in {n:,} sentence pairs, each "
        "time without one part"
    )
    tuner = small(loaded, common(corpora), seed=words.seed)
    return HeldOut(loaded, corpora, pairs, parts=parts, tuner=tuner, progress=progress)


def sampled(corpus: ParallelCorpus, n: int, seed: int) -> ParallelCorpus:
    """Draw `n` random sentence pairs from a text, and return them in the order of the text."""
    if n >= len(corpus):
        return corpus
    rng = np.random.default_rng(seed)
    return corpus.take(np.sort(rng.choice(len(corpus), n, replace=False, shuffle=False)))


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
    links = []
    for corpus in corpora:
        settings = [corpus.langs, words.model, words.symmetrize, words.seed]
        digest = hashlib.blake2b(json_text(settings, undefined="name").encode(), digest_size=16)
        digest.update((digest_of(corpus.source) + digest_of(corpus.target)).encode())
        path = folder / f"{digest.hexdigest()}.align"
        about = f"{len(corpus):,} sentence pairs ({'-'.join(corpus.langs)})"
        if path.is_file():
            say(f"loading word links of {about} from an interrupted run")
            links.append(WordPairs.open(path, one_based=False))
            continue
        say(f"linking the words of {about}")
        pairs = words.link(corpus, progress=progress)
        links.append(pairs)
        if is_first():
            path.parent.mkdir(parents=True, exist_ok=True)
            pairs.save(path, posteriors=pairs.posterior is not None)
    return links
