"""Two artificial languages, and a natural language inference (NLI) task that depends on word order.

A grammar generates sentences of the language `aa` from a subject, verb, object, and optional prepositional phrase and adverb.
The second language, `bb`, renames every word, splits some words into two or three, drops determiners, marks noun phrases with
particles, puts adjectives after their nouns, and puts the verb at the end. In `aa`, the vector of a word is the sum of a random
vector for the word and one for its class. A nonlinear map of these sums gives the vectors of `bb`. Noise is added to each token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from calque.clcr.encoder import KeyPointEncoder
from calque.corpora import read_parallel
from calque.encoders.base import Encoder
from calque.encoders.folder import read_about, saving, write_about
from calque.offsets import offsets_of
from calque.text import Sentence
from calque.vectors import Embeddings, map_arrays, write_arrays

LANGS = ("aa", "bb")
_SIZES = {"noun": 120, "verb": 50, "adjective": 40, "adverb": 20, "preposition": 8, "determiner": 4}
_PARTICLES = {
    "first": 3,
    "second": 3,
    "last": 2,
}  # number of different particles that can follow the subject, the object and the whole sentence
# fraction of translated words that are split into two or three pieces, with equal probability
_SPLIT = 0.3
_TABLE = "vectors.safetensors"


class Word(NamedTuple):
    """A word of the first language, with its word class and its phrase."""

    form: str
    kind: str
    phrase: str


class Pair(NamedTuple):
    """A sentence, its translation and their links; a split word is linked through the piece that
    carries its meaning.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class World:
    """Words and vectors of both languages.

    Attributes:
        words: words of the first language, keyed by word class.
        names: pieces of each word's translation, and the index of the piece that carries meaning;
            determiners have no entry.
        particles: particles of the second language, keyed by position.
        vectors: vector `[dim]` of each word, for each language.
    """

    words: dict[str, list[str]]
    names: dict[str, tuple[tuple[str, ...], int]]
    particles: dict[str, list[str]]
    vectors: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

    @classmethod
    def make(cls, *, dim: int = 64, seed: int = 0) -> World:
        """Generate random words, names and vectors.

        Args:
            dim: number of dimensions of the vectors.
            seed: random seed for the words, names and vectors.
        """
        rng = np.random.default_rng(seed)
        words = {kind: [f"{kind[:3]}{k}" for k in range(n)] for kind, n in _SIZES.items()}
        particles = {kind: [f"p{kind}{k}" for k in range(n)] for kind, n in _PARTICLES.items()}
        first: dict[str, np.ndarray] = {}
        for several in words.values():
            of_class = rng.normal(size=dim)
            first |= {form: of_class + rng.normal(size=dim) for form in several}
        moved = nonlinear(dim, rng)
        second: dict[str, np.ndarray] = {}
        for several in particles.values():
            of_class = rng.normal(size=dim)
            second |= {form: moved(of_class + rng.normal(size=dim)) for form in several}
        names = {}
        for kind, several in words.items():
            for form in several if kind != "determiner" else ():
                n = int(rng.choice([2, 3])) if rng.random() < _SPLIT else 1
                pieces = tuple(f"x{form}{'abc'[k]}" if n > 1 else f"x{form}" for k in range(n))
                carries = int(rng.integers(n))
                names[form] = pieces, carries
                for k, piece in enumerate(pieces):
                    meant = (
                        first[form] if k == carries else 0.3 * first[form] + rng.normal(size=dim)
                    )
                    second[piece] = moved(meant)
        return cls(words, names, particles, (first, second))

    # -- sentences ---------------------------------------------------------------------------------
    def sentence(self, rng: np.random.Generator) -> list[Word]:
        """Return a random sentence of the first language; only determiners can occur twice."""
        nouns = iter(rng.choice(self.words["noun"], 3, replace=False))
        adjectives = iter(rng.choice(self.words["adjective"], 3, replace=False))

        def one(kind: str, phrase: str) -> Word:
            return Word(str(rng.choice(self.words[kind])), kind, phrase)

        def noun_phrase(phrase: str) -> list[Word]:
            found = [one("determiner", phrase)]
            if rng.random() < 0.6:
                found.append(Word(str(next(adjectives)), "adjective", phrase))
            return [*found, Word(str(next(nouns)), "noun", phrase)]

        said = [*noun_phrase("first"), one("verb", "verb"), *noun_phrase("second")]
        if rng.random() < 0.5:
            said += [one("preposition", "further"), *noun_phrase("further")]
        if rng.random() < 0.4:
            said.append(one("adverb", "adverb"))
        return said

    def translated(self, said: Sequence[Word], rng: np.random.Generator) -> Pair:
        """Return a sentence with its translation into the second language."""
        order = [k for k, word in enumerate(said) if word.kind not in ("determiner", "verb")]
        for place, k in enumerate(order):  # put the adjective after its noun
            if (
                said[k].kind == "adjective"
                and place + 1 < len(order)
                and said[order[place + 1]].phrase == said[k].phrase
            ):
                order[place : place + 2] = [order[place + 1], k]
        order += [k for k, word in enumerate(said) if word.kind == "verb"]
        second: list[str] = []
        links = []
        for place, k in enumerate(order):
            pieces, carries = self.names[said[k].form]
            links.append((k, len(second) + carries))
            second += pieces
            phrase = said[k].phrase
            ends = place + 1 == len(order) or said[order[place + 1]].phrase != phrase
            if ends and phrase in self.particles:
                second.append(str(rng.choice(self.particles[phrase])))
        if rng.random() < 0.5:
            second.append(str(rng.choice(self.particles["last"])))
        return Pair(tuple(word.form for word in said), tuple(second), tuple(sorted(links)))

    def pair(self, rng: np.random.Generator) -> Pair:
        return self.translated(self.sentence(rng), rng)

    def inference(self, rng: np.random.Generator) -> tuple[str, Pair, Pair]:
        """Return an NLI label, a premise, and a hypothesis, which is the premise without its adverb
        and prepositional phrase:

        - entailment: nothing else changes;
        - contradiction: the nouns of subject and object are swapped;
        - neutral: the adjective is moved to the other noun.
        """
        label = str(rng.choice(["entailment", "contradiction", "neutral"]))
        while True:
            said = self.sentence(rng)
            core = [word for word in said if word.phrase in ("first", "second", "verb")]
            described = {word.phrase for word in core if word.kind == "adjective"}
            if len(described) == 1:
                break
        phrases = {
            phrase: [w for w in core if w.phrase == phrase]
            for phrase in ("first", "verb", "second")
        }
        a, b = (
            {word.kind: word.form for word in phrases[phrase]} for phrase in ("first", "second")
        )
        if label == "contradiction":
            a["noun"], b["noun"] = b["noun"], a["noun"]
        elif label == "neutral":
            for one, other in ((a, b), (b, a)):
                if "adjective" in one:
                    other["adjective"] = one.pop("adjective")
                    break
        hypothesis = [
            *(
                Word(a[kind], kind, "first")
                for kind in ("determiner", "adjective", "noun")
                if kind in a
            ),
            *phrases["verb"],
            *(
                Word(b[kind], kind, "second")
                for kind in ("determiner", "adjective", "noun")
                if kind in b
            ),
        ]
        return label, self.translated(said, rng), self.translated(hypothesis, rng)


