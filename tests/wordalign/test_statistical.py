"""Tests of word aligners: planted links, determinism, saving, out-of-vocabulary words and
errors.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import forked
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign import (
    FastAlignSettings,
    GibbsSettings,
    HmmSettings,
    WordAligner,
    align_words,
    statistical,
)
from calque.wordalign import (
    model as models,
)
from planted_vectors import f1

MODELS = ("fast-align", "hmm", "gibbs")
LETTERS = "bcdfghklmnprstvz"


def planted(
    n: int, seed: int, *, first: int = 0, size: int = 120
) -> tuple[ParallelCorpus, WordPairs]:
    """Return text and its gold links.

    Target word k translates source word k, in nearly the same order; some target words are
    unaligned.
    """
    rng = np.random.default_rng(seed)
    words = [
        [first_letter + LETTERS[k // 16] + LETTERS[k % 16] + tail for k in range(size)]
        for first_letter, tail in (("a", "xq"), ("o", "jw"))
    ]
    source, target, links = [], [], []
    for sentence in range(n):
        length = int(rng.integers(2, 12))
        chosen = (first + rng.zipf(1.3, length) - 1) % size
        order = np.argsort(np.arange(length) + rng.normal(0, 1.0, length), kind="stable")
        row: list[str] = []
        for i in order.tolist():
            if rng.random() < 0.1:
                row.append("uh")
            links.append((sentence, i, len(row)))
            row.append(words[1][chosen[i]])
        source.append([words[0][k] for k in chosen])
        target.append(row)
    k, i, j = np.array(links).T
    return ParallelCorpus.of(source, target, ("xx", "yy")), WordPairs(k, i, j, n_sentences=n)


def keys(pairs: WordPairs) -> set[tuple[int, int, int]]:
    return set(
        zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True)
    )


@pytest.fixture(scope="module")
def text():
    return planted(600, 0)


@pytest.fixture(scope="module")
def aligners(text):
    return {model: WordAligner.train(text[0], model=model) for model in MODELS}


@pytest.mark.parametrize(("model", "least"), [("fast-align", 0.9), ("hmm", 0.88), ("gibbs", 0.91)])
@pytest.mark.parametrize("symmetrize", ["intersection", "grow-diag-final-and"])
def test_planted_links_are_recovered(text, aligners, model, least, symmetrize):
    found, true = aligners[model].align(text[0], symmetrize=symmetrize), keys(text[1])
    assert f1(found, text[1]) > least
    assert found.posterior is not None
    assert ((found.posterior > 0) & (found.posterior <= 1 + 1e-5)).all()
    correct = np.array(
        [link in true for link in zip(found.sentence, found.source, found.target, strict=True)]
    )
    if not correct.all():
        assert found.posterior[correct].mean() > found.posterior[~correct].mean()


@pytest.mark.parametrize("name", MODELS)
def test_links_do_not_depend_on_threads_or_blocks(text, name, monkeypatch):
    monkeypatch.setattr(models, "CELLS_PER_SHARD", 4000)
    aligners = [WordAligner.train(text[0], model=name, threads=n) for n in (1, 2)]
    one, two = (aligner.align(text[0]) for aligner in aligners)
    assert one == two
    assert np.array_equal(one.posterior, two.posterior)
    parts = list(aligners[0].aligned(text[0], block=170))
    assert [part.n_sentences for part in parts] == [170, 170, 170, 90]
    for first, part in zip(range(0, 600, 170), parts, strict=True):
        assert part == one.slice(first, first + 170)


def test_every_process_and_every_processor_computes_bitwise_equal_links(text, aligners, tmp_path):
    """Compare loops that are compiled for this processor with loops for a processor without its
    vector instructions, which one process compiles and another loads from the cache."""
    text[0].save(tmp_path / "text.arrow")
    program = """
import sys, numba
numba.config.CACHE_DIR, numba.config.CPU_NAME, numba.config.CPU_FEATURES = sys.argv[1], "generic", ""
from calque.text import ParallelCorpus
from calque.wordalign import WordAligner
WordAligner.train(ParallelCorpus.open(sys.argv[2]), model="gibbs").save(sys.argv[3])
from calque.wordalign.gibbs import sample
if sys.argv[4] == "compiled":
    assert "ymm" not in "".join(sample.inspect_asm().values()), "the loops were compiled for this processor"
