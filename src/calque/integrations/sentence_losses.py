"""Train sentence-transformers models with calque's contrastive losses, for example together with
other losses in a multi-task run.

`calque.integrations.sentence_transformers` exports the names of this module. Training requires
`pip install 'calque-align[sentence-transformers,hub]'`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from calque.alignment.contrastive import (
    Contrastive,
    info_nce,
    number_word_pairs,
    similarity_divergence,
)
from calque.alignment.update import LinkedBatch
from calque.encoders.batches import WordBatch, collate
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.huggingface import HuggingFaceEncoder, Pooling
from calque.encoders.layers import encoder_of
from calque.encoders.split import SplitSentences
from calque.encoders.standard import DOMINANT, largest_share
from calque.errors import (
    CalqueWarning,
    MissingExtraError,
    SettingError,
    SkippedWarning,
    check_number,
)
from calque.nn.pooling import sums
from calque.pairs import WordPairs
from calque.segment import split_spaces
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

#: input of a model of sentence-transformers, or its output, by name
Features = Mapping[str, Any]

#: column of a data set with the word links of each sentence pair
LINKS = "links"
#: names of the columns in the batches of `LinkCollator`
_SIDES = ("source", "target")
_BATCH = tuple(each.name for each in fields(WordBatch))
_LINKED = "data_collator=LinkCollator(model)"


# -- data ------------------------------------------------------------------------------------------
def link_dataset(
    corpus: ParallelCorpus,
    pairs: WordPairs,
    *,
    towards: str,
    max_words: int | None = Contrastive.max_words,
) -> Dataset:
    """Build a data set of sentence pairs and their word links for `WordContrastiveLoss`.

    The column `target` contains the sentences in the language `towards`, and `source` their
    translations, with a space between words. The column `links` contains the positions of linked
    words, such as `[[0, 0], [2, 1]]`. Use one data set for each language pair, because the other
    words of a batch are negatives.

    Args:
        corpus, pairs: parallel text, and its word links.
        towards: language whose similarities `similarity_distillation` preserves.
        max_words: maximum number of words in either sentence of a pair; None for no limit.

    Raises:
        MissingExtraError: datasets is not installed.
        SettingError: the corpus has no side in the language `towards`, or a word contains a space.
        InputError: a link refers to a word that does not exist.
    """
    try:
        from datasets import Dataset
    except ImportError as error:
        purpose = "building a data set for sentence-transformers"
        raise MissingExtraError("datasets", "hub", purpose) from error
    corpus.side(towards)  # raises an error if the corpus has no side in this language
    pairs.check(corpus)
    if corpus.langs[0] == towards:
        corpus, pairs = corpus.swapped(), pairs.swapped()
    usable = _usable(corpus, pairs, max_words)
    corpus, pairs = corpus.take(usable), pairs.take(usable)
    positions = pa.array(np.stack([pairs.source, pairs.target], axis=1).ravel())
    two_each = pa.array(2 * np.arange(len(pairs) + 1, dtype=np.int32))
    links = pa.ListArray.from_arrays(two_each, positions)
    offsets = pa.array(pairs.offsets().astype(np.int32))
    columns: dict[str, Any] = {}
    for side in _SIDES:
        columns[side] = _texts(getattr(corpus, side))
    columns[LINKS] = pa.ListArray.from_arrays(offsets, links)
    return Dataset.from_dict(columns)


def _texts(sentences: Sentences) -> list[str]:
    """Return the words of each sentence as a text, with a space between words.

    Raises:
        SettingError: a word contains a space, so the words could not be recovered from the text.
    """
    types, _, _ = sentences.word_types()
    for word in types.to_pylist():
        if split_spaces(word) != [word]:
            raise SettingError(f"words must not be empty or contain spaces, got {word!r:.60}")
    return [" ".join(sentence.words) for sentence in sentences]


def _usable(corpus: ParallelCorpus, pairs: WordPairs, max_words: int | None) -> np.ndarray:
    """Return the indices of the sentence pairs that have links and are not too long; warn about the
    others.
    """
    n_words = np.maximum(corpus.source.lengths(), corpus.target.lengths())
    too_long = np.zeros(len(corpus), dtype=bool)
    if max_words is not None:
        too_long = n_words > max_words
    linked = np.zeros(len(corpus), dtype=bool)
    linked[pairs.sentence] = True
    skipped = {
        f"more than {max_words} words on one side": np.flatnonzero(too_long),
        "no word links": np.flatnonzero(~too_long & ~linked),
    }
    skipped = {reason: rows for reason, rows in skipped.items() if len(rows)}
    if skipped:
        counts = {reason: len(rows) for reason, rows in skipped.items()}
        firsts = {reason: f"sentence pair {rows[0] + 1:,}" for reason, rows in skipped.items()}
        reasons = "; ".join(f"{count:,} with {reason}" for reason, count in counts.items())
        fact = f"{sum(counts.values()):,} of {len(corpus):,} sentence pairs left out: {reasons}"
        warnings.warn(SkippedWarning(fact, counts, firsts), stacklevel=3)
    return np.flatnonzero(linked & ~too_long)


class DominantDimensionWarning(CalqueWarning):
    """One dimension dominates the vectors whose cosines a loss compares."""


class LinkCollator:
    """Data collator for `SentenceTransformerTrainer` that accepts word links.

    In a batch with the column `links`, texts are split into words at spaces, and each word is split
    into subwords as in calque: separately, as it would be split after a space. All other batches, such as those of another task
    in a multi-task run, go to the data collator of sentence-transformers.

    Args:
        model: model that is trained.
        options: further arguments of `SentenceTransformerDataCollator`, such as `prompts`, for
            batches without links.

    Raises:
        SettingError: the model is not a Transformer encoder with a fast tokenizer.
    """

    def __init__(self, model: SentenceTransformer, **options: Any):
        self._subwords = word_encoder(model).subwords
        self._of_texts = _text_collator(model, options)

    @property
    def valid_label_columns(self) -> list[str]:
        """Names of the columns that the batch samplers of sentence-transformers use as labels."""
        return self._of_texts.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the inputs of the trainer for the rows of a batch.

        A batch with links consists of the fields of a `WordBatch` for each side, as in
        `source_input_ids`, and of `label`: the links, int64 `[n_links, 3]`. A link consists of the
        index of its source word among all source words of the batch, the index of its target word,
        and an id that is equal for pairs of the same two lower-cased words.
        """
        if not rows or LINKS not in rows[0]:
            return self._of_texts(rows)
        corpus, pairs = _linked_rows(rows)
        batch: dict[str, Any] = {}
        places, covered = [], np.ones(len(pairs), dtype=bool)
        sides = zip(_SIDES, (pairs.source, pairs.target), strict=True)
        for side, positions in sides:
            split = self._subwords.split(getattr(corpus, side))
            words = split.word_offsets[pairs.sentence] + positions
            places.append(words)
            covered &= split.covered[words]
            for name, value in _tensors(split).items():
                batch[f"{side}_{name}"] = value
        if not covered.all():
            fact = "links are ignored if one of their words has no subwords"
            remedy = f"is beyond the limit of {self._subwords.max_length} subwords"
            warnings.warn(UncoveredWordsWarning(f"{fact} or {remedy}"), stacklevel=2)
        links = np.stack([*places, number_word_pairs(corpus, pairs)], axis=1)
        batch["label"] = torch.from_numpy(links[covered])
        if "dataset_name" in rows[0]:
            batch["dataset_name"] = rows[0]["dataset_name"]
        return batch


