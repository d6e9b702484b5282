"""A linear chain over tags: what is likely as a whole, not word by word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.nn import chain, steps
from calque.nn.ragged import Ragged

REACH = 600.0  # logarithms further apart than this do not fit float64 as weights: exp(−700) is nearly 0


class Forbidden(NamedTuple):
    """Tags that may not follow each other.

    Attributes:
        transitions: bool `[n_tags, n_tags]`, True where the tag of the column may not follow that of the row.
        start, end: bool `[n_tags]`, True where a sentence may not begin, or end, with the tag.
    """

    transitions: Tensor
    start: Tensor
    end: Tensor


def forbidden_in_bio(names: Sequence[str]) -> Forbidden:
    """What the BIO scheme (IOB2) forbids: `I-X` stands only after `B-X` or `I-X`.

    Args:
        names: of the tags; what begins with neither `B-` nor `I-` is outside of spans.

    Raises:
        SettingError: no tag with which a sentence may begin.

    Example:
        >>> forbidden_in_bio(["B-X", "I-X", "O"]).transitions[2].tolist()
        [False, True, False]
    """
    inside = [name[2:] if name.startswith("I-") else None for name in names]
    span = [name[2:] if name.startswith(("B-", "I-")) else None for name in names]
    start = torch.tensor([kind is not None for kind in inside])
    if len(names) and bool(start.all()):
        raise SettingError(f"tags {', '.join(names)} are all inside of spans; the BIO scheme needs B- tags or O")
    follows = [[kind is None or kind == before for kind in inside] for before in span]
    return Forbidden(~torch.tensor(follows).view(len(names), -1), start, torch.zeros_like(start))


class ChainCRF(nn.Module):
    """Linear-chain conditional random field (Lafferty, McCallum & Pereira 2001).

        log p(y | x) = score(y) − log Σ over all y' of exp score(y')
        score(y) = start[y_1] + Σ_t scores[t, y_t] + Σ_{t>1} transitions[y_{t−1}, y_t] + end[y_n]

    The sum is computed with weights, not logarithms, and its gradient is not autograd's but the marginals that a pass
    back over the sentence gives: on the CPU in compiled code, elsewhere at each step for all sentences that still run.
    Where a score lies too far from the others (`REACH`), as with a tag ruled out by −inf, it falls back on log space,
    which is slow.

    Args:
        n_tags: number of tags.
        forbidden: what decoding must avoid (`forbidden_in_bio`). The likelihood is over all sequences.
        engine: "compiled" (CPU only), "steps" (PyTorch), or "auto".

    Attributes:
        transitions: `[n_tags, n_tags]`, from the tag of the row to that of the column.
        start, end: `[n_tags]`.

    Example:
        >>> crf = ChainCRF(3)
        >>> scores, tags, lengths = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 1]), torch.tensor([2, 3])
        >>> loss = -crf.log_likelihood(scores, tags, lengths).mean()
        >>> crf.decode(scores, lengths).shape
        torch.Size([5])
    """

    _forbidden_transitions: Tensor
    _forbidden_start: Tensor
    _forbidden_end: Tensor

    def __init__(
        self,
        n_tags: int,
        *,
        forbidden: Forbidden | None = None,
        engine: Literal["auto", "compiled", "steps"] = "auto",
    ):
        super().__init__()
        self.n_tags, self.engine = n_tags, engine
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        masks = forbidden or Forbidden(*(torch.zeros(part.shape, dtype=torch.bool) for part in self.parameters()))
        for name, mask, part in zip(masks._fields, masks, self.parameters(), strict=True):
            if mask.shape != part.shape:
                raise SettingError(f"forbidden {name} of shape {tuple(mask.shape)} for {n_tags} tags")
            self.register_buffer(f"_forbidden_{name}", mask, persistent=False)  # follows from the names of the tags

    def log_likelihood(self, scores: Tensor, tags: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """log p(tags | scores) of each sentence; differentiable once.

        Args:
            scores: float `[n_words, n_tags]`, the words of all sentences in a row.
            tags: int64 `[n_words]`.
            lengths: int64 `[n_sentences]`, best on the CPU.

        Returns:
            `[n_sentences]`, float32, or float64 if the scores are; 0 for a sentence without words.

        Raises:
            SettingError: sizes do not fit each other, or a tag is none of `n_tags`.
        """
        ragged = self._checked(scores, lengths)
        if tags.shape != scores.shape[:1]:
            raise SettingError(f"tags of shape {tuple(tags.shape)} for {len(scores)} words")
        tags = tags.long().contiguous()
        if len(tags):
            low, high = (int(bound) for bound in tags.aminmax())
            if low < 0 or high >= self.n_tags:
                raise SettingError(f"tag {low if low < 0 else high}, expected 0 to {self.n_tags - 1}")
        transitions, start, end = self.transitions.double(), self.start.double(), self.end.double()
        wide = scores.double()
        near = _within_reach(wide, transitions, start, end)
        if near and self._compiled(scores):
            total = chain.log_likelihood(wide, tags, transitions, start, end, ragged)
        else:
            total = steps.log_likelihood(wide, tags, transitions, start, end, ragged, logarithms=not near)
        return total.to(torch.promote_types(scores.dtype, torch.float32))

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor | Ragged, *, constrain: bool = True) -> Tensor:
        """The best sequence of tags of each sentence (Viterbi 1967).

        Of equally good sequences it is the one with the smaller last tag, then the smaller last but one, and so on.

        Args:
            scores, lengths: as in `log_likelihood`.
            constrain: keep to what is not `forbidden`.

        Returns:
            int64 `[n_words]`.
        """
        ragged = self._checked(scores, lengths)
        transitions, start, end = self.transitions.double(), self.start.double(), self.end.double()
        if constrain:
            transitions = transitions.masked_fill(self._forbidden_transitions, -torch.inf)
            start = start.masked_fill(self._forbidden_start, -torch.inf)
            end = end.masked_fill(self._forbidden_end, -torch.inf)
        search = chain.best_tags if self._compiled(scores) else steps.best_tags
        return search(scores.double(), transitions, start, end, ragged)

    def _checked(self, scores: Tensor, lengths: Tensor | Ragged) -> Ragged:
        if scores.ndim != 2 or scores.shape[1] != self.n_tags:
            raise SettingError(f"scores of shape {tuple(scores.shape)}, expected [words, {self.n_tags}]")
        return Ragged.of(lengths, len(scores))

    def _compiled(self, scores: Tensor) -> bool:
        if self.engine == "compiled" and scores.device.type != "cpu":
            raise SettingError(f"engine=compiled for scores on {scores.device}, expected auto or steps there")
        return self.engine == "compiled" or (self.engine == "auto" and scores.device.type == "cpu")

    def extra_repr(self) -> str:
        return f"{self.n_tags}"


@torch.no_grad()
def _within_reach(scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> bool:
    """Whether no weight, and no product of weights that is met on the way, leaves the range of float64.

    With R the largest of the parameters' absolute values and r the widest distance between two scores of a word, alpha
    is at least exp(−2R − r), beta at most the inverse of that, and one more step adds R. NaN is out of reach.
    """
    reach = 3 * torch.stack([part.abs().amax() for part in (transitions, start, end)]).amax()
    if len(scores):
        low, high = scores.aminmax(dim=1)
        reach = reach + (high - low).amax()
    return bool(reach < REACH)
