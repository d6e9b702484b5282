"""Test that planted senses and translations have the documented properties, and that scores match
their definitions.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.planted import main
from benchmarks.planted_senses import plant, score_found, supervised
from benchmarks.planted_translations import RARE, rename, score_retrieval
from sklearn.metrics import v_measure_score

from calque.errors import InputError
from calque.offsets import offsets_of
from calque.vectors import Embeddings

LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture(scope="module")
def sentences():
    """Return text on twenty topics with twelve words each; one word in ten belongs to another
    topic.
    """
    rng = np.random.default_rng(0)
    words = [[f"{subject}{letter}ord" for letter in "abcdefghijkl"] for subject in LETTERS]
    lines = []
    for _ in range(2500):
        own = words[rng.integers(20)]
        line = [
            own[rng.integers(12)] if rng.random() < 0.9 else words[rng.integers(20)][0]
            for _ in range(8)
        ]
        lines.append(line)
    return lines


@pytest.fixture(scope="module")
def planted(sentences):
    return plant(sentences, words=12, at_least=50, seed=1)


def test_gold_senses_recover_the_original_text_from_pseudo_words(sentences, planted):
    assert len(planted.members) == 12
    assert sorted(len(parts) for parts in planted.members.values()) == [2] * 4 + [3] * 4 + [4] * 4
    parts = [part for parts in planted.members.values() for part in parts]
    assert len(set(parts)) == len(parts) == 36
    restored = [
        [
            word if number == "-" else planted.members[word][int(number)]
            for word, number in zip(*pair, strict=True)
        ]
        for pair in zip(planted.sentences, planted.truth, strict=True)
    ]
    assert restored == sentences
    text = {word for line in planted.sentences for word in line}
    assert text.isdisjoint(parts)
    assert not {word for line in sentences for word in line} & set(planted.members)
    assert len(set(planted.controls)) == 12
    assert text.issuperset(planted.controls)
    assert set(planted.controls).isdisjoint(planted.members)


def test_members_of_a_pseudo_word_have_similar_frequencies_and_different_topics(sentences, planted):
    flat = [word for line in sentences for word in line]
    for parts in planted.members.values():
        counts = [flat.count(part) for part in parts]
        assert max(counts) <= 3 * min(counts)
        assert len({part[0] for part in parts}) == len(parts)


def test_planting_is_deterministic_and_context_words_reveal_the_gold_senses(sentences, planted):
    assert plant(sentences, words=12, at_least=50, seed=1) == planted
    half = len(sentences) // 2
    for form in planted.members:
        truth, found = supervised(
            planted.sentences[:half],
            planted.truth[:half],
            planted.sentences[half:],
            planted.truth[half:],
            form,
        )
        assert v_measure_score(truth, found) > 0.6


def test_too_little_text_raises_an_error(sentences):
    with pytest.raises(InputError, match="more text"):
        plant(sentences[:200], words=12, at_least=50)


def test_occurrences_without_a_sense_count_as_one_sense():
    text = [["ab", "c", "ab"], ["ab", "c"], ["ab", "c", "c"]]
    truth = [["0", "-", "1"], ["0", "-"], ["1", "-", "-"]]
    found = [["-", "1", "-"], ["-", "1"], ["-", "1", "0"]]
    figures = score_found(text, truth, found, ["ab"], ["c"])
    assert figures["v_measure"] == 0
    assert figures["without_sense"] == figures["occurrences"] == 4
    assert figures["controls_share_of_one"] == 0.75
    assert figures["controls_with_90_percent_in_one"] == 0
    assert score_found(text, truth, truth, ["ab"], ["c"])["v_measure"] == 1


def test_any_two_words_of_similar_frequency_can_form_a_pseudo_word(sentences):
    planted = plant(sentences, words=12, per_pseudo=(2, 2), at_least=50, unlike=False, seed=3)
    flat = [word for line in sentences for word in line]
    counts = [[flat.count(part) for part in parts] for parts in planted.members.values()]
    assert len({part for parts in planted.members.values() for part in parts}) == 24
    assert all(len(pair) == 2 and max(pair) <= 2 * min(pair) for pair in counts)
    others = plant(sentences, words=12, per_pseudo=(2, 2), at_least=50, unlike=False, seed=4)
    assert others.members != planted.members


def test_renamed_languages_share_no_words_and_are_translations(sentences):
    renamed = rename(sentences, held_out=100, words=150, seed=0)
    first, second = (
        {word for line in lines for word in line} for lines in (renamed.first, renamed.second)
    )
    assert first.isdisjoint(second)
    assert first <= set(renamed.names)
    assert RARE in first
    assert len(set(renamed.names.values())) == len(renamed.names) == 151
    assert abs(len(renamed.first) - len(renamed.second)) <= 1
    assert len(renamed.first) + len(renamed.second) + 100 == len(sentences)
    assert all([renamed.names[word] for word in a] == b for a, b in renamed.test)
    assert len(renamed.dictionary) == 75
    assert renamed.dictionary.items() <= renamed.names.items()
    assert RARE not in renamed.dictionary


def test_only_the_given_words_are_scored_in_retrieval_by_token_and_by_type():
    test = [(["a", "b"], ["x", "y"]), (["a", "c"], ["x", "z"])]
    offsets = offsets_of(np.array([2, 2]))
    source = Embeddings(np.eye(4, dtype=np.float32), offsets)
    perfect = score_retrieval(test, source, source, {"a", "c"})
    assert perfect["queries"] == 3
    assert perfect["words"] == 2
    assert perfect["accuracy"] == perfect["accuracy_of_the_word"] == 1
    exchanged = Embeddings(
        np.eye(4, dtype=np.float32)[[2, 1, 0, 3]], offsets
    )  # swaps the two vectors of x
    figures = score_retrieval(test, source, exchanged, {"a", "c"})
    assert figures["accuracy_forward"] == figures["accuracy_backward"] == pytest.approx(1 / 3)
    assert figures["accuracy_of_the_word"] == 1


def test_commands_create_and_score_planted_text(tmp_path, sentences, capsys):
    (tmp_path / "text.txt").write_text(
        "".join(f"{' '.join(line)}\n" for line in sentences), encoding="utf-8"
    )

    def run(*arguments) -> dict:
        main([str(argument) for argument in arguments])
        return json.loads(capsys.readouterr().out)

    senses, translations = tmp_path / "senses", tmp_path / "translations"
    made = ("--pseudo", 6, "--test", 300, "--at-least", 50)
    assert run("make", "senses", tmp_path / "text.txt", "--out", senses, *made)["sentences"] == {
        "train": 2200,
        "test": 300,
    }
    truth = senses / "test.truth.txt"
    figures = run("score", "senses", senses, truth)
    assert figures["v_measure"] == 1
    assert figures["pseudo_words"] == 6
    with pytest.raises(SystemExit, match="must have 300 lines, as many as the text, got 2200"):
        run("score", "senses", senses, senses / "train.truth.txt")
    lines = truth.read_text(encoding="utf-8").splitlines()
    truth.write_text("\n".join([*lines[:6], lines[6] + " 0", *lines[7:]]), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"line 7: must have 8 senses, one per word, got 9"):
        run("score", "senses", senses, truth)
    run(
        "make",
        "translations",
        tmp_path / "text.txt",
        "--out",
        translations,
        "--words",
        150,
        "--test",
        100,
    )
    known, names, test = (
        {
            line.split("\t")[0]
            for line in (translations / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        }
        for name in ("dictionary", "names", "test")
    )
    assert (len(known), len(names)) == (75, 151)
    figures = run("score", "translations", translations, "--encoder", "mini")
    assert figures["words"] == len(
        {word for line in test for word in line.split()} - known - {RARE}
    )
    assert 0 <= figures["accuracy"] < 0.5
