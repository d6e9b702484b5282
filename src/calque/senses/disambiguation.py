"""Word sense disambiguation by the nearest sense vector (Multi-sense, §4.1; Peters et al. 2018, §5.3), and its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.corpora.languages import language_and_path
from calque.corpora.lines import Flaw, find_packed, read_lines, unpacked_name
from calque.corpora.tmx import read_elements
from calque.encoders.base import require
from calque.errors import InputError, SettingError
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import f1, measure
from calque.tasks.datasets import spread_over
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_WHAT = "the .data.xml of an annotated corpus"


@dataclass(frozen=True)
class SenseText:
    """Sentences some of whose words are annotated with what they mean there.

    Attributes:
        sentences: the words; what the file joins to one word (`New_York`) is one.
        sentence, word: int64 `[n_instances]`, where each annotated word stands.
        lemmas, pos, ids: strings of each annotated word, `[n_instances]`; pos is NOUN, VERB, ADJ or ADV.
        keys: the right senses of each, WordNet sense keys; empty where no key file was given.
        path: the file.
    """

    sentences: Sentences
    sentence: np.ndarray
    word: np.ndarray
    lemmas: tuple[str, ...]
    pos: tuple[str, ...]
    ids: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    path: str | None = None

    def __len__(self) -> int:
        """Number of annotated words."""
        return len(self.ids)

    def take(self, rows: np.ndarray) -> SenseText:
        """Some of the sentences, by their numbers, each once."""
        number = np.full(len(self.sentences), -1, dtype=np.int64)
        number[rows] = np.arange(len(rows))
        sentence = number[self.sentence]
        order = np.argsort(sentence, kind="stable")[int((sentence < 0).sum()) :]
        names = ("lemmas", "pos", "ids", *(("keys",) if self.keys else ()))
        strings = {name: tuple(getattr(self, name)[k] for k in order) for name in names}
        return replace(
            self, sentences=self.sentences.take(rows), sentence=sentence[order], word=self.word[order], **strings
        )


class Disambiguation(Task):
    """Says in which sense a word is used.

    The vector of a sense is the mean over its occurrences in the training text, of the vectors as the encoder gives them.
    A test word takes the nearest one by cosine among the senses that its lemma and part of speech have there. A word whose
    lemma never occurs there, or that the encoder has no vector for, takes the sense that `first_sense` says, else it is
    left without an answer. F1 is that of the unified evaluation framework (Raganato et al. 2017): precision over the words
    answered, recall over all.

    Occurrences without a vector (beyond the encoder's length limit, or nothing to its tokenizer) count in no mean, and a
    sense that has no other is never the answer; `settings` says how many there are.

    Args:
        train: text with senses.
        tests: texts to test on, by name.
        first_sense: the first sense in WordNet of a lemma and part of speech, "lemma%NOUN" → key, see `first_senses`;
            without it such words have no answer.
        bootstrap: samples of the interval.
        seed: for the record.
    """

    def __init__(
        self, train: SenseText, tests: Mapping[str, SenseText], *, first_sense: Mapping[str, str] | None = None,
        bootstrap: int = 1000, seed: int = 0,
    ):  # fmt: skip
        for name, text in {"train": train, **tests}.items():
            if not len(text):
                raise SettingError(f"{text.path or name}: not one word is annotated with a sense, so there is nothing to "
                                   f"{'learn' if text is train else 'measure'}")  # fmt: skip
            if not text.keys:
                raise SettingError(
                    f"{text.path or name}: no key file beside it, so the correct senses are not known: "
                    "expected X.gold.key.txt beside X.data.xml"
                )
        if not tests:
            raise SettingError("no text to test on")
        self.train, self.tests, self.first = train, dict(tests), dict(first_sense or {})
        self.bootstrap, self.seed = bootstrap, seed

    @classmethod
    def from_files(cls, inputs: Inputs) -> list[Task]:  # type: ignore[override]
        """One task of all test texts.

        Args:
            inputs: XML files of the unified evaluation framework, with their key files beside them, or data sets; the
                language is English where neither the name nor `de=FILE` says another.
        """
        if not inputs.train:
            raise SettingError("wsd needs text with senses: --train semcor.data.xml")

        def read(file: str, most: int | None) -> SenseText:
            lang, path = language_and_path(file, "en")
            text = read_senses(path, lang=lang)
            chosen = spread_over(len(text.sentences), most)
            used = "" if chosen is None else f", of which {len(chosen):,} are used"
            inputs.say(f"{path}: {len(text):,} sense-annotated words in {len(text.sentences):,} sentences{used}")
            return text if chosen is None else text.take(chosen)

        train = inputs.only("train")
        learnt, texts = read(train, inputs.words.limit), {}
        for file in inputs.test:
            name = Path(file).name
            texts[file if name in texts else name] = read(file, inputs.test_limit)
        first = None if inputs.first_senses is None else first_senses(inputs.first_senses)
        task = cls(learnt, texts, first_sense=first)
        task.notes = {"train": [Path(train).name]}
        return [task]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        for score in scores:
            about = score.settings
            train = about["train"][0]
            missing = f", {n:,} without a vector" if (n := about["words_without_vector"]) else ""
            yield (
                f"{score.data}: {about['answered']:,} of {score.n:,} words answered, {about['unseen_lemmas']:,} with a lemma "
                f"missing from {train}{missing}; most frequent sense {100 * about['frequent']:.1f}, random guess "
                f"{100 * about['chance']:.1f}"
            )

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the F1 of each test text.

        `settings` has the F1 of answers that know the lemma and nothing of the sentence: its most frequent sense in the training
        text (`frequent`), the mean over drawing any of its senses there (`chance`); how many words had a lemma that the training
        text has not, how many words of either text had no vector, and how many senses have none.
        """
        require(encoder, "measured", self.rows)
        learnt, has_vector = _vectors(encoder, self.train, progress)
        rows = np.repeat(
            np.arange(len(self.train)), [len(keys) for keys in self.train.keys]
        )  # a word counts for each of its keys
        names, codes = np.unique([key for keys in self.train.keys for key in keys], return_inverse=True)
        keys, counts, seen = (
            names.tolist(),
            np.bincount(codes),
            np.bincount(codes[has_vector[rows]], minlength=len(names)),
        )
        if not seen.any():
            raise SettingError(
                f"{encoder.name} has no vector for any annotated word of {self.train.path or 'the text'}"
            )
        means = np.zeros((len(names), learnt.shape[1]))
        np.add.at(means, codes[has_vector[rows]], learnt[rows[has_vector[rows]]])
        means = (means / np.maximum(seen, 1)[:, None]).astype(np.float32)
        directions = unit_rows(means)  # the nearest by cosine, whatever the length of the test word's vector
        of_lemma: dict[str, list[int]] = {}  # senses of each lemma and part of speech in the training text
        for row, code in sorted(set(zip(rows.tolist(), codes.tolist(), strict=True)), key=lambda item: item[1]):
            several = of_lemma.setdefault(_entry(self.train, row), [])
            several += [] if code in several else [code]
        scores = []
        for name, text in self.tests.items():
            vectors, covered = _vectors(encoder, text, progress)
            sums, blind = np.zeros((len(text.sentences), 3)), np.zeros((2, 3))
            for i, right in enumerate(text.keys):
                entry = _entry(text, i)
                several, answer = of_lemma.get(entry, []), self.first.get(entry)
                possible = [k for k in several if seen[k]]
                if covered[i] and possible:
                    answer = keys[possible[int(np.argmax(directions[possible] @ vectors[i]))]]
                sums[text.sentence[i]] += answer in right, answer is not None, 1
                hits = [keys[k] in right for k in several] or [
                    self.first[entry] in right for _ in [0] if entry in self.first
                ]
                best = hits[int(np.argmax(counts[several]))] if several else sum(hits)
                blind += [[best, bool(hits), 1], [sum(hits) / max(1, len(hits)), bool(hits), 1]]
            frequent, chance = f1(blind)
            about = {
                "restrict": "lemma", "first_senses": len(self.first),
                "senses": len(keys), "senses_without_vector": int((seen == 0).sum()),
                "words_without_vector": int((~covered).sum()),
                "training_words_without_vector": int((~has_vector).sum()),
                "answered": int(sums[:, 1].sum()), "frequent": round(float(frequent), 5), "chance": round(float(chance), 5),
                "unseen_lemmas": sum(_entry(text, i) not in of_lemma for i in range(len(text))),
                "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            }  # fmt: skip
            measured, langs = measure(sums, f1, samples=self.bootstrap), (text.sentences.lang,)
            scores.append(Score("wsd", name, langs, "f1", *measured.ends, len(text), self.seed, about, **measured.kept))
        return scores


def _vectors(encoder: Encoder, text: SenseText, progress: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the annotated words, float32 `[n_instances, dim]`, and the mask of those that have one."""
    embeddings = encoder.encode(text.sentences, progress=progress)
    places = embeddings.rows(text.sentence, text.word)
    rows = np.asarray(embeddings.data[places], dtype=np.float32)
    return rows, np.ones(len(rows), bool) if embeddings.covered is None else np.asarray(embeddings.covered)[places]


def first_senses(path: str) -> dict[str, str]:
    """Return the first sense of every lemma and part of speech, from WordNet's `index.sense` (sense_key offset number count)."""
    names = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
    keys: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split() if isinstance(line, str) else []
        if len(fields) != 4 or "%" not in fields[0]:
            raise InputError("no line of WordNet's index.sense (sense_key offset number count)", path=path, line=number)
        lemma, _, rest = fields[0].partition("%")
        if fields[2] == "1" and rest[:1] in names:
            keys[f"{lemma}%{names[rest[0]]}"] = fields[0]
    return keys


def _entry(text: SenseText, i: int) -> str:
    return f"{text.lemmas[i].lower()}%{text.pos[i]}"


# -- files ---------------------------------------------------------------------------------------------------------------
def read_senses(path: str | PathLike[str], *, keys: str | PathLike[str] | None = None, lang: str = "en") -> SenseText:
    """Read the format of Raganato et al. 2017 (http://lcl.uniroma1.it/wsdeval): `<sentence>`, of words `<wf>` and
    annotated words `<instance id lemma pos>`; and beside it a file of keys, `id key key …` a line.

    Several words that the file joins to one (`New_York`) stay one; so does what has spaces, which become `_`. Files may
    be packed (gzip, zstd, xz, bzip2), and are streamed.

    Args:
        path: the XML.
        keys: the right senses. Where it is None and the path is X.data.xml, X.gold.key.txt is taken if it exists. It
            may have keys of other texts too.

    Raises:
        InputError: with its line: XML that is not well formed or is no such document, an instance without its
            attributes, words without text, an instance that the file of keys lacks, a line of keys
            that is none. Also if there is no sentence.
    """
    words, places, lines = [], [], []
    instances: dict[str, tuple[str, str]] = {}  # lemma and part of speech by id
    for line, element in read_elements(path, "corpus", "sentence", _WHAT):
        forms = []
        for part in element.iter():
            if part.tag not in ("wf", "instance"):
                continue
            forms.append("_".join("".join(part.itertext()).split()))
            if not forms[-1]:
                raise InputError(f"a <{part.tag}> without text, expected a word", path=path, line=line)
            if part.tag == "instance":
                name, lemma, pos = (part.get(key) for key in ("id", "lemma", "pos"))
                if not name or not lemma or not pos:
                    raise InputError("an <instance> without id, lemma or pos, expected all three", path=path, line=line)
                if name in instances:
                    raise InputError(
                        f"the id {name[:40]!r} for the second time, expected each once", path=path, line=line
                    )
                instances[name] = lemma, pos
                places.append((len(words), len(forms) - 1))
                lines.append(line)
        words.append(forms)
    if not words:
        raise InputError("no sentence could be read: the document has none", path=path)
    senses: tuple[tuple[str, ...], ...] = ()
    beside = _beside(path) if keys is None else keys
    if beside is not None:
        keys_of = _read_keys(beside)
        for name, line in zip(instances, lines, strict=True):
            if name not in keys_of:
                fact = f"the instance {name!r} has no key in {fspath(beside)}, expected one; are they of this text?"
                raise InputError(fact, path=path, line=line)
        senses = tuple(keys_of[name] for name in instances)
    lemmas, pos = zip(*instances.values(), strict=True) if instances else ((), ())
    at = np.array(places, np.int64).reshape(-1, 2)
    return SenseText(Sentences.of(words, lang), at[:, 0], at[:, 1], lemmas, pos, tuple(instances), senses, fspath(path))


def _beside(path: str | PathLike[str]) -> Path | None:
    name = unpacked_name(path)
    if not name.endswith(_DATA):
        return None
    return find_packed(Path(path).with_name(name.removesuffix(_DATA) + _KEYS))


def _read_keys(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            raise InputError(line.fact, path=path, line=number)
        name, *senses = line.split() or [""]
        if name and (not senses or name in keys):
            wrong = f"{name!r:.40} without a key" if not senses else f"{name!r:.40} for the second time"
            raise InputError(f"{wrong}, expected the keys of each instance in one line", path=path, line=number)
        if name:
            keys[name] = tuple(senses)
    return keys
