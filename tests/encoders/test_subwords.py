"""Words to subwords: the tables against the tokenizers themselves, for every family."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizer

from calque.encoders.subwords import Subwords
from calque.errors import SettingError

BYTE_LEVEL = ("roberta", "modernbert", "gpt2")


def load(folder, **options):
    return AutoTokenizer.from_pretrained(folder, **options)


def as_lists(split):
    """Ids of each sentence, and for each id the number of its word or None, as `word_ids()` gives them."""
    found = []
    for i in range(len(split)):
        ids = split.ids[split.offsets[i] : split.offsets[i + 1]].tolist()
        owner = [None] * len(ids)
        words = range(split.word_offsets[i], split.word_offsets[i + 1])
        for number, word in enumerate(words):
            for place in range(split.word_starts[word], split.word_starts[word] + split.word_lengths[word]):
                assert owner[place] is None
                owner[place] = number
        found.append((ids, owner))
    return found


def is_spelt(word: str) -> bool:
    """The word spells a special subword of one of the families."""
    return any(special in word for special in ("[SEP]", "[CLS]", "[MASK]", "<s>", "</s>", "<mask>", "<pad>"))


def reference(folder, family):
    """The tokenizer set up for words after spaces: as its documentation says, or, where it has no such option, with a
    normalizer that writes the space."""
    if family != "modernbert":
        return load(folder, **({"add_prefix_space": True} if family in BYTE_LEVEL else {}))
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = load(folder)
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    return tokenizer


def test_equal_to_the_tokenizer(any_family_folder, request, multilingual_words):
    family = request.node.callspec.params["any_family_folder"]
    tokenizer = reference(any_family_folder, family)
    subwords = Subwords(load(any_family_folder), max_length=500)
    sentences = [[word for word in words if not is_spelt(word)] for words in multilingual_words]
    sentences += [[], ["a"], ["a"] * 40, ["don't", "1,000.50", "e-mail@x.org", "...", "¿?"], ["naïve", "ﬁne", "Ⅷ"]]
    expected = [tokenizer(words, is_split_into_words=True, split_special_tokens=True) for words in sentences]
    for (ids, owner), theirs in zip(as_lists(subwords.split(sentences)), expected, strict=True):
        assert ids == theirs.input_ids
        assert owner == theirs.word_ids()


@pytest.mark.parametrize("family", BYTE_LEVEL)
def test_a_word_is_split_as_after_a_space(family, family_folders, multilingual_words):
    tokenizer = load(family_folders(family))
    subwords = Subwords(tokenizer, max_length=500)
    assert subwords.needs_space
    for words in multilingual_words[:6]:
        (ids, _), *_ = as_lists(subwords.split([words]))
        text = tokenizer(" " + " ".join(words), add_special_tokens=False).input_ids
        assert ids[len(subwords.prefix) : len(ids) - len(subwords.suffix)] == text


def test_special_subwords_at_the_ends(any_family_folder):
    tokenizer = load(any_family_folder)
    subwords = Subwords(tokenizer)
    assert [*subwords.prefix, *subwords.suffix] == tokenizer("").input_ids
    assert len(subwords.prefix) + len(subwords.suffix) == tokenizer.num_special_tokens_to_add()
    mask = tokenizer("a b", return_special_tokens_mask=True).special_tokens_mask
    assert sum(mask[: len(subwords.prefix)]) == len(subwords.prefix)
    assert sum(mask[len(mask) - len(subwords.suffix) :]) == len(subwords.suffix)


def test_special_subwords_in_the_text_are_ordinary_words(any_family_folder):
    tokenizer = load(any_family_folder)
    subwords = Subwords(tokenizer)
    specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    words = ["[SEP]", "</s>", "<s>", "x</s>y", "[MASK]", "<mask>", "[CLS]", "<pad>", "[PAD]", "<|endoftext|>", "a"]
    split = subwords.split([words])
    inside = split.ids[len(subwords.prefix) : len(split.ids) - len(subwords.suffix)]
    assert not specials & set(inside.tolist())
    assert (split.word_lengths > 0).sum() >= len(words) - 1  # GPT-2 has no unknown subword to write instead
    assert split.word_lengths.sum() == len(inside)
    # and the tokenizer itself is as it was
    assert tokenizer("[SEP] </s> a").input_ids == load(any_family_folder)("[SEP] </s> a").input_ids


def test_words_that_are_nothing(any_family_folder):
    subwords = Subwords(load(any_family_folder))
    nothing = ["", "\u200b", "\u0000", "\u200d", "\ufeff", "\x07"]
    plain = as_lists(subwords.split([["the", "old", "ferry"]]))[0]
    split = subwords.split([["the", *nothing, "old", "", "ferry"]])
    lengths = split.word_lengths.tolist()
    assert split.empty_words == lengths.count(0) >= 2
    if lengths.count(0) == len(nothing) + 1:
        assert as_lists(split)[0][0] == plain[0]
        assert [number for number in as_lists(split)[0][1] if number is not None][-1] == len(nothing) + 3
    ids = subwords.split([["ferry"]]).ids
    last = split.ids[split.word_starts[-1] : split.word_starts[-1] + split.word_lengths[-1]]
    assert last.tolist() == ids[len(subwords.prefix) : len(ids) - len(subwords.suffix)].tolist()
    assert (split.word_starts[split.word_lengths == 0] == 0).all()


def test_lone_surrogates(any_family_folder):
    subwords = Subwords(load(any_family_folder))
    split = subwords.split([["ok", "bad\ud800", "ok"]])
    assert split.ids[split.word_starts[0]] == split.ids[split.word_starts[2]]


def test_truncation_drops_whole_words_and_counts_them(any_family_folder, multilingual_words):
    tokenizer = load(any_family_folder)
    whole = Subwords(tokenizer, max_length=500)
    sentences = [*multilingual_words, ["short"], []]
    long = whole.split(sentences)
    for limit in (5, 9, 16, 33):
        cut = Subwords(tokenizer, max_length=limit).split(sentences)
        assert cut.lengths.max() <= limit
        dropped = shortened = 0
        for i, words in enumerate(sentences):
            a, b = long.word_offsets[i], long.word_offsets[i + 1]
            room, keep = limit - len(whole.prefix) - len(whole.suffix), 0
            for number in range(len(words)):  # literally: word by word while the next one fits wholly
                if long.word_lengths[a : a + number + 1].sum() > room:
                    break
                keep = number + 1
            assert (cut.word_lengths[a : a + keep] == long.word_lengths[a : a + keep]).all()
            assert (cut.word_lengths[a + keep : b] == 0).all()
            ids = long.ids[long.offsets[i] : long.offsets[i + 1]].tolist()
            end = len(whole.prefix) + int(long.word_lengths[a : a + keep].sum())
            expected = ids[:end] + whole.suffix.tolist()
            assert cut.ids[cut.offsets[i] : cut.offsets[i + 1]].tolist() == expected
            dropped += int((long.word_lengths[a + keep : b] > 0).sum())
            shortened += keep < len(words)
        assert (cut.truncated_words, cut.truncated_sentences) == (dropped, shortened)
        assert cut.covered.sum() + cut.truncated_words + cut.empty_words == cut.n_words


def test_threads_share_a_tokenizer(tiny_folder, multilingual_words):
    tokenizer = load(tiny_folder)
    shared, alone = Subwords(tokenizer), Subwords(load(tiny_folder))
    texts = [" ".join(words) for words in multilingual_words]
    expected = [(alone.split([w]).ids, alone.bare([w])[0], alone.split_texts([t]).ids) for w, t in
                zip(multilingual_words, texts, strict=True)]  # fmt: skip

    def read(number):
        words, text = multilingual_words[number % len(texts)], texts[number % len(texts)]
        found = shared.split([words]).ids, shared.bare([words])[0], shared.split_texts([text]).ids
        return all(map(np.array_equal, found, expected[number % len(texts)]))

    before, _ = sys.getswitchinterval(), sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(read, range(1500)))
    finally:
        sys.setswitchinterval(before)


def test_the_tokenizers_own_truncation_and_padding_do_not_matter(tiny_folder, multilingual_words):
    tokenizer = load(tiny_folder)
    expected = Subwords(tokenizer).split(multilingual_words).ids
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert np.array_equal(Subwords(tokenizer).split(multilingual_words).ids, expected)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4
    assert tokenizer.backend_tokenizer.padding["length"] == 50


def test_a_slow_tokenizer_is_refused():
    class Slow(PreTrainedTokenizer):
        vocab_size = 1

        def get_vocab(self):
            return {"a": 0}

        def _tokenize(self, text):
            return list(text)

    with pytest.raises(SettingError, match="slow tokenizer.*tokenizer.json"):
        Subwords(Slow())


def test_lower_casing_tokenizers(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "##s", "a"]))
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path, do_lower_case=True)
    words = ["Cafés", "CAFE", "A", "\u0301"]
    (ids, owner), *_ = as_lists(Subwords(tokenizer).split([words]))
    theirs = tokenizer(words, is_split_into_words=True)
    assert (ids, owner) == (theirs.input_ids, theirs.word_ids())
