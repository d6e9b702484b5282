"""Tests of cross-fitted similarities: each part of a text is scored by an encoder aligned on the
other parts.
"""

import numpy as np
import pytest

import calque
from calque.alignment.held_out import HeldOut, deal, small
from calque.errors import SettingError
from calque.wordalign import Similarities
from command import fails, run

TEXT = [
    ("the cat sees a house", "a house sees the cat"),
    ("time and water", "water and time"),
    ("the house", "the house"),
    ("in time", "time in the water"),
    ("time and water", "time water"),
    ("a cat", "cat a"),
]
OTHER = [
    ("the house", "house the"),
    ("a water and a cat", "a cat and a water"),
    ("in the house", "in house the"),
]


def corpus_of(text, langs):
    return calque.ParallelCorpus.of(
        [a.split() for a, _ in text], [b.split() for _, b in text], langs
    )


@pytest.fixture
def texts():
    return [corpus_of(TEXT, ("en", "xx")), corpus_of(OTHER, ("en", "yy"))]


@pytest.fixture
def links(texts):
    return [calque.align_words(text, model="hmm") for text in texts]


def test_sentence_pairs_with_equal_source_sentences_are_in_the_same_part(texts):
    # The part is the index of the distinct source sentence, counted over both texts, modulo 3.
    assert [part.tolist() for part in deal(texts, 3)] == [[0, 1, 2, 0, 1, 1], [2, 2, 0]]
    with pytest.raises(SettingError, match="parts must be at most 2, .*, got 3"):
        deal([texts[0][:2], texts[0][4:5]], 3)


def test_each_part_is_scored_by_an_encoder_aligned_on_the_other_parts(tiny_encoder, texts, links):
    tuner = calque.Contrastive(towards="en", epochs=1, batch=2, learning_rate=1e-2)
    held = HeldOut(tiny_encoder, texts, links, parts=3, tuner=tuner)
    part_of = [[0, 1, 2, 0, 1, 1], [2, 2, 0]]
    for part in range(3):
        seen, seen_links = [], []
        for text, pairs, numbers in zip(texts, links, part_of, strict=True):
            rows = [k for k, number in enumerate(numbers) if number != part]
            seen.append(
                corpus_of(
                    [(" ".join(text[k][0].words), " ".join(text[k][1].words)) for k in rows],
                    text.langs,
                )
            )
            chosen = [
                (rows.index(s), i, j)
                for s, i, j in zip(pairs.sentence, pairs.source, pairs.target, strict=True)
                if s in rows
            ]
            seen_links.append(calque.WordPairs(*np.array(chosen).T, n_sentences=len(rows)))
        aligned = tuner.align(tiny_encoder, seen, seen_links)
        for text, numbers, similar in zip(texts, part_of, held.similarities, strict=True):
            for k in (k for k, number in enumerate(numbers) if number == part):
                x, y = (aligned.encode([side])[0].astype(float) for side in text[k])
                expected = [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in y] for a in x]
                np.testing.assert_allclose(
                    similar[k], expected, atol=2e-3
                )  # similarities are stored with 11 bits
    unaligned = calque.Linker(tiny_encoder).similarities(texts[0])
    assert max(abs(held.similarities[0][k] - unaligned[k]).max() for k in range(len(TEXT))) > 0.02
    again = HeldOut(tiny_encoder, texts, links, parts=3, tuner=tuner)
    for mine, other in zip(held.similarities, again.similarities, strict=True):
        np.testing.assert_array_equal(mine.data, other.data)


def test_similarities_are_returned_for_any_selection_of_sentences(tiny_encoder, texts, links):
    held = HeldOut(tiny_encoder, texts, links, parts=2)
    np.testing.assert_array_equal(held(texts[0]).data, held.similarities[0].data)
    for k, found in zip((2, 0), held(texts[1].take([2, 0])), strict=True):
        np.testing.assert_array_equal(found, held.similarities[1][k])
    strange = corpus_of([("the house", "the house"), ("a house", "a cat")], ("en", "xx"))
    with pytest.raises(SettingError, match="sentence pair 2 is not from the text"):
        held(strange)


@pytest.mark.parametrize("model", ["hmm", "gibbs"])
def test_the_prior_weight_can_be_an_argument_or_part_of_the_settings(tiny_encoder, texts, model):
    prior = calque.Linker(tiny_encoder).similarities
    none = calque.align_words(texts[0], model=model)
    nothing, much = (
        calque.align_words(texts[0], model=model, prior=prior, prior_weight=w) for w in (0, 9)
    )
    np.testing.assert_allclose(nothing.posterior, none.posterior, rtol=1e-5)
    settings = calque.wordalign.HmmSettings if model == "hmm" else calque.wordalign.GibbsSettings
    given = calque.align_words(texts[0], prior=prior, settings=settings().weighted(9))
    np.testing.assert_array_equal(much.posterior, given.posterior)
    assert not np.array_equal(much.posterior, none.posterior)


def test_cross_fitting_on_the_command_line_equals_the_python_api(
    capsys, tiny_folder, tiny_encoder, texts, links, tmp_path
):
    names = [tmp_path / "one.tsv", tmp_path / "two.tsv"]
    for name, text in zip(names, (TEXT, OTHER), strict=True):
        name.write_text("".join(f"{a}\t{b}\n" for a, b in text))
    out = tmp_path / "links"
    plain = (
        "words",
        names[0],
        "--langs",
        "en",
        "xx",
        "--out",
        out,
        "--encoder",
        tiny_folder,
        "--model",
        "hmm",
    )
    words = (*plain, "--prior", "--cross-fit", 3, "--seed", 4)
    code, _, err = run(capsys, *words, "--also", f"en-yy={names[1]}", "--scores")
    assert code == 0, err
    held = HeldOut(tiny_encoder, texts, links, parts=3, tuner=small(tiny_encoder, "en", seed=4))
    expected = calque.align_words(texts[0], model="hmm", prior=held)
    found = calque.WordPairs.open(out)
    assert found == expected
    np.testing.assert_allclose(found.posterior, expected.posterior, rtol=1e-2)
    halved = Similarities(
        held.similarities[0].data / 2, held.similarities[0].rows, held.similarities[0].columns
    )
    assert (
        run(capsys, *words, "--also", f"en-yy={names[1]}", "--scores", "--prior-weight", 1)[0] == 0
    )
    expected = calque.align_words(texts[0], model="hmm", prior=lambda _: halved)
    np.testing.assert_allclose(calque.WordPairs.open(out).posterior, expected.posterior, rtol=1e-2)
    assert "add --cross-fit" in fails(capsys, *plain, "--prior", "--also", f"en-yy={names[1]}")
    assert "on the text to link" in fails(capsys, *words, "--sample", 2)
