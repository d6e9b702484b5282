"""ELMo as an encoder of words, and its two files, `options.json` and `weights.hdf5`, as bilm-tf writes and AllenNLP reads
them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

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
from calque.senses.elmo_network import (
    N_CHARACTERS,
    PADDING,
    SENTENCE_BEGIN,
    SENTENCE_END,
    WORD_BEGIN,
    WORD_END,
    CharacterCNN,
    ElmoNetwork,
    scalar_mix,
)
from calque.storage import whole
from calque.text import Sentence
from calque.vectors import Embeddings

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

    _first_layer = "characters"

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
        """One vector per word, from the encoder's layer or its mixture; see `TrainableEncoder.encode` for the arguments."""
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
        x = words.vectors(ids if batch.inside is None else ids[batch.inside])
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
        cls,
        folder: str | PathLike[str],
        network: str | PathLike[str] | None = None,
        *,
        about: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> Self:
        """Read a folder that `save` wrote or that holds `options.json` and `weights.hdf5`, or a file of weights.

        Args:
            folder: the folder, or the file of weights.
            network: the options of the network, None to find them beside the weights (`NAME_options.json`).
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
        pair = file_pair(path) if network is None else (Path(network), path)
        if pair is None:
            raise InputError("no ELMo here, expected a folder with options.json and weights.hdf5", path=path)
        about = read_about(path) if about is None else about
        if about.get("stateful"):
            raise InputError(
                "a stateful ELMo, which calque no longer has; remove stateful from its calque.json to read each sentence "
                "from zeros", path=path / "calque.json",
            )  # fmt: skip
        names = ("layer", "mix", "scale", "precision", "lower")
        recorded = {name: about[name] for name in names if name in about}
        where = path.resolve()
        name = where.name if path.is_dir() else where.stem
        return cls(read_network(*pair).to(usable_device(device)), **{"name": name, **recorded, **options})


# -- words as rows of characters -----------------------------------------------------------------------------------------
def character_rows(words: Sequence[str], length: int = 50) -> np.ndarray:
    """Words as ELMo reads them: the first bytes of their UTF-8 between two ends, filled up with padding, all one higher.

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
    """The rows that stand before and after each sentence, int16 `[2, length]`."""
    rows = character_rows(["?", "?"], length)
    rows[:, 1] = SENTENCE_BEGIN + 1, SENTENCE_END + 1
    return rows


class WordTypes:
    """What `extract` reads in place of subwords: the word types of a window of sentences, and a vector of each.

    Each type's vector is computed once in a window, however often the word occurs.

    Args:
        lower: whether words are read in lower case.
    """

    def __init__(self, network: CharacterCNN, *, lower: bool = False):
        self._network, self._lower = network, lower

    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Begin a window: its sentences as numbers of types, each between `BEGIN` and `END`."""
        forms, numbers, offsets = number_words(sentences)
        forms = [form.lower() for form in forms] if self._lower else forms
        length = self._network.max_characters
        rows = np.concatenate([sentence_ends(length), character_rows(forms, length)])
        with torch.no_grad():
            self._table = self._network(torch.from_numpy(rows).to(self._network.projection.device))
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

    def vectors(self, numbers: Tensor) -> Tensor:
        """Vectors of some of the window's types, `[n, dim]`."""
        return self._table[numbers]


# -- the two files -------------------------------------------------------------------------------------------------------
def read_network(options: Path, weights: Path) -> ElmoNetwork:
    """A network from its files, in float32.

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
    shape = _dataset(file, "char_embed", weights).shape
    rows = shape[0] if shape else 0
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
            dataset = _dataset(file, key, weights)
            if tuple(dataset.shape) != shape:
                raise InputError(
                    f"{key} is of shape {tuple(dataset.shape)}, but {shape} follows from {options.name}", path=weights
                )
            values = np.asarray(dataset[...], dtype=np.float32)
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))
    return network


def write_network(network: ElmoNetwork, folder: Path) -> None:
    """Write both files, the weights in float32.

    Raises:
        MissingExtraError: h5py is not installed.
    """
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


def _dataset(file: Any, key: str, path: Path) -> Any:
    dataset = file.get(key)
    if dataset is None or not hasattr(dataset, "dtype") or dataset.dtype.kind != "f":
        fact = "is missing" if dataset is None else "is no array of floating-point numbers"
        raise InputError(f"{key} {fact}, expected the weights of an ELMo of characters", path=path)
    return dataset


def h5py_module() -> Any:
    """h5py, which is an extra.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "elmo", f"ELMo's {ELMO_FILES[1]}") from error
    return h5py