def _text_collator(model: SentenceTransformer, options: Mapping[str, Any]) -> Any:
    """Return the data collator of sentence-transformers for a model."""
    try:
        from sentence_transformers.sentence_transformer.data_collator import (
            SentenceTransformerDataCollator,
        )
    except ImportError:  # version 5
        from sentence_transformers.data_collator import SentenceTransformerDataCollator
    # Version 5 calls the function `tokenize`.
    preprocess = getattr(model, "preprocess", None) or model.tokenize
    return SentenceTransformerDataCollator(preprocess, **options)


def _linked_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[ParallelCorpus, WordPairs]:
    """Return the sentence pairs and the links of a batch.

    Raises:
        SettingError: the rows do not have two columns of texts.
        InputError: a link refers to a word that does not exist.
    """
    names = [name for name in rows[0] if name not in (LINKS, "dataset_name")]
    if len(names) != 2:
        raise SettingError(
            f"a data set with the column {LINKS} must have two columns of texts, got "
            f"{', '.join(names) or 'none'}; try link_dataset(corpus, links, towards=…)"
        )
    source, target = ([split_spaces(row[name]) for row in rows] for name in names)
    corpus = ParallelCorpus.of(source, target, _SIDES)
    return corpus, WordPairs.of([row[LINKS] for row in rows]).check(corpus)


