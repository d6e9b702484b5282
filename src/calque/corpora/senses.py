"""Text annotated with senses, as `SenseText`: the XML of the unified evaluation framework."""

from __future__ import annotations

import re
from array import array
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from calque.annotated import SenseText
from calque.corpora.harvest import SentenceBuilder
from calque.corpora.lines import Flaw, find_packed, read_lines, unpacked_name
from calque.corpora.rows import is_dataset, open_rows, uneven
from calque.corpora.tmx import read_elements
from calque.errors import InputError

_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_WHAT = "the .data.xml of an annotated corpus"


def read_senses(path: str | PathLike[str], *, keys: str | PathLike[str] | None = None, lang: str = "en") -> SenseText:
    """Read the format of Raganato et al. 2017 (http://lcl.uniroma1.it/wsdeval): `<sentence>`, of words `<wf>` and
    annotated words `<instance id lemma pos>`; and beside it a file of keys, `id key key …` a line.

    Several words that the file joins to one (`New_York`) stay one; so does what has spaces, which become `_`. Files may
    be packed (gzip, zstd, xz, bzip2), and are streamed.

    Args:
        path: the XML; or a data set, `hub:NAME` or what `rows.open_rows` reads else, whose rows have lists of words
            (`tokens`), `lemmas`, `pos`, and `senses` (or `sense_keys`, `labels`), one for each word: its key, several with
            spaces or `;` between or as a list, or None, empty or `_` where it is not annotated.
        keys: the right senses. Where it is None and the path is X.data.xml, X.gold.key.txt is taken if it exists. It
            may have keys of other texts too.

    Raises:
        InputError: with its line: XML that is not well formed or is no such document, an instance without its
            attributes, words without text, an instance that the file of keys lacks, a line of keys
            that is none. Also if there is no sentence.
        MissingExtraError: `datasets` is not installed, and the path needs it.
    """
    if is_dataset(path):
        return _dataset(path, lang)
    words, sentence, places, lines = SentenceBuilder(), -1, [], array("q")
    instances: dict[str, tuple[str, str]] = {}  # lemma and part of speech by id
    for sentence, (line, element) in enumerate(read_elements(path, "corpus", "sentence", _WHAT)):
        forms = []
        for part in element.iter():
            if part.tag not in ("wf", "instance"):
                continue
            forms.append("_".join("".join(part.itertext()).split()))
            if not forms[-1]:
                raise InputError(f"a <{part.tag}> without text, expected a word", path=path, line=line)
            if part.tag == "instance":
                name, lemma, pos = (part.get(key) for key in ("id", "lemma", "pos"))
                if not name or not lemma or not pos:
                    raise InputError("an <instance> without id, lemma or pos, expected all three", path=path, line=line)
                if name in instances:
                    raise InputError(
                        f"the id {name[:40]!r} for the second time, expected each once", path=path, line=line
                    )
                instances[name] = lemma, pos
                places.append((sentence, len(forms) - 1))
                lines.append(line)
        words.add(forms)
    if sentence < 0:
        raise InputError("no sentence could be read: the document has none", path=path)
    senses: tuple[tuple[str, ...], ...] = ()
    beside = _beside(path) if keys is None else keys
    if beside is not None:
        keys_of = _read_keys(beside)
        for name, line in zip(instances, lines, strict=True):
            if name not in keys_of:
                fact = f"the instance {name!r} has no key in {fspath(beside)}, expected one; are they of this text?"
                raise InputError(fact, path=path, line=line)
        senses = tuple(keys_of[name] for name in instances)
    lemmas, pos = zip(*instances.values(), strict=True) if instances else ((), ())
    at = np.array(places, np.int64).reshape(-1, 2)
    return SenseText(words.finish(lang), at[:, 0], at[:, 1], lemmas, pos, tuple(instances), senses, fspath(path))


# Names that published data sets use.
_LISTS = (
    ("tokens", "words", "surface_forms"), ("lemmas", "lemma"), ("pos", "upos", "pos_tags"),
    ("senses", "sense_keys", "sensekeys", "keys", "labels"),
)  # fmt: skip


def _dataset(path: str | PathLike[str], lang: str) -> SenseText:
    data = open_rows(path)
    if not data.columns:
        raise InputError("no sentence could be read: the data set is empty", path=path)
    names = data.choose(_LISTS, path)
    words, places, lemmas, pos, ids, keys = SentenceBuilder(), [], [], [], [], []
    for sentence, (number, row) in enumerate(data.rows):
        columns = [row[name] for name in names]
        if fact := uneven(columns, names, least=1):
            raise InputError(fact, path=path, line=number)
        words.add(["_".join(str(word or "").split()) or "_" for word in columns[0]])
        for position, (word, lemma, tag, senses) in enumerate(zip(*columns, strict=True)):
            sense_keys = _keys(senses)
            if not sense_keys:
                continue
            if not lemma:
                fact = f"the word {word!r:.40} has a sense and no lemma, expected both"
                raise InputError(fact, path=path, line=number)
            places.append((sentence, position))
            lemmas.append(str(lemma))
            pos.append(str(data.name_of(names[2], tag)))
            ids.append(f"{number}.{position + 1}")
            keys.append(sense_keys)
    at = np.array(places, np.int64).reshape(-1, 2)
    return SenseText(
        words.finish(lang), at[:, 0], at[:, 1], tuple(lemmas), tuple(pos), tuple(ids), tuple(keys), fspath(path)
    )


def _keys(senses: object) -> tuple[str, ...]:
    parts = senses if isinstance(senses, list) else re.split(r"[\s;]+", str(senses)) if senses is not None else []
    return tuple(str(part) for part in parts if part not in (None, "", "_", "O"))


def _beside(path: str | PathLike[str]) -> Path | None:
    name = unpacked_name(path)
    if not name.endswith(_DATA):
        return None
    return find_packed(Path(path).with_name(name.removesuffix(_DATA) + _KEYS))


def _read_keys(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            raise InputError(line.fact, path=path, line=number)
        name, *senses = line.split() or [""]
        if name and (not senses or name in keys):
            wrong = f"{name!r:.40} without a key" if not senses else f"{name!r:.40} for the second time"
            raise InputError(f"{wrong}, expected the keys of each instance in one line", path=path, line=number)
        if name:
            keys[name] = tuple(senses)
    return keys
