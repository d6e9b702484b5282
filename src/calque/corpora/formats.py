"""The format of a path, the files it means, and the reader of each format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from calque.corpora.columns import read_columns, read_moses
from calque.corpora.languages import TWO_LETTERS, best_match
from calque.corpora.lines import RawCorpus, find_packed, read_blocks, unpacked_name
from calque.corpora.rows import PREFIX, read_dataset
from calque.corpora.tmx import read_tmx
from calque.errors import InputError, SettingError
from calque.segment import language_parts

AnyPath = str | PathLike[str]
Format = Literal["tsv", "moses", "fast-align", "tmx", "arrow", "hub"]
FORMATS = get_args(Format)

_BY_NAME: dict[str, Format] = {".tmx": "tmx", ".tsv": "tsv", ".tab": "tsv"}
_BY_NAME |= {".arrow": "arrow", ".parquet": "hub", ".jsonl": "hub", ".ndjson": "hub", ".json": "hub"}

_TAG = r"(?P<lang>[a-z]{2,3}(?:[-_][A-Za-z]{2,8})*)"
# The name of a file by test set: the group of files that belong together, and the language.
_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?P<group>.+\.[a-z]{{3}}-[a-z]{{3}})\.{_TAG}",  # tatoeba.deu-eng.deu
        rf"(?P<group>.+)-(?:src|ref)\.{_TAG}\.txt",  # newstest2019-src.eng.txt, newstest2019-ref.deu.txt
        rf"{_TAG}\.(?P<group>dev|devtest|test)",  # eng_Latn.dev
    )
)


def find_format(
    path: AnyPath | tuple[AnyPath, AnyPath], langs: tuple[str, str], format: Format | None = None
) -> tuple[list[str], Format]:
    """The file or files that a path means, and their format.

    Raises:
        InputError: there is no such file.
        SettingError: two files, and a format of one.
    """
    if isinstance(path, tuple | list):
        if len(path) != 2 or format not in (None, "moses"):
            raise SettingError(f"{len(path)} paths with format {format}, expected two with format 'moses' or one")
        return [fspath(path[0]), fspath(path[1])], "moses"
    name = fspath(path)
    if name.startswith(PREFIX):
        return [name], "hub"
    try:
        if format == "moses" or (format is None and not os.path.exists(name)):
            pair = moses_files(name, langs)
            if len(pair) == 2:
                return pair, "moses"
        if format in (None, "moses") and not os.path.isfile(name) and (files := find_layout(name, langs)) is not None:
            return files, "moses"
        if format == "moses" or not os.path.exists(name):
            fact = f"no such file, nor {name}.{langs[0]} with {name}.{langs[1]}; is the path right?"
            raise InputError(f"{fact} (a data set of the Hugging Face hub is written hub:{name})", path=path)
    except ValueError as error:  # a NUL in the path
        raise InputError(f"no path of a file ({error})") from error
    if os.path.isdir(name) and format in (None, "hub"):
        return [name], "hub"
    return [name], format or _detect(name)


def moses_files(prefix: AnyPath, langs: tuple[str, str]) -> list[str]:
    """The files `PREFIX.LANG` of both languages, packed or not; fewer where one is missing."""
    found = []
    for lang in langs:
        tags = dict.fromkeys((lang, language_parts(lang)[0]))
        found += [str(file) for tag in tags if (file := find_packed(f"{fspath(prefix)}.{tag}"))][:1]
    return found


def _detect(path: str) -> Format:
    suffix = Path(unpacked_name(path)).suffix.lower()
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if suffix == ".po":
        raise InputError("PO files are not read; make TMX of it, as with po2tmx of translate-toolkit", path=path)
    head = next(read_blocks(path), b"").removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"ARROW1"):
        return "arrow"
    if head.lstrip().startswith((b"<?xml", b"<tmx", b"<!DOCTYPE tmx")):
        return "tmx"
    for line in head.split(b"\n"):
        if b"\t" in line:
            return "tsv"
        if b"|||" in line:
            return "fast-align"
    return "hub" if suffix == ".csv" else "tsv"


def open_raw(paths: list[str], langs: tuple[str, str], format: Format, *, divided: bool = False) -> RawCorpus:
    """Open the sentence pairs of a text format or data set; where words are `divided` by spaces, also as blocks."""
    if format == "hub":
        return read_dataset(paths[0], langs)
    if format == "moses":
        return RawCorpus(read_moses(paths[0], paths[1]))
    if format in ("tsv", "fast-align"):
        return RawCorpus(read_columns(paths[0], "\t" if format == "tsv" else "|||", divided=divided))
    return RawCorpus(read_tmx(paths[0], langs))


# -- test sets of translations as they are distributed -------------------------------------------------------------------
def find_layout(path: str | PathLike[str], langs: tuple[str, str]) -> list[str] | None:
    """The files of both languages in a folder of a test set, or among the files whose names begin like this.

    Known are the names of Tatoeba (LASER), `tatoeba.deu-eng.deu`; of NTREX, `newstest2019-ref.deu.txt`; and of FLORES,
    `dev/deu_Latn.dev`. A language may be said with two letters (`de`), or as the file has it (`zho_Hant`); of several files that
    only say more than that, the first is taken.

    Args:
        path: the folder, a prefix (`…/tatoeba.deu-eng`), or what files of several pairs have in common (`…/tatoeba`).

    Returns:
        None where nothing there has such a name.

    Raises:
        InputError: there are such files, but none in these languages, or more than one of each.
    """
    groups = _groups(_files(Path(path)))
    found = [(files, pair) for files in groups.values() if len(pair := _pair(files, langs)) == 2]
    if len(found) > 1:
        names = ", ".join(sorted(pair[0].name for _, pair in found))
        raise InputError(
            f"several files in {langs[0]} go with one in {langs[1]}: {names}; say which test set", path=path
        )
    if found:
        return [str(file) for file in found[0][1]]
    if groups:
        tags = sorted({tag for files in groups.values() for tag in files})
        shown = ", ".join(tags[:20]) + (", …" if len(tags) > 20 else "")
        raise InputError(
            f"no files in both {langs[0]} and {langs[1]} that belong together, there are {shown}", path=path
        )
    return None


def _files(path: Path) -> list[Path]:
    """The files of a folder, or those whose names begin with that of the path."""
    folder, start = (path, "") if os.path.isdir(path) else (path.parent, path.name)
    try:
        return sorted(file for file in folder.iterdir() if file.name.startswith(start) and file.is_file())
    except OSError:  # no such folder, or one that may not be read: there is no layout to be seen
        return []


def _groups(files: Iterable[Path]) -> dict[str, dict[str, Path]]:
    """Files by what makes them belong together, then by language."""
    groups: dict[str, dict[str, Path]] = {}
    for file in files:
        matches = (name.fullmatch(unpacked_name(file)) for name in _NAMES)
        if (match := next(filter(None, matches), None)) is not None:
            groups.setdefault(match["group"], {}).setdefault(match["lang"], file)
    return groups


def _pair(files: dict[str, Path], langs: tuple[str, str]) -> list[Path]:
    """The files of both languages; fewer where one is missing."""
    tags = {_tag(lang): lang for lang in sorted(files, reverse=True)}
    wanted = (best_match(_tag(lang), sorted(tags, key=lambda tag: tags[tag])) for lang in langs)
    return list(dict.fromkeys(files[tags[tag]] for tag in wanted if tag is not None))


def _tag(lang: str) -> str:
    """A language by its two letters, if it has them, and whatever else the tag says: `deu_Latn` is `de-Latn`."""
    base, *rest = re.split("[-_]", lang)
    return "-".join([TWO_LETTERS.get(base, base), *rest])
