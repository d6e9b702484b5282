"""Tests of static vectors: file formats, fastText n-gram hashes, and vectors with sentence
statistics.
"""

import gzip
import struct

import numpy as np
import pytest

from calque.alignment.maps import LinkedMaps
from calque.encoders import load_encoder
from calque.encoders.static import StaticEncoder, WordTable, load_static, read_table
from calque.errors import CalqueError, CalqueWarning, InputError, SettingError, SkippedWarning
from calque.maps import Rotation
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentence, Sentences

WORDS = ["</s>", "the", "Haus", "ß", "日本"]
RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((5, 3)).astype(np.float32)
BUCKET, MINN, MAXN = 11, 2, 4


def as_text(words=WORDS, vectors=VECTORS, header=True, end="\n"):
    lines = [f"{len(words)} {vectors.shape[1]}"] * header
    lines += [
        f"{word} {' '.join(repr(float(v)) for v in row)}"
        for word, row in zip(words, vectors, strict=True)
    ]
    return (end.join(lines) + end).encode()


def as_binary(words=WORDS, vectors=VECTORS, newline=b"\n"):
    rows = [
        word.encode() + b" " + row.astype("<f4").tobytes() + newline
        for word, row in zip(words, vectors, strict=True)
    ]
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


def as_fasttext(
    words=WORDS,
    rows=None,
    *,
    version=12,
    labels=(),
    quantised=False,
    pruned=-1,
    model=2,
    maxn=MAXN,
    magic=793712314,
):
    """Return the bytes that `FastText::saveModel` writes up to and including the input matrix."""
    rows = fasttext_rows() if rows is None else rows
    out = struct.pack("<ii", magic, version)
    out += struct.pack(
        "<12id", rows.shape[1], 5, 5, 1, 5, 1, 2, model, BUCKET, MINN, maxn, 100, 1e-4
    )
    out += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 1000, pruned)
    for kind, names in enumerate((words, labels)):
        out += b"".join(word.encode() + b"\0" + struct.pack("<qb", 7, kind) for word in names)
    return (
        out
        + struct.pack("<bqq", quantised, *rows.shape)
        + rows.astype("<f4").tobytes()
        + b"output side"
    )


def fasttext_rows():
    return np.concatenate(
        [VECTORS, np.random.default_rng(1).standard_normal((BUCKET, 3)).astype(np.float32)]
    )


def fnv(data: bytes) -> int:
    """Compute fastText's `Dictionary::hash` with the integer types of C."""
    value = 2166136261
    for byte in data:
        signed = byte - 256 if byte > 127 else byte
        value = ((value ^ (signed & 0xFFFFFFFF)) * 16777619) % 2**32
    return value


def slow_fasttext(word):
    """Average the vectors of the word and of all substrings of `<word>` with 2 to 4 characters."""
    rows, marked = fasttext_rows().astype(float), f"<{word}>"
    chosen = [WORDS.index(word)] if word in WORDS else []
    if word != "</s>":
        for size in range(MINN, MAXN + 1):
            for start in range(len(marked) - size + 1):
                chosen.append(len(WORDS) + fnv(marked[start : start + size].encode()) % BUCKET)
    return rows[chosen].mean(axis=0)


@pytest.fixture
def write(tmp_path):
    def write(content, name="vectors"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    "content",
    [
        as_text(),
        as_text(header=False),
        as_text(end="\r\n"),
        as_text().replace(b"\n", b" \n"),
        as_text().rstrip(b"\n"),
        as_binary(),
        as_binary(newline=b""),
        gzip.compress(as_text()),
        gzip.compress(as_binary()),
    ],
)
def test_word2vec_glove_and_binary_files_are_read(write, content):
    table = read_table(write(content))
    assert table.words == WORDS
    np.testing.assert_array_equal(table.matrix, VECTORS)
    vectors, known = table.lookup(["ß", "none", "THE", "haus"])
    assert known.tolist() == [
        True,
        False,
        True,
        False,
    ]  # unknown words are looked up in lower, not upper case
    np.testing.assert_array_equal(vectors, [VECTORS[3], [0, 0, 0], VECTORS[1], [0, 0, 0]])
    assert not table.lookup(["THE"], lower=False)[1].any()


