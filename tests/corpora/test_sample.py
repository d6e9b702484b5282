"""Tests of the sample text: texts are complete and parallel, and the gold links match the words of
the texts.
"""

import re
from importlib.resources import files

import pytest

from calque.corpora.sample import LANGUAGES, sample_links, sample_text
from calque.tasks import WordAlignment
from calque.wordalign import align_words

SCRIPTS = {"zh": r"[\u4e00-\u9fff]", "ru": "[а-яё]", "bg": "[а-я]"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_texts_are_complete_and_in_the_script_of_their_language(lang):
    corpus = sample_text(lang)
    assert len(corpus) == 536
    lines = (
        (files("calque") / "data" / "sample" / f"{lang}.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert len(set(lines)) > 520
    for line in lines:
        assert line == line.strip()
        assert line
        assert re.search(SCRIPTS.get(lang, "[a-zäöüßáéíóúñàâçèêëîïôûğışœ]"), line.lower()), line
    test, train = sample_text(lang, "test"), sample_text(lang, "train")
    assert (len(test), len(train)) == (179, 357)
    assert not {p[0].words for p in test} & {p[0].words for p in train}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_gold_links_match_the_words_of_the_text(lang):
    corpus, gold = sample_links(lang)
    assert len(corpus) == gold.n_sentences == 60
    gold.check(corpus)
    text = (
        (files("calque") / "data" / "sample" / f"gold.en-{lang}.tsv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    for line, (source, target) in zip(text, corpus, strict=True):
        assert line.split("\t")[:2] == [" ".join(source.words), " ".join(target.words)]
    assert {p[0].words for p in corpus} <= {p[0].words for p in sample_text(lang, "test")}
    assert len(gold) > 400
    # Links that are shifted by a line or a word would differ from the links that an aligner
    # predicts for the same text.
    numbers = range(4, 536, 9)
    links = align_words(sample_text(lang), model="hmm").take(list(numbers))
    assert WordAlignment(corpus, gold).score(links)[0].value < 0.4
