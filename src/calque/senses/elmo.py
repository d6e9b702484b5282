"""ELMo (Peters et al. 2018): the network, the encoder of words, and its two files, `options.json` and `weights.hdf5`, as bilm-tf
writes and AllenNLP reads them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

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
from calque.encoders.split import SplitSentences, number_words
from calque.errors import InputError, MissingExtraError, SettingError
from calque.nn.ragged import Ragged
from calque.offsets import ranges
from calque.storage import whole
from calque.text import Sentence
from calque.vectors import Embeddings

#: what a row of characters may hold beside the 256 values of a byte; in a network's input all are one higher
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = 256, 257, 258, 259, 260
N_CHARACTERS = 261
CHUNK = 256  # word types whose convolutions are computed at a time
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # for 512 dimensions, as published
_LARGEST = 3.4e38  # that float32 holds


def elmo_options(
    *, dim: int = 512, hidden: int | None = None, layers: int = 2, filters: tuple[tuple[int, int], ...] | None = None,
    character_dim: int = 16, highway: int = 2, max_characters: int = 50, activation: str = "relu", clip: float = 3.0,
) -> dict[str, Any]:  # fmt: skip
    """Return `options.json` of a new network.

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
    x: Tensor, sizes: Sequence[int], kernel: Tensor, bias: Tensor, projection: Tensor, *,
    cell_clip: float | None = None, state_clip: float | None = None,
) -> Tensor:  # fmt: skip
    """Compute one direction of one layer whose state is projected and clipped; `torch.nn.LSTM` does not clip (Sak et al. 2014,
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
        self.max_characters = whole_number(options, "max_characters_per_token", least=3)
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
        highway = whole_number(options, "n_highway", least=0, default=0)
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


def whole_number(options: Mapping[str, Any], name: str, *, least: int = 1, default: int | None = None) -> int:
    """Return an option that is a whole number."""
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
        self.size, self.cell = whole_number(lstm, "projection_dim"), whole_number(lstm, "dim")
        self.n_layers = whole_number(lstm, "n_layers", default=1)
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
        self, x: Tensor, ragged: Ragged, *, depth: int | None = None, drop: Callable[[Tensor], Tensor] = lambda x: x
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the layers of both directions.

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


#: numbers of the two ends of a sentence among the word types
BEGIN, END = 0, 1
_MIXED = -1  # the number under which `extract` keeps the mixture of all layers


class ElmoEncoder(Encoder):
    """Words as layers of ELMo (Peters et al. 2018), from the files of bilm-tf and AllenNLP.

    Layer 0 is the vector of the characters, twice; layers 1 to L are those of the LSTM, each with its forward half before
    its backward half; −1 means the last. Every word has a vector, also one without characters. A sentence gives the same
    whatever was encoded before it, and whatever else is in the batch (to 1e-5 of its size).

    Args:
        network: put in evaluation mode.
        layer: the layer that `encode` gives, where it gives one.
        mix: a number for each layer, 0 to L: `encode` gives scale · Σ softmax(mix)_j · layer_j instead (Eq. 1).
        scale: γ of the mixture.
        lower: read words in lower case, as the network was trained.
        name: what reports call the encoder.
        precision: "highest", exact float32; what a folder of a former version says is part of the fingerprint.

    Attributes:
        n_layers: L.
        budget: words in a batch of `encode`, sentence ends included.

    Raises:
        SettingError: a value that this network cannot have.
    """

    def __init__(
        self, network: ElmoNetwork, *, layer: int = -1, mix: Sequence[float] | None = None, scale: float = 1.0,
        lower: bool = False, name: str = "elmo", precision: str = "highest",
    ):  # fmt: skip
        self.network, self.name = network.eval(), name
        self.n_layers, self.dim = network.n_layers, 2 * network.size
        if mix is not None and len(mix) != self.n_layers + 1:
            raise SettingError(f"mix has {len(mix)} numbers, expected one for each layer from 0 to {self.n_layers}")
        self.mix, self.scale = None if mix is None else [float(weight) for weight in mix], float(scale)
        self.precision, self.lower = check_precision(precision, ("highest", "high", "medium")), lower
        self._chosen = self.layer_number(layer)
        self.layer = self._chosen if mix is None else None
        # Each step is a product of the sentences that still run with weights that no cache holds, so many run together.
        self.budget = 4096

    def __repr__(self) -> str:
        what = f"layer {self._chosen} of {self.n_layers}" if self.mix is None else f"{self.n_layers + 1} layers mixed"
        return f"{type(self).__name__}({self.name}, {what}, {self.dim}d)"

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    # -- many sentences --------------------------------------------------------------------------------------------
    def encode(self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False) -> Embeddings:
        """Return a vector of each word, from the encoder's layer or its mixture; for the arguments see `TrainableEncoder`."""
        key = self._chosen if self.mix is None else _MIXED
        return self._encode(sentences, [key], progress)[key]

    def encode_contexts(self, sentences: Iterable[Sentence | Sequence[str]]) -> Embeddings:
        """Return the states of the last layer that predict each word and have not read it: read forwards as far as the word
        before, and backwards as far as the word after."""
        return self._encode(sentences, [self.n_layers], False, around=1)[self.n_layers]

    def _encode(self, sentences: Any, layers: list[int], progress: bool, around: int = 0) -> dict[int, Embeddings]:
        self.network.eval()
        with arithmetic("highest"):
            device, words = self.device, WordTypes(self.network.words, lower=self.lower)
            return extract(  # words that come again are only known within a window
                sentences, split=words.split, vectors=lambda batch: self._vectors(words, batch.to(device), layers, around),
                layers=layers, dim=self.dim, budget=self.budget, window=32_768, progress=progress,
            )  # fmt: skip

    def _vectors(self, words: WordTypes, batch: WordBatch, layers: Sequence[int], around: int) -> dict[int, Tensor]:
        """Vectors of a batch's words by layer, `[W, dim]` each; their halves from so many words before and after."""
        ids = batch.input_ids.reshape(-1)
        x = words.table[ids if batch.inside is None else ids[batch.inside]]
        depth = self.n_layers if _MIXED in layers else max(layers)
        ragged = Ragged(batch.word_counts.cpu().numpy() + 2)
        outputs = dict(enumerate(self.network(x, ragged, depth=depth)))
        if _MIXED in layers:
            outputs[_MIXED] = scalar_mix(list(outputs.values()), torch.tensor(self.mix, device=x.device), self.scale)
        half, before, after = self.dim // 2, batch.packed - around, batch.packed + around
        halves = {k: (outputs[k][before, :half], outputs[k][after, half:]) for k in layers}
        return check_finite({k: torch.cat(both, dim=1) for k, both in halves.items()}, self.name)

    # -- identity and disk -----------------------------------------------------------------------------------------
    @property
    def fingerprint(self) -> str:
        """Hash over weights, options, layer, mixture, case, and arithmetic where it is not exact; the weights are
        read anew every time."""
        network = self.network
        shape = [network.skip, network.clips, network.words.activation, network.words.max_characters]
        # [False] stands for what a former version called stateful: the fingerprints of saved encoders stay as they are.
        about = [self._chosen, self.mix, self.scale, [False], shape, weights_digest(network)]
        about += [self.precision] if self.precision != "highest" else []
        about += ["lower"] if self.lower else []
        return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `options.json` and `weights.hdf5`, which AllenNLP reads as well, and what `load_encoder` needs more."""
        with saving(folder, self) as path:
            write_network(self.network, path)
            about = {"layer": self._chosen, "mix": self.mix, "scale": self.scale, "precision": self.precision}
            write_about(path, "elmo", about | ({"lower": True} if self.lower else {}))

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None, dtype: Any = None, **options: Any,
    ) -> Self:  # fmt: skip
        """Read a folder that `save` wrote or that holds `options.json` and `weights.hdf5`, or a file of weights.

        Args:
            folder: the folder, or the file of weights, beside which its options are (`NAME_options.json`).
            about: what `calque.json` says; None to read it.
            device: where the network is to be; None for a graphics card if there is one.
            dtype: none, or "auto".
            options: other arguments than those that the folder tells.

        Raises:
            InputError: a file is missing or damaged.
            SettingError: an option that an ELMo does not have.
        """
        path = Path(folder)
        given = {**options, **({} if dtype in (None, "auto") else {"dtype": dtype})}
        for option in ("pooling", "max_length", "attention", "dtype"):
            if option in given:
                raise SettingError(f"{option} does not apply to ELMo ({path})")
        pair = file_pair(path)
        if pair is None:
            raise InputError("no ELMo here, expected a folder with options.json and weights.hdf5", path=path)
        about = read_about(path) if about is None else about
        names = ("layer", "mix", "scale", "precision", "lower")
        recorded = {name: about[name] for name in names if name in about}
        where = path.resolve()
        name = where.name if path.is_dir() else where.stem
        return cls(read_network(*pair).to(usable_device(device)), **{"name": name, **recorded, **options})


# -- words as rows of characters -----------------------------------------------------------------------------------------
def character_rows(words: Sequence[str], length: int = 50) -> np.ndarray:
    """Return words as ELMo reads them: the first bytes of their UTF-8 between two ends, filled up with padding, all one higher.

    A word may be cut within a character. No word is special: `<S>` and `</S>` in a text, which AllenNLP takes for the ends
    of a sentence, are spelled like any other. Half a surrogate pair, which UTF-8 cannot write, is passed over.

    Args:
        length: of a row; a word keeps `length - 2` bytes.

    Returns:
        int16 `[n_words, length]`.
    """
    encoded = [word.encode("utf-8", "ignore")[: length - 2] for word in words]
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    rows = np.full((len(encoded), length), PADDING + 1, dtype=np.int16)
    rows[:, 0] = WORD_BEGIN + 1
    places = ranges(np.arange(len(encoded)) * length + 1, sizes)
    rows.flat[places] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
    rows[np.arange(len(encoded)), sizes + 1] = WORD_END + 1
    return rows


def sentence_ends(length: int = 50) -> np.ndarray:
    """Return the rows that stand before and after each sentence, int16 `[2, length]`."""
    rows = character_rows(["?", "?"], length)
    rows[:, 1] = SENTENCE_BEGIN + 1, SENTENCE_END + 1
    return rows


class WordTypes:
    """What `extract` reads in place of subwords: the word types of a window of sentences, and a vector of each.

    Args:
        lower: whether words are read in lower case.

    Attributes:
        table: the vectors of the window's types, `[n, dim]`; each is computed once, however often the word occurs.
    """

    table: Tensor

    def __init__(self, network: CharacterCNN, *, lower: bool = False):
        self._network, self._lower = network, lower

    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Begin a window: its sentences as numbers of types, each between `BEGIN` and `END`."""
        forms, numbers, offsets = number_words(sentences)
        forms = [form.lower() for form in forms] if self._lower else forms
        length = self._network.max_characters
        rows = np.concatenate([sentence_ends(length), character_rows(forms, length)])
        with torch.no_grad():
            self.table = self._network(torch.from_numpy(rows).to(self._network.projection.device))
        lengths = np.diff(offsets)
        ids = np.full(len(numbers) + 2 * len(lengths), END, dtype=np.int32)
        starts = offsets[:-1] + 2 * np.arange(len(lengths))
        ids[starts] = BEGIN
        ids[ranges(starts + 1, lengths)] = numbers + 2
        return SplitSentences(
            ids=ids,
            offsets=offsets + 2 * np.arange(len(offsets)),
            word_offsets=offsets,
            word_starts=(ranges(np.zeros_like(lengths), lengths) + 1).astype(np.int32),
            word_lengths=np.ones(len(numbers), dtype=np.int32),
            pad_id=END,
        )


