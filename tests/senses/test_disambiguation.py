"""Word sense disambiguation against the slowest possible program, and the XML of the unified evaluation framework."""

from __future__ import annotations

import gzip
import re

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
KEYS = "d0.s0.t0 group%1:03:00::\nd9.s0.t0 other%1:00:00::\nd0.s0.t1 say%2:32:00:: say%2:32:01::\nd1.s0.t0 evidence%1:09:00::\n"


def write(folder, content, name="f.data.xml"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_and_where_the_instances_stand(tmp_path):
    text = read_senses(write(tmp_path, DATA))
    words = [sentence.words for sentence in text.sentences]
    assert words == [("The", "Fulton_County_Grand_Jury", "said"), ("&",), ("no", "évidence")]
    assert (text.sentence.tolist(), text.word.tolist()) == ([0, 0, 2], [1, 2, 1])
    assert (text.lemmas, text.pos) == (("group", "say", "evidence"), ("NOUN", "VERB", "NOUN"))
    assert text.ids == ("d0.s0.t0", "d0.s0.t1", "d1.s0.t0")
    assert (text.keys, text.path, text.sentences.lang) == ((), str(tmp_path / "f.data.xml"), "en")


@pytest.mark.parametrize(("data", "keys"), [("", ""), (".gz", ".gz"), (".gz", ""), ("", ".gz")])
def test_keys_are_found_beside_the_text(tmp_path, data, keys):
    pack = {"": bytes, ".gz": gzip.compress}
    path = write(tmp_path, pack[data](DATA.encode()), f"f.data.xml{data}")
    beside = write(tmp_path, pack[keys](KEYS.encode()), f"f.gold.key.txt{keys}")
    expected = (("group%1:03:00::",), ("say%2:32:00::", "say%2:32:01::"), ("evidence%1:09:00::",))
    assert read_senses(path).keys == expected
    other = write(tmp_path, DATA, "other.xml")
    assert read_senses(other).keys == ()
    assert read_senses(other, keys=beside).keys == expected


@pytest.mark.parametrize(
    ("keys", "place", "fact"),
    [
        ("d0.s0.t0 a%1\nd0.s0.t1\n", "k line 2", "'d0.s0.t1' without a key, expected the keys of each instance"),
        ("d0.s0.t0 a%1\n\nd0.s0.t0 b%1\n", "k line 3", "'d0.s0.t0' for the second time"),
        (b"d0.s0.t0 a%1\n\xff b%1\n", "k line 2", "byte 0xff at position 0 is not UTF-8"),
        ("d0.s0.t0 a%1\nd1.s0.t0 a%1\n", "f.data.xml line 4", "the instance 'd0.s0.t1' has no key in"),
        ("", "f.data.xml line 4", "the instance 'd0.s0.t0' has no key in"),
    ],
)
def test_keys_that_are_damaged_or_of_another_text(tmp_path, keys, place, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA), keys=write(tmp_path, keys, "k"))
    assert str(caught.value).startswith(f"{tmp_path}/{place}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "fact"),
    [
        ("</instance>", "</wf>", 6, "not well-formed XML (mismatched tag: line 6"),
        ("corpus", "tmx", 2, "the document is <tmx>, expected <corpus>"),
        (' lemma="group"', "", 4, "an <instance> without id, lemma or pos"),
        ("d0.s0.t1", "d0.s0.t0", 4, "the id 'd0.s0.t0' for the second time"),
        (">The<", "> \n <", 4, "a <wf> without text, expected a word"),
        ("encoding='utf-8'", "encoding='no-such'", 1, "not well-formed XML (unknown encoding: no-such"),
    ],
)
def test_documents_that_are_damaged(tmp_path, old, new, line, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA.replace(old, new, 1)))
    assert str(caught.value).startswith(f"{tmp_path}/f.data.xml line {line}: ")


def test_nothing_to_read(tmp_path):
    with pytest.raises(InputError, match=r"f\.data\.xml: no sentence could be read: the document has none"):
        read_senses(write(tmp_path, "<corpus/>"))
    with pytest.raises(InputError, match=r"no element found"):
        read_senses(write(tmp_path, ""))
    with pytest.raises(InputError, match=r"no-such: cannot be read"):
        read_senses(tmp_path / "no-such")


# -- the task ---------------------------------------------------------------------------------------------------------
def senses(instances):
    """Each instance a sentence of one word: (word, lemma, pos, keys)."""
    text = Sentences.of([[word] for word, *_ in instances], "en")
    numbers = np.arange(len(instances))
    return SenseText(
        text, numbers, np.zeros_like(numbers), tuple(i[1] for i in instances), tuple(i[2] for i in instances),
        tuple(f"i{k}" for k in numbers), tuple(tuple(i[3].split()) for i in instances),
    )  # fmt: skip


