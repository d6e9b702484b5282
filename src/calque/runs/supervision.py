"""Read what an alignment method learns from: parallel text, dictionaries, or plain text in each
language.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment import METHODS
from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import Dictionaries, LinkedText, PlainText, TrainingData
from calque.alignment.driver import make_method
from calque.corpora.by_name import name_of
from calque.corpora.languages import language_and_path, name_and_path
from calque.distributed import is_first
from calque.errors import SettingError
from calque.input_texts import Say, Words, check_pairs, read_languages, skipped
from calque.runs.anchors import open_folder
from calque.runs.reading import Wish, linked_sample, read_encoder
from calque.runs.settings import AlignSettings, named_pairs
from calque.runs.words import links_of
from calque.spec import Count, Layer, option

if TYPE_CHECKING:
    from calque.alignment.dictionary import DictionaryMaps
    from calque.analyses.reading import Reading
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

IDENTICAL = "identical"  # initialises the map with words that are spelt the same in both languages


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """Settings for averaging the vectors of each word over plain text, see `compute_anchors`."""

    layers: Sequence[Layer] | None = option(
        None, "layers that are mapped; default: the layer set by --layer."
    )
    most: Count = option(
        50_000, "number of words to use per language, the most frequent words first."
    )
    at_least: Count = option(
        1, "minimum number of times that a word must occur in the text to be used."
    )
    most_occurrences: Count | None = option(
        None,
        "maximum number of occurrences over which the vector of a word is averaged; default: all.",
    )


class Supervision(ABC):
    """Training data of a run: files that are read before the encoder is loaded, and what is
    computed from them.

    Attributes:
        method: alignment method.
        of_each: whether the method uses a separate encoder for each language.
        preparing: what `prepared` computes, as a key of the record's times; "" if it only passes on
            what was read.
    """

    method: Method
    of_each: bool = False
    preparing: str = ""

    @abstractmethod
    def prepared(self, base: Encoder, run: Run, say: Say) -> TrainingData:
        """Compute word links or anchors, and return the training data."""

    def wish(self, load: Mapping[str, Any] | None, choose: bool) -> Wish:
        """Return how the encoder is to be read; without parallel text, nothing is chosen.

        Args:
            load: keyword arguments of `load_encoder`, see `runs.align.align`.
            choose: whether the layer and the pooling are chosen by default.
        """
        return Wish.of(load).without_choice()

    def read(
        self, base: Encoder, data: Any, wish: Wish, run: Run, say: Say
    ) -> tuple[Encoder, Reading | None]:
        """Return the encoder with the layer and the pooling that the user wishes, and the choice,
        if there was one.
        """
        return base, None

    @abstractmethod
    def record(self, data: Any, fitted: Fitted, say: Say) -> dict[str, Any]:
        """Return the texts, the settings and the counts of a finished run for the model card."""

    def facts(self, fitted: Fitted) -> dict[str, Any]:
        """Return the method's record, or its settings if the method returns no record."""
        return dict(fitted.record) or {"settings": self.method.settings()}


def supervision_of(
    settings: AlignSettings,
    options: Mapping[str, Any],
    words: Words | None = None,
    say: Say = lambda line: None,
) -> Supervision:
    """Read the training data that the settings name.

    Args:
        options: options of the method. For dictionaries, these are the options of
            `DictionaryMaps` and of `Averaging`.
        words: settings for tokenisation and word alignment; by default, the method determines how
            links are symmetrised.

    Raises:
        SettingError: the method cannot use these data, or settings contradict each other.
        InputError: a file cannot be read.
    """
    if options.get("identical") and not settings.dictionary:
        raise SettingError(
            "identical words can only be added to a dictionary, but no dictionary was given"
        )
    if settings.links and not (settings.train and METHODS[settings.method or ""].needs_links):
        raise SettingError(f"{settings.method} does not use word links; leave out --links")
    if settings.train:
        return ParallelSupervision(settings, options, words)
    if settings.dictionary or "start" in options:
        return DictionarySupervision(settings, options, words or Words())
    return PlainSupervision(settings, options, words or Words(), say)


