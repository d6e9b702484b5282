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

FORMATS = ("safetensors", "avg_embeds")
SUMS_FILE = "sums.safetensors"
_BLOCK = 2048  # number of sentences read at a time


def make_anchors(
    how: AnchorSettings,
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

    folder = Path(how.out)
    if how.format not in FORMATS:
        raise SettingError(f"format must be one of {', '.join(FORMATS)}, got {how.format!r}")
    known = (
        folder / SUMS_FILE,
        _place(folder) / NEW / SUMS_FILE,
    )  # the second remains if only the anchors were moved
    check_files(folder, (FILE, "norms.json"), lambda: any(map(Path.is_file, known)))
    words = None if how.vocabulary is None else read_vocabulary(how.vocabulary)
    loaded = load_encoder(how.encoder, **dict(load or {}))
    read = {"lang": how.lang, "pretokenized": how.pretokenized, "limit": how.limit, "block": _BLOCK}
    read["format"] = how.text_format
    with _publishing(folder) as part:
        sums = sum_anchors(
            loaded,
            chain.from_iterable(stream_sentences(text, **read) for text in how.text),
            numbers(how.layers),
            vocabulary=words,
            most_occurrences=how.most_occurrences,
            seed=how.seed,
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
        anchors = sums.finish(at_least=how.at_least, most=how.most)
        first = next(iter(anchors.values()))
        if not len(first):
            raise SettingError(
                "no word occurs often enough to compute an anchor; lower --at-least or use more "
                "text"
            )
        (save_anchors if how.format == "safetensors" else write_avg_embeds)(part, anchors)
    say(
        f"{len(first):,} anchors in {len(anchors)} layer{'s' if len(anchors) > 1 else ''} in "
        f"{folder}"
    )
    return anchors


def _place(folder: Path) -> Path:
    """Return the path of the temporary folder, which is inside `folder` if `folder` exists, see
    `_publishing`.
    """
    return part_of(
        folder / "anchors" if folder.is_dir() else Path(os.path.realpath(folder)), "training"
    )


@contextmanager
def _publishing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, and move its files to `folder` at the end of the block; a new
    folder appears atomically.

    The temporary folder may contain the sums of an interrupted run, and is kept if the block is
    interrupted after the sums were saved. It is inside `folder` if `folder` exists, because the
    parent folder may not be writable.
    """
    inside = folder.is_dir()
    with locked(folder / SUMS_FILE if inside else folder):
        folder = Path(os.path.realpath(folder))
        place = _place(folder)
        part = temporary_folder(place, folder)
        for entry in part.iterdir():
            if entry.name != SUMS_FILE:  # written by a process that was killed
                remove(entry)
        try:
            yield part
            if (
                inside
            ):  # the sums are moved last, because anchors without sums are a complete result
                for entry in sorted(part.iterdir(), key=lambda entry: entry.name == SUMS_FILE):
                    os.replace(entry, folder / entry.name)
                sync(folder)
            else:
                replace_folder(part, folder)
        except BaseException:
            if not (part / SUMS_FILE).is_file():
                remove(place)
            raise
        remove(place)


def open_folder(path: str, *, lang: str = "", encoder: Any = None) -> dict[int, Anchors]:
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
    anchors = (
        open_anchors(folder) if (folder / FILE).is_file() else read_avg_embeds(folder, lang=lang)[0]
    )
    language = next(iter(anchors.values())).lang
    if lang and language != lang:
        raise InputError(
            f"the language of the anchors must be {lang!r}, got {language!r}", path=path
        )
    fingerprint = (
        pass_of(folder / SUMS_FILE).get("fingerprint") if (folder / SUMS_FILE).is_file() else None
    )
    if encoder is not None and fingerprint not in (None, encoder.fingerprint):
        fact = f"the anchors were computed with a different encoder, not with {encoder.name}"
        raise InputError(f"{fact}; compute anchors with this encoder", path=path)
    return anchors


def read_vocabulary(path: str) -> list[str]:
    """Read a file with one word per line."""
    from calque.text_files import readable_lines

    if not (words := [word for line in readable_lines(path) if (word := line.strip())]):
        raise InputError("the file contains no words; expected one word per line", path=path)
    return words
