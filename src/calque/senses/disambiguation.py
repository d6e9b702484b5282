"""Word sense disambiguation by the nearest sense vector (Multi-sense, §4.1; Peters et al. 2018,
§5.3), and its data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_WHAT = "the .data.xml of an annotated corpus"


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
        distinct = tuple(
            tuple(dict.fromkeys(keys)) for keys in self.keys
        )  # a key that is listed twice counts once
        object.__setattr__(self, "keys", distinct)

    def __len__(self) -> int:
        """Number of instances."""
        return len(self.ids)

    def take(self, rows: np.ndarray) -> SenseText:
        """Return the sentences at the given distinct indices, with their instances."""
        index = np.full(len(self.sentences), -1, dtype=np.int64)
        index[rows] = np.arange(len(rows))
        sentence = index[self.sentence]
        order = np.argsort(sentence, kind="stable")[int((sentence < 0).sum()) :]
        columns = {
            name: tuple(values[k] for k in order) if (values := getattr(self, name)) else ()
            for name in ("lemmas", "pos", "ids", "keys")
        }
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

        def read(file: str, most: int | None) -> SenseText:
            lang, path = language_and_path(file, "en")
            text = read_senses(path, lang=lang)
            chosen = spread_over(len(text.sentences), most)
            used = "" if chosen is None else f", of which {len(chosen):,} are used"
            inputs.say(
                f"{path}: {len(text):,} sense-annotated words in {len(text.sentences):,} "
                f"sentences{used}"
            )
            return text if chosen is None else text.take(chosen)

        train = inputs.only("train")
        source, texts = read(train, inputs.words.limit), {}
        for file in inputs.test:
            name = Path(file).name
            texts[file if name in texts else name] = read(file, inputs.test_limit)
        first = None if inputs.first_senses is None else first_senses(inputs.first_senses)
        task = cls(source, texts, first_sense=first)
        task.notes = {"train": [Path(train).name]}
        return [task]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        for score in scores:
            about = score.settings
            train = about["train"][0]
            missing = f", {n:,} without a vector" if (n := about["words_without_vector"]) else ""
            yield (
                f"{score.data}: {about['answered']:,} of {score.n:,} words answered, "
                f"{about['unseen_lemmas']:,} with a lemma "
                f"missing from {train}{missing}; most frequent sense "
                f"{100 * about['frequent']:.1f}, random guess "
                f"{100 * about['chance']:.1f}"
            )

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the F1 on each test text.

        The `settings` of a score also contain the F1 of the most frequent training sense of each
        lemma (`frequent`), the expected F1 of a random sense (`chance`), and the numbers of words
        with unseen lemmas and of words and senses without vectors.
        """
        require(encoder, "measured", self.rows)
        trained, has_vector = _vectors(encoder, self.train, progress)
        # An instance may have several keys.
        rows = np.repeat(np.arange(len(self.train)), [len(keys) for keys in self.train.keys])
        names, codes = np.unique(
            [key for keys in self.train.keys for key in keys], return_inverse=True
        )
        used = has_vector[rows]
        keys, counts, seen = (
            names.tolist(),
            np.bincount(codes),
            np.bincount(codes[used], minlength=len(names)),
        )
        if not seen.any():
            fact = (
                f"{encoder.name} has no vector for any annotated word of "
                f"{self.train.path or 'the text'}"
            )
            raise SettingError(fact)
        means = np.zeros((len(names), trained.shape[1]))
        np.add.at(means, codes[used], trained[rows[used]])
        directions = unit_rows((means / np.maximum(seen, 1)[:, None]).astype(np.float32))
        of_lemma: dict[str, set[int]] = {}  # training senses of each lemma and part of speech
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            of_lemma.setdefault(_entry(self.train, row), set()).add(code)
        scores = []
        for name, text in self.tests.items():
            vectors, covered = _vectors(encoder, text, progress)
            sums, blind = np.zeros((len(text.sentences), 3)), np.zeros((2, 3))
            for i, right in enumerate(text.keys):
                entry = _entry(text, i)
                several, answer = sorted(of_lemma.get(entry, ())), self.first.get(entry)
                possible = [k for k in several if seen[k]]
                hits = [keys[k] in right for k in several] or (
                    [] if answer is None else [answer in right]
                )
                best = hits[int(np.argmax(counts[several]))] if several else sum(hits)
                blind += [[best, bool(hits), 1], [sum(hits) / max(1, len(hits)), bool(hits), 1]]
                if covered[i] and possible:
                    answer = keys[possible[int(np.argmax(directions[possible] @ vectors[i]))]]
                sums[text.sentence[i]] += answer in right, answer is not None, 1
            frequent, chance = f1(blind)
            about = {
                "restrict": "lemma",
                "first_senses": len(self.first),
                "training_words": len(self.train),
                "senses": len(keys),
                "senses_without_vector": int((seen == 0).sum()),
                "words_without_vector": int((~covered).sum()),
                "training_words_without_vector": int((~has_vector).sum()),
                "answered": int(sums[:, 1].sum()),
                "frequent": round(float(frequent), 5),
                "chance": round(float(chance), 5),
                "unseen_lemmas": sum(_entry(text, i) not in of_lemma for i in range(len(text))),
                "encoder": encoder.name,
                "encoder_fingerprint": encoder.fingerprint,
            }
            measured, langs = measure(sums, f1, samples=self.bootstrap), (text.sentences.lang,)
            scores.append(
                Score(
                    "wsd",
                    name,
                    langs,
                    "f1",
                    *measured.ends,
                    len(text),
                    self.seed,
                    about,
                    **measured.kept,
                )
            )
        return scores


