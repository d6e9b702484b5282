"""The senses of a word, and which of them each word of a text has."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calque.analyses.questions import Finding
from calque.corpora.languages import language_of, name_and_path
from calque.corpora.plain import stream_sentences
from calque.encoders import load_encoder
from calque.encoders.split import number_words
from calque.errors import InputError, SettingError
from calque.senses.reader import ContextSenses, Inventory, languages_of, open_contexts, trained_senses
from calque.storage import append_lines, write_lines
from calque.tasks.base import Score
from calque.text import Sentences

_BLOCK = 16_384  # lines held at a time
_NEAR = 30  # neighbours of each sense in a plot


class Texts:
    """Files, one sentence a line, with their languages.

    Where nothing says a text's language, it is that of the model, if that has learnt one only; words that stand between spaces
    need none.

    Args:
        texts: as a user names them, `de=FILE` or FILE.
        trained: languages that the model was trained on.
        pretokenized, limit: see `stream_sentences`.

    Raises:
        SettingError: the language of a text is not known.
    """

    def __init__(self, texts: Sequence[str], trained: Sequence[str], pretokenized: bool, limit: int | None):
        self.files: list[tuple[str, str]] = []
        self._pretokenized, self._limit = pretokenized, limit
        for text in texts:
            lang, path = name_and_path(text)
            lang = lang or language_of(path) or (trained[0] if len(trained) == 1 else "")
            if not path:
                raise SettingError(f"{text}: no file behind the language, expected {lang}=FILE")
            if not lang and not pretokenized:
                raise SettingError(f"{text}: which language is it in? Say it before the name, as in de={text}")
            self.files.append((lang, path))

    def __iter__(self) -> Iterator[Sentences]:
        """Read the texts a block at a time."""
        for lang, path in self.files:
            if Path(path).is_dir():
                raise InputError("is a folder, expected a text", path=path)
            yield from stream_sentences(
                path, lang=lang, pretokenized=self._pretokenized, limit=self._limit, block=_BLOCK
            )


def senses(
    folder: str | Path,
    word: str,
    texts: Sequence[str] = (),
    *,
    k: int = 10,
    examples: int = 3,
    trained: bool = False,
    pretokenized: bool = False,
    limit: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Return the senses of a word: how frequent they are, what lies near to them, and sentences with each.

    Arguments not listed here are the options of `calque senses`.

    Args:
        texts: files, one sentence a line, `de=FILE` if the name does not say the language. The senses are found in them,
            see `ContextSenses`; those of a training get the languages of words from them.
        out: JSON lines file to which the senses among their neighbours are appended, for reports.

    Returns:
        `word`, `model`, `trained`, and `senses`, the most frequent first: `number`, `share` of the uses of the word in the
        texts, or in training, and `nearest`: senses with `word`, `number`, `cosine` and `lang`, None where it is not known.
        Of senses found in texts also `occurrences` of the word, and for each sense `chosen`, how many of them are of it, and
        `sentences`: `words`, `place` of the word, and `lang`.

    Raises:
        InputError: no model in the folder, or none with senses; or a text that cannot be read.
        SettingError: the word is not in the vocabulary, or too rare; no text to find senses in.
    """
    languages = _languages(Path(folder))
    read = Texts(texts, languages, pretokenized, limit)
    inventory = trained_senses(folder) if trained else _found(folder, read, word)
    number, uses = inventory.find(word), dict[str, np.ndarray]()
    of_word = _Occurrences(inventory, number, examples) if isinstance(inventory, ContextSenses) else None
    for block in read:
        if block.lang:
            uses[block.lang] = uses.get(block.lang, 0) + inventory.uses(block)
        if of_word is not None:
            of_word.look(block, progress)
    langs = languages_of(uses)
    if out is not None:
        named = list(dict.fromkeys(lang for lang, _ in read.files if lang)) or languages
        append_lines(out, [neighbourhoods(inventory, number, langs=langs, languages=named).to_json() + "\n"])
    found = [
        {
            "number": sense,
            "share": round(float(inventory.shares[number, sense - 1]), 4),
            "nearest": _nearest(inventory, number, sense, k, langs),
            **(
                {} if of_word is None else {"chosen": int(of_word.chosen[sense]), "sentences": of_word.sentences[sense]}
            ),
        }
        for sense in range(1, int(inventory.n_senses[number]) + 1)
    ]
    counted = {} if of_word is None else {"occurrences": int(of_word.chosen.sum())}
    return {"word": inventory.words[number], "model": inventory.name, "trained": trained, **counted, "senses": found}


def write_senses(
    folder: str | Path,
    texts: Sequence[str],
    out: str | Path,
    *,
    pretokenized: bool = False,
    limit: int | None = None,
    progress: bool = False,
) -> dict[str, int]:
    """Write for every line of some texts a line with the number of the sense of each word, `-` for a word that has none.

    Args:
        texts: files, one after the other in the result.

    Returns:
        how many `lines` and `words` there are, and how many words are `known`, which have a number.

    Raises:
        InputError: see `senses`.
    """
    read = Texts(texts, _languages(Path(folder)), pretokenized, limit)
    inventory = _found(folder, read)
    done = {"lines": 0, "words": 0, "known": 0}

    def lines() -> Iterator[str]:
        for block in read:
            chosen, start = inventory.select(block, progress=progress), 0
            for length in block.lengths().tolist():
                yield " ".join(str(n) if n else "-" for n in chosen[start : start + length].tolist()) + "\n"
                start += length
            done["lines"] += len(block)
            done["words"] += len(chosen)
            done["known"] += int((chosen > 0).sum())

    write_lines(out, lines())
    return done


