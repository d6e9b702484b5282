"""The network of ELMo (Peters et al. 2018): characters, highway layers, two readers with projected states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import SettingError
from calque.nn.ragged import Ragged

#: what a row of characters may hold beside the 256 values of a byte; in a network's input all are one higher
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = 256, 257, 258, 259, 260
N_CHARACTERS = 261
CHUNK = 256  # word types whose convolutions are computed at a time
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # for 512 dimensions, as published
_LARGEST = 3.4e38  # that float32 holds


def elmo_options(
    *,
    dim: int = 512,
    hidden: int | None = None,
    layers: int = 2,
    filters: tuple[tuple[int, int], ...] | None = None,
    character_dim: int = 16,
    highway: int = 2,
    max_characters: int = 50,
    activation: str = "relu",
    clip: float = 3.0,
) -> dict[str, Any]:
    """`options.json` of a new network.

    Args:
        dim: size of a word's vector and of a state, in each direction.
        hidden: size of an LSTM cell; None for the published ratio, 8 · dim.
        filters: width in characters and number of each kind of filter; None for the published ones, fewer for a smaller
            `dim`.
        character_dim: size of a character's vector.
        max_characters: of a word, its two ends included.
        activation: of the filters, relu or tanh.
        clip: of cells and projected states.
    """
    filters = filters or tuple((width, max(1, n * dim // 512)) for width, n in _FILTERS)
    return {
        "lstm": {
            "use_skip_connections": True, "projection_dim": dim, "cell_clip": clip, "proj_clip": clip,
            "dim": 8 * dim if hidden is None else hidden, "n_layers": layers,
        },
        "char_cnn": {
            "activation": activation, "filters": [[width, n] for width, n in filters], "n_highway": highway,
            "embedding": {"dim": character_dim}, "n_characters": N_CHARACTERS + 1,
            "max_characters_per_token": max_characters,
        },
        "bidirectional": True,
    }  # fmt: skip


def projected_lstm(
    x: Tensor,
    sizes: Sequence[int],
    kernel: Tensor,
    bias: Tensor,
    projection: Tensor,
    *,
    cell_clip: float | None = None,
    state_clip: float | None = None,
) -> Tensor:
    """One direction of one layer whose state is projected and clipped, which `torch.nn.LSTM` does not clip (Sak et al. 2014,
    "Long short-term memory based recurrent neural network architectures", without peepholes, as TensorFlow's `LSTMCell`).

        i, j, f, o = [x_t; h_{t−1}] K + b
        c_t = clip(σ(f + 1) · c_{t−1} + σ(i) · tanh(j)),    h_t = clip((σ(o) · tanh c_t) P)

    Args:
        x: `[n_words, dim]`, in the time-major order of `Ragged`: each step is a block of rows, and the sentences that go on
            are always its first rows.
        sizes: number of sentences that still run at each step.
        kernel: K, `[dim + size, 4 * cell]`.
        bias: `[4 * cell]`; that of the forget gate is meant to have 1 added to it.
        projection: P, `[cell, size]`.
        cell_clip, state_clip: largest size of a component of c and of h; None for any.

    Returns:
        h of all words, `[n_words, size]`, in time-major order.
    """
    (cell, size), (n_words, dim) = projection.shape, x.shape
    if not n_words:
        return x.new_zeros(0, size)
    most_c, most_h = float(cell_clip or math.inf), float(state_clip or math.inf)
    # All products with the input are one product; step by step there remain those with the state.
    given, recurrent = torch.addmm(bias, x, kernel[:dim]).split(list(sizes)), kernel[dim:]
    h, c, states = x.new_zeros(sizes[0], size), x.new_zeros(sizes[0], cell), []
    for block in given:
        running = len(block)
        i, j, f, o = torch.addmm(block, h[:running], recurrent).chunk(4, dim=1)
        c = ((f + 1).sigmoid() * c[:running] + i.sigmoid() * j.tanh()).clamp(-most_c, most_c)
        h = ((o.sigmoid() * c.tanh()) @ projection).clamp(-most_h, most_h)
        states.append(h)
    return torch.cat(states)


class Reader(nn.Module):
    """Weights of one layer in one direction, as TensorFlow has them; see `projected_lstm`."""

    def __init__(self, dim: int, size: int, cell: int):
        super().__init__()
        bound = math.sqrt(6 / (dim + size + 4 * cell))  # Glorot & Bengio 2010
        self.kernel = nn.Parameter(torch.empty(dim + size, 4 * cell).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * cell))
        bound = math.sqrt(6 / (size + cell))
        self.projection = nn.Parameter(torch.empty(cell, size).uniform_(-bound, bound))


class CharacterCNN(nn.Module):
    """A word's vector from its characters alone (Kim et al. 2016; Józefowicz et al. 2016, §3.2).

    Of each filter the largest answer over all places of the word, then the activation; highway layers g · relu(x W + b) +
    (1 − g) · x with g = σ(x C + d); a projection.

    Args:
        options: the part `char_cnn` of `options.json`.
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


class ElmoNetwork(nn.Module):
    """Characters to words, and layers of long short-term memory that read each sentence forwards and backwards.

    The two directions never meet: each layer reads its own direction of the layer below, and from the second layer on
    its input is added to its output. A sentence gives the same whatever else is in the batch.

    Args:
        options: what `options.json` says; keys that the network does not need are kept.
        rows: see `CharacterCNN`.

    Attributes:
        size: P, of a word's vector and of a state; a layer's vectors have 2 P dimensions.
        cell: size of a cell.
        n_layers: LSTM layers.
    """

    def __init__(self, options: Mapping[str, Any], rows: int = N_CHARACTERS):
        super().__init__()
        self.options = dict(options)
        if not options.get("bidirectional", True):
            raise SettingError("bidirectional is false, but ELMo's layers read in both directions")
        for name in ("lstm", "char_cnn"):
            if not isinstance(options.get(name), Mapping):
                raise SettingError(f"{name} is missing, expected a table as in ELMo's options.json")
        lstm = options["lstm"]
        self.size, self.cell = whole(lstm, "projection_dim"), whole(lstm, "dim")
        self.n_layers = whole(lstm, "n_layers", default=1)
        self.skip = bool(lstm.get("use_skip_connections"))
        self.clips = {"cell_clip": lstm.get("cell_clip"), "state_clip": lstm.get("proj_clip")}
        clips = list(self.clips.values())
        if not all(clip is None or (isinstance(clip, int | float) and 0 <= clip < _LARGEST) for clip in clips):
            raise SettingError(f"cell_clip and proj_clip are {clips}, expected numbers or nothing")
        self.words = CharacterCNN(options["char_cnn"], self.size, rows)
        self.forwards, self.backwards = (
            nn.ModuleList(Reader(self.size, self.size, self.cell) for _ in range(self.n_layers)) for _ in range(2)
        )

    def read(
        self,
        x: Tensor,
        ragged: Ragged,
        *,
        depth: int | None = None,
        drop: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The layers of both directions.

        Args:
            x: `[n_words, size]`, the words of all sentences in a row, with both ends of each.
            ragged: where the sentences lie; none without words.
            depth: LSTM layers wanted; None for all.
            drop: applied to what goes into a layer, and to what comes out of the last (dropout, in training).

        Returns:
            each layer forwards, and each layer backwards, `[n_words, size]`.
        """
        depth = self.n_layers if depth is None else depth
        sides: list[list[Tensor]] = []
        directions = ((self.forwards, ragged.from_left), (self.backwards, ragged.from_right))
        for readers, words in directions:
            rows = torch.from_numpy(words).to(x.device)
            above, layers = x[rows], []
            for number in range(depth):
                reader: Any = readers[number]
                given = drop(above)
                above = projected_lstm(given, ragged.sizes, reader.kernel, reader.bias, reader.projection, **self.clips)
                if number and self.skip:
                    above = above + given
                layers.append(drop(above) if number == depth - 1 else above)
            sides.append([torch.empty_like(layer).index_copy(0, rows, layer) for layer in layers])
        return sides[0], sides[1]

    def forward(self, x: Tensor, ragged: Ragged, *, depth: int | None = None) -> list[Tensor]:
        """Layers 0 to `depth`, each `[n_words, 2 * size]`; layer 0 is the word's vector twice."""
        left, right = self.read(x, ragged, depth=depth)
        return [torch.cat(pair, dim=1) for pair in zip([x, *left], [x, *right], strict=True)]


def scalar_mix(layers: list[Tensor], weights: Tensor, scale: float = 1.0) -> Tensor:
    """γ · Σ softmax(w)_j · h_j (Peters et al. 2018, Eq. 1).

    Args:
        layers: h, `[n_words, dim]` each.
        weights: w, one for each layer.
        scale: γ.
    """
    return scale * torch.tensordot(weights.softmax(0), torch.stack(layers), dims=1)
