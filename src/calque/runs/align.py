"""From parallel text and an encoder to a folder with the aligned encoder, its links and its model card."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.runs.card import model_card
from calque.runs.texts import Say, Words, skipped

if TYPE_CHECKING:
    from calque.encoders import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

MAPS = ("rotation", "normalized-rotation", "sentence-rotation", "linear")
TUNERS = ("finetune", "contrastive")


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
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Run one method.

    Args:
        texts: parallel texts in any format that `read_parallel` knows.
        langs: their languages, one pair for each text or one for all.
        encoder: hub name, folder or `mini`.
        method: one of `MAPS` or `TUNERS`.
        towards: the language that the others move towards.
        out: folder for the result. A stopped training continues from what it finds there.
        links: Pharaoh files with the word links, one for each text; without them the statistical aligner links the text.
        words: how words are found and linked.
        load: keyword arguments of `load_encoder` (layer, pooling, …).
        options: keyword arguments of the method.
        overwrite: replace a finished result in `out`.
        progress: show bars on standard error.
        say: takes one line of progress.
    """
    from calque.encoders import load_encoder

    if method not in MAPS + TUNERS:
        raise SettingError(f"unknown method {method!r}, expected one of {', '.join(MAPS + TUNERS)}")
    folder, words, options = Path(out), words or Words(), dict(options or {})
    if (folder / "config.json").exists() and not overwrite:
        raise SettingError(f"{folder} already holds an encoder: choose another folder or use --overwrite")
    if links and len(links) != len(texts):
        raise SettingError(f"{len(texts)} texts but {len(links)} files of links: give one --links per text")
    corpora = words.read_all(texts, langs, say)
    for path, corpus in zip(texts, corpora, strict=True):
        if towards not in corpus.langs:
            raise SettingError(f"--towards {towards}: {path} is in {corpus.langs[0]} and {corpus.langs[1]}")
    base = load_encoder(encoder, **dict(load or {}))
    started = time.perf_counter()
    found = _links(corpora, links, words, say, progress)
    linked = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{method}: {sum(map(len, corpora)):,} sentence pairs, {sum(map(len, found)):,} word links")
    aligned, record = _run(method, base, corpora, found, towards, folder, options, progress)
    record.update(
        method=method,
        towards=towards,
        encoder=base.name,
        encoder_fingerprint=base.fingerprint,
        texts=[
            {"path": Path(path).name, "langs": list(corpus.langs), "sentence_pairs": len(corpus), "word_pairs": len(p),
             "unusable_lines": sum(corpus.skipped.values())}
            for path, corpus, p in zip(texts, corpora, found, strict=True)
        ],
        words={"model": "given links" if links else words.model, "symmetrize": words.symmetrize,
               "pretokenized": words.pretokenized, "seed": words.seed},
        seconds={"words": round(linked - started, 2), "method": round(time.perf_counter() - linked, 2)},
    )  # fmt: skip
    if _is_first():
        aligned.save(folder)
        model_card(folder, record)
    return Aligned(aligned, folder, record)


def _links(
    corpora: Sequence[ParallelCorpus], files: Sequence[str], words: Words, say: Say, progress: bool
) -> list[WordPairs]:
    if files:
        return [words.open_links(path, corpus) for path, corpus in zip(files, corpora, strict=True)]
    found = []
    for corpus in corpora:
        say(f"linking the words of {len(corpus):,} sentence pairs ({corpus.langs[0]}-{corpus.langs[1]})")
        found.append(words.link(corpus, progress=progress))
    return found


def _run(method, base, corpora, found, towards, folder, options, progress) -> tuple[Encoder, dict[str, Any]]:
    if method in TUNERS:
        from calque.training import TUNERS as BY_NAME

        tuner = BY_NAME[method](towards=towards, **options)
        tuned = tuner.tune(base, corpora, found, folder=folder / "training", progress=progress)
        _warn(tuner.counts, tuner.max_words, corpora)
        steps = tuner.history
        record = {"settings": tuner.settings(), "schedule": vars(tuner.used), "counts": vars(tuner.counts),
                  "updates": len(steps), "first_loss": steps[0]["loss"], "last_loss": steps[-1]["loss"]}  # fmt: skip
        return tuned, record
    from calque.encoders.mapped import MappedEncoder
    from calque.maps import KINDS

    unit = "sentences" if method == "sentence-rotation" else "words"
    make: Callable = KINDS["rotation" if unit == "sentences" else method]
    mapped = MappedEncoder.fit(
        base, corpora, found, make=make, towards=towards, unit=unit, progress=progress, **options
    )
    settings = {**mapped.settings, "layers": list(mapped.layers), "combine": mapped.combine}
    return mapped, {"settings": settings}


def _warn(counts: Any, max_words: int | None, corpora: Sequence[ParallelCorpus]) -> None:
    """Say which sentence pairs the training had no use for; lines without a pair were counted when they were read."""
    unusable = sum(sum(corpus.skipped.values()) for corpus in corpora)
    reasons = {
        f"with more than {max_words} words on a side": counts.too_long,
        "without a word link": counts.without_links - unusable,
    }
    told = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n > 0)
    if told and _is_first():
        skipped(f"training skips some of the {sum(map(len, corpora)):,} sentence pairs: {told}")


def _is_first() -> bool:
    """Whether this process writes the result (one does, where several run)."""
    from calque.distributed import is_first

    return is_first()
