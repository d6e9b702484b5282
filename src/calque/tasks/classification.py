"""Zero-shot classification of single texts (sentiment) and of text pairs (natural language
inference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from calque.annotated import LabelledText, Labels
from calque.corpora import read_labelled
from calque.encoders.split import SplitSentences
from calque.errors import InputError, SettingError, did_you_mean
from calque.nn.esim import ESIM
from calque.nn.pooling import maxima, means
from calque.nn.recurrent import StackedLSTM
from calque.spec import Count, Label, Option, Share
from calque.tasks.bootstrap import Statistic, accuracy, f1
from calque.tasks.datasets import Answers, Dataset, codes_of, label_names
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, VectorSource, WordRows

if TYPE_CHECKING:
    from torch import Tensor

    from calque.vectors import Embeddings

Kind = Literal["nli", "sentiment"]
HEADS = ("mean", "bilstm", "esim", "cls")
_FROZEN_HEADS = {"nli": "bilstm", "sentiment": "mean"}  # default heads for frozen vectors


class Classification(ZeroShot[LabelledText]):
    """Classification of texts or text pairs, scored by accuracy. Sentiment is also scored by
    macro-averaged F1 over the labels (`macro-f1`, Barbieri et al. 2022).

    Three task heads use frozen word vectors. "mean" applies two dense layers to the mean vector
    (Multi-sense paper, §4.2). "bilstm" applies two dense layers to the max-pooled hidden states of
    a BiLSTM (Conneau et al. 2017), like the Multi-sense NLI baseline. For text pairs with vectors u
    and v, the dense layers receive [u; v; |u − v|; u·v]. "esim" compares texts word by word (Chen
    et al. 2017; `calque.nn.esim`), as in the CLCR paper (§4.2). "cls" fine-tunes the encoder with a
    linear layer on the first special token (Cao et al. 2020, §4.3); a pair is one sequence, with
    segment embeddings if available.

    Chen et al. train ESIM on half a million pairs with 300 hidden units, a dropout rate of 0.5 and
    a learning rate of 4e-4. With frozen vectors and a few thousand pairs, the defaults of this
    class work better.

    Args:
        kind: name of the task, "nli" for text pairs or "sentiment" for single texts.
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
    """

    names = ("nli", "sentiment")
    rows = ("words", "key points")  # the task heads accept any number of vectors per text
    statistics: Mapping[str, Statistic]

    def __init__(
        self,
        kind: Kind,
        train: Sequence[Dataset[LabelledText]],
        tests: Sequence[Dataset[LabelledText]],
        *,
        head: Annotated[
            str | None,
            Option(
                "Task head: mean (two dense layers on the mean vector; default for "
                "sentiment), bilstm (max-pooled LSTM; default for nli), esim (attention "
                "between both texts, then LSTMs; only for nli) or cls (one layer on [CLS]; "
                "only with `tune`, where it is the default)."
            ),
        ] = None,
        hidden: Annotated[
            Count, Option("Hidden size of the dense layers, and of the LSTM per direction.")
        ] = 128,
        dropout: Annotated[
            Share,
            Option(
                "Dropout rate before each dense layer; esim also applies dropout to its input "
                "and before its second LSTM."
            ),
        ] = 0.1,
        tune: bool = False,
        dev: Sequence[Dataset[LabelledText]] = (),
        **protocol: Any,
    ):
        if kind not in self.names:
            raise SettingError(f"kind of classification must be nli or sentiment, got {kind!r}")
        self.name: str = kind
        if head is None:
            head = "cls" if tune else _FROZEN_HEADS[kind]
        _check_head(head, kind, tune)
        self.head_type = head
        self.columns = 2 if kind == "nli" else 1
        for dataset in (*train, *tests, *dev):
            self._check_columns(dataset)
        self.hidden, self.dropout = hidden, dropout
        # The sorted order makes the labels' indices, and so the head, independent of the files.
        self.labels = tuple(sorted(label_names(dataset.data.labels for dataset in train)))
        if len(self.labels) < 2:
            names = ", ".join(dataset.name for dataset in train)
            raise SettingError(
                f"{names} must have at least two labels, got {', '.join(self.labels) or 'none'}"
            )
        # The first statistic gives the main score.
        statistics: dict[str, Statistic] = {"accuracy": accuracy}
        if kind == "sentiment":
            statistics["macro-f1"] = macro_f1
        self.statistics = statistics
        super().__init__(train, tests, tune=tune, dev=dev, **protocol)

    def _check_columns(self, dataset: Dataset[LabelledText]) -> None:
        n_columns = len(dataset.data.texts)
        if n_columns != self.columns:
            raise SettingError(
                f"{dataset.name}: {self.name} needs {self.columns} texts a line, got {n_columns}"
            )

    @staticmethod
    def read(
        path: str,
        lang: str,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        rename: Annotated[
            Mapping[str, Label] | None,
            Option(
                "Map from old to new label names; texts whose label gets an empty name are removed."
            ),
        ] = None,
        format: Annotated[
            str,
            Option(
                "File format, if it cannot be detected: header, pairs, label-text, "
                "text-label, jsonl or hub, or package.module:function."
            ),
        ] = "auto",
        pretokenized: bool = False,
    ) -> LabelledText:
        """Read labelled texts.

        Args:
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
            pretokenized: whether the texts are already tokenized, with words separated by spaces.
        """
        text = read_labelled(
            path, lang=lang, on_error=on_error, format=format, pretokenized=pretokenized
        )
        return relabelled(text, rename) if rename else text

    def settings(self) -> dict[str, object]:
        return {
            "head": self.head_type,
            "hidden": self.hidden,
            "dropout": self.dropout,
            "labels": list(self.labels),
        }

    def groups(self, data: LabelledText) -> list[int]:
        """Group consecutive lines with the same premise. All translations of a data set have the
        same group numbers.
        """
        # Single texts are independent.
        if self.columns == 1:
            return []
        numbers: list[int] = []
        for number, (_, premises) in enumerate(
            groupby(data.texts[0], key=lambda premise: premise.words)
        ):
            numbers += [number for _ in premises]
        return numbers

    def sentences(self, data: LabelledText) -> Sentences:
        return side_by_side(data.texts)

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        frozen = FrozenSource(embeddings, device)
        return frozen if self.columns == 1 else PairSource(frozen)

    def split(self, encoder: Any, data: LabelledText) -> SplitSentences:
        return encoder.split_sequences(data.texts)

    def answers(self, dataset: Dataset[LabelledText]) -> Answers:
        lengths = np.ones(len(dataset.data), dtype=np.int64)
        # The head has no output for a label that does not occur in the training text.
        remedy = "leave out the texts with this label (--rename {kind}=)"
        labels = codes_of(dataset.data.labels, self.labels, dataset, lengths, remedy)
        return Answers(lengths, texts={"labels": labels})

    def head(self, dim: int) -> nn.Module:
        n_labels = len(self.labels)
        if self.head_type == "cls":
            return FirstHead(dim, n_labels, dropout=self.dropout)
        if self.head_type == "esim":
            return ESIM(dim, n_labels, hidden=self.hidden, dropout=self.dropout)
        return TextHead(
            dim,
            n_labels,
            columns=self.columns,
            lstm=self.head_type == "bilstm",
            hidden=self.hidden,
            dropout=self.dropout,
        )

    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        gold = answers.of_texts("labels", batch.numbers).to(batch.rows.device)
        return functional.cross_entropy(head(batch.rows, batch.lengths), gold, reduction="none")

    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        predicted = head(batch.rows, batch.lengths).argmax(1).cpu().numpy()
        gold = answers.of_texts("labels", batch.numbers).numpy()
        counts = {"accuracy": np.stack([predicted == gold, np.ones(len(gold))], axis=1)}
        if "macro-f1" in self.statistics:
            # Number of correct, predicted and gold texts of each label, `[S, n_labels, 3]`.
            labels = np.arange(len(self.labels))
            is_predicted = predicted[:, None] == labels
            is_gold = gold[:, None] == labels
            by_label = np.stack([is_predicted & is_gold, is_predicted, is_gold], axis=2)
            counts["macro-f1"] = by_label.reshape(len(gold), 3 * len(labels))
        return counts


def _check_head(head: str, task: str, tune: bool) -> None:
    """Raise a `SettingError` if a task head is unknown, or cannot be used for a task."""
    if head not in HEADS:
        raise SettingError(
            f"head must be one of {', '.join(HEADS)}, got {head!r}{did_you_mean(head, HEADS)}"
        )
    if tune != (head == "cls"):
        raise SettingError(
            f"head {head} cannot be used with tune={tune}; cls requires --tune, other heads "
            "require frozen vectors"
        )
    if head == "esim" and task != "nli":
        raise SettingError(
            f"head esim requires text pairs, but {task} classifies single texts; use mean or bilstm"
        )


def side_by_side(columns: Sequence[Sentences]) -> Sentences:
    """Merge the columns of texts into one list, row by row, so that data sets can be
    concatenated.
    """
    if len(columns) == 1:
        return columns[0]
    n = len(columns[0])
    # Text k of column c has the index c·n + k in the concatenation.
    by_column = np.arange(len(columns) * n).reshape(-1, n)
    return Sentences.joined(columns).take(by_column.T.ravel())


class PairSource(VectorSource):
    """Source of batches of frozen vectors for text pairs. In a batch, the first texts of all pairs
    precede the second texts; in `whole`, the two texts of a pair are adjacent."""

    def __init__(self, whole: FrozenSource):
        self._whole, self.dim = whole, whole.dim
        self.lengths = whole.lengths.reshape(-1, 2).sum(axis=1)

    def take(self, numbers: np.ndarray) -> WordRows:
        texts = self._whole.take(np.concatenate([2 * numbers, 2 * numbers + 1]))
        return WordRows(texts.rows, texts.lengths, numbers)

    def backward(self, gradient: Tensor) -> None:
        pass


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Return the macro-averaged F1, given the number of correct, predicted and gold texts of each
    label, `[…, 3 * n_labels]`. The F1 of a label that is neither predicted nor in the gold labels
    is 0."""
    return f1(counts.reshape(*counts.shape[:-1], -1, 3)).mean(-1)