def test_files_longer_than_a_block_are_read_completely_or_up_to_a_limit(write):
    words = [f"w{i}" for i in range(9000)]
    vectors = np.arange(18000, dtype=np.float32).reshape(9000, 2)
    for content in (as_text(words, vectors), as_binary(words, vectors)):
        table = read_table(write(content))
        assert table.words == words
        np.testing.assert_array_equal(table.matrix, vectors)
        assert read_table(write(content), limit=2).words == words[:2]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_changes_nothing(write, pack, header):
    for mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
    ):
        table = read_table(
            write(pack(mark + as_text(header=header).decode().encode(encoding)), "v.vec")
        )
        assert table.words == WORDS
        np.testing.assert_array_equal(table.matrix, VECTORS)


def test_fields_can_be_separated_by_tabs(write):
    np.testing.assert_array_equal(read_table(write(as_text().replace(b" ", b"\t"))).matrix, VECTORS)


MANY = "".join(f"w{k} 1 {k}\n" for k in range(1, 19)).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"m\xfcde 1 2", "not UTF-8"),
        (b"m\xc3 1 2", "not UTF-8"),
        (b" 1 2", "no word"),
        (b"a 0 1 2", "more numbers than dimensions"),
    ],
)
def test_lines_without_a_usable_word_are_skipped_and_counted(write, line, reason):
    for header in (b"19 2\n", b""):
        path = write(header + b"w0 1 0\n" + line + b"\n" + MANY.replace(b"w18 1 18\n", b""))
        with pytest.warns(
            SkippedWarning,
            match=rf"skipped 1 of 19 words: 1 × {reason} \(first: .*line {2 + bool(header)}\)",
        ):
            table = read_table(path)
        assert table.words == [f"w{k}" for k in range(18)]
        np.testing.assert_array_equal(table.matrix, [[1, k] for k in range(18)])
    rest = (
        MANY.replace(b"w18 1 18\n", b"")
        .replace(b"w17 1 17\n", line + b"\n")
        .replace(b"w16 1 16\n", line + b"\n")
    )
    with pytest.raises(
        InputError,
        match=r"line 17: 2 of 17 words cannot be used, expected at most a tenth; the first: ",
    ):
        read_table(write(b"17 2\n" + rest))


def test_binary_words_that_are_not_utf8_are_skipped_or_cannot_be_matched(write):
    words = [f"w{k}" for k in range(20)]
    vectors = np.arange(60, dtype=np.float32).reshape(20, 3)
    with pytest.warns(
        SkippedWarning, match=r"skipped 1 of 20 words: 1 × not UTF-8 \(first: .* word 4\)"
    ):
        table = read_table(write(as_binary(words, vectors).replace(b"w3 ", b"w\xfc ")))
    assert table.words == words[:3] + words[4:]
    np.testing.assert_array_equal(table.matrix, np.delete(vectors, 3, axis=0))
    with pytest.warns(
        CalqueWarning, match="2 of 5 words are not UTF-8, so no word of a text can match them"
    ):
        table = read_table(
            write(as_fasttext().replace(b"the\0", b"t\xfce\0").replace(b"Haus\0", b"t\xfde\0"))
        )
    assert len(set(table.words)) == 5
    assert table.words[3:] == WORDS[3:]


def test_a_header_that_declares_too_few_words_is_reported(write):
    with pytest.warns(
        CalqueWarning, match="the header declares 2 words, but the file has 3; all of them are used"
    ):
        table = read_table(write(b"2 2\nx 1 2\ny 3 4\nz 5 6\n\n"))
    assert table.words == ["x", "y", "z"]
    assert read_table(write(b"2 2\nx 1 2\ny 3 4\nz 5 6\n"), limit=2).words == ["x", "y"]
    with pytest.raises(InputError, match="line 4: invalid number"):
        read_table(write(b"2 2\nx 1 2\ny 3 4\nz 5 a\n"))
    with pytest.raises(InputError, match="declares 5 words, but more data follow"):
        read_table(write(as_binary() + b"x 1234"))
    assert read_table(write(as_binary() + b"x 1234"), limit=4).words == WORDS[:4]


