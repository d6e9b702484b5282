"""ELMo (Peters et al. 2018): the network, the encoder, and files in the format of bilm-tf and
AllenNLP.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.encoders.base import Encoder
from calque.encoders.batches import WordBatch
from calque.encoders.checkpoint import weights_digest
from calque.encoders.extraction import extract
from calque.encoders.folder import ELMO_FILES, file_pair, read_about, saving, write_about
from calque.encoders.numerics import arithmetic, check_finite, check_precision, usable_device
from calque.encoders.split import SplitSentences
from calque.errors import InputError, MissingExtraError, SettingError, check_number, similar_path
from calque.nn.ragged import Ragged
from calque.offsets import ranges
from calque.storage import json_text, read_json_object, whole
from calque.text import Sentence, number_words
from calque.vectors import Embeddings

if TYPE_CHECKING:
    import h5py

#: ids of special characters, which follow the 256 bytes; the ids in the network's input are higher
#: by one
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = 256, 257, 258, 259, 260
N_CHARACTERS = 261
CHUNK = 256  # number of word types in a batch of the CNN
# (width, number) of the filters in the paper, for 512 dimensions
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
#: ids of the sentence boundary tokens among the word types
BEGIN, END = 0, 1
_MIXED = -1  # layer number that stands for the mixture of layers in `extract`


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
    """Return the content of `options.json` for a new network.

    Args:
        dim: dimension of a word vector and of each direction's hidden state.
        hidden: dimension of an LSTM cell; default: 8 · dim, as in the paper.
        filters: (width, number) pairs of the character filters; default: as in the paper, with
            numbers proportional to `dim`.
        character_dim: dimension of a character vector.
        max_characters: maximum number of characters in a word, including the two boundary
            characters.
        activation: activation function of the filters, relu or tanh.
        clip: maximum absolute value of the cell states and of the projected hidden states.
    """
    if not filters:
        filters = tuple((width, max(1, n * dim // 512)) for width, n in _FILTERS)
    return {
        "lstm": {
            "use_skip_connections": True,
            "projection_dim": dim,
            "cell_clip": clip,
            "proj_clip": clip,
            "dim": 8 * dim if hidden is None else hidden,
            "n_layers": layers,
        },
        "char_cnn": {
            "activation": activation,
            "filters": [[width, n] for width, n in filters],
            "n_highway": highway,
            "embedding": {"dim": character_dim},
            "n_characters": N_CHARACTERS + 1,
            "max_characters_per_token": max_characters,
        },
        "bidirectional": True,
    }


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
    """Compute one direction of an LSTM layer with projected and clipped states (Sak et al. 2014,
    without peepholes, as in TensorFlow's `LSTMCell`). `torch.nn.LSTM` does not support clipping.

        i, j, f, o = [x_t; h_{t−1}] K + b
        c_t = clip(σ(f + 1) · c_{t−1} + σ(i) · tanh(j)),    h_t = clip((σ(o) · tanh c_t) P)

    Args:
        x: inputs in the time-major order of `Ragged`, `[n_words, dim]`.
        sizes: number of active sentences at each step; these sentences come first in the batch.
        kernel: kernel K, `[dim + size, 4 * cell]`.
        bias: bias b, `[4 * cell]`, without the constant 1 of the forget gate.
        projection: projection P, `[cell, size]`.
        cell_clip, state_clip: maximum absolute value of the components of c and of h; default: no
            clipping.

    Returns:
        the states h of all words, `[n_words, size]`, in time-major order.
    """
    cell, size = projection.shape
    n_words, dim = x.shape
    if not n_words:
        return x.new_zeros(0, size)
    max_c, max_h = float(cell_clip or math.inf), float(state_clip or math.inf)
    # Multiply all inputs by the kernel at once; each step then adds only the product with the
    # previous state.
    products, recurrent = torch.addmm(bias, x, kernel[:dim]).split(list(sizes)), kernel[dim:]
    h, c = x.new_zeros(sizes[0], size), x.new_zeros(sizes[0], cell)
    states = []
    for step in products:
        running = len(step)  # the longest sentences come first, so the others have ended
        i, j, f, o = torch.addmm(step, h[:running], recurrent).chunk(4, dim=1)
        c = ((f + 1).sigmoid() * c[:running] + i.sigmoid() * j.tanh()).clamp(-max_c, max_c)
        h = ((o.sigmoid() * c.tanh()) @ projection).clamp(-max_h, max_h)
        states.append(h)
    return torch.cat(states)


class Reader(nn.Module):
    """Weights of one direction of an LSTM layer in TensorFlow's layout, see `projected_lstm`."""

    def __init__(self, dim: int, size: int, cell: int):
        super().__init__()
        bound = math.sqrt(6 / (dim + size + 4 * cell))  # initialisation of Glorot and Bengio (2010)
        self.kernel = nn.Parameter(torch.empty(dim + size, 4 * cell).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * cell))
        bound = math.sqrt(6 / (size + cell))
        self.projection = nn.Parameter(torch.empty(cell, size).uniform_(-bound, bound))


