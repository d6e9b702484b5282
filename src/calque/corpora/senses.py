"""Text annotated with senses, as `SenseText`: the XML of the unified evaluation framework."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

import numpy as np

from calque.annotated import SenseText
from calque.corpora.lines import Flaw, find_packed, read_lines, unpacked_name
from calque.corpora.tmx import read_elements
from calque.errors import InputError
from calque.text import Sentences

_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_WHAT = "the .data.xml of an annotated corpus"


def read_senses(path: str | PathLike[str], *, keys: str | PathLike[str] | None = None, lang: str = "en") -> SenseText:
    """Read the format of Raganato et al. 2017 (http://lcl.uniroma1.it/wsdeval): `<sentence>`, of words `<wf>` and
    annotated words `<instance id lemma pos>`; and beside it a file of keys, `id key key …` a line.

    Several words that the file joins to one (`New_York`) stay one; so does what has spaces, which become `_`. Files may
    be packed (gzip, zstd, xz, bzip2), and are streamed.

    Args:
        path: the XML.
        keys: the right senses. Where it is None and the path is X.data.xml, X.gold.key.txt is taken if it exists. It
            may have keys of other texts too.

    Raises:
        InputError: with its line: XML that is not well formed or is no such document, an instance without its
            attributes, words without text, an instance that the file of keys lacks, a line of keys
            that is none. Also if there is no sentence.
    """
    words, places, lines = [], [], []
    instances: dict[str, tuple[str, str]] = {}  # lemma and part of speech by id
    for line, element in read_elements(path, "corpus", "sentence", _WHAT):
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
                places.append((len(words), len(forms) - 1))
                lines.append(line)
        words.append(forms)
    if not words:
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
    return SenseText(Sentences.of(words, lang), at[:, 0], at[:, 1], lemmas, pos, tuple(instances), senses, fspath(path))


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
