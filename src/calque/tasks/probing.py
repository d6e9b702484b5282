"""Edge probing (Tenney et al. 2019b): what vectors say of the structure of a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from calque.annotated import ProbeText
from calque.corpora import read_probe
from calque.errors import SettingError
from calque.nn.probe import Probe, SpanRows
from calque.offsets import offsets_of, ranges
from calque.tasks.bootstrap import f1, ratio
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.zeroshot import ZeroShot
from calque.training.sources import FrozenSource, VectorSource
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor

    from calque.encoders.base import Encoder
    from calque.text import Sentences
    from calque.training.sources import WordRows


class Asked(NamedTuple):
    """Targets that can be read off the rows of a batch.

    Attributes:
        targets: int64 `[T]`, their numbers.
        owner: int64 `[T]`, the text of the batch that each is of.
        spans: one or two, the rows of the first and second span of each.
    """

    targets: np.ndarray
    owner: np.ndarray
    spans: list[SpanRows]


class ProbeAnswers(Answers):
    """The targets of some texts with the labels that are known.

    Args:
        lengths: int64 `[n_texts]`, words of each.
        counts: int64 `[n_texts]`, targets of each.
        spans: int64 `[n_targets, 1 or 2, 2]`, see `ProbeText`.
        codes: int64 `[n_codes]`, the labels of all targets that the training text has, as numbers.
        code_counts: int64 `[n_targets]`, how many are of each.
        true: int64 `[n_texts]`, how many labels are right in each, unknown ones as well.
    """

    def __init__(
        self, lengths: np.ndarray, counts: np.ndarray, spans: np.ndarray, codes: np.ndarray, code_counts: np.ndarray,
        true: np.ndarray,
    ):  # fmt: skip
        super().__init__(lengths, texts={"labels": true})
        self.counts, self.spans, self.codes, self.code_counts = counts, spans, codes, code_counts
        self._first, self._first_code = offsets_of(counts)[:-1], offsets_of(code_counts)[:-1]

    @classmethod
    def of(cls, data: ProbeText, labels: Sequence[str]) -> ProbeAnswers:
        """Those of a text, its labels as numbers of `labels`."""
        codes = data.labels.among(labels)
        target = np.repeat(np.arange(len(data.spans)), np.diff(data.label_offsets))
        known = np.bincount(target[codes >= 0], minlength=len(data.spans))
        true = np.diff(data.label_offsets[data.offsets])
        return cls(data.sentences.lengths(), np.diff(data.offsets), data.spans.astype(np.int64),
                   codes[codes >= 0].astype(np.int64), known, true)  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> ProbeAnswers:
        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts])

        true = np.concatenate([part.texts["labels"] for part in parts])
        return cls(both("lengths"), both("counts"), both("spans"), both("codes"), both("code_counts"), true)

    def asked(self, given: WordRows) -> Asked:
        """The targets of some texts that can be asked: those each of whose spans has a row. A span is made of those of its
        words that have one."""
        counts = self.counts[given.numbers]
        targets = ranges(self._first[given.numbers], counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        lengths, spans, order = given.lengths.numpy(), self.spans[targets], None
        if given.words is None:
            bounds = offsets_of(lengths)[owner][:, None, None] + spans
        else:
            # Rows by text and word, whatever their order; a span is a run of them.
            most = int(self.lengths[given.numbers].max(initial=0)) + 1
            keys = np.repeat(np.arange(len(lengths)), lengths) * most + given.words
            order = np.argsort(keys, kind="stable")
            bounds = np.searchsorted(keys[order], owner[:, None, None] * most + spans)
        sizes = bounds[..., 1] - bounds[..., 0]
        has = (sizes > 0).all(axis=1)
        found = []
        for k in range(spans.shape[1]):
            rows = ranges(bounds[has, k, 0], sizes[has, k])
            rows = rows if order is None else order[rows]
            found.append(SpanRows(torch.from_numpy(rows), torch.from_numpy(sizes[has, k])))
        return Asked(targets[has], owner[has], found)

    def gold(self, targets: np.ndarray, n_labels: int) -> Tensor:
        """Which labels some targets have, bool `[T, n_labels]`."""
        counts = self.code_counts[targets]
        table = torch.zeros(len(targets), n_labels, dtype=torch.bool)
        rows = torch.from_numpy(np.repeat(np.arange(len(targets)), counts))
        table[rows, torch.from_numpy(self.codes[ranges(self._first_code[targets], counts)])] = True
        return table


class KeyPointVectors(Embeddings):
    """Vectors of some of the words of each text.

    Args:
        vectors: in any order in each text.
        words: int64 `[n_rows]`, which word of its text each is of.
    """

    def __init__(self, vectors: Embeddings, words: np.ndarray):
        super().__init__(vectors.data, vectors.offsets, vectors.covered)
        self.words = words

    @classmethod
    def of(cls, encoder: Any, vectors: Embeddings, sentences: Sentences) -> KeyPointVectors:
        """With the words that an encoder says they are of.

        Raises:
            SettingError: it does not say it.
        """
        if not hasattr(encoder, "key_points"):
            raise SettingError(
                f"{encoder.name} cannot be probed: its vectors are of key points, and {type(encoder).__name__} has no "
                "key_points, which says of which words they are"
            )
        return cls(vectors, np.asarray(encoder.key_points(sentences).data, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> KeyPointVectors:
        return cls(Embeddings.joined(parts), np.concatenate([part.words for part in parts]))


class Probing(ZeroShot[ProbeText]):
    """Labels spans, or pairs of spans, from the vectors of their words alone: parts of speech, dependencies, entities,
    and what else comes as jiant's JSON lines. The spans are given; the probe reads nothing beside them, so what it
    knows of the context must be in the vectors (Tenney et al. 2019b, "What do you learn from context? Probing for sentence
    structure in contextualized word representations").

    Each label of a target is a decision of its own, said if its probability is above 0.5. The scores are F1, precision and
    recall over all decisions (micro-averaged); F1 chooses the epoch. A label that the training text does not have is missed
    wherever it is right.

    An encoder whose rows are key points is probed as in "CLCR" (Table 6): a span is made of those of its words that are key
    points. A target with a span without any is left out in training, and missed in tests.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`. All are of one probe.
        width: of the projected words.
        hidden: of the perceptron.
        dropout: in the perceptron.
    """

    name = "probing"
    rows = ("words", "key points")
    epochs = (20, 5)
    statistics: Mapping[str, Any] = {
        "f1": f1,
        "precision": lambda counts: np.nan_to_num(ratio(counts[..., 0], counts[..., 1])),
        "recall": lambda counts: np.nan_to_num(ratio(counts[..., 0], counts[..., 2])),
    }

    def __init__(
        self,
        train: Sequence[Dataset[ProbeText]],
        tests: Sequence[Dataset[ProbeText]],
        *,
        width: int = 256,
        hidden: int = 256,
        dropout: float = 0.3,
        dev: Sequence[Dataset[ProbeText]] = (),
        **protocol: Any,
    ):
        for each in (*train, *tests, *dev):
            _check(each, train[0] if train else each)
        self.shape = {"width": width, "hidden": hidden, "dropout": dropout}
        self.probe = train[0].data.probe if train else ""
        self.spans = train[0].data.spans.shape[1] if train else 1
        self.labels = tuple(sorted({name for each in train for name in each.data.labels.names}))
        # Two probes of one file are two data sets, to whoever compares scores.
        tests = [replace(each, name=f"{each.name} ({self.probe})") for each in tests]
        super().__init__(train, tests, dev=dev, **protocol)
        if not self.labels:
            raise SettingError(
                f"{', '.join(each.name for each in train)}: no target has a label, nothing can be learnt"
            )
        n_texts = sum(len(each.data) for each in train)
        self.per_text = sum(len(each.data.spans) for each in train) / n_texts

    @staticmethod
    def read(
        path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise", probe: str | None = None,
        column: str | None = None, subtypes: bool = False,
    ) -> ProbeText:  # fmt: skip
        """Targets of a file.

        Args:
            on_error: "raise", or "skip" to leave out what cannot be read.
            probe: pos, dependencies or entities; None where the file leaves no choice. The name of the labels
                of JSON lines, where they have one.
            column: where tags stand: number of the column, upos or xpos, or the name of a data set's column.
            subtypes: keep the subtypes of relations (`nsubj:pass`).
        """
        where = int(column) if column is not None and column.isdecimal() else column
        return read_probe(path, lang=lang, probe=probe, column=where, subtypes=subtypes, on_error=on_error)

    def settings(self) -> dict[str, Any]:
        return {"probe": self.probe, "head": "edge probe", **self.shape, "labels": len(self.labels)}

    def settings_of(self, test: Dataset[ProbeText]) -> dict[str, Any]:
        unknown = int((test.data.labels.among(self.labels) < 0).sum())
        return {"targets": len(test.data.spans), "unknown_labels": unknown}

    def sentences(self, data: ProbeText) -> Sentences:
        return data.sentences

    # -- vectors ---------------------------------------------------------------------------------------------------
    def encoded(self, encoder: Encoder, data: ProbeText, *, progress: bool = False) -> Embeddings:
        vectors = encoder.encode(data.sentences, progress=progress)
        if getattr(encoder, "rows", "words") == "key points":
            return KeyPointVectors.of(encoder, vectors, data.sentences)
        return vectors

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        words = embeddings.words if isinstance(embeddings, KeyPointVectors) else None
        return FrozenSource(embeddings, device, words=words)

    # -- the head --------------------------------------------------------------------------------------------------
    def answers(self, each: Dataset[ProbeText]) -> ProbeAnswers:
        return ProbeAnswers.of(each.data, self.labels)

    def head(self, dim: int) -> nn.Module:
        return Probe(dim, len(self.labels), spans=self.spans, **self.shape)

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        """Those of the targets of each text, divided by how many a text has on average: the mean over texts is one over
        targets, whatever texts a batch has."""
        assert isinstance(head, Probe)
        assert isinstance(answers, ProbeAnswers)
        asked = answers.asked(given)
        scores = head(given.rows, asked.spans)
        losses = head.losses(scores, answers.gold(asked.targets, len(self.labels)))
        owner = torch.from_numpy(asked.owner).to(losses.device)
        return losses.new_zeros(len(given.numbers)).index_add(0, owner, losses) / self.per_text

    def judge(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(head, Probe)
        assert isinstance(answers, ProbeAnswers)
        asked = answers.asked(given)
        said = head(given.rows, asked.spans).cpu() > 0  # a probability above 0.5
        gold = answers.gold(asked.targets, len(self.labels))
        right, told = (
            np.bincount(asked.owner, weights=each.sum(1).numpy(), minlength=len(given.numbers))
            for each in (said & gold, said)
        )
        counts = np.stack([right, told, answers.of_texts("labels", given.numbers).numpy()], axis=1)
        return dict.fromkeys(self.statistics, counts)


def _check(each: Dataset[ProbeText], first: Dataset[ProbeText]) -> None:
    """
    Raises:
        SettingError: a text has no targets, or other ones than the first training text.
    """
    if not len(each.data.spans):
        raise SettingError(f"{each.name}: has no targets, expected spans with labels")
    mine, other = ((one.data.probe, one.data.spans.shape[1]) for one in (each, first))
    if mine != other:
        shown = " and ".join(f"{one.name} has {one.data.probe}" for one in (first, each))
        raise SettingError(f"{shown}: all files must be of one probe (--probe names that of JSON lines)")
