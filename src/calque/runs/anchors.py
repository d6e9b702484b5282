"""Compute anchors from plain text, and write them to a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import InputError, SettingError
from calque.input_texts import Say, skipped
from calque.runs.folder import check_files
from calque.runs.settings import AnchorSettings
from calque.spec import numbers
from calque.storage import NEW, locked, part_of, remove, replace_folder, sync, temporary_folder

if TYPE_CHECKING:
    from calque.anchors import Anchors
    from calque.encoders import Encoder

FORMATS = ("safetensors", "avg_embeds")
SUMS_FILE = "sums.safetensors"
_BLOCK = 2048  # number of sentences read at a time


def make_anchors(
    settings: AnchorSettings,
    *,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[int, Anchors]:
    """Compute the mean vector of each word type over a text that is read in blocks, and return
    these anchors by layer.

    The sums of the vectors are saved in the folder, so an interrupted call can be resumed, and a
    later call can add further text.
    """
    from calque.anchors import save_anchors, write_avg_embeds
    from calque.anchors.files import FILE
    from calque.corpora.plain import stream_sentences
    from calque.encoders import load_encoder
    from calque.encoders.anchors import sum_anchors

    folder = Path(settings.out)
    if settings.format not in FORMATS:
        raise SettingError(f"format must be one of {', '.join(FORMATS)}, got {settings.format!r}")
    # The sums are in the temporary folder if a call was killed after it had moved only the anchors.
    sums_files = (folder / SUMS_FILE, _place(folder) / NEW / SUMS_FILE)
    check_files(folder, (FILE, "norms.json"), lambda: any(map(Path.is_file, sums_files)))
    words = None if settings.vocabulary is None else read_vocabulary(settings.vocabulary)
    loaded = load_encoder(settings.encoder, **dict(load or {}))
    sentences = chain.from_iterable(
        stream_sentences(
            text,
            lang=settings.lang,
            format=settings.text_format,
            pretokenized=settings.pretokenized,
            limit=settings.limit,
            block=_BLOCK,
        )
        for text in settings.text
    )
    with _publishing(folder) as part:
        sums = sum_anchors(
            loaded,
            sentences,
            numbers(settings.layers),
            vocabulary=words,
            most_occurrences=settings.most_occurrences,
            seed=settings.seed,
            partial=part / SUMS_FILE,
            earlier=folder / SUMS_FILE,
            progress=progress,
        )
        occurrences = f"{int(sums.counts.sum()):,} occurrences of {len(sums.words):,} words"
        say(f"{sums.n_sentences:,} sentences, {occurrences}")
        if sums.uncovered:
            skipped(
                f"{sums.uncovered:,} words are skipped, because the encoder has no vector for them"
            )
        anchors = sums.finish(at_least=settings.at_least, most=settings.most)
        first = next(iter(anchors.values()))
        if not len(first):
            raise SettingError(
                "no word occurs often enough to compute an anchor; lower --at-least or use more "
                "text"
            )
        if settings.format == "safetensors":
            save_anchors(part, anchors)
        else:
            write_avg_embeds(part, anchors)
    layers = "layers" if len(anchors) > 1 else "layer"
    say(f"{len(first):,} anchors in {len(anchors)} {layers} in {folder}")
    return anchors


def _place(folder: Path) -> Path:
    """Return the path of the temporary folder, which is inside `folder` if `folder` exists, see
    `_publishing`.
    """
    if folder.is_dir():
        return part_of(folder / "anchors", "training")
    return part_of(Path(os.path.realpath(folder)), "training")


@contextmanager
def _publishing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, and move its files to `folder` at the end of the block; a new
    folder appears atomically.

    The temporary folder may contain the sums of an interrupted run, and is kept if the block is
    interrupted after the sums were saved. It is inside `folder` if `folder` exists, because the
    parent folder may not be writable.
    """
    exists = folder.is_dir()
    with locked(folder / SUMS_FILE if exists else folder):
        folder = Path(os.path.realpath(folder))
        place = _place(folder)
        part = temporary_folder(place, folder)
        for entry in part.iterdir():
            if entry.name != SUMS_FILE:  # written by a process that was killed
                remove(entry)
        try:
            yield part
            if exists:
                _move_files(part, folder)
            else:
                replace_folder(part, folder)
        except BaseException:
            if not (part / SUMS_FILE).is_file():
                remove(place)
            raise
        remove(place)


def _move_files(part: Path, folder: Path) -> None:
    """Move the files of a folder to another. The sums are moved last, because anchors without sums
    are a complete result.
    """
    for entry in sorted(part.iterdir(), key=lambda entry: entry.name == SUMS_FILE):
        os.replace(entry, folder / entry.name)
    sync(folder)


def open_folder(path: str, *, lang: str = "", encoder: Encoder | None = None) -> dict[int, Anchors]:
    """Read a folder of anchors written by `calque anchors`, or by the code of Schuster et al.
    (2019), which stores no language.

    Raises:
        InputError: the folder contains no anchors, or its anchors belong to another language or
            encoder.
    """
    from calque.anchors import open_anchors, read_avg_embeds
    from calque.anchors.files import FILE
    from calque.encoders.anchors import pass_of

    folder = Path(path)
    if (folder / FILE).is_file():
        anchors = open_anchors(folder)
    else:
        anchors = read_avg_embeds(folder, lang=lang)[0]
    language = next(iter(anchors.values())).lang
    if lang and language != lang:
        raise InputError(
            f"the language of the anchors must be {lang!r}, got {language!r}", path=path
        )
    sums = folder / SUMS_FILE
    fingerprint = pass_of(sums).get("fingerprint") if sums.is_file() else None
    if encoder is not None and fingerprint not in (None, encoder.fingerprint):
        fact = f"the anchors were computed with a different encoder, not with {encoder.name}"
        raise InputError(f"{fact}; compute anchors with this encoder", path=path)
    return anchors


def read_vocabulary(path: str) -> list[str]:
    """Read a file with one word per line."""
    from calque.text_files import readable_lines

    lines = [line.strip() for line in readable_lines(path)]
    words = [line for line in lines if line]
    if not words:
        raise InputError("the file contains no words; expected one word per line", path=path)
    return words
