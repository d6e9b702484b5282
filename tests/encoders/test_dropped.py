"""Subwords that are left out at random, against slow literal transcriptions of both papers' algorithms."""

from __future__ import annotations

import json
from itertools import chain, pairwise

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.encoders.dropped import SubwordDropout
from calque.errors import SettingError
from calque.text import Sentences

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


class Numbers:
    """Random numbers of one word, as SplitMix64 gives them."""

    def __init__(self, seed, sentence, place):
        start = int(np.random.SeedSequence(seed).generate_state(1, dtype=np.uint64)[0])
        self.state = mix((mix((start + GOLDEN * (sentence + 1)) & MASK) + GOLDEN * (place + 1)) & MASK)

    def __call__(self) -> float:
        self.state = (self.state + GOLDEN) & MASK
        return (mix(self.state) >> 11) / 2**53


def maxmatch(text: str, vocabulary: dict, p: float, draw) -> list[int] | None:
    """Hiraoka (2022): the longest subword that is not left out; single letters never are."""
    ids, start = [], 0
    while start < len(text):
        for end in range(len(text), start, -1):
            piece = ("##" if start else "") + text[start:end]
            if piece in vocabulary and (end == start + 1 or draw() >= p):
                break
        else:
            return None
        ids.append(vocabulary[piece])
        start = end
    return ids


def bpe(text: str, vocabulary: dict, merges: list[tuple[str, str]], p: float, draw) -> list[int]:
    """Provilkov et al. (2020), Algorithm 1, as in subword-nmt: of all merges that are possible each is left out with
    probability p, and the first of the others is done at all places where it was not."""
    rank, word = {pair: k for k, pair in enumerate(merges)}, list(text)
    while len(word) > 1:
        pairs = [(rank[pair], i, pair) for i, pair in enumerate(pairwise(word)) if pair in rank and draw() >= p]
        if not pairs:
            break
        bigram = min(pairs)[2]
        i, new_word = 0, []
        for j in [i for (_, i, pair) in pairs if pair == bigram]:
            if j < i:
                continue
            new_word += [*word[i:j], "".join(bigram)]
            i = j + 2
        word = new_word + word[i:]
    return [vocabulary[piece] for piece in word]


def parts(backend, word: str) -> list[str]:
    text = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
    return [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.fixture(scope="module")
def texts(multilingual_words):
    sentences = [*multilingual_words, ["harbour"] * 30, ["x\x00", "\x00", "a\U0001f9e9b"]]
    return [Sentences.of(sentences[:9], "en"), Sentences.of(sentences[9:], "xx")]


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_words_are_cut_as_the_papers_say(family_folders, texts, family, p):
    subwords = load_encoder(family_folders(family)).subwords
    backend = subwords.backend
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(merge) for merge in model.get("merges", ())]
    sentences = [sentence.words for text in texts for sentence in text]
    plain = subwords.split(sentences)
    dropout = SubwordDropout(subwords, texts, plain, p)
    chosen, seed = np.random.default_rng(0).permutation(len(sentences)), (3, 17)
    found = dropout.split(chosen, seed)
    changed = words = 0
    for row, number in enumerate(chosen):
        usual, first = plain.take(np.array([number])), found.word_offsets[row]
        ids = found.ids[found.offsets[row] : found.offsets[row + 1]]
        sentence = []
        for place, word in enumerate(sentences[number]):
            at, size = usual.word_starts[place], usual.word_lengths[place]
            as_usual = usual.ids[at : at + size].tolist()
            spaced = " " + word if subwords.needs_space else word
            cut, plainly, draw = [], [], Numbers(seed, int(number), place)
            for part in parts(backend, spaced):
                for out, share, source in ((cut, p, draw), (plainly, 0.0, lambda: 1.0)):
                    if family == "bert":
                        out.append(maxmatch(part, model["vocab"], share, source))
                    else:
                        out.append(bpe(part, model["vocab"], merges, share, source))
            fits = None not in cut and None not in plainly and [*chain(*plainly)] == as_usual
            sentence.append([*chain(*cut)] if fits and as_usual else as_usual)
        total = sum(map(len, sentence)) + len(subwords.prefix) + len(subwords.suffix)
        if total > subwords.max_length:
            assert ids.tolist() == usual.ids.tolist()
            continue
        for place, expected in enumerate(sentence):
            at, size = found.word_starts[first + place], found.word_lengths[first + place]
            assert ids[at : at + size].tolist() == expected
            changed += expected != usual.ids[usual.word_starts[place] :][: usual.word_lengths[place]].tolist()
            words += 1
    assert changed > 0.5 * p * words
    np.testing.assert_array_equal(found.covered, plain.take(chosen).covered)
    np.testing.assert_array_equal(found.lengths <= subwords.max_length, True)


def test_it_depends_on_seed_sentence_and_place_alone(tiny_encoder, texts):
    plain = tiny_encoder.split([sentence for text in texts for sentence in text])
    dropout = tiny_encoder.dropping(texts, plain, 0.4)
    whole, other = (dropout.split(np.arange(len(plain)), (0, n)) for n in (1, 2))
    assert whole.ids.tolist() != other.ids.tolist()
    some = np.array([7, 2, 11])
    np.testing.assert_array_equal(dropout.split(some, (0, 1)).ids, whole.take(some).ids)
    long = next(k for k, sentence in enumerate(texts[1]) if len(sentence) == 30) + len(texts[0])
    assert (whole.lengths[long] == plain.lengths[long]) or whole.lengths[long] <= tiny_encoder.max_length


def test_a_tokenizer_of_another_kind_is_refused(family_folders, texts):
    encoder = load_encoder(family_folders("xlm-roberta"))
    sentences = [sentence for text in texts for sentence in text]
    with pytest.raises(SettingError, match="kinds BPE and WordPiece, and this one is Unigram"):
        encoder.dropping(texts, encoder.split(sentences), 0.1)