def nonlinear(dim: int, rng: np.random.Generator) -> Any:
    """Return a random nonlinear map R (v + ½ relu(B v)), where R is orthogonal."""
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    inner = rng.normal(size=(dim, dim)) / np.sqrt(dim)
    return lambda v: rotation @ (v + 0.5 * np.maximum(inner @ v, 0.0))


class PlantedEncoder(Encoder):
    """Encoder that returns each word's vector with added noise that depends on the sentence.

    Args:
        vectors: vector `[dim]` of each word.
        noise: standard deviation of the noise in each component.
        lang: language to include in the encoder's name.
    """

    def __init__(self, vectors: Mapping[str, np.ndarray], *, noise: float = 0.2, lang: str = "aa"):
        self.vectors, self.noise, self.name = dict(vectors), noise, f"planted-{lang}"
        self._lang = lang
        self.dim = len(next(iter(self.vectors.values())))

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(f"{self.noise} {self._lang}".encode(), digest_size=16)
        for word in sorted(self.vectors):
            digest.update(
                word.encode() + np.asarray(self.vectors[word], dtype=np.float32).tobytes()
            )
        return digest.hexdigest()

    def encode(self, sentences: Iterable[Sentence], *, progress: bool = False) -> Embeddings:
        read = [sentence.words for sentence in sentences]
        covered = np.array([word in self.vectors for words in read for word in words], dtype=bool)
        rows = [np.zeros((0, self.dim))]
        for words in read:
            own = int.from_bytes(
                hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest(), "little"
            )
            drawn = np.random.default_rng(own).normal(size=(len(words), self.dim)) * self.noise
            rows += [
                self.vectors.get(word, 0.0) + noise[None]
                for word, noise in zip(words, drawn, strict=True)
            ]
        data = np.concatenate(rows).astype(np.float32) * covered[:, None]
        return Embeddings(data, offsets_of(list(map(len, read))), covered)

    def save(self, folder: str | PathLike[str]) -> None:
        with saving(folder) as path:
            words = sorted(self.vectors)
            table = np.stack([self.vectors[word] for word in words]).astype(np.float32)
            write_arrays(path / _TABLE, {"vectors": table})
            about = {"words": words, "noise": self.noise, "lang": self._lang}
            write_about(path, f"{type(self).__module__}:{type(self).__qualname__}", about)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None, **options: Any
    ) -> Self:
        about = read_about(folder) if about is None else about
        table = np.array(map_arrays(Path(folder) / _TABLE)[0]["vectors"])
        vectors = dict(zip(about["words"], table, strict=True))
        return cls(vectors, noise=about["noise"], lang=about["lang"])


