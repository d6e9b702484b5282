"""Sentence vectors, pooled from word or subword vectors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.folder import read_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.mapped import MappedEncoder
from calque.encoders.per_language import sentences_by_language
from calque.encoders.sentence_settings import (
    PROMPTS_FILE,
    TextSettings,
    parse_text_settings,
    read_text_settings,
)
from calque.encoders.sentence_transformers import (
    UnitLength as UnitLength,
)  # re-exported for the argument `after`
from calque.encoders.sentence_transformers import (
    check_loaded,
    read_recipe,
    write_layer,
    write_modules,
)
from calque.encoders.split import SplitSentences
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.nn.pooling import maxima, means, owners, sums
from calque.offsets import offsets_of
from calque.progress import bar
from calque.segment import split_spaces
from calque.text import Sentence, Sentences

Pooling = Literal["own", "words", "subwords", "cls"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

_BLOCK = 16_384  # number of sentences whose word or subword vectors are in memory at a time


class SentenceVectors(NamedTuple):
    """Sentence vectors, float32 `[n_sentences, dim]`, and a mask of the sentences with a vector;
    other vectors are zero.
    """

    data: np.ndarray
    covered: np.ndarray

    def take(self, rows: np.ndarray) -> SentenceVectors:
        return SentenceVectors(self.data[rows], self.covered[rows])


class SentencePooling(nn.Module):
    """Differentiable pooling of word or subword vectors into sentence vectors.

    In training, the encoder's `forward` turns the output of `split` into vectors, and this module
    pools them. Dense layers in `after` are trainable.

    Args:
        name: name of the pooling method, which is saved with results.
        unit: units whose vectors are pooled: words, or all subwords including special tokens.
        modes: pooling modes from `sentence_transformers.MODES`; the vectors of several modes are
            concatenated.
        after: modules that are applied after the pooling.
        max_length, lower, prompt: settings for subword pooling only: the maximum number of subwords
            in a text (if below the encoder's limit), whether to lower-case texts, and a prompt to
            put before each text.
        truncate: number of dimensions of the final vector that are kept; default: all.
        include_prompt: whether the subwords of the prompt are pooled with the text; False is
            supported only without a prompt.
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
        truncate: int | None = None,
        include_prompt: bool = True,
    ):
        super().__init__()
        self.name, self.unit, self.modes = name, unit, tuple(modes)
        self.after = nn.Sequential(*after)
        self.max_length, self.lower, self.truncate = max_length, lower, truncate
        self.prompt, self.include_prompt = prompt, include_prompt
        self.note = ""  # reason why the encoder's own pooling is not used by default

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        name: Pooling | None = None,
        *,
        prompt: str | None = None,
        task: str | None = None,
    ) -> SentencePooling:
        """Return the pooling called `name` for an encoder.

        Args:
            name: "own" (the modules of the encoder's sentence-transformers folder), "words" (mean
                of word vectors, for any encoder), "subwords" (mean of all subwords including
                special tokens), or "cls" (the first special token). Default: "own" if the folder
                has modules, else "words".
            prompt: prompt to put before each text: the name of a prompt saved in the folder, such
                as "query", or the prompt itself, such as "query: ". Default: the folder's default
                prompt for "own", else none.
            task: "query" or "document", for the maximum length that some folders set for such
                texts.

        Raises:
            SettingError: the encoder does not support this pooling or prompt.
            InputError: a file in the encoder's folder is corrupt.
        """
        if name is not None and name not in POOLINGS:
            raise SettingError(
                f"sentence pooling must be one of {', '.join(POOLINGS)}, got {name!r}"
            )
        pooling = cls._own(encoder, task) if name in (None, "own") else None
        problem = "" if pooling is None else _problem(encoder, pooling)
        if problem and name == "own":
            raise SettingError(f"sentence pooling own: {problem}; use words")
        if pooling is None or problem:
            pooling = cls._other(encoder, name)
            pooling.note = problem
        if prompt is not None:
            pooling = pooling.with_prompt(encoder, cls._prompt_text(encoder, prompt))
        pooling._check_prompt(encoder)
        return pooling

    def with_prompt(self, encoder: Encoder, prompt: str) -> SentencePooling:
        """Return the pooling with another prompt; raise SettingError if it does not support
        prompts.
        """
        changed = copy.copy(self)
        changed.prompt = prompt
        changed._check_prompt(encoder)
        return changed

    def _check_prompt(self, encoder: Encoder) -> None:
        if self.prompt and self.unit == "words":
            fact = (
                "a prompt requires the sentence pooling own, subwords or cls, got words for "
                f"{encoder.name}"
            )
            raise SettingError(f"{fact}; add --sentence-pooling subwords")
        if self.prompt and not self.include_prompt:
            fact = (
                f"{encoder.name}: excluding the prompt {self.prompt!r} from the mean is not "
                "supported"
            )
            raise SettingError(f"{fact}; set the sentence pooling to subwords")

    @classmethod
    def _own(cls, encoder: Encoder, task: str | None) -> SentencePooling | None:
        """Return the pooling in the folder of an encoder, or None if the folder has no modules.

        For an encoder with maps, this is the pooling of its base encoder, which then pools mapped
        subword vectors.
        """
        base = _unmapped(encoder)
        if isinstance(base, SubwordVectors):
            text = text_settings(base)
            after = [UnitLength()] if base.unit else []
            return cls("own", "subwords", after=after, prompt=text.default, truncate=text.truncate)
        if not isinstance(base, HuggingFaceEncoder) or base.modules is None:
            return None
        recipe = read_recipe(base.modules, task=task)
        check_loaded(base.modules, base.model)
        return cls("own", "subwords", **recipe)

    @classmethod
    def _other(cls, encoder: Encoder, name: Pooling | None) -> SentencePooling:
        """Return a pooling that does not depend on the encoder's folder."""
        if name == "own":
            fact = (
                f"sentence pooling own: {encoder.name} has no sentence-transformers pooling modules"
            )
            raise SettingError(f"{fact}; use words, subwords or cls")
        if name in (None, "words"):
            return cls("words", "words")
        base = _unmapped(encoder)
        if not isinstance(base, HuggingFaceEncoder):
            raise SettingError(
                f"sentence pooling {name}: {encoder.name} has no subwords; use words"
            )
        if name == "cls" and not len(base.subwords.prefix):
            fact = (
                f"sentence pooling cls: {type(base.tokenizer).__name__} adds no special token "
                "before a text"
            )
            raise SettingError(f"{fact}; set the pooling to subwords")
        mode = "cls" if name == "cls" else "mean"
        return cls(name, "subwords", (mode,))

    @staticmethod
    def _prompt_text(encoder: Encoder, prompt: str) -> str:
        """Return the text of a prompt that is given by its name or as text."""
        saved = text_settings(encoder).prompts
        if prompt in saved:
            return saved[prompt]
        if saved and prompt.isidentifier():
            fact = f"{encoder.name} has no prompt named {prompt!r}, only {', '.join(saved)}"
            raise SettingError(
                f"{fact}; give one of these names, or the text of the prompt, such as '{prompt}: '"
            )
        return prompt

    @property
    def described(self) -> str:
        """Name of the pooling with its modes, and the prompt if there is one."""
        description: str = self.name
        if self.name == "own":
            description += f" ({'+'.join(self.modes)})"
        if self.prompt:
            description += f", prompt {self.prompt!r}"
        return description

    def split(
        self, encoder: TrainableEncoder | SubwordVectors, sentences: Sentences
    ) -> SplitSentences:
        """Split sentences into subwords; the "words" of the result are the units that this pooling
        combines.

        For subword pooling, the words of a sentence are joined by spaces. This restores the
        original text if the text was split only at spaces (`pretokenized=True`).
        """
        if isinstance(encoder, SubwordVectors):
            return encoder.split(sentences)
        if self.unit == "words":
            return encoder.split(sentences).covered_words()
        assert isinstance(encoder, HuggingFaceEncoder)
        texts = [self.prompt + " ".join(sentence.words) for sentence in sentences]
        return encoder.subwords.split_texts(
            texts, limit=self._limit(encoder), lang=sentences.lang, lower=self.lower
        )

    def save(self, encoder: Encoder, folder: str | PathLike[str]) -> None:
        """Write this pooling as sentence-transformers modules, which `of` loads as "own".

        Args:
            folder: folder that the encoder was saved to, or an empty folder to be used as the
                encoder's `modules`.
        """
        path = Path(folder)
        if self.unit == "words" or not isinstance(encoder, HuggingFaceEncoder):
            raise SettingError(
                f"{encoder.name}: sentence-transformers cannot pool word vectors; use subwords"
            )
        write_modules(
            path,
            dim=encoder.dim,
            max_length=self._limit(encoder),
            tokenizer=encoder.tokenizer,
            modes=self.modes,
            after=self.after,
            lower=self.lower,
            prompt=self.prompt,
            truncate=self.truncate,
        )
        about = read_about(path)
        if about:  # the folder contains the encoder, possibly without its upper layers
            n_layers = encoder.layer if about["cut"] else encoder.n_layers
            write_layer(path, dim=encoder.dim, layer=encoder.layer, n_layers=n_layers)

    def _limit(self, encoder: HuggingFaceEncoder) -> int | None:
        """Return the maximum number of subwords in a text."""
        limits = [limit for limit in (encoder.max_length, self.max_length) if limit is not None]
        return min(limits, default=None)

    def width(self, dim: int) -> int:
        """Return the number of dimensions of the sentence vectors for an encoder with `dim`
        dimensions.
        """
        full = self.full_width(dim)
        return full if self.truncate is None else min(full, self.truncate)

    def full_width(self, dim: int) -> int:
        """Return the number of dimensions of the sentence vectors before they are truncated."""
        dense = [part.out_features for part in self.after if isinstance(part, nn.Linear)]
        return dense[-1] if dense else dim * len(self.modes)

    @property
    def unit_length(self) -> bool:
        """True if all sentence vectors are L2-normalised."""
        if self.truncate is not None or len(self.after) == 0:
            return False
        return isinstance(self.after[-1], UnitLength)

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors of S sentences, `[S, dim]`; a sentence without words or subwords is
        pooled to the zero vector.

        Args:
            rows: word or subword vectors of all sentences, `[W, dim]`.
            lengths: number of vectors of each sentence, int64 `[S]`.
        """
        pooled = [_POOLED[mode](rows, lengths) for mode in self.modes]
        return self.finish(torch.cat(pooled, dim=1))

    def finish(self, pooled: Tensor) -> Tensor:
        """Return the output of the modules after the pooling, truncated to the first dimensions if
        `truncate` is set.
        """
        return self.after(pooled)[:, : self.truncate]


def text_settings(encoder: Encoder) -> TextSettings:
    """Return the prompts and the similarity saved in the sentence-transformers folder of an
    encoder.
    """
    base = _unmapped(encoder)
    if isinstance(base, SubwordVectors):
        return parse_text_settings(base.settings, Path(base.name) / PROMPTS_FILE)
    modules = getattr(base, "modules", None)
    return TextSettings() if modules is None else read_text_settings(modules)


def sentence_vectors(
    encoder: Encoder,
    sentences: Sentences | Sequence[str | Sequence[str] | Sentence],
    pooling: SentencePooling | None = None,
    *,
    progress: bool = False,
) -> SentenceVectors:
    """Return one vector per sentence. Besides the result, only one block of word or subword vectors
    is held in memory.

    Args:
        sentences: `Sentences`, or a list of sentences: strings, which are split at spaces, lists of
            words, or `Sentence` objects. Only `Sentences` and `Sentence` objects have a language,
            which encoders with maps require.
        pooling: pooling of the encoder; default: `SentencePooling.of(encoder)`.

    Raises:
        SettingError: `sentences` is a single string.
    """
    if pooling is None:
        pooling = SentencePooling.of(encoder)
    parts = _by_language(sentences, pooling)
    n = sum(len(part) for part, _ in parts)
    covered = np.zeros(n, dtype=bool)
    data = np.zeros((0, 0), dtype=np.float32)  # the dimension is known after the first block
    with bar(n, unit="sentence", title="encode", show=progress) as counter:
        for text, places in parts:
            for start in range(0, max(1, len(text)), _BLOCK):
                block = _block_vectors(encoder, text[start : start + _BLOCK], pooling)
                rows = places[start : start + _BLOCK]
                if not data.size:
                    data = np.zeros((n, block.data.shape[1]), dtype=block.data.dtype)
                data[rows], covered[rows] = block.data, block.covered
                counter.update(len(rows))
    return SentenceVectors(data, covered)


def _by_language(
    sentences: Sentences | Sequence[str | Sequence[str] | Sentence], pooling: SentencePooling
) -> list[tuple[Sentences, np.ndarray]]:
    """Return the sentences of each language, with the row of each sentence in the result."""
    if isinstance(sentences, Sentences):
        return [(sentences, np.arange(len(sentences)))]
    if isinstance(sentences, str):
        raise SettingError(
            'sentences must be a list of sentences, got one string; try ["' + sentences[:40] + '"]'
        )
    # Subword pooling joins the words with single spaces, so repeated spaces must be kept as empty
    # words.
    keeps_spaces = pooling.unit == "subwords"
    listed = []
    for sentence in sentences:
        if isinstance(sentence, str):
            sentence = sentence.split(" ") if keeps_spaces else split_spaces(sentence)
        listed.append(sentence)
    return sentences_by_language(listed) or [(Sentences.of([]), np.arange(0))]


def _block_vectors(
    encoder: Encoder, sentences: Sentences, pooling: SentencePooling
) -> SentenceVectors:
    """Return the vectors of a block of sentences."""
    if pooling.unit == "words":
        vectors = encoder.encode(sentences)
        filled = np.diff(vectors.offsets) > 0
        if vectors.covered is not None:
            filled = np.diff(offsets_of(vectors.covered)[vectors.offsets]) > 0
        return SentenceVectors(vectors.sentence_means().astype(np.float32), filled)
    base = _unmapped(encoder)
    layers = encoder.read_layers if isinstance(encoder, MappedEncoder) else (base.layer,)

    def mapped(by_layer: Mapping[int, Tensor]) -> Tensor:
        """Map and combine the subword vectors of the base encoder if the encoder has maps."""
        rows = by_layer[layers[-1]]
        if not isinstance(encoder, MappedEncoder):
            return rows.float()
        parts = []
        for layer in layers:
            unmapped = by_layer[layer].float().cpu().numpy()
            parts.append(encoder.map_vectors(unmapped, sentences.lang, layer))
        vectors = encoder.combined(parts)
        return torch.from_numpy(np.ascontiguousarray(vectors)).to(rows.device)

    if isinstance(base, SubwordVectors):
        means, filled = base.text_means(sentences, pooling.prompt)
        # Maps are affine, so the mapped mean is the mean of the mapped vectors.
        with torch.inference_mode():
            data = pooling.finish(mapped({layers[-1]: means})).numpy()
        return SentenceVectors(data * filled[:, None], filled)
    assert isinstance(base, HuggingFaceEncoder)
    split = pooling.split(base, sentences)
    pooling.to(base.device).eval()
    counts = np.diff(split.word_offsets)  # number of subwords of each sentence
    data = np.zeros((len(split), pooling.width(encoder.dim)), dtype=np.float32)
    with base.reading(layers) as read, torch.inference_mode():
        for numbers in token_batches(split.lengths, base.budget):
            rows = mapped(read(collate(split, numbers)))
            lengths = torch.from_numpy(counts[numbers]).to(rows.device)
            data[numbers] = pooling(rows, lengths).cpu().numpy()
    return SentenceVectors(data * (counts > 0)[:, None], counts > 0)


def _unmapped(encoder: Encoder) -> Any:
    """Return the base encoder of an encoder with maps, or the encoder itself."""
    return encoder.base if isinstance(encoder, MappedEncoder) else encoder


def _problem(encoder: Encoder, pooling: SentencePooling) -> str:
    """Return why an encoder cannot use the pooling of its folder, or an empty string if it can."""
    base = _unmapped(encoder)
    if isinstance(encoder, MappedEncoder) and encoder.read_layers != (base.layer,):
        layers = ", ".join(map(str, encoder.layers))
        return (
            f"{encoder.name} returns the mapped layers {layers}, but the pooling of {base.name} "
            f"reads layer {base.layer}"
        )
    standard = getattr(base, "standard", {})
    if base.layer in standard and any(isinstance(part, nn.Linear) for part in pooling.after):
        return (
            f"the word vectors of {encoder.name} are standardised, which its dense layers after "
            "the pooling do not allow"
        )
    return ""


def _picked(rows: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
    """Return one vector per sentence, at the index given in `places`; a sentence without vectors
    gets a zero vector.
    """
    if not len(rows):
        return sums(rows, lengths)  # zero vectors
    is_filled = (lengths > 0).to(rows)[:, None]
    return rows[places.clamp(min=0, max=len(rows) - 1)] * is_filled


def _weighted(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean of each sentence's vectors, weighted by their positions, which are counted
    from 1.
    """
    firsts = lengths.cumsum(0) - lengths
    numbers = torch.arange(1, len(rows) + 1, device=rows.device)
    positions = (numbers - firsts[owners(lengths, rows.device)]).to(rows)
    total = (lengths * (lengths + 1) / 2).clamp(min=1)  # 1 + 2 + … + length
    return sums(rows * positions[:, None], lengths) / total.to(rows)[:, None]


def _first(rows: Tensor, lengths: Tensor) -> Tensor:
    return _picked(rows, lengths.cumsum(0) - lengths, lengths)


def _last(rows: Tensor, lengths: Tensor) -> Tensor:
    return _picked(rows, lengths.cumsum(0) - 1, lengths)


def _divided_by_root(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the sum of each sentence's vectors, divided by the square root of their number."""
    roots = lengths.clamp(min=1).to(rows.device, rows.dtype).sqrt()
    return sums(rows, lengths) / roots[:, None]


#: functions that compute a sentence vector from rows `[W, dim]` and lengths `[S]`, by pooling mode
_POOLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "lasttoken": _last,
    "max": maxima,
    "mean": means,
    "mean_sqrt_len_tokens": _divided_by_root,
    "weightedmean": _weighted,
}
