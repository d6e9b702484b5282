"""Zero-shot word tagging: named entities, slots and intents, and parts of speech."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

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
from calque.spec import Label
from calque.tasks.bootstrap import accuracy, f1
from calque.tasks.datasets import Answers, Dataset, codes_of, number_or_name, repaired_tags
from calque.tasks.projection import LabelProjection
from calque.tasks.reporting import NOT_CONVERGED
from calque.tasks.zeroshot import Experiment, ZeroShot

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
        head: one of `HEADS`; default: "linear" with `tune`, otherwise "bilstm-crf".
        hidden, layers: hidden size of the LSTM per direction, and number of LSTM layers.
        dropout: dropout rate, see `TaggingHead`.
        unknown: how to treat labels in test or development text that occur in no training text:
            "raise" an error, or "miss", which counts these labels as wrong.
    """

    files = (*ZeroShot.files, "project", "links")
    names = ("ner", "slots", "pos")
    statistics: Mapping[str, Any]

    def __init__(
        self,
        kind: Kind,
        train: Sequence[Dataset[TaggedText]],
        tests: Sequence[Dataset[TaggedText]],
        *,
        head: str | None = None,
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.3,
        unknown: Literal["raise", "miss"] = "raise",
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
        self.kind_of_head = ("linear" if tune else "bilstm-crf") if head is None else head
        if self.kind_of_head not in HEADS:
            raise SettingError(
                f"head must be one of {', '.join(HEADS)}, got "
                f"{head!r}{did_you_mean(str(head), HEADS)}"
            )
        self.hidden, self.layers, self.dropout = hidden, layers, dropout
        if kind != "pos":
            for each in train:
                _need_spans(each)
            for each in (*train, *tests, *dev):
                _refuse_other_tags(each)
        self.tags = _names(each.data.tags for each in train)
        with_intents = kind == "slots" and all(
            data.data.intents is not None for data in (*train, *tests)
        )
        self.intents = _names(each.data.intents for each in train) if with_intents else ()
        self.unknown = unknown
        # Labels that the head can predict come first; labels that occur only in test or development
        # text follow.
        more = [each.data for each in (*tests, *dev)] if unknown == "miss" else []
        self.gold_tags = _extended(self.tags, [data.tags for data in more])
        self.gold_intents = _extended(
            self.intents, [data.intents for data in more if data.intents is not None]
        )
        if kind != "pos" and "O" not in self.gold_tags:
            self.gold_tags = (*self.gold_tags, "O")
        self.kinds = (
            ()
            if kind == "pos"
            else tuple(sorted({name[2:] for name in self.tags if name[:2] == "B-"}))
        )
        self.statistics = (
            {"accuracy": accuracy}
            if kind == "pos"
            else {"f1": f1, **{f"f1.{name}": f1 for name in self.kinds}}
        )
        if with_intents:
            self.statistics = {**self.statistics, "intent": accuracy}
        super().__init__(train, tests, tune=tune, dev=dev, **protocol)

    @staticmethod
    def read(
        path: str,
        lang: str,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        rename: Mapping[str, Label] | None = None,
        format: str = "auto",
        column: str | None = None,
    ) -> TaggedText:
        """Read tagged text.

        Args:
            on_error: how to treat invalid lines: "raise" an error, or "skip" the line.
            rename: mapping from old to new label names, for files with different label names; ""
                replaces a label by O.
            format: file format, needed if it cannot be detected; see `read_tagged`.
            column: column that contains the tags, given as a number, "upos", "xpos", or the name of
                a data set column.
        """
        how: Any = {"format": format, "column": number_or_name(column)}
        text = read_tagged(path, lang=lang, on_error=on_error, **how)
        return renamed(text, rename) if rename else text

    @classmethod
    def projected(cls, inputs: Inputs, make: Callable[..., Any], train: Any, tests: Any) -> Task:
        words = replace(inputs.words.unlimited, pretokenized=False)
        corpora = words.read_all(inputs.project, inputs.langs)
        if inputs.links and len(inputs.links) != len(corpora):
            raise SettingError(
                f"--links must have one file for each of {len(corpora)} texts, got "
                f"{len(inputs.links)}"
            )
        pairs = [
            words.open_pairs(inputs.links[number], corpus) if inputs.links else words.link(corpus)
            for number, corpus in enumerate(corpora)
        ]
        return LabelProjection(
            make, train, tests, list(zip(inputs.project, corpora, pairs, strict=True)), inputs.say
        )

    def defaults(self) -> dict[str, Any]:
        if self.kind_of_head == "bilstm-crf":
            return {"epochs": 20, "batch": 32, "learning_rate": 1e-3, "patience": 4}
        return {
            "epochs": 5,
            "batch": 32,
            "learning_rate": 5e-4,
            "warmup": 0.1,
            "decay": "linear",
            "clip": 1.0,
        }

    def settings(self) -> dict[str, Any]:
        lstm = (
            {"hidden": self.hidden, "layers": self.layers}
            if self.kind_of_head == "bilstm-crf"
            else {}
        )
        return {
            "head": self.kind_of_head,
            **lstm,
            "dropout": self.dropout,
            "tags": len(self.tags),
            "unknown": self.unknown,
        }

    def settings_of(self, test: Dataset[TaggedText]) -> dict[str, Any]:
        if self.name == "pos":
            return {}
        return {"repaired_tags": repaired_tags(self.train, self.dev, test)}

    def sentences(self, data: TaggedText) -> Sentences:
        return data.sentences

    def answers(self, each: Dataset[TaggedText]) -> Answers:
        data, lengths = each.data, each.data.sentences.lengths()
        miss = "count such labels as wrong (--unknown miss)"
        words = {"tags": codes_of(data.tags, self.gold_tags, each, lengths, miss, _kind_of)}
        texts = {}
        if self.intents and data.intents is not None:
            texts["intents"] = codes_of(
                data.intents, self.gold_intents, each, np.ones_like(lengths), miss, _kind_of
            )
        return Answers(lengths, words=words, texts=texts)

    def head(self, dim: int) -> nn.Module:
        lstm = (self.hidden, self.layers) if self.kind_of_head == "bilstm-crf" else None
        crf = self.kind_of_head.endswith("crf")
        return TaggingHead(
            dim, self.tags, len(self.intents), lstm=lstm, crf=crf, dropout=self.dropout
        )

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        assert isinstance(head, TaggingHead)
        tags = answers.of_words("tags", given.numbers).to(given.rows.device)
        scores, intents = head(given.rows, given.lengths)
        losses = head.tag_losses(scores, tags, given.lengths)
        if intents is not None:
            gold = answers.of_texts("intents", given.numbers).to(given.rows.device)
            losses = losses + functional.cross_entropy(intents, gold, reduction="none")
        return losses

    def counts(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(head, TaggingHead)
        scores, intents = head(given.rows, given.lengths)
        tags = head.best(scores, given.lengths).cpu().numpy()
        gold = answers.of_words("tags", given.numbers).numpy()
        offsets = offsets_of(given.lengths.numpy())
        if self.name == "pos":
            right = offsets_of(tags == gold)
            counts_by_metric = {
                "accuracy": np.stack([np.diff(right[offsets]), np.diff(offsets)], axis=1)
            }
        else:
            counts = span_counts(gold, tags, self.gold_tags, offsets)
            counts_by_metric = {"f1": counts.sentences}
            counts_by_metric |= {
                f"f1.{kind}": counts.table[:, counts.types.index(kind)] for kind in self.kinds
            }
        if intents is not None:
            right = intents.argmax(1).cpu() == answers.of_texts("intents", given.numbers)
            counts_by_metric["intent"] = np.stack([right.numpy(), np.ones(len(right))], axis=1)
        return counts_by_metric

    def tag(self, encoder: Encoder, sentences: Sentences, *, progress: bool = False) -> TaggedText:
        """Train a task head with seed 0, and return the sentences with predicted tags."""
        experiment = Experiment(self, encoder, progress=progress)
        trained = experiment.train(0)
        if not trained.has_converged:
            warnings.warn(
                CalqueWarning(f"the tagger has {NOT_CONVERGED}; increase epochs"), stacklevel=2
            )
        lengths = sentences.lengths()
        starts, codes = offsets_of(lengths)[:-1], np.zeros(int(lengths.sum()), dtype=np.int32)
        text = TaggedText(sentences, Labels(codes, self.tags))
        with torch.no_grad():
            for given in experiment.batches(trained, Dataset("text", sentences.lang, text)):
                scores, _ = trained.head(given.rows, given.lengths)
                places = ranges(starts[given.numbers], lengths[given.numbers])
                codes[places] = trained.head.best(scores, given.lengths).cpu().numpy()  # type: ignore[operator]
        return text


def _need_spans(each: Dataset[TaggedText]) -> None:
    """Raise an `InputError` if no tag in the text begins a span."""
    names = [name for name in each.data.tags.names if name != "O"]
    if not any(name.startswith("B-") for name in names):
        has = (
            f"has the tags {', '.join(names[:6])}{', …' if len(names) > 6 else ''}"
            if names
            else "has only the tag O"
        )
        fact = (
            f"{has}; expected spans, e.g. B-PER, I-PER and O (for tags without spans, use the task "
            "pos)"
        )
        raise InputError(fact, path=each.data.path or each.name)


def _refuse_other_tags(each: Dataset[TaggedText]) -> None:
    """Raise an `InputError` if a tag is neither O nor a BIO tag. Such words would be outside every
    span.
    """
    tags = each.data.tags
    strange = names_without_spans(tags.names)
    words = np.flatnonzero(np.array([name in strange for name in (*tags.names, "O")])[tags.codes])
    if not len(words):
        return
    ends = np.cumsum(each.data.sentences.lengths())
    line = (
        None
        if each.data.lines is None
        else int(each.data.lines[np.searchsorted(ends, words[0], side="right")])
    )
    fact = (
        f"the tag {tags[int(words[0])]!r:.40} is not a span tag, expected tags such as B-PER, "
        "I-PER and O"
    )
    remedy = "correct it, or rename it with --rename (for tags without spans, use the task pos)"
    raise InputError(f"{fact}; {remedy}", path=each.data.path or each.name, line=line)


def _names(labels: Iterable[Any]) -> tuple[str, ...]:
    """Return the sorted labels of the training texts, with O first. For each B- label, the matching
    I- label is added.
    """
    names = {name for each in labels for name in each.names}
    names |= {f"I-{name[2:]}" for name in names if name.startswith("B-")}
    return tuple(sorted(names, key=lambda name: (name != "O", name)))


def _extended(names: tuple[str, ...], labels: Sequence[Labels]) -> tuple[str, ...]:
    return (*names, *sorted({name for each in labels for name in each.names} - set(names)))


def _kind_of(label: str) -> str:
    return label.partition("-")[2] or label


def renamed(text: TaggedText, names: Mapping[str, str]) -> TaggedText:
    """Rename span types or tags; a span type or tag that is renamed to the empty string becomes O.

    Args:
        names: mapping from old to new names, without the span prefixes B- and I-.
    """

    def new(name: str) -> str:
        part, dash, kind = name.partition("-")
        if not dash or part not in ("B", "I"):
            return (names[name] or "O") if name in names else name
        return name if kind not in names else (f"{part}-{names[kind]}" if names[kind] else "O")

    tags = Labels.of([new(name) for name in text.tags.names])
    changed = replace(text, tags=Labels(tags.codes[text.tags.codes], tags.names))
    if text.intents is None:
        return changed
    intents = Labels.of([names.get(name, name) for name in text.intents.names])
    return replace(changed, intents=Labels(intents.codes[text.intents.codes], intents.names))