# -- scores ----------------------------------------------------------------------------------------
def f1_of(found: set, truth: set) -> dict[str, float]:
    """Return precision, recall and F1 of found items against gold items."""
    right = len(found & truth)
    precision, recall = right / max(1, len(found)), right / max(1, len(truth))
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * right / max(1, len(found) + len(truth)),
    }


def bleu(orders: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], n: int = 4) -> float:
    """Return the corpus BLEU-n of orders (Papineni et al. 2002): the geometric mean of 1-gram to
    n-gram precisions, times the brevity penalty. N-grams are compared as sets, because no item
    occurs twice in an order."""
    right, there = np.zeros(n), np.zeros(n)
    for one, other in zip(orders, gold, strict=True):
        for size in range(1, n + 1):
            grams = [
                {tuple(o[k : k + size]) for k in range(len(o) - size + 1)}
                for o in (list(one), list(other))
            ]
            right[size - 1] += len(grams[0] & grams[1])
            there[size - 1] += len(grams[0])
    if (right == 0).any():
        return 0.0
    short = max(0.0, sum(map(len, gold)) / max(1, sum(map(len, orders))) - 1)
    return float(np.exp(np.log(right / there).mean() - short))


# -- files -----------------------------------------------------------------------------------------
def write_world(
    folder: Path,
    *,
    pairs: int = 20_000,
    test: int = 1000,
    examples: int = 4000,
    dim: int = 64,
    noise: float = 0.2,
    seed: int = 0,
) -> None:
    """Write both encoders (`aa`, `bb`), parallel text, links, and NLI training and test examples.

    Args:
        folder: folder to write to.
        pairs, test: number of training and test sentence pairs.
        examples: number of NLI training examples in the first language; each language has half as
            many test examples.
        dim, noise, seed: see `World` and `PlantedEncoder`.
    """
    world = World.make(dim=dim, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    for lang, vectors in zip(LANGS, world.vectors, strict=True):
        PlantedEncoder(vectors, noise=noise, lang=lang).save(folder / lang)
    rng = np.random.default_rng([seed, 1])
    for name, n in (("train", pairs), ("test", test)):
        made = [world.pair(rng) for _ in range(n)]
        _write(
            folder / f"{name}.tsv",
            (f"{' '.join(pair.first)}\t{' '.join(pair.second)}" for pair in made),
        )
        for side, lang in enumerate(LANGS):
            _write(
                folder / f"{name}.{lang}",
                (" ".join((pair.first, pair.second)[side]) for pair in made),
            )
        _write(
            folder / f"{name}.align", (" ".join(f"{i}-{j}" for i, j in pair.links) for pair in made)
        )
    for name, n in (("train", examples), ("dev", examples // 8), ("test", examples // 2)):
        several = [world.inference(rng) for _ in range(n)]
        for side, lang in enumerate(LANGS[: 2 if name == "test" else 1]):
            texts = (
                [label, *(" ".join((p.first, p.second)[side]) for p in (a, b))]
                for label, a, b in several
            )
            lines = (f"{premise}\t{hypothesis}\t{label}" for label, premise, hypothesis in texts)
            _write(folder / f"nli.{name}.{lang}.tsv", ["premise\thypothesis\tlabel", *lines])
        if name == "test":
            both = (
                f"{' '.join(p.first)}\t{' '.join(p.second)}" for _, *texts in several for p in texts
            )
            _write(folder / "nli.test.tsv", both)


def score_world(folder: Path, encoder: KeyPointEncoder) -> dict[str, Any]:
    """Score the pivots and key points that an encoder finds in the test text against the planted
    pivots and key points.

    Args:
        folder: folder written by `write_world`.
        encoder: key-point encoder for both languages.
    """
    links = [_links(line) for line in _lines(folder / "test.align")]
    text = read_parallel(folder / "test.tsv", langs=LANGS, pretokenized=True)
    found = [_links(line) for line in encoder.pivots(text).pharaoh_lines()]
    figures: dict[str, Any] = {"alignment": f1_of(_told(found), _told(links))}
    for side, lang in enumerate(LANGS):
        points = encoder.key_points((text.source, text.target)[side])
        said = [points[k].tolist() for k in range(len(points))]
        gold = [[link[side] for link in sorted(of_pair)] for of_pair in links]
        figures[f"key points, {lang}"] = f1_of(_told(said), _told(gold))
        figures[f"BLEU-4 of the order, {lang}"] = bleu(said, gold)
        figures[f"BLEU-4 as they stand, {lang}"] = bleu([sorted(line) for line in said], gold)
    return figures


def _told(lines: Iterable[Iterable[Any]]) -> set:
    return {(number, each) for number, line in enumerate(lines) for each in line}


def _links(line: str) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in (link.split("-") for link in line.split())]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
