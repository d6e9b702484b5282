"""Compare subwords with the output of the tokenizer, for every model family."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from transformers import AutoTokenizer

from calque.encoders.subwords import Subwords

BYTE_LEVEL = ("roberta", "modernbert", "gpt2")


def load(folder, **options):
    return AutoTokenizer.from_pretrained(folder, **options)


def as_lists(split):
    """Return the ids of each sentence and, as in `word_ids()`, the word index of each id (None for
    special tokens).
    """
    found = []
    for i in range(len(split)):
        ids = split.ids[split.offsets[i] : split.offsets[i + 1]].tolist()
        owner = [None] * len(ids)
        words = range(split.word_offsets[i], split.word_offsets[i + 1])
        for number, word in enumerate(words):
            for place in range(
                split.word_starts[word], split.word_starts[word] + split.word_lengths[word]
            ):
                assert owner[place] is None
                owner[place] = number
        found.append((ids, owner))
    return found


def is_spelt(word: str) -> bool:
    """Return whether the word contains a special token of one of the families."""
    return any(
        special in word
        for special in ("[SEP]", "[CLS]", "[MASK]", "<s>", "</s>", "<mask>", "<pad>")
    )


def reference(folder, family):
    """Return the tokenizer set up for words that follow a space; ModernBERT requires a custom
    pre-tokenizer.
    """
    if family != "modernbert":
        return load(folder, **({"add_prefix_space": True} if family in BYTE_LEVEL else {}))
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = load(folder)
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    return tokenizer


def test_subwords_equal_the_output_of_the_tokenizer(any_family_folder, request, multilingual_words):
    family = request.node.callspec.params["any_family_folder"]
    tokenizer = reference(any_family_folder, family)
    subwords = Subwords(load(any_family_folder), max_length=500)
    sentences = [[word for word in words if not is_spelt(word)] for words in multilingual_words]
    sentences += [
        [],
        ["a"],
        ["a"] * 40,
        ["don't", "1,000.50", "e-mail@x.org", "...", "¿?"],
        ["naïve", "ﬁne", "Ⅷ"],
    ]
    expected = [
        tokenizer(words, is_split_into_words=True, split_special_tokens=True) for words in sentences
    ]
    for (ids, owner), theirs in zip(as_lists(subwords.split(sentences)), expected, strict=True):
        assert ids == theirs.input_ids
        assert owner == theirs.word_ids()


def test_special_tokens_in_the_text_are_ordinary_words(any_family_folder):
    tokenizer = load(any_family_folder)
    subwords = Subwords(tokenizer)
    specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    words = [
        "[SEP]",
        "</s>",
        "<s>",
        "x</s>y",
        "[MASK]",
        "<mask>",
        "[CLS]",
        "<pad>",
        "[PAD]",
        "<|endoftext|>",
        "a",
    ]
    split = subwords.split([words])
    inside = split.ids[len(subwords.prefix) : len(split.ids) - len(subwords.suffix)]
    assert not specials & set(inside.tolist())
    assert (split.word_lengths > 0).sum() >= len(
        words
    ) - 1  # allows for GPT-2, which has no unknown token
    assert split.word_lengths.sum() == len(inside)
    # The tokenizer itself is not modified.
    assert tokenizer("[SEP] </s> a").input_ids == load(any_family_folder)("[SEP] </s> a").input_ids


def test_words_without_subwords_are_skipped(any_family_folder):
    subwords = Subwords(load(any_family_folder))
    nothing = ["", "\u200b", "\u0000", "\u200d", "\ufeff", "\x07"]
    plain = as_lists(subwords.split([["the", "old", "ferry"]]))[0]
    split = subwords.split([["the", *nothing, "old", "", "ferry"]])
    lengths = split.word_lengths.tolist()
    assert split.empty_words == lengths.count(0) >= 2
    if lengths.count(0) == len(nothing) + 1:
        assert as_lists(split)[0][0] == plain[0]
        assert [number for number in as_lists(split)[0][1] if number is not None][-1] == len(
            nothing
        ) + 3
    ids = subwords.split([["ferry"]]).ids
    last = split.ids[split.word_starts[-1] : split.word_starts[-1] + split.word_lengths[-1]]
    assert last.tolist() == ids[len(subwords.prefix) : len(ids) - len(subwords.suffix)].tolist()
    assert (split.word_starts[split.word_lengths == 0] == 0).all()
    broken = subwords.split([["ok", "bad\ud800", "ok"]])  # contains a lone surrogate
    assert broken.ids[broken.word_starts[0]] == broken.ids[broken.word_starts[2]]


def test_truncation_drops_and_counts_whole_words(any_family_folder, multilingual_words):
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
            for number in range(len(words)):  # keep words as long as the next word fits completely
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


def test_a_tokenizer_can_be_shared_between_threads(tiny_folder, multilingual_words):
    tokenizer = load(tiny_folder)
    shared, alone = Subwords(tokenizer), Subwords(load(tiny_folder))
    texts = [" ".join(words) for words in multilingual_words]
    expected = [
        (alone.split([w]).ids, alone.split_texts([t]).ids)
        for w, t in zip(multilingual_words, texts, strict=True)
    ]

    def read(number):
        words, text = multilingual_words[number % len(texts)], texts[number % len(texts)]
        found = shared.split([words]).ids, shared.split_texts([text]).ids
        return all(map(np.array_equal, found, expected[number % len(texts)]))

    before, _ = sys.getswitchinterval(), sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(read, range(1500)))
    finally:
        sys.setswitchinterval(before)


def test_truncation_and_padding_settings_of_the_tokenizer_are_ignored(
    tiny_folder, multilingual_words
):
    tokenizer = load(tiny_folder)
    expected = Subwords(tokenizer).split(multilingual_words).ids
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert np.array_equal(Subwords(tokenizer).split(multilingual_words).ids, expected)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4
    assert tokenizer.backend_tokenizer.padding["length"] == 50
