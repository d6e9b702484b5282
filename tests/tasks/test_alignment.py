"""Compare alignment error rate, precision, recall and F1 with their definitions, computed on Python
sets.
"""

import bz2
import gzip
import json
import lzma

import numpy as np
import pyarrow as pa
import pytest

from calque.errors import CalqueError, CalqueWarning, InputError
from calque.pairs import WordPairs
from calque.tasks import WordAlignment, score_links
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from command import run, works
from planted import Fixed


def random_links(seed, n_sentences=25, possible=False):
    rng = np.random.default_rng(seed)
    cells = np.flatnonzero(rng.random(n_sentences * 36) < 0.2)
    sentence, cell = np.divmod(cells, 36)
    flags = rng.random(len(cells)) < 0.4 if possible else None
    return WordPairs(sentence, cell // 6, cell % 6, n_sentences=n_sentences, possible=flags)


def literal(links, gold):
    """Compute the scores of Och and Ney (2003) on sets of (sentence, source, target)."""

    def triples(pairs):
        return set(
            zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True)
        )

    a, s, p = triples(links), triples(gold.sure), triples(gold)
    precision, recall = len(a & p) / len(a), len(a & s) / len(s)
    f1 = 2 * precision * recall / (precision + recall)
    return [1 - (len(a & s) + len(a & p)) / (len(a) + len(s)), precision, recall, f1]


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_their_definitions(seed):
    links, gold = random_links(seed), random_links(seed + 50, possible=True)
    scores = score_links(links, gold, data="x", languages=("en", "de"), bootstrap=200)
    assert [score.metric for score in scores] == ["aer", "precision", "recall", "f1"]
    assert [score.value for score in scores] == pytest.approx(literal(links, gold), abs=1e-12)
    assert all(score.low < score.value < score.high for score in scores)
    assert scores[0].settings["sure"] + scores[0].settings["possible"] == len(gold)


def test_duplicate_links_count_once_and_are_sure_if_any_copy_is_sure():
    once = WordPairs.parse(["0-0 1-1"])
    twice = WordPairs([0, 0, 0], [0, 0, 1], [0, 0, 1], n_sentences=1)
    gold = WordPairs(
        [0, 0, 0], [0, 0, 1], [0, 0, 1], n_sentences=1, possible=np.array([True, False, False])
    )
    for score in (*score_links(twice, once), *score_links(once, gold)):
        assert score.value == (0.0 if score.metric == "aer" else 1.0)
        assert score.settings["sure"] == score.settings["links"] == 2


def test_without_predicted_links_recall_is_zero_and_precision_is_undefined():
    aer, precision, recall, f1 = score_links(WordPairs.parse([""]), WordPairs.parse(["0-0"]))
    assert (aer.value, recall.value, f1.value) == (1.0, 0.0, 0.0)
    assert precision.to_dict()["value"] is None


def test_predicted_links_in_a_sentence_without_gold_links_are_wrong():
    perfect = score_links(WordPairs.parse(["0-0", ""]), WordPairs.parse(["0-0", ""]), bootstrap=300)
    assert all(
        score.low == score.high == score.value for score in perfect
    )  # also in resamples without any gold link
    extra = score_links(WordPairs.parse(["0-0", "0-0"]), WordPairs.parse(["0-0", ""]))
    assert extra[1].value == 0.5


@pytest.mark.parametrize("method", ["mutual", "softmax"])
def test_links_are_predicted_from_the_vectors_of_an_encoder(method):
    corpus = ParallelCorpus.of([["a", "b", "c"]], [["x", "y", "z"]], ("en", "de"))
    task = WordAlignment(corpus, WordPairs.parse(["0-1 1-0 2-2"]), method=method, data="toy")
    eye, offsets = np.eye(3, dtype=np.float32), np.array([0, 3])
    scores = task.evaluate(
        Fixed(en=Embeddings(eye, offsets), de=Embeddings(eye[[1, 0, 2]], offsets))
    )
    assert [score.value for score in scores] == [0.0, 1.0, 1.0, 1.0]
    assert scores[0].settings["links_from"] == method
    assert scores[0].languages == ("en", "de")
    assert [score.value for score in task.score(WordPairs.parse(["0-0"]))] == [1.0, 0.0, 0.0, 0.0]


def test_gold_links_to_missing_words_raise_an_error():
    corpus = ParallelCorpus.of([["a"]], [["b"]], ("en", "de"))
    with pytest.raises(CalqueError, match="target word 3"):
        WordAlignment(corpus, WordPairs.parse(["0-3"]))


# -- numbers of words in files ---------------------------------------------------------------------
PAIRS = [
    "the dog sleeps\tder hund schläft",
    "a red house\tein rotes haus",
    "we see it\twir sehen es",
]
FROM_0, FROM_1 = ["0-0 1-1 2?2", "0-0 2-2", ""], ["1-1 2-2 3?3", "1-1 3-3", ""]


