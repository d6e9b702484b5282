"""Recurrent layers for batches of sentences with different lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from calque.nn.ragged import Ragged, SentenceDropout


class StackedLSTM(nn.Module):
    """Stacked bidirectional LSTM layers (long short-term memory; Hochreiter & Schmidhuber 1997).

        i, f, o = σ(W x_t + U h_{t−1} + b),  g = tanh(W x_t + U h_{t−1} + b),  c_t = f · c_{t−1} + i
        · g,  h_t = o · tanh c_t

    The concatenated outputs of both directions are the input to the next layer. The output for a
    sentence does not depend on the other sentences in the batch, and no padding is used.

    Args:
        hidden: size of the hidden state per direction.
        dropout: dropout rate between layers, with one mask per sentence (`SentenceDropout`).
            Dropout is not applied before the first layer, after the last layer or to recurrent
            connections.

    Example:
        >>> lstm = StackedLSTM(8, 5, 2)
        >>> lstm(torch.randn(7, 8), torch.tensor([4, 0, 3])).shape
        torch.Size([7, 10])
    """

    def __init__(self, dim: int, hidden: int, layers: int, dropout: float = 0.0):
        super().__init__()
        self.out_dim = 2 * hidden
        sizes = [dim] + [self.out_dim] * (layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(size, hidden, bidirectional=True) for size in sizes)
        self.dropout = SentenceDropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Return the LSTM outputs for all words.

        Args:
            x: concatenated word vectors of all sentences, float `[n_words, dim]`.
            lengths: number of words in each sentence, int64 `[n_sentences]`, preferably on the CPU;
                may be 0.

        Returns:
            vectors, `[n_words, out_dim]`, where `out_dim` is `2 * hidden`.
        """
        ragged = Ragged.of(lengths, len(x))
        if not len(x):
            return x.new_zeros(0, self.out_dim)
        words = torch.from_numpy(ragged.from_left).to(x.device)
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout(x, ragged)
            # Time-major order is the order of PackedSequence, so no padding is needed.
            states = layer(PackedSequence(x[words], torch.tensor(ragged.sizes)))[0].data
            x = torch.empty_like(states).index_copy(0, words, states)
        return x
