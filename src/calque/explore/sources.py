"""What a user names on the command line as encoders and text to explore."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora import read_parallel, read_sentences
from calque.corpora.languages import language_and_path
from calque.corpora.sample import LANGUAGES, sample_text
from calque.encoders.folder import holds_encoder
from calque.errors import CalqueError, InputError, SettingError
from calque.explore.collection import Collection, Gatherer
from calque.linking import tell_skipped

if TYPE_CHECKING:
    from calque.encoders import Encoder

Say = Callable[[str], None]
RECORD = "calque-run.json"
_DEMO_TEXT = re.compile(r"([A-Za-z]{2,3}(?:-\w+)?)\.(train|test)\.tsv")


@dataclass(frozen=True)
class NamedEncoder:
    """An encoder to explore.

    Attributes:
        name: short, and different from every other's.
        before: whether it is one that others were made from by aligning.
    """

    name: str
    encoder: Encoder
    before: bool


# -- encoders ----------------------------------------------------------------------------------------------------------
def is_collection(folder: Path) -> bool:
    """Whether a folder is not an encoder, but holds some: what `calque demo` leaves."""
    return folder.is_dir() and not holds_encoder(folder) and bool(_members(folder))


def find_encoders(names: Sequence[str], base: str | None, say: Say) -> list[NamedEncoder]:
    """Encoders by name or folder, each with the one that it was aligned from, where that can be found.

    Args:
        names: what `calque.load_encoder` takes, or a folder of encoders.
        base: the encoder before alignment, if it is none of those and their records do not lead to it.

    Raises:
        InputError: nothing can be loaded from there.
    """
    from calque.encoders import load_encoder

    by_hash: dict[str, NamedEncoder] = {}  # an encoder that is named twice is there once
    befores = [] if base is None else [NamedEncoder(_called(base), load_encoder(base), True)]
    for name in names:
        folder = Path(name)
        for member in _members(folder) if is_collection(folder) else [name]:
            encoder = load_encoder(member)
            by_hash.setdefault(encoder.fingerprint, NamedEncoder(_called(member), encoder, False))
            before = None if base is not None else _before(encoder, Path(member), len(names) == 1, say)
            befores += [] if before is None else [before]
    for before in befores:
        known = by_hash.get(before.encoder.fingerprint, before)
        by_hash[before.encoder.fingerprint] = replace(known, before=True)
    return _distinct(list(by_hash.values()))


def _members(folder: Path) -> list[Path]:
    """Folders of encoders in a folder, in the order of its results, where there are such."""
    members = [member for member in sorted(folder.iterdir()) if member.is_dir() and holds_encoder(member)]
    order = list(dict.fromkeys(str(row.get("method")) for row in _results(folder)))
    return sorted(members, key=lambda member: order.index(member.name) if member.name in order else len(order))


def _results(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return [row for row in map(json.loads, lines) if isinstance(row, dict)]
    except (OSError, ValueError):
        return []


def _before(encoder: Encoder, folder: Path, alone: bool, say: Say) -> NamedEncoder | None:
    """The encoder that this one was aligned from."""
    from calque.encoders import HuggingFaceEncoder, load_encoder

    record: dict[str, Any] = {}
    if (folder / RECORD).is_file():
        try:
            record = dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"not written by calque ({error})", path=folder / RECORD) from error
    if encoder.base is not None:  # maps: the encoder before is in the same folder
        name = record.get("encoder") or _demo_base(folder.parent) or f"{folder.name} without its maps"
        return NamedEncoder(str(name), encoder.base, True)
    if "encoder" not in record or "towards" not in record:
        return None
    name, expected = str(record["encoder"]), record.get("encoder_fingerprint")
    settings: dict[str, Any] = {"layer": encoder.layer}
    if isinstance(encoder, HuggingFaceEncoder):
        settings["pooling"] = encoder.pooling
    places = [str(place) for place in (folder.parent / name, Path(name)) if place.is_dir()]
    for place in places or [name] * (":" not in name):  # a record names no class that would be imported
        try:
            before = load_encoder(place, **settings)
        except CalqueError:
            continue
        if expected in (None, before.fingerprint):
            return NamedEncoder(name, before, True)
    if alone:
        say(f"{folder} was aligned from {name}, which was not found unchanged: give it with --base FOLDER to compare")
    return None


def _demo_base(folder: Path) -> str | None:
    """What the encoder of a demo was called."""
    names = (row.get("settings", {}).get("encoder") for row in _results(folder) if row.get("method") == "base")
    return next((str(name) for name in names if name), None)


def _called(name: str | Path) -> str:
    path = Path(name)
    return path.resolve().name if path.is_dir() else str(name)


def _distinct(sources: list[NamedEncoder]) -> list[NamedEncoder]:
    """The same with names that differ, those before alignment first."""
    renamed: dict[str, NamedEncoder] = {}
    for source in sorted(sources, key=lambda source: not source.before):
        name, k = source.name, 2
        while name in renamed:
            name, k = f"{source.name} {k}", k + 1
        renamed[name] = replace(source, name=name)
    return list(renamed.values())


# -- text --------------------------------------------------------------------------------------------------------------
def find_text(
    names: Sequence[str],
    *,
    text: Sequence[str] = (),
    test: Sequence[str] = (),
    langs: Sequence[tuple[str, str]] = (),
    pretokenized: bool = False,
    limit: int | None = None,
    say: Say = lambda line: None,
) -> Collection:
    """The text to explore: what is given, else that of a demo's folder, else the sample that comes with calque.

    Args:
        names: the encoders, as they were named.
        text: plain text, one sentence a line, `de=FILE` where the file's name does not say the language.
        test: parallel text, with `langs`.
        langs: its languages, one pair for each file or one for all.
        pretokenized: words are separated by white space.
        limit: read only so many lines of each file.

    Raises:
        SettingError, InputError: files without a language, or that cannot be read; no words at all.
    """
    gatherer = Gatherer()
    for item in text:
        lang, path = language_and_path(item)
        gatherer.add(read_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit))
    pairs = list(langs) * len(test) if len(langs) == 1 else list(langs)
    if len(pairs) != len(test):
        raise SettingError(f"{len(test)} parallel texts (--test) but {len(pairs)} pairs of --langs")
    for path, pair in zip(test, pairs, strict=True):
        corpus = read_parallel(path, langs=pair, pretokenized=pretokenized, on_error="skip", limit=limit)
        tell_skipped(corpus, path)
        gatherer.add_pairs(corpus)
    if not text and not test:
        files = [file for name in names for file in _demo_texts(Path(name))]
        for path, lang, part in files:
            corpus = read_parallel(path, langs=("en", lang), pretokenized=True, limit=limit)
            gatherer.add_pairs(corpus, trained=part == "train")
        if not files:
            say("no --text and no --test: exploring the sample text that comes with calque")
            for lang in LANGUAGES:
                corpus = sample_text(lang)
                gatherer.add_pairs(corpus if limit is None else corpus[:limit])
    collection = gatherer.collection()
    if not collection.n_words:
        raise SettingError("the text to explore has no words")
    say(
        f"{collection.n_words:,} words of {len(collection):,} sentences in {', '.join(collection.languages)}"
        + (f"; {gatherer.empty:,} empty lines skipped" if gatherer.empty else "")
    )
    return collection


def _demo_texts(folder: Path) -> list[tuple[Path, str, str]]:
    """Files of the text in a demo's folder, with language and part, the part for testing first."""
    if not is_collection(folder) or not (folder / "text").is_dir():
        return []
    matches = [(file, _DEMO_TEXT.fullmatch(file.name)) for file in sorted((folder / "text").iterdir())]
    texts = [(file, match[1], match[2]) for file, match in matches if match]
    rank = {lang: k for k, lang in enumerate(LANGUAGES)}
    return sorted(texts, key=lambda text: (text[2] != "test", rank.get(text[1], len(rank)), text[1]))


def place_for(name: str) -> Path:
    """Where the vectors are kept for what was named first: in a demo's folder, beside an encoder's, or here."""
    folder = Path(name)
    if is_collection(folder):
        return folder / "explore"
    return folder.parent / f"{folder.resolve().name}-explore" if folder.is_dir() else Path("calque-explore")
