"""Static subword vectors, which are averaged into word and sentence vectors."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calque.encoders.base import Encoder
from calque.encoders.folder import read_about, saving, write_about
from calque.encoders.sentence_transformers import write_list
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords, stable_text
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.storage import json_text
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings

_MODEL = "model.safetensors"
_WEIGHT = "embedding.weight"  # name of the vectors in the StaticEmbedding module of sentence-transformers


class SubwordVectors(Encoder):
    """Encoder with one static vector for each subword of a tokenizer (as in model2vec, Tulkens & van Dongen 2024).

    A word vector is the mean of the word's subword vectors. A sentence vector is the mean of all its subword vectors, excluding
    special tokens. sentence-transformers loads a saved encoder as `StaticEmbedding` and computes equal sentence vectors if the
    tokenizer splits text at spaces, as in BERT. Byte-level tokenizers include the space in subwords, so a space is put
    before each text. Special tokens in a text, such as [SEP], are split like ordinary words, unlike in sentence-transformers.

    Args:
        tokenizer: fast `transformers` tokenizer.
        matrix: subword vectors, already multiplied by the subword weights, float32 `[n_subwords, dim]`.
        unit: whether to L2-normalise sentence vectors.
        name: name shown in reports.
    """

    def __init__(self, tokenizer: Any, matrix: Tensor, *, unit: bool = True, name: str = "static"):
        if len(matrix) < len(tokenizer):
            raise SettingError(f"matrix must have one row per subword ({len(tokenizer)}), got {len(matrix)} rows")
        self.subwords = Subwords(tokenizer, vocabulary=len(matrix), special=False)
        if self.subwords.needs_space:
            self.subwords = Subwords(_after_space(tokenizer), vocabulary=len(matrix), special=False)
        self.model = nn.Embedding.from_pretrained(matrix.float().contiguous(), freeze=False)
        self.dim, self.unit, self.name = matrix.shape[1], unit, name

    def split(self, sentences: Sentences) -> SplitSentences:
        """Split sentences into subwords without special tokens; each subword is a "word" of the result."""
        words = self.subwords.split(sentences)
        starts = (np.arange(len(words.ids)) - np.repeat(words.offsets[:-1], words.lengths)).astype(np.int32)
        return replace(words, word_offsets=words.offsets, word_starts=starts, word_lengths=np.ones_like(words.ids))

    @torch.inference_mode()
    def _means(self, ids: np.ndarray, offsets: np.ndarray) -> Tensor:
        """Return the mean of the subword vectors between consecutive offsets, `[n, dim]`; a mean over no subwords is zero."""
        bags = torch.from_numpy(offsets[:-1].astype(np.int32))
        return nn.functional.embedding_bag(torch.from_numpy(ids), self.model.weight, bags, mode="mean")

    def encode(self, sentences: Iterable[Sentence], *, progress: bool = False) -> Embeddings:
        split = self.subwords.split(sentences)
        means = self._means(split.ids, offsets_of(split.word_lengths)).numpy()
        return Embeddings(means, split.word_offsets, split.covered)

    @torch.inference_mode()
    def sentence_vectors(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """Return sentence vectors, float32 `[n, dim]`, and a mask of the sentences with subwords, bool `[n]`."""
        split = self.subwords.split(sentences)
        found = self._means(split.ids, split.offsets)
        found = nn.functional.normalize(found, dim=1, out=found) if self.unit else found
        return found.numpy(), split.lengths > 0

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(stable_text(self.subwords.backend).encode(), digest_size=16)
        digest.update(json_text(self.unit).encode() + self.model.weight.detach().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder that `load_encoder` and sentence-transformers can load."""
        with saving(folder, self) as path:
            self.subwords.tokenizer.save_pretrained(path)
            save_file({_WEIGHT: self.model.weight.detach().contiguous()}, path / _MODEL)
            kinds = [("", "StaticEmbedding"), *([("1_Normalize", "Normalize")] if self.unit else [])]
            write_list(path, kinds)
            write_about(path, "subwords", {"name": self.name, "unit": self.unit})

    @classmethod
    def open(cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Load a folder that `save` wrote; raise SettingError for any option except `device`, which is ignored."""
        from transformers import PreTrainedTokenizerFast

        for option in options.keys() - {"device"}:  # the table stays on the CPU, like static word vectors
            raise SettingError(f"{option} does not apply to static subword vectors ({folder})")
        path, about = Path(folder), read_about(folder) if about is None else about
        try:
            matrix = load_file(path / _MODEL)[_WEIGHT]
            if not matrix.isfinite().all():
                raise ValueError("the vectors are not finite; is the file corrupt?")
            tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
            return cls(tokenizer, matrix, unit=about["unit"], name=about["name"])
        except Exception as error:  # corrupt files raise exceptions from several libraries
            raise InputError(f"not a folder with static subword vectors ({error!s:.200})", path=path) from error


def _after_space(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer that puts a space before each text and replaces several spaces with one."""
    from tokenizers import Regex, normalizers

    copied = copy.deepcopy(tokenizer)
    spaces = [normalizers.Replace(Regex("[ \t]+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
    before = copied.backend_tokenizer.normalizer
    copied.backend_tokenizer.normalizer = normalizers.Sequence([*([before] if before else []), *spaces])
    return copied
