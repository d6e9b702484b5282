"""The head of a tagger: word vectors into scores of tags."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from calque.nn.crf import ChainCRF, forbidden_in_bio
from calque.nn.pooling import means, sums
from calque.nn.recurrent import StackedLSTM


class TaggingHead(nn.Module):
    """Words into scores of tags.

    Args:
        n_intents: labels of whole sentences; 0 for none. They are told from the mean over the words.
        lstm: hidden states and layers of a bidirectional LSTM below; None for none.
        crf: judge whole sequences of tags instead of each alone (Lafferty et al. 2001).
        dropout: of what comes in and of what the last layer sees.
    """

    def __init__(
        self,
        dim: int,
        tags: Sequence[str],
        n_intents: int = 0,
        *,
        lstm: tuple[int, int] | None,
        crf: bool,
        dropout: float,
    ):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.lstm = None if lstm is None else StackedLSTM(dim, lstm[0], lstm[1], dropout=dropout)
        width = dim if lstm is None else 2 * lstm[0]
        self.out = nn.Linear(width, len(tags))
        self.crf = ChainCRF(len(tags), forbidden=forbidden_in_bio(tags)) if crf else None
        self.intent = nn.Linear(width, n_intents) if n_intents else None

    def forward(self, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of tags `[W, n_tags]`, and of intents `[S, n_intents]` if there are any."""
        states = self.drop(rows)
        if self.lstm is not None:
            states = self.drop(self.lstm(states, lengths))
        return self.out(states), None if self.intent is None else self.intent(means(states, lengths))

    def tag_losses(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """−log p of the right tags of each sentence, `[S]`."""
        if self.crf is not None:
            return -self.crf.log_likelihood(scores, tags, lengths)
        losses = functional.cross_entropy(scores, tags, reduction="none")
        return sums(losses[:, None], lengths)[:, 0]

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The tags that are thought right, int64 `[W]`."""
        return scores.argmax(1) if self.crf is None else self.crf.decode(scores, lengths)
