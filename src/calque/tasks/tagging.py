"""Zero-shot word tagging: named entities, slots and intents, and parts of speech."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from calque.annotated import Labels, TaggedText
from calque.corpora import read_tagged
from calque.errors import CalqueWarning, InputError, SettingError, did_you_mean
from calque.nn.tagging import TaggingHead
from calque.offsets import offsets_of, ranges
from calque.spans import names_without_spans, span_counts
from calque.spec import Count, Label, Option, Share
from calque.tasks.bootstrap import Statistic, accuracy, f1
from calque.tasks.datasets import (
    Answers,
    Dataset,
    codes_of,
    label_names,
    number_or_name,
    repaired_tags,
)
from calque.tasks.projection import LabelProjection
from calque.tasks.reading import Layers, Mixture
from calque.tasks.reporting import NOT_CONVERGED
from calque.tasks.zeroshot import ZeroShot

if TYPE_CHECKING:
    from torch import Tensor

    from calque.encoders.base import Encoder
    from calque.tasks.base import Task
    from calque.tasks.inputs import Inputs
    from calque.text import Sentences
    from calque.training.sources import WordRows

Kind = Literal["ner", "slots", "pos"]
HEADS = ("bilstm-crf", "linear", "linear-crf")


class Tagging(ZeroShot[TaggedText]):
    """Tag every word. Entities and slots are scored by F1 over whole spans as in CoNLL, for all
    span types together (`f1`) and for each type (`f1.PER`). Parts of speech, and intents if the
    data for `slots` has them, are scored by accuracy.

    The task head "bilstm-crf" is a 2-layer bidirectional LSTM with a linear-chain conditional
    random field, on frozen vectors, as in Kulshreshtha et al. (2020, §3.3) and in the Multi-sense
    paper (§4.2). The task heads "linear" and "linear-crf" are meant for fine-tuning the encoder
    together with the head.

    Args:
        kind: name of the task, "ner", "slots" or "pos".
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
    """

    files = (*ZeroShot.files, "project", "links")
    names = ("ner", "slots", "pos")
    statistics: Mapping[str, Statistic]

    def __init__(
        self,
        kind: Kind,
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
        *,
        head: Annotated[
            str | None,
            Option("Task head: bilstm-crf (default), linear (default with `tune`) or linear-crf."),
        ] = None,
        hidden: Annotated[Count, Option("Hidden size of the LSTM per direction.")] = 128,
        lstm_layers: Annotated[Count, Option("Number of LSTM layers.")] = 2,
        layers: Layers = None,
        dropout: Annotated[Share, Option("Dropout rate.")] = 0.3,
        unknown: Annotated[
            Literal["raise", "miss"],
            Option(
                "Handling of labels in test or development text that occur in no training text: "
                "stop with an error (raise; default), or count these labels as wrong (miss)."
            ),
        ] = "raise",
        tune: bool = False,
        dev: Sequence[Dataset[TaggedText]] = (),
        **protocol: Any,
    ):
        if unknown not in ("raise", "miss"):
            raise SettingError(
                f"unknown must be raise or miss, got {unknown!r}; to drop a label, set --rename "
                "LABEL="
            )
        if kind not in self.names:
            raise SettingError(f"kind of tagging must be ner, slots or pos, got {kind!r}")
        self.name: str = kind
        if head is None:
            head = "linear" if tune else "bilstm-crf"
        _check_head(head)
        self.head_type = head
        # In earlier versions, a number in `layers` was the number of LSTM layers.
        if isinstance(layers, int):
            lstm_layers, layers = layers, None
        self.hidden, self.layers, self.dropout = hidden, lstm_layers, dropout
        self.unknown = unknown
        if self.has_spans:
            _check_span_tags(train, (*tests, *dev))
        self.tags = _training_names([dataset.data.tags for dataset in train])
        # Intents are scored only if every file has them.
        self.intents: tuple[str, ...] = ()
        if kind == "slots" and _all_have_intents((*train, *tests)):
            self.intents = _training_names(_intents_of(train))
        self._set_gold_labels((*tests, *dev))
        types = {tag.removeprefix("B-") for tag in self.tags if tag.startswith("B-")}
        self.span_types = tuple(sorted(types)) if self.has_spans else ()
        self.statistics = self._statistics()
        super().__init__(train, tests, tune=tune, dev=dev, layers=layers, **protocol)

    @property
    def has_spans(self) -> bool:
        """True if the tags encode spans, unlike parts of speech."""
        return self.name != "pos"

    def _set_gold_labels(self, others: Sequence[Dataset[TaggedText]]) -> None:
        """Set the labels that gold answers may have. Labels that the head can predict come first;
        labels that occur only in the test or development texts `others` follow.
        """
        self.gold_tags, self.gold_intents = self.tags, self.intents
        if self.unknown == "miss":
            self.gold_tags = _extended(self.tags, [dataset.data.tags for dataset in others])
            self.gold_intents = _extended(self.intents, _intents_of(others))
        # Words outside of spans need a tag even if every training word is in a span.
        if self.has_spans and "O" not in self.gold_tags:
            self.gold_tags = (*self.gold_tags, "O")

    def _statistics(self) -> dict[str, Statistic]:
        statistics: dict[str, Statistic] = {"accuracy": accuracy}
        if self.has_spans:
            statistics = {"f1": f1} | {f"f1.{name}": f1 for name in self.span_types}
        if self.intents:
            statistics["intent"] = accuracy
        return statistics

    @staticmethod
    def read(
        path: str,
        lang: str,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        rename: Annotated[
            Mapping[str, Label] | None,
            Option(
                "Map from old to new label names, for files with different label names; an "
                "empty name replaces a label by O."
            ),
        ] = None,
        format: Annotated[
            str,
            Option(
                "File format, if it cannot be detected: columns, numbered, conllu, facebook "
                "or hub, or package.module:function."
            ),
        ] = "auto",
        column: Annotated[
            str | None,
            Option(
                "Column that contains the tags, given as a number, upos, xpos, or the name of "
                "a data set column."
            ),
        ] = None,
    ) -> TaggedText:
        """Read tagged text.

        Args:
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
        """
        text = read_tagged(
            path, lang=lang, on_error=on_error, format=format, column=number_or_name(column)
        )
        return renamed(text, rename) if rename else text

    @classmethod
    def projected(
        cls,
        inputs: Inputs,
        make: Callable[..., Tagging],
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
    ) -> Task:
        # The limit is for annotated files. Unlike these, parallel text is not split into words.
        words = replace(inputs.words.unlimited, pretokenized=False)
        corpora = words.read_all(inputs.project, inputs.langs)
        if inputs.links and len(inputs.links) != len(corpora):
            raise SettingError(
                f"--links must have one file for each of {len(corpora)} texts, got "
                f"{len(inputs.links)}"
            )
        linked_texts = []
        for number, (path, corpus) in enumerate(zip(inputs.project, corpora, strict=True)):
            if inputs.links:
                pairs = words.open_pairs(inputs.links[number], corpus)
            else:
                pairs = words.link(corpus)
            linked_texts.append((path, corpus, pairs))
        return LabelProjection(make, train, tests, linked_texts, inputs.say)

    def defaults(self) -> dict[str, Any]:
        if self.head_type == "bilstm-crf":
            return {"epochs": 20, "batch": 32, "learning_rate": 1e-3, "patience": 4}
        if not self.tune:
            return {"epochs": 40, "batch": 32, "learning_rate": 1e-3, "patience": 5}
        return {
            "epochs": 5,
            "batch": 32,
            "learning_rate": 5e-4,
            "warmup": 0.1,
            "decay": "linear",
            "clip": 1.0,
        }

    @property
    def normalises(self) -> bool:
        """True if the head standardises frozen vectors, see `TaggingHead`.

        A mixture changes during training, so the statistics of earlier batches would be wrong. Its
        layers are standardised before they are mixed, see `ScalarMix`.
        """
        is_frozen = not self.tune and not isinstance(self.reading, Mixture)
        return is_frozen and self.head_type != "bilstm-crf"

    def settings(self) -> dict[str, object]:
        settings: dict[str, object] = {"head": self.head_type}
        if self.normalises:
            settings["normalise"] = True
        if self.head_type == "bilstm-crf":
            settings |= {"hidden": self.hidden, "layers": self.layers}
        return settings | {
            "dropout": self.dropout,
            "tags": len(self.tags),
            "unknown": self.unknown,
        }

    def settings_of(self, test: Dataset[TaggedText]) -> dict[str, object]:
        if not self.has_spans:
            return {}
        return {"repaired_tags": repaired_tags(self.train, self.dev, test)}

    def sentences(self, data: TaggedText) -> Sentences:
        return data.sentences

    def answers(self, dataset: Dataset[TaggedText]) -> Answers:
        data = dataset.data
        lengths = data.sentences.lengths()
        remedy = "count such labels as wrong (--unknown miss)"
        tags = codes_of(data.tags, self.gold_tags, dataset, lengths, remedy, _name_in_rename)
        texts = {}
        if self.intents and data.intents is not None:
            texts["intents"] = codes_of(
                data.intents,
                self.gold_intents,
                dataset,
                np.ones_like(lengths),
                remedy,
                _name_in_rename,
            )
        return Answers(lengths, words={"tags": tags}, texts=texts)

    def head(self, dim: int) -> nn.Module:
        lstm = (self.hidden, self.layers) if self.head_type == "bilstm-crf" else None
        crf = self.head_type.endswith("crf")
        return TaggingHead(
            dim,
            self.tags,
            len(self.intents),
            lstm=lstm,
            crf=crf,
            dropout=self.dropout,
            normalise=self.normalises,
        )

    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        assert isinstance(head, TaggingHead)
        tags = answers.of_words("tags", batch.numbers).to(batch.rows.device)
        tag_scores, intent_scores = head(batch.rows, batch.lengths)
        losses = head.tag_losses(tag_scores, tags, batch.lengths)
        if intent_scores is not None:
            intents = answers.of_texts("intents", batch.numbers).to(batch.rows.device)
            losses = losses + functional.cross_entropy(intent_scores, intents, reduction="none")
        return losses

    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(head, TaggingHead)
        tag_scores, intent_scores = head(batch.rows, batch.lengths)
        predicted = head.best(tag_scores, batch.lengths).cpu().numpy()
        gold = answers.of_words("tags", batch.numbers).numpy()
        offsets = offsets_of(batch.lengths.numpy())
        if not self.has_spans:
            # Number of correct words before each word, so differences count those of each text.
            n_correct = offsets_of(predicted == gold)[offsets]
            counts = {"accuracy": np.stack([np.diff(n_correct), np.diff(offsets)], axis=1)}
        else:
            # The head's tags come first in `gold_tags`, so both use the same codes.
            spans = span_counts(gold, predicted, self.gold_tags, offsets)
            counts = {"f1": spans.sentences}
            for name in self.span_types:
                counts[f"f1.{name}"] = spans.table[:, spans.types.index(name)]
        if intent_scores is not None:
            intents = answers.of_texts("intents", batch.numbers)
            correct = (intent_scores.argmax(1).cpu() == intents).numpy()
            counts["intent"] = np.stack([correct, np.ones(len(correct))], axis=1)
        return counts

    def tag(self, encoder: Encoder, sentences: Sentences, *, progress: bool = False) -> TaggedText:
        """Train a task head with seed 0, and return the sentences with predicted tags."""
        experiment = self.experiment(encoder, progress=progress)
        trained = experiment.train(0)
        if not trained.has_converged:
            warnings.warn(
                CalqueWarning(f"the tagger has {NOT_CONVERGED}; increase epochs"), stacklevel=2
            )
        head = trained.head
        assert isinstance(head, TaggingHead)
        lengths = sentences.lengths()
        starts = offsets_of(lengths)[:-1]
        codes = np.zeros(int(lengths.sum()), dtype=np.int32)  # filled batch by batch
        text = TaggedText(sentences, Labels(codes, self.tags))
        with torch.no_grad():
            # Batches are sorted by length, so each writes to the places of its own texts.
            for batch in experiment.batches(trained, Dataset("text", sentences.lang, text)):
                scores, _ = head(batch.rows, batch.lengths)
                words = ranges(starts[batch.numbers], lengths[batch.numbers])
                codes[words] = head.best(scores, batch.lengths).cpu().numpy()
        return text


def _check_head(head: str) -> None:
    """Raise a `SettingError` if a task head is unknown."""
    if head not in HEADS:
        raise SettingError(
            f"head must be one of {', '.join(HEADS)}, got {head!r}{did_you_mean(head, HEADS)}"
        )


def _check_span_tags(
    train: Sequence[Dataset[TaggedText]], others: Sequence[Dataset[TaggedText]]
) -> None:
    """Raise an `InputError` if a training text has no spans, or if any text has tags that are
    neither O nor BIO tags.
    """
    for dataset in train:
        _check_has_spans(dataset)
    for dataset in (*train, *others):
        _refuse_other_tags(dataset)


def _check_has_spans(dataset: Dataset[TaggedText]) -> None:
    """Raise an `InputError` if no tag in the text begins a span."""
    names = [name for name in dataset.data.tags.names if name != "O"]
    if any(name.startswith("B-") for name in names):
        return
    tags = "has only the tag O"
    if names:
        tags = f"has the tags {', '.join(names[:6])}"
        if len(names) > 6:
            tags += ", …"
    raise InputError(
        f"{tags}; expected spans, e.g. B-PER, I-PER and O (for tags without spans, use the task "
        "pos)",
        path=dataset.data.path or dataset.name,
    )


def _refuse_other_tags(dataset: Dataset[TaggedText]) -> None:
    """Raise an `InputError` if a tag is neither O nor a BIO tag. Such words would be outside every
    span.
    """
    tags, lines = dataset.data.tags, dataset.data.lines
    strange_names = names_without_spans(tags.names)
    is_strange = np.array([name in strange_names for name in tags.names], dtype=bool)
    words = np.flatnonzero(is_strange[tags.codes])
    if not len(words):
        return
    line = None
    if lines is not None:
        ends = np.cumsum(dataset.data.sentences.lengths())
        line = int(lines[np.searchsorted(ends, words[0], side="right")])
    fact = (
        f"the tag {tags[int(words[0])]!r:.40} is not a span tag, expected tags such as B-PER, "
        "I-PER and O"
    )
    remedy = "correct it, or rename it with --rename (for tags without spans, use the task pos)"
    raise InputError(f"{fact}; {remedy}", path=dataset.data.path or dataset.name, line=line)


def _all_have_intents(datasets: Iterable[Dataset[TaggedText]]) -> bool:
    return all(dataset.data.intents is not None for dataset in datasets)


def _intents_of(datasets: Iterable[Dataset[TaggedText]]) -> list[Labels]:
    """Return the intents of the data sets that have any."""
    intents = [dataset.data.intents for dataset in datasets]
    return [labels for labels in intents if labels is not None]


def _training_names(labels: Sequence[Labels]) -> tuple[str, ...]:
    """Return the sorted labels of the training texts, with O first. For each B- label, the matching
    I- label is added.
    """
    names = label_names(labels)
    # A longer span of the type can occur in test text even if all training spans are single words.
    names |= {f"I-{name[2:]}" for name in names if name.startswith("B-")}
    return tuple(sorted(names, key=lambda name: (name != "O", name)))


def _extended(names: tuple[str, ...], labels: Sequence[Labels]) -> tuple[str, ...]:
    """Return `names`, followed by the sorted labels that are not among them."""
    return (*names, *sorted(label_names(labels) - set(names)))


def _name_in_rename(label: str) -> str:
    """Return the name that `--rename` expects for a label: its span type, or the label itself."""
    return label.partition("-")[2] or label


def renamed(text: TaggedText, names: Mapping[str, str]) -> TaggedText:
    """Rename span types or tags; a span type or tag that is renamed to the empty string becomes O.

    Args:
        names: mapping from old to new names, without the span prefixes B- and I-.
    """

    def new_name(tag: str) -> str:
        prefix, dash, span_type = tag.partition("-")
        is_span = bool(dash) and prefix in ("B", "I")
        old_name = span_type if is_span else tag
        if old_name not in names:
            return tag
        if not names[old_name]:
            return "O"
        return f"{prefix}-{names[old_name]}" if is_span else names[old_name]

    tags = Labels.of([new_name(name) for name in text.tags.names])
    changed = replace(text, tags=Labels(tags.codes[text.tags.codes], tags.names))
    if text.intents is None:
        return changed
    intents = Labels.of([names.get(name, name) for name in text.intents.names])
    return replace(changed, intents=Labels(intents.codes[text.intents.codes], intents.names))