# a larger number in a file is an error, and building so many layers would take forever
MOST_LAYERS = 100


def _cnn_sizes(
    options: Mapping[str, Any], max_characters: int
) -> tuple[list[tuple[int, int]], int, int]:
    """Check and return the (width, number) pairs of the filters, the dimension of a character
    vector, and the number of highway layers.
    """
    try:
        filters = [(int(width), int(n)) for width, n in options["filters"]]
        character_dim, n_highway = int(options["embedding"]["dim"]), options.get("n_highway", 0)
        widest = max(width for width, _ in filters)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(
            f"char_cnn must have filters [[width, n], …] and embedding.dim ({error})"
        ) from error
    check_number("n_highway", n_highway, least=0, most=MOST_LAYERS, whole=True)
    check_number("the number of filters", len(filters), least=1, most=MOST_LAYERS, whole=True)
    smallest = min(character_dim, *(min(width, n) for width, n in filters))
    if smallest < 1 or widest > max_characters:
        raise SettingError(
            f"char_cnn: filters must have widths of 1 to {max_characters}, and all sizes must be "
            "positive"
        )
    return filters, character_dim, n_highway


class CharacterCNN(nn.Module):
    """Character CNN that computes word vectors (Kim et al. 2016; Józefowicz et al. 2016, §3.2).

    The network consists of convolutional filters with max-pooling over the word and an activation;
    highway layers g · relu(x W + b) + (1 − g) · x with g = σ(x C + d); and a projection. Weights
    are initialised as in bilm-tf.

    Args:
        options: the object `char_cnn` in `options.json`.
        rows: number of character vectors; those after the first 261 are stored but not used.

    Raises:
        SettingError: an option is missing or invalid.
    """

    def __init__(self, options: Mapping[str, Any], dim: int, rows: int = N_CHARACTERS):
        super().__init__()
        self.max_characters: int = options.get("max_characters_per_token")  # type: ignore[assignment]
        self.activation = options.get("activation", "relu")
        check_number("max_characters_per_token", self.max_characters, least=3, whole=True)
        if self.activation not in ("relu", "tanh"):
            raise SettingError(f"char_cnn.activation must be relu or tanh, got {self.activation!r}")
        self.filters, character_dim, n_highway = _cnn_sizes(options, self.max_characters)
        self._widest = max(width for width, _ in self.filters)
        total = sum(n for _, n in self.filters)
        self.characters = nn.Parameter(torch.empty(rows, character_dim).uniform_(-1, 1))
        self.kernels = nn.ParameterList(
            torch.empty(width * character_dim, n) for width, n in self.filters
        )
        for kernel in self.kernels:
            if self.activation == "relu":
                nn.init.uniform_(kernel, -0.05, 0.05)
            else:
                nn.init.normal_(kernel, 0, len(kernel) ** -0.5)
        self.biases = nn.ParameterList(torch.zeros(n) for _, n in self.filters)
        # highway layers: gates g = σ(x C + d), and values relu(x W + b)
        self.carry = _square_matrices(n_highway, total)
        self.transform = _square_matrices(n_highway, total)
        self.carry_bias = nn.ParameterList(torch.full((total,), -2.0) for _ in range(n_highway))
        self.transform_bias = nn.ParameterList(torch.zeros(total) for _ in range(n_highway))
        self.projection = nn.Parameter(torch.randn(total, dim) / total**0.5)
        self.projection_bias = nn.Parameter(torch.zeros(dim))

    def forward(self, ids: Tensor) -> Tensor:
        """Return word vectors `[n, dim]` for character ids `[n, max_characters]`. Id 0 is the mask,
        whose vector is zero.
        """
        if not len(ids):
            return self.projection.new_zeros(0, self.projection.shape[1])
        inside = ids != PADDING + 1
        ends = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        lengths = torch.where(inside, ends, 0).amax(1)  # up to the last character
        order = lengths.argsort(stable=True)  # chunks of words of similar length
        table = F.pad(self.characters, (0, 0, 1, 0))  # id 0 is the mask
        chunks = []
        for rows in order.split(CHUNK):
            # All windows beyond the end of a word contain only padding, so one such window is
            # enough.
            longest = min(ids.shape[1], int(lengths[rows[-1]]) + self._widest)
            chunks.append(self._chunk(ids[rows, :longest].long(), table))
        x = torch.cat(chunks)
        return torch.empty_like(x).index_copy(0, order, x)

    def _chunk(self, ids: Tensor, table: Tensor) -> Tensor:
        pooled = []
        for (width, _), kernel, bias in zip(self.filters, self.kernels, self.biases, strict=True):
            windows = F.embedding(ids.unfold(1, width, 1), table).flatten(2)
            # The bias is the same for all windows, so it can be added after max-pooling.
            pooled.append((windows @ kernel).amax(1) + bias)
        x = torch.cat(pooled, dim=1)
        x = x.relu() if self.activation == "relu" else x.tanh()
        gates = zip(self.carry, self.carry_bias, self.transform, self.transform_bias, strict=True)
        for carry, carry_bias, transform, transform_bias in gates:
            new = torch.addmm(transform_bias, x, transform).relu()
            gate = torch.addmm(carry_bias, x, carry).sigmoid()
            x = x + gate * (new - x)
        return torch.addmm(self.projection_bias, x, self.projection)


