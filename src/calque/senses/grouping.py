"""How many senses a word has, and where they lie, from the last states that it was seen with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from calque.senses.clusters import ENOUGH, FEWEST_WORDS, split_words
from calque.senses.sense_table import SenseTable


@torch.no_grad()
def group(tables: Sequence[SenseTable], *, seed: int) -> torch.Tensor:
    """Divide the last states of each word that may have several senses, and put the centres of its senses there.

    Words are divided by the states that predict them, those of several tables side by side, see `split_words`. A centre is
    the mean of the states by which senses are selected. A word with fewer than `ENOUGH` states keeps one sense, and so do
    all where there are fewer than `FEWEST_WORDS` others.

    Args:
        tables: of one model; the states that they keep are of the same occurrences. The first kind predicts the word, the
            last selects its sense.
        seed: of the division.

    Returns:
        bool `[n_classes]`, the senses that have states.
    """
    first = tables[0]
    live = torch.zeros_like(first.live)
    live[first.index[:, 0]] = True
    kept = first.n_recent.clamp(max=first.recent.shape[1]).tolist()
    asked = [place for place, n in enumerate(kept) if n >= ENOUGH]
    if len(asked) < FEWEST_WORDS:
        return live
    words = first.several[asked].tolist()
    vectors = [torch.cat([t.recent[place, : kept[place], 0] for t in tables], dim=1).cpu().numpy() for place in asked]
    most = (first.index[words] >= 0).sum(1).cpu().numpy()
    for place, word, labels in zip(asked, words, split_words(vectors, most=most, seed=seed), strict=True):
        for sense in range(int(labels.max()) + 1):
            number = first.index[word, sense]
            live[number] = True
            members = torch.from_numpy(np.flatnonzero(labels == sense)).to(live.device)
            for table in tables:
                table.centres[number] = table.recent[place, members, -1].mean(0)
    return live
