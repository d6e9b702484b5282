"""Check that random vectors score at chance level in every task, in the source language and in
others.

Chance is the score of the most frequent label, or of guessing one of the candidates. Planted
vectors must score higher.
"""

import numpy as np
import pytest

from calque.annotated import Dictionary, LabelledText, Labels, Treebank
from calque.senses.disambiguation import Disambiguation, SenseText
from calque.tasks.classification import Classification
from calque.tasks.datasets import Dataset
from calque.tasks.lexicon import Lexicon
from calque.tasks.parsing import Parsing
from calque.tasks.probing import Probing
from calque.tasks.tagging import Tagging
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import Planted, asked, tagged

SMALL = {
    "seeds": (0,),
    "bootstrap": 0,
    "options": {"epochs": 10, "patience": 3, "learning_rate": 1e-2, "batch": 16},
}


class Noise(Planted):
    """Encoder that returns a new random vector for every word occurrence."""

    def encode(self, sentences, *, progress=False):
        self.passes += 1
        offsets = np.cumsum([0, *map(len, sentences)])
        data = np.random.default_rng(self.passes).standard_normal((offsets[-1], self.dim))
        return Embeddings(data.astype(np.float32), offsets)


def drawn(n, lang, seed, length=3, vocabulary=12):
    """Return random word numbers and their texts, all of which have equal length, so length cannot
    reveal the answer.
    """
    numbers = np.random.default_rng([seed, ord(lang[0])]).integers(vocabulary, size=(n, length))
    return numbers, Sentences.of([[f"{lang[0]}{k}" for k in row] for row in numbers], lang)


def names(n, lang, seed):
    tags = {0: "B-PER", 1: "B-LOC"}
    return tagged(n, lang, seed, tag=lambda k: tags.get(k, "O"), intents=True)


def parts_of_speech(n, lang, seed):
    return tagged(n, lang, seed, tag=lambda k: "NOUN" if k % 2 else "VERB")


def moods(n, lang, seed):
    numbers, text = drawn(n, lang, seed)
    labels = Labels.of(["good" if few else "bad" for few in (numbers < 6).sum(1) > 1])
    return Dataset(f"{lang}.tsv", lang, LabelledText((text,), labels))


def inferences(n, lang, seed):
    """Return pairs of one-word texts, labelled yes if the number of the second word is that of the
    first plus 1 (modulo 5).
    """
    numbers, first = drawn(n, lang, seed, length=1, vocabulary=5)
    follows = np.random.default_rng(seed).integers(2, size=n)
    second = (
        np.where(follows[:, None] == 1, numbers + 1, numbers + 3) % 5
    )  # the words always differ
    texts = (first, Sentences.of([[f"{lang[0]}{k}" for k in row] for row in second], lang))
    return Dataset(
        f"{lang}.tsv",
        lang,
        LabelledText(texts, Labels.of(["yes" if each else "no" for each in follows])),
    )


def trees(n, lang, seed):
    """Return trees in which the word with the largest number is the root and the head of all other
    words.
    """
    numbers, text = drawn(n, lang, seed, length=4)
    roots = numbers.argmax(1)
    heads = np.array(
        [0 if k == root else root + 1 for root in roots for k in range(4)], dtype=np.int32
    )
    relations = Labels.of(
        [
            "root" if head == 0 else "low" if k < 6 else "high"
            for head, k in zip(heads, numbers.flat, strict=True)
        ]
    )
    return Dataset(
        f"{lang}.conllu", lang, Treebank(text, Labels.of(["X"] * len(heads)), heads, relations)
    )


def both(make, n=160):
    """Return a training text and test texts in two languages."""
    return [make(n, "en", 0)], [make(100, "de", 1), make(100, "en", 1)]


def most(job, name):
    """Return the relative frequency of the most frequent answer in the first test text, plus three
    standard deviations.
    """
    gold = job.answers(job.tests[0])
    codes = {**gold.words, **gold.texts}[name]
    share = np.bincount(codes).max() / len(codes)
    return share + 3 * np.sqrt(share * (1 - share) / len(codes))


def everything_is(kind, job):
    """Return the F1 of tagging every word as an entity of one type."""
    tags = [job.gold_tags[code] for code in job.answers(job.tests[0]).words["tags"]]
    right = sum(tag == f"B-{kind}" for tag in tags)
    return 2 * right / (len(tags) + sum(tag != "O" for tag in tags))