def _square_matrices(count: int, size: int) -> nn.ParameterList:
    return nn.ParameterList(torch.randn(size, size) / size**0.5 for _ in range(count))


class ElmoNetwork(nn.Module):
    """A character CNN, followed by LSTM layers that read each sentence forward and backward.

    The input of each direction is the output of the same direction in the layer below. With skip
    connections, the input of every layer except the first is added to its output. The output for a
    sentence does not depend on other sentences.

    Args:
        options: content of `options.json`; unused keys are kept.
        rows: see `CharacterCNN`.

    Attributes:
        size, cell: dimension P of word vectors and hidden states; dimension of an LSTM cell. Layer
            vectors have 2 P dimensions.

    Raises:
        SettingError: an option is missing or invalid.
    """

    def __init__(self, options: Mapping[str, Any], rows: int = N_CHARACTERS):
        super().__init__()
        self.options = dict(options)
        for name in ("lstm", "char_cnn"):
            if not isinstance(options.get(name), Mapping):
                raise SettingError(
                    f"{name} is missing, expected an object as in ELMo's options.json"
                )
        if not options.get("bidirectional", True):
            raise SettingError(
                "bidirectional must be true, because ELMo has layers in both directions"
            )
        lstm = options["lstm"]
        self.size: int = lstm.get("projection_dim")
        self.cell: int = lstm.get("dim")
        self.n_layers: int = lstm.get("n_layers", 1)
        self.skip = bool(lstm.get("use_skip_connections"))
        self.clips = {"cell_clip": lstm.get("cell_clip"), "state_clip": lstm.get("proj_clip")}
        self._check_sizes()
        self.words = CharacterCNN(options["char_cnn"], self.size, rows)
        self.forwards = self._readers()
        self.backwards = self._readers()

    def _check_sizes(self) -> None:
        check_number("lstm.projection_dim", self.size, least=1, whole=True)
        check_number("lstm.dim", self.cell, least=1, whole=True)
        check_number("lstm.n_layers", self.n_layers, least=1, most=MOST_LAYERS, whole=True)
        names = {"cell_clip": "cell_clip", "state_clip": "proj_clip"}  # names in the options file
        for argument, name in names.items():
            if self.clips[argument] is not None:
                check_number(f"lstm.{name}", self.clips[argument], least=0)

    def _readers(self) -> nn.ModuleList:
        """Return the layers of one direction."""
        return nn.ModuleList(Reader(self.size, self.size, self.cell) for _ in range(self.n_layers))

    def read(
        self,
        x: Tensor,
        ragged: Ragged,
        *,
        depth: int | None = None,
        drop: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs of the forward layers and of the backward layers, `[n_words, size]`
        each.

        Args:
            x: word vectors of all sentences, including boundary tokens, `[n_words, size]`.
            ragged: lengths of the sentences, which must be positive.
            depth: number of LSTM layers to compute; default: all layers.
            drop: dropout function for the input of each layer and the output of the last layer.
        """
        depth = int(self.n_layers if depth is None else depth)
        left = self._read_one_way(x, self.forwards, ragged.from_left, ragged.sizes, depth, drop)
        right = self._read_one_way(x, self.backwards, ragged.from_right, ragged.sizes, depth, drop)
        return left, right

    def _read_one_way(
        self,
        x: Tensor,
        readers: nn.ModuleList,
        order: np.ndarray,
        sizes: Sequence[int],
        depth: int,
        drop: Callable[[Tensor], Tensor],
    ) -> list[Tensor]:
        """Return the outputs of the layers of one direction.

        Args:
            order: index of each word, in the time-major order of the direction, int64 `[n_words]`.
            sizes: number of sentences with a word at each step.
        """
        rows = torch.from_numpy(order).to(x.device)
        above, layers = x[rows], []
        for number in range(depth):
            reader = cast("Reader", readers[number])
            below = drop(above)
            above = projected_lstm(
                below, sizes, reader.kernel, reader.bias, reader.projection, **self.clips
            )
            if number and self.skip:
                above = above + below
            is_last = number == depth - 1
            layers.append(drop(above) if is_last else above)
        # from time-major order back to the order of the text
        return [torch.empty_like(layer).index_copy(0, rows, layer) for layer in layers]

    def forward(self, x: Tensor, ragged: Ragged, *, depth: int | None = None) -> list[Tensor]:
        """Return layers 0 to `depth`, `[n_words, 2 * size]` each. Layer 0 contains the word vector
        twice.
        """
        left, right = self.read(x, ragged, depth=depth)
        return [torch.cat(pair, dim=1) for pair in zip([x, *left], [x, *right], strict=True)]


class ElmoEncoder(Encoder):
    """Encoder whose word vectors are layers of ELMo (Peters et al. 2018), read from files of
    bilm-tf or AllenNLP.

    Layer 0 contains the vector of the character CNN twice. Layers 1 to L contain forward and
    backward states; −1 means layer L. Every word has a vector. The vectors of a sentence do not
    depend on other sentences (up to a relative error of 1e-5).

    Args:
        network: the network, which is set to evaluation mode.
        layer: layer that `encode` returns.
        mix: weights of layers 0 to L before the softmax; `encode` then returns scale · Σ
            softmax(mix)_j · layer_j (Eq. 1).
        scale: scale γ of the mixture.
        lower: whether to lower-case all words; must match the setting used to train the network.
        name: name of the encoder in reports.
        precision: "highest" (float32). Folders of older versions may have other values, which only
            change the fingerprint.

    Attributes:
        n_layers: number L of LSTM layers.
        budget: maximum number of words in a batch of `encode`, including boundary tokens.

    Raises:
        SettingError: the network does not have the layer, or `mix` does not have L + 1 numbers.
    """

    def __init__(
        self,
        network: ElmoNetwork,
        *,
        layer: int = -1,
        mix: Sequence[float] | None = None,
        scale: float = 1.0,
        lower: bool = False,
        name: str = "elmo",
        precision: str = "highest",
    ):
        self.network, self.name = network.eval(), name
        self.n_layers, self.dim = network.n_layers, 2 * network.size
        if mix is not None and len(mix) != self.n_layers + 1:
            raise SettingError(
                f"mix must have one number for each layer from 0 to {self.n_layers}, got {len(mix)}"
            )
        self.mix = None if mix is None else [float(weight) for weight in mix]
        self.scale, self.lower = float(scale), lower
        self.precision = check_precision(precision, ("highest", "high", "medium"))
        self._chosen = self.layer_number(layer)
        self.layer = self._chosen if mix is None else None
        # Each step multiplies the states of a batch by weights too large for the CPU cache, so
        # batches are large.
        self.budget = 4096

    def __repr__(self) -> str:
        vectors = f"{self.n_layers + 1} layers mixed"
        if self.mix is None:
            vectors = f"layer {self._chosen} of {self.n_layers}"
        return f"{type(self).__name__}({self.name}, {vectors}, {self.dim}d)"

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    # -- many sentences ----------------------------------------------------------------------------
    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return the vector of each word from the encoder's layer or mixture of layers."""
        key = self._chosen if self.mix is None else _MIXED
        return self._encode(sentences, [key], progress)[key]

    def encode_contexts(self, sentences: Iterable[Sentence | Sequence[str]]) -> Embeddings:
        """Return the last-layer states that predict each word: the forward state before it and the
        backward state after it.
        """
        return self._encode(sentences, [self.n_layers], False, around=1)[self.n_layers]

    def _encode(
        self, sentences: Any, layers: list[int], progress: bool, around: int = 0
    ) -> dict[int, Embeddings]:
        self.network.eval()
        with arithmetic("highest"):
            device, words = self.device, WordTypes(self.network.words, lower=self.lower)
            return extract(  # in each window, the character CNN processes each word type once
                sentences,
                split=words.split,
                vectors=lambda batch: self._vectors(words, batch.to(device), layers, around),
                layers=layers,
                dim=self.dim,
                budget=self.budget,
                window=32_768,
                progress=progress,
            )

    def _vectors(
        self, words: WordTypes, batch: WordBatch, layers: Sequence[int], around: int
    ) -> dict[int, Tensor]:
        """Return each layer's vectors, `[W, dim]`: forward states `around` words before, backward
        states `around` words after.
        """
        ids = batch.input_ids.reshape(-1)
        if batch.inside is not None:  # leave out the padding
            ids = ids[batch.inside]
        x = words.table[ids]
        ragged = Ragged(
            batch.word_counts.cpu().numpy() + 2
        )  # each sentence has two boundary tokens
        depth = self.n_layers if _MIXED in layers else max(layers)
        outputs = dict(enumerate(self.network(x, ragged, depth=depth)))
        if self.mix is not None and _MIXED in layers:
            weights = torch.tensor(self.mix, device=x.device).softmax(0)
            stacked = torch.stack(list(outputs.values()))
            outputs[_MIXED] = self.scale * torch.tensordot(weights, stacked, dims=1)  # Eq. 1
        half, before, after = self.dim // 2, batch.packed - around, batch.packed + around
        vectors = {}
        for layer in layers:
            output = outputs[layer]
            vectors[layer] = torch.cat([output[before, :half], output[after, half:]], dim=1)
        return check_finite(vectors, self.name)

    # -- identity and disk -------------------------------------------------------------------------
    @property
    def fingerprint(self) -> str:
        """Hash of the weights, options, layer, mixture and lower-casing; the hash is computed at
        each access.
        """
        network, words = self.network, self.network.words
        shape = [network.skip, network.clips, words.activation, words.max_characters]
        # [False] stands for an option of older versions, so that fingerprints do not change.
        about = [self._chosen, self.mix, self.scale, [False], shape, weights_digest(network)]
        if self.precision != "highest":
            about.append(self.precision)
        if self.lower:
            about.append("lower")
        text = json_text(about, undefined="name", sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `options.json` and `weights.hdf5` in AllenNLP's format, and `calque.json`."""
        with saving(folder, self) as path:
            write_network(self.network, path)
            about: dict[str, Any] = {
                "layer": self._chosen,
                "mix": self.mix,
                "scale": self.scale,
                "precision": self.precision,
            }
            if self.lower:
                about["lower"] = True
            write_about(path, "elmo", about)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        *,
        about: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> Self:
        """Open a folder with `options.json` and `weights.hdf5`, or `NAME_weights.hdf5` next to
        `NAME_options.json`.

        Args:
            folder: the folder, or the file with the weights.
            about: content of `calque.json`, which is read from the folder by default.
            device: device of the network; default: a GPU if one is available.
            dtype: must be None or "auto".
            options: arguments of the class that override the values in `calque.json`.

        Raises:
            InputError: a file is missing or corrupt.
            SettingError: an option does not apply to ELMo.
        """
        path = Path(folder)
        refused = [name for name in ("pooling", "max_length", "attention") if name in options]
        if dtype not in (None, "auto"):
            refused.append("dtype")
        if refused:
            raise SettingError(f"{refused[0]} does not apply to ELMo ({path})")
        pair = file_pair(path)
        if pair is None:
            raise InputError(
                "this is not an ELMo model; expected options.json and weights.hdf5", path=path
            )
        about = read_about(path) if about is None else about
        resolved = path.resolve()
        arguments: dict[str, Any] = {"name": resolved.name if path.is_dir() else resolved.stem}
        for name in ("layer", "mix", "scale", "precision", "lower"):
            if name in about:
                arguments[name] = about[name]
        network = read_network(*pair).to(usable_device(device))
        return cls(network, **{**arguments, **options})


# -- words as sequences of characters --------------------------------------------------------------
def character_rows(words: Sequence[str], length: int = 50) -> np.ndarray:
    """Return the input of the character CNN, int16 `[n_words, length]`: the first `length - 2`
    UTF-8 bytes of each word between boundary characters, followed by padding. All ids are increased
    by one.

    Unlike in AllenNLP, `<S>` and `</S>` in a text are ordinary words. Surrogates, which UTF-8
    cannot encode, are dropped.
    """
    encoded = [word.encode("utf-8", "ignore")[: length - 2] for word in words]
    sizes = np.array([len(characters) for characters in encoded], dtype=np.int64)
    rows = np.full((len(encoded), length), PADDING + 1, dtype=np.int16)
    rows[:, 0] = WORD_BEGIN + 1
    places = ranges(np.arange(len(encoded)) * length + 1, sizes)
    rows.flat[places] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
    rows[np.arange(len(encoded)), sizes + 1] = WORD_END + 1
    return rows


def sentence_ends(length: int = 50) -> np.ndarray:
    """Return the character ids of the boundary tokens before and after a sentence, int16 `[2,
    length]`.
    """
    rows = character_rows(["?", "?"], length)
    rows[:, 1] = SENTENCE_BEGIN + 1, SENTENCE_END + 1
    return rows


class WordTypes:
    """Tokenizer whose vocabulary is the word types in a window of sentences. `table` contains the
    type vectors, `[n, dim]`.
    """

    table: Tensor

    def __init__(self, network: CharacterCNN, *, lower: bool = False):
        self._network, self._lower = network, lower

    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Compute `table` for a window, and return its sentences as word-type ids between `BEGIN`
        and `END`.
        """
        word_types, numbers, offsets = number_words(sentences)
        if self._lower:
            word_types = [word.lower() for word in word_types]
        length = self._network.max_characters
        rows = np.concatenate([sentence_ends(length), character_rows(word_types, length)])
        with torch.no_grad():
            self.table = self._network(torch.from_numpy(rows).to(self._network.projection.device))
        # The first two rows of the table belong to `BEGIN` and `END`.
        ids, offsets_with_ends = with_ends(numbers + 2, offsets)
        lengths = np.diff(offsets)
        starts = (ranges(np.zeros_like(lengths), lengths) + 1).astype(np.int32)
        return SplitSentences(
            ids, offsets_with_ends, offsets, starts, np.ones_like(starts), pad_id=END
        )


def with_ends(numbers: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add `BEGIN` and `END` around the ids of each sentence, and return the ids, int32, and the
    offsets of the sentences.
    """
    widened = offsets + 2 * np.arange(len(offsets))
    ids = np.full(widened[-1], END, dtype=np.int32)
    ids[widened[:-1]] = BEGIN
    ids[ranges(widened[:-1] + 1, np.diff(offsets))] = numbers
    return ids, widened


# -- the two files ---------------------------------------------------------------------------------
# errors that h5py raises for a corrupt file
_H5PY_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)


def read_network(options: Path, weights: Path) -> ElmoNetwork:
    """Read a float32 network from its options file and its weights file.

    Raises:
        InputError: a file is missing or corrupt, or the files do not match.
        MissingExtraError: h5py is not installed.
    """
    h5py = h5py_module()
    settings = read_json_object(options, "the file does not contain the options of an ELMo model")
    try:
        with h5py.File(weights, "r") as file:
            return _read_weights(file, settings, options, weights)
    except SettingError as error:
        raise InputError(str(error), path=options) from error
    except FileNotFoundError as error:
        fact = f"no such file{similar_path(weights)}"
        raise InputError(f"{fact}; expected the weights of an ELMo model", path=weights) from error
    except _H5PY_ERRORS as error:
        fact = f"not an HDF5 file ({error})"
        raise InputError(f"{fact}; expected the weights of an ELMo model", path=weights) from error


def _read_weights(
    file: h5py.File, settings: Mapping[str, Any], options: Path, weights: Path
) -> ElmoNetwork:
    """Build a network from the content of its options file and from an open weights file."""
    rows = len(_dataset(file, "char_embed", weights))
    # Do not initialise weights, and do not change the random state.
    with torch.device("meta"):
        network = ElmoNetwork(settings, rows=max(rows, N_CHARACTERS))
    # In the options used for training, `n_characters` does not include the mask.
    n_characters = settings["char_cnn"].get("n_characters", rows)
    if rows < N_CHARACTERS or n_characters not in (rows, rows + 1):
        raise InputError(
            f"char_embed must have 261 rows and n_characters be 261 or 262, got {rows} and "
            f"{n_characters}",
            path=weights,
        )
    # Check all shapes before memory is allocated, because the sizes may be wrong.
    for key, _, expected in _layout(network):
        shape = _dataset(file, key, weights).shape
        if shape != expected:
            raise InputError(
                f"{key} must have shape {expected} according to {options.name}, got {shape}",
                path=weights,
            )
    network.to_empty(device="cpu")
    for key, parameter, _ in _layout(network):
        values = np.asarray(_dataset(file, key, weights)[...], dtype=np.float32)
        parameter.data.copy_(torch.from_numpy(values).view(parameter.shape))
    return network


def _dataset(file: h5py.File, key: str, path: Path) -> h5py.Dataset:
    """Return an array of a file without reading its values."""
    dataset: Any = file.get(key)
    if dataset is None:
        fact = "is missing"
    elif not hasattr(dataset, "dtype") or dataset.dtype.kind != "f" or not dataset.shape:
        fact = "is not an array of floating-point numbers"
    else:
        return dataset
    raise InputError(f"{key} {fact}, expected the weights of a character-based ELMo", path=path)


def write_network(network: ElmoNetwork, folder: Path) -> None:
    """Write `options.json`, and `weights.hdf5` with float32 weights."""
    h5py = h5py_module()
    folder.mkdir(parents=True, exist_ok=True)
    # HDF5 can crash if it fails to write to the disk, so the file is first built in memory.
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key, parameter, shape in _layout(network):
            file[key] = parameter.detach().to("cpu", torch.float32).numpy().reshape(shape)
    with whole(folder / ELMO_FILES[1]) as part:
        part.write_bytes(buffer.getbuffer())
    (folder / ELMO_FILES[0]).write_text(
        json_text(network.options, undefined="refuse", indent=2) + "\n", encoding="utf-8"
    )


def _layout(network: ElmoNetwork) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Yield each parameter's key in the file, the parameter, and its shape in the file; the memory
    layouts are the same.
    """
    words = network.words
    character_dim = words.characters.shape[1]
    yield "char_embed", words.characters, tuple(words.characters.shape)
    for k, (width, n) in enumerate(words.filters):
        yield f"CNN/W_cnn_{k}", words.kernels[k], (1, width, character_dim, n)
        yield f"CNN/b_cnn_{k}", words.biases[k], (n,)
    parameters: dict[str, Tensor] = {}  # those with the same shape in the file
    for k in range(len(words.carry)):
        layer = f"CNN_high_{k}"
        parameters[f"{layer}/W_carry"] = words.carry[k]
        parameters[f"{layer}/b_carry"] = words.carry_bias[k]
        parameters[f"{layer}/W_transform"] = words.transform[k]
        parameters[f"{layer}/b_transform"] = words.transform_bias[k]
    parameters["CNN_proj/W_proj"] = words.projection
    parameters["CNN_proj/b_proj"] = words.projection_bias
    for side, readers in enumerate((network.forwards, network.backwards)):
        for k, reader in enumerate(cast("Iterable[Reader]", readers)):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{k}/LSTMCell"
            parameters[f"{cell}/W_0"] = reader.kernel
            parameters[f"{cell}/B"] = reader.bias
            parameters[f"{cell}/W_P_0"] = reader.projection
    for key, parameter in parameters.items():
        yield key, parameter, tuple(parameter.shape)


def h5py_module() -> Any:
    """Import and return h5py, which is an optional dependency."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "elmo", f"ELMo's {ELMO_FILES[1]}") from error
    return h5py
