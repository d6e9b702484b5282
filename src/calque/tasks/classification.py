"""Labels of texts and of pairs of texts, zero-shot: sentiment, natural language inference."""

from __future__ import annotations

import inspect
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
from calque.errors import InputError, SettingError
from calque.nn.esim import ESIM
from calque.nn.pooling import maxima, means
from calque.nn.recurrent import StackedLSTM
from calque.tasks.bootstrap import accuracy, f1
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, VectorSource, WordRows

if TYPE_CHECKING:
    from torch import Tensor

    from calque.vectors import Embeddings

Kind = Literal["nli", "sentiment"]
HEADS = ("mean", "bilstm", "esim", "cls")


class Classification(ZeroShot[LabelledText]):
    """Labels texts, or pairs of them, and is judged by accuracy; sentiment also by the mean of the labels' F1 (`macro-f1`),
    the figure of the tweets' own benchmark (Barbieri et al. 2022).

    Heads on word vectors: "mean" puts two dense layers on the mean vector (Multi-sense, §4.2); "bilstm" puts them on the
    maxima over the states of a bidirectional LSTM (Conneau et al. 2017; the NLI baseline of Multi-sense). Of a pair with
    vectors u and v the layers see [u; v; |u − v|; u·v]. Head "esim", for pairs alone, aligns the words of the two texts
    with each other before it reads them as a whole (Chen et al. 2017; `calque.nn.esim`); it is the one that makes most of
    the order of the rows, and the head of CLCR (§4.2). Head "cls" trains the encoder along, with one linear layer on its
    first special subword (Cao et al. 2020, §4.3); both texts of a pair stand in one sequence then, with the special
    subwords that the tokenizer puts around and between them, and with segment embeddings where the model has them.

    Chen et al. train word embeddings of 300 dimensions with ESIM, on half a million pairs: 300 hidden, dropout 0.5, rate
    4e-4. Frozen rows and some thousand pairs leave less to overfit: planted word order is learnt best with what the other
    heads have, too, so all have the same defaults.

    Args:
        kind: "nli" for pairs, "sentiment" for single texts.
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
        head: one of `HEADS`; None for cls where the encoder learns, else bilstm for pairs and mean for single texts.
        hidden: of the dense layers and of the LSTM in each direction.
        dropout: before each dense layer; of esim also on the rows and on what goes into the second LSTM.
    """

    names = ("nli", "sentiment")
    rows = ("words", "key points")  # a text is whatever number of vectors
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
            raise SettingError(f"unknown kind of classification {kind!r}, expected nli or sentiment")
        self.name: str = kind
        head = ("cls" if tune else "bilstm" if kind == "nli" else "mean") if head is None else head
        if head not in HEADS:
            raise SettingError(f"unknown head {head!r}, expected one of {', '.join(HEADS)}")
        if tune and head != "cls":
            raise SettingError(
                f"head {head} is for frozen vectors: with tune=True (--tune) the head is cls, leave it out"
            )
        if head == "cls" and not tune:
            raise SettingError(
                "head cls reads the first special subword, which needs a tuned encoder: add tune=True (--tune)"
            )
        self.kind_of_head = head
        if head == "esim" and kind != "nli":
            raise SettingError(f"head esim compares two texts, and {kind} has single ones: take mean or bilstm")
        self.columns = 2 if kind == "nli" else 1
        for each in (*train, *tests, *protocol.get("dev", ())):
            if len(each.data.texts) != self.columns:
                raise SettingError(f"{each.name}: {len(each.data.texts)} texts a line, {kind} needs {self.columns}")
        self.hidden, self.dropout = hidden, dropout
        self.labels = tuple(sorted({name for each in train for name in each.data.labels.names}))
        if len(self.labels) < 2:
            raise SettingError(
                f"{', '.join(e.name for e in train)}: only one label ({', '.join(self.labels)}), expected several"
            )
        self.statistics = {"accuracy": accuracy}
        if kind == "sentiment":
            self.statistics["macro-f1"] = macro_f1
        super().__init__(train, tests, tune=tune, **protocol)

    @staticmethod
    def read(
        path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise", rename: Mapping[str, str] | None = None,
        format: str = "auto", pretokenized: bool = False,
    ) -> LabelledText:  # fmt: skip
        """A text with labels.

        Args:
            on_error: "raise", or "skip" to leave out what cannot be read.
            rename: other names for labels that the files do not share; an empty name leaves the texts out.
            format: where what the file holds does not show it; see `read_labelled`.
            pretokenized: words stand between spaces.
        """
        how: Any = format
        text = read_labelled(path, lang=lang, format=how, pretokenized=pretokenized, on_error=on_error)
        return relabelled(text, rename) if rename else text

    def settings(self) -> dict[str, Any]:
        return {"head": self.kind_of_head, "hidden": self.hidden, "dropout": self.dropout, "labels": list(self.labels)}

    def groups(self, data: LabelledText) -> list[int]:
        """Number the premises: lines that follow each other with one premise are a group, in every translation alike."""
        premises = [premise.words for premise in data.texts[0]] if self.columns == 2 else []
        return [number for number, (_, lines) in enumerate(groupby(premises)) for _ in lines]

    def sentences(self, data: LabelledText) -> Sentences:
        return side_by_side(data.texts)

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        frozen = FrozenSource(embeddings, device)
        return frozen if self.columns == 1 else PairSource(frozen)

    def split(self, encoder: Any, data: LabelledText) -> SplitSentences:
        return encoder.subwords.with_first(data.texts, segments=has_segments(encoder.model))

    def answers(self, each: Dataset[LabelledText]) -> Answers:
        codes = each.data.labels.among(self.labels)
        wrong = np.flatnonzero(codes < 0)
        if len(wrong):
            line = None if each.data.lines is None else int(each.data.lines[wrong[0]])
            label = each.data.labels[int(wrong[0])]
            raise InputError(
                f"label {label!r} is not in the training text, which has {', '.join(self.labels)}; rename it (--rename "
                f"{label}=…), or leave its texts out (--rename {label}=)",
                path=each.data.path or each.name,
                line=line,
            )
        return Answers(np.ones(len(codes), dtype=np.int64), texts={"labels": codes})

    def head(self, dim: int) -> nn.Module:
        if self.kind_of_head == "cls":
            return FirstHead(dim, len(self.labels), dropout=self.dropout)
        if self.kind_of_head == "esim":
            return ESIM(dim, len(self.labels), hidden=self.hidden, dropout=self.dropout)
        return TextHead(
            dim, len(self.labels), columns=self.columns, lstm=self.kind_of_head == "bilstm", hidden=self.hidden,
            dropout=self.dropout,
        )  # fmt: skip

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        right = answers.of_texts("labels", given.numbers).to(given.rows.device)
        return functional.cross_entropy(head(given.rows, given.lengths), right, reduction="none")

    def judge(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        predicted = head(given.rows, given.lengths).argmax(1).cpu().numpy()
        gold, n = answers.of_texts("labels", given.numbers).numpy(), len(self.labels)
        counts = {"accuracy": np.stack([predicted == gold, np.ones(len(gold))], axis=1)}
        if "macro-f1" in self.statistics:
            said, true = predicted[:, None] == np.arange(n), gold[:, None] == np.arange(n)
            counts["macro-f1"] = np.stack([said & true, said, true], axis=2).reshape(len(gold), 3 * n)
        return counts


def side_by_side(columns: Sequence[Sentences]) -> Sentences:
    """Return the texts row by row: that of the first column, that of the second, and on to the next row. So several data sets
    one after the other are one data set."""
    if len(columns) == 1:
        return columns[0]
    n = len(columns[0])
    return type(columns[0]).joined(columns).take(np.arange(len(columns) * n).reshape(-1, n).T.ravel())


class PairSource(VectorSource):
    """Frozen vectors of pairs of texts: the first texts of all pairs that are asked for, then the second ones.

    Args:
        whole: the texts, those of a pair one after the other.
    """

    def __init__(self, whole: FrozenSource):
        self._whole, self.dim = whole, whole.dim
        self.lengths = whole.lengths.reshape(-1, 2).sum(axis=1)

    def take(self, numbers: np.ndarray) -> WordRows:
        given = self._whole.take(np.concatenate([2 * numbers, 2 * numbers + 1]))
        return WordRows(given.rows, given.lengths, numbers)

    def backward(self, gradient: Tensor) -> None:
        pass


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Mean of the labels' F1, 0 for a label that is neither said nor right.

    Args:
        counts: `[…, 3 * n_labels]`: right, said and true of each label.
    """
    return f1(counts.reshape(*counts.shape[:-1], -1, 3)).mean(-1)


def relabelled(text: LabelledText, names: Mapping[str, str]) -> LabelledText:
    """The same texts with other names for some labels; texts whose label has an empty new name are left out.

    Raises:
        InputError: nothing is left.
    """
    renamed = [names.get(name, name) for name in text.labels.names]
    labelled = np.flatnonzero(np.array([name != "" for name in renamed], dtype=bool)[text.labels.codes])
    if not len(labelled):
        raise InputError("every label is dropped by --rename", path=text.path)
    labels = Labels.of([name for name in renamed if name])
    codes = np.array([labels.names.index(name) if name else -1 for name in renamed], dtype=np.int32)
    return replace(text, labels=Labels(codes[text.labels.codes], labels.names)).take(labelled)


class TextHead(nn.Module):
    """Word vectors of texts into scores of labels.

    Args:
        columns: 1 for single texts; 2 for pairs: of 2·S texts the first S go with the last S.
        lstm: maxima over the states of an LSTM instead of means over the vectors.
        hidden: of the dense layers and of the LSTM.
        dropout: before each dense layer.
    """

    def __init__(self, dim: int, n_labels: int, *, columns: int, lstm: bool, hidden: int, dropout: float):
        super().__init__()
        self.columns = columns
        self.lstm = StackedLSTM(dim, hidden, 1, dropout=0.0) if lstm else None
        width = (2 * hidden if lstm else dim) * (4 if columns == 2 else 1)
        self.dense = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n_labels)
        )

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Scores `[S, n_labels]`."""
        texts = means(rows, lengths) if self.lstm is None else maxima(self.lstm(rows, lengths), lengths)
        if self.columns == 2:
            u, v = texts.chunk(2)
            texts = torch.cat([u, v, (u - v).abs(), u * v], dim=1)
        return self.dense(texts)


class FirstHead(nn.Module):
    """One linear layer on the only vector that each text has."""

    def __init__(self, dim: int, n_labels: int, *, dropout: float):
        super().__init__()
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, n_labels))

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Scores `[S, n_labels]`."""
        return self.out(rows)


def has_segments(model: Any) -> bool:
    """Whether a model has embeddings for more than one segment."""
    known = "token_type_ids" in inspect.signature(model.forward).parameters
    return known and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
