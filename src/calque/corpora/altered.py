"""Sentences that were altered so that they no longer mean the same: hard candidates for a search (xsim++, Chen et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from calque.corpora.lines import Flaw, read_json, read_lines, unpacked_name
from calque.errors import InputError


@dataclass(frozen=True)
class Altered:
    """Altered sentences.

    Attributes:
        texts: each once.
        originals: what each was made from.
        kinds: what was altered: an entity, a number, …
    """

    texts: tuple[str, ...]
    originals: tuple[str, ...]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


def read_altered(path: str | PathLike[str]) -> Altered:
    """Read LASER's `eng_Latn_errtype.devtest.json`, `{altered: {"src": original, "errtype": kind}}`; or lines
    `original⇥altered⇥kind`, of which the kind may be missing. Files may be packed.

    Raises:
        InputError: it is neither.
    """
    found: dict[str, tuple[str, str]] = {}
    if unpacked_name(path).lower().endswith(".json"):
        plain = read_json(path)
        if not isinstance(plain, dict):
            raise InputError("no JSON object, expected one that has altered sentences for keys", path=path)
        for text, about in plain.items():
            if not isinstance(about, dict) or not isinstance(about.get("src"), str):
                raise InputError(f'{text!r:.60} has no "src", expected the sentence that it was made from', path=path)
            found[text] = about["src"], str(about.get("errtype", ""))
    else:
        for number, line in enumerate(read_lines(path), 1):
            if isinstance(line, Flaw):
                raise InputError(line.fact, path=path, line=number)
            original, tab, rest = line.partition("\t")
            if not line.strip():
                continue
            if not tab:
                raise InputError("one column, expected original, altered and kind", path=path, line=number)
            text, _, kind = rest.partition("\t")
            found[text] = original, kind.strip()
    if not found:
        raise InputError("no altered sentence in it", path=path)
    originals, kinds = zip(*found.values(), strict=True)
    return Altered(tuple(found), originals, tuple(kind or "altered" for kind in kinds))