# -- the two files -------------------------------------------------------------------------------------------------------
def read_network(options: Path, weights: Path) -> ElmoNetwork:
    """Read a network from its files, in float32.

    Raises:
        InputError: a file is missing or damaged, or they do not belong together.
        MissingExtraError: h5py is not installed.
    """
    try:
        settings = json.loads(options.read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"no options of an ELMo ({error})", path=options) from error
    try:
        with h5py_module().File(weights, "r") as file:
            return _read(settings, file, options, weights)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError) as error:  # whatever h5py met
        what = "no such file" if isinstance(error, FileNotFoundError) else f"no HDF5 file ({error})"
        raise InputError(f"{what}, expected the weights of an ELMo", path=weights) from error


def _read(settings: dict[str, Any], file: Any, options: Path, weights: Path) -> ElmoNetwork:
    rows = len(_array(file, "char_embed", weights))
    try:
        with torch.device("meta"):  # so that nobody draws random weights, nor moves the user's random state
            network = ElmoNetwork(settings, rows=max(rows, N_CHARACTERS))
    except SettingError as error:
        raise InputError(str(error), path=options) from error
    # A training file counts the characters, any other counts the mask, too.
    named = settings["char_cnn"].get("n_characters", rows)
    if rows < N_CHARACTERS or named not in (rows, rows + 1):
        raise InputError(
            f"char_embed has {rows} characters where n_characters is {named}, expected 261 for 261 or 262", path=weights
        )
    network.to_empty(device="cpu")
    with torch.no_grad():
        for key, parameter, shape in _layout(network):
            values = _array(file, key, weights)
            if values.shape != shape:
                raise InputError(
                    f"{key} is of shape {values.shape}, but {shape} follows from {options.name}", path=weights
                )
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))
    return network