def relabelled(text: LabelledText, names: Mapping[str, str]) -> LabelledText:
    """Rename labels, and remove texts whose label is renamed to the empty string.

    Raises:
        InputError: all texts are removed.
    """
    renamed = Labels.of([names.get(name, name) for name in text.labels.names])
    labels = Labels(renamed.codes[text.labels.codes], renamed.names)
    kept_names = tuple(name for name in labels.names if name)
    codes = labels.among(kept_names)
    is_kept = codes >= 0
    if not is_kept.any():
        raise InputError("--rename removes all texts; keep at least two labels", path=text.path)
    return replace(text, labels=Labels(codes, kept_names)).take(np.flatnonzero(is_kept))


class TextHead(nn.Module):
    """Classifier head that computes label scores `[S, n_labels]` from the word vectors of texts.

    Args:
        columns: 1 for single texts, 2 for text pairs. Of 2·S texts, the texts s and s + S form pair
            s.
        lstm: whether to max-pool the hidden states of an LSTM instead of averaging the word
            vectors.
    """

    def __init__(
        self, dim: int, n_labels: int, *, columns: int, lstm: bool, hidden: int, dropout: float
    ):
        super().__init__()
        self.columns = columns
        self.lstm = StackedLSTM(dim, hidden, 1, dropout=0.0) if lstm else None
        width = 2 * hidden if lstm else dim
        if columns == 2:
            width *= 4  # [u; v; |u − v|; u·v], see `forward`
        self.dense = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, n_labels),
        )

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        if self.lstm is None:
            texts = means(rows, lengths)
        else:
            texts = maxima(self.lstm(rows, lengths), lengths)
        if self.columns == 2:
            u, v = texts.chunk(2)
            # as in Conneau et al. (2017, Fig. 1)
            texts = torch.cat([u, v, (u - v).abs(), u * v], dim=1)
        return self.dense(texts)


class FirstHead(nn.Module):
    """Linear classifier head that computes label scores `[S, n_labels]` from one vector per
    text.
    """

    def __init__(self, dim: int, n_labels: int, *, dropout: float):
        super().__init__()
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, n_labels))

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        return self.out(rows)
