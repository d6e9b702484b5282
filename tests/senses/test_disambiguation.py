"""Compare word sense disambiguation with a naive implementation; read XML files of the unified
evaluation framework.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import replace

import numpy as np
import pytest

from calque.errors import InputError, SettingError
from calque.senses.disambiguation import Disambiguation, SenseText, first_senses, read_senses
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import KeyPoints, Planted

DATA = """<?xml version='1.0' encoding='utf-8'?>
<corpus lang="en" source="x">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="the" pos="DT">The</wf>
<instance id="d0.s0.t0" lemma="group" pos="NOUN">Fulton_County Grand Jury</instance>
<instance id="d0.s0.t1" lemma="say" pos="VERB">said</instance>
</sentence>
<sentence id="d0.s1">
<wf lemma="&amp;" pos="O">&amp;</wf>
</sentence>
</text>
<text id="d1">
<sentence id="d1.s0">
<wf lemma="no" pos="DT">no</wf>
<instance id="d1.s0.t0" lemma="evidence" pos="NOUN">évidence</instance>
</sentence>
</text>
</corpus>
"""
KEYS = (
    "d0.s0.t0 group%1:03:00::\nd9.s0.t0 other%1:00:00::\nd0.s0.t1 say%2:32:00:: "
    "say%2:32:01::\nd1.s0.t0 evidence%1:09:00::\n"
)


def write(folder, content, name="f.data.xml"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_and_positions_of_annotated_instances_are_read(tmp_path):
    text = read_senses(write(tmp_path, DATA))
    words = [sentence.words for sentence in text.sentences]
    assert words == [("The", "Fulton_County_Grand_Jury", "said"), ("&",), ("no", "évidence")]
    assert (text.sentence.tolist(), text.word.tolist()) == ([0, 0, 2], [1, 2, 1])
    assert (text.lemmas, text.pos) == (("group", "say", "evidence"), ("NOUN", "VERB", "NOUN"))
    assert (text.keys, text.ids) == ((), ("d0.s0.t0", "d0.s0.t1", "d1.s0.t0"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_key_file_is_found_next_to_the_text(tmp_path, pack):
    end = "" if pack is bytes else ".gz"
    path = write(tmp_path, pack(DATA.encode()), f"f.data.xml{end}")
    beside = write(tmp_path, KEYS, "f.gold.key.txt")
    expected = (("group%1:03:00::",), ("say%2:32:00::", "say%2:32:01::"), ("evidence%1:09:00::",))
    assert read_senses(path).keys == expected
    other = write(tmp_path, DATA, "other.xml")
    assert read_senses(other).keys == ()
    assert read_senses(other, keys=beside).keys == expected


@pytest.mark.parametrize(
    ("keys", "place", "fact"),
    [
        (
            "d0.s0.t0 a%1\nd0.s0.t1\n",
            "k line 2",
            "'d0.s0.t1' has no key; expected one line with all keys",
        ),
        ("d0.s0.t0 a%1\n\nd0.s0.t0 b%1\n", "k line 3", "'d0.s0.t0' occurs a second time"),
        ("d0.s0.t0 a%1\nd1.s0.t0 a%1\n", "f.data.xml line 4", "instance 'd0.s0.t1' has no key in"),
    ],
)
def test_invalid_keys_and_keys_of_another_text_are_rejected(tmp_path, keys, place, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA), keys=write(tmp_path, keys, "k"))
    assert str(caught.value).startswith(f"{tmp_path}/{place}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "fact"),
    [
        ("</instance>", "</wf>", 6, "not well-formed XML (mismatched tag: line 6"),
        ("corpus", "tmx", 2, "the document is <tmx>, expected <corpus>"),
        (' lemma="group"', "", 4, "an <instance> lacks id, lemma or pos"),
        ("d0.s0.t1", "d0.s0.t0", 4, "'d0.s0.t0' occurs a second time"),
        (">The<", "> \n <", 4, "a <wf> has no text, expected a word"),
    ],
)
def test_invalid_documents_are_rejected(tmp_path, old, new, line, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA.replace(old, new, 1)))
    assert str(caught.value).startswith(f"{tmp_path}/f.data.xml line {line}: ")


# -- the task --------------------------------------------------------------------------------------
def senses(instances):
    """Return a text with a one-word sentence for each instance (word, lemma, pos, keys)."""
    text = Sentences.of([[word] for word, *_ in instances], "en")
    numbers = np.arange(len(instances))
    return SenseText(
        text,
        numbers,
        np.zeros_like(numbers),
        tuple(i[1] for i in instances),
        tuple(i[2] for i in instances),
        tuple(f"i{k}" for k in numbers),
        tuple(tuple(i[3].split()) for i in instances),
    )


def test_a_word_is_assigned_the_nearest_sense_of_its_lemma():
    train = senses(
        [
            ("e1", "bank", "NOUN", "bank%1"),
            ("e1", "bank", "NOUN", "bank%1"),
            ("e2", "bank", "NOUN", "bank%2"),
            ("e3", "run", "VERB", "run%1"),
        ]
    )
    test = senses(
        [
            ("e1", "Bank", "NOUN", "bank%1"),
            ("e2", "bank", "NOUN", "bank%2 bank%3"),
            ("e2", "bank", "NOUN", "bank%1"),
            ("e1", "bank", "VERB", "bank%9"),
            ("e3", "run", "VERB", "run%1"),
        ]
    )
    score = Disambiguation(train, {"t": test}).evaluate(Planted())[0]
    assert score.value == pytest.approx(2 * 3 / (4 + 5))  # the verb `bank` has no answer
    assert (score.n, score.settings["unseen_lemmas"], score.settings["answered"]) == (5, 1, 4)
    backed = Disambiguation(train, {"t": test}, first_sense={"bank%VERB": "bank%9"}).evaluate(
        Planted()
    )[0]
    assert backed.value == pytest.approx(4 / 5)
    with pytest.raises(
        SettingError, match="has vectors for key points, but vectors for words are required"
    ):
        Disambiguation(train, {"t": test}).evaluate(KeyPoints())


class Long(Planted):
    """Encoder in which the vector of `e8` is ten times that of `e1`, and words that contain `?`
    have no vector.
    """

    def vector(self, word):
        if "?" in word:
            return np.zeros(self.dim)
        if word in ("e8", "e9"):
            return (
                10 * super().vector("e1")
                if word == "e8"
                else super().vector("e2") - super().vector("e1")
            )
        return super().vector(word)

    def encode(self, sentences, **options):
        found = super().encode(sentences, **options)
        return Embeddings(found.data, found.offsets, found.data.any(axis=1))


def test_a_sense_vector_is_the_mean_of_unnormalised_vectors():
    """Compare with a loop that averages unnormalised vectors and then uses the cosine."""
    rng = np.random.default_rng(0)
    words, keys = ["e1", "e2", "e3", "e4", "e8", "e9"], ["bank%1", "bank%2", "bank%3"]
    train = senses(
        [(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(30)]
    )
    test = senses(
        [(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(60)]
    )
    encoder = Long()

    def vector(text, i):
        return encoder.vector(text.sentences[i].words[0]).astype(np.float32).astype(float)

    means = {
        key: np.mean(
            [vector(train, i) for i in range(len(train)) if train.keys[i] == (key,)], axis=0
        )
        for key in keys
    }
    right = sum(
        test.keys[i]
        == (max(keys, key=lambda key: vector(test, i) @ means[key] / np.linalg.norm(means[key])),)
        for i in range(len(test))
    )
    (score,) = Disambiguation(train, {"t": test}, bootstrap=0).evaluate(encoder)
    assert score.value == pytest.approx(right / len(test))


def test_a_key_that_is_listed_twice_counts_once():
    """In training, a repeated key must not double the weight of its word in the mean and among the
    most frequent senses.
    """
    words = [("e1", "bank%1"), ("e2", "bank%1"), ("e3", "bank%2"), ("e4", "bank%2")]
    once = senses([(word, "bank", "NOUN", key) for word, key in words])
    twice = senses(
        [
            (word, "bank", "NOUN", f"{key} {key} {key}" if word in ("e2", "e3") else key)
            for word, key in words
        ]
    )
    test = senses(
        [(f"e{k % 9}", "bank", "NOUN", f"bank%{1 + k % 2} bank%{1 + k % 2}") for k in range(18)]
    )
    first, second = (
        Disambiguation(train, {"t": test}, bootstrap=0).evaluate(Planted())[0]
        for train in (once, twice)
    )
    assert second == first
    means = [
        np.mean([Planted().vector(w) for w, key in words if key == f"bank%{k}"], axis=0)
        for k in (1, 2)
    ]
    right = 0
    for k in range(18):
        cosines = [Planted().vector(f"e{k % 9}") @ mean / np.linalg.norm(mean) for mean in means]
        right += int(np.argmax(cosines)) == k % 2
    assert second.value == pytest.approx(right / 18)


def test_repeated_keys_in_a_file_are_merged(tmp_path):
    path = tmp_path / "t.data.xml"
    path.write_text(
        '<corpus><text><sentence><instance id="d1" lemma="bank" pos="NOUN">bank</instance></sentence></text></corpus>'
    )
    (tmp_path / "t.gold.key.txt").write_text("d1 bank%2 bank%1 bank%2\n")
    assert read_senses(path).keys == (("bank%2", "bank%1"),)


def test_words_without_a_vector_have_the_first_sense_or_count_as_wrong():
    train = senses(
        [
            ("e1", "bank", "NOUN", "bank%1"),
            ("?", "bank", "NOUN", "bank%1"),
            ("e2", "bank", "NOUN", "bank%2"),
            ("?", "bank", "NOUN", "bank%3"),
            ("?", "run", "VERB", "run%1"),
        ]
    )
    test = senses(
        [
            ("e1", "bank", "NOUN", "bank%1"),
            ("?", "bank", "NOUN", "bank%1"),
            ("?", "bank", "NOUN", "bank%2"),
            ("e3", "run", "VERB", "run%1"),
        ]
    )
    (score,) = Disambiguation(train, {"t": test}, bootstrap=0).evaluate(Long())
    expected = {
        "words_without_vector": 2,
        "training_words_without_vector": 3,
        "senses_without_vector": 2,
    }
    assert {name: score.settings[name] for name in expected} == expected
    # The only sense of the verb `run` has no vector.
    assert (score.n, score.settings["answered"]) == (
        4,
        1,
    )
    assert score.value == pytest.approx(2 * 1 / (1 + 4))
    first = {"bank%NOUN": "bank%1", "run%VERB": "run%1"}
    (backed,) = Disambiguation(train, {"t": test}, first_sense=first, bootstrap=0).evaluate(Long())
    assert backed.value == pytest.approx(3 / 4)
    blind = senses([("?", "bank", "NOUN", "bank%1")])
    with pytest.raises(SettingError, match="planted has no vector for any annotated word"):
        Disambiguation(blind, {"t": test}).evaluate(Long())


def test_a_text_without_senses_is_rejected():
    text, nothing = senses([("e1", "bank", "NOUN", "bank%1")]), senses([])
    for train, tests, message in [
        (
            text,
            {"t": nothing},
            "t: no word is annotated with a sense, so there is nothing to measure",
        ),
        (nothing, {"t": text}, "train: no word .* nothing to train on"),
        (text, {}, "no test text"),
        (text, {"t": replace(text, keys=())}, "no key file"),
    ]:
        with pytest.raises(SettingError, match=message):
            Disambiguation(train, tests)


def test_first_senses_are_read_from_wordnet(tmp_path):
    path = tmp_path / "index.sense"
    path.write_text(
        "bank%1:14:00:: 08420278 1 20\nbank%1:17:01:: 09213565 2 10\nrun%2:38:00:: 01926311 1 5\n"
    )
    assert first_senses(str(path)) == {"bank%NOUN": "bank%1:14:00::", "run%VERB": "run%2:38:00::"}