def _array(file: Any, key: str, path: Path) -> np.ndarray:
    dataset = file.get(key)
    if dataset is None or not hasattr(dataset, "dtype") or dataset.dtype.kind != "f" or not dataset.shape:
        fact = "is missing" if dataset is None else "is no array of floating-point numbers"
        raise InputError(f"{key} {fact}, expected the weights of an ELMo of characters", path=path)
    return np.asarray(dataset[...], dtype=np.float32)


def write_network(network: ElmoNetwork, folder: Path) -> None:
    """Write both files, the weights in float32."""
    h5py = h5py_module()
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / ELMO_FILES[1]) as part, h5py.File(part, "w") as file:
        for key, parameter, shape in _layout(network):
            file[key] = parameter.detach().to("cpu", torch.float32).numpy().reshape(shape)
    (folder / ELMO_FILES[0]).write_text(json.dumps(network.options, indent=2) + "\n", encoding="utf-8")


def _layout(network: ElmoNetwork) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Name, parameter and shape in the file of everything. The numbers stand in the same order in file and memory."""
    words = network.words
    dim, total = words.characters.shape[1], words.projection.shape[0]
    square = (total, total)
    yield "char_embed", words.characters, tuple(words.characters.shape)
    for k, (width, n) in enumerate(words.filters):
        yield f"CNN/W_cnn_{k}", words.kernels[k], (1, width, dim, n)
        yield f"CNN/b_cnn_{k}", words.biases[k], (n,)
    for k in range(len(words.carry)):
        yield f"CNN_high_{k}/W_carry", words.carry[k], square
        yield f"CNN_high_{k}/b_carry", words.carry_bias[k], (total,)
        yield f"CNN_high_{k}/W_transform", words.transform[k], square
        yield f"CNN_high_{k}/b_transform", words.transform_bias[k], (total,)
    yield "CNN_proj/W_proj", words.projection, (total, network.size)
    yield "CNN_proj/b_proj", words.projection_bias, (network.size,)
    for side, readers in enumerate((network.forwards, network.backwards)):
        for k, reader in enumerate(readers):
            for name, weight in (("W_0", reader.kernel), ("B", reader.bias), ("W_P_0", reader.projection)):
                yield f"RNN_{side}/RNN/MultiRNNCell/Cell{k}/LSTMCell/{name}", weight, tuple(weight.shape)  # type: ignore[misc]


def h5py_module() -> Any:
    """Return h5py, which is an extra."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "elmo", f"ELMo's {ELMO_FILES[1]}") from error
    return h5py
