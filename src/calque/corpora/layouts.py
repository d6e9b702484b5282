"""Test sets of translations as they are distributed: which two files of a folder, or of a prefix, are those of two languages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from calque.corpora.languages import best_match
from calque.corpora.lines import unpacked_name
from calque.errors import InputError

# ISO 639-3 (and the older codes of some) with 639-1 behind them; a macrolanguage's code also behind the member that test sets
# have of it.
_CODES = (
    "aaraa abkab afraf akaak alssq amham araar arbar argan asmas avaav aveae aymay azeaz azjaz bakba bambm belbe benbn "
    "bisbi bodbo bosbs brebr bulbg catca cescs chach chece chizh chucu chvcv cmnzh corkw cosco crecr cymcy czecs danda "
    "deude divdv dutnl dzodz ekket ellel engen epoeo estet euseu eweee faofo fasfa fijfj finfi frafr frefr fryfy fulff "
    "fuvff gazom gerde glagd glega glggl glvgv greel grngn guggn gujgu hatht hauha hbssh hebhe herhz hinhi hmoho hrvhr "
    "hunhu hyehy iboig idoio iiiii ikuiu ileie inaia indid ipkik islis itait javjv jpnja kalkl kankn kasks katka kaukr "
    "kazkk khkmn khmkm kikki kinrw kirky kmrku komkv konkg korko kuakj kurku laolo latla lavlv limli linln litlt ltzlb "
    "lublu luglg lvslv mahmh malml marmr mkdmk mlgmg mltmt monmn mrimi msams myamy nauna navnv nblnr ndend ndong nepne "
    "nldnl nnonn nobnb norno npine nyany ocioc ojioj orior ormom oryor ossos panpa pbtps pesfa plipi pltmg polpl porpt "
    "prsfa pusps quequ quyqu rohrm ronro rumro runrn rusru sagsg sansa sinsi slksk slvsl smese smosm snasn sndsd somso "
    "sotst spaes sqisq srdsc srpsr sswss sunsu swasw swesv swhsw tahty tamta tattt telte tgktg tgltl thath tirti tonto "
    "tsntn tsots tuktk turtr twitw uigug ukruk urdur uzbuz uznuz venve vievi volvo wlnwa wolwo xhoxh yddyi yidyi yoryo "
    "zhaza zhozh zsmms zulzu "
)
_TWO = {code[:3]: code[3:] for code in _CODES.split()}
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


def find_layout(path: str | PathLike[str], langs: tuple[str, str]) -> list[str] | None:
    """The files of both languages in a folder of a test set, or among the files whose names begin like this.

    Known are the names of Tatoeba (LASER), `tatoeba.deu-eng.deu`; of NTREX, `newstest2019-ref.deu.txt`; and of FLORES,
    `dev/deu_Latn.dev`. A language may be said with two letters (`de`), or as the file has it (`zho_Hant`); of several files that
    only say more than that, the first is taken.

    Args:
        path: the folder, a prefix (`…/tatoeba.deu-eng`), or what files of several pairs have in common (`…/tatoeba`).
        langs: source and target.

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
    return "-".join([_TWO.get(base, base), *rest])
