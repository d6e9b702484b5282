"""Find the encoders and texts to explore."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora import read_parallel, read_sentences
from calque.corpora.languages import language_and_path
from calque.corpora.sample import LANGUAGES, sample_text
from calque.corpora.spread import spread_over
from calque.encoders.folder import holds_encoder, read_run
from calque.encoders.names import found_place
from calque.errors import CalqueError, SettingError
from calque.input_texts import warn_skipped
from calque.offsets import offsets_of
from calque.segment import split_words
from calque.text import Sentence, Sentences

if TYPE_CHECKING:
    from calque.encoders import Encoder
    from calque.text import ParallelCorpus

_MAX_PARTNERS = (
    64  # maximum number of translations per sentence; short sentences can have thousands
)


class Collection:
    """Distinct sentences in several languages, grouped by language.

    Args:
        texts: the sides of each text (the second side translates the first), and whether the text
            was used for alignment.

    Attributes:
        sentences: all sentences; a sentence's number is its index in this list.
        ranges: first sentence and end (exclusive) of each language's sentences.
        offsets: index of each sentence's first word among all words, int64 `[n_sentences + 1]`.
        partners: numbers of each sentence's translations in parallel text.
        trained: mask of sentences that were used to align the encoders, bool `[n_sentences]`.
        empty: number of sentences without words, which are ignored.
    """

    def __init__(self, texts: Iterable[tuple[Sequence[Sentences | Sequence[Sentence]], bool]]):
        numbers: dict[
            str, dict[tuple[str, ...], int]
        ] = {}  # number of each sentence within its language
        pairs: list[tuple[tuple[str, int], tuple[str, int]]] = []
        trained: set[tuple[str, int]] = set()
        self.empty = 0
        for sides, known in texts:
            for beside in zip(*sides, strict=True):
                names = []
                for sentence in beside:
                    own = numbers.setdefault(sentence.lang, {})
                    if sentence.words:
                        names.append((sentence.lang, own.setdefault(sentence.words, len(own))))
                self.empty += len(beside) - len(names)
                trained.update(names if known else ())
                pairs += [(names[0], names[1]), (names[1], names[0])] if len(names) == 2 else []
        self.sentences = [Sentence(words, lang) for lang, own in numbers.items() for words in own]
        ends = np.cumsum([0, *map(len, numbers.values())]).tolist()
        self.ranges = {lang: (ends[k], ends[k + 1]) for k, lang in enumerate(numbers)}
        self.offsets = offsets_of([len(sentence) for sentence in self.sentences])
        partners: list[dict[int, None]] = [{} for _ in self.sentences]
        for (lang, k), (other, n) in pairs:
            partners[self.ranges[lang][0] + k][self.ranges[other][0] + n] = None
        self.partners = [tuple(own)[:_MAX_PARTNERS] for own in partners]
        self.trained = np.zeros(len(self.sentences), dtype=bool)
        self.trained[[self.ranges[lang][0] + k for lang, k in trained]] = True

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def languages(self) -> list[str]:
        return list(self.ranges)

    @property
    def n_words(self) -> int:
        return int(self.offsets[-1])

    def rows(self, lang: str) -> slice:
        """Return the slice that selects a language's words among all words."""
        first, last = self.ranges[lang]
        return slice(int(self.offsets[first]), int(self.offsets[last]))

    def place(self, row: int) -> tuple[int, int]:
        """Return the sentence of a word, and the word's position in the sentence."""
        sentence = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return sentence, row - int(self.offsets[sentence])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the sentences, their languages and their order."""
        digest = hashlib.blake2b(digest_size=16)
        for sentence in self.sentences:
            digest.update(
                "\x1f".join((sentence.lang, *sentence.words, "\x1e")).encode(
                    "utf-8", "surrogatepass"
                )
            )
        return digest.hexdigest()

    def translations(self, sentence: int) -> dict[str, int]:
        """Return one direct or indirect translation (see `related`) for each language in which the
        text contains one.
        """
        nearest: dict[str, int] = {}
        for other in self.related(sentence):
            nearest.setdefault(self.sentences[other].lang, other)
        return {lang: nearest[lang] for lang in self.ranges if lang in nearest}

    def related(self, sentence: int) -> list[int]:
        """Return all translations in other languages: direct translations, and translations of
        translations.
        """
        near = self.partners[sentence]
        further = [other for partner in near for other in self.partners[partner]]
        lang = self.sentences[sentence].lang
        return [
            other
            for other in dict.fromkeys((*near, *further))
            if self.sentences[other].lang != lang
        ]

    @cached_property
    def _searched(self) -> list[str]:
        """Case-folded text of each sentence, first with spaces around every word, then without
        spaces (as in Chinese).
        """
        texts = (sentence.words for sentence in self.sentences)
        return [f" {' '.join(words)} {''.join(words)}".casefold() for words in texts]

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> tuple[int, list[int]]:
        """Return the number of sentences that contain all words of the query, ignoring case, and
        the best `limit` sentences. Sentences that contain the query's words as whole words come
        first; ties are broken by length, shortest first."""
        terms, searched = query.casefold().split(), self._searched
        numbers = range(*((0, len(self)) if lang is None else self.ranges[lang]))
        hits = [k for k in numbers if terms and all(term in searched[k] for term in terms)]
        hits.sort(
            key=lambda k: (
                -sum(f" {term} " in searched[k] for term in terms),
                len(self.sentences[k]),
            )
        )
        return len(hits), hits[:limit]

    @cached_property
    def rows_of(self) -> dict[tuple[str, str], list[int]]:
        """Indices of the occurrences of each word type, keyed by language and lower-cased word
        type.
        """
        rows: dict[tuple[str, str], list[int]] = {}
        words = (
            (sentence.lang, word.casefold())
            for sentence in self.sentences
            for word in sentence.words
        )
        for row, word_type in enumerate(words):
            rows.setdefault(word_type, []).append(row)
        return rows

    def guess_language(self, text: str) -> str:
        """Return the language whose words cover the most characters of a text; ties are broken by
        the number of known letters.
        """

        def shared(lang: str) -> tuple[int, int]:
            words = [word.casefold() for word in split_words(text, lang)]
            letters = set().union(*(word for own, word in self.rows_of if own == lang))
            known = (word for word in words if (lang, word) in self.rows_of)
            return sum(map(len, known)), sum(c in letters for c in text.casefold())

        return max(self.ranges, key=shared)


Say = Callable[[str], None]
RECORD = "calque-run.json"
_DEMO_TEXT = re.compile(r"([A-Za-z]{2,3}(?:-\w+)?)\.(train|test)\.tsv")


@dataclass(frozen=True)
class NamedEncoder:
    """Encoder with a short unique name; `before` is true for the base encoder of an aligned
    encoder.
    """

    name: str
    encoder: Encoder
    before: bool


# -- encoders
# --------------------------------------------------------------------------------------------------
def is_collection(folder: Path) -> bool:
    """Return whether a folder contains encoders, as the folder of `calque demo` does, and is not
    itself an encoder.
    """
    return folder.is_dir() and not holds_encoder(folder) and bool(_members(folder))


def _members(folder: Path) -> list[Path]:
    return [
        member for member in sorted(folder.iterdir()) if member.is_dir() and holds_encoder(member)
    ]


def find_encoders(names: Sequence[str], base: str | None, say: Say) -> list[NamedEncoder]:
    """Load the encoders and their base encoders; return the base encoders first.

    Args:
        names: arguments of `calque.load_encoder`, or folders that contain encoders.
        base: base encoder; default: the base encoders that the encoders contain or that their
            records name.
    """
    from calque.encoders import load_encoder

    places = [
        each
        for name in names
        for each in (_members(Path(name)) if is_collection(Path(name)) else [name])
    ]
    found = [_named(place, load_encoder(place)) for place in places]
    if base is not None:
        befores = [_named(base, load_encoder(base))]
    else:
        known = (
            _before(each.encoder, Path(place), say)
            for place, each in zip(places, found, strict=True)
        )
        befores = [before for before in known if before is not None]
    by_hash: dict[str, NamedEncoder] = {}  # unique encoders, by fingerprint
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
    return NamedEncoder(
        Path(place).resolve().name if Path(place).is_dir() else str(place), encoder, False
    )


def _before(encoder: Encoder, folder: Path, say: Say) -> NamedEncoder | None:
    """Return the base encoder if the encoder contains it or `calque-run.json` contains its name;
    otherwise return None.
    """
    from calque.encoders import HuggingFaceEncoder, load_encoder

    record = read_run(folder)
    if encoder.base is not None:  # an encoder with maps contains its base encoder
        name = record.get("encoder") or f"{folder.name} without its maps"
        return NamedEncoder(str(name), encoder.base, True)
    if "encoder" not in record or "towards" not in record:
        return None
    name, settings = str(record["encoder"]), dict[str, Any](layer=encoder.layer)
    settings |= {"pooling": encoder.pooling} if isinstance(encoder, HuggingFaceEncoder) else {}
    recorded = record.get("encoder_path")
    candidates = [found_place(recorded, folder)] if isinstance(recorded, str) else []
    candidates += [folder.parent / name, Path(name)]
    places = [str(place) for place in dict.fromkeys(candidates) if place.exists()]
    for place in places or [name] * (
        ":" not in name
    ):  # loading a name with a colon would import a class
        try:
            before = load_encoder(place, **settings)
        except CalqueError:
            continue
        if record.get("encoder_fingerprint") in (None, before.fingerprint):
            return NamedEncoder(name, before, True)
    why = f"was changed after the alignment ({places[0]})" if places else "was not found"
    remedy = (
        f"to compare with it, run calque explore {shlex.quote(str(folder))} --base "
        f"PATH/TO/{shlex.quote(Path(name).name)}"
    )
    say(f"{folder}: the base encoder {name} {why}; {remedy}")
    return None


# -- text
# --------------------------------------------------------------------------------------------------
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
    """Return the text to explore: the user's text, the text in a demo's folder, or the bundled
    sample text.

    Args:
        names: names or folders of the encoders, as given by the user.
        text: plain text files with one sentence per line, given as `de=FILE` if the file name does
            not contain the language.
        test, langs: parallel texts and their languages, with one language pair for all files or one
            pair per file.
        limit: maximum number of lines of each file, evenly spaced.
    """
    plain = [language_and_path(item) for item in text]
    texts = [
        ([read_sentences(p, lang=lang, pretokenized=pretokenized, limit=limit)], False)
        for lang, p in plain
    ]
    pairs = list(langs) * len(test) if len(langs) == 1 else list(langs)
    if len(pairs) != len(test):
        raise SettingError(
            f"--langs must have one pair, or one for each of {len(test)} --test files, got "
            f"{len(pairs)}"
        )
    parallel = []
    for path, pair in zip(test, pairs, strict=True):
        corpus = read_parallel(
            path, langs=pair, pretokenized=pretokenized, on_error="skip", limit=limit
        )
        warn_skipped(corpus, path)
        parallel.append((corpus, False))
    if not text and not test:
        for path, lang, part in (file for name in names for file in _demo_texts(Path(name))):
            corpus = read_parallel(path, langs=("en", lang), pretokenized=True, limit=limit)
            parallel.append((corpus, part == "train"))
        if not parallel:
            say("neither --text nor --test was given; exploring calque's sample text")
            parallel = [(_some_pairs(sample_text(lang), limit), False) for lang in LANGUAGES]
    collection = Collection(
        [*texts, *(([corpus.source, corpus.target], trained) for corpus, trained in parallel)]
    )
    if not collection.n_words:
        raise SettingError("the text to explore must contain words, got none")
    say(
        f"{collection.n_words:,} words in {len(collection):,} sentences in "
        f"{', '.join(collection.languages)}"
        + (f"; {collection.empty:,} empty lines skipped" if collection.empty else "")
    )
    return collection


def _some_pairs(corpus: ParallelCorpus, limit: int | None) -> ParallelCorpus:
    chosen = spread_over(len(corpus), limit)
    return corpus if chosen is None else corpus.take(chosen)


def _demo_texts(folder: Path) -> list[tuple[Path, str, str]]:
    """Return the text files in the folder of a demo, with their language and split; test texts come
    first.
    """
    matches = (
        [(file, _DEMO_TEXT.fullmatch(file.name)) for file in (folder / "text").glob("*")]
        if is_collection(folder)
        else []
    )
    rank = {lang: k for k, lang in enumerate(LANGUAGES)}
    texts = [(file, match[1], match[2]) for file, match in matches if match]
    return sorted(
        texts, key=lambda text: (text[2] != "test", rank.get(text[1], len(rank)), text[1])
    )


def place_for(name: str) -> Path:
    """Return the folder for word vectors: inside a demo's folder, next to an encoder's folder, or
    in the current folder.
    """
    folder = Path(name)
    if is_collection(folder):
        return folder / "explore"
    return (
        folder.parent / f"{folder.resolve().name}-explore"
        if folder.is_dir()
        else Path("calque-explore")
    )
