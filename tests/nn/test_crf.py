"""Compare the CRF with an enumeration of all tag sequences."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.errors import SettingError
from calque.nn.crf import ChainCRF, forbidden_in_bio

BATCHES = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def score(crf, scores, tags):
    """Return the score of one tag sequence `[n]`, or of several sequences `[m, n]`."""
    places = torch.arange(len(scores))
    moves = crf.transitions[tags[..., :-1], tags[..., 1:]]
    return (
        crf.start[tags[..., 0]]
        + scores[places, tags].sum(-1)
        + moves.sum(-1)
        + crf.end[tags[..., -1]]
    )


def every_sequence(crf, scores):
    """Return all tag sequences of a sentence and their scores."""
    found = list(product(range(len(crf.start)), repeat=len(scores)))
    return found, score(crf, scores, torch.tensor(found))


def literal_log_likelihood(crf, scores, tags, lengths):
    values, begin = [], 0
    for n in lengths:
        part, own = scores[begin : begin + n], tags[begin : begin + n]
        begin += n
        if n:
            values.append(score(crf, part, own) - torch.logsumexp(every_sequence(crf, part)[1], 0))
        else:
            values.append(scores.new_zeros(()))
    return torch.stack(values)


def literal_decode(crf, scores, lengths, allowed=lambda tags: True):
    best, begin = [], 0
    for n in lengths:
        if n:
            sequences, values = every_sequence(crf, scores[begin : begin + n])
            kept = [
                (-value, tags[::-1])
                for tags, value in zip(sequences, values.tolist(), strict=True)
                if allowed(tags)
            ]
            best += min(kept)[1][
                ::-1
            ]  # ties go to the smaller last tag, then to the smaller second-to-last tag
        begin += n
    return best


def make(n_tags, lengths, seed, scale=1.0, dtype=torch.float64, whole=False, **settings):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        if whole:  # with sums of small integers, most decisions are exact ties
            return torch.randint(-1, 2, shape, generator=generator).to(dtype)
        return torch.randn(shape, generator=generator, dtype=torch.float64).mul(scale).to(dtype)

    crf = ChainCRF(n_tags, **settings).to(dtype)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(draw(*parameter.shape))
    tags = torch.randint(n_tags, (sum(lengths),), generator=generator)
    return crf, draw(sum(lengths), n_tags).requires_grad_(), tags, torch.tensor(lengths)


def gradients(crf, scores, values):
    weights = torch.arange(
        1.0, len(values) + 1, dtype=values.dtype
    )  # gives each sentence a different weight
    return torch.autograd.grad(
        values @ weights, [scores, *crf.parameters()], materialize_grads=True
    )


@settings(max_examples=40, deadline=None)
@given(
    n_tags=st.integers(2, 4),
    lengths=BATCHES,
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 20.0, 1e5]),
)
def test_likelihood_and_gradients_equal_those_of_the_enumeration(n_tags, lengths, seed, scale):
    crf, scores, tags, sizes = make(n_tags, lengths, seed, scale)
    found, expected = (
        crf.log_likelihood(scores, tags, sizes),
        literal_log_likelihood(crf, scores, tags, lengths),
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-9)
    if sum(lengths):
        for ours, theirs in zip(
            gradients(crf, scores, found), gradients(crf, scores, expected), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(n_tags=st.integers(2, 4), lengths=BATCHES, seed=st.integers(0, 10**6), whole=st.booleans())
def test_decoding_equals_the_best_sequence_of_the_enumeration(n_tags, lengths, seed, whole):
    crf, scores, _, sizes = make(n_tags, lengths, seed, whole=whole)
    assert crf.decode(scores, sizes).tolist() == literal_decode(crf, scores.detach(), lengths)


def test_batches_without_words_have_a_log_likelihood_of_zero():
    crf = ChainCRF(3)
    for sizes in (torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0])):
        found = crf.log_likelihood(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), sizes)
        assert found.tolist() == [0.0] * len(sizes)
        found.sum().backward()  # empty training batches are allowed
        assert crf.decode(torch.zeros(0, 3), sizes).tolist() == []


NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def is_bio(tags):
    names = [NAMES[tag] for tag in tags]
    return all(
        not name.startswith("I-")
        or (before is not None and before[0] in "BI" and before[2:] == name[2:])
        for before, name in zip([None, *names[:-1]], names, strict=True)
    )


def test_an_inside_tag_can_only_follow_a_tag_of_the_same_type():
    transitions, start = forbidden_in_bio(NAMES)
    assert [NAMES[i] for i in start.nonzero()[:, 0]] == ["I-PER", "I-LOC"]
    forbidden = {(NAMES[i], NAMES[j]) for i, j in transitions.nonzero().tolist()}
    assert forbidden == {
        ("O", "I-PER"),
        ("O", "I-LOC"),
        ("B-PER", "I-LOC"),
        ("I-PER", "I-LOC"),
        ("B-LOC", "I-PER"),
        ("I-LOC", "I-PER"),
    }
    assert not forbidden_in_bio(("NOUN", "INTJ", "X"))[
        0
    ].any()  # without span tags, no transition is forbidden
    with pytest.raises(SettingError, match="must include B- tags or O"):
        forbidden_in_bio(["I-PER"])


def test_decoding_avoids_forbidden_transitions():
    lengths, violated = [4, 3, 0, 1, 2], 0
    for seed in range(12):
        crf, scores, _, sizes = make(5, lengths, seed, 2.0, forbidden=forbidden_in_bio(NAMES))
        scores = scores.detach()
        found = crf.decode(scores, sizes)
        assert found.tolist() == literal_decode(crf, scores, lengths, is_bio)
        violated += literal_decode(crf, scores, lengths) != found.tolist()
        assert set(crf.state_dict()) == {"transitions", "start", "end"}  # the masks are not saved
    assert violated > 3
