"""Compare tag schemes and spans with naive implementations: conlleval, and seqeval if it is
installed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.errors import InputError
from calque.spans import detect_scheme, span_counts, span_table, to_bio

TYPES = ("LOC", "PER", "a-b")
BIO = ["O", *(f"{letter}-{name}" for letter in "BI" for name in TYPES)]
TEXT = st.lists(
    st.lists(st.tuples(st.sampled_from(BIO), st.sampled_from(BIO)), max_size=8), max_size=6
)
# Sentences as lists of spans, each with its number of words and its type (None outside entities).
SPANS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([*TYPES, None])), max_size=5), max_size=5
)


def coded(sentences, names=None):
    flat = [tag for sentence in sentences for tag in sentence]
    names = names or sorted(set(flat))
    codes = np.array([names.index(tag) for tag in flat], np.int64)
    return codes, names, np.cumsum([0, *map(len, sentences)]).astype(np.int64)


def decoded(codes, names, offsets):
    return [[names[code] for code in codes[a:b]] for a, b in pairwise(offsets)]


def strings(labels, offsets):
    return decoded(labels.codes, labels.names, offsets)


def parts(tag):
    return (tag[0], tag.partition("-")[2]) if tag != "O" else ("O", "")


# -- conlleval.pl of the CoNLL-2000 shared task in Python ------------------------------------------
def end_of_chunk(prev_tag, tag, prev_type, type_):
    return (prev_tag, tag) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")} or (
        prev_tag != "O" and prev_type != type_
    )


def start_of_chunk(prev_tag, tag, prev_type, type_):
    return (prev_tag, tag) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")} or (
        tag != "O" and prev_type != type_
    )


def conlleval(sentences):
    """Return the numbers of correctly predicted, predicted and gold chunks, in total and for each
    type.
    """
    total, by_type = [0, 0, 0], {}
    in_correct = False
    last_correct = last_guessed = "O"
    last_correct_type = last_guessed_type = ""
    for sentence in sentences:
        for correct_tag, guessed_tag in [
            *sentence,
            ("O", "O"),
        ]:  # adds a boundary after each sentence
            correct, correct_type = parts(correct_tag)
            guessed, guessed_type = parts(guessed_tag)
            end_correct = end_of_chunk(last_correct, correct, last_correct_type, correct_type)
            end_guessed = end_of_chunk(last_guessed, guessed, last_guessed_type, guessed_type)
            if in_correct:
                if end_correct and end_guessed and last_guessed_type == last_correct_type:
                    in_correct = False
                    total[0] += 1
                    by_type.setdefault(last_correct_type, [0, 0, 0])[0] += 1
                elif end_correct != end_guessed or guessed_type != correct_type:
                    in_correct = False
            start_correct = start_of_chunk(last_correct, correct, last_correct_type, correct_type)
            start_guessed = start_of_chunk(last_guessed, guessed, last_guessed_type, guessed_type)
            if start_correct and start_guessed and guessed_type == correct_type:
                in_correct = True
            if start_guessed:
                total[1] += 1
                by_type.setdefault(guessed_type, [0, 0, 0])[1] += 1
            if start_correct:
                total[2] += 1
                by_type.setdefault(correct_type, [0, 0, 0])[2] += 1
            last_correct, last_correct_type = correct, correct_type
            last_guessed, last_guessed_type = guessed, guessed_type
    return total, by_type


def written(sentences, scheme):
    """Encode spans as tags in the given tagging scheme."""
    single, begin, inside, last = {
        "iob2": "BBII",
        "bioes": "SBIE",
        "bilou": "UBIL",
        "bmes": "SBME",
        "bmewo": "WBME",
        "iob1": "IIII",
        "ioe": "EIIE",
    }[scheme]
    result = []
    for sentence in sentences:
        tags, before = [], None
        for length, name in sentence:
            if name is None:
                tags += ["O"] * length
            else:
                letters = single if length == 1 else begin + inside * (length - 2) + last
                if scheme == "iob1" and before == name:
                    letters = "B" + letters[1:]
                tags += [f"{letter}-{name}" for letter in letters]
            before = name
        result.append(tags)
    return result


@given(TEXT)
@settings(max_examples=100, deadline=None)
def test_counts_equal_those_of_conlleval(text):
    gold, guess = [[g for g, _ in s] for s in text], [[p for _, p in s] for s in text]
    codes, _, offsets = coded(gold, BIO)
    counts = span_counts(codes, coded(guess, BIO)[0], BIO, offsets)
    total, by_type = conlleval(text)
    assert counts.sentences.sum(axis=0).tolist() == total
    assert {
        t: c for t, c in zip(counts.types, counts.table.sum(axis=0).tolist(), strict=True) if any(c)
    } == by_type
    assert counts.sentences.tolist() == [conlleval([sentence])[0] for sentence in text]


@given(SPANS, st.sampled_from(["iob1", "iob2", "bioes", "bilou", "bmes", "bmewo", "ioe"]))
@settings(max_examples=100, deadline=None)
def test_valid_tags_in_every_scheme_are_converted_to_bio_without_repairs(sentences, scheme):
    codes, names, offsets = coded(written(sentences, scheme))
    bio, repaired = to_bio(codes, names, offsets)
    assert strings(bio, offsets) == written(sentences, "iob2")
    assert repaired == 0
    assert list(bio.names) == sorted(
        {tag for sentence in written(sentences, "iob2") for tag in sentence}
    )
    if any(name for sentence in sentences for _, name in sentence):
        assert detect_scheme(codes, names, offsets) == {"bmes": "bioes", "bmewo": "bioes"}.get(
            scheme, scheme
        )


@pytest.mark.parametrize(
    ("tags", "scheme", "bio", "repaired"),
    [
        ("I-A I-A O I-B B-B I-B", "iob1", "B-A I-A O B-B B-B I-B", 0),
        ("I-A I-A O I-B", "iob1", "B-A I-A O B-B", 0),
        ("I-A I-A O B-B", "iob2", "B-A I-A O B-B", 1),  # IOB1 has no B after O
        ("O I-A B-B I-A", "iob2", "O B-A B-B B-A", 2),
        ("B-A E-A O E-A S-B I-B", "bioes", "B-A I-A O B-A B-B B-B", 2),
        ("B-A L-A U-A I-A L-A", "bilou", "B-A I-A B-A B-A I-A", 1),
        ("B-A OA O I-A", "iob2", "B-A O O B-A", 2),
        ("NOUN VERB I-x", "plain", "NOUN VERB I-x", 0),
        ("B I O I", "iob2", "B-_ I-_ O B-_", 1),
        ("B X Y O", "plain", "B X Y O", 0),
        ("O O", "iob2", "O O", 0),
    ],
)
def test_schemes_and_repairs_match_examples(tags, scheme, bio, repaired):
    codes, names, offsets = coded([tags.split()])
    assert detect_scheme(codes, names, offsets) == scheme
    found, count = to_bio(codes, names, offsets)
    assert strings(found, offsets) == [bio.split()]
    assert count == repaired


def test_a_span_ends_with_its_sentence():
    codes, names, offsets = coded([["B-A"], ["I-A", "I-A"], []])
    assert span_table(codes, names, offsets).start.tolist() == [0, 1]
    assert to_bio(codes, names, offsets)[1] == 1


def test_empty_sentences_have_no_spans_and_tags_without_a_label_end_a_span():
    codes, names, offsets = coded([[], []])
    assert len(span_table(codes, names, offsets).start) == 0
    assert span_counts(codes, codes, names, offsets).sentences.tolist() == [[0, 0, 0]] * 2
    assert to_bio(codes, names, offsets)[0].names == ()
    table = span_table(np.array([0, -1, -1]), ["B-A"], np.array([0, 3]))
    assert (table.start.tolist(), table.end.tolist()) == ([0], [1])


def test_predicted_and_gold_tags_of_different_lengths_raise_an_error():
    codes, names, offsets = coded([["O", "B-A"]])
    with pytest.raises(InputError, match="got 1 predicted tags and 2 gold tags for 2 words"):
        span_counts(codes, codes[:1], names, offsets)
