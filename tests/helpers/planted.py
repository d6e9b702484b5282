"""Encoders with known vectors, and text whose labels are determined by its words."""

import hashlib
from types import SimpleNamespace

import numpy as np

from calque.annotated import LabelledText, Labels, ProbeText, TaggedText, Treebank
from calque.corpora.squad import QuestionText
from calque.encoders.base import Encoder
from calque.segment import word_places
from calque.tasks.answering import Answering
from calque.tasks.classification import Classification
from calque.tasks.datasets import Dataset
from calque.tasks.parsing import Parsing
from calque.tasks.probing import Probing
from calque.tasks.tagging import Tagging
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings


class Planted(Encoder):
    """Encoder for words that consist of a language letter and a meaning number; `e17` and `d17`
    have the same vector.

    If `apart` is set, the words of each language have independent vectors.

    """

    def __init__(self, dim=24, apart=False, constant=False):
        self.dim, self.name, self.apart, self.constant, self.passes = (
            dim,
            "planted",
            apart,
            constant,
            0,
        )

    fingerprint = "0"

    def encode(self, sentences, *, progress=False):
        self.passes += 1
        rows = [self.vector(word) for sentence in sentences for word in sentence.words]
        lengths = [len(sentence) for sentence in sentences]
        return Embeddings(
            np.array(rows, dtype=np.float32).reshape(-1, self.dim), np.cumsum([0, *lengths])
        )

    def vector(self, word):
        key = "same" if self.constant else word if self.apart else word[1:]
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "little")
        return np.random.default_rng(seed).standard_normal(self.dim)

    def save(self, folder):
        raise AssertionError("not needed")


class Fixed(Encoder):
    """Encoder that always returns the given vectors, which can differ by language."""

    fingerprint = "0"

    def __init__(self, vectors=None, **by_language):
        self.vectors, self.by_language, self.name = vectors, by_language, "fixed"
        self.dim = next(
            (given.dim for given in (vectors, *by_language.values()) if given is not None), 4
        )

    def encode(self, sentences, *, progress=False):
        return self.by_language.get(sentences.lang, self.vectors)


class KeyPoints(Planted):
    """Encoder that drops words with numbers above 7 and reverses the order of the others; a
    sentence may have no vectors.
    """

    rows = "key points"

    def encode(self, sentences, *, progress=False):
        return super().encode([key_points(sentence) for sentence in sentences])

    def key_points(self, sentences):
        """Return the word index of each vector as `data` `[n_rows]` and `offsets` `[n_sentences +
        1]`.
        """
        places = [
            [k for k, word in enumerate(each.words) if int(word[1:]) < 8][::-1]
            for each in sentences
        ]
        data = np.array([k for each in places for k in each], dtype=np.int64)
        return SimpleNamespace(data=data, offsets=np.cumsum([0, *map(len, places)]))


def key_points(sentence):
    return Sentence(
        tuple(word for word in reversed(sentence.words) if int(word[1:]) < 8), sentence.lang
    )


def words(rng, n, lang, low=1, high=7, vocabulary=12):
    return [
        [f"{lang[0]}{rng.integers(vocabulary)}" for _ in range(rng.integers(low, high))]
        for _ in range(n)
    ]


def tagged(n, lang, seed=0, name=None, tag=None, intents=False):
    """Tag words with numbers 0–3 as people, 4 and 5 as places, others as O; a sentence's first word
    determines its intent.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    text = words(rng, n, lang)
    tag = tag or (lambda k: "B-PER" if k < 4 else "B-LOC" if k < 6 else "O")
    tags = [tag(int(word[1:])) for sentence in text for word in sentence]
    lines = np.cumsum([1, *(len(sentence) + 1 for sentence in text)])[:-1]
    return Dataset(
        name or f"{lang}.tsv",
        lang,
        TaggedText(
            Sentences.of(text, lang),
            Labels.of(tags),
            lines=lines,
            path=f"{lang}.tsv",
            intents=Labels.of(["even" if int(s[0][1:]) % 2 == 0 else "odd" for s in text])
            if intents
            else None,
        ),
    )


def labelled(n, lang, seed=0, pairs=False):
    """Label a text good if a word in it has a number below 4; label a pair yes if both texts are
    equal.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    first = words(rng, n, lang, 1, 4)
    if not pairs:
        labels = ["good" if any(int(word[1:]) < 4 for word in text) else "bad" for text in first]
        return Dataset(
            f"{lang}.tsv", lang, LabelledText((Sentences.of(first, lang),), Labels.of(labels))
        )
    second = [
        text if rng.random() < 0.5 else other
        for text, other in zip(first, words(rng, n, lang, 1, 4), strict=True)
    ]
    labels = ["yes" if a == b else "no" for a, b in zip(first, second, strict=True)]
    columns = tuple(Sentences.of(column, lang) for column in (first, second))
    return Dataset(f"{lang}.tsv", lang, LabelledText(columns, Labels.of(labels)))


