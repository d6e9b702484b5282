"""Find the encoders and texts to explore."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Container, Iterable, Sequence
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

# maximum number of translations per sentence; short sentences can have thousands
_MAX_PARTNERS = 64
_Key = tuple[str, int]  # language of a sentence, and its number within the language
# sides of a text, and whether it was used for alignment
_Text = tuple[Sequence[Sentences | Sequence[Sentence]], bool]


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

    def __init__(self, texts: Iterable[_Text]):
        # Number the distinct sentences of each language in the order of their first occurrence.
        numbers: dict[str, dict[tuple[str, ...], int]] = {}
        pairs: list[tuple[_Key, _Key]] = []
        trained: set[_Key] = set()
        self.empty = 0
        for sides, is_trained in texts:
            for line in zip(*sides, strict=True):
                keys = _number_sentences(line, numbers)
                self.empty += len(line) - len(keys)
                if is_trained:
                    trained.update(keys)
                if len(keys) == 2:
                    pairs += [(keys[0], keys[1]), (keys[1], keys[0])]

        self.sentences: list[Sentence] = []
        self.ranges: dict[str, tuple[int, int]] = {}
        for lang, lang_numbers in numbers.items():
            first = len(self.sentences)
            self.sentences += [Sentence(words, lang) for words in lang_numbers]
            self.ranges[lang] = first, len(self.sentences)
        self.offsets = offsets_of([len(sentence) for sentence in self.sentences])

        def index(key: _Key) -> int:
            lang, number = key
            return self.ranges[lang][0] + number

        # dicts without values, which drop duplicates and keep the order
        partners: list[dict[int, None]] = [{} for _ in self.sentences]
        for key, translation in pairs:
            partners[index(key)][index(translation)] = None
        self.partners = [tuple(translations)[:_MAX_PARTNERS] for translations in partners]
        self.trained = np.zeros(len(self.sentences), dtype=bool)
        self.trained[[index(key) for key in trained]] = True

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
            line = "\x1f".join((sentence.lang, *sentence.words, "\x1e"))
            digest.update(line.encode("utf-8", "surrogatepass"))
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
        direct = self.partners[sentence]
        numbers = dict.fromkeys(direct)  # without duplicates, direct translations first
        for partner in direct:
            numbers.update(dict.fromkeys(self.partners[partner]))
        lang = self.sentences[sentence].lang
        return [other for other in numbers if self.sentences[other].lang != lang]

    @cached_property
    def _searched(self) -> list[str]:
        """Case-folded text of each sentence, first with spaces around every word, then without
        spaces (as in Chinese).
        """
        texts = []
        for sentence in self.sentences:
            text = f" {' '.join(sentence.words)} {''.join(sentence.words)}"
            texts.append(text.casefold())
        return texts

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> tuple[int, list[int]]:
        """Return the number of sentences that contain all words of the query, ignoring case, and
        the best `limit` sentences. Sentences that contain the query's words as whole words come
        first; ties are broken by length, shortest first."""
        terms = query.casefold().split()
        if not terms:
            return 0, []
        texts = self._searched

        def rank(k: int) -> tuple[int, int]:
            n_whole_words = sum(f" {term} " in texts[k] for term in terms)
            return -n_whole_words, len(self.sentences[k])

        first, end = (0, len(self)) if lang is None else self.ranges[lang]
        hits = [k for k in range(first, end) if all(term in texts[k] for term in terms)]
        hits.sort(key=rank)
        return len(hits), hits[:limit]

    @cached_property
    def rows_of(self) -> dict[tuple[str, str], list[int]]:
        """Indices of the occurrences of each word type, keyed by language and lower-cased word
        type.
        """
        rows: dict[tuple[str, str], list[int]] = {}
        row = 0
        for sentence in self.sentences:
            for word in sentence.words:
                rows.setdefault((sentence.lang, word.casefold()), []).append(row)
                row += 1
        return rows

    def guess_language(self, text: str) -> str:
        """Return the language whose words cover the most characters of a text; ties are broken by
        the number of known letters.
        """

        def overlap(lang: str) -> tuple[int, int]:
            words = [word.casefold() for word in split_words(text, lang)]
            n_covered = sum(len(word) for word in words if (lang, word) in self.rows_of)
            letters: set[str] = set()
            for word_lang, word in self.rows_of:
                if word_lang == lang:
                    letters.update(word)
            n_known_letters = sum(letter in letters for letter in text.casefold())
            return n_covered, n_known_letters

        return max(self.ranges, key=overlap)


def _number_sentences(
    line: Iterable[Sentence], numbers: dict[str, dict[tuple[str, ...], int]]
) -> list[_Key]:
    """Add the sentences of a line to `numbers`, and return the keys of those that contain words.

    Args:
        numbers: number of each distinct sentence, given as its words, in each language.
    """
    keys = []
    for sentence in line:
        lang_numbers = numbers.setdefault(sentence.lang, {})
        if sentence.words:
            number = lang_numbers.setdefault(sentence.words, len(lang_numbers))
            keys.append((sentence.lang, number))
    return keys


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


# -- encoders --------------------------------------------------------------------------------------
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

    places: list[str | Path] = []
    for name in names:
        if is_collection(Path(name)):
            places += _members(Path(name))
        else:
            places.append(name)
    encoders = [_named(place, load_encoder(place)) for place in places]
    if base is not None:
        befores = [_named(base, load_encoder(base))]
    else:
        befores = []
        for place, named in zip(places, encoders, strict=True):
            before = _before(named.encoder, Path(place), say)
            if before is not None:
                befores.append(before)
    # Keep one encoder for each fingerprint, and list the base encoders first.
    by_hash: dict[str, NamedEncoder] = {}
    for named in (*encoders, *befores):
        by_hash.setdefault(named.encoder.fingerprint, named)
    before_hashes = {before.encoder.fingerprint for before in befores}
    by_name: dict[str, NamedEncoder] = {}
    for fingerprint in sorted(by_hash, key=lambda fingerprint: fingerprint not in before_hashes):
        named = by_hash[fingerprint]
        name = _unused_name(named.name, by_name)
        by_name[name] = replace(named, name=name, before=fingerprint in before_hashes)
    return list(by_name.values())


def _unused_name(name: str, used: Container[str]) -> str:
    """Return the name, followed by a number if it is already used."""
    unused, number = name, 2
    while unused in used:
        unused = f"{name} {number}"
        number += 1
    return unused


def _named(place: str | Path, encoder: Encoder) -> NamedEncoder:
    """Return an encoder with the name of its folder, or with its hub name or bundled name."""
    folder = Path(place)
    name = folder.resolve().name if folder.is_dir() else str(place)
    return NamedEncoder(name, encoder, before=False)


def _before(encoder: Encoder, folder: Path, say: Say) -> NamedEncoder | None:
    """Return the base encoder if the encoder contains it or `calque-run.json` contains its name;
    otherwise return None.
    """
    from calque.encoders import HuggingFaceEncoder, load_encoder

    record = read_run(folder)
    if encoder.base is not None:  # an encoder with maps contains its base encoder
        name = record.get("encoder") or f"{folder.name} without its maps"
        return NamedEncoder(str(name), encoder.base, before=True)
    if "encoder" not in record or "towards" not in record:
        return None
    name = str(record["encoder"])
    settings: dict[str, Any] = {"layer": encoder.layer}
    if isinstance(encoder, HuggingFaceEncoder):
        settings["pooling"] = encoder.pooling
    places = _recorded_places(name, record.get("encoder_path"), folder)
    # Loading a name with a colon would import a class, which only the user may name.
    names = places or ([] if ":" in name else [name])
    for place in names:
        try:
            before = load_encoder(place, **settings)
        except CalqueError:
            continue
        if record.get("encoder_fingerprint") in (None, before.fingerprint):
            return NamedEncoder(name, before, before=True)
    reason = f"was changed after the alignment ({places[0]})" if places else "was not found"
    say(
        f"{folder}: the base encoder {name} {reason}; to compare with it, run calque explore "
        f"{shlex.quote(str(folder))} --base PATH/TO/{shlex.quote(Path(name).name)}"
    )
    return None


def _recorded_places(name: str, path: object, folder: Path) -> list[str]:
    """Return the existing files and folders that can contain the base encoder of a run.

    Args:
        name, path: the base encoder's name and path in the run's record.
        folder: folder of the run.
    """
    candidates = [folder.parent / name, Path(name)]
    if isinstance(path, str):
        candidates.insert(0, found_place(path, folder))
    return [str(place) for place in dict.fromkeys(candidates) if place.exists()]


# -- text ------------------------------------------------------------------------------------------
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
    texts: list[_Text] = []
    for lang, path in [language_and_path(item) for item in text]:
        sentences = read_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit)
        texts.append(([sentences], False))
    texts += _parallel_texts(test, langs, pretokenized, limit)
    if not text and not test:
        for name in names:
            for path, lang, split in _demo_texts(Path(name)):
                corpus = read_parallel(path, langs=("en", lang), pretokenized=True, limit=limit)
                texts.append(((corpus.source, corpus.target), split == "train"))
    if not texts:
        say("neither --text nor --test was given; exploring calque's sample text")
        for lang in LANGUAGES:
            corpus = _some_pairs(sample_text(lang), limit)
            texts.append(((corpus.source, corpus.target), False))
    collection = Collection(texts)
    if not collection.n_words:
        raise SettingError("the text to explore must contain words, got none")
    languages = ", ".join(collection.languages)
    summary = f"{collection.n_words:,} words in {len(collection):,} sentences in {languages}"
    if collection.empty:
        summary += f"; {collection.empty:,} empty lines skipped"
    say(summary)
    return collection


def _parallel_texts(
    paths: Sequence[str],
    langs: Sequence[tuple[str, str]],
    pretokenized: bool,
    limit: int | None,
) -> list[_Text]:
    """Read the user's files of parallel text, see `find_text`."""
    pairs = list(langs) * len(paths) if len(langs) == 1 else list(langs)
    if len(pairs) != len(paths):
        raise SettingError(
            f"--langs must have one pair, or one for each of {len(paths)} --test files, got "
            f"{len(pairs)}"
        )
    texts: list[_Text] = []
    for path, pair in zip(paths, pairs, strict=True):
        corpus = read_parallel(
            path, langs=pair, pretokenized=pretokenized, on_error="skip", limit=limit
        )
        warn_skipped(corpus, path)
        texts.append(((corpus.source, corpus.target), False))
    return texts