@pytest.mark.parametrize("first", [b"dog 0.5", b"words 2", b"2 2.0", b"-2 2", b"dog hund"])
def test_two_fields_that_are_not_whole_numbers_are_not_a_header(write, first):
    with pytest.raises(
        InputError,
        match=rf"line 1: the first line is '{first.decode()}', expected `words dimensions`",
    ):
        read_table(write(first + b"\nx 1 2\ny 3 4\n"))


def test_words_can_contain_spaces_and_the_first_of_duplicates_is_used(write):
    with pytest.warns(
        CalqueWarning, match="1 of 3 words are repeated; the first vector of each is used"
    ):
        table = read_table(write(b"3 2\n. . . 1 2\nb 3 4\nb 5 6\n"))
    assert table.words == [". . .", "b", "b"]
    np.testing.assert_array_equal(table.lookup([". . .", "b"])[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("version", [11, 12])
def test_fasttext_models_build_vectors_of_unknown_words_from_ngrams(write, pack, version):
    table = read_table(write(pack(as_fasttext(version=version, labels=("__label__x",)))))
    assert table.words == WORDS
    words = [*WORDS, "hause", "ß日", "x", "Straße", ""]
    vectors, known = table.lookup(words, lower=False)
    assert known.all()
    np.testing.assert_allclose(vectors, [slow_fasttext(word) for word in words], rtol=1e-6)
    np.testing.assert_allclose(table.lookup(["The"])[0], [slow_fasttext("the")], rtol=1e-6)


def test_the_ngram_hash_equals_that_of_fasttext():
    """Compare with the ids that `get_subwords` in fasttext-wheel 0.9.2 returns, after subtracting
    the number of words.
    """
    table = WordTable([], np.zeros((0, 1), np.float32), bucket=2_000_000, minn=3, maxn=3)
    assert table.ngrams("aß") == [1290968, 1473192]
    assert table.ngrams("日") == [1564547]
    assert table.ngrams("é😀") == [460090, 1029238]
    assert table.ngrams("") == table.ngrams("</s>") == []
    assert (
        fnv(b"a") == 0xE40C292C
    )  # published value of FNV-1a; fastText's hash differs from it for bytes above 127


def test_a_model_without_ngrams_covers_only_its_vocabulary(write):
    for content in (
        as_fasttext(maxn=0, rows=VECTORS),
        as_fasttext(version=11, model=3, rows=VECTORS),
    ):
        vectors, known = read_table(write(content)).lookup(["the", "unknown"])
        assert known.tolist() == [True, False]
        np.testing.assert_allclose(vectors[0], VECTORS[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a word vector file"),
        (b"just a sentence\nand another\n", "line 1: invalid number"),
        (
            b"2 3\na 1 2 3\nb 1 x 3\n",
            "line 3: invalid number in the vector of 'b' .*; is this a word vector file",
        ),
        (b"2 3\na 1 nan 3\nb 1 2 3\n", "line 2: the vector of 'a' is not finite"),
        (b"3 3\na 1 2 3\n", "declares 3 words, but the file ends after 1"),
        (b"5 99999999999\nx 1\n", "line 1: .* got 5 and 99999999999"),
        (
            b"9" * 5000 + b" 3\na 1 2 3\n",
            "line 1: .* got 9+ and 3",
        ),  # Python's int() rejects more than 4,300 digits
        (as_binary()[:-20], "word 5 is incomplete"),
        (gzip.compress(as_text())[:-12], "corrupt or truncated"),
        (as_fasttext()[:60], "is truncated"),
        (as_fasttext(version=9), "version of a fastText model must be 11 or 12, got 9"),
        (as_fasttext(quantised=True), "quantised"),
        (
            as_fasttext(words=WORDS[:2]).replace(
                struct.pack("<iii", 2, 2, 0), struct.pack("<iii", 2, 1, 1)
            ),
            "corrupt",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_the_error_for_a_corrupt_file_names_the_file(write, content, message):
    path = write(content)
    with pytest.raises(InputError, match=message) as caught:
        read_table(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def english_and_german(**options):
    rng = np.random.default_rng(2)
    words = [f"w{i}" for i in range(20)]
    english = rng.standard_normal((20, 6)).astype(np.float32) + 1
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    tables = {
        "en": WordTable(words, english),
        "de": WordTable([f"{w}e" for w in words], (english @ turn).astype("f4")),
    }
    return StaticEncoder(tables, **options)


def slow_vectors(encoder, sentence):
    """Normalise, centre, normalise again, map and append sentence statistics, one word at a time in
    float64.
    """

    def unit(v):
        return v / np.linalg.norm(v)

    table = encoder.tables[sentence.lang]
    mean = np.mean([unit(v) for v in table.matrix.astype(float)], axis=0)
    words = []
    for word in sentence.words:
        form = word if word in table.index else word.lower()
        v = table.matrix[table.index[form]].astype(float) if form in table.index else None
        if v is not None and encoder.normalise:
            v = unit(unit(v) - mean)
        if v is not None and sentence.lang in encoder.maps:
            fitted = encoder.maps[sentence.lang]
            v = (v - fitted.source_mean) @ fitted.matrix + fitted.target_mean
        words.append(v)
    known, (a, b, c, d) = [v for v in words if v is not None], encoder.sentence or (1, 0, 0, 0)
    rows = []
    for v in words:
        if v is None:
            rows.append(np.zeros(encoder.dim))
        else:
            parts = [a * v, b * np.mean(known, 0), c * np.max(known, 0), d * np.min(known, 0)]
            rows.append(np.concatenate(parts if encoder.sentence else parts[:1]))
    return rows


SENTENCES = [
    Sentence(tuple(words.split()), lang)
    for words, lang in (
        ("w1 W2 none", "en"),
        ("", "de"),
        ("w3e", "de"),
        ("none None", "en"),
        ("w4 w4 w5 w19", "en"),
        ("w1e W7E w2e", "de"),
        ("", "en"),
    )
]


def test_sentences_must_have_a_language_if_a_single_table_has_maps():
    rng = np.random.default_rng(3)
    fitted = Rotation().fit(rng.standard_normal((30, 6)), rng.standard_normal((30, 6)))
    encoder = StaticEncoder(
        {"": english_and_german().tables["en"]}, maps={"de": fitted}, name="one"
    )
    with pytest.raises(
        SettingError, match=r"has no language, but one has maps for de; use calque\.Sentence"
    ):
        encoder.encode([Sentence(("w4", "w5"))])
    for lang, changed in (("de", True), ("de-AT", True), ("fr", False)):
        found = encoder.encode([Sentence(("w4", "w5"), lang)])
        assert (
            np.allclose(
                found.data, encoder.replace(maps=None).encode([Sentence(("w4", "w5"))]).data
            )
            != changed
        )


@pytest.mark.parametrize("sentence", [None, (1, 0.5, 2, -1)])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("block", [1, 4096])
@pytest.mark.filterwarnings("ignore:.*have no vector")
def test_vectors_equal_a_naive_loop_over_words(
    sentence, normalise, mapped, block, monkeypatch, tmp_path
):
    monkeypatch.setattr("calque.encoders.static._SENTENCES", block)
    encoder = english_and_german(sentence=sentence, normalise=normalise)
    if mapped:
        rng = np.random.default_rng(3)
        fitted = Rotation().fit(rng.standard_normal((30, 6)), rng.standard_normal((30, 6)))
        encoder = encoder.replace(maps={"de": fitted})
    found = encoder.encode(SENTENCES)
    assert encoder.dim == found.dim == (24 if sentence else 6)
    assert found.covered.tolist() == [
        True,
        True,
        False,
        True,
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        True,
        True,
    ]
    for place, text in enumerate(SENTENCES):
        expected = slow_vectors(encoder, text)
        np.testing.assert_allclose(found[place], np.reshape(expected, (-1, encoder.dim)), atol=2e-6)
    written = encoder.encode_to(tmp_path / "out.safetensors", SENTENCES)
    np.testing.assert_array_equal(written.data, found.data)
    np.testing.assert_array_equal(written.offsets, found.offsets)
    np.testing.assert_array_equal(written.covered, found.covered)
    english = [text.words for text in SENTENCES if text.lang == "en"]
    column = encoder.encode(Sentences.of(english, "en"))
    np.testing.assert_array_equal(column.data, np.concatenate([found[i] for i in (0, 3, 4, 6)]))


def test_a_planted_rotation_is_recovered_if_vectors_contain_sentence_statistics():
    encoder = english_and_german(sentence=(1, 1, 1, 1))
    n = 20
    corpus = ParallelCorpus.of(
        [[f"w{i}" for i in range(n)]], [[f"w{i}e" for i in range(n)]], ("en", "de")
    )
    pairs = WordPairs([0] * n, range(n), range(n), n_sentences=1)
    before = np.abs(encoder.encode(corpus.source).data - encoder.encode(corpus.target).data).max()
    aligned = LinkedMaps("rotation", towards="en", shrinkage=0).align(encoder, corpus, pairs)
    assert sorted(aligned.maps) == ["de"]
    np.testing.assert_allclose(
        aligned.encode(corpus.source).data, aligned.encode(corpus.target).data, atol=1e-5
    )
    assert before > 0.5
    assert (aligned.name, encoder.maps) == ("static+rotation", {})


@pytest.mark.parametrize("sentence", [None, (1, 2, 3, 4)])
def test_saved_static_vectors_are_loaded_unchanged(tmp_path, sentence, write):
    rng = np.random.default_rng(4)
    encoder = StaticEncoder(
        {"en": read_table(write(as_fasttext())), "": read_table(write(as_text(), "text"))},
        sentence=sentence,
        lower=False,
    ).replace(maps={"de": Rotation().fit(rng.standard_normal((9, 3)), rng.standard_normal((9, 3)))})
    encoder.save(tmp_path / "saved")
    texts = [Sentence(("the", "Unknown", "Haus"), lang) for lang in ("en", "de", "fr")]
    expected = encoder.encode(texts)
    for loaded in (load_static(tmp_path / "saved"), load_encoder(tmp_path / "saved")):
        assert loaded.fingerprint == encoder.fingerprint
        assert loaded.name == encoder.name
        np.testing.assert_array_equal(loaded.encode(texts).data, expected.data)
    changed = (
        encoder.replace(lower=True),
        encoder.replace(maps=None),
        encoder.replace(normalise=False),
    )
    assert len({encoder.fingerprint, *(other.fingerprint for other in changed)}) == 4
    words = tmp_path / "saved" / "words.json"
    words.write_text(words.read_text().replace('"</s>"', '"</s>", "more"'))
    with pytest.raises(InputError, match="6 words in , but 5 vectors"):
        load_static(tmp_path / "saved")
    words.unlink()
    with pytest.raises(InputError, match="incomplete or invalid vectors"):
        load_static(tmp_path / "saved")


def test_each_language_can_have_its_own_file(write):
    path = {"en": write(as_text(), "en.vec"), "de": write(as_binary(), "de.bin")}
    encoder = load_static(path, sentence=(1, 1, 1, 1))
    assert (encoder.name, encoder.dim) == ("en.vec+de.bin", 12)
    one = load_encoder(path["en"])
    assert one.encode([Sentence(("the",), "xx")]).covered is None
    one_word = [encoder.encode([Sentence(("the",), lang)]).data for lang in ("de", "de-AT", "en")]
    np.testing.assert_array_equal(one_word[0], one_word[1])
    with pytest.raises(SettingError, match="no word vectors for language 'fr'"):
        encoder.encode([Sentence(("the",), "fr")])


def test_invalid_tables_and_maps_are_rejected():
    tables = {
        "en": WordTable(["a"], np.ones((1, 2), "f4")),
        "de": WordTable(["a"], np.ones((1, 3), "f4")),
    }
    with pytest.raises(SettingError, match="same number of dimensions"):
        StaticEncoder(tables)
    with pytest.raises(CalqueError, match="must be fitted"):
        StaticEncoder({"en": tables["en"]}, maps={"en": Rotation()})
    with pytest.raises(InputError, match="cannot be read"):
        load_static("nowhere.vec")
