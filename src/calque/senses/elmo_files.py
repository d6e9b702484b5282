"""ELMo's two files, `options.json` and `weights.hdf5`, as bilm-tf writes and AllenNLP reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calque.encoders.folder import ELMO_FILES
from calque.errors import InputError, MissingExtraError, SettingError
from calque.senses.elmo_network import N_CHARACTERS, ElmoNetwork
from calque.storage import whole


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
