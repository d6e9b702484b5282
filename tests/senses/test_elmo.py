"""Compare ELMo with a naive implementation that reads the files itself and computes one word and
one time step at a time.
"""

from __future__ import annotations

import builtins
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import forked
from calque.encoders import extraction, load_encoder
from calque.errors import InputError, MissingExtraError, SettingError
from calque.senses.elmo import (
    ElmoEncoder,
    ElmoNetwork,
    character_rows,
    elmo_options,
    sentence_ends,
    write_network,
)
from calque.text import Sentence, Sentences

h5py = pytest.importorskip("h5py")
TEXT = [
    "a harbour in the wind",
    "",
    "x",
    "naïve 時間 🙂 ж",
    "\u200b \x07 \x00",
    "a " * 30,
    "y" * 60 + " " + "é" * 30,
    "the the harbour",
    "<S> a </S>",
    "in in in in in the wind of a harbour",
]
WORDS = [line.split(" ") if line else [] for line in TEXT] + [["", "a", ""]]


# -- the naive implementation ----------------------------------------------------------------------
def literal_row(word: str) -> list[int]:
    """Compute the ids of ELMoCharacterMapper: the bytes between 258 and 259, padded with 260, all
    incremented by one.
    """
    row = [258, *word.encode("utf-8")[:48], 259]
    return [number + 1 for number in row + [260] * (50 - len(row))]


def literal_word(file, options, row: list[int]) -> torch.Tensor:
    def weight(key):
        return torch.from_numpy(file[key][...]).double()

    cnn = options["char_cnn"]
    table = weight("char_embed")
    characters = torch.stack(
        [torch.zeros(table.shape[1]).double() if i == 0 else table[i - 1] for i in row]
    )
    parts = []
    for k, (width, _) in enumerate(cnn["filters"]):
        kernel, bias = weight(f"CNN/W_cnn_{k}")[0], weight(f"CNN/b_cnn_{k}")
        answers = torch.stack(
            [
                torch.einsum("wd,wdn->n", characters[p : p + width], kernel) + bias
                for p in range(50 - width + 1)
            ]
        )
        best = answers.max(0).values
        parts.append(best.relu() if cnn["activation"] == "relu" else best.tanh())
    x = torch.cat(parts)
    for k in range(cnn["n_highway"]):  # as in AllenNLP, the carry weights are negated
        gate = (-(x @ weight(f"CNN_high_{k}/W_carry") + weight(f"CNN_high_{k}/b_carry"))).sigmoid()
        new = (x @ weight(f"CNN_high_{k}/W_transform") + weight(f"CNN_high_{k}/b_transform")).relu()
        x = gate * x + (1 - gate) * new
    return x @ weight("CNN_proj/W_proj") + weight("CNN_proj/b_proj")


def literal_sentence(file, options, words: list[str]) -> list[np.ndarray]:
    """Return layers 0 to L of a sentence, each `[n_words, 2 P]`."""
    lstm = options["lstm"]
    begin, end = ([259, number + 1, 260] + [261] * 47 for number in (256, 257))
    x = [literal_word(file, options, row) for row in [begin, *map(literal_row, words), end]]
    sides = {0: x, 1: x}
    layers = [[torch.cat([each, each]) for each in x]]
    for k in range(lstm["n_layers"]):
        for side in (0, 1):
            cell = file[f"RNN_{side}/RNN/MultiRNNCell/Cell{k}/LSTMCell"]
            kernel, bias, projection = (
                torch.from_numpy(cell[n][...]).double() for n in ("W_0", "B", "W_P_0")
            )
            size = lstm["projection_dim"]
            h, c = torch.zeros(size).double(), torch.zeros(lstm["dim"]).double()
            below = sides[side]
            above: list = [None] * len(below)
            for t in range(len(below)) if side == 0 else range(len(below) - 1, -1, -1):
                i, j, f, o = (torch.cat([below[t], h]) @ kernel + bias).split(lstm["dim"])
                c = (f + 1).sigmoid() * c + i.sigmoid() * j.tanh()
                c = c.clamp(-lstm["cell_clip"], lstm["cell_clip"])
                h = ((o.sigmoid() * c.tanh()) @ projection).clamp(
                    -lstm["proj_clip"], lstm["proj_clip"]
                )
                above[t] = h + below[t] if k > 0 else h
            sides[side] = above
        layers.append([torch.cat(pair) for pair in zip(sides[0], sides[1], strict=True)])
    return [
        torch.stack(layer[1:-1]).numpy() if words else np.zeros((0, 2 * size)) for layer in layers
    ]


