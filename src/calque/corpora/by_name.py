"""Short names of published test sets, and the Hugging Face repository, languages and task of each
test set.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from calque.corpora.languages import TWO_LETTERS, best_match
from calque.errors import InputError

PREFIX = "hub:"


@dataclass(frozen=True)
class NamedData:
    """Description of a published data set on the Hugging Face hub.

    Attributes:
        task: name of the task that uses the data set, or "parallel" for parallel text.
        config, tags: name pattern of the configurations, and the tag of each language, which
            replaces `{}` in the pattern.
        splits: names of the splits; the first split is the default.
        columns: names of the columns to read. A parallel data set has one column in the language of
            the configuration and one in English, or, if the rows of all configurations are
            parallel, only one column.
        licence: licence stated on the hub or in the publication.
    """

    task: str
    repository: str
    config: str
    tags: Mapping[str, str]
    splits: tuple[str, ...]
    columns: tuple[str, ...]
    licence: str

    def config_of(self, lang: str) -> str | None:
        """Return the configuration of a language, or None if the data set lacks the language."""
        matching_lang = best_match(lang, self.tags)
        return None if matching_lang is None else self.config.format(self.tags[matching_lang])

    def usage(self, name: str) -> str:
        """Return the name of the data set as written on the command line."""
        if self.task == "parallel":
            return f"{PREFIX}{name}"
        lang = "de" if "de" in self.tags else next(iter(self.tags))
        return f"{PREFIX}{name}:{lang}"


def _same(langs: str) -> dict[str, str]:
    return {lang: lang for lang in langs.split()}


def _by_code(tags: str) -> dict[str, str]:
    """Map two-letter language codes to tags that begin with a three-letter code."""
    return {TWO_LETTERS[tag[:3]]: tag for tag in tags.split()}


_XTREME = "google/xtreme"
_ALL = ("test", "validation", "train")
_TREEBANKS = (
    "af=Afrikaans ar=Arabic eu=Basque bg=Bulgarian zh=Chinese nl=Dutch en=English et=Estonian "
    "fi=Finnish fr=French de=German el=Greek he=Hebrew hi=Hindi hu=Hungarian id=Indonesian "
    "it=Italian ja=Japanese kk=Kazakh ko=Korean mr=Marathi fa=Persian pt=Portuguese ru=Russian "
    "es=Spanish tl=Tagalog ta=Tamil te=Telugu th=Thai tr=Turkish ur=Urdu vi=Vietnamese yo=Yoruba"
)
_UDPOS = {pair[:2]: pair[3:] for pair in _TREEBANKS.split()}
_PANX = _same(
    "af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt ru sw "
    "ta te th tl tr ur vi yo zh"
)
_TATOEBA = _by_code(
    "afr ara bul ben deu ell spa est eus pes fin fra heb hin hun ind ita jpn jav kat kaz kor mal "
    "mar nld por rus swh tam tel tha tgl tur urd vie cmn"
)
_SIB = _by_code(
    "afr_Latn amh_Ethi arb_Arab bul_Cyrl ben_Beng cat_Latn ces_Latn cym_Latn dan_Latn deu_Latn "
    "ell_Grek eng_Latn spa_Latn est_Latn eus_Latn pes_Arab fin_Latn fra_Latn gle_Latn glg_Latn "
    "guj_Gujr hau_Latn heb_Hebr hin_Deva hrv_Latn hun_Latn hye_Armn ind_Latn ibo_Latn isl_Latn "
    "ita_Latn jpn_Jpan jav_Latn kat_Geor kaz_Cyrl khm_Khmr kan_Knda kor_Hang kir_Cyrl lao_Laoo "
    "lit_Latn lvs_Latn mkd_Cyrl mal_Mlym khk_Cyrl mar_Deva zsm_Latn mlt_Latn mya_Mymr nob_Latn "
    "npi_Deva nld_Latn pan_Guru pol_Latn por_Latn ron_Latn rus_Cyrl slk_Latn slv_Latn som_Latn "
    "als_Latn srp_Cyrl swe_Latn swh_Latn tam_Taml tel_Telu tha_Thai tgl_Latn tur_Latn ukr_Cyrl "
    "urd_Arab uzn_Latn vie_Latn xho_Latn yor_Latn zho_Hans zul_Latn"
)
_FLORES = {**_SIB, "zh": "cmn_Hans"}
_MASSIVE = _same(
    "af am ar az bn cy da de el en es fa fi fr he hi hu hy id is it ja jv ka km kn ko lv ml mn ms "
    "my nb nl pl pt ro ru sl sq sv sw ta te th tl tr ur vi"
) | {"zh": "zh-CN", "zh-TW": "zh-TW"}

#: published data sets; each key is the name that follows `hub:` on the command line
NAMED: dict[str, NamedData] = {
    "pan-x": NamedData(
        "ner", _XTREME, "PAN-X.{}", _PANX, _ALL, ("tokens", "ner_tags"), "not stated (WikiANN)"
    ),
    "udpos": NamedData(
        "pos", _XTREME, "udpos.{}", _UDPOS, _ALL, ("tokens", "pos_tags"), "varies by treebank"
    ),
    "xnli": NamedData(
        "nli",
        "facebook/xnli",
        "{}",
        _same("ar bg de el en es fr hi ru sw th tr ur vi zh"),
        _ALL,
        ("premise", "hypothesis", "label"),
        "CC BY-NC 4.0",
    ),
    "xquad": NamedData(
        "qa",
        "google/xquad",
        "xquad.{}",
        _same("ar de el en es hi ro ru th tr vi zh"),
        ("validation",),
        ("context", "question", "answers"),
        "CC BY-SA 4.0",
    ),
    "tatoeba": NamedData(
        "parallel",
        _XTREME,
        "tatoeba.{}",
        _TATOEBA,
        ("validation",),
        ("source_sentence", "target_sentence"),
        "CC BY 2.0",
    ),
    "bucc": NamedData(
        "parallel",
        _XTREME,
        "bucc18.{}",
        _same("de fr ru zh"),
        ("test", "validation"),
        ("source_sentence", "target_sentence"),
        "not stated",
    ),
    "massive": NamedData(
        "sentiment",
        "mteb/amazon_massive_intent",
        "{}",
        _MASSIVE,
        _ALL,
        ("text", "label"),
        "CC BY 4.0",
    ),
    "sib-200": NamedData(
        "sentiment", "Davlan/sib200", "{}", _SIB, _ALL, ("text", "category"), "CC BY-SA 4.0"
    ),
    "flores": NamedData(
        "parallel",
        "openlanguagedata/flores_plus",
        "{}",
        _FLORES,
        ("devtest", "dev"),
        ("text",),
        "CC BY-SA 4.0",
    ),
}


class _Reference(NamedTuple):
    """Reference to a data set in `NAMED`, `hub:NAME:…`, with the parts after the name."""

    name: str
    parts: list[str]


def _reference(path: str | PathLike[str]) -> _Reference | None:
    """Split the reference to a data set in `NAMED`; return None for other or existing paths."""
    text = fspath(path)
    name, *parts = text.removeprefix(PREFIX).split(":")
    if not text.startswith(PREFIX) or name not in NAMED or os.path.exists(name):
        return None
    return _Reference(name, parts)


class Place(NamedTuple):
    """Repository or local path of a data set, and the configuration and split to read; None stands
    for the default.
    """

    name: str
    config: str | None = None
    split: str | None = None


def place(path: str | PathLike[str]) -> Place:
    """Return the repository, configuration and split named in `hub:NAME[[:CONFIG]:SPLIT]`, or in
    `hub:NAME:LANGUAGE[:SPLIT]` if NAME is in `NAMED`. For any other path, return the path itself,
    and None for the configuration and the split."""
    text = fspath(path)
    reference = _reference(path)
    if reference is not None:
        return _named_place(reference, path)
    if not text.startswith(PREFIX):
        return Place(text)
    name, *parts = text.removeprefix(PREFIX).split(":")
    config = parts[0] if len(parts) > 1 else None
    split = parts[-1] if parts else None
    return Place(name, config, split)


def _named_place(reference: _Reference, path: str | PathLike[str]) -> Place:
    """Return the place of `hub:NAME:LANGUAGE[:SPLIT]`."""
    row = NAMED[reference.name]
    lang, *splits = reference.parts or [""]
    config = row.config_of(lang) if lang else None
    if config is None or len(splits) > 1:
        usage = f"{row.usage(reference.name)}[:{'|'.join(row.splits)}]"
        raise InputError(f"expected {usage}; languages: {' '.join(row.tags)}", path=path)
    return Place(row.repository, config, splits[0] if splits else row.splits[0])


def sides(path: str | PathLike[str], langs: tuple[str, str]) -> list[tuple[str, str]] | None:
    """Return the data set and column for each side of the parallel text `hub:NAME[:SPLIT]`, or None
    for other paths.
    """
    reference = _reference(path)
    if reference is None or NAMED[reference.name].task != "parallel":
        return None
    row = NAMED[reference.name]
    split = reference.parts[0] if reference.parts else row.splits[0]
    if split not in row.splits:
        raise InputError(f"expected one of the splits {', '.join(row.splits)}", path=path)
    with_english = len(row.columns) == 2
    columns = (
        _columns_with_english(row, langs) if with_english else _columns_by_language(row, langs)
    )
    if columns is None:
        pairs = "English and one of " if with_english else "two of "
        raise InputError(
            f"{reference.name} has no {'-'.join(langs)} text, expected {pairs}{' '.join(row.tags)}",
            path=path,
        )
    return [(f"{PREFIX}{row.repository}:{config}:{split}", name) for config, name in columns]


def _columns_with_english(row: NamedData, langs: tuple[str, str]) -> list[tuple[str, str]] | None:
    """Return the configuration and column of each language, in a data set whose configurations have
    a column in their language and one in English; None if it lacks the languages.
    """
    is_english = [best_match("en", [lang]) is not None for lang in langs]
    if sum(is_english) != 1:
        return None
    config = row.config_of(langs[is_english.index(False)])
    if config is None:
        return None
    return [(config, row.columns[int(english)]) for english in is_english]


def _columns_by_language(row: NamedData, langs: tuple[str, str]) -> list[tuple[str, str]] | None:
    """Return the configuration and column of each language, in a data set with one column, whose
    configurations are parallel; None if it lacks a language.
    """
    columns = []
    for lang in langs:
        config = row.config_of(lang)
        if config is None:
            return None
        columns.append((config, row.columns[0]))
    return columns


def repository_of(path: str | PathLike[str]) -> str | None:
    """Return the hub repository of a path, or None for local files and folders."""
    if not fspath(path).startswith(PREFIX):
        return None
    reference = _reference(path)
    name = place(path).name if reference is None else NAMED[reference.name].repository
    is_repository = re.fullmatch(r"[\w.-]{1,96}(/[\w.-]{1,96})?", name) is not None
    return name if is_repository and not os.path.exists(name) else None


def hub_ids(paths: Iterable[str]) -> list[str]:
    """Return the names of the distinct hub repositories that the given paths refer to."""
    repositories = [repository_of(path) for path in paths]
    return list(dict.fromkeys(name for name in repositories if name is not None))


def name_of(path: str | PathLike[str]) -> str:
    """Return the name of a text for records and tables: the file name of a local file, or the full
    path of a hub data set.
    """
    return fspath(path) if repository_of(path) is not None else Path(path).name


def remedy(path: str | PathLike[str]) -> str:
    """Return advice on a data set that cannot be read: how to get access to the repository, or
    which names are similar.
    """
    text = fspath(path)
    if not text.startswith(PREFIX):
        return ""
    name, *_ = text.removeprefix(PREFIX).split(":")
    is_repository = any(row.repository == name for row in NAMED.values())
    if is_repository or _reference(path) is not None:
        repository = name if is_repository else NAMED[name].repository
        return (
            f"; {repository} is on the Hugging Face hub: is the network available, and did you log "
            "in and accept the terms? For a local copy, write hub:FOLDER:CONFIG:SPLIT"
        )
    similar_names = difflib.get_close_matches(name.lower(), NAMED, n=3)
    if not similar_names:
        return ""
    alternatives = " or ".join(PREFIX + similar for similar in similar_names)
    return f"; did you mean {alternatives}? calque data lists all names"
