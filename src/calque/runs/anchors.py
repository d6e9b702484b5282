"""From plain text and an encoder to a folder with the mean vector of each word."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import InputError, SettingError
from calque.linking import Say, skipped
from calque.runs.folder import check_files
from calque.storage import locked

if TYPE_CHECKING:
    from calque.anchors import Anchors, AnchorSums
    from calque.text import Sentences

FORMATS = ("safetensors", "avg_embeds")
SUMS_FILE = "sums.safetensors"


def make_anchors(
    texts: Sequence[str],
    *,
    lang: str,
    encoder: str,
    out: str | Path,
    layers: Sequence[int] | None = None,
    vocabulary: str | None = None,
    most_occurrences: int | None = None,
    shard: tuple[int, int] = (0, 1),
    pretokenized: bool = False,
    limit: int | None = None,
    block: int = 2048,
    seed: int = 0,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
    **finishing: Any,
) -> dict[int, Anchors]:
    """Sum the vectors of each word type over a text that streams through, and take their means.

    The sums stay in the folder: a stopped call goes on where it was, a finished one with further texts goes on with
    those, and `merge_anchors` joins them with others.

    Arguments not listed here are the options of `calque anchors`.

    Args:
        texts: one sentence a line, all of one language.
        most_occurrences: count only so many occurrences of each word, the first ones.
        shard: (k, n): only block k of every n, from 0; writes the sums alone, for `merge_anchors`.
        finishing: `at_least`, `most` and `format` of `merge_anchors`.

    Returns:
        the anchors by layer; nothing of a shard.
    """
    from calque.encoders import load_encoder
    from calque.encoders.anchors import sum_anchors

    folder, (k, n) = Path(out), shard
    _check(finishing.get("format", "safetensors"), folder)
    words = None if vocabulary is None else read_vocabulary(vocabulary)
    loaded = load_encoder(encoder, **dict(load or {}))
    name = SUMS_FILE if n == 1 else f"sums-{k + 1}-of-{n}.safetensors"
    with locked(folder / name):  # the shards of one text may be made side by side
        sums = sum_anchors(
            loaded, _stream(texts, lang, pretokenized, limit, block), layers, vocabulary=words,
            most_occurrences=most_occurrences, shard=shard, seed=seed,
            partial=folder / name, progress=progress,
        )  # fmt: skip
        if n == 1:
            return _finish(sums, folder, say, **finishing)
    say(f"{_told(sums)} in {folder / name}")
    say(f"when all {n} parts are done: calque anchors --merge {folder}/sums-*-of-{n}.safetensors --out {folder}")
    return {}


def merge_anchors(
    sums: Sequence[str],
    *,
    out: str | Path,
    at_least: int = 1,
    most: int | None = None,
    format: str = "safetensors",
    say: Say = lambda line: None,
) -> dict[int, Anchors]:
    """Join the sums of several passes and take the means.

    Arguments not listed here are the options of `calque anchors --merge`.

    Args:
        sums: files that `make_anchors` wrote, of shards or of different texts.

    Raises:
        InputError: a pass that is not finished, or that stands there twice.
    """
    from calque.anchors import AnchorSums
    from calque.encoders.anchors import pass_of

    folder = Path(out)
    _check(format, folder)
    if not sums:
        raise SettingError("nothing to merge: give files of sums")
    passes = [pass_of(path) for path in sums]
    for number, (path, record) in enumerate(zip(sums, passes, strict=True)):
        if not record.get("finished", True):
            raise InputError("this part is unfinished: run the command that began it again", path=path)
        if record and record in passes[:number]:
            raise InputError(f"the same part of the same text as {sums[passes.index(record)]}", path=path)
        if record.get("fingerprint") != passes[0].get("fingerprint"):
            raise InputError(f"made with another encoder than {sums[0]}", path=path)
    joined = AnchorSums.open(sums[0])
    for path in sums[1:]:
        joined.merge(AnchorSums.open(path))
    about = {name: passes[0].get(name) for name in ("encoder", "fingerprint")}
    with locked(folder / SUMS_FILE):
        joined.save(folder / SUMS_FILE, note=json.dumps({**about, "parts": [Path(path).name for path in sums]}))
        return _finish(joined, folder, say, at_least=at_least, most=most, format=format)


def open_folder(path: str, *, lang: str = "", encoder: Any = None) -> dict[int, Anchors]:
    """Anchors that `calque anchors` wrote, or those of the published code.

    Args:
        path: the folder.
        lang: the language, where the files do not say it.
        encoder: whose anchors they should be.

    Raises:
        InputError: there are none, or they are in another language or of another encoder.
    """
    from calque.anchors import open_anchors, read_avg_embeds
    from calque.anchors.files import FILE
    from calque.encoders.anchors import pass_of

    folder = Path(path)
    anchors = open_anchors(folder) if (folder / FILE).is_file() else read_avg_embeds(folder, lang=lang)[0]
    language = next(iter(anchors.values())).lang
    if lang and language != lang:
        raise InputError(f"these anchors are in {language!r}, expected {lang!r}", path=path)
    fingerprint = pass_of(folder / SUMS_FILE).get("fingerprint") if (folder / SUMS_FILE).is_file() else None
    if encoder is not None and fingerprint not in (None, encoder.fingerprint):
        raise InputError(
            f"these anchors were made with another encoder than {encoder.name}: make them again", path=path
        )
    return anchors


def _check(format: str, folder: Path) -> None:
    from calque.anchors.files import FILE

    if format not in FORMATS:
        raise SettingError(f"format={format!r}, expected one of {', '.join(FORMATS)}")
    check_files(folder, (FILE, "norms.json"), lambda: any(folder.glob("sums*.safetensors")))


def _stream(texts: Sequence[str], lang: str, pretokenized: bool, limit: int | None, block: int) -> Iterator[Sentences]:
    from calque.corpora.plain import stream_sentences

    how = {"lang": lang, "pretokenized": pretokenized, "limit": limit, "block": block}
    return chain.from_iterable(stream_sentences(text, **how) for text in texts)


def read_vocabulary(path: str) -> list[str]:
    """The words of a file that has one a line.

    Raises:
        InputError: it has none, or cannot be read.
    """
    from calque.corpora.lines import Flaw, read_lines

    lines = []
    for line in read_lines(path):
        if isinstance(line, Flaw):
            raise InputError(line.fact, path=line.path, line=line.line)
        lines.append(line.strip())
    if not (words := [word for word in lines if word]):
        raise InputError("the file has no words, expected one per line", path=path)
    return words


def _finish(
    sums: AnchorSums, folder: Path, say: Say, *, at_least: int = 1, most: int | None = None,
    format: str = "safetensors",
) -> dict[int, Anchors]:  # fmt: skip
    from calque.anchors import save_anchors, write_avg_embeds

    say(_told(sums))
    if sums.uncovered:
        skipped(f"{sums.uncovered:,} words skipped, for which the encoder has no vector")
    anchors = sums.finish(at_least=at_least, most=most)
    first = next(iter(anchors.values()))
    if not len(first):
        raise SettingError("no word occurs often enough: there are no anchors to write")
    if format == "safetensors":
        save_anchors(folder, anchors)
    else:
        write_avg_embeds(folder, anchors)
    say(f"{len(first):,} anchors in {len(anchors)} layer{'s' if len(anchors) > 1 else ''} in {folder}")
    return anchors


def _told(sums: AnchorSums) -> str:
    lacking = f", {sums.uncovered:,} words without a vector" if sums.uncovered else ""
    return (
        f"{sums.n_sentences:,} sentences, {int(sums.counts.sum()):,} occurrences of {len(sums.words):,} words{lacking}"
    )
