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
from calque.explore.collection import Collection
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
    """Return whether a folder is not an encoder, but contains some: what `calque demo` leaves."""
    return folder.is_dir() and not holds_encoder(folder) and bool(_members(folder))


def _members(folder: Path) -> list[Path]:
    return [member for member in sorted(folder.iterdir()) if member.is_dir() and holds_encoder(member)]


def find_encoders(names: Sequence[str], base: str | None, say: Say) -> list[NamedEncoder]:
    """Find encoders by name or folder, each with the one that it was aligned from, where that can be found; those before
    alignment come first.

    Args:
        names: what `calque.load_encoder` takes, or a folder of encoders.
        base: the encoder before alignment, if it is none of those and their records do not lead to it.

    Raises:
        InputError: nothing can be loaded from there.
    """
    from calque.encoders import load_encoder

    places = [each for name in names for each in (_members(Path(name)) if is_collection(Path(name)) else [name])]
    found = [_named(place, load_encoder(place)) for place in places]
    if base is not None:
        befores = [_named(base, load_encoder(base))]
    else:
        known = (_before(each.encoder, Path(place), say) for place, each in zip(places, found, strict=True))
        befores = [before for before in known if before is not None]
    by_hash: dict[str, NamedEncoder] = {}  # an encoder that is named twice is there once
    for each in (*found, *befores):
        by_hash.setdefault(each.encoder.fingerprint, each)
    first = {before.encoder.fingerprint for before in befores}
    renamed: dict[str, NamedEncoder] = {}
    for key in sorted(by_hash, key=lambda key: key not in first):
        name, k = by_hash[key].name, 2
        while name in renamed:
            name, k = f"{by_hash[key].name} {k}", k + 1
        renamed[name] = replace(by_hash[key], name=name, before=key in first)
    return list(renamed.values())


def _named(place: str | Path, encoder: Encoder) -> NamedEncoder:
    return NamedEncoder(Path(place).resolve().name if Path(place).is_dir() else str(place), encoder, False)


def _before(encoder: Encoder, folder: Path, say: Say) -> NamedEncoder | None:
    """Return the encoder that this one was aligned from, if its record leads to it."""
    from calque.encoders import HuggingFaceEncoder, load_encoder

    record: dict[str, Any] = {}
    if (folder / RECORD).is_file():
        try:
            record = dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"not written by calque ({error})", path=folder / RECORD) from error
    if encoder.base is not None:  # maps: the encoder before is in the same folder
        name = record.get("encoder") or f"{folder.name} without its maps"
        return NamedEncoder(str(name), encoder.base, True)
    if "encoder" not in record or "towards" not in record:
        return None
    name, settings = str(record["encoder"]), dict[str, Any](layer=encoder.layer)
    settings |= {"pooling": encoder.pooling} if isinstance(encoder, HuggingFaceEncoder) else {}
    places = [str(place) for place in (folder.parent / name, Path(name)) if place.is_dir()]
    for place in places or [name] * (":" not in name):  # a record names no class that would be imported
        try:
            before = load_encoder(place, **settings)
        except CalqueError:
            continue
        if record.get("encoder_fingerprint") in (None, before.fingerprint):
            return NamedEncoder(name, before, True)
    say(f"{folder} was aligned from {name}, which was not found unchanged: give it with --base FOLDER to compare")
    return None


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
    """Return the text to explore: what is given, else that of a demo's folder, else the sample that comes with calque.

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
    plain = [language_and_path(item) for item in text]
    texts = [([read_sentences(p, lang=lang, pretokenized=pretokenized, limit=limit)], False) for lang, p in plain]
    pairs = list(langs) * len(test) if len(langs) == 1 else list(langs)
    if len(pairs) != len(test):
        raise SettingError(f"{len(test)} parallel texts (--test) but {len(pairs)} pairs of --langs")
    parallel = []
    for path, pair in zip(test, pairs, strict=True):
        corpus = read_parallel(path, langs=pair, pretokenized=pretokenized, on_error="skip", limit=limit)
        tell_skipped(corpus, path)
        parallel.append((corpus, False))
    if not text and not test:
        for path, lang, part in (file for name in names for file in _demo_texts(Path(name))):
            corpus = read_parallel(path, langs=("en", lang), pretokenized=True, limit=limit)
            parallel.append((corpus, part == "train"))
        if not parallel:
            say("no --text and no --test: exploring the sample text that comes with calque")
            parallel = [(corpus if limit is None else corpus[:limit], False) for corpus in map(sample_text, LANGUAGES)]
    collection = Collection([*texts, *(([corpus.source, corpus.target], trained) for corpus, trained in parallel)])
    if not collection.n_words:
        raise SettingError("the text to explore has no words")
    say(
        f"{collection.n_words:,} words of {len(collection):,} sentences in {', '.join(collection.languages)}"
        + (f"; {collection.empty:,} empty lines skipped" if collection.empty else "")
    )
    return collection


def _demo_texts(folder: Path) -> list[tuple[Path, str, str]]:
    """Return files of the text in a demo's folder, with language and part, the part for testing first."""
    if not is_collection(folder) or not (folder / "text").is_dir():
        return []
    matches = [(file, _DEMO_TEXT.fullmatch(file.name)) for file in sorted((folder / "text").iterdir())]
    rank = {lang: k for k, lang in enumerate(LANGUAGES)}
    texts = [(file, match[1], match[2]) for file, match in matches if match]
    return sorted(texts, key=lambda text: (text[2] != "test", rank.get(text[1], len(rank)), text[1]))


def place_for(name: str) -> Path:
    """Return where the vectors are kept for what was named first: in a demo's folder, beside an encoder's, or here."""
    folder = Path(name)
    if is_collection(folder):
        return folder / "explore"
    return folder.parent / f"{folder.resolve().name}-explore" if folder.is_dir() else Path("calque-explore")
