"""Edge probing (Tenney et al. 2019b), which measures how much linguistic structure word vectors
encode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from calque.annotated import ProbeText
from calque.corpora import read_probe
from calque.errors import SettingError
from calque.nn.probe import Probe, SpanRows
from calque.offsets import offsets_of, ranges
from calque.spec import Count, Option, Share
from calque.tasks.bootstrap import Statistic, f1, ratio
from calque.tasks.datasets import Answers, Dataset, label_names, number_or_name, repaired_tags
from calque.tasks.reporting import of_trained_heads
from calque.tasks.zeroshot import ZeroShot
from calque.training.sources import FrozenSource, VectorSource
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor

    from calque.encoders.base import Encoder
    from calque.text import Sentences
    from calque.training.sources import WordRows


class Targets(NamedTuple):
    """Targets in a batch. A target is omitted if one of its spans has no vectors.

    Attributes:
        numbers: indices of the targets, int64 `[T]`.
        owner: index of each target's text in the batch, int64 `[T]`.
        spans: vector rows of each target's first span and, if targets are pairs of spans, of its
            second span.
    """

    numbers: np.ndarray
    owner: np.ndarray
    spans: list[SpanRows]


class ProbeAnswers(Answers):
    """Targets in several texts, with their gold labels.

    Args:
        lengths: number of words in each text, int64 `[n_texts]`.
        counts: number of targets in each text, int64 `[n_texts]`.
        spans: spans of the targets, int64 `[n_targets, 1 or 2, 2]`, see `ProbeText`.
        gold: mask of each target's gold labels among the labels of the training text, bool
            `[n_targets, n_labels]`.
        n_labels: number of gold labels in each text, including labels that are not in the training
            text, int64 `[n_texts]`.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        counts: np.ndarray,
        spans: np.ndarray,
        gold: np.ndarray,
        n_labels: np.ndarray,
    ):
        super().__init__(lengths, texts={"labels": n_labels})
        self.counts, self.spans, self.gold = counts, spans, gold
        self._first = offsets_of(counts)[:-1]

    @classmethod
    def of(cls, data: ProbeText, labels: Sequence[str]) -> ProbeAnswers:
        """Build the answers for a data set. The columns of `gold` are in the order of `labels`."""
        codes = data.labels.among(labels)
        n_targets = len(data.spans)
        target_of_label = np.repeat(np.arange(n_targets), np.diff(data.label_offsets))
        is_known = codes >= 0
        gold = np.zeros((n_targets, len(labels)), dtype=bool)
        gold[target_of_label[is_known], codes[is_known]] = True
        # A label that is listed twice for a target counts once.
        distinct = np.unique(np.stack([target_of_label, data.labels.codes]), axis=1)
        labels_per_target = np.bincount(distinct[0], minlength=n_targets)
        labels_per_text = np.diff(offsets_of(labels_per_target)[data.offsets])
        return cls(
            data.sentences.lengths(),
            np.diff(data.offsets),
            data.spans.astype(np.int64),
            gold,
            labels_per_text,
        )

    @classmethod
    def joined(cls, parts: Sequence[ProbeAnswers]) -> ProbeAnswers:  # type: ignore[override]
        return cls(
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.spans for part in parts]),
            np.concatenate([part.gold for part in parts]),
            np.concatenate([part.texts["labels"] for part in parts]),
        )

    def targets(self, batch: WordRows) -> Targets:
        """Return the targets in a batch of texts. Targets are skipped if one of their spans has no
        word with a vector.
        """
        counts = self.counts[batch.numbers]
        numbers = ranges(self._first[batch.numbers], counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        lengths, spans = batch.lengths.numpy(), self.spans[numbers]
        # `bounds` contains the first row and the end of each span, `[T, 1 or 2, 2]`.
        order = None
        if batch.words is None:
            bounds = offsets_of(lengths)[owner][:, None, None] + spans
        else:
            # Sort the rows by text and word, which makes each span a contiguous range of rows.
            width = int(self.lengths[batch.numbers].max(initial=0)) + 1
            keys = np.repeat(np.arange(len(lengths)), lengths) * width + batch.words
            order = np.argsort(keys, kind="stable")
            bounds = np.searchsorted(keys[order], owner[:, None, None] * width + spans)
        sizes = bounds[..., 1] - bounds[..., 0]
        # A span without vectors has nothing to pool.
        has_vectors = (sizes > 0).all(axis=1)
        span_rows = []
        for k in range(spans.shape[1]):
            rows = ranges(bounds[has_vectors, k, 0], sizes[has_vectors, k])
            if order is not None:
                rows = order[rows]
            span_sizes = torch.from_numpy(sizes[has_vectors, k])
            span_rows.append(SpanRows(torch.from_numpy(rows), span_sizes))
        return Targets(numbers[has_vectors], owner[has_vectors], span_rows)


class KeyPointVectors(Embeddings):
    """Vectors of the key points of each text, which are a subset of its words. Their order within a
    text is arbitrary.

    Args:
        words: index of each vector's word in its text, int64 `[n_rows]`.
    """

    def __init__(self, vectors: Embeddings, words: np.ndarray):
        super().__init__(vectors.data, vectors.offsets, vectors.covered)
        self.words = words

    @classmethod
    def joined(cls, parts: Sequence[KeyPointVectors]) -> KeyPointVectors:  # type: ignore[override]
        return cls(Embeddings.joined(parts), np.concatenate([part.words for part in parts]))


class Probing(ZeroShot[ProbeText]):
    """Label spans, or pairs of spans, using only the vectors of their words. Information about the
    context must therefore be encoded in the vectors (Tenney et al. 2019b, "What do you learn from
    context? Probing for sentence structure in contextualized word representations"). Probes exist
    for parts of speech, dependencies, entities, and any task in jiant's JSON Lines format.

    Each label of a target is a binary decision; a label is predicted if its probability is above
    0.5. The scores are the micro-averaged F1, precision and recall over all decisions. The best
    epoch is selected by F1. Gold labels that do not occur in the training text count as missed.

    An encoder that returns vectors only for key points is probed as in the CLCR paper (Table 6): a
    span is represented by those of its words that are key points according to the encoder's
    `key_points`. A target is skipped in training and counts as missed in testing if one of its
    spans contains no key points.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`. All files
            must have the same probe.
    """

    name = "probing"
    reporting = of_trained_heads("f1")
    rows = ("words", "key points")
    epochs = (20, 5)
    # The counts are the numbers of correct, predicted and gold labels.
    statistics: Mapping[str, Statistic] = {
        "f1": f1,
        "precision": lambda counts: np.nan_to_num(ratio(counts[..., 0], counts[..., 1])),
        "recall": lambda counts: np.nan_to_num(ratio(counts[..., 0], counts[..., 2])),
    }

    def __init__(
        self,
        train: Sequence[Dataset[ProbeText]],
        tests: Sequence[Dataset[ProbeText]],
        *,
        width: Annotated[Count, Option("Dimension of the projected word vectors.")] = 256,
        hidden: Annotated[Count, Option("Hidden size of the multilayer perceptron.")] = 256,
        dropout: Annotated[Share, Option("Dropout rate of the multilayer perceptron.")] = 0.3,
        dev: Sequence[Dataset[ProbeText]] = (),
        **protocol: Any,
    ):
        for dataset in (*train, *tests, *dev):
            _check(dataset, train[0] if train else dataset)
        # Settings of `Probe`, which are also recorded with the scores.
        self.shape: dict[str, Any] = {"width": width, "hidden": hidden, "dropout": dropout}
        self.probe, self.spans = "", 1
        if train:
            self.probe, self.spans = train[0].data.probe, train[0].data.spans.shape[1]
        self.labels = tuple(sorted(label_names(dataset.data.labels for dataset in train)))
        # Include the probe in the name, because score comparisons must distinguish different probes
        # of the same file.
        tests = [replace(test, name=f"{test.name} ({self.probe})") for test in tests]
        super().__init__(train, tests, dev=dev, **protocol)
        if not self.labels:
            names = ", ".join(dataset.name for dataset in train)
            raise SettingError(f"{names}: targets must have labels, got none")
        n_texts = sum(len(dataset.data) for dataset in train)
        n_targets = sum(len(dataset.data.spans) for dataset in train)
        self.targets_per_text = n_targets / n_texts

    @staticmethod
    def read(
        path: str,
        lang: str,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        probe: Annotated[
            str | None,
            Option(
                "Probe: pos, dependencies or entities; needed only if the file has several "
                "probes. For JSON Lines files, any name that describes the labels."
            ),
        ] = None,
        column: Annotated[
            str | None,
            Option(
                "Column that contains the tags, given as a number, upos, xpos, or the name of "
                "a data set column."
            ),
        ] = None,
        subtypes: Annotated[
            bool, Option("Keep the subtypes of relations, such as nsubj:pass.")
        ] = False,
    ) -> ProbeText:
        """Read the targets from a file.

        Args:
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
        """
        return read_probe(
            path,
            lang=lang,
            on_error=on_error,
            probe=probe,
            column=number_or_name(column),
            subtypes=subtypes,
        )

    def settings(self) -> dict[str, object]:
        return {"probe": self.probe, "head": "edge probe", **self.shape, "labels": len(self.labels)}

    def settings_of(self, test: Dataset[ProbeText]) -> dict[str, object]:
        n_unknown = int((test.data.labels.among(self.labels) < 0).sum())
        settings: dict[str, object] = {"targets": len(test.data.spans), "unknown_labels": n_unknown}
        if self.probe == "entities":
            settings["repaired_tags"] = repaired_tags(self.train, self.dev, test)
        return settings

    def sentences(self, data: ProbeText) -> Sentences:
        return data.sentences

    # -- vectors -----------------------------------------------------------------------------------
    def encoded(self, encoder: Encoder, data: ProbeText, *, progress: bool = False) -> Embeddings:
        vectors = encoder.encode(data.sentences, progress=progress)
        if encoder.rows == "words":
            return vectors
        # Key points are a subset of the words, so their positions are needed to find them in spans.
        key_points = encoder.key_points(data.sentences)  # type: ignore[attr-defined]
        return KeyPointVectors(vectors, np.asarray(key_points.data, dtype=np.int64))

    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        return FrozenSource(embeddings, device, words=getattr(embeddings, "words", None))

    # -- task head ---------------------------------------------------------------------------------
    def answers(self, dataset: Dataset[ProbeText]) -> ProbeAnswers:
        return ProbeAnswers.of(dataset.data, self.labels)

    def head(self, dim: int) -> nn.Module:
        return Probe(dim, len(self.labels), spans=self.spans, **self.shape)

    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        """Return the sum of each text's target losses, divided by the average number of targets per
        text. The mean over texts then equals the mean loss over targets."""
        assert isinstance(head, Probe)
        assert isinstance(answers, ProbeAnswers)
        targets = answers.targets(batch)
        gold = torch.from_numpy(answers.gold[targets.numbers])
        losses = head.losses(head(batch.rows, targets.spans), gold)
        owner = torch.from_numpy(targets.owner).to(losses.device)
        sums = losses.new_zeros(len(batch.numbers)).index_add(0, owner, losses)
        return sums / self.targets_per_text

    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(head, Probe)
        assert isinstance(answers, ProbeAnswers)
        targets = answers.targets(batch)
        scores = head(batch.rows, targets.spans)
        predicted = (scores > 0).cpu().numpy()  # equivalent to a probability above 0.5
        correct = predicted & answers.gold[targets.numbers]

        def per_text(labels: np.ndarray) -> np.ndarray:
            return np.bincount(
                targets.owner, weights=labels.sum(axis=1), minlength=len(batch.numbers)
            )

        n_gold = answers.of_texts("labels", batch.numbers).numpy()
        counts = np.stack([per_text(correct), per_text(predicted), n_gold], axis=1)
        return dict.fromkeys(self.statistics, counts)


def _check(dataset: Dataset[ProbeText], first: Dataset[ProbeText]) -> None:
    """Raise a `SettingError` if a data set has no targets, or if its probe differs from that of the
    first training set.
    """
    data, first_data = dataset.data, first.data
    if not len(data.spans):
        raise SettingError(f"{dataset.name}: the file must have labelled spans, got none")
    if data.probe != first_data.probe or data.spans.shape[1] != first_data.spans.shape[1]:
        raise SettingError(
            f"all files must be for one probing task, but {first.name} has {first_data.probe} and "
            f"{dataset.name} has {data.probe}; choose it with --probe"
        )