def write_files(
    folder: Path, *, rows=261, n_characters=262, layers=2, highway=2, activation="relu", seed=0
) -> dict:
    """Write both files with random weights that are large enough for both kinds of clipping to take
    effect.
    """
    options = elmo_options(
        dim=6,
        hidden=10,
        layers=layers,
        filters=((1, 4), (2, 3), (5, 8)),
        character_dim=5,
        highway=highway,
        activation=activation,
        clip=0.7,
    )
    options["char_cnn"]["n_characters"] = n_characters
    options["n_train_tokens"] = 768_648_884  # unused keys are preserved
    torch.manual_seed(seed)
    network = ElmoNetwork(options, rows=rows)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(torch.randn_like(weights) * (0.5 if weights.ndim > 1 else 1))
        network.words.characters *= 2
    write_network(network, folder)
    return options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """Return the layers of each sentence in `WORDS`, computed by the naive implementation."""
    options = json.loads((folder / "options.json").read_text())
    with h5py.File(folder / "weights.hdf5", "r") as file:
        return [literal_sentence(file, options, words) for words in WORDS]


@pytest.fixture
def encoder(folder):
    return load_encoder(folder, device="cpu")


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and bool(np.abs(found - expected).max(initial=0) <= 1e-5)


# -- vectors ---------------------------------------------------------------------------------------
def test_all_layers_equal_the_naive_implementation(encoder, expected):
    found = encoder.encode_layers(WORDS, [0, 1, 2, -1])
    assert list(found) == [0, 1, 2, -1]
    assert found[-1] is found[2]
    assert (encoder.n_layers, encoder.dim, encoder.layer) == (2, 12, 2)
    for k, layers in enumerate(expected):
        for layer in (0, 1, 2):
            assert close(found[layer][k], layers[layer]), (layer, WORDS[k])
    assert found[0].covered is None
    assert close(encoder.encode(WORDS).data, found[2].data)
    # Check that the test is meaningful: layers and directions differ, and both kinds of clipping
    # take effect.
    assert not close(found[1][0][:, :6], found[1][0][:, 6:])
    assert not close(found[1].data, found[2].data)
    assert (np.abs(found[1].data) == np.float32(0.7)).mean() > 0.01
    with torch.no_grad():
        encoder.network.clips = {"cell_clip": None, "state_clip": 0.7}
        unclipped = encoder.encode_layers(WORDS, [1])[1].data
    assert not close(unclipped, found[1].data)


@pytest.mark.parametrize(("layers", "highway", "activation"), [(1, 0, "tanh"), (3, 1, "relu")])
def test_other_sizes_equal_the_naive_implementation(tmp_path, layers, highway, activation):
    options = write_files(tmp_path, layers=layers, highway=highway, activation=activation, seed=3)
    found = load_encoder(tmp_path, device="cpu").encode_layers(WORDS[:4], range(layers + 1))
    with h5py.File(tmp_path / "weights.hdf5", "r") as file:
        for k, words in enumerate(WORDS[:4]):
            for layer, vectors in enumerate(literal_sentence(file, options, words)):
                assert close(found[layer][k], vectors)