class ParallelSupervision(Supervision):
    """Parallel texts, whose words are linked by the statistical aligner or by given files if the
    method needs word links.
    """

    preparing = "words"

    def __init__(self, settings: AlignSettings, options: Mapping[str, Any], words: Words | None):
        row = METHODS[settings.method or ""]
        files, langs = named_pairs(settings.train or (), settings.langs or ())
        self.method = make_method(settings.method or "", settings.towards, options, LinkedText.kind)
        self.of_each = row.of_each
        self._name, self._links = settings.method or "", settings.links or []
        self._needs_links = row.needs_links
        self._words = Words(symmetrize=row.symmetrize) if words is None else words
        if self._links and len(self._links) != len(files):
            raise SettingError(
                f"expected one --links per text, got {len(self._links)} files of links for "
                f"{len(files)} texts"
            )
        self._corpora = self._words.read_all(files, langs)
        self._rows: list[dict[str, Any]] = []
        for path, corpus in zip(files, self._corpora, strict=True):
            if settings.towards not in corpus.langs:
                raise SettingError(
                    f"--towards {settings.towards} is not a language of {path} "
                    f"({', '.join(corpus.langs)})"
                )
            about = {
                "path": name_of(path),
                "langs": list(corpus.langs),
                "sentence_pairs": len(corpus),
            }
            self._rows.append({**about, "unusable_lines": sum(corpus.skipped.values())})

    def prepared(self, base: Encoder, run: Run, say: Say) -> LinkedText:
        data = LinkedText(tuple(self._corpora))
        if self._links:
            paths = zip(self._links, self._corpora, strict=True)
            data = data.linked([self._words.open_pairs(path, corpus) for path, corpus in paths])
        elif self._needs_links:
            assert run.folder is not None  # `align` always gives a folder
            links = links_of(
                self._corpora, self._words, folder=Path(run.folder), say=say, progress=run.progress
            )
            data = data.linked(links)
        count = f", {sum(map(len, data.pairs)):,} word links" if self._needs_links else ""
        say(f"{self._name}: {sum(map(len, data.corpora)):,} sentence pairs{count}")
        return data

    def wish(self, load: Mapping[str, Any] | None, choose: bool) -> Wish:
        wish = Wish.of(load, usual=choose, pooling=METHODS[self._name].pooling if choose else "")
        # Several layers are not compared with single ones.
        return replace(wish, usual=False) if getattr(self.method, "layers", None) else wish

    def read(
        self, base: Encoder, data: LinkedText, wish: Wish, run: Run, say: Say
    ) -> tuple[Encoder, Reading | None]:
        unit = METHODS[self._name].unit

        def texts() -> tuple[Sequence[ParallelCorpus], Sequence[WordPairs]]:
            if unit == "sentences":
                return data.corpora, ()
            if data.pairs:
                return data.corpora, data.pairs
            return linked_sample(data.corpora, self._words)

        folder = None if run.folder is None else Path(run.folder)
        return read_encoder(base, wish, texts, unit=unit, folder=folder, say=say)

    def record(self, data: LinkedText, fitted: Fitted, say: Say) -> dict[str, Any]:
        rows = self._rows
        if data.pairs:
            counts = [len(links) for links in data.pairs]
            rows = [{**row, "word_pairs": n} for row, n in zip(rows, counts, strict=True)]
        about: dict[str, Any] = {"texts": rows, **self.facts(fitted), "method": self._name}
        if self._needs_links:
            about["words"] = {
                "model": "given links" if self._links else self._words.model,
                "symmetrize": self._words.symmetrize,
                "seed": self._words.seed,
                "pretokenized": self._words.pretokenized,
            }
        else:
            about["pretokenized"] = self._words.pretokenized
        say_fits(about["settings"], say)
        warn_of_unused(about.get("counts", {}), about["settings"].get("max_words"), data.corpora)
        chosen = about["settings"].get("batch")
        if chosen and getattr(self.method, "batch", chosen) is None:
            say(f"{self._name}: {chosen} sentence pairs of each text in an update")
        comparison = about.get("held_out", {})
        if comparison and not comparison.get("unchanged"):  # otherwise there is a warning
            say(comparison["summary"])
        return about


