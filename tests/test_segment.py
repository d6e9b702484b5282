"""Tests of word segmentation: examples for every rule, and properties that hold for any text."""

from __future__ import annotations

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calque.segment import _UNSEEN, Chunks, Segmenter, split_words, word_places

EXAMPLES = [
    ("en", "I don't know.", "I don 't know ."),
    ("en", "It’s the dogs' food, isn't it?", "It ’s the dogs ' food , isn 't it ?"),
    ("en", "the 1990's and the '90s", "the 1990 's and the ' 90s"),
    ("en", "'quoted' \"text\" (here)", "' quoted ' \" text \" ( here )"),
    ("en", "well-known - yes -- or no...", "well-known - yes -- or no ..."),
    ("en", "1,000.50 costs $5, or -5% at 10:30", "1,000.50 costs $ 5 , or -5 % at 10:30"),
    ("en", "Mr. Smith and J. Doe of the U.S. met.", "Mr. Smith and J. Doe of the U.S. met ."),
    ("en", "No. 5, approx. half. The end. It was", "No. 5 , approx. half . The end . It was"),
    ("en", "He said no. Then left, e.g. for London.", "He said no . Then left , e.g. for London ."),
    ("en", "See https://example.org/a_(b)?q=1, yes.", "See https://example.org/a_(b)?q=1 , yes ."),
    ("en", "``quoted'' **bold**", "`` quoted '' ** bold **"),
    ("en", "write to a.b@c.org.", "write to a.b@c.org ."),
    (
        "en",
        "call get_x() in docs/index.rst, %(name)s or %d",
        "call get_x ( ) in docs/index.rst , %(name)s or %d",
    ),
    (
        "en",
        "/usr/lib and ~/x and/or --verbose=3 C++ C#",
        "/usr/lib and ~/x and / or --verbose = 3 C++ C#",
    ),
    ("en", "🙂👍🏽 🇩🇪 ❤️!", "🙂 👍🏽 🇩🇪 ❤️ !"),
    ("en", "a\x00b\x07 \u200b\ufeff c", "a b c"),
    (
        "de",
        "Vor- und Nachteile am 3. Mai; geht's Dr. M?",
        "Vor- und Nachteile am 3. Mai ; geht 's Dr. M ?",
    ),
    (
        "fr",
        "L'homme d'aujourd'hui n'a-t-il « l’été » ?",
        "L' homme d' aujourd'hui n' a-t-il « l’ été » ?",
    ),
    ("uk", "п'ять об’єктів", "п'ять об’єктів"),
    ("he", 'צה"ל', 'צה"ל'),
    ("ca", "col·lecció d'art", "col·lecció d' art"),
    ("fa", "می\u200cخواهم", "می\u200cخواهم"),
    ("hi", "नमस्ते दुनिया।", "नमस्ते दुनिया ।"),
    ("ar", "كيف؟ ٣٫٥", "كيف ؟ ٣٫٥"),
    ("ko", "대한민국(漢字)", "대한민국 ( 漢字 )"),
    ("zh", "我爱北京天安门。", "我 爱 北京 天安门 。"),
    ("zh", "见https://example.org/x/谢谢，第3章", "见 https://example.org/x/ 谢谢 ， 第 3 章"),
    ("zh", "NotImplementedError和False", "NotImplementedError 和 False"),
    ("zh-Hant", "臺灣的語言政策", "臺灣 的 語言 政策"),
    ("ja", "Python3.11で読みました。", "Python3.11 で 読み まし た 。"),
    ("th", "ยกเลิกวันอังคาร 4", None),
    ("", "unknown language's text", "unknown language 's text"),
]


@pytest.mark.parametrize(("lang", "text", "words"), EXAMPLES)
def test_rules_give_the_expected_words(lang, text, words):
    found = split_words(text, lang)
    if words is None:
        assert len(found) > 3
    else:
        assert found == words.split(" ")


@pytest.mark.parametrize(
    ("tag", "like"),
    [("en-US", "en"), ("fr_CA", "fr"), ("zho_Hans", "zh"), ("zh-TW", "zh-Hant"), ("deu", "de")],
)
def test_different_tags_of_one_language_give_the_same_words(tag, like):
    text = "L'homme isn't am 3. Mai 我爱北京天安门"
    assert split_words(text, tag) == split_words(text, like)


LANGS = st.sampled_from(["en", "fr", "uk", "de", "zh", "zh-Hant", "ja", "th", "", "he"])
HARD = """don't l'été U.S. ... -- a-b 1,000 10:30 http://a.b/c /usr/lib a@b.cd %(x)s . ' ’ - _ C++
我爱 で読み วัน 👍🏽 é"""
PIECES = st.sampled_from([*HARD.split(), "\u0301", "\u200d", "\u200b", "\x00", "\u2028", "\u00a0"])
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(st.one_of(PIECES, st.just(" ")), max_size=12).map("".join)
)
HIDDEN = regex.compile(f"[{_UNSEEN}]+", regex.VERSION1)


@given(TEXTS, LANGS)
@settings(max_examples=200, deadline=None)
def test_joined_words_equal_the_text(text, lang):
    words = split_words(text, lang)
    assert all(words)
    assert all(HIDDEN.sub("", word) for word in words)
    assert HIDDEN.sub("", "".join(words)) == HIDDEN.sub("", text)
    assert not any(character.isspace() for word in words for character in word)


@given(TEXTS, LANGS)
@example("Mr\u200b. X sees Mr. Y", "en")
@settings(max_examples=200, deadline=None)
def test_the_character_range_of_a_word_contains_exactly_this_word(text, lang):
    words = split_words(text, lang)
    places = word_places(text, words)
    assert [HIDDEN.sub("", text[a:b]) for a, b in places] == [
        HIDDEN.sub("", word) for word in words
    ]
    edges = [0, *(edge for place in places for edge in place), len(text)]
    assert edges == sorted(edges)
    assert not HIDDEN.sub(
        "", "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    )


@given(
    TEXTS.filter(lambda text: "\u200b" not in text), st.sampled_from(["en", "fr", "uk", "de", ""])
)
@settings(max_examples=150, deadline=None)
def test_the_fast_path_equals_the_pattern(text, lang):
    """Check words with and without a following punctuation mark."""
    chunks = Chunks(lang, None)
    for chunk in text.split():
        assert list(chunks[chunk]) == [match[0] for match in chunks.short.finditer(chunk)]


def test_words_do_not_depend_on_the_cache():
    fresh, used = Segmenter("en"), Segmenter("en")
    for k in range(200):
        used.split(f"filler{k} Mr. U.S.")
    text = "Mr. Smith isn't in the U.S. now."
    assert fresh.split(text) == used.split(text) == used.split(text)


def test_the_cache_of_chunks_is_bounded(monkeypatch):
    monkeypatch.setattr("calque.segment._KEPT", 50)
    splitter = Segmenter("en")
    for k in range(500):
        splitter.split(f"word{k}")
    assert len(splitter.chunks) <= 50


@pytest.mark.parametrize(
    "piece", ["a.", "a/", "+a", "a'", "%a", "a-", "中", "(", "1,", "\u200d", "a@b."]
)
def test_long_text_without_spaces_can_be_segmented(piece):
    text = piece * (100_000 // len(piece))
    for lang in ("en", "fr", "zh"):
        words = split_words(text, lang)
        assert HIDDEN.sub("", "".join(words)) == HIDDEN.sub("", text)
