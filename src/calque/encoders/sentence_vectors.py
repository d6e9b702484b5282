"""One vector of a sentence: of its words or of all its subwords, for evaluation and for training alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.folder import read_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.sentence_transformers import UnitLength as UnitLength  # of what follows a pooling
from calque.encoders.sentence_transformers import fetched_modules, read_recipe, write_layer, write_modules
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.nn.pooling import maxima, means, owners, sums
from calque.offsets import offsets_of
from calque.progress import bar
from calque.text import Sentences

Pooling = Literal["own", "words", "subwords", "cls"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

_BLOCK = 16_384  # sentences that are encoded before their words or subwords are forgotten


class SentenceVectors(NamedTuple):
    """Vectors of sentences.

    Attributes:
        data: float32 `[n_sentences, dim]`.
        covered: bool `[n_sentences]`: False where no word of it has a vector; the row is zero there.
    """

    data: np.ndarray
    covered: np.ndarray

    def take(self, rows: np.ndarray) -> SentenceVectors:
        """Return the vectors of some sentences."""
        return SentenceVectors(self.data[rows], self.covered[rows])


class SentencePooling(nn.Module):
    """From the rows of sentences to a vector of each; differentiable.

    A method that trains sentence vectors takes what `split` gives through the encoder's `forward`, and the rows of that through
    this module, whose dense layers, if there are any, are parameters like others.

    Args:
        name: which pooling it is, for the record.
        unit: what the rows are: words, or all subwords with the special ones.
        modes: how rows become one vector, of `sentence_transformers.MODES`; of several the vectors are concatenated.
        after: modules that the vector then goes through.
        max_length: most subwords of a text, where it is less than the encoder's; of subwords alone.
        lower: lower-case texts first; of subwords alone.
        prompt: what stands before each text; of subwords alone.
    """

    def __init__(
        self,
        name: Pooling,
        unit: Literal["words", "subwords"],
        modes: Sequence[str] = ("mean",),
        *,
        after: Sequence[nn.Module] = (),
        max_length: int | None = None,
        lower: bool = False,
        prompt: str = "",
    ):
        super().__init__()
        self.name, self.unit, self.modes = name, unit, tuple(modes)
        self.after = nn.Sequential(*after)
        self.max_length, self.lower, self.prompt = max_length, lower, prompt

    @classmethod
    def of(cls, encoder: Encoder, name: Pooling | None = None) -> SentencePooling:
        """Return the pooling of this name for an encoder.

        Args:
            name: "own", what the encoder's sentence-transformers folder says: pooling, dense layers and length. "words": the
                mean of the word vectors, which every encoder has. "subwords": the mean of all subwords, special ones
                included. "cls": the first special subword. None: "own" where the folder says something, else "words".

        Raises:
            SettingError: the encoder has no such pooling.
            InputError: a file of its folder is damaged.
        """
        if name is not None and name not in POOLINGS:
            raise SettingError(f"sentence pooling {name!r}, expected one of {', '.join(POOLINGS)}")
        if isinstance(encoder, SubwordVectors) and name in (None, "own"):
            return cls("own", "subwords", after=[UnitLength()] if encoder.unit else [])
        folder = modules_folder(encoder) if name in (None, "own") else None
        if folder is not None:
            return cls("own", "subwords", **read_recipe(folder))
        if name == "own":
            raise SettingError(
                f"{encoder.name} has no pooling of its own, which a sentence-transformers folder has: take words, subwords or cls"
            )
        if name in ("subwords", "cls"):
            if not isinstance(encoder, HuggingFaceEncoder):
                raise SettingError(f"sentence pooling {name}: {encoder.name} has no subwords; take words")
            if name == "cls" and not len(encoder.subwords.prefix):
                tokenizer = type(encoder.tokenizer).__name__
                raise SettingError(
                    f"sentence pooling cls: {tokenizer} puts no special subword before a text; take subwords"
                )
            return cls(name, "subwords", ("cls",) if name == "cls" else ("mean",))
        return cls("words", "words")

    def split(self, encoder: TrainableEncoder | SubwordVectors, sentences: Sentences) -> SplitSentences:
        """The sentences as the encoder reads them, whose words are this pooling's rows.

        Args:
            encoder: the one that this pooling was made for.
            sentences: their words are joined by spaces where subwords are the rows: read as text that is divided at spaces
                alone (`pretokenized=True`), they are the text itself.
        """
        if isinstance(encoder, SubwordVectors):
            return encoder.split(sentences)
        if self.unit == "words":
            return encoder.split(sentences).covered_words()
        assert isinstance(encoder, HuggingFaceEncoder)
        texts = [self.prompt + " ".join(sentence.words) for sentence in sentences]
        texts = [text.lower() for text in texts] if self.lower else texts
        return encoder.subwords.split_texts(texts, limit=self._limit(encoder), lang=sentences.lang)

    def save(self, encoder: Encoder, folder: str | PathLike[str]) -> None:
        """Write this pooling into a folder as the encoder's own: `of` gives it again, and so does sentence-transformers.

        Args:
            encoder: the one that this pooling was made for.
            folder: where its `save` has written it; or an empty one, for `HuggingFaceEncoder.modules`.

        Raises:
            SettingError: a pooling that sentence-transformers has not.
        """
        path = Path(folder)
        if self.unit == "words" or not isinstance(encoder, HuggingFaceEncoder):
            raise SettingError(
                f"{encoder.name}: the mean of word vectors is calque's alone; sentence-transformers has subwords"
            )
        write_modules(
            path, dim=encoder.dim, max_length=self._limit(encoder), tokenizer=encoder.tokenizer, modes=self.modes,
            after=self.after, lower=self.lower, prompt=self.prompt,
        )  # fmt: skip
        if about := read_about(path):
            n_layers = encoder.layer if about["cut"] else encoder.n_layers
            write_layer(path, dim=encoder.dim, layer=encoder.layer, n_layers=n_layers)

    def _limit(self, encoder: HuggingFaceEncoder) -> int | None:
        """Return the most subwords of a text."""
        limits = [limit for limit in (encoder.max_length, self.max_length) if limit is not None]
        return min(limits, default=None)

    def width(self, dim: int) -> int:
        """Return the number of dimensions of the vectors that it gives for an encoder of `dim`."""
        dense = [part.out_features for part in self.after if isinstance(part, nn.Linear)]
        return dense[-1] if dense else dim * len(self.modes)

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return vectors `[S, dim]` of S sentences, zero (before what comes after) for one without rows.

        Args:
            rows: `[W, dim]`, the rows of all sentences.
            lengths: int64 `[S]`, how many each has.
        """
        return self.after(torch.cat([_REDUCED[mode](rows, lengths) for mode in self.modes], dim=1))