def _some_pairs(corpus: ParallelCorpus, limit: int | None) -> ParallelCorpus:
    """Return at most `limit` sentence pairs, evenly spaced."""
    chosen = spread_over(len(corpus), limit)
    return corpus if chosen is None else corpus.take(chosen)


def _demo_texts(folder: Path) -> list[tuple[Path, str, str]]:
    """Return the text files in the folder of a demo, with their language and split; test texts come
    first.
    """
    if not is_collection(folder):
        return []
    texts = []
    for file in (folder / "text").glob("*"):
        match = _DEMO_TEXT.fullmatch(file.name)
        if match:
            texts.append((file, match[1], match[2]))
    rank = {lang: number for number, lang in enumerate(LANGUAGES)}

    def sort_key(text: tuple[Path, str, str]) -> tuple[bool, int, str]:
        _, lang, split = text
        return split != "test", rank.get(lang, len(rank)), lang

    return sorted(texts, key=sort_key)


def place_for(name: str) -> Path:
    """Return the folder for word vectors: inside a demo's folder, next to an encoder's folder, or
    in the current folder.
    """
    folder = Path(name)
    if is_collection(folder):
        return folder / "explore"
    if folder.is_dir():
        return folder.parent / f"{folder.resolve().name}-explore"
    return Path("calque-explore")
