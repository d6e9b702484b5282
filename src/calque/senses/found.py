"""The senses of a word in a text, and which of them each occurrence has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.corpora.languages import language_of, name_and_path
from calque.errors import InputError, SettingError

if TYPE_CHECKING:
    from calque.senses.reader import SenseReader
    from calque.text import Sentences

_BLOCK = 16_384  # lines held at a time


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
            see `ContextSenseReader`.
        out: JSON lines file to which the senses among their neighbours are appended, for reports.

    Returns:
        `word`, `model`, `trained`, and `senses`, the most frequent first: `number`, `share` of the uses of the word in the
        texts, or in training, and `nearest`: senses with `word`, `number`, `cosine` and `lang`, None where it is not known.
        With texts also `occurrences` of the word, and for each sense `chosen`, how many of them are of it, and `sentences`:
        `words`, `place` of the word, and `lang`.

    Raises:
        InputError: no model in the folder, or none with senses; or a text that cannot be read.
        SettingError: the word is not in the vocabulary, or too rare; no text to find senses in.
    """
    from calque.senses.neighbourhoods import neighbourhoods
    from calque.storage import append_lines

    files = texts_of(folder, texts, pretokenized)
    reader = _reader(folder, files, pretokenized, limit, trained, word)
    number = reader.find(word)
    found = _Found(reader, number, examples)
    for lang, path in files:
        for block in _blocks(lang, path, pretokenized, limit):
            found.look(block, progress)
    inventory, langs = reader.inventory, found.languages()
    if out is not None:
        languages = list(dict.fromkeys(lang for lang, _ in files if lang)) or _languages(Path(folder))
        finding = neighbourhoods(reader, number, langs=langs, languages=languages)
        append_lines(out, [finding.to_json() + "\n"])
    return {
        "word": reader.words[number],
        "model": reader.name,
        "trained": trained,
        **({"occurrences": int(found.chosen.sum())} if files else {}),
        "senses": [
            {
                "number": sense,
                "share": round(float(inventory.shares[number, sense - 1]), 4),
                "nearest": _nearest(reader, number, sense, k, langs),
                **({"chosen": int(found.chosen[sense]), "sentences": found.sentences[sense]} if files else {}),
            }
            for sense in range(1, int(inventory.n_senses[number]) + 1)
        ],
    }


def write_senses(
    folder: str | Path,
    texts: Sequence[str],
    out: str | Path,
    *,
    trained: bool = False,
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
    from calque.storage import write_lines

    files = texts_of(folder, texts, pretokenized)
    reader = _reader(folder, files, pretokenized, limit, trained)
    done = {"lines": 0, "words": 0, "known": 0}

    def lines() -> Iterator[str]:
        for lang, path in files:
            for block in _blocks(lang, path, pretokenized, limit):
                chosen, start = reader.select(block, progress=progress), 0
                for length in block.lengths().tolist():
                    yield " ".join(str(n) if n else "-" for n in chosen[start : start + length].tolist()) + "\n"
                    start += length
                done["lines"] += len(block)
                done["words"] += len(chosen)
                done["known"] += int((chosen > 0).sum())

    write_lines(out, lines())
    return done


def _reader(
    folder: str | Path,
    files: Sequence[tuple[str, str]],
    pretokenized: bool,
    limit: int | None,
    trained: bool,
    word: str = "",
) -> SenseReader:
    """Open the senses that a model was trained with, or find those of some texts."""
    from calque.encoders import load_encoder
    from calque.senses.reader import ContextSenseReader, open_contexts, open_sense_reader

    if trained:
        return open_sense_reader(folder)
    if not files:
        raise SettingError(
            "senses are found in a text: add --text FILE; or --trained for those that the model was trained with"
        )
    encoder = load_encoder(str(folder))

    def texts() -> Iterator[Sentences]:
        return (block for lang, path in files for block in _blocks(lang, path, pretokenized, limit))

    return ContextSenseReader(open_contexts(encoder), encoder.name, texts, word=word)


def texts_of(folder: str | Path, texts: Sequence[str], pretokenized: bool) -> list[tuple[str, str]]:
    """Languages and files. Where nothing says a text's language, it is that of the model, if that has learnt one only; words
    that stand between spaces need none.

    Raises:
        SettingError: the language of a text is not known.
    """
    trained = _languages(Path(folder))
    files = []
    for text in texts:
        lang, path = name_and_path(text)
        lang = lang or language_of(path) or (trained[0] if len(trained) == 1 else "")
        if not path:
            raise SettingError(f"{text}: no file behind the language, expected {lang}=FILE")
        if not lang and not pretokenized:
            raise SettingError(f"{text}: which language is it in? Say it before the name, as in de={text}")
        files.append((lang, path))
    return files


def _languages(folder: Path) -> list[str]:
    """That the model was trained on, as far as its record says so."""
    try:
        return list(json.loads((folder / "calque-run.json").read_text(encoding="utf-8"))["languages"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _blocks(lang: str, path: str, pretokenized: bool, limit: int | None) -> Iterator[Sentences]:
    from calque.corpora.plain import stream_sentences

    if Path(path).is_dir():
        raise InputError("is a folder, expected a text", path=path)
    return stream_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit, block=_BLOCK)


class _Found:
    """Where a word's senses are meant, and in which language words are used."""

    def __init__(self, reader: SenseReader, word: int, examples: int):
        self.chosen = np.zeros(int(reader.inventory.n_senses[word]) + 1, dtype=np.int64)
        self.sentences: list[list[dict[str, Any]]] = [[] for _ in self.chosen]
        self._reader, self._word, self._examples = reader, word, examples
        self._uses: dict[str, np.ndarray] = {}

    def look(self, block: Sentences, progress: bool) -> None:
        """Read a part of a text."""
        from calque.encoders.split import number_words

        types, place, offsets = number_words(block)
        numbers = self._reader.numbers(types)
        words = numbers[place] if len(types) else place
        if block.lang:
            uses = self._reader.uses(block)
            self._uses[block.lang] = self._uses.get(block.lang, 0) + uses
        rows = np.flatnonzero(words == self._word)
        needed = np.unique(np.searchsorted(offsets, rows, side="right") - 1)
        part = block.take(needed)
        chosen, first = self._reader.select(part, progress=progress), 0
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

    def languages(self) -> np.ndarray | None:
        """Of all words, as far as the texts tell."""
        from calque.senses.reader import languages_of

        return languages_of(self._uses)


def _nearest(reader: SenseReader, word: int, sense: int, k: int, langs: np.ndarray | None) -> list[dict[str, Any]]:
    several = [] if langs is None else sorted({lang for lang in langs.tolist() if lang})
    among = [langs == lang for lang in several] if len(several) > 1 else [None]  # type: ignore[operator]
    return [
        {"word": reader.words[near.word], "number": near.number, "cosine": round(near.cosine, 4),
         "lang": None if langs is None else langs[near.word]}
        for part in among
        for near in reader.nearest(word, sense, k, part)
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
    if "occurrences" not in found:
        lines += ["", "for sentences with each sense: --text FILE"]
    return "\n".join(lines)


def _marked(about: Mapping[str, Any]) -> str:
    """A sentence with its word in brackets; of a long one the part around it."""
    place, words = about["place"], list(about["words"])
    first, last = max(0, place - 8), place + 9
    shown = [f"[{word}]" if number == place else word for number, word in enumerate(words)]
    return " ".join([*(["…"] if first else []), *shown[first:last], *(["…"] if last < len(words) else [])])
