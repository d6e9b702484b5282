"""Word sense disambiguation by the nearest sense vector (Multi-sense, §4.1; Peters et al. 2018,
§5.3), and its data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.corpora.languages import language_and_path
from calque.corpora.spread import spread_over
from calque.corpora.tmx import read_elements
from calque.encoders.base import require
from calque.errors import InputError, SettingError
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import f1, measure
from calque.tasks.reporting import DISAMBIGUATION
from calque.text import Sentences
from calque.text_files import find_packed, read_lines, readable_lines, unpacked_name

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

_DATA, _KEYS = ".data.xml", ".gold.key.txt"  # ends of file names
_CONTENT = "the .data.xml of an annotated corpus"


@dataclass(frozen=True)
class SenseText:
    """Sentences in which some words are annotated with senses.

    Attributes:
        sentences: the text, in which a multiword expression (`New_York`) is one word.
        sentence, word: sentence index and word index of each instance, int64 `[n_instances]`.
        lemmas, pos, ids: lemma, part of speech (NOUN, VERB, ADJ or ADV) and id of each instance.
        keys: distinct WordNet sense keys of each instance, all of which count as correct; empty if
            there is no key file.
        path: path of the XML file.
    """

    sentences: Sentences
    sentence: np.ndarray
    word: np.ndarray
    lemmas: tuple[str, ...]
    pos: tuple[str, ...]
    ids: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    path: str | None = None

    def __post_init__(self) -> None:
        # A key that is listed twice counts once.
        distinct = tuple(tuple(dict.fromkeys(keys)) for keys in self.keys)
        object.__setattr__(self, "keys", distinct)

    def __len__(self) -> int:
        """Number of instances."""
        return len(self.ids)

    def take(self, rows: np.ndarray) -> SenseText:
        """Return the sentences at the given distinct indices, with their instances."""
        index = np.full(len(self.sentences), -1, dtype=np.int64)
        index[rows] = np.arange(len(rows))
        sentence = index[self.sentence]  # −1 for instances that are left out
        order = np.argsort(sentence, kind="stable")[int((sentence < 0).sum()) :]
        columns = {}
        for name in ("lemmas", "pos", "ids", "keys"):
            values = getattr(self, name)  # there may be no keys
            columns[name] = tuple(values[k] for k in order) if values else ()
        return replace(
            self,
            sentences=self.sentences.take(rows),
            sentence=sentence[order],
            word=self.word[order],
            **columns,
        )


class Disambiguation(Task):
    """Task that predicts the sense of a word in context.

    The vector of a sense is the mean vector of its training occurrences. Among the training senses
    of the word's lemma and part of speech, the sense with the largest cosine to the word's vector
    is predicted. If there is no such sense, or the word has no vector, the prediction is the entry
    in `first_sense`, if there is one. F1 is defined as in Raganato et al. 2017, with precision over
    the predictions and recall over all instances.

    Occurrences without a vector (beyond the length limit, or dropped by the tokenizer) are excluded
    from means, and senses without a vector are never predicted. The `settings` of each score
    contain the numbers of such occurrences and senses.

    Args:
        train: training text.
        tests: test texts, keyed by name.
        first_sense: key of the first WordNet sense, by lemma and part of speech (such as
            "bank%NOUN"), see `first_senses`.
        bootstrap: number of bootstrap samples.
        seed: seed that is recorded in the scores but does not affect them.
    """

    reporting = DISAMBIGUATION

    def __init__(
        self,
        train: SenseText,
        tests: Mapping[str, SenseText],
        *,
        first_sense: Mapping[str, str] | None = None,
        bootstrap: int = 1000,
        seed: int = 0,
    ):
        for name, text in {"train": train, **tests}.items():
            where = text.path or name
            if not len(text):
                use = "train on" if text is train else "measure"
                raise SettingError(
                    f"{where}: no word is annotated with a sense, so there is nothing to {use}"
                )
            if not text.keys:
                raise SettingError(
                    f"{where}: no key file; expected X.gold.key.txt in the folder of X.data.xml"
                )
        if not tests:
            raise SettingError("no test text was given; give at least one")
        self.train, self.tests, self.first = train, dict(tests), dict(first_sense or {})
        self.bootstrap, self.seed = bootstrap, seed

    @classmethod
    def from_files(cls, inputs: Inputs) -> list[Task]:  # type: ignore[override]
        """Return one task for all test texts, which are XML files with key files in the same
        folder. A text is in English, unless its file is given as `de=FILE` or the file name
        contains another language."""
        if not inputs.train:
            raise SettingError(
                "wsd needs training text with annotated senses, e.g. --train semcor.data.xml"
            )

        def read(file: str, limit: int | None) -> SenseText:
            lang, path = language_and_path(file, "en")
            text = read_senses(path, lang=lang)
            fact = (
                f"{path}: {len(text):,} sense-annotated words in {len(text.sentences):,} sentences"
            )
            chosen = spread_over(len(text.sentences), limit)
            if chosen is None:  # there are no more sentences than the limit
                inputs.say(fact)
                return text
            inputs.say(f"{fact}, of which {len(chosen):,} are used")
            return text.take(chosen)

        train = inputs.only("train")
        train_text = read(train, inputs.words.limit)
        tests: dict[str, SenseText] = {}
        for file in inputs.test:
            name = Path(file).name
            if name in tests:  # in another folder
                name = file
            tests[name] = read(file, inputs.test_limit)
        first = None if inputs.first_senses is None else first_senses(inputs.first_senses)
        task = cls(train_text, tests, first_sense=first)
        task.notes = {"train": [Path(train).name]}
        return [task]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        for score in scores:
            about = score.settings
            train = about["train"][0]
            missing = ""
            if about["words_without_vector"]:
                missing = f", {about['words_without_vector']:,} without a vector"
            yield (
                f"{score.data}: {about['answered']:,} of {score.n:,} words answered, "
                f"{about['unseen_lemmas']:,} with a lemma missing from {train}{missing}; most "
                f"frequent sense {100 * about['frequent']:.1f}, random guess "
                f"{100 * about['chance']:.1f}"
            )

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the F1 on each test text.

        The `settings` of a score also contain the F1 of the most frequent training sense of each
        lemma (`frequent`), the expected F1 of a random sense (`chance`), and the numbers of words
        with unseen lemmas and of words and senses without vectors.
        """
        require(encoder, "measured", self.rows)
        senses = _TrainedSenses.of(encoder, self.train, progress)
        return [
            self._score(encoder, senses, name, text, progress) for name, text in self.tests.items()
        ]

    def _score(
        self, encoder: Encoder, senses: _TrainedSenses, name: str, text: SenseText, progress: bool
    ) -> Score:
        """Return the F1 on one test text."""
        vectors, covered = _vectors(encoder, text, progress)
        # For each sentence: numbers of correct predictions, of predictions, and of instances. The
        # baselines have the same three sums.
        sums = np.zeros((len(text.sentences), 3))
        frequent, chance = np.zeros(3), np.zeros(3)
        unseen = 0
        for i, gold in enumerate(text.keys):
            entry = _entry(text, i)
            answer = self.first.get(entry)
            candidates = senses.of_entry.get(entry, [])
            is_correct, frequent_is_correct = [], False
            if candidates:
                is_correct = [senses.keys[k] in gold for k in candidates]
                frequent_is_correct = is_correct[int(np.argmax(senses.counts[candidates]))]
            elif answer is not None:
                is_correct = [answer in gold]
                frequent_is_correct = answer in gold
            answered = bool(is_correct)
            frequent += [frequent_is_correct, answered, 1]
            chance += [sum(is_correct) / max(1, len(is_correct)), answered, 1]
            unseen += not candidates
            # Without a vector of the word or of a candidate, the answer is the first sense.
            possible = [k for k in candidates if senses.has_vector[k]]
            if covered[i] and possible:
                cosines = senses.directions[possible] @ vectors[i]  # up to the word's norm
                answer = senses.keys[possible[int(np.argmax(cosines))]]
            sums[text.sentence[i]] += [answer in gold, answer is not None, 1]
        frequent_f1, chance_f1 = f1(np.stack([frequent, chance])).tolist()
        about = {
            "restrict": "lemma",
            "first_senses": len(self.first),
            "training_words": len(self.train),
            "senses": len(senses.keys),
            "senses_without_vector": int((~senses.has_vector).sum()),
            "words_without_vector": int((~covered).sum()),
            "training_words_without_vector": senses.words_without_vector,
            "answered": int(sums[:, 1].sum()),
            "frequent": round(frequent_f1, 5),
            "chance": round(chance_f1, 5),
            "unseen_lemmas": unseen,
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
        }
        measured = measure(sums, f1, samples=self.bootstrap)
        return Score(
            "wsd",
            name,
            (text.sentences.lang,),
            "f1",
            *measured.ends,
            len(text),
            self.seed,
            about,
            **measured.kept,
        )