def _tensors(split: SplitSentences) -> dict[str, Tensor]:
    """Return the sentences of one side as the fields of a `WordBatch`, all in one batch."""
    batch = collate(split, np.arange(len(split)))
    if batch.attention_mask is None:  # sentence-transformers always needs one
        batch = replace(batch, attention_mask=torch.ones_like(batch.input_ids))
    return {name: value for name, value in vars(batch).items() if value is not None}


# -- word vectors ----------------------------------------------------------------------------------
def word_encoder(
    model: SentenceTransformer, *, layer: int = -1, pooling: Pooling = "mean"
) -> HuggingFaceEncoder:
    """Return an encoder that shares the weights of a model, so that calque's tasks can evaluate it
    during training.

    Args:
        layer, pooling: see `HuggingFaceEncoder`.

    Raises:
        SettingError: the model is not a Transformer encoder with a fast tokenizer.
    """
    transformer = _transformer(model)
    if transformer is None or encoder_of(transformer) is not transformer:
        kind = type(model[0] if transformer is None else transformer).__name__
        raise SettingError(
            f"word vectors require a Transformer encoder, got {kind}; for other models, try a loss "
            "on sentences"
        )
    # Version 5 of sentence-transformers keeps its own limit; version 6 sets that of the tokenizer.
    limit = model.max_seq_length
    if limit is not None and limit >= model.tokenizer.model_max_length:
        limit = None
    training = [part for part in transformer.modules() if part.training]
    encoder = HuggingFaceEncoder(
        transformer, model.tokenizer, layer=layer, pooling=pooling, max_length=limit
    )
    for part in training:  # the constructor sets the evaluation mode
        part.training = True
    return encoder


def _transformer(model: nn.Module) -> PreTrainedModel | None:
    """Return the transformers model in a model of sentence-transformers, which may be wrapped for
    distributed training; None if there is none.
    """
    found = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    return next(found, None)


@contextmanager
def _all_layers(model: nn.Module) -> Iterator[None]:
    """Make a model return the hidden states of all layers inside the `with` block."""
    config: Any = getattr(_transformer(model), "config", None)
    before = config.output_hidden_states
    config.output_hidden_states = True
    try:
        yield
    finally:
        config.output_hidden_states = before


# -- losses ----------------------------------------------------------------------------------------
class _DistilledLoss(nn.Module):
    """Base class of losses that can use a frozen copy of the model.

    Attributes:
        model: model that is trained; the trainer replaces it by its wrapper for distributed
            training.
        reference: frozen copy of the model at the construction of the loss, or None.
    """

    citation = """
@misc{oord2019representationlearningcontrastivepredictive,
    title={Representation Learning with Contrastive Predictive Coding},
    author={Aaron van den Oord and Yazhe Li and Oriol Vinyals},
    year={2019},
    eprint={1807.03748},
    archivePrefix={arXiv},
    primaryClass={cs.LG},
    url={https://arxiv.org/abs/1807.03748},
}
"""

    def __init__(self, model: SentenceTransformer, *, needs_reference: bool):
        super().__init__()
        self.model: nn.Module = model
        self.reference: nn.Module | None = None
        if needs_reference:
            self.reference = copy.deepcopy(model).eval().requires_grad_(False)

    def train(self, mode: bool = True) -> _DistilledLoss:
        """Set the mode of the loss and the model; the frozen copy stays in evaluation mode."""
        super().train(mode)
        if self.reference is not None:
            self.reference.eval()
        return self