def test_a_word_takes_the_nearest_sense_of_its_lemma():
    train = senses([("e1", "bank", "NOUN", "bank%1"), ("e1", "bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2"),
                    ("e3", "run", "VERB", "run%1")])  # fmt: skip
    test = senses([("e1", "Bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2 bank%3"), ("e2", "bank", "NOUN", "bank%1"),
                   ("e1", "bank", "VERB", "bank%9"), ("e3", "run", "VERB", "run%1")])  # fmt: skip
    score = Disambiguation(train, {"t": test}).evaluate(Planted())[0]
    assert score.value == pytest.approx(2 * 3 / (4 + 5))  # the verb has no answer
    assert (score.n, score.settings["unseen_lemmas"], score.settings["answered"]) == (5, 1, 4)
    backed = Disambiguation(train, {"t": test}, first_sense={"bank%VERB": "bank%9"}).evaluate(Planted())[0]
    assert backed.value == pytest.approx(4 / 5)
    with pytest.raises(SettingError, match="its vectors are of key points, expected words"):
        Disambiguation(train, {"t": test}).evaluate(KeyPoints())


class Long(Planted):
    """`e8` is `e1`, ten times as long, and a word with `?` has no vector."""

    def vector(self, word):
        if "?" in word:
            return np.zeros(self.dim)
        if word in ("e8", "e9"):
            return 10 * super().vector("e1") if word == "e8" else super().vector("e2") - super().vector("e1")
        return super().vector(word)

    def encode(self, sentences, **options):
        found = super().encode(sentences, **options)
        return Embeddings(found.data, found.offsets, found.data.any(axis=1))


def test_a_sense_is_the_mean_of_its_vectors_as_they_are():
    """Against a loop: means of raw vectors, then the cosine."""
    rng = np.random.default_rng(0)
    words, keys = ["e1", "e2", "e3", "e4", "e8", "e9"], ["bank%1", "bank%2", "bank%3"]
    train = senses([(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(30)])
    test = senses([(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(60)])
    encoder = Long()

    def vector(text, i):
        return encoder.vector(text.sentences[i].words[0]).astype(np.float32).astype(float)

    means = {
        key: np.mean([vector(train, i) for i in range(len(train)) if train.keys[i] == (key,)], axis=0) for key in keys
    }
    right = 0
    for i in range(len(test)):
        x = vector(test, i)
        best = max(keys, key=lambda key: x @ means[key] / np.linalg.norm(means[key]))
        right += best in test.keys[i]
    (score,) = Disambiguation(train, {"t": test}, bootstrap=0).evaluate(encoder)
    assert score.value == pytest.approx(right / len(test))


def test_words_without_a_vector_take_the_first_sense_or_are_wrong():
    train = senses([("e1", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2"),
                    ("?", "bank", "NOUN", "bank%3"), ("?", "run", "VERB", "run%1")])  # fmt: skip
    test = senses([("e1", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%2"),
                   ("e3", "run", "VERB", "run%1")])  # fmt: skip
    (score,) = Disambiguation(train, {"t": test}, bootstrap=0).evaluate(Long())
    counts = {
        name: score.settings[name]
        for name in ("words_without_vector", "training_words_without_vector", "senses_without_vector")
    }
    assert counts == {"words_without_vector": 2, "training_words_without_vector": 3, "senses_without_vector": 2}
    assert (score.n, score.settings["answered"]) == (4, 1)  # the verb's only sense has no vector
    assert score.value == pytest.approx(2 * 1 / (1 + 4))
    first = {"bank%NOUN": "bank%1", "run%VERB": "run%1"}
    (backed,) = Disambiguation(train, {"t": test}, first_sense=first, bootstrap=0).evaluate(Long())
    assert backed.value == pytest.approx(3 / 4)
    blind = senses([("?", "bank", "NOUN", "bank%1")])
    with pytest.raises(SettingError, match="planted has no vector for any annotated word"):
        Disambiguation(blind, {"t": test}).evaluate(Long())


def test_a_text_without_senses_has_nothing_to_measure():
    text, nothing = senses([("e1", "bank", "NOUN", "bank%1")]), senses([])
    with pytest.raises(SettingError, match="t: not one word is annotated with a sense, so there is nothing to measure"):
        Disambiguation(text, {"t": nothing})
    with pytest.raises(SettingError, match="train: not one word .* nothing to learn"):
        Disambiguation(nothing, {"t": text})
    with pytest.raises(SettingError, match="no text to test on"):
        Disambiguation(text, {})
    bare = SenseText(text.sentences, text.sentence, text.word, text.lemmas, text.pos, text.ids, ())
    with pytest.raises(SettingError, match="no key file"):
        Disambiguation(text, {"t": bare})


def test_first_senses_of_wordnet(tmp_path):
    path = tmp_path / "index.sense"
    path.write_text("bank%1:14:00:: 08420278 1 20\nbank%1:17:01:: 09213565 2 10\nrun%2:38:00:: 01926311 1 5\n")
    assert first_senses(str(path)) == {"bank%NOUN": "bank%1:14:00::", "run%VERB": "run%2:38:00::"}
