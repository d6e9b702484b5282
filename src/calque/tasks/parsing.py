"""Zero-shot dependency parsing (Schuster et al. 2019, §5)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from calque.algebra.trees import maximum_spanning_trees
from calque.annotated import Treebank
from calque.corpora import read_treebank
from calque.nn.biaffine import MLP, Biaffine
from calque.nn.pooling import sums
from calque.nn.recurrent import StackedLSTM
from calque.spec import Count, Option, Share
from calque.tasks.bootstrap import Statistic, ratio
from calque.tasks.datasets import Answers, Dataset, label_names
from calque.tasks.reading import Layers
from calque.tasks.reporting import of_trained_heads
from calque.tasks.zeroshot import ZeroShot

if TYPE_CHECKING:
    from torch import Tensor

    from calque.text import Sentences
    from calque.training.sources import WordRows


class Parsing(ZeroShot[Treebank]):
    """Dependency parsing with the biaffine parser (Dozat and Manning 2017) on aligned vectors, as
    in Schuster et al. UAS is the fraction of words with the correct head, and LAS the fraction of
    words with the correct head and relation. Punctuation is ignored, as in the CoNLL-X script. The
    best epoch is selected by LAS.

    In LAS, words whose gold relation does not occur in the training text count as wrong.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
    """

    name = "parsing"
    reporting = of_trained_heads("las")
    # The counts are the numbers of words with the correct head, with the correct head and relation,
    # and of all words that are not punctuation.
    statistics: Mapping[str, Statistic] = {
        "las": lambda counts: ratio(counts[..., 1], counts[..., 2]),
        "uas": lambda counts: ratio(counts[..., 0], counts[..., 2]),
    }

    def __init__(
        self,
        train: Sequence[Dataset[Treebank]],
        tests: Sequence[Dataset[Treebank]],
        *,
        hidden: Annotated[Count, Option("Hidden size of the LSTM per direction.")] = 200,
        lstm_layers: Annotated[Count, Option("Number of LSTM layers.")] = 3,
        layers: Layers = None,
        arc: Annotated[
            Count, Option("Output size of the projections before the arc scorer.")
        ] = 500,
        label: Annotated[
            Count, Option("Output size of the projections before the label scorer.")
        ] = 100,
        upos: Annotated[
            int,
            Option(
                "Dimension of the embeddings of gold universal part-of-speech tags; 0 "
                "disables these embeddings."
            ),
        ] = 50,
        dropout: Annotated[
            Share,
            Option(
                "Dropout rate for the input, between and after the LSTM layers, and after the "
                "projections."
            ),
        ] = 0.33,
        **protocol: Any,
    ):
        # In earlier versions, a number in `layers` was the number of LSTM layers.
        if isinstance(layers, int):
            lstm_layers, layers = layers, None
        # Settings of `ParsingHead`, which are also recorded with the scores.
        self.shape: dict[str, Any] = {
            "hidden": hidden,
            "layers": lstm_layers,
            "arc": arc,
            "label": label,
            "upos": upos,
            "dropout": dropout,
        }
        self.relations = tuple(sorted(label_names(dataset.data.relations for dataset in train)))
        # Part-of-speech tags that do not occur in the training text share an additional embedding,
        # the last one.
        self.parts = tuple(sorted(label_names(dataset.data.upos for dataset in train)))
        super().__init__(train, tests, layers=layers, **protocol)

    @staticmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> Treebank:
        """Read a treebank. Invalid trees raise an error or, with `on_error="skip"`, are skipped."""
        return read_treebank(path, lang=lang, on_error=on_error)

    def defaults(self) -> dict[str, Any]:
        if self.tune:
            return {"epochs": 5, "batch": 32, "warmup": 0.1, "decay": "linear"}
        return {"epochs": 40, "batch": 32, "learning_rate": 1e-3, "patience": 10}

    def settings(self) -> dict[str, object]:
        return {"head": "biaffine", **self.shape, "relations": len(self.relations)}

    def sentences(self, data: Treebank) -> Sentences:
        return data.sentences

    def answers(self, dataset: Dataset[Treebank]) -> Answers:
        data = dataset.data
        parts = data.upos.among(self.parts)
        words, _ = data.sentences.flat()
        counted = [not _is_punctuation(word) for word in words.to_pylist()]
        return Answers(
            data.sentences.lengths(),
            words={
                "heads": data.heads,
                "relations": data.relations.among(self.relations),
                "parts": np.where(parts < 0, len(self.parts), parts),
                "counted": np.array(counted, dtype=bool),
            },
        )

    def head(self, dim: int) -> nn.Module:
        return ParsingHead(dim, len(self.relations), len(self.parts), **self.shape)

    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        assert isinstance(head, ParsingHead)
        device = batch.rows.device
        heads = answers.of_words("heads", batch.numbers)
        relations = answers.of_words("relations", batch.numbers).to(device)
        states = head(batch.rows, batch.lengths, answers.of_words("parts", batch.numbers))
        arc_scores = head.arcs_of_words(states, batch.lengths)
        # In training, labels are scored on the gold arcs, as in Dozat and Manning.
        label_scores = head.labels(states, heads, batch.lengths)
        arc_losses = functional.cross_entropy(arc_scores, heads.to(device), reduction="none")
        label_losses = functional.cross_entropy(label_scores, relations, reduction="none")
        return sums((arc_losses + label_losses)[:, None], batch.lengths)[:, 0]

    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(head, ParsingHead)
        heads = answers.of_words("heads", batch.numbers)
        relations = answers.of_words("relations", batch.numbers)
        is_counted = answers.of_words("counted", batch.numbers) > 0
        states = head(batch.rows, batch.lengths, answers.of_words("parts", batch.numbers))
        arc_scores = head.arcs(states, batch.lengths).double().cpu().numpy()
        # The best head of each word alone would not always form a tree.
        trees = maximum_spanning_trees(arc_scores, batch.lengths.numpy())
        predicted_heads = torch.from_numpy(trees.astype(np.int64))
        # In testing, labels are scored on the predicted arcs.
        label_scores = head.labels(states, predicted_heads, batch.lengths)
        predicted_relations = label_scores.argmax(1).cpu()
        attached = (predicted_heads == heads) & is_counted
        labelled = attached & (predicted_relations == relations)
        by_word = torch.stack([attached, labelled, is_counted], dim=1).double()
        counts = sums(by_word, batch.lengths).numpy()
        return {"las": counts, "uas": counts}


class ParsingHead(nn.Module):
    """Task head that scores arcs and arc labels from word vectors. All unknown part-of-speech tags
    share the last tag index.
    """

    def __init__(
        self,
        dim: int,
        n_relations: int,
        n_parts: int,
        *,
        hidden: int,
        layers: int,
        arc: int,
        label: int,
        upos: int,
        dropout: float,
    ):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.parts = nn.Embedding(n_parts + 1, upos) if upos else None
        self.lstm = StackedLSTM(dim + upos, hidden, layers, dropout=dropout)
        self.root = nn.Parameter(torch.randn(2 * hidden) * 0.1)
        self.arc_dependent = MLP(2 * hidden, arc, dropout)
        self.arc_head = MLP(2 * hidden, arc, dropout)
        self.label_dependent = MLP(2 * hidden, label, dropout)
        self.label_head = MLP(2 * hidden, label, dropout)
        self.arc = Biaffine(arc, arc, 1, bias_right=False)
        self.label = Biaffine(label, label, n_relations)

    def forward(self, rows: Tensor, lengths: Tensor, parts: Tensor) -> Tensor:
        """Return the hidden states of the words, `[W, 2·hidden]`."""
        rows = self.drop(rows)
        if self.parts is not None:
            rows = torch.cat([rows, self.drop(self.parts(parts.to(rows.device)))], dim=1)
        return self.drop(self.lstm(rows, lengths))

    def arcs(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return the score of every candidate head for each word, `[S, words, words + 1]`; see
        `Biaffine.arcs`.
        """
        dependents = self.arc_dependent(states, lengths)
        heads = self._with_root(states, lengths, self.arc_head)
        return self.arc.arcs(dependents, heads, lengths)

    def arcs_of_words(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return the head scores of all words, concatenated without padding rows, `[W, words +
        1]`.
        """
        table = self.arcs(states, lengths)
        inside = torch.arange(table.shape[1]) < lengths[:, None]
        return table[inside.to(states.device)]

    def labels(self, states: Tensor, heads: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores of all relations between each word and its head, `[W, n_relations]`.

        Args:
            heads: position of each word's head, counted from 1, or 0 for the root, int64 `[W]`.
        """
        dependents = self.label_dependent(states, lengths)
        head_vectors = self._with_root(states, lengths, self.label_head)
        return self.label.labels(dependents, head_vectors, heads.to(states.device), lengths)

    def _with_root(self, states: Tensor, lengths: Tensor, projection: nn.Module) -> Tensor:
        """Return the vectors of the root and of the words as heads."""
        # The root comes first, as a sentence of one word. `Biaffine` relies on this order.
        with_root = torch.cat([self.root[None], states])
        return projection(with_root, torch.cat([torch.tensor([1]), lengths]))


@lru_cache(1 << 17)
def _is_punctuation(word: str) -> bool:
    """Return whether a word consists only of Unicode punctuation, as in CoNLL-X's eval.pl."""
    return bool(word) and all(unicodedata.category(letter).startswith("P") for letter in word)