def gold_files(folder, links, packed=lambda raw: raw):
    (folder / "with.tsv").write_text(
        "".join(f"{pair}\t{each}\n" for pair, each in zip(PAIRS, links, strict=True))
    )
    (folder / "without.tsv").write_text("".join(f"{pair}\n" for pair in PAIRS))
    (folder / "links").write_bytes(packed("".join(f"{each}\n" for each in links).encode()))
    return [(folder / "with.tsv",), (folder / "without.tsv", "--links", folder / "links")]


def evaluated(capsys, *arguments):
    command = ("evaluate", "mini", "word-alignment", "--langs", "en", "de", "--test", *arguments)
    printed, errors = works(capsys, *command, "--json", "-q")
    return [score["value"] for score in json.loads(printed)["scores"]], errors


def test_gold_links_that_count_from_1_are_read_with_an_option_and_noticed_without_it(
    tmp_path, capsys
):
    expected, errors = evaluated(capsys, *gold_files(tmp_path, FROM_0)[0])
    assert "word 0" not in errors
    short = [
        each.replace(" 3?3", "").replace(" 3-3", "") for each in FROM_1
    ]  # exists in both ways of counting
    for links, given, said in (
        (FROM_1, ["--one-based"], False),
        (short, [], True),
        (short, ["--zero-based"], False),
    ):
        for test in gold_files(tmp_path, links):
            values, errors = evaluated(capsys, *test, *given)
            assert ("no link uses word 0 on either side" in errors) == said
            assert (values == expected) == (given == ["--one-based"])
    for test in gold_files(tmp_path, FROM_1):
        arguments = ("evaluate", "mini", "word-alignment", "--langs", "en", "de", "--test", *test)
        code, _, errors = run(capsys, *arguments)
        assert code == 2
        assert (
            "do the links count words from 1 (--one-based), or was the corpus tokenised "
            "differently?" in errors
        )


def test_gold_links_of_the_chosen_pairs_are_used_with_a_limit(tmp_path, capsys):
    column, file = gold_files(tmp_path, FROM_0)
    assert evaluated(capsys, *column, "--limit", 2)[0] == evaluated(capsys, *file, "--limit", 2)[0]


def test_links_are_written_and_read_with_words_counted_from_0_or_1(tmp_path, capsys):
    (tmp_path / "text.tsv").write_text("".join(f"{pair}\n" for pair in PAIRS) * 4)
    links = {}
    for name in ("zero", "one"):
        given = ("--langs", "en", "de", "--model", "hmm", f"--{name}-based")
        works(capsys, "words", tmp_path / "text.tsv", *given, "--out", tmp_path / name)
        links[name] = WordPairs.open(tmp_path / name, one_based=name == "one")
    assert links["zero"] == links["one"]
    assert (tmp_path / "zero").read_text() != (tmp_path / "one").read_text()
    retrieval = (
        "evaluate",
        "mini",
        "retrieval",
        "--langs",
        "en",
        "de",
        "--test",
        tmp_path / "text.tsv",
        "--json",
        "-q",
    )
    found = [
        works(capsys, *retrieval, "--links", tmp_path / name, f"--{name}-based")[0]
        for name in ("zero", "one")
    ]
    assert found[0] == found[1]
    code, _, errors = run(capsys, *retrieval, "--one-based")
    assert code == 2
    assert "only for files of word links; add --links FILE" in errors


def test_the_library_warns_of_links_that_never_use_word_0(tmp_path):
    path = tmp_path / "f"
    path.write_text("1-1 2-2\n\n2-1\n")
    with pytest.warns(
        CalqueWarning,
        match=r"f: no link uses word 0 on either side, so the links probably count words from 1",
    ):
        WordPairs.open(path)
    for quiet in ({"one_based": True}, {"one_based": False}):
        assert len(WordPairs.open(path, **quiet)) == 3
    path.write_text("1-1 2-2\n\n2-0\n")
    assert len(WordPairs.open(path)) == 3
    path.write_text("\n\n")
    assert len(WordPairs.open(path)) == 0


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        lambda raw: pa.compress(raw, "zstd", asbytes=True),
    ],
)
def test_links_can_be_compressed_or_in_utf16(tmp_path, capsys, pack):
    expected = evaluated(capsys, *gold_files(tmp_path, FROM_0)[1])[0]
    assert evaluated(capsys, *gold_files(tmp_path, FROM_0, pack)[1])[0] == expected
    assert WordPairs.open(
        gold_files(tmp_path, FROM_0, lambda raw: raw.decode().encode("utf-16"))[1][2]
    ) == WordPairs.parse(FROM_0)
    (tmp_path / "links").write_bytes(pack(b"0-0\n\xff\n\n"))
    with pytest.raises(InputError, match="links line 2: byte 0xff at position 0 is not UTF-8"):
        WordPairs.open(tmp_path / "links")
