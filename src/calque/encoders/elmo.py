"""ELMo as an encoder of words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calque.encoders.base import Encoder, stored_layers
from calque.encoders.batches import WordBatch, collate
from calque.encoders.characters import WordTypes
from calque.encoders.checkpoint import weights_digest
from calque.encoders.elmo_files import file_pair, read_network, write_network
from calque.encoders.extraction import Plan, encode_bar, extract, stored_type, word_counts
from calque.encoders.folder import read_about, saving, write_about
from calque.encoders.numerics import check_precision, matmul_precision, usable_device
from calque.errors import InputError, SettingError
from calque.nn.elmo import ElmoNetwork, States, scalar_mix
from calque.nn.ragged import Ragged
from calque.offsets import offsets_of
from calque.storage import vectors_room
from calque.text import Sentence
from calque.vectors import Embeddings

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
        stateful: as AllenNLP and bilm-tf have it: the k-th sentence of a batch begins with the states that the k-th
            sentence of the batch before has left, forwards and backwards. Vectors then depend on all text before them, and
            on `batch`. Every call of `encode` begins anew.
        batch: sentences of a batch, in the order of the text, if `stateful`.
        lower: read words in lower case, as the network was trained.
        name: what reports call the encoder.
        precision: of matrix products, as in `torch.set_float32_matmul_precision`; rounding errors of less than "highest"
            add up from word to word.

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
        stateful: bool = False,
        batch: int = 64,
        lower: bool = False,
        name: str = "elmo",
        precision: str = "highest",
    ):
        self.network, self.name = network.eval(), name
        self.n_layers, self.dim = network.n_layers, 2 * network.size
        if mix is not None and len(mix) != self.n_layers + 1:
            raise SettingError(f"mix has {len(mix)} numbers, expected one for each layer from 0 to {self.n_layers}")
        if batch < 1:
            raise SettingError(f"batch={batch}, expected at least 1 sentence")
        self.mix, self.scale = None if mix is None else [float(weight) for weight in mix], float(scale)
        self.stateful, self.batch, self.precision = stateful, batch, check_precision(precision, products_only=True)
        self.lower = lower
        self._chosen = self.layer_number(layer)
        self.layer = self._chosen if mix is None else None
        # Each step is a product of the sentences that still run with weights that no cache holds, so many run together.
        self.budget = 4096

    def __repr__(self) -> str:
        what = f"layer {self._chosen} of {self.n_layers}" if self.mix is None else f"{self.n_layers + 1} layers mixed"
        return f"{type(self).__name__}({self.name}, {what}, {self.dim}d{', stateful' if self.stateful else ''})"

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    # -- many sentences --------------------------------------------------------------------------------------------
    def encode(
        self,
        sentences: Iterable[Sentence | Sequence[str]],
        *,
        progress: bool = False,
        out: str | PathLike[str] | None = None,
        dtype: str = "float32",
    ) -> Embeddings:
        """One vector per word, from the encoder's layer or its mixture; see `TrainableEncoder.encode` for the arguments.

        What a stateful encoder had begun to write is not continued: it begins again, and the file appears at the end.
        """
        key = self._chosen if self.mix is None else _MIXED
        return self._encode(sentences, [key], progress, None if out is None else {key: Path(out)}, dtype)[key]

    def _encode(self, sentences, layers: list[int], progress: bool, out, dtype: str) -> dict[int, Embeddings]:
        stored_type(dtype)
        self.network.eval()
        with matmul_precision(self.precision or "highest"):
            if self.stateful:
                sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
                return self._carried(sentences, layers, progress, out, dtype)
            device, words = self.device, WordTypes(self.network.words, lower=self.lower)
            key = "" if out is None else json.dumps([self.fingerprint, device.type, self.precision, torch.__version__])
            # Words that come again are only known within a window.
            plan = Plan(self.budget, window=32_768, workers=torch.get_num_threads() if device.type == "cpu" else 1)
            return extract(
                sentences, split=words.split, vectors=lambda batch: self._vectors(words, batch.to(device), layers),
                layers=layers, dim=self.dim, plan=plan, key=key, dtype=dtype, out=out, progress=progress,
            )  # fmt: skip

    def _vectors(
        self, words: WordTypes, batch: WordBatch, layers: Sequence[int], states: States | None = None
    ) -> dict[int, Tensor]:
        """Vectors of a batch's words by layer, `[W, dim]` each."""
        ids = batch.input_ids.reshape(-1)
        x = words.vectors(ids if batch.inside is None else ids[batch.inside])
        depth = self.n_layers if _MIXED in layers else max(layers)
        ragged = Ragged(batch.word_counts.cpu().numpy() + 2)
        outputs = dict(enumerate(self.network(x, ragged, depth=depth, states=states)))
        if _MIXED in layers:
            outputs[_MIXED] = scalar_mix(list(outputs.values()), torch.tensor(self.mix, device=x.device), self.scale)
        return {layer: outputs[layer][batch.packed] for layer in layers}

    def _carried(self, sentences: Sequence, layers, progress: bool, out, dtype: str) -> dict[int, Embeddings]:
        """Batch after batch in the order of the text, each with the states of the one before."""
        words, device, start = WordTypes(self.network.words, lower=self.lower), self.device, 0
        offsets = offsets_of(word_counts(sentences))
        data = {layer: vectors_room(offsets[-1], self.dim, dtype) for layer in layers}
        with torch.inference_mode(), encode_bar(int(offsets[-1]), progress) as shown:
            states = self.network.states(min(self.batch, len(sentences)))
            for first in range(0, len(sentences), self.batch):
                split = words.split(sentences[first : first + self.batch])
                stop = start + split.n_words
                batch = collate(split, np.arange(len(split))).to(device)
                part = States(states.h[:, :, : len(split)], states.c[:, :, : len(split)])  # a view: it is written to
                for layer, vectors in self._vectors(words, batch, layers, part).items():
                    data[layer][start:stop] = vectors.to("cpu", torch.float32).numpy()
                shown.update(split.n_words)
                start = stop
        return stored_layers({layer: Embeddings(rows, offsets) for layer, rows in data.items()}, out)

    # -- identity and disk -----------------------------------------------------------------------------------------
    @property
    def fingerprint(self) -> str:
        """Hash over weights, options, layer, mixture, memory, case, and arithmetic where it is not exact; the weights are
        read anew every time."""
        network = self.network
        shape = [network.skip, network.clips, network.words.activation, network.words.max_characters]
        memory = [self.stateful, self.batch] if self.stateful else [False]
        about = [self._chosen, self.mix, self.scale, memory, shape, weights_digest(network)]
        about += [self.precision] if self.precision != "highest" else []
        about += ["lower"] if self.lower else []
        return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `options.json` and `weights.hdf5`, which AllenNLP reads as well, and what `load_encoder` needs more."""
        with saving(folder) as path:
            write_network(self.network, path)
            about = {"layer": self._chosen, "mix": self.mix, "scale": self.scale, "stateful": self.stateful,
                     "batch": self.batch, "precision": self.precision}  # fmt: skip
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
        names = ("layer", "mix", "scale", "stateful", "batch", "precision", "lower")
        recorded = {name: about[name] for name in names if name in about}
        where = path.resolve()
        name = where.name if path.is_dir() else where.stem
        return cls(read_network(*pair).to(usable_device(device)), **{"name": name, **recorded, **options})
