"""Compare the losses and best spans of question answering with naive implementations."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.nn.answers import MatchedEnds, best_ends, end_losses


def best_slowly(scores, owner, n, most):
    """Try all spans of at most `most` words; ties go to the first span, then to the shortest."""
    found = [(-1, -1)] * n
    best = [-np.inf] * n
    for i in range(len(scores)):
        for j in range(i, min(i + most, len(scores))):
            total = scores[i, 0] + scores[j, 1]
            if owner[i] == owner[j] and total > best[owner[i]]:
                best[owner[i]], found[owner[i]] = total, (i, j)
    return found


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_best_answer_has_the_highest_score_of_all_spans(data):
    """Draw scores from few values to create ties; one question has no rows."""
    owner = np.repeat(np.array([0, 2, 3]), [data.draw(st.integers(0, 7)) for _ in range(3)])
    values = st.integers(-3, 3)
    drawn = data.draw(st.lists(st.tuples(values, values), min_size=len(owner), max_size=len(owner)))
    scores = np.array(drawn, dtype=np.float32).reshape(-1, 2)
    most = data.draw(st.integers(1, 6))
    found = best_ends(scores, owner, 4, most)
    assert [tuple(each) for each in found.tolist()] == best_slowly(scores, owner, 4, most)


def test_losses_equal_those_of_a_softmax_per_question():
    torch.manual_seed(0)
    owner, words = (
        torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 2, 2]),
        torch.tensor([0, 1, 2, 0, 1, 2, 1, 2, 0, 1]),
    )
    scores = (5 * torch.randn(10, 2, dtype=torch.float64)).requires_grad_()
    right = torch.tensor(
        [[1, 2], [1, 2], [-1, -1], [0, 0]]
    )  # the third question has no answer, the fourth has no rows
    losses = end_losses(scores, owner, words, right)
    expected = torch.zeros(4, dtype=torch.float64)
    for question in (0, 1):
        mine = [row for row in range(10) if owner[row] == question]
        for side in (0, 1):
            shares = scores[mine, side].softmax(0)
            hit = sum(
                share
                for share, row in zip(shares, mine, strict=True)
                if words[row] == right[question, side]
            )
            expected[question] -= torch.log(torch.as_tensor(hit)) / 2
    torch.testing.assert_close(losses, expected)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert gradient.isfinite().all()
    assert not gradient[8:].any()
    torch.testing.assert_close(
        gradient[:8].reshape(-1, 2).sum(0), torch.zeros(2, dtype=torch.float64)
    )


def test_each_passage_word_is_compared_only_with_its_own_question():
    """Check [p̄; p̃; p̄ − p̃; p̄ ⊙ p̃; max q̄], one passage at a time."""
    torch.manual_seed(0)
    head = MatchedEnds(4, hidden=3, dropout=0.0)
    lengths, seen = torch.tensor([3, 2, 1, 2]), []
    rows = torch.randn(8, 4)
    head.projection.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    assert head(rows, lengths).shape == (5, 2)
    parts = [
        head.encoding(part, torch.tensor([len(part)])) for part in rows.split(lengths.tolist())
    ]
    expected = []
    for passage, question in ((parts[0], parts[2]), (parts[1], parts[3])):
        aligned = (passage @ question.T).softmax(1) @ question
        whole = question.max(0).values.expand_as(passage)
        expected.append(
            torch.cat([passage, aligned, passage - aligned, passage * aligned, whole], dim=1)
        )
    torch.testing.assert_close(seen[0], torch.cat(expected))