def neighbourhoods(
    inventory: Inventory, word: int, *, k: int = _NEAR, langs: np.ndarray | None = None, languages: Sequence[str] = ()
) -> Finding:
    """Each sense of a word with those nearest to it, in the plane of the first two principal axes of all senses (Multi-sense,
    Figures 4 to 7).

    Args:
        k: neighbours of each sense.
        langs: the language of each word, as far as it is known.

    Returns:
        one finding, with an item for every point: `of`, the number of the sense whose neighbour it is, or which it is itself;
        `word`, `number`, `share`, `lang`, `cosine`, `x`, `y`.
    """
    points = []
    for number in range(1, int(inventory.n_senses[word]) + 1):
        points.append((number, word, number, 1.0))
        points += [(number, *near) for near in inventory.nearest(word, number, k)]
    places = inventory.plane(np.array([inventory.row(of, number) for _, of, number, _ in points]))
    items: list[dict[str, Any]] = [
        {
            "of": sense, "word": inventory.words[of], "number": number,
            "share": round(float(inventory.shares[of, number - 1]), 4), "lang": None if langs is None else langs[of],
            "cosine": round(cosine, 4), "x": round(float(x), 5), "y": round(float(y), 5),
        }
        for (sense, of, number, cosine), (x, y) in zip(points, places.tolist(), strict=True)
    ]  # fmt: skip
    name = inventory.words[word]
    score = Score(
        "senses", name, tuple(languages) or ("und",), "pca", math.nan, math.nan, math.nan, len(items), 0,
        {"encoder": inventory.name},
    )  # fmt: skip
    return Finding("senses", inventory.name, score, group=name, items=items)


def _found(folder: str | Path, texts: Texts, word: str = "") -> ContextSenses:
    """Find the senses of some texts."""
    if not texts.files:
        raise SettingError(
            "senses are found in a text: add --text FILE; or --trained for those that the model was trained with"
        )
    encoder = load_encoder(str(folder))
    return ContextSenses(open_contexts(encoder), encoder.name, lambda: texts, word=word)


def _languages(folder: Path) -> list[str]:
    """Return the languages that a model was trained on, as far as its record says so."""
    try:
        return list(json.loads((folder / "calque-run.json").read_text(encoding="utf-8"))["languages"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


class _Occurrences:
    """How often each sense of a word occurs, and sentences with it."""

    def __init__(self, inventory: ContextSenses, word: int, examples: int):
        self.chosen = np.zeros(int(inventory.n_senses[word]) + 1, dtype=np.int64)
        self.sentences: list[list[dict[str, Any]]] = [[] for _ in self.chosen]
        self._inventory, self._word, self._examples = inventory, word, examples

    def look(self, block: Sentences, progress: bool) -> None:
        """Read a part of a text."""
        types, place, offsets = number_words(block)
        words = self._inventory.numbers(types)[place] if len(types) else place
        rows = np.flatnonzero(words == self._word)
        needed = np.unique(np.searchsorted(offsets, rows, side="right") - 1)
        part = block.take(needed)
        chosen, first = self._inventory.select(part, progress=progress), 0
        for row, sentence in zip(needed.tolist(), part, strict=True):
            of_sentence = chosen[first : first + len(sentence)]
            for k in np.flatnonzero(words[offsets[row] : offsets[row + 1]] == self._word).tolist():
                sense = int(of_sentence[k])
                self.chosen[sense] += bool(sense)
                shown = self.sentences[sense]
                about = {"words": list(sentence.words), "place": k, "lang": block.lang or None}
                if len(shown) < self._examples and all(other["words"] != about["words"] for other in shown):
                    shown.append(about)
            first += len(sentence)


def _nearest(inventory: Inventory, word: int, sense: int, k: int, langs: np.ndarray | None) -> list[dict[str, Any]]:
    several = [] if langs is None else sorted({lang for lang in langs.tolist() if lang})
    among = [langs == lang for lang in several] if len(several) > 1 else [None]  # type: ignore[operator]
    return [
        {"word": inventory.words[near.word], "number": near.number, "cosine": round(near.cosine, 4),
         "lang": None if langs is None else langs[near.word]}
        for part in among
        for near in inventory.nearest(word, sense, k, part)
    ]  # fmt: skip


# -- for people --------------------------------------------------------------------------------------------------------
def table(found: Mapping[str, Any]) -> str:
    """What `senses` found."""
    several = len(found["senses"])
    lines = [f"{found['word']}: {several} sense{'s' if several > 1 else ''} ({found['model']})"]
    uses = "uses in training" if found["trained"] else "uses in a sample of the text"
    for sense in found["senses"]:
        lines += ["", f"{found['word']}_{sense['number']}  {100 * sense['share']:.1f}% of its {uses}"]
        by_lang: dict[str | None, list[str]] = {}
        for near in sense["nearest"]:
            by_lang.setdefault(near["lang"], []).append(f"{near['word']}_{near['number']} {near['cosine']:.2f}")
        for lang, words in by_lang.items():
            lines.append(f"  nearest{f' in {lang}' if lang and len(by_lang) > 1 else ''}: {', '.join(words)}")
        if "chosen" in sense:
            lines.append(f"  {sense['chosen']:,} of {found['occurrences']:,} in the text")
            lines += [f"    {_marked(about)}" for about in sense["sentences"]]
    return "\n".join(lines)


def _marked(about: Mapping[str, Any]) -> str:
    """A sentence with its word in brackets; of a long one the part around it."""
    place, words = about["place"], list(about["words"])
    first, last = max(0, place - 8), place + 9
    shown = [f"[{word}]" if number == place else word for number, word in enumerate(words)]
    return " ".join([*(["…"] if first else []), *shown[first:last], *(["…"] if last < len(words) else [])])