class DictionarySupervision(Supervision):
    """Dictionaries, or none with `start`, and the plain texts or folders from which anchors are
    made.
    """

    preparing = "anchors"

    def __init__(self, settings: AlignSettings, options: Mapping[str, Any], words: Words):
        self._name, self._options, self._words = settings.method or "", options, words
        of_anchors = {each.name for each in fields(Averaging)} & options.keys()
        self._averaging = Averaging(**{name: options[name] for name in of_anchors})
        of_map = {name: value for name, value in options.items() if name not in of_anchors}
        self.method = self._maps = _dictionary_maps(self._name, settings.towards, of_map)
        self._files, langs = named_pairs(settings.dictionary or (), settings.langs or ())
        self._texts, self._folders = settings.text or [], settings.anchors or []
        self._entries, self._wanted, self._rows = _dictionaries(
            self._files, langs, settings.towards
        )

    def prepared(self, base: Encoder, run: Run, say: Say) -> Dictionaries:
        anchors, sources = self._anchors(base, progress=run.progress, say=say)
        self._rows = [*self._rows, *sources]
        return Dictionaries(anchors, tuple(self._entries))

    def record(self, data: Dictionaries, fitted: Fitted, say: Say) -> dict[str, Any]:
        return {"texts": self._rows, "langs": sorted(data.anchors), **self._about_maps(fitted, say)}

    def _anchors(
        self, base: Encoder, *, progress: bool, say: Say
    ) -> tuple[dict[str, dict[int, Anchors]], list[dict[str, Any]]]:
        """Return the anchors of each language, and the record entries for their texts and
        folders.
        """
        from calque.encoders.anchors import compute_anchors, frequent_words, table_anchors
        from calque.encoders.static import StaticEncoder

        most = self._averaging.most
        if isinstance(base, StaticEncoder):
            if self._texts or self._folders:
                say(
                    "--text and --anchors are ignored, because a static encoder already has one "
                    "vector per word"
                )
            tables = {}
            for lang, needed in self._wanted.items():
                tables[lang] = table_anchors(base, lang, most=most, also=needed)
            return tables, []
        by_lang: dict[str, dict[int, Anchors]] = {}
        sources = []
        for folder in self._folders:
            lang, path = name_and_path(folder)
            by_layer = open_folder(path, lang=lang, encoder=base)
            first = next(iter(by_layer.values()))
            lang = first.lang or language_and_path(folder)[0]
            by_lang[lang] = by_layer
            sources.append({"path": Path(path).name, "langs": [lang], "entries": len(first)})
        named = [language_and_path(text) for text in self._texts]
        has_source = {*by_lang, *(lang for lang, _ in named)}
        missing = [lang for lang in self._wanted if lang not in has_source]
        if missing:
            remedy = f"give --text {missing[0]}=FILE or --anchors {missing[0]}=DIR"
            raise SettingError(
                f"the word vectors of {missing[0]} must be averaged over a text; {remedy}"
            )
        read = read_languages(
            named,
            format=self._words.format,
            pretokenized=self._words.pretokenized,
            limit=self._words.limit,
            say=say,
        )
        numbers = base.layer_numbers(self._averaging.layers)
        for lang, text in read.items():
            if lang in self._wanted and lang not in by_lang:
                say(f"{lang}: anchors from {len(text):,} sentences")
                vocabulary = frequent_words(text, most, self._wanted[lang])
                by_lang[lang] = compute_anchors(
                    base,
                    text,
                    numbers,
                    vocabulary=vocabulary,
                    at_least=self._averaging.at_least,
                    most_occurrences=self._averaging.most_occurrences,
                    progress=progress,
                )
        rows = [
            {"path": Path(path).name, "langs": [lang], "entries": len(read[lang])}
            for lang, path in named
        ]
        return by_lang, sources + rows

    def _about_maps(self, fitted: Fitted, say: Say) -> dict[str, Any]:
        """Return the record for maps fitted with or without dictionaries, and print the quality of
        each map.
        """
        fits = fitted.record["settings"]["fits"]
        failed = []
        for lang, by_layer in fits.items():
            for layer, fit in by_layer.items():
                chosen, named = fit["rounds"][fit["best"]], f"{lang}, layer {layer}"
                line = (
                    f"{named}: {chosen['pairs']:,} pairs in round {fit['best']} of "
                    f"{len(fit['rounds']) - 1}"
                )
                if chosen["held_out_p@1"] is not None:
                    line += f", {100 * chosen['held_out_p@1']:.1f}% of the held-out words correct"
                if fit["left_out"]:
                    line += f", {fit['left_out']:,} entries without vectors skipped"
                say(line)
                if fit.get("failed"):
                    failed.append(named)
        say_fits(fitted.record["settings"], say)
        if self._files:
            source = "a dictionary"
        elif self._maps.start == IDENTICAL:
            source = "words spelt alike"
        else:
            source = f"no dictionary ({self._maps.start})"
        settings = {
            "method": self._name,
            "start": self._maps.start,
            "start_options": dict(self._maps.start_options or {}),
            "identical": self._maps.identical,
            "shrinkage": self._maps.shrinkage,
            "combine": self._maps.combine,
            "most": self._averaging.most,
            "at_least": self._averaging.at_least,
            "most_occurrences": self._averaging.most_occurrences,
            "fits": fits,
        }
        return {"method": f"{self._name} from {source}", "settings": settings, "failed": failed}