"""
    for name in ("compiled", "loaded"):
        done = forked.run(
            "-c", program, tmp_path / "loops", tmp_path / "text.arrow", tmp_path / name, name
        )
        assert done.returncode == 0, done.stderr
    assert list((tmp_path / "loops").rglob("*.nbi"))
    assert (tmp_path / "compiled").read_bytes() == (tmp_path / "loaded").read_bytes()
    aligners["gibbs"].save(tmp_path / "here")
    assert (tmp_path / "compiled").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("model", MODELS)
def test_saved_aligners_link_new_text_identically(text, aligners, model, tmp_path):
    aligner = aligners[model]
    aligner.save(tmp_path / "aligner.safetensors")
    again = WordAligner.open(tmp_path / "aligner.safetensors")
    for number in range(4):  # each save writes the same bytes
        again.save(tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == (
            tmp_path / "aligner.safetensors"
        ).read_bytes()
    assert repr(again) == repr(aligner)
    assert (again.langs, again.max_words, again.model.settings) == (
        ("xx", "yy"),
        500,
        aligner.model.settings,
    )
    new, true = planted(80, 7, first=3)
    for symmetrize in ("union", "one-to-one"):
        a, b = (one.align(new, symmetrize=symmetrize) for one in (aligner, again))
        assert a == b
        assert np.array_equal(a.posterior, b.posterior)
    assert f1(aligner.align(new), true) > (0.75 if model == "fast-align" else 0.9)
    if model != "gibbs":  # the Gibbs chains would use other random numbers
        assert again.align(text[0]) == aligner.align(text[0])


@pytest.mark.parametrize("model", MODELS)
def test_links_of_new_text_do_not_depend_on_other_sentences(text, aligners, model):
    """Check single sentences, reversed text, and sentences that repeat unknown words."""
    new, _ = planted(40, 9, first=100, size=140)
    rows = [(list(a.words), list(b.words)) for a, b in new]
    rows += [
        (["new", "aqbxq", "news"], ["nova", "oqbjw"]),
        (["news", "new", "new"], ["nova", "oqbjw"]),
        ([], ["x"]),
    ]
    aligner = aligners[model]

    def link(rows):
        found = aligner.align(
            ParallelCorpus.of(*map(list, zip(*rows, strict=True)), aligner.langs),
            symmetrize="union",
        )
        links = list(zip(found.source.tolist(), found.target.tolist(), strict=True))
        return [links[a:b] for a, b in pairwise(found.offsets().tolist())]

    whole = link(rows)
    assert len(whole) == len(rows)
    assert link(rows[::-1])[::-1] == whole
    assert [link([row])[0] for row in rows] == whole
    long = (
        ["word"] * 200,
        ["mot"] * 150,
    )  # a sentence pair with wide jumps, which must not affect the others
    assert link([*rows, long])[:-1] == whole


@pytest.mark.parametrize("model", MODELS)
def test_out_of_vocabulary_words_are_linked(aligners, model):
    strange = ParallelCorpus.of(
        [["abbxq", "Ostrogoth", "accxq"], ["never", "seen"], [], ["x"]],
        [["obbjw", "ostrogoths", "occjw"], ["weder", "noch", "je"], ["y"], []],
        ("xx", "yy"),
    )
    found = aligners[model].align(strange)
    assert {(0, 0, 0), (0, 2, 2)} <= keys(found)
    if model != "fast-align":  # these words are linked because of their spelling
        assert (0, 1, 1) in keys(found)
    assert found.n_sentences == 4
    assert not (found.sentence >= 2).any()


def test_extra_text_improves_links():
    few, true = planted(12, 3)
    more, _ = planted(1500, 4)
    alone, helped = align_words(few, model="hmm"), align_words(few, extra=more, model="hmm")
    assert helped.n_sentences == len(few)
    assert f1(helped, true) > f1(alone, true) + 0.05
    joined = align_words(few + more, model="hmm")
    assert joined.slice(0, len(few)) == helped
    aligner = WordAligner.train(few, extra=more, model="hmm")
    assert aligner.align(few) == helped
    assert aligner.align(few + more[:0]) == helped  # aligns the same sentences as new text


def test_the_model_is_selected_by_text_size_or_settings(text, monkeypatch):
    assert WordAligner.train(text[0]).model.name == "gibbs"
    monkeypatch.setattr(statistical, "FEW", 600)
    assert WordAligner.train(text[0]).model.name == "hmm"
    for settings, kind in (
        (FastAlignSettings(), "fast-align"),
        (HmmSettings(), "hmm"),
        (GibbsSettings(), "gibbs"),
    ):
        assert WordAligner.train(text[0][:20], settings=settings).model.name == kind


def test_empty_text_has_no_links():
    for model in MODELS:
        for rows in ([], [[]], [["a"]]):
            corpus = ParallelCorpus.of(rows, [[] for _ in rows], ("xx", "yy"))
            aligner = WordAligner.train(corpus, model=model)
            assert len(aligner.align(corpus)) == 0
            new = ParallelCorpus.of([["a"]], [["a"]], ("xx", "yy"))
            assert aligner.align(new).n_sentences == 1


def test_long_sentences_are_skipped_and_counted(text):
    corpus = text[0] + ParallelCorpus.of(
        [list(text[0][0][0].words) * 40], [list(text[0][0][1].words)], ("xx", "yy")
    )
    with pytest.warns(
        UserWarning, match="1 of 601 sentence pairs have more than 30 words on one side"
    ):
        found = align_words(corpus, model="fast-align", max_words=30)
    assert found == WordPairs(
        *(
            getattr(align_words(text[0], model="fast-align"), name)
            for name in ("sentence", "source", "target")
        ),
        n_sentences=601,
    )


def test_invalid_arguments_are_rejected(text, aligners, tmp_path):
    small = text[0][:5]
    for options, message in (
        ({"model": "giza"}, "model must be one of auto, fast-align, hmm, gibbs"),
        ({"symmetrize": "both"}, "symmetrize must be one of intersection"),
        ({"extra": small.swapped()}, "languages differ"),
    ):
        with pytest.raises(SettingError, match=message):
            align_words(small, **options)
    with pytest.raises(
        SettingError, match="corpus must have the aligner's languages, xx-yy, got yy-xx"
    ):
        aligners["hmm"].align(small.swapped())
    aligners["hmm"].save(tmp_path / "wrong")
    whole = (tmp_path / "wrong").read_bytes()
    changed = [bytearray(whole) for _ in range(3)]
    for content, place in zip(
        changed, (-1, -100, whole.index(b"ibm1_iterations") + 3), strict=True
    ):
        content[place] ^= 2  # makes the checksum wrong
    for content in (b"", b"{}", b"\x08\0\0\0\0\0\0\0{}      ", *changed):
        (tmp_path / "wrong").write_bytes(content)
        with pytest.raises(InputError, match="not a word aligner saved by calque"):
            WordAligner.open(tmp_path / "wrong")
