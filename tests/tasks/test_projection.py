"""Tests of tag projection over word links: small examples, and a tagger trained on projected
tags.
"""

import pytest

from calque.annotated import Labels, TaggedText
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.tasks.datasets import Dataset
from calque.tasks.projection import project_spans, project_tags, projected
from calque.tasks.tagging import Tagging
from calque.text import ParallelCorpus, Sentences
from planted import Planted, tagged


def text(*tagged_sentences):
    words, tags = zip(
        *(zip(*(pair.rsplit("/", 1) for pair in s.split()), strict=True) for s in tagged_sentences),
        strict=True,
    )
    return TaggedText(
        Sentences.of(words, "en"), Labels.of([tag for sentence in tags for tag in sentence])
    )


@pytest.mark.parametrize(
    ("source", "links", "target", "tags"),
    [
        ("New/B-LOC York/I-LOC shines/O", "0-1 1-1 2-0", "leuchtet NewYork", "O B-LOC"),
        ("Ann/B-PER met/O Bob/B-PER", "0-0 1-2 2-1", "Ann Bob traf", "B-PER B-PER O"),
        ("Ann/B-PER met/O Bob/B-PER", "0-0 1-2", "Ann Bob traf", None),  # Bob has no word link
        (
            "the/O UN/B-ORG said/O",
            "1-1 1-3 2-4",
            "die Vereinten der Nationen sagten",
            "O B-ORG I-ORG I-ORG O",
        ),
        (
            "UN/B-ORG said/O",
            "0-0 0-4",
            "a b c d e",
            None,
        ),  # the projected span is much longer than the source span
        ("A/B-PER B/B-LOC", "0-0 0-1 1-1", "a b", None),  # the projected spans overlap
        ("no/O names/O", "", "keine Namen", "O O"),
    ],
)
@pytest.mark.filterwarnings("ignore:no link uses word 0")
def test_spans_are_projected_over_word_links(source, links, target, tags):
    found = project_spans(
        text(source), WordPairs.parse([links]), Sentences.of([target.split()], "de")
    )
    assert found.tags.to_list() == ([] if tags is None else tags.split())
    assert len(found) == (tags is not None)


def test_unlinked_words_are_tagged_like_linked_words_of_the_same_type():
    source = text("the/DET cat/NOUN", "a/DET cat/NOUN", "the/DET")
    pairs = WordPairs.parse(["0-0 1-1", "1-1", ""])
    target = Sentences.of([["die", "Katze"], ["die", "Katze"], ["unbekannt"]], "de")
    found = project_tags(source, pairs, target)
    assert found.tags.to_list() == [
        "DET",
        "NOUN",
        "DET",
        "NOUN",
    ]  # the unlinked second "die" has the tag of the first
    assert [sentence.words for sentence in found.sentences] == [("die", "Katze")] * 2


def test_a_word_has_the_most_frequent_tag_among_its_links():
    source = text("a/DET big/ADJ old/ADJ cat/NOUN")
    found = project_tags(
        source, WordPairs.parse(["0-0 1-0 2-0 3-1"]), Sentences.of([["groß", "Katze"]], "de")
    )
    assert found.tags.to_list() == ["ADJ", "NOUN"]


def test_projection_trains_a_tagger_where_zero_shot_transfer_fails():
    """Use two languages with unrelated vectors."""
    encoder = Planted(apart=True)
    train, test = tagged(150, "en"), tagged(60, "de", 1)
    settings = {"hidden": 16, "options": {"epochs": 14, "learning_rate": 5e-3, "batch": 16}}
    side = tagged(120, "en", 5).data.sentences
    other = Sentences.of([[f"d{word[1:]}" for word in sentence.words] for sentence in side], "de")
    corpus = ParallelCorpus.of([s.words for s in side], [s.words for s in other], ("en", "de"))
    links = WordPairs.parse([" ".join(f"{k}-{k}" for k in range(len(s))) for s in side])
    for each, pairs in ((corpus, links), (corpus.swapped(), links.swapped())):
        learnt = projected(Tagging("ner", [train], [train], **settings), encoder, each, pairs)
        assert (learnt.lang, len(learnt.data)) == ("de", 120)
        score = Tagging("ner", [learnt], [test], seeds=(0,), bootstrap=0, **settings).evaluate(
            encoder
        )[0]
        assert score.value > 0.85
    zero = Tagging("ner", [train], [test], seeds=(0,), bootstrap=0, **settings).evaluate(encoder)[0]
    assert zero.value < 0.5
    other = Dataset("x", "en", train.data)
    with pytest.raises(SettingError, match="no tags could be projected"):
        projected(
            Tagging("pos", [other], [other], **settings),
            encoder,
            corpus,
            WordPairs.parse([""] * 120),
        )