class WordContrastiveLoss(_DistilledLoss):
    """Contrastive loss over linked words, the same as that of `calque.Contrastive`: the InfoNCE
    loss in both directions, whose negatives are the other linked words of the batch.

    A word vector is pooled from the word's subwords in the output of the model's Transformer. The
    loss requires a data set with the columns `source`, `target` and `links` (see `link_dataset`)
    and `LinkCollator`. It returns its terms by name, which the trainer adds up and logs. In
    distributed training, the negatives are the words of one process.

    Args:
        model: model to train.
        pooling: "mean" of the word's subwords, or the "last" or "first" of them.
        layers: layers in which the loss is computed; default: the layer that the model's own
            pooling reads.
        temperature, same_share, similarity_distillation, sentences: see `calque.Contrastive`.
            `similarity_distillation` above 0 requires the memory for a copy of the model.

    Raises:
        SettingError: a setting is invalid, or the model is not a Transformer encoder with a fast
            tokenizer.

    Example:
        `SentenceTransformerTrainer(model, train_dataset=link_dataset(corpus, links, towards="en"),
        loss=WordContrastiveLoss(model), data_collator=LinkCollator(model))`
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        pooling: Pooling = "mean",
        layers: Sequence[int] | None = None,
        temperature: float = Contrastive.temperature,
        same_share: float = Contrastive.same_share,
        similarity_distillation: float = Contrastive.similarity_distillation,
        sentences: float = Contrastive.sentences,
    ):
        method = Contrastive(
            towards="target",
            layers=layers,
            temperature=temperature,
            same_share=same_share,
            similarity_distillation=similarity_distillation,
            sentences=sentences,
        )
        super().__init__(model, needs_reference=method.needs_reference)
        self._method = method
        self._encoder = word_encoder(model, pooling=pooling)
        self._is_checked = False
        self._layers: tuple[int, ...] | None = None
        if layers is not None:
            self._layers = self._encoder.layer_numbers(layers)

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the terms of the loss.

        Args:
            sentence_features: the source and the target sentences of a batch, see `LinkCollator`.
            labels: links, int64 `[n_links, 3]`.

        Raises:
            SettingError: the batch was not made by `LinkCollator`.
        """
        source, target = _linked_sides(sentence_features)
        if labels is None:
            raise SettingError(f"there are no word links in the batch; try {_LINKED}")
        of_source = self._word_vectors(self.model, source)
        of_target = self._word_vectors(self.model, target)
        if not self._is_checked:
            self._is_checked = True
            _warn_if_dominated(of_target)
        frozen = self._frozen(target)
        terms: dict[str, Tensor] = {}
        # The loss needs float32 even if the model computes in half precision.
        with torch.autocast(labels.device.type, enabled=False):
            for x, y, before in zip(of_source, of_target, frozen, strict=True):
                batch = self._batch(source, target, x, y, before, labels)
                for name, value in self._method.loss(batch).items():
                    terms[name] = terms[name] + value if name in terms else value
        return terms

    def _frozen(self, target: Features) -> Sequence[Tensor | None]:
        """Return the word vectors of the frozen copy in each layer, or None for each layer."""
        if self.reference is None:
            return [None] * len(self._layers or (None,))
        with torch.no_grad():
            return self._word_vectors(self.reference, target)

    def _word_vectors(self, model: nn.Module, side: Features) -> list[Tensor]:
        """Return the word vectors of one side in each layer of the loss, float32 `[W, dim]`."""
        inputs = _model_inputs(side)
        if self._layers is None:
            states = [model(inputs)["token_embeddings"]]
        else:
            with _all_layers(model):
                all_states = model(inputs)["all_layer_embeddings"]
            states = [all_states[layer] for layer in self._layers]
        places: dict[str, Any] = {name: side.get(name) for name in _BATCH}
        batch = WordBatch(**places)
        return [self._encoder.pool(each, batch).float() for each in states]

    def _batch(
        self,
        source: Features,
        target: Features,
        x: Tensor,
        y: Tensor,
        before: Tensor | None,
        links: Tensor,
    ) -> LinkedBatch:
        """Return the vectors of one layer, from the vectors `x` of all source words, `y` of all
        target words, and those of the target words before training.
        """
        of_source, of_target, kinds = links.unbind(1)
        sentences = None
        if self._method.reads_sentences:
            sentences = _sentence_means(x, source), _sentence_means(y, target)
        linked_before = None
        if before is not None:
            linked_before = before.index_select(0, of_target)
        return LinkedBatch(
            source=x.index_select(0, of_source),
            target=y.index_select(0, of_target),
            regularised=y,
            reference=before,
            reference_linked=linked_before,
            kinds=kinds,
            sentences=sentences,
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card of sentence-transformers."""
        method = self._method
        return {
            "pooling": self._encoder.pooling,
            "layers": None if self._layers is None else list(self._layers),
            "temperature": method.temperature,
            "same_share": method.same_share,
            "similarity_distillation": method.similarity_distillation,
            "sentences": method.sentences,
        }


class SentenceContrastiveLoss(_DistilledLoss):
    """Contrastive loss over sentence pairs: the InfoNCE loss in both directions over the model's
    own sentence vectors, whose negatives are the other pairs of the batch (translation ranking,
    Feng et al. 2022, "Language-agnostic BERT sentence embedding", Eqs. 1-2, without their margin).

    The data set has two columns of texts, or the columns of `link_dataset`, which require
    `LinkCollator`. For sentence vectors that are the mean of word vectors, set `sentences` of
    `WordContrastiveLoss`. The loss returns its terms by name, which the trainer adds up and logs.

    Args:
        model: model to train.
        temperature: temperature τ of the softmax.
        same_share: weight, from 0 to 1, of a loss in which all pairs of the same two texts are
            positives of each other. In the other part of the loss, they are negatives.
        similarity_distillation: weight of the divergence between the similarities of texts in the
            second column before and after training; a value above 0 requires the memory for a copy
            of the model.

    Raises:
        SettingError: a setting is out of range.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = Contrastive.temperature,
        same_share: float = Contrastive.same_share,
        similarity_distillation: float = 0.0,
    ):
        check_number("temperature", temperature, above=0)
        check_number("same_share", same_share, least=0, most=1)
        check_number("similarity_distillation", similarity_distillation, least=0)
        super().__init__(model, needs_reference=similarity_distillation > 0)
        self.temperature, self.same_share = temperature, same_share
        self.similarity_distillation = similarity_distillation

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the terms of the loss.

        Args:
            sentence_features: the two texts of each pair.
            labels: ignored.

        Raises:
            SettingError: the data set does not have two columns.
        """
        columns = list(sentence_features)
        if len(columns) != 2:
            raise SettingError(f"the data set must have two columns of texts, got {len(columns)}")
        x, y = (self._sentence_vectors(self.model, column) for column in columns)
        kinds = _number_text_pairs(columns) if self.same_share else None
        with torch.autocast(x.device.type, enabled=False):
            contrast = info_nce(
                normalize(x),
                normalize(y),
                temperature=self.temperature,
                kinds=kinds,
                share=self.same_share,
            )
            terms = {"contrast": contrast}
            if self.reference is not None:
                with torch.no_grad():
                    before = self._sentence_vectors(self.reference, columns[1])
                divergence = similarity_divergence(y, before, temperature=self.temperature)
                terms["similarity"] = self.similarity_distillation * divergence
        return terms

    def _sentence_vectors(self, model: nn.Module, column: Features) -> Tensor:
        """Return the sentence vectors of one column, float32 `[B, dim]`."""
        return model(_model_inputs(column))["sentence_embedding"].float()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card of sentence-transformers."""
        return {
            "temperature": self.temperature,
            "same_share": self.same_share,
            "similarity_distillation": self.similarity_distillation,
        }


