"""Static subword vectors, which are averaged into word and sentence vectors."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.normalizers import Normalizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from calque.encoders.base import Encoder
from calque.encoders.checkpoint import read_tensors
from calque.encoders.folder import read_about, saving, write_about
from calque.encoders.sentence_folders import (
    TOKENIZER_FILE,
    model_folder,
    module_kind,
    modules_of,
    static_folder,
)
from calque.encoders.sentence_settings import PROMPTS_FILE, read_object, read_text_settings
from calque.encoders.sentence_transformers import write_list
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords, flat_ids, stable_text, without_surrogates
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.storage import JsonObject, json_text
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings

_MODEL = "model.safetensors"
# name of the vectors in the StaticEmbedding module of sentence-transformers
_WEIGHT = "embedding.weight"


class SubwordVectors(Encoder):
    """Encoder with one static vector for each subword of a tokenizer (as in model2vec, Tulkens &
    van Dongen 2024).

    A word vector is the mean of the word's subword vectors. A sentence vector is the mean of all
    its subword vectors, excluding special tokens. sentence-transformers loads a saved encoder as
    `StaticEmbedding` and computes equal sentence vectors if the tokenizer splits text at spaces, as
    in BERT. Byte-level tokenizers include the space in subwords, so a space is put before each
    text. Special tokens in a text, such as [SEP], are split like ordinary words, unlike in
    sentence-transformers.

    Models from other programs differ in one point: for a sentence vector, the tokenizer `texts`
    splits the whole text, as in sentence-transformers, instead of each word separately.

    Args:
        tokenizer: fast `transformers` tokenizer.
        matrix: subword vectors, already multiplied by the subword weights, float32 `[n_subwords,
            dim]`.
        unit: whether to L2-normalise sentence vectors.
        name: name shown in reports.
        texts: tokenizer for whole texts, whose truncation is applied; default: each text is first
            split into words.
        settings: content of `config_sentence_transformers.json`, such as prompts; it is saved with
            the encoder.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        matrix: Tensor,
        *,
        unit: bool = True,
        name: str = "static",
        texts: Tokenizer | None = None,
        settings: Mapping[str, object] | None = None,
    ):
        if len(matrix) < len(tokenizer):
            raise SettingError(
                f"matrix must have one row per subword ({len(tokenizer)}), got {len(matrix)} rows"
            )
        self.subwords = Subwords(tokenizer, vocabulary=len(matrix), special=False)
        if self.subwords.needs_space:
            self.subwords = Subwords(_after_space(tokenizer), vocabulary=len(matrix), special=False)
        self.model = nn.Embedding.from_pretrained(matrix.float().contiguous(), freeze=False)
        self.dim = matrix.shape[1]
        self.unit, self.name = unit, name
        self.texts, self.settings = texts, dict(settings or {})

    def split(self, sentences: Sentences) -> SplitSentences:
        """Split sentences into subwords without special tokens; each subword is a "word" of the
        result.
        """
        words = self.subwords.split(sentences)
        return words.each_subword()

    @torch.inference_mode()
    def _means(self, ids: np.ndarray, offsets: np.ndarray) -> Tensor:
        """Return the mean of the subword vectors between consecutive offsets, `[n, dim]`; a mean
        over no subwords is zero.
        """
        bags = torch.from_numpy(offsets[:-1].astype(np.int32))
        return nn.functional.embedding_bag(
            torch.from_numpy(ids), self.model.weight, bags, mode="mean"
        )

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        split = self.subwords.split(sentences)
        means = self._means(split.ids, offsets_of(split.word_lengths)).numpy()
        return Embeddings(means, split.word_offsets, split.covered)

    @torch.inference_mode()
    def text_means(self, sentences: Sentences, prompt: str = "") -> tuple[Tensor, np.ndarray]:
        """Return the mean subword vector of each text, `[n, dim]`, and a mask of the texts with
        subwords, bool `[n]`.

        Args:
            prompt: prompt to put before each text.
        """
        if self.texts is None:
            if prompt:
                words = [split_spaces(prompt + " ".join(sentence.words)) for sentence in sentences]
                sentences = Sentences.of(words, sentences.lang)
            split = self.subwords.split(sentences)
            return self._means(split.ids, split.offsets), split.lengths > 0
        texts = [without_surrogates(prompt + " ".join(sentence.words)) for sentence in sentences]
        encodings = self.texts.encode_batch(texts, add_special_tokens=False)
        ids, lengths = flat_ids(encodings)
        return self._means(ids, offsets_of(lengths)), lengths > 0

    def sentence_vectors(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """Return sentence vectors, float32 `[n, dim]`, and a mask of the sentences with subwords,
        bool `[n]`.
        """
        means, filled = self.text_means(sentences)
        if self.unit:
            means = nn.functional.normalize(means, dim=1)
        return means.numpy(), filled

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
            modules = [("", "StaticEmbedding")]
            if self.unit:
                modules.append(("1_Normalize", "Normalize"))
            write_list(path, modules)
            about = {"name": self.name, "unit": self.unit}
            if self.texts is not None:
                self.texts.save(str(path / TOKENIZER_FILE))
                about["whole_texts"] = True
            if self.settings:
                text = json_text(self.settings, undefined="refuse", indent=2) + "\n"
                (path / PROMPTS_FILE).write_text(text, encoding="utf-8")
            write_about(path, "subwords", about)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: JsonObject | None = None, **options: object
    ) -> Self:
        """Load a folder that `save`, sentence-transformers (`StaticEmbedding`) or model2vec wrote,
        or such a model on the hub.

        Raises:
            SettingError: an option other than `device`, which is ignored, or a module of the folder
                is not supported.
            InputError: a file is missing or corrupt.
        """
        # The table stays on the CPU, like static word vectors.
        for option in options.keys() - {"device"}:
            raise SettingError(f"{option} does not apply to static subword vectors ({folder})")
        about = read_about(folder) if about is None else about
        root = static_folder(folder) or Path(folder)
        settings = read_object(root / PROMPTS_FILE, {})
        read_text_settings(root)  # refuses settings that are not supported
        unit = about["unit"] if "unit" in about else _normalised(root)
        try:
            inner = model_folder(root)
            matrix = _matrix(inner)
            whole = about.get("whole_texts", "kind" not in about)
            if "kind" in about:
                tokenizer = PreTrainedTokenizerFast.from_pretrained(root)
            else:
                tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(inner / TOKENIZER_FILE))
            texts = Tokenizer.from_file(str(inner / TOKENIZER_FILE)) if whole else None
            if texts is not None:
                texts.no_padding()
            name = about.get("name")
            if not name:
                name = Path(folder).resolve().name if Path(folder).is_dir() else folder
            return cls(tokenizer, matrix, unit=unit, name=str(name), texts=texts, settings=settings)
        except SettingError:
            raise
        except Exception as error:  # corrupt files raise exceptions from several libraries
            raise InputError(
                f"not a folder with static subword vectors ({error!s:.200})", path=root
            ) from error


