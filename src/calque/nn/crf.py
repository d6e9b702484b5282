"""Linear-chain conditional random field (CRF), which scores tag sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.nn.ragged import Ragged


def forbidden_in_bio(names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return masks of the tag transitions and first tags that the BIO scheme (IOB2) forbids: `I-X`
    must follow `B-X` or `I-X`.

    Args:
        names: tag names. A tag that begins with neither `B-` nor `I-` is outside of all spans.

    Returns:
        mask of transitions from the row's tag to the column's tag, bool `[n_tags, n_tags]`, and
        mask of first tags, `[n_tags]`.

    Raises:
        SettingError: no tag can begin a sentence.

    Example:
        >>> forbidden_in_bio(["B-X", "I-X", "O"])[0][2].tolist()
        [False, True, False]
    """
    # Label X of each tag B-X or I-X, and of each tag I-X; None for other tags.
    span_label = [name[2:] if name.startswith(("B-", "I-")) else None for name in names]
    inside_label = [name[2:] if name.startswith("I-") else None for name in names]
    start = torch.tensor([label is not None for label in inside_label])
    if len(names) and bool(start.all()):
        raise SettingError(
            "tags must include B- tags or O in the BIO scheme, got only I- tags: "
            f"{', '.join(names)}"
        )
    transitions = []
    for previous in span_label:
        transitions.append([label is not None and label != previous for label in inside_label])
    return torch.tensor(transitions).view(len(names), -1), start


class ChainCRF(nn.Module):
    """Linear-chain conditional random field (Lafferty, McCallum & Pereira 2001).

        log p(y | x) = score(y) − log Σ over all y' of exp score(y')
        score(y) = start[y_1] + Σ_t scores[t, y_t] + Σ_{t>1} transitions[y_{t−1}, y_t] + end[y_n]

    The sum is computed by the forward algorithm (Rabiner 1989, "A tutorial on hidden Markov
    models", III.A), in log space and in float64. Each step processes all sentences that have not
    ended yet.

    Args:
        forbidden: masks of the transitions and of the first tags that `decode` must avoid, see
            `forbidden_in_bio`. The likelihood ignores these masks.

    Attributes:
        transitions: score of each transition from the row's tag to the column's tag, `[n_tags,
            n_tags]`.
        start, end: score of each tag as the first tag and as the last tag, `[n_tags]`.

    Example:
        >>> crf = ChainCRF(3)
        >>> scores, tags, lengths = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 1]), torch.tensor([2, 3])
        >>> loss = -crf.log_likelihood(scores, tags, lengths).mean()
        >>> crf.decode(scores, lengths).shape
        torch.Size([5])
    """

    _forbidden_transitions: Tensor
    _forbidden_start: Tensor

    def __init__(self, n_tags: int, *, forbidden: tuple[Tensor, Tensor] | None = None):
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        if forbidden is None:
            forbidden = (
                torch.zeros(n_tags, n_tags, dtype=torch.bool),
                torch.zeros(n_tags, dtype=torch.bool),
            )
        # Not saved, because the masks are rebuilt from the tag names.
        self.register_buffer("_forbidden_transitions", forbidden[0], persistent=False)
        self.register_buffer("_forbidden_start", forbidden[1], persistent=False)

    def log_likelihood(self, scores: Tensor, tags: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return log p(tags | scores) for each sentence.

        Args:
            scores: tag scores for the concatenated words of all sentences, float `[n_words,
                n_tags]`.
            tags: gold tag of each word, int64 `[n_words]`.
            lengths: number of words in each sentence, int64 `[n_sentences]`, preferably on the CPU.

        Returns:
            log-likelihoods, `[n_sentences]`, in float64 for float64 scores, otherwise in float32; 0
            for an empty sentence.
        """
        ragged = Ragged.of(lengths, len(scores))
        tags, wide = tags.long().contiguous(), scores.double()
        total = self._score(wide, tags, ragged) - self._log_partition(wide, ragged)
        return total.to(torch.promote_types(scores.dtype, torch.float32))

    def _score(self, scores: Tensor, tags: Tensor, ragged: Ragged) -> Tensor:
        """Return the score of each sentence's tag sequence, float64 `[n_sentences]`."""
        device = scores.device
        sentence = torch.from_numpy(ragged.sentence).to(device)
        first = torch.from_numpy(ragged.offsets[ragged.order]).to(device)
        last = torch.from_numpy(ragged.offsets[ragged.order + 1] - 1).to(device)
        before = (sentence[1:] == sentence[:-1]).nonzero().squeeze(1)  # words with a successor
        of_words = scores.gather(1, tags[:, None]).squeeze(1)
        of_transitions = self.transitions.double()[tags[before], tags[before + 1]]
        of_ends = self.start.double()[tags[first]] + self.end.double()[tags[last]]
        total = scores.new_zeros(len(ragged)).index_add(0, sentence, of_words)
        total = total.index_add(0, sentence[before], of_transitions)
        return total.index_add(0, sentence[first], of_ends)

    def _log_partition(self, scores: Tensor, ragged: Ragged) -> Tensor:
        """Return log Σ exp score(y) over all tag sequences, float64 `[n_sentences]`."""
        if not len(scores):
            return scores.new_zeros(len(ragged))
        words = torch.from_numpy(ragged.from_left).to(scores.device)
        first, *blocks = scores[words].split(ragged.sizes)
        transitions = self.transitions.double()
        # alpha[s, y]: log-sum over the tag sequences of sentence s so far that end with tag y
        alpha, ended = self.start.double() + first, []
        for block in blocks:
            ended.append(alpha[len(block) :])
            alpha = torch.logsumexp(alpha[: len(block), :, None] + transitions, dim=1) + block
        total = torch.logsumexp(torch.cat([alpha, *reversed(ended)]) + self.end.double(), dim=1)
        return scores.new_zeros(len(ragged)).index_add(
            0, torch.from_numpy(ragged.order).to(scores.device), total
        )

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return each sentence's best tag sequence without `forbidden` transitions (Viterbi 1967),
        int64 `[n_words]`.

        Ties are resolved in favour of the smallest last tag, then the smallest second-to-last tag,
        and so on.
        """
        ragged = Ragged.of(lengths, len(scores))
        transitions = self.transitions.double().masked_fill(self._forbidden_transitions, -torch.inf)
        start = self.start.double().masked_fill(self._forbidden_start, -torch.inf)
        end = self.end.double()
        if not len(scores):
            return torch.empty(0, dtype=torch.int64, device=scores.device)
        words = torch.from_numpy(ragged.from_left).to(scores.device)
        first, *blocks = scores.double()[words].split(ragged.sizes)
        # delta[s, y]: score of the best tag sequence of sentence s so far that ends with tag y
        delta, ends, pointers = start + first, [], []
        for block in blocks:
            ends.append((delta + end).argmax(1))
            best, pointer = (delta[: len(block), :, None] + transitions).max(dim=1)
            delta = best + block
            pointers.append(pointer)
        tags = [(delta + end).argmax(1)]
        for at_end, pointer in zip(reversed(ends), reversed(pointers), strict=True):
            before = pointer.gather(1, tags[-1][:, None]).squeeze(1)
            # Sentences that end at this step come last.
            tags.append(torch.cat([before, at_end[len(before) :]]))
        return torch.empty_like(words).index_copy(0, words, torch.cat(tags[::-1]))