def ner():
    job = Tagging("ner", *both(names), hidden=12, **SMALL)
    return job, {"f1": everything_is("PER", job) + 0.05}


def slots():
    job = Tagging("slots", *both(names), hidden=12, select="last", **SMALL)
    return job, {"f1": everything_is("PER", job) + 0.05, "intent": most(job, "intents")}


def pos():
    job = Tagging("pos", *both(parts_of_speech), hidden=12, **SMALL)
    return job, {"accuracy": most(job, "tags")}


def sentiment():
    job = Classification("sentiment", *both(moods), hidden=24, **SMALL)
    return job, {"accuracy": most(job, "labels")}


def nli():
    job = Classification("nli", *both(inferences, 240), head="mean", hidden=24, **SMALL)
    return job, {"accuracy": most(job, "labels")}


def parsing():
    job = Parsing(*both(trees), hidden=16, layers=1, arc=24, label=12, upos=2, **SMALL)
    # A guessed root is correct in a quarter of the trees, and determines all heads. The other words
    # have one of two labels.
    margin = 3 * np.sqrt(0.25 * 0.75 / 100)
    return job, {"uas": 0.25 + margin, "las": 0.25 * 0.625 + margin}


def parities(n, lang, seed):
    """Return words labelled as even or odd."""
    numbers, text = drawn(n, lang, seed)
    targets = [
        [([(k, k + 1)], ["odd" if number % 2 else "even"]) for k, number in enumerate(row)]
        for row in numbers
    ]
    return asked([sentence.words for sentence in text], lang, targets)


def probing():
    job = Probing(*both(parities), width=16, hidden=16, **SMALL)
    return job, {"f1": 2 / 3 + 0.05}  # F1 of predicting both labels for every word


def lexicon():
    words = [tuple(f"{letter}{k}" for k in range(60)) for letter in "ed"]
    return Lexicon(Dictionary(*words, ("en", "de")), bootstrap=0), {
        "p@1": 4 / 60,
        "p@10": 10 / 60 + 0.15,
        "mrr": 0.08 + 0.08,
    }


def wsd():
    def text(n, seed):
        sense = np.random.default_rng(seed).integers(2, size=n)
        return SenseText(
            Sentences.of([[f"e{k}"] for k in sense], "en"),
            np.arange(n),
            np.zeros(n, dtype=np.int64),
            ("bank",) * n,
            ("NOUN",) * n,
            tuple(map(str, range(n))),
            tuple((f"bank%{k}",) for k in sense),
        )

    return Disambiguation(text(60, 0), {"t": text(200, 1)}, bootstrap=0), {
        "f1": 0.5 + 3 * np.sqrt(0.25 / 200)
    }


TASKS = {
    make.__name__: make
    for make in (ner, slots, pos, sentiment, nli, parsing, probing, lexicon, wsd)
}


@pytest.mark.parametrize("name", TASKS)
def test_a_random_encoder_scores_at_chance_level(name):
    job, chance = TASKS[name]()
    blind, seeing = (job.evaluate(encoder) for encoder in (Noise(), Planted()))
    for metric, most in chance.items():
        assert max(score.value for score in blind if score.metric == metric) <= most
        assert min(score.value for score in seeing if score.metric == metric) > most


@pytest.mark.parametrize("name", ["ner", "slots", "pos", "sentiment", "nli", "parsing", "probing"])
def test_unrelated_target_language_vectors_score_at_chance_level(name):
    """Give each word type a random vector, as a model with random weights does."""
    job, chance = TASKS[name]()
    scores = job.evaluate(Planted(apart=True))
    for metric, most in chance.items():
        target, source = (score.value for score in scores if score.metric == metric)
        assert target <= most + 0.1 < source + 0.1


def test_the_chance_level_of_word_senses_is_recorded():
    job, _ = wsd()
    about = job.evaluate(Planted())[0].settings
    assert about["chance"] == pytest.approx(0.5)
    gold = [key for keys in job.tests["t"].keys for key in keys]
    learnt = [key for keys in job.train.keys for key in keys]
    assert about["frequent"] == pytest.approx(
        gold.count(max(set(learnt), key=learnt.count)) / len(gold), abs=1e-5
    )