def _warn_if_dominated(layers: Sequence[Tensor]) -> None:
    """Warn if one dimension dominates the word vectors of a layer, because cosines then hardly
    depend on the other dimensions.
    """
    for rows in layers:
        share = largest_share(rows.detach().cpu().numpy())
        if share > DOMINANT:
            fact = f"one of {rows.shape[1]} dimensions has {share:.0%} of the squared norm"
            remedy = (
                "calque align standardises such vectors, but this loss does not; try calque align"
            )
            warnings.warn(DominantDimensionWarning(f"{fact}; {remedy}"), stacklevel=4)
            return


def _linked_sides(sentence_features: Iterable[Features]) -> tuple[Features, Features]:
    """Return the features of the source and of the target sentences.

    Raises:
        SettingError: the batch was not made by `LinkCollator`.
    """
    sides = list(sentence_features)
    if len(sides) != 2 or any("word_counts" not in side for side in sides):
        raise SettingError(
            "the loss expects the positions of words, which the data collator of "
            f"sentence-transformers does not compute; give the trainer {_LINKED}"
        )
    return sides[0], sides[1]


def _model_inputs(features: Features) -> dict[str, Any]:
    """Return the features that the model reads, in a dictionary that it may change."""
    if "word_counts" not in features:  # the batch is not from `LinkCollator`
        return dict(features)
    return {name: features[name] for name in ("input_ids", "attention_mask")}


def _sentence_means(words: Tensor, side: Features) -> Tensor:
    """Return the mean of the word vectors of each sentence, without words that have no vector,
    `[B, dim]`.
    """
    # Words without a vector have a zero vector, which does not change the sum.
    has_vector = (side["lengths"] > 0).to(words)[:, None]
    counts = sums(has_vector, side["word_counts"])
    return sums(words, side["word_counts"]) / counts.clamp(min=1)


def _number_text_pairs(columns: Sequence[Features]) -> Tensor:
    """Return an id for each row, int64 `[B]`; rows with equal texts in all columns have equal
    ids.
    """
    texts = []
    for column in columns:
        if "attention_mask" not in column:
            fact = "same_share requires padded batches, but the model packs all texts into one row"
            raise SettingError(f"{fact}; try same_share=0, or the model's unpad_inputs=False")
        padding = column["attention_mask"] == 0
        texts.append(column["input_ids"].masked_fill(padding, -1))
    return torch.unique(torch.cat(texts, dim=1), dim=0, return_inverse=True)[1]
