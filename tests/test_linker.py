"""Check that links of single sentence pairs, from an encoder or from tables, equal the links of the
full text.
"""

from __future__ import annotations

import numpy as np
import pytest

import calque
from calque.errors import SettingError
from calque.linker import Linker
from calque.vectors import Embeddings
from calque.wordalign import WordAligner, links_from_embeddings
from calque.wordalign.similarity import cosines
from command import fails, run

TEXT = [
    ("the cat sees a house", "a house sees the cat"),
    ("time and water", "water and time"),
    ("the house", "the house"),
    ("in time", "time in the water"),
]
PAIRS = [(a.split(), b.split()) for a, b in TEXT]
LANGS = ("en", "xx")


@pytest.fixture
def corpus():
    return calque.ParallelCorpus.of([a for a, _ in PAIRS], [b for _, b in PAIRS], LANGS)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in TEXT))
    return path


def listed(links):
    """Return the links of each sentence pair, without scores."""
    return [
        [(int(i), int(j)) for i, j in zip(*part, strict=True)]
        for part in (
            (links.source[links.sentence == k], links.target[links.sentence == k])
            for k in range(len(TEXT))
        )
    ]


@pytest.mark.parametrize("method", ["mutual", "softmax"])
def test_links_of_single_pairs_from_an_encoder_equal_those_of_the_text(
    tiny_encoder, corpus, method
):
    whole = links_from_embeddings(
        *(tiny_encoder.encode(side) for side in (corpus.source, corpus.target)), method=method
    )
    linker = Linker(tiny_encoder, method=method)
    one_by_one = [linker.link(*pair) for pair in PAIRS]
    assert [[link[:2] for link in links] for links in one_by_one] == listed(whole)
    np.testing.assert_allclose(
        [link.score for links in one_by_one for link in links], whole.posterior, atol=1e-5
    )
    assert [[link[:2] for link in links] for links in linker.links(PAIRS, block=3)] == listed(whole)


def test_similarities_are_cosines(tiny_encoder):
    x, y = (tiny_encoder.encode([words])[0].astype(float) for words in PAIRS[0])
    expected = [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in y] for a in x]
    np.testing.assert_allclose(Linker(tiny_encoder).similarity(*PAIRS[0]), expected, atol=1e-5)


def test_a_word_without_a_vector_has_no_similarity():
    x = Embeddings(np.eye(3, dtype=np.float32), np.array([0, 1, 3]), np.array([True, False, True]))
    y = Embeddings(np.eye(3, dtype=np.float32)[[0, 2]], np.array([0, 1, 2]))
    first, second = cosines(x, y)
    assert first.tolist() == [[1.0]]
    np.testing.assert_array_equal(second, [[np.nan], [1.0]])
    links = links_from_embeddings(x, y)
    assert (links.sentence.tolist(), links.source.tolist(), links.target.tolist()) == (
        [0, 1],
        [0, 1],
        [0, 0],
    )


def test_links_of_single_pairs_from_tables_equal_those_of_the_aligner(corpus, tmp_path):
    aligner = WordAligner.train(corpus, model="fast-align")
    aligner.save(tmp_path / "xx.tables")
    linker = Linker(tmp_path / "xx.tables", symmetrize="union")
    opened = WordAligner.open(tmp_path / "xx.tables")
    text = calque.ParallelCorpus.of(
        [list(a) for a, _ in PAIRS], [list(b) for _, b in PAIRS], opened.langs
    )
    found = opened.align(text, symmetrize="union")
    links = [(k, *link[:2]) for k, pair in enumerate(PAIRS) for link in linker.link(*pair)]
    assert links == list(
        zip(found.sentence.tolist(), found.source.tolist(), found.target.tolist(), strict=True)
    )
    assert all(0 < link.score <= 1 for pair in PAIRS for link in linker.link(*pair))
    with pytest.raises(SettingError, match="no vectors"):
        linker.similarity(*PAIRS[0])
    with pytest.raises(SettingError, match="the tables' languages, en-xx, got"):
        Linker(opened, langs=("en", "de"))
    with pytest.raises(SettingError, match="apply only to encoders"):
        Linker(opened, method="mutual")


def test_arguments_that_do_not_apply_to_encoders_are_rejected(tiny_encoder):
    with pytest.raises(SettingError, match="got an encoder"):
        Linker(tiny_encoder, symmetrize="union")
    with pytest.raises(SettingError, match="got a loaded encoder"):
        Linker(tiny_encoder, layer=1)
    with pytest.raises(SettingError, match="method must be one of mutual"):
        Linker(tiny_encoder, method="argmax")
    with pytest.raises(SettingError, match="must be a list of words"):
        Linker(tiny_encoder).link("the cat", "the cat")


@pytest.mark.parametrize("model", ["hmm", "gibbs"])
def test_similarities_can_be_used_as_a_prior(tiny_encoder, corpus, tmp_path, model):
    """Check that the links of new text do not depend on the block size."""
    prior = Linker(tiny_encoder).similarities
    aligner = WordAligner.train(corpus, model=model, prior=prior)
    aligner.save(tmp_path / "tables")
    further = calque.ParallelCorpus.of(
        [["in", "the", "water"], ["a", "cat"]] * 2, [["water", "in"], ["cat"]] * 2, LANGS
    )
    opened = WordAligner.open(tmp_path / "tables", prior=prior)
    whole, plain = opened.align(further), WordAligner.open(tmp_path / "tables").align(further)
    np.testing.assert_array_equal(
        whole.posterior,
        np.concatenate([part.posterior for part in opened.aligned(further, block=1)]),
    )
    assert not np.array_equal(whole.posterior, plain.posterior)
    with pytest.raises(SettingError, match="cannot use a prior"):
        WordAligner.train(corpus, model="fast-align", prior=prior)
    with pytest.raises(SettingError, match="numbers of words in the 4 sentence pairs"):
        WordAligner.train(corpus, model=model, prior=lambda text: prior(text[:2]))


def test_the_command_links_words_with_an_encoder(
    capsys, tiny_folder, tiny_encoder, text, corpus, tmp_path
):
    out = tmp_path / "links"
    words = ("words", text, "--langs", *LANGS, "--out", out, "--encoder", tiny_folder)
    code, _, err = run(capsys, *words, "--extract", "softmax", "--scores")
    assert code == 0, err
    expected = Linker(tiny_encoder, method="softmax")
    found = calque.WordPairs.open(out)
    assert listed(found) == [[link[:2] for link in links] for links in expected.links(PAIRS)]
    scores = [link.score for links in expected.links(PAIRS) for link in links]
    np.testing.assert_allclose(found.posterior, scores, rtol=1e-3)
    for kept, pair in zip(expected.similarities(corpus), PAIRS, strict=True):
        np.testing.assert_allclose(kept, expected.similarity(*pair), atol=1e-3)
    tables = "--tables", tmp_path / "tables"
    assert run(capsys, *words, "--prior", "--model", "hmm", "--scores", *tables)[0] == 0
    trained = calque.align_words(corpus, model="hmm", prior=expected.similarities)
    found = calque.WordPairs.open(out)
    assert found == trained
    np.testing.assert_allclose(found.posterior, trained.posterior, rtol=1e-2)
    assert "leave out this option or --prior" in fails(
        capsys, *words, "--prior", "--extract", "softmax"
    )
