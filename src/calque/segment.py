"""Split text into words, with the same result on every machine.

The rules follow the Moses tokenizer (Koehn et al. 2007, `tokenizer.perl`), which the replicated
papers used, with three differences. URLs, e-mail addresses, file paths, placeholders (`%(name)s`)
and identifiers (`snake_case`, `--option`) are not split; typographic apostrophes are treated as
apostrophes; and text in scripts without spaces is segmented. No character is
changed, normalised or escaped: joining the words gives the text without white space, control
characters and invisible format characters.

- Each punctuation mark or symbol is a word, but repeated marks (only ``. - = * ~ # ` ``) and emoji
  sequences form one word.
- Hyphens inside or at the end of words (`well-known`, `Vor- und Nachteile`) do not split them, nor
  do `.` and `,` in numbers.
- An apostrophe splits a word (`don 't`, `dogs '`; in Romance languages and Irish, `l' homme`)
  unless it is a letter (`п'ять`).
- A full stop stays with an abbreviation (`U.S.`, `Mr. Smith`, `approx. half`) or an ordinal number
  (German `3. Mai`).
- Chinese is segmented by a Rust port of jieba; Japanese, Thai and Traditional Chinese by BudouX.
  Both are deterministic.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from itertools import chain

import regex

_KEPT = 1 << 17  # maximum number of cached text chunks per language
_SHORT = 32  # maximum length, in characters, of chunks that are cached
# maximum length, in characters, of chunks that are searched for URLs and similar patterns
_LONG = 256

# -- languages -------------------------------------------------------------------------------------
# ISO 639-3 codes and a few older codes, each followed by its ISO 639-1 code. Some members of
# macrolanguages occur in test sets and are listed with the code of the macrolanguage.
_THREE = (
    "aaraa abkab afraf akaak alssq amham araar arbar argan asmas avaav aveae aymay azeaz azjaz "
    "bakba bambm belbe benbn bisbi bodbo bosbs brebr bulbg catca cescs chach chece chizh chucu "
    "chvcv cmnzh corkw cosco crecr cymcy czecs danda deude divdv dutnl dzodz ekket ellel engen "
    "epoeo estet euseu eweee faofo fasfa fijfj finfi frafr frefr fryfy fulff fuvff gazom gerde "
    "glagd glega glggl glvgv greel grngn guggn gujgu hatht hauha hbssh hebhe herhz hinhi hmoho "
    "hrvhr hunhu hyehy iboig idoio iiiii ikuiu ileie inaia indid ipkik islis itait javjv jpnja "
    "kalkl kankn kasks katka kaukr kazkk khkmn khmkm kikki kinrw kirky kmrku komkv konkg korko "
    "kuakj kurku laolo latla lavlv limli linln litlt ltzlb lublu luglg lvslv mahmh malml marmr "
    "mkdmk mlgmg mltmt monmn mrimi msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn "
    "nobnb norno npine nyany ocioc ojioj orior ormom oryor ossos panpa pbtps pesfa plipi pltmg "
    "polpl porpt prsfa pusps quequ quyqu rohrm ronro rumro runrn rusru sagsg sansa sinsi slksk "
    "slvsl smese smosm snasn sndsd somso sotst spaes sqisq srdsc srpsr sswss sunsu swasw swesv "
    "swhsw tahty tamta tattt telte tgktg tgltl thath tirti tonto tsntn tsots tuktk turtr twitw "
    "uigug ukruk urdur uzbuz uznuz venve vievi volvo wlnwa wolwo xhoxh yddyi yidyi yoryo zhaza "
    "zhozh zsmms zulzu"
)
TWO_LETTERS = {code[:3]: code[3:] for code in _THREE.split()}
# language codes that ISO 639 or CLDR has replaced, and their successors
FORMER = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "fil": "tl"}
_ELIDING = {"fr", "it", "ca", "ga", "gd", "oc", "co", "fur", "lij", "pms", "wa"}
_APOSTROPHE_IS_LETTER = {"uk", "be", "rue", "br", "uz", "haw", "gn", "ha", "fi", "he", "yi"}
_ORDINAL_POINT = "de da nb nn no fi et cs sk sl hr sr bs hu tr lv is"
# Abbreviations that may precede a capital letter or a digit. Before a lower-case letter, any short
# word can be an abbreviation.
_ABBREVIATIONS = {
    "en": "Mr Mrs Ms Dr Prof St Sr Jr Rev Hon Gen Col Capt Lt Sgt Gov Sen Rep Messrs vs cf Fig Figs Eq Vol",
    "de": "Dr Prof Hr Hrn Fr bzw ca vgl ggf evtl inkl sog St Nr Abs Abb Bd Kap Str Mio Mrd Jh Tel",
    "fr": "M MM Dr Prof St av apr env cf fig vol chap pp art",
    "es": "Sr Sra Srta Dr Dra D Dña Ud Uds Vd Vds pág págs núm Av art fig",
    "it": "sig Sig dott Dott prof Prof ing avv art pag cap fig",
    "pt": "Sr Sra Dr Dra Prof Exmo Av pág art fig",
    "nl": "dr prof mr ir ing drs St nr blz bijv ca vgl art",
    "ru": "г гг т д др пр см стр рис табл ул им тыс млн млрд руб",
    "bg": "г гр д др проф ул бул стр вж св",
    "tr": "Dr Prof Doç Av vb vs bkz yy Sn",
}
_NUMBERED = {
    "en": "No Nos Art p pp Ch Sec",
    "es": "n p",
    "fr": "n p",
    "it": "n p",
    "pt": "n p",
    "nl": "p",
}


def language_parts(lang: str) -> list[str]:
    """Return the lower-case parts of a language tag, with the language as a two-letter code:
    `zho_Hant` gives zh and hant.
    """
    base, *rest = lang.strip().replace("_", "-").lower().split("-")
    base = TWO_LETTERS.get(base, base)
    return ["zh" if base == "yue" else FORMER.get(base, base), *rest]


# -- scripts without spaces ------------------------------------------------------------------------
_SCRIPTS = {"zh": r"\p{Han}〻", "ja": r"\p{Han}\p{Hiragana}\p{Katakana}ー〻", "th": r"\p{Thai}"}
_BUDOUX = {"zh-hant": "zh-hant", "ja": "ja_word", "th": "th"}


def _cutter(language: str) -> Callable[[str], list[str]] | None:
    """Return the function that segments text of a language written without spaces, or None for
    other languages.
    """
    if language == "zh":
        # An object of its own has a private dictionary, unaffected by rjieba.add_word.
        return importlib.import_module("rjieba").Jieba().cut
    if language not in _BUDOUX:
        return None
    # The file is read here, because BudouX cannot load its Japanese word model.
    file = resources.files("budoux") / "models" / f"{_BUDOUX[language]}.json"
    model = json.loads(file.read_text(encoding="utf-8"))
    return importlib.import_module("budoux").Parser(model).parse


# -- the rules -------------------------------------------------------------------------------------
# Characters that never occur in words: control characters, byte order mark, soft hyphen, zero-width
# and bidirectional marks.
_UNSEEN = r"\s\p{Cc}\u00AD\u061C\u180E\u200B-\u200F\u2028-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB"
_SPECIAL = r"""
    (?:(?:https?|ftp|file)://|www\.)[!-~--[<>"`]]{0,250}[A/&=\#~+-]             # URL
  | [a-zA-Z0-9][A.+-]{0,63}@[A-]{1,63}(?:\.[A-]{1,63}){1,8}                     # e-mail
  | (?<![A<)\]}/.~])(?:~|\.\.?)?(?:/[A.~+-]{0,120}[A~+-]){1,60}/?(?![A/])       # /usr/lib
  | [A][A.+-]{0,120}(?:/[A.+-]{1,120}){1,60}\.[a-zA-Z][A]{0,4}(?![A/])          # docs/index.rst
  | [a-zA-Z]:\\[A\\.-]{0,250}[A]                                                # C:\temp
  | (?<![A%])%(?:\([A]+\))?[-+\#0]?\d*(?:\.\d+)?[a-zA-Z](?![A])                 # %(name)s
  | (?<![A)\]}-])--?[a-zA-Z][A-]*                                               # --option
  | (?<!\w)\d\d?:\d\d(?::\d\d)?(?![\w:])                                        # 10:30
  | [a-zA-Z](?:\+\+|\#)(?!\w)                                                   # C++, C#
"""
# In these patterns, A in brackets stands for ASCII word characters; \w would add 谢谢 to
# example.org/谢谢.
_SPECIAL = _SPECIAL.replace("[A", "[a-zA-Z0-9_").replace("[^A", "[^a-zA-Z0-9_")


def _pattern(language: str, *, special: bool) -> regex.Pattern[str]:
    """Return the pattern that matches one word. Its quantifiers are bounded or possessive, so
    matching takes linear time.
    """
    scripts = _SCRIPTS.get(language, "")
    letter = rf"[\p{{L}}\p{{M}}\p{{N}}_--[{scripts}]]" if scripts else r"[\p{L}\p{M}\p{N}_]"
    inner = r"[-‐‑.·]|[\u00AD\u200C\u200D\u2060]+|(?<=\p{Hebrew})[\"'״׳](?=\p{Hebrew})|(?<=\d)[,'’٫٬](?=\d)"
    if language in _APOSTROPHE_IS_LETTER:
        inner += r"|(?<=\p{L})['’](?=\p{L})"
    word = rf"{letter}++(?:(?:{inner}){letter}++)*+(?:-(?![^,;)\]]))?+"
    clitic = ""
    if language in _ELIDING:
        word = rf"(?:aujourd['’]hui(?!{letter})|{letter}++(?:-{letter}++)*+['’](?=\p{{L}})|{word})"
    elif language not in _APOSTROPHE_IS_LETTER:
        clitic = rf"(?<=\p{{L}})['’](?=\p{{L}}){word} | (?<=\d)['’]s(?!{letter}) |"
    return regex.compile(
        rf"""
        {f"[{scripts}]+ |" if scripts else ""}
        {_SPECIAL + "|" if special else ""}
        (?<!{letter})(?:Ph\.D\.|(?:\p{{L}}\p{{M}}*\.){{2,8}})(?!{letter})(?:-{word})? |        # U.S., z.B.
        (?<![\w)\]}}%])[-+−±](?=\d){word} |                                         # −5
        {clitic}
        {word} |
        ([-.=*~\#`])\1+ | '' |
        (?![{_UNSEEN}])\X
        """,
        regex.VERBOSE | regex.VERSION1,
    )


class Chunks(dict):
    """Cache that maps each chunk (text between two spaces) to its words, because most chunks of a
    text occur repeatedly.
    """

    def __init__(self, language: str, cut: Callable[[str], list[str]] | None):
        self.short, self._long = _pattern(language, special=True), _pattern(language, special=False)
        script = _SCRIPTS.get(language)
        self._run = regex.compile(f"[{script}]+") if script and cut else None
        self._cut = cut

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        words = self._words(chunk)
        if len(self) >= _KEPT:
            self.clear()
        if len(chunk) <= _SHORT:
            self[chunk] = words
        return words

    def _words(self, chunk: str) -> tuple[str, ...]:
        # Fast path: most chunks are one word, with at most one punctuation mark.
        if self._run is None and chunk.isalpha():
            return (chunk,)
        if self._run is None and chunk[-1] in ".,;:!?" and chunk[:-1].isalpha():
            return chunk[:-1], chunk[-1]
        pattern = self.short if len(chunk) <= _LONG else self._long
        words = (match[0] for match in pattern.finditer(chunk))
        if self._run is None or self._cut is None:
            return tuple(words)
        parts: list[str] = []
        for word in words:
            if self._run.fullmatch(word):  # a run of characters of a script without spaces
                parts += self._cut(word)
            else:
                parts.append(word)
        return tuple(parts)


class Segmenter:
    """Word segmenter for a language (`en`, `en-US`, `zh-Hant`, `jpn`); unknown languages use the
    default rules.
    """

    def __init__(self, lang: str):
        language, *subtags = language_parts(lang)
        is_traditional = lang.startswith("yue") or not {"hant", "tw", "hk", "mo"}.isdisjoint(
            subtags
        )
        script = "zh-hant" if language == "zh" and is_traditional else language
        self.chunks = Chunks(language, _cutter(script))
        self._abbreviations = frozenset(_ABBREVIATIONS.get(language, "").split())
        self._numbered = frozenset(_NUMBERED.get(language, "").split())
        self._ordinals = language in _ORDINAL_POINT.split()

    def split(self, text: str) -> list[str]:
        """Return the words of a text in order."""
        chunks = text.split()
        words = list(chain.from_iterable(map(self.chunks.__getitem__, chunks)))
        if ". " not in text:
            return words
        words = []
        for chunk, next_chunk in zip(chunks, [*chunks[1:], ""], strict=True):
            words.extend(self.chunks[chunk])
            if not next_chunk or len(chunk) == 1 or len(words) < 2 or words[-1] != ".":
                continue
            if self._abbreviates(words[-2], next_chunk):
                words[-2:] = [words[-2] + "."]
        return words

    def _abbreviates(self, word: str, next_chunk: str) -> bool:
        """Return whether the full stop between a word and the next chunk belongs to the word."""
        first = next_chunk[0]
        if word.isdigit():
            return self._ordinals and len(word) <= 2 and first.isalpha()
        if not word.isalpha():
            return False
        if first.islower():
            return len(word) <= 6
        if first.isdigit() and word in self._numbered:
            return True
        is_initial = len(word) == 1 and word.isupper() and first.isupper()
        return is_initial or word in self._abbreviations


@cache
def get_segmenter(lang: str) -> Segmenter:
    """Return the cached `Segmenter` of a language."""
    return Segmenter(lang)


def split_words(text: str, lang: str) -> list[str]:
    """Split a text into words by the rules of its language (see the module docstring).

    Example:
        >>> split_words("Don't read www.example.org/a, Mr. Smith.", "en")
        ['Don', "'t", 'read', 'www.example.org/a', ',', 'Mr.', 'Smith', '.']
    """
    return get_segmenter(lang).split(text)


def split_spaces(text: str) -> list[str]:
    """Split tokenised text into words at spaces and tabs.

    `str.split` would also split at no-break spaces. Other aligners do not split there, so word
    numbers in links would differ.
    """
    if text.isascii():
        return text.split()
    return [word for word in text.replace("\t", " ").split(" ") if word]


def splitter(lang: str, *, pretokenized: bool) -> Callable[[str], list[str]]:
    """Return the function that splits text in a language into words; pretokenized text is split
    only at spaces and tabs.
    """
    return split_spaces if pretokenized else get_segmenter(lang).split


def word_places(text: str, words: list[str]) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each word in a text, as character offsets.

    Raises:
        ValueError: `words` are not the words of the text.

    Example:
        >>> word_places("Don't  go.", ["Don", "'t", "go", "."])
        [(0, 3), (3, 5), (7, 9), (9, 10)]
    """
    places, end = [], 0
    for word in words:
        start = text.index(word[0], end)
        if text.startswith(word, start):
            end = start + len(word)
        else:  # the text has invisible characters inside the word
            end = start
            for letter in word:
                end = text.index(letter, end) + 1
        places.append((start, end))
    return places