class PlainSupervision(Supervision):
    """Plain text in each language."""

    def __init__(self, settings: AlignSettings, options: Mapping[str, Any], words: Words, say: Say):
        self._name, self._pretokenized = settings.method or "", words.pretokenized
        self.method = make_method(self._name, settings.towards, options, PlainText.kind)
        self.of_each = METHODS[self._name].of_each
        texts, self._rows = _texts(self._name, settings.towards, settings.text or [], words, say)
        self._data = PlainText(texts)

    def prepared(self, base: Encoder, run: Run, say: Say) -> PlainText:
        return self._data

    def record(self, data: PlainText, fitted: Fitted, say: Say) -> dict[str, Any]:
        about = {"texts": self._rows, "langs": sorted(data.texts), **self.facts(fitted)}
        say_fits(about["settings"], say)
        return {**about, "method": self._name, "pretokenized": self._pretokenized}


def say_fits(settings: Mapping[str, Any], say: Say) -> None:
    """Print how far each map was shrunk towards the identity."""
    from calque.maps.shrinkage import lines_of_fits

    for line in lines_of_fits(settings.get("fits", {})):
        say(line)


def _dictionary_maps(name: str, towards: str, options: Mapping[str, Any]) -> DictionaryMaps:
    """Return the method that fits maps with or without a dictionary."""
    from calque.alignment.dictionary import DictionaryMaps

    return DictionaryMaps(name, towards=towards, **options)  # type: ignore[arg-type]


def warn_of_unused(
    counts: Mapping[str, Any], max_words: int | None, corpora: Sequence[ParallelCorpus]
) -> None:
    """Warn about sentence pairs that training skips, except unusable lines, which were reported
    when the text was read.
    """
    unusable = sum(sum(corpus.skipped.values()) for corpus in corpora)
    reasons = {
        f"with more than {max_words} words on a side": counts.get("too_long", 0),
        "without a word link": counts.get("without_links", 0) - unusable,
    }
    unused = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n > 0)
    if unused and is_first():
        skipped(f"training skips some of the {sum(map(len, corpora)):,} sentence pairs: {unused}")


def _texts(
    method: str, towards: str, files: Sequence[str], words: Words, say: Say
) -> tuple[Any, list[dict[str, Any]]]:
    """Read plain text, and return the sentences of each language and the entries for the record."""
    named = [language_and_path(text) for text in files]
    langs = list(dict.fromkeys(lang for lang, _ in named))
    if towards not in langs or len(langs) < 2:
        raise SettingError(
            f"{method} needs text in {towards} and in another language, got {', '.join(langs)}; "
            "give --text for each language"
        )
    read = read_languages(
        named,
        format=words.format,
        pretokenized=words.pretokenized,
        limit=words.limit,
        say=say,
    )
    paths = {
        lang: ", ".join(Path(path).name for other, path in named if other == lang) for lang in read
    }
    return read, [
        {"path": paths[lang], "langs": [lang], "sentences": len(text)}
        for lang, text in read.items()
    ]


def _dictionaries(
    files: Sequence[str], langs: Sequence[tuple[str, str]], towards: str
) -> tuple[list[Dictionary], dict[str, list[str]], list[dict[str, Any]]]:
    """Return the dictionaries, the words of each language and the entries for the record. The words
    are in the order of the dictionaries, which later breaks ties between equally frequent words."""
    from calque.corpora import read_dictionary

    words: dict[str, dict[str, None]] = {
        lang: {} for lang in (towards, *(lang for pair in langs for lang in pair))
    }
    for a, b in langs:
        if towards not in (a, b):
            raise SettingError(f"--towards must be one of the languages {a} and {b}, got {towards}")
    pairs = list(langs) * (len(files) if len(langs) == 1 else 1)
    read, rows = [], []
    check_pairs(files, pairs if files else ())
    for path, pair in zip(files, pairs, strict=False):
        read.append(each := read_dictionary(path, langs=pair))
        rows.append(
            {"path": Path(path).name, "langs": list(each.langs), "entries": len(each.source)}
        )
        for lang, side in zip(each.langs, (each.source, each.target), strict=True):
            words[lang] |= dict.fromkeys(side)
    return read, {lang: list(known) for lang, known in words.items()}, rows