def modules_folder(encoder: Encoder) -> Path | None:
    """Return where an encoder's modules of sentence-transformers are, on the hub included; None if it has none."""
    if not isinstance(encoder, HuggingFaceEncoder):
        return None
    return encoder.modules or fetched_modules(str(getattr(encoder.model.config, "name_or_path", "")))


def sentence_vectors(
    encoder: Encoder, sentences: Sentences, pooling: SentencePooling, *, progress: bool = False
) -> SentenceVectors:
    """Return a vector of each sentence; memory is the result and what a block of sentences needs."""
    data, covered = np.zeros((0, 0), dtype=np.float32), np.zeros(len(sentences), dtype=bool)
    with bar(len(sentences), unit="sentence", title="encode", show=progress) as shown:
        for start in range(0, max(1, len(sentences)), _BLOCK):
            part = sentences[start : start + _BLOCK]
            found = _of_part(encoder, part, pooling)
            if not start:
                data = np.empty((len(sentences), found.data.shape[1]), dtype=found.data.dtype)
            data[start : start + len(part)], covered[start : start + len(part)] = found
            shown.update(len(part))
    return SentenceVectors(data, covered)


def _of_part(encoder: Encoder, sentences: Sentences, pooling: SentencePooling) -> SentenceVectors:
    """Return vectors of a block of sentences."""
    if pooling.unit == "words":
        vectors = encoder.encode(sentences)
        covered = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered
        return SentenceVectors(
            vectors.sentence_means().astype(np.float32), np.diff(offsets_of(covered)[vectors.offsets]) > 0
        )
    if isinstance(encoder, SubwordVectors):
        return SentenceVectors(*encoder.sentence_vectors(sentences))
    assert isinstance(encoder, HuggingFaceEncoder)
    split = pooling.split(encoder, sentences)
    pooling.to(encoder.device).eval()
    counts = np.diff(split.word_offsets)
    data = np.zeros((len(split), pooling.width(encoder.dim)), dtype=np.float32)
    with encoder.reading([encoder.layer]) as read, torch.inference_mode():
        for numbers in token_batches(split.lengths, encoder.budget):
            rows = read(collate(split, numbers))[encoder.layer]
            lengths = torch.from_numpy(counts[numbers]).to(rows.device)
            data[numbers] = pooling(rows.float(), lengths).cpu().numpy()
    return SentenceVectors(data * (counts > 0)[:, None], counts > 0)


# -- what rows become --------------------------------------------------------------------------------------------------
def _places(lengths: Tensor) -> Tensor:
    """Return the row of each sentence's first word, int64 `[S]`."""
    return lengths.cumsum(0) - lengths


def _picked(rows: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
    """Return one row of each sentence, zero for those that have none."""
    filled = (lengths > 0).to(rows)[:, None]
    return rows[places.clamp(min=0, max=max(0, len(rows) - 1))] * filled if len(rows) else sums(rows, lengths)


def _weighted(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean in which row k of a sentence, from 1, counts k times."""
    lengths = lengths.to(rows.device)
    weights = torch.arange(1, len(rows) + 1, device=rows.device) - _places(lengths)[owners(lengths, rows.device)]
    total = (lengths * (lengths + 1) / 2).clamp(min=1)
    return sums(rows * weights.to(rows)[:, None], lengths) / total.to(rows)[:, None]


_REDUCED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda rows, lengths: _picked(rows, _places(lengths), lengths),
    "lasttoken": lambda rows, lengths: _picked(rows, lengths.cumsum(0) - 1, lengths),
    "max": maxima,
    "mean": means,
    "mean_sqrt_len_tokens": lambda rows, lengths: (
        sums(rows, lengths) / lengths.clamp(min=1).to(rows.device, rows.dtype).sqrt()[:, None]
    ),
    "weightedmean": _weighted,
}
