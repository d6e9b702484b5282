"""From parallel text and an encoder to a folder with the aligned encoder, its links and its model card."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.alignment import METHODS, learns_from, methods_for
from calque.corpora.by_name import name_of
from calque.distributed import is_first
from calque.encoders.folder import RUN_FILE
from calque.errors import SettingError
from calque.linking import Say, Words, skipped
from calque.pairs import WordPairs
from calque.runs.card import add_scores
from calque.runs.folder import TRAINING, check, writing
from calque.runs.judged import scores_of, sentence_cost
from calque.runs.links import links_of

if TYPE_CHECKING:
    from calque.alignment.base import Method
    from calque.encoders import Encoder
    from calque.text import ParallelCorpus


@dataclass
class Aligned:
    """What an alignment run leaves behind."""

    encoder: Encoder
    folder: Path
    record: dict[str, Any] = field(default_factory=dict)


def align(
    texts: Sequence[str],
    *,
    langs: Sequence[tuple[str, str]],
    encoder: str,
    method: str,
    towards: str,
    out: str | Path,
    links: Sequence[str] = (),
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    keep_layers: bool = False,
    checkpoint_every: int = 200,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Run one method.

    Arguments not listed here are the options of `calque align`.

    Args:
        out: folder for the result, which appears when it is complete. Until then everything is in `.OUT.calque-part`; a training
            that was stopped goes on from what it finds there.
        links: Pharaoh files with the word links, one for each text; without them the statistical aligner links the text. None
            for a method that needs none: it takes the sides for text of each language.
        words: how words are found and linked.
        load: keyword arguments of `load_encoder` (layer, pooling, …).
    """
    from calque.encoders import load_encoder

    how = make_method(method, towards, options or {})
    words = Words(symmetrize=METHODS[method].symmetrize) if words is None else words
    check(out, overwrite=overwrite)
    needs_links = METHODS[method].needs_links
    if links and not needs_links:
        raise SettingError(f"{method} does not use word links: leave out files of links")
    if links and len(links) != len(texts):
        raise SettingError(f"{len(texts)} texts but {len(links)} files of links: give one --links per text")
    corpora = words.read_all(texts, langs)
    for path, corpus in zip(texts, corpora, strict=True):
        if towards not in corpus.langs:
            raise SettingError(f"--towards {towards}: {path} is in {corpus.langs[0]} and {corpus.langs[1]}")
    base = load_encoder(encoder, alike=not METHODS[method].of_each, **dict(load or {}))
    with writing(out, overwrite=overwrite) as folder:
        started = time.perf_counter()
        if links:
            pairs = [words.open_pairs(path, corpus) for path, corpus in zip(links, corpora, strict=True)]
        elif needs_links:
            pairs = links_of(corpora, words, folder=folder / TRAINING, say=say, progress=progress)
        else:
            pairs = [WordPairs(*np.empty((3, 0), dtype=int), n_sentences=len(corpus)) for corpus in corpora]
        begun = time.perf_counter()
        count = f", {sum(map(len, pairs)):,} word links" if needs_links else ""
        say(f"{method}: {sum(map(len, corpora)):,} sentence pairs{count}")
        aligned = how.align(
            base, corpora, pairs, folder=folder / TRAINING, checkpoint_every=checkpoint_every, progress=progress
        )
        record = how.record()
        warn_of_unused(record.get("counts", {}), record["settings"].get("max_words"), corpora)
        record.update(
            method=method,
            towards=towards,
            texts=[
                {"path": name_of(path), "langs": list(corpus.langs), "sentence_pairs": len(corpus),
                 **({"word_pairs": len(linked)} if needs_links else {}),
                 "unusable_lines": sum(corpus.skipped.values())}
                for path, corpus, linked in zip(texts, corpora, pairs, strict=True)
            ],
            **(links_record(words, links) if needs_links else {"pretokenized": words.pretokenized}),
            seconds={"words": round(begun - started, 2), "method": round(time.perf_counter() - begun, 2)},
        )  # fmt: skip
        if is_first() and (cost := sentence_cost(base, aligned, corpora, towards)) is not None:
            record["sentence_cost"] = cost
        leave(aligned, folder, base, record, keep_layers=keep_layers)
        scores = [score.to_dict() for score in scores_of(how.judged())]
        if scores and is_first():
            add_scores(folder, scores)
            record["scores"] = scores
    return Aligned(aligned, Path(out), record)


def links_record(words: Words, links: Sequence[str]) -> dict[str, Any]:
    """What the record says of the links."""
    return {
        "words": {"model": "given links" if links else words.model, "symmetrize": words.symmetrize,
                  "pretokenized": words.pretokenized, "seed": words.seed}
    }  # fmt: skip


def leave(aligned: Encoder, folder: Path, base: Encoder, record: dict[str, Any], *, keep_layers: bool = False) -> None:
    """Save an encoder with its model card; of several processes, the first does.

    Args:
        base: the encoder that was aligned; the record gets what is known of it.
        record: of the run, see `model_card`.
    """
    record |= {"encoder": base.name, "encoder_fingerprint": base.fingerprint, "encoder_precision": base.precision}
    if is_first():
        save_with_card(aligned, folder, record, keep_layers=keep_layers)


def save_with_card(encoder: Encoder, folder: Path, record: dict[str, Any], *, keep_layers: bool = False) -> None:
    """Save an encoder with its model card, of whose record it completes what follows from the folder."""
    from calque.encoders import HuggingFaceEncoder
    from calque.encoders.card import write_card

    encoder.made = record
    if isinstance(encoder, HuggingFaceEncoder):
        encoder.save(folder, keep_layers=keep_layers)
    else:
        encoder.save(folder)
    if not (folder / RUN_FILE).is_file():  # of a class from elsewhere, whose `save` writes no card
        write_card(folder, encoder, record)


def make_method(name: str, towards: str, options: Mapping[str, Any]) -> Method:
    """A method that learns from parallel text.

    Raises:
        SettingError: there is none of this name, or it has no such option.
    """
    if not learns_from(name, "parallel"):
        raise SettingError(f"unknown method {name!r}, expected one of {', '.join(methods_for('parallel'))}")
    kind = METHODS.load(name)
    try:
        return kind(towards=towards, **METHODS[name].settings, **options)
    except TypeError as error:
        raise SettingError(f"{name} cannot be made with {', '.join(options) or 'no options'} ({error})") from error


def warn_of_unused(counts: Mapping[str, Any], max_words: int | None, corpora: Sequence[ParallelCorpus]) -> None:
    """Say which sentence pairs a training had no use for; lines without a pair were counted when they were read."""
    unusable = sum(sum(corpus.skipped.values()) for corpus in corpora)
    reasons = {
        f"with more than {max_words} words on a side": counts.get("too_long", 0),
        "without a word link": counts.get("without_links", 0) - unusable,
    }
    unused = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n > 0)
    if unused and is_first():
        skipped(f"training skips some of the {sum(map(len, corpora)):,} sentence pairs: {unused}")