def test_vectors_do_not_depend_on_the_batch(encoder, expected, monkeypatch):
    for budget in (1, 60, 10_000):
        encoder.budget = budget
        found = encoder.encode(
            Sentences.of([[w.replace("\0", "\1") for w in s] for s in WORDS] * 3, "en")
        )
        assert close(found[0], expected[0][2])
        assert close(found[25], expected[3][2])
    monkeypatch.setattr(
        "calque.senses.elmo.extract", lambda *a, **k: extraction.extract(*a, **{**k, "window": 2})
    )
    assert close(encoder.encode(WORDS).data, np.concatenate([layers[2] for layers in expected]))
    for words, layers in zip(WORDS, expected, strict=True):
        assert close(encoder.encode([words]).data, layers[2])
    assert encoder.encode([]).data.shape == (0, 12)
    assert encoder.encode([[], []]).data.shape == (0, 12)
    assert close(
        encoder.encode([Sentence(("a", "harbour"), "en")]).data,
        encoder.encode([["a", "harbour"]]).data,
    )


def test_characters_of_words_are_converted_to_ids():
    words = ["", "a", "ж", "🙂", "y" * 60, "é" * 30, "\x00", "<S>", "\ud800b"]
    rows = character_rows(words)
    assert rows.shape == (9, 50)
    for word, row in zip(words[:-1], rows[:-1], strict=True):
        assert row.tolist() == literal_row(word)
    assert rows[-1].tolist() == literal_row("b")  # a lone surrogate is skipped
    assert rows[4].tolist() == [259, *[ord("y") + 1] * 48, 260]
    assert sentence_ends().tolist() == [[259, 257, 260] + [261] * 47, [259, 258, 260] + [261] * 47]
    assert character_rows([], 50).shape == (0, 50)


def test_a_mixture_of_layers_equals_the_formula(folder, expected):
    encoder = ElmoEncoder.open(folder, mix=[0.3, -1.0, 0.5], scale=2.0)
    weights = np.exp([0.3, -1.0, 0.5])
    mixed = [
        2 * sum(w * layer for w, layer in zip(weights / weights.sum(), layers, strict=True))
        for layers in expected
    ]
    assert close(encoder.encode(WORDS).data, np.concatenate(mixed))
    assert close(encoder.encode_layers(WORDS, [1])[1][0], expected[0][1])
    with pytest.raises(
        SettingError, match="mix must have one number for each layer from 0 to 2, got 2"
    ):
        ElmoEncoder.open(folder, mix=[1, 2])