@dataclass(frozen=True)
class _TrainedSenses:
    """Senses of the training text.

    Attributes:
        keys: sense keys, sorted.
        counts: number of training occurrences of each sense, int64 `[n_senses]`.
        directions: L2-normalised mean vector of each sense, float32 `[n_senses, dim]`.
        has_vector: mask of the senses with a vector, bool `[n_senses]`.
        of_entry: ascending indices of the senses of each lemma and part of speech.
        words_without_vector: number of training words without a vector.
    """

    keys: list[str]
    counts: np.ndarray
    directions: np.ndarray
    has_vector: np.ndarray
    of_entry: dict[str, list[int]]
    words_without_vector: int

    @classmethod
    def of(cls, encoder: Encoder, text: SenseText, progress: bool) -> _TrainedSenses:
        """Average the vectors of each sense of the training text."""
        vectors, covered = _vectors(encoder, text, progress)
        # An instance may have several keys: `rows` is the instance and `codes` the sense of each.
        rows = np.repeat(np.arange(len(text)), [len(keys) for keys in text.keys])
        names, codes = np.unique(list(chain.from_iterable(text.keys)), return_inverse=True)
        used = covered[rows]
        n_vectors = np.bincount(codes[used], minlength=len(names))
        if not n_vectors.any():
            raise SettingError(
                f"{encoder.name} has no vector for any annotated word of {text.path or 'the text'}"
            )
        means = np.zeros((len(names), vectors.shape[1]))
        np.add.at(means, codes[used], vectors[rows[used]])
        means /= np.maximum(n_vectors, 1)[:, None]
        of_entry: dict[str, set[int]] = {}
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            of_entry.setdefault(_entry(text, row), set()).add(code)
        return cls(
            keys=names.tolist(),
            counts=np.bincount(codes),
            directions=unit_rows(means.astype(np.float32)),
            has_vector=n_vectors > 0,
            of_entry={entry: sorted(senses) for entry, senses in of_entry.items()},
            words_without_vector=int((~covered).sum()),
        )