def _normalised(folder: Path) -> bool:
    """Return whether a folder from another program normalises sentence vectors; raise SettingError
    for other modules.
    """
    modules = modules_of(folder)
    if not modules:  # model2vec without the modules of sentence-transformers
        return bool(read_object(folder / "config.json", {}).get("normalize", False))
    normalised = False
    for module in modules[1:]:
        class_name = module_kind(module)
        if class_name not in ("Normalize", "Dropout"):
            fact = (
                f"the module {class_name or module.get('type')} after StaticEmbedding is not "
                "supported, only Normalize"
            )
            raise SettingError(f"{folder}: {fact}")
        normalised |= class_name == "Normalize"
    return normalised


def _matrix(folder: Path) -> Tensor:
    """Read one vector for each subword. model2vec may store fewer vectors, with an index and a
    weight for each subword.
    """
    tensors = read_tensors(folder, _MODEL, "pytorch_model.bin")
    matrix = (tensors[_WEIGHT] if _WEIGHT in tensors else tensors["embeddings"]).float()
    if "mapping" in tensors:
        matrix = matrix[tensors["mapping"].long()]
    if "weights" in tensors:
        matrix = matrix * tensors["weights"].float()[:, None]
    if not matrix.isfinite().all():
        raise ValueError("the vectors are not finite; is the file corrupt?")
    return matrix


def _after_space(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Return a copy of a tokenizer that puts a space before each text and replaces several spaces
    with one.
    """
    copied = copy.deepcopy(tokenizer)
    steps: list[Normalizer] = [
        normalizers.Replace(Regex("[ \t]+"), " "),
        normalizers.Strip(),
        normalizers.Prepend(" "),
    ]
    before = copied.backend_tokenizer.normalizer
    if before:
        steps.insert(0, before)
    copied.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    return copied