def trees(n, lang, seed=0):
    """Attach each word to the previous word, with a relation determined by its number; the first
    word is the root.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    text = words(rng, n, lang, 2, 7)
    heads = np.array([k for sentence in text for k in range(len(sentence))], dtype=np.int32)
    numbers = [int(word[1:]) for sentence in text for word in sentence]
    relations = [
        "root" if head == 0 else ("low" if number < 6 else "high")
        for head, number in zip(heads, numbers, strict=True)
    ]
    upos = Labels.of(["NOUN" if number % 2 else "VERB" for number in numbers])
    return Dataset(
        f"{lang}.conllu",
        lang,
        Treebank(Sentences.of(text, lang), upos, heads, Labels.of(relations)),
    )


def asked(text, lang, targets, probe="planted", name=None):
    """Return a data set of sentences with targets; the targets of a sentence are a list of `(spans,
    labels)`.
    """
    flat = [target for each in targets for target in each]
    width = len(flat[0][0]) if flat else 1
    return Dataset(
        name or f"{lang}.jsonl",
        lang,
        ProbeText(
            Sentences.of(text, lang),
            np.cumsum([0, *map(len, targets)]),
            np.array([spans for spans, _ in flat], dtype=np.int32).reshape(-1, width, 2),
            Labels.of([label for _, labels in flat for label in labels]),
            np.cumsum([0, *(len(labels) for _, labels in flat)]),
            probe,
            path=f"{lang}.jsonl",
        ),
    )


def spans(n, lang, seed=0):
    """Label the first two words of each sentence `low` if one of their numbers is below 4, and
    `high` if one is above 7.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    text = words(rng, n, lang, 2, 7)
    kinds = {"low": lambda k: k < 4, "high": lambda k: k > 7}
    return asked(
        text,
        lang,
        [
            [
                (
                    [(0, 2)],
                    [
                        kind
                        for kind, fits in kinds.items()
                        if any(fits(int(word[1:])) for word in sentence[:2])
                    ],
                )
            ]
            for sentence in text
        ],
    )


def questions(n, lang, seed=0, length=10, vocabulary=40, each=2):
    """Return questions that consist of one word of the passage; the answer is the next two words.
    No word is repeated.
    """
    rng = np.random.default_rng([seed, ord(lang[0])])
    passages = [
        [f"{lang[0]}{k}" for k in rng.permutation(vocabulary)[:length]]
        for _ in range(-(-n // each))
    ]
    owner = np.arange(n) // each
    asked_of = rng.integers(length - 2, size=n)
    written = [" ".join(passage) for passage in passages]
    places = [word_places(text, passage) for text, passage in zip(written, passages, strict=True)]
    answers = [
        " ".join(passages[k][at + 1 : at + 3]) for k, at in zip(owner, asked_of, strict=True)
    ]
    return Dataset(
        f"{lang}.json",
        lang,
        QuestionText(
            Sentences.of(passages, lang),
            tuple(written),
            np.concatenate(places).astype(np.int32),
            Sentences.of([[passages[k][at]] for k, at in zip(owner, asked_of, strict=True)], lang),
            owner,
            np.arange(n + 1),
            tuple(answers),
            np.stack([asked_of + 1, asked_of + 3], axis=1).astype(np.int32),
        ),
    )


def write_translations(path):
    """Write 40 sentence pairs of two to five words in English and German."""
    rng = np.random.default_rng(0)
    translations = {"the": "der", "a": "ein", "in": "in", "e": "und", "1": "1"}
    rows = []
    for _ in range(40):
        chosen = [list(translations)[k] for k in rng.integers(0, 5, rng.integers(2, 6))]
        rows.append(f"{' '.join(chosen)}\t{' '.join(translations[word] for word in chosen)}\n")
    path.write_text("".join(rows))


def write_tags(named, path):
    """Write tagged text as a file with one column each for words and tags."""
    tags = iter(named.data.tags.to_list())
    blocks = [
        "".join(f"{word}\t{next(tags)}\n" for word in sentence.words)
        for sentence in named.data.sentences
    ]
    path.write_text("\n".join(blocks), encoding="utf-8")


def write_trees(named, path):
    """Write a treebank in CoNLL-U format."""
    bank, position, lines = named.data, 0, []
    for sentence in bank.sentences:
        for k, word in enumerate(sentence.words, 1):
            head, relation = int(bank.heads[position]), bank.relations[position]
            lines.append(f"{k}\t{word}\t_\t{bank.upos[position]}\t_\t_\t{head}\t{relation}\t_\t_")
            position += 1
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


QUICK = {"epochs": 16, "patience": 4, "learning_rate": 5e-3, "batch": 16}


def jobs(n=120, seeds=(0,), **settings):
    """Return one task of each kind, with planted labels."""
    small = {"seeds": seeds, "bootstrap": 50, "options": QUICK} | settings
    return {
        "ner": Tagging(
            "ner", [tagged(n, "en")], [tagged(60, "de", 1), tagged(60, "en", 1)], hidden=16, **small
        ),
        "slots": Tagging(
            "slots",
            [tagged(n, "en", intents=True)],
            [tagged(60, "de", 1, intents=True)],
            hidden=16,
            **small,
        ),
        "pos": Tagging("pos", [tagged(n, "en")], [tagged(60, "de", 1)], hidden=16, **small),
        "sentiment": Classification(
            "sentiment", [labelled(2 * n, "en")], [labelled(80, "de", 1)], hidden=24, **small
        ),
        "nli": Classification(
            "nli",
            [labelled(4 * n, "en", pairs=True)],
            [labelled(80, "de", 1, pairs=True)],
            hidden=24,
            **small,
        ),
        "parsing": Parsing(
            [trees(2 * n, "en")],
            [trees(60, "de", 1)],
            hidden=16,
            layers=1,
            arc=24,
            label=12,
            upos=4,
            **small,
        ),
        "probing": Probing(
            [spans(2 * n, "en")], [spans(60, "de", 1)], width=24, hidden=24, **small
        ),
        "qa": Answering(
            [questions(4 * n, "en")],
            [questions(60, "de", 1)],
            hidden=24,
            dropout=0.0,
            **{**small, "tune": False},
        ),
    }
