"""Zero-shot classification of single texts (sentiment) and of text pairs (natural language
inference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

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
from calque.spec import Label
from calque.tasks.bootstrap import accuracy, f1
from calque.tasks.datasets import Answers, Dataset, codes_of
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, VectorSource, WordRows

if TYPE_CHECKING:
    from torch import Tensor

    from calque.vectors import Embeddings

Kind = Literal["nli", "sentiment"]
HEADS = ("mean", "bilstm", "esim", "cls")


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
        head: one of `HEADS`; default: "cls" with `tune`, otherwise "bilstm" for text pairs and
            "mean" for single texts.
        hidden: hidden size of the dense layers, and of the LSTM per direction.
        dropout: dropout rate before each dense layer; "esim" also applies dropout to its input and
            before its second LSTM.
    """

    names = ("nli", "sentiment")
    rows = ("words", "key points")  # the task heads accept any number of vectors per text
    statistics: Mapping[str, Any]

    def __init__(
        self,
        kind: Kind,
        train: Sequence[Dataset[LabelledText]],
        tests: Sequence[Dataset[LabelledText]],
        *,
        head: str | None = None,
        hidden: int = 128,
        dropout: float = 0.1,
        tune: bool = False,
        **protocol: Any,
    ):
        if kind not in self.names:
            raise SettingError(f"kind of classification must be nli or sentiment, got {kind!r}")
        self.name: str = kind
        head = ("cls" if tune else "bilstm" if kind == "nli" else "mean") if head is None else head
        if head not in HEADS:
            raise SettingError(
                f"head must be one of {', '.join(HEADS)}, got "
                f"{head!r}{did_you_mean(str(head), HEADS)}"
            )
        if tune != (head == "cls"):
            raise SettingError(
                f"head {head} cannot be used with tune={tune}; cls requires --tune, other heads "
                "require frozen vectors"
            )
        self.kind_of_head = head
        if head == "esim" and kind != "nli":
            raise SettingError(
                f"head esim requires text pairs, but {kind} classifies single texts; use mean or "
                "bilstm"
            )
        self.columns = 2 if kind == "nli" else 1
        for each in (*train, *tests, *protocol.get("dev", ())):
            if len(each.data.texts) != self.columns:
                raise SettingError(
                    f"{each.name}: {kind} needs {self.columns} texts a line, got "
                    f"{len(each.data.texts)}"
                )
        self.hidden, self.dropout = hidden, dropout
        self.labels = tuple(sorted({name for each in train for name in each.data.labels.names}))
        if len(self.labels) < 2:
            names = ", ".join(each.name for each in train)
            raise SettingError(
                f"{names} must have at least two labels, got {', '.join(self.labels) or 'none'}"
            )
        self.statistics = {"accuracy": accuracy} | (
            {"macro-f1": macro_f1} if kind == "sentiment" else {}
        )
        super().__init__(train, tests, tune=tune, **protocol)

    @staticmethod
    def read(
        path: str,
        lang: str,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        rename: Mapping[str, Label] | None = None,
        format: str = "auto",
        pretokenized: bool = False,
    ) -> LabelledText:
        """Read labelled texts.

        Args:
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
            rename: mapping from old to new label names; texts whose label is renamed to "" are
                removed.
            format: file format, needed if it cannot be detected; see `read_labelled`.
            pretokenized: whether the texts are already tokenized, with words separated by spaces.
        """
        how: Any = {"format": format, "pretokenized": pretokenized}
        text = read_labelled(path, lang=lang, on_error=on_error, **how)
        return relabelled(text, rename) if rename else text

    def settings(self) -> dict[str, Any]:
        return {
            "head": self.kind_of_head,
            "hidden": self.hidden,
            "dropout": self.dropout,
            "labels": list(self.labels),
        }

    def groups(self, data: LabelledText) -> list[int]:
        """Group consecutive lines with the same premise. All translations of a data set have the
        same group numbers.
        """
        premises = [premise.words for premise in data.texts[0]] if self.columns == 2 else []
        return [number for number, (_, lines) in enumerate(groupby(premises)) for _ in lines]

    def sentences(self, data: LabelledText) -> Sentences:
        return side_by_side(data.texts)

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        frozen = FrozenSource(embeddings, device)
        return frozen if self.columns == 1 else PairSource(frozen)

    def split(self, encoder: Any, data: LabelledText) -> SplitSentences:
        return encoder.split_sequences(data.texts)

    def answers(self, each: Dataset[LabelledText]) -> Answers:
        lengths = np.ones(len(each.data), dtype=np.int64)
        leave_out = "leave out the texts with this label (--rename {kind}=)"
        return Answers(
            lengths,
            texts={"labels": codes_of(each.data.labels, self.labels, each, lengths, leave_out)},
        )

    def head(self, dim: int) -> nn.Module:
        n, shape = len(self.labels), {"hidden": self.hidden, "dropout": self.dropout}
        if self.kind_of_head == "cls":
            return FirstHead(dim, n, dropout=self.dropout)
        if self.kind_of_head == "esim":
            return ESIM(dim, n, **shape)
        return TextHead(dim, n, columns=self.columns, lstm=self.kind_of_head == "bilstm", **shape)

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        gold = answers.of_texts("labels", given.numbers).to(given.rows.device)
        return functional.cross_entropy(head(given.rows, given.lengths), gold, reduction="none")

    def counts(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        predicted = head(given.rows, given.lengths).argmax(1).cpu().numpy()
        gold, n = answers.of_texts("labels", given.numbers).numpy(), len(self.labels)
        counts = {"accuracy": np.stack([predicted == gold, np.ones(len(gold))], axis=1)}
        if "macro-f1" in self.statistics:
            guess, true = predicted[:, None] == np.arange(n), gold[:, None] == np.arange(n)
            counts["macro-f1"] = np.stack([guess & true, guess, true], axis=2).reshape(
                len(gold), 3 * n
            )
        return counts


def side_by_side(columns: Sequence[Sentences]) -> Sentences:
    """Merge the columns of texts into one list, row by row, so that data sets can be
    concatenated.
    """
    if len(columns) == 1:
        return columns[0]
    n = len(columns[0])
    return (
        type(columns[0]).joined(columns).take(np.arange(len(columns) * n).reshape(-1, n).T.ravel())
    )


class PairSource(VectorSource):
    """Source of batches of frozen vectors for text pairs. In a batch, the first texts of all pairs
    precede the second texts; in `whole`, the two texts of a pair are adjacent."""

    def __init__(self, whole: FrozenSource):
        self._whole, self.dim = whole, whole.dim
        self.lengths = whole.lengths.reshape(-1, 2).sum(axis=1)

    def take(self, numbers: np.ndarray) -> WordRows:
        given = self._whole.take(np.concatenate([2 * numbers, 2 * numbers + 1]))
        return WordRows(given.rows, given.lengths, numbers)

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
    known = tuple(name for name in labels.names if name)
    codes = labels.among(known)
    if not (codes >= 0).any():
        raise InputError("--rename removes all texts; keep at least two labels", path=text.path)
    return replace(text, labels=Labels(codes, known)).take(np.flatnonzero(codes >= 0))


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
        width = (2 * hidden if lstm else dim) * (4 if columns == 2 else 1)
        self.dense = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, n_labels),
        )

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        texts = (
            means(rows, lengths) if self.lstm is None else maxima(self.lstm(rows, lengths), lengths)
        )
        if self.columns == 2:
            u, v = texts.chunk(2)
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