def _vectors(encoder: Encoder, text: SenseText, progress: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the instances, float32 `[n_instances, dim]`, and the mask of instances
    that have a vector.
    """
    embeddings = encoder.encode(text.sentences, progress=progress)
    places = embeddings.rows(text.sentence, text.word)
    rows = np.asarray(embeddings.data[places], dtype=np.float32)
    return rows, np.ones(len(rows), bool) if embeddings.covered is None else np.asarray(
        embeddings.covered
    )[places]


def first_senses(path: str) -> dict[str, str]:
    """Read the first sense of each lemma and part of speech from WordNet's `index.sense`."""
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
    return f"{text.lemmas[i].lower()}%{text.pos[i]}"


# -- files
# --------------------------------------------------------------------------------------------------
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
    words, places, lines = [], [], []
    instances: dict[str, tuple[str, str]] = {}  # lemma and part of speech of each instance id
    for line, element in read_elements(path, "corpus", "sentence", _WHAT):
        forms = []
        for part in element.iter():
            if part.tag not in ("wf", "instance"):
                continue
            forms.append("_".join("".join(part.itertext()).split()))
            if not forms[-1]:
                raise InputError(
                    f"a <{part.tag}> has no text, expected a word", path=path, line=line
                )
            if part.tag == "instance":
                name, lemma, pos = (part.get(key) for key in ("id", "lemma", "pos"))
                if not name or not lemma or not pos:
                    raise InputError(
                        "an <instance> lacks id, lemma or pos, expected all three",
                        path=path,
                        line=line,
                    )
                if name in instances:
                    fact = f"instance ids must be unique, but {name[:40]!r} occurs a second time"
                    raise InputError(fact, path=path, line=line)
                instances[name] = lemma, pos
                places.append((len(words), len(forms) - 1))
                lines.append(line)
        words.append(forms)
    if not words:
        raise InputError("the document has no <sentence>", path=path)
    senses: tuple[tuple[str, ...], ...] = ()
    name = unpacked_name(path)
    if keys is None and name.endswith(_DATA):
        keys = find_packed(Path(path).with_name(name.removesuffix(_DATA) + _KEYS))
    if keys is not None:
        keys_of = _read_keys(keys)
        for name, line in zip(instances, lines, strict=True):
            if name not in keys_of:
                fact = (
                    f"instance {name!r} has no key in {fspath(keys)}; do the keys belong to this "
                    "text?"
                )
                raise InputError(fact, path=path, line=line)
        senses = tuple(keys_of[name] for name in instances)
    lemmas, pos = zip(*instances.values(), strict=True) if instances else ((), ())
    at = np.array(places, np.int64).reshape(-1, 2)
    return SenseText(
        Sentences.of(words, lang),
        at[:, 0],
        at[:, 1],
        lemmas,
        pos,
        tuple(instances),
        senses,
        fspath(path),
    )


def _read_keys(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(readable_lines(path), 1):
        name, *senses = line.split() or [""]
        if name and (not senses or name in keys):
            wrong = (
                f"{name!r:.40} has no key" if not senses else f"{name!r:.40} occurs a second time"
            )
            raise InputError(
                f"{wrong}; expected one line with all keys for each instance",
                path=path,
                line=number,
            )
        if name:
            keys[name] = tuple(senses)
    return keys
