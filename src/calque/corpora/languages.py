"""Match language tags, and find the languages in file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from os import PathLike, fspath

from calque.errors import SettingError
from calque.segment import FORMER, TWO_LETTERS, language_parts

# codes recognised in file names
_CODES = frozenset(TWO_LETTERS.values()) - {"ae", "sh"} | {"gsw", "nap"}
# three-letter codes recognised in file names, two of which are those of CoNLL-2002
_OTHERS = {"esp": "es", "ned": "nl"} | {
    code: TWO_LETTERS[code] for code in ("eng", "deu", "ger", "fra", "spa", "nld")
}

_NAMES = (
    "afrikaans=af albanian=sq arabic=ar armenian=hy basque=eu belarusian=be bengali=bn bosnian=bs "
    "breton=br bulgarian=bg catalan=ca chinese=zh croatian=hr czech=cs danish=da dutch=nl "
    "english=en estonian=et finnish=fi french=fr galician=gl georgian=ka german=de greek=el "
    "hebrew=he hindi=hi hungarian=hu icelandic=is indonesian=id irish=ga italian=it japanese=ja "
    "kazakh=kk korean=ko latin=la latvian=lv lithuanian=lt macedonian=mk malay=ms maltese=mt "
    "marathi=mr norwegian=no persian=fa polish=pl portuguese=pt romanian=ro russian=ru serbian=sr "
    "slovak=sk slovene=sl slovenian=sl spanish=es swahili=sw swedish=sv tamil=ta telugu=te thai=th "
    "turkish=tr ukrainian=uk urdu=ur vietnamese=vi welsh=cy"
)
#: English names of languages, in lower case, with their codes
NAMES = {name: code for name, _, code in (pair.partition("=") for pair in _NAMES.split())}
# script in which Chinese is written in a region
_CHINESE_SCRIPTS = {
    "cn": "hans",
    "sg": "hans",
    "my": "hans",
    "tw": "hant",
    "hk": "hant",
    "mo": "hant",
}
# pairs of different codes that match, and their distance; the distance of equal codes is 0
_NORWEGIAN = {frozenset({"no", "nb"}): 1, frozenset({"no", "nn"}): 2}


def two_languages(langs: Sequence[str]) -> tuple[str, str]:
    """Return the languages as a tuple, or raise a `SettingError` if there are not exactly two."""
    if isinstance(langs, str) or len(langs) != 2:
        raise SettingError(f"langs must be two languages, such as ('en', 'de'), got {langs!r}")
    return langs[0], langs[1]


def language_of(path: str | PathLike[str]) -> str | None:
    """Return the language in a file name (`panx.dev.de.tsv`, `en_ewt.train.iob2`,
    `xsid.valid.de-ba.conll`, `hub:pan-x:de`), or None if the name contains no language or more than
    one."""
    name = re.split(r"[/\\]", fspath(path))[-1]
    languages: dict[str, None] = {}  # distinct languages in order of occurrence
    for part in re.split(r"[._:]", name):
        # `de-ba` is Bavarian in xSID; other parts after a hyphen are also accepted.
        code, *dialect = part.split("-")
        code = _OTHERS.get(code.lower(), code.lower())
        if code in _CODES and all(re.fullmatch(r"[A-Za-z0-9]{2,8}", piece) for piece in dialect):
            languages["-".join([code, *dialect])] = None
    return next(iter(languages)) if len(languages) == 1 else None


def pair_in_name(path: str | PathLike[str]) -> tuple[str, str] | None:
    """Return the two languages in the name of a parallel text (`train.en-de.tsv`, `europarl.de_en`,
    `eng-fra.tmx`), or None if the name contains no pair of adjacent languages or more than one."""
    name = re.split(r"[/\\]", fspath(path))[-1].lower()
    # Three-letter codes become two-letter codes, and other parts of the name stay as they are.
    codes = []
    for part in re.split(r"[._:-]", name):
        codes.append(TWO_LETTERS.get(part, _OTHERS.get(part, part)))
    pairs = set()
    for source, target in pairwise(codes):
        if source in _CODES and target in _CODES and source != target:
            pairs.add((source, target))
    return pairs.pop() if len(pairs) == 1 else None


_PLACEHOLDERS = {"xx", "yy", "zz"}  # written for any language, for example in spaCy
#: codes of countries that are often written instead of the code of their language
_COUNTRIES = {
    "al": "sq",
    "at": "de",
    "au": "en",
    "by": "be",
    "cn": "zh",
    "cz": "cs",
    "dk": "da",
    "gb": "en",
    "ge": "ka",
    "gr": "el",
    "il": "he",
    "ir": "fa",
    "jp": "ja",
    "kp": "ko",
    "mx": "es",
    "nz": "en",
    "pk": "ur",
    "rs": "sr",
    "tw": "zh",
    "ua": "uk",
    "us": "en",
    "vn": "vi",
}


def doubt_about(name: str) -> str | None:
    """Return why a language code is doubtful and which code is probably meant, or None for a common
    code.

    ISO 639-3 has thousands of three-letter codes, so only those with a two-letter equivalent are
    doubtful.
    """
    code = name.replace("_", "-").partition("-")[0].lower()
    if code in TWO_LETTERS:
        return f"{name} is usually written {TWO_LETTERS[code]}"
    if code in NAMES:
        return f"{name} is not a language code; use {NAMES[code]}"
    has_three_letters = len(code) == 3 and code.isascii() and code.isalpha()
    if has_three_letters or code in {*TWO_LETTERS.values(), *FORMER, *_PLACEHOLDERS}:
        return None
    known = _COUNTRIES.get(code)
    hint = f"did you mean {known}?" if known else "is it misspelt?"
    return f"{name} is not a language code of ISO 639; {hint}"


def best_match(wanted: str, available: Iterable[str]) -> str | None:
    """Return the tag among `available` that matches the language `wanted`, or None.

    An equal tag is preferred (`pt-BR` equals `pt_br`), then the first tag that is more specific or
    less specific (`en` matches `en-US`, and `en-US` matches `en`). `pt-BR` does not match `pt-PT`.
    Chinese tags match if their scripts do (`zh-Hans` and `zh-CN`, but not `zh-TW`). Norwegian
    (`no`) matches Bokmål (`nb`), in which most Norwegian text is written, and otherwise Nynorsk
    (`nn`); `nb` and `nn` do not match.
    """
    return _best_match(wanted, tuple(available))


def best_matches(langs: tuple[str, str], available: Iterable[str]) -> tuple[str, str] | None:
    """Return the tags that match the source and the target language, see `best_match`, or None if a
    language has no tag or both have the same tag.
    """
    tags = tuple(available)
    source, target = (best_match(lang, tags) for lang in langs)
    if source is None or target is None or source == target:
        return None
    return source, target


@lru_cache(1 << 12)  # all texts of a file have the same few tags
def _best_match(wanted: str, available: tuple[str, ...]) -> str | None:
    wanted_parts = _named_parts(wanted)
    best: dict[int, str] = {}  # first tag at each distance
    for tag in available:
        if language_parts(tag) == language_parts(wanted):
            return tag
        parts = _named_parts(tag)
        # A part that only one of the tags has, such as a region, does not count.
        shared = wanted_parts.keys() & parts.keys() - {"language"}
        if any(wanted_parts[name] != parts[name] for name in shared):
            continue
        languages = frozenset({wanted_parts["language"], parts["language"]})
        distance = 0 if len(languages) == 1 else _NORWEGIAN.get(languages)
        if distance is not None:
            best.setdefault(distance, tag)
    return best[min(best)] if best else None


def _named_parts(tag: str) -> dict[str, str]:
    """Return the parts of a language tag by name: language, script, region and variant."""
    language, *rest = language_parts(tag)
    parts = {"language": language}
    for part in rest:
        if len(part) == 4 and part.isalpha():
            parts["script"] = part
        elif len(part) == 2 or (len(part) == 3 and part.isdigit()):
            parts["region"] = part
        else:
            parts["variant"] = f"{parts.get('variant', '')}-{part}"
    if language == "zh" and parts.get("region") in _CHINESE_SCRIPTS:
        parts.setdefault("script", _CHINESE_SCRIPTS[parts["region"]])
    return parts


def name_and_path(text: str) -> tuple[str, str]:
    """Split `NAME=FILE` into the name and the path. The name is "" if there is none or if `=` is
    part of the path.
    """
    name, equals, path = text.partition("=")
    is_name = bool(equals) and bool(name) and not any(character in name for character in "/\\:")
    return (name, path) if is_name else ("", text)


def pair_and_path(text: str) -> tuple[tuple[str, str] | None, str]:
    """Split `en-de=FILE` into the language pair and the path of the file; the pair is None if
    `en-de=` is missing.
    """
    name, path = name_and_path(text)
    if not name:
        return None, text
    source, _, target = name.partition("-")
    if not source or not target or "-" in target or not path:
        raise SettingError(f"{text}: expected two languages and a file, as in en-de=FILE")
    return (source, target), path


def language_and_path(file: str, otherwise: str | None = None) -> tuple[str, str]:
    """Return the language and path of `de=FILE`. Without `de=`, use the language in the file name,
    or else `otherwise`.
    """
    lang, path = name_and_path(file)
    if lang:
        if not path:
            raise SettingError(f"{file}: the file name is missing, expected {lang}=FILE")
        return lang, path
    lang = language_of(file) or otherwise or ""
    if not lang:
        raise SettingError(
            f"{file}: the language is unknown; write it before the file name, as in de={file}"
        )
    return lang, file


def pair_of(name: str, langs: Sequence[str]) -> tuple[str, str] | None:
    """Split `en-de` into two of `langs`, which may contain hyphens; return None if `name` is not a
    pair of these languages.
    """
    for source in langs:
        for target in langs:
            if source != target and f"{source}-{target}" == name:
                return source, target
    return None
