"""The file of the senses beside an encoder."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from calque.errors import InputError
from calque.senses.sense_files import SENSES_FILE, has_senses, open_senses, save_senses
from calque.senses.sense_table import SenseTable
from sense_models import select

ABOUT = {"senses": '{"tables": 1, "settings": {}}'}


def a_table(seed: int = 0) -> SenseTable:
    """Four words of one to three senses, that have seen some states, with a sense pruned."""
    torch.manual_seed(seed)
    table = SenseTable([1, 3, 2, 3], 6, axes=2, queue=20)
    table.open()
    states, words = torch.randn(50, 6), torch.arange(50) % 4
    for part in range(5):
        here = slice(10 * part, 10 * part + 10)
        table.follow(states[here], select(table, states[here], words[here]), 0.5)
        table.remember(states[here], torch.zeros(len(states[here]), dtype=torch.int64))
        table.project()
    table.live[2] = False
    return table


def test_the_tables_come_back_as_they_were_and_select_the_same(tmp_path):
    tables = [a_table(0), a_table(1)]
    save_senses(tables, tmp_path, {"senses": 3, "own": "sampled"})
    assert has_senses(tmp_path)
    before = torch.get_rng_state()
    saved = open_senses(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert saved.settings == {"senses": 3, "own": "sampled"}
    states, words = torch.randn(40, 6), torch.arange(40) % 4
    for old, new in zip(tables, saved.tables, strict=True):
        for name in ("weight", "bias", "centres", "projection", "counts", "live", "index", "words"):
            assert torch.equal(getattr(old, name), getattr(new, name)), name
        assert torch.equal(select(old, states, words), select(new, states, words))
        assert (new.dim, len(new), new.n_words) == (6, 9, 4)


def test_the_queue_stays_at_home(tmp_path):
    save_senses([a_table()], tmp_path, {})
    assert not any("queue" in name for name in load_file(tmp_path / SENSES_FILE))


def test_a_folder_without_senses_says_so(tmp_path):
    assert not has_senses(tmp_path)
    with pytest.raises(InputError, match="no senses.safetensors in this folder; calque pretrain --senses writes one"):
        open_senses(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts.pop("0.centres"),
        lambda parts: parts.update({"0.centres": parts["0.centres"][:-1].contiguous()}),
        lambda parts: parts.update({"0.weight": parts["0.weight"].flatten()}),
        lambda parts: parts.update({"0.projection": parts["0.projection"][:-1].contiguous()}),
        lambda parts: parts.update({"0.senses": parts["0.senses"] + 1}),
        lambda parts: parts.update({"0.senses": torch.from_numpy(np.array([0, 4, 2, 3], dtype=np.int32))}),
    ],
)
def test_parts_that_do_not_fit_are_one_line(tmp_path, damage):
    save_senses([a_table()], tmp_path, {})
    parts = load_file(tmp_path / SENSES_FILE)
    damage(parts)
    save_file(parts, tmp_path / SENSES_FILE, metadata=ABOUT)
    with pytest.raises(InputError, match="not the senses of a language model") as caught:
        open_senses(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_one_line(tmp_path):
    save_senses([a_table()], tmp_path, {})
    whole = (tmp_path / SENSES_FILE).read_bytes()
    for size in (0, 7, 100, len(whole) - 3):
        (tmp_path / SENSES_FILE).write_bytes(whole[:size])
        with pytest.raises(InputError, match="not the senses of a language model"):
            open_senses(tmp_path)