# -- files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("rows", "n_characters"), [(261, 261), (261, 262), (262, 262)])
def test_saved_weights_equal_the_loaded_weights(tmp_path, rows, n_characters):
    options = write_files(tmp_path / "a", rows=rows, n_characters=n_characters)
    before = torch.get_rng_state()
    encoder = load_encoder(tmp_path / "a", layer=1, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    encoder.save(tmp_path / "b")
    assert json.loads((tmp_path / "b" / "options.json").read_text()) == options
    assert json.loads((tmp_path / "b" / "calque.json").read_text())["kind"] == "elmo"
    assert not list((tmp_path / "b").glob("*.part"))

    with (
        h5py.File(tmp_path / "a" / "weights.hdf5") as one,
        h5py.File(tmp_path / "b" / "weights.hdf5") as other,
    ):
        keys: list[str] = []
        one.visititems(lambda key, value: keys.append(key) if hasattr(value, "dtype") else None)
        assert len(keys) == 29
        assert all(
            one[key].dtype == other[key].dtype and np.array_equal(one[key], other[key])
            for key in keys
        )
    again = load_encoder(tmp_path / "b", device="cpu")
    assert again.layer == 1
    assert again.fingerprint == encoder.fingerprint
    assert np.array_equal(again.encode(WORDS).data, encoder.encode(WORDS).data)
    mixed = ElmoEncoder(encoder.network, mix=[1, 2, 3], scale=0.5)
    mixed.save(tmp_path / "c")
    assert load_encoder(tmp_path / "c", device="cpu").fingerprint == mixed.fingerprint


def test_files_can_have_any_name(folder, tmp_path, encoder):
    shutil.copy(folder / "options.json", tmp_path / "small_options.json")
    shutil.copy(folder / "weights.hdf5", tmp_path / "small_weights.hdf5")
    found = load_encoder(tmp_path / "small_weights.hdf5", device="cpu")
    assert found.fingerprint == encoder.fingerprint
    assert found.name == "small_weights"


@pytest.mark.parametrize(
    ("key", "value", "place", "message"),
    [
        ("char_embed", None, "weights.hdf5", "char_embed is missing"),
        (
            "CNN/b_cnn_1",
            np.zeros(3, np.int32),
            "weights.hdf5",
            "CNN/b_cnn_1 is not an array of floating-point",
        ),
        (
            "CNN/W_cnn_2",
            np.zeros((1, 5, 8, 5)),
            "weights.hdf5",
            r"W_cnn_2 must have shape \(1, 5, 5, 8\) according to options.json, got \(1, 5, 8, 5\)",
        ),
        ("n_characters", 300, "options.json", "n_characters be 261 or 262, got 261 and 300"),
        ("activation", "gelu", "options.json", "relu or tanh"),
    ],
)
def test_inconsistent_files_are_rejected(folder, tmp_path, key, value, place, message):
    path = shutil.copytree(folder, tmp_path / "broken")
    options = json.loads((path / "options.json").read_text())
    if place == "options.json":
        options["char_cnn"][key] = value
        (path / place).write_text(json.dumps(options))
    else:
        with h5py.File(path / place, "r+") as file:
            del file[key]
            if value is not None:
                file[key] = value
    with pytest.raises(InputError, match=message) as error:
        load_encoder(path, device="cpu")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_files_in_other_formats_are_rejected(folder, tmp_path, monkeypatch):
    copied = shutil.copytree(folder, tmp_path / "a")
    (copied / "weights.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    with pytest.raises(InputError, match="not an HDF5 file"):
        load_encoder(copied, device="cpu")
    (copied / "options.json").write_text("[1]")
    with pytest.raises(InputError, match="not contain the options of an ELMo"):
        load_encoder(copied, device="cpu")
    with pytest.raises(InputError, match="not an ELMo"):
        ElmoEncoder.open(tmp_path)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "h5py":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"calque-align\[elmo\]"):
        load_encoder(folder, device="cpu")


def test_the_fingerprint_depends_on_everything_that_changes_vectors(folder, encoder):
    others = [
        load_encoder(folder, device="cpu", layer=1),
        ElmoEncoder.open(folder, mix=[0, 0, 0]),
        ElmoEncoder.open(folder, mix=[0, 0, 0], scale=2),
        ElmoEncoder.open(folder),
    ]
    with torch.no_grad():
        others[-1].network.words.characters[5, 0] += 1
    assert len({encoder.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert load_encoder(folder, device="cpu").fingerprint == encoder.fingerprint


_FULL_DISK = """
import resource, sys
from calque.errors import OutputError
from calque.senses.elmo import ElmoNetwork, elmo_options, write_network
from pathlib import Path
network = ElmoNetwork(elmo_options(dim=4, hidden=6, layers=2, filters=((1, 4), (2, 3)), character_dim=3, highway=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
try:
    write_network(network, Path(sys.argv[1]))
except OutputError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of the size of files need Unix")
def test_weights_that_do_not_fit_on_the_disk_are_an_error_that_leaves_no_file(tmp_path):
    """HDF5 crashes or prints a traceback at the end of the program if it cannot write to its
    file.
    """
    ended = forked.run("-c", _FULL_DISK, tmp_path / "out")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (
        ended.stdout
        == f"{tmp_path / 'out' / 'weights.hdf5'}: the file is larger than the system allows\n"
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("char_cnn", "n_highway", 1e300),
        ("char_cnn", "n_highway", -1),
        ("char_cnn", "n_highway", "2"),
        ("char_cnn", "filters", [[1, 4]] * 1000),
        ("lstm", "n_layers", 10**9),
        ("lstm", "dim", 10**6),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_errors_before_memory_is_allocated(
    tmp_path, part, name, value
):
    options = elmo_options(
        dim=4, hidden=6, layers=2, filters=((1, 4), (2, 3)), character_dim=3, highway=1
    )
    write_network(ElmoNetwork(options), tmp_path)
    options[part][name] = value
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(
        InputError, match=r"n_highway must|number of filters must|n_layers must|must have shape"
    ):
        load_encoder(tmp_path)
