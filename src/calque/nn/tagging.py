"""Tagging head that computes tag scores from word vectors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from calque.nn.crf import ChainCRF, forbidden_in_bio
from calque.nn.pooling import means, sums
from calque.nn.recurrent import StackedLSTM


class TaggingHead(nn.Module):
    """Task head that computes tag scores for words, and optionally intent scores for sentences.

    Args:
        n_intents: number of sentence labels (intents), predicted from the mean word vector; 0 if
            there are no intents.
        lstm: hidden size and number of layers of a bidirectional LSTM below the output layer; if
            None, there is no LSTM.
        crf: whether to score tag sequences with a CRF (Lafferty et al. 2001) instead of scoring
            each tag independently.
        dropout: dropout rate for the input, between the LSTM layers, and before the last layer.
        normalise: whether to standardise the input with the means and variances of the training
            batches. A linear head on frozen vectors needs this: in many encoders, the vectors of all
            words differ little from their mean, so that training hardly moves without it (He et al.
            2022, "Masked autoencoders are scalable vision learners", appendix A.1). The functions
            that the head can represent are the same.
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
        normalise: bool = False,
    ):
        super().__init__()
        # Without momentum, the statistics are those of all batches so far.
        self.norm = nn.BatchNorm1d(dim, affine=False, momentum=None) if normalise else None
        self.drop = nn.Dropout(dropout)
        self.lstm = None if lstm is None else StackedLSTM(dim, lstm[0], lstm[1], dropout=dropout)
        width = dim if lstm is None else 2 * lstm[0]
        self.out = nn.Linear(width, len(tags))
        self.crf = ChainCRF(len(tags), forbidden=forbidden_in_bio(tags)) if crf else None
        self.intent = nn.Linear(width, n_intents) if n_intents else None

    def forward(self, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the tag scores, `[W, n_tags]`, and the intent scores, `[S, n_intents]`, or None if
        there are no intents.
        """
        states = self.drop(rows if self.norm is None else self.norm(rows))
        if self.lstm is not None:
            states = self.drop(self.lstm(states, lengths))
        intents = None if self.intent is None else self.intent(means(states, lengths))
        return self.out(states), intents

    def tag_losses(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Return −log p(gold tags) for each sentence, `[S]`."""
        if self.crf is not None:
            return -self.crf.log_likelihood(scores, tags, lengths)
        losses = functional.cross_entropy(scores, tags, reduction="none")
        return sums(losses[:, None], lengths)[:, 0]

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return the best tag of each word, int64 `[W]`."""
        return scores.argmax(1) if self.crf is None else self.crf.decode(scores, lengths)
