"""Words out of their characters by convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import SettingError

#: what a row of characters may hold beside the 256 values of a byte; in a network's input all are one higher
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = 256, 257, 258, 259, 260
N_CHARACTERS = 261
CHUNK = 256  # word types whose convolutions are computed at a time


class CharacterCNN(nn.Module):
    """A word's vector from its characters alone (Kim et al. 2016; Józefowicz et al. 2016, §3.2).

    Of each filter the largest answer over all places of the word, then the activation; highway layers g · relu(x W + b) +
    (1 − g) · x with g = σ(x C + d); a projection.

    Args:
        options: the part `char_cnn` of `options.json`.
        dim: of the projection.
        rows: of the table of characters; more than 261 are kept, and never read.
    """

    def __init__(self, options: Mapping[str, Any], dim: int, rows: int = N_CHARACTERS):
        super().__init__()
        self.max_characters = whole(options, "max_characters_per_token", least=3)
        self.activation = options.get("activation", "relu")
        if self.activation not in ("relu", "tanh"):
            raise SettingError(f"char_cnn.activation is {self.activation!r}, expected relu or tanh")
        try:
            self.filters = [(int(width), int(n)) for width, n in options["filters"]]
            size = int(options["embedding"]["dim"])
        except (KeyError, TypeError, ValueError) as error:
            raise SettingError(f"char_cnn wants filters as [[width, number], …] and embedding.dim ({error})") from error
        if not self.filters or min(map(min, self.filters)) < 1 or size < 1:
            raise SettingError("char_cnn has filters, widths and dimensions of at least 1")
        self._widest = max(width for width, _ in self.filters)
        if self._widest > self.max_characters:
            raise SettingError(f"a filter over {self._widest} characters, but a word has {self.max_characters}")
        total = sum(n for _, n in self.filters)
        highway = whole(options, "n_highway", least=0, default=0)
        # Begun as in the published training code, bilm-tf.
        self.characters = nn.Parameter(torch.empty(rows, size).uniform_(-1, 1))
        self.kernels = nn.ParameterList(self._kernel(width * size, n) for width, n in self.filters)
        self.biases = nn.ParameterList(torch.zeros(n) for _, n in self.filters)
        self.carry, self.transform = (
            nn.ParameterList(torch.randn(total, total) / total**0.5 for _ in range(highway)) for _ in range(2)
        )
        self.carry_bias = nn.ParameterList(torch.full((total,), -2.0) for _ in range(highway))
        self.transform_bias = nn.ParameterList(torch.zeros(total) for _ in range(highway))
        self.projection = nn.Parameter(torch.randn(total, dim) / total**0.5)
        self.projection_bias = nn.Parameter(torch.zeros(dim))

    def _kernel(self, inputs: int, outputs: int) -> Tensor:
        kernel = torch.empty(inputs, outputs)
        return kernel.uniform_(-0.05, 0.05) if self.activation == "relu" else kernel.normal_(0, inputs**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of words.

        Args:
            ids: whole numbers `[n, max_characters]`, from 1 on; 0 is no character at all, and its vector zero.

        Returns:
            `[n, dim]`, computed in chunks of words of about equal length.
        """
        if not len(ids):
            return self.projection.new_zeros(0, self.projection.shape[1])
        inside = ids != PADDING + 1
        lengths = torch.where(inside, torch.arange(1, ids.shape[1] + 1, device=ids.device), 0).amax(1)
        order = lengths.argsort(stable=True)
        table = F.pad(self.characters, (0, 0, 1, 0))
        chunks = []
        for rows in order.split(CHUNK):
            # From a word's end on, each filter sees padding only: one such place stands for all.
            longest = min(ids.shape[1], int(lengths[rows[-1]]) + self._widest)
            chunks.append(self._chunk(ids[rows, :longest].long(), table))
        x = torch.cat(chunks)
        return torch.empty_like(x).index_copy(0, order, x)

    def _chunk(self, ids: Tensor, table: Tensor) -> Tensor:
        answers = []
        for (width, _), kernel, bias in zip(self.filters, self.kernels, self.biases, strict=True):
            windows = F.embedding(ids.unfold(1, width, 1), table).flatten(2)
            answers.append((windows @ kernel).amax(1) + bias)
        x = torch.cat(answers, dim=1)
        x = x.relu() if self.activation == "relu" else x.tanh()
        gates = zip(self.carry, self.carry_bias, self.transform, self.transform_bias, strict=True)
        for carry, carry_bias, transform, transform_bias in gates:
            new = torch.addmm(transform_bias, x, transform).relu()
            x = x + torch.addmm(carry_bias, x, carry).sigmoid() * (new - x)
        return torch.addmm(self.projection_bias, x, self.projection)


def whole(options: Mapping[str, Any], name: str, *, least: int = 1, default: int | None = None) -> int:
    """An option that is a whole number.

    Raises:
        SettingError: it is not, or too small.
    """
    value = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SettingError(f"{name} is {value!r}, expected a whole number of at least {least}")
    return value