def _vectors(encoder: Encoder, text: SenseText, progress: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the instances, float32 `[n_instances, dim]`, and the mask of instances
    that have a vector.
    """
    embeddings = encoder.encode(text.sentences, progress=progress)
    places = embeddings.rows(text.sentence, text.word)
    vectors = np.asarray(embeddings.data[places], dtype=np.float32)
    if embeddings.covered is None:  # all words have a vector
        return vectors, np.ones(len(vectors), dtype=bool)
    return vectors, np.asarray(embeddings.covered)[places]


def first_senses(path: str) -> dict[str, str]:
    """Read the first sense of each lemma and part of speech from WordNet's `index.sense`."""
    # the first digit of a key after the lemma; 5 stands for satellite adjectives
    names = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
    keys: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split() if isinstance(line, str) else []
        if len(fields) != 4 or "%" not in fields[0]:
            raise InputError(
                "must be 'key offset number count', as in WordNet's index.sense",
                path=path,
                line=number,
            )
        lemma, _, rest = fields[0].partition("%")
        if fields[2] == "1" and rest[:1] in names:
            keys[f"{lemma}%{names[rest[0]]}"] = fields[0]
    return keys


def _entry(text: SenseText, i: int) -> str:
    """Return the lemma and part of speech of an instance, such as "bank%NOUN"."""
    return f"{text.lemmas[i].lower()}%{text.pos[i]}"


# -- files -----------------------------------------------------------------------------------------
def read_senses(
    path: str | PathLike[str], *, keys: str | PathLike[str] | None = None, lang: str = "en"
) -> SenseText:
    """Read the XML format of Raganato et al. 2017 (http://lcl.uniroma1.it/wsdeval): `<sentence>`
    elements with words `<wf>` and annotated words `<instance id lemma pos>`. Spaces in a word
    become `_`. Files may be compressed (gzip, zstd, xz, bzip2).

    Args:
        path: the XML file.
        keys: key file with lines `id key key …`, also for other texts; default: X.gold.key.txt next
            to X.data.xml, if it exists.

    Raises:
        InputError: the XML is invalid or contains no sentence; an instance lacks attributes or a
            key, or repeats an id; a word has no text; or a line of the key file is invalid.
    """
    sentences: list[list[str]] = []
    places: list[tuple[int, int]] = []  # sentence and word of each instance
    lines: list[int] = []  # line of each instance
    instances: dict[str, tuple[str, str]] = {}  # lemma and part of speech of each instance id
    for line, element in read_elements(path, "corpus", "sentence", _CONTENT):
        words: list[str] = []
        for part in element.iter():
            if part.tag not in ("wf", "instance"):
                continue
            words.append("_".join("".join(part.itertext()).split()))
            if not words[-1]:
                raise InputError(
                    f"a <{part.tag}> has no text, expected a word", path=path, line=line
                )
            if part.tag == "instance":
                _add_instance(instances, part, path, line)
                places.append((len(sentences), len(words) - 1))
                lines.append(line)
        sentences.append(words)
    if not sentences:
        raise InputError("the document has no <sentence>", path=path)
    if keys is None:
        keys = _find_keys(path)
    senses: list[tuple[str, ...]] = []
    if keys is not None:
        keys_of = _read_keys(keys)
        for name, line in zip(instances, lines, strict=True):
            if name not in keys_of:
                raise InputError(
                    f"instance {name!r} has no key in {fspath(keys)}; do the keys belong to this "
                    "text?",
                    path=path,
                    line=line,
                )
            senses.append(keys_of[name])
    columns = np.array(places, np.int64).reshape(-1, 2)
    return SenseText(
        Sentences.of(sentences, lang),
        sentence=columns[:, 0],
        word=columns[:, 1],
        lemmas=tuple(lemma for lemma, _ in instances.values()),
        pos=tuple(pos for _, pos in instances.values()),
        ids=tuple(instances),
        keys=tuple(senses),
        path=fspath(path),
    )


def _add_instance(
    instances: dict[str, tuple[str, str]], element: Element, path: str | PathLike[str], line: int
) -> None:
    """Add the lemma and part of speech of an `<instance>`, keyed by its id."""
    name, lemma, pos = element.get("id"), element.get("lemma"), element.get("pos")
    if not name or not lemma or not pos:
        raise InputError(
            "an <instance> lacks id, lemma or pos, expected all three", path=path, line=line
        )
    if name in instances:
        fact = f"instance ids must be unique, but {name[:40]!r} occurs a second time"
        raise InputError(fact, path=path, line=line)
    instances[name] = lemma, pos


def _find_keys(path: str | PathLike[str]) -> Path | None:
    """Return X.gold.key.txt next to X.data.xml, if it exists."""
    name = unpacked_name(path)
    if not name.endswith(_DATA):
        return None
    return find_packed(Path(path).with_name(name.removesuffix(_DATA) + _KEYS))


def _read_keys(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Read the sense keys of each instance id."""
    keys: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(readable_lines(path), 1):
        fields = line.split()
        if not fields:
            continue
        name, senses = fields[0], tuple(fields[1:])
        fact = None
        if not senses:
            fact = "has no key"
        elif name in keys:
            fact = "occurs a second time"
        if fact is not None:
            raise InputError(
                f"{name!r:.40} {fact}; expected one line with all keys for each instance",
                path=path,
                line=number,
            )
        keys[name] = senses
    return keys
