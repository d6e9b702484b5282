"""The two language models that can be pretrained: what differs between their runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from calque.errors import InputError, SettingError
from calque.linking import Say, digest_of
from calque.pretraining.base import LanguageModel
from calque.pretraining.bidirectional import BiLanguageModel
from calque.pretraining.masked import MaskedLanguageModel, train_tokenizer

if TYPE_CHECKING:
    from calque.pretraining.blocks import Blocks
    from calque.text import Sentences

M = TypeVar("M", bound=LanguageModel)


class LanguageModelRun(ABC, Generic[M]):
    """A language model, its training and what is saved of it.

    Attributes:
        method: the language model.
        unit: what its text is counted in.
    """

    method: M
    unit: str

    def training_part(self, corpora: dict[str, Sentences]) -> dict[str, Sentences]:
        """The text to train on; the rest is for `figures`."""
        return corpora

    @abstractmethod
    def train(
        self, corpora: Mapping[str, Sentences], folder: Path, *, say: Say, checkpoint_every: int, progress: bool
    ) -> None:
        """Train; whatever a stopped run needs to go on is kept in the folder."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int: ...

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many numbers the encoder has."""

    @abstractmethod
    def size(self, sentences: Sentences, blocks: Blocks) -> int:
        """Of a language's text, in `unit`."""

    def figures(self, name: str) -> dict[str, Any]:
        """For the record, what was measured of the model called `name`."""
        return {}

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @abstractmethod
    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Lines of the model card's front matter, and those that say what the model is."""


class Bert(LanguageModelRun[MaskedLanguageModel]):
    """A BERT, trained by masked language modelling.

    Args:
        vocabulary: subwords of the tokenizer.
        tokenizer: folder of one to use instead of training one.
        start: folder, or `mini`, of a BERT to go on from, with its tokenizer.
        half: write float16.
        options: of `MaskedLanguageModel`.
    """

    unit = "subwords"

    def __init__(
        self,
        *,
        vocabulary: int = 16_000,
        tokenizer: str | Path | None = None,
        start: str | Path | None = None,
        half: bool = False,
        **options: Any,
    ):
        from calque.encoders.loading import BUNDLED

        if start is not None:
            start = tokenizer = str(BUNDLED.get(str(start), start))
            if not (Path(start) / "config.json").exists():
                raise InputError("no config.json in this folder, expected a BERT to continue from", path=start)
        self.method = MaskedLanguageModel(**options, start=start)
        self._vocabulary, self._tokenizer, self._half = vocabulary, tokenizer, half

    def train(
        self, corpora: Mapping[str, Sentences], folder: Path, *, say: Say, checkpoint_every: int, progress: bool
    ) -> None:
        if self._tokenizer is not None:
            tokenizer = _open_tokenizer(self._tokenizer)
        else:
            how = {"size": self._vocabulary, "alpha": self.method.alpha, "seed": self.method.seed}
            tokenizer = _own_tokenizer(corpora, folder / "tokenizer", how, say)
        self._encoder = self.method.train(
            corpora, tokenizer, folder=folder, checkpoint_every=checkpoint_every, progress=progress
        )

    @property
    def vocabulary_size(self) -> int:
        return len(self._encoder.tokenizer)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.method.model.parameters())

    def size(self, sentences: Sentences, blocks: Blocks) -> int:
        return len(blocks.ids)

    def save(self, folder: Path) -> None:
        import torch

        from calque.encoders.checkpoint import save_model
        from calque.encoders.folder import read_about, write_about

        self._encoder.save(folder)
        self.method.model.to(dtype=torch.float16 if self._half else torch.float32)  # type: ignore[call-arg]
        save_model(self.method.model, folder)  # with its head, instead of the bare encoder
        write_about(folder, "huggingface", read_about(folder) | {"max_length": None})

    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        settings = record["settings"]
        front = ["library_name: transformers", "pipeline_tag: fill-mask", "language:",
                 *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque"]  # fmt: skip
        return front, [
            f"# A BERT of {settings['num_hidden_layers']} layers × {settings['hidden_size']}", "",
            f"Trained from scratch by masked language modelling with calque {record['calque']}: {record['updates']:,} "
            f"updates of {settings['batch']} blocks of up to {settings['length']} subwords; {record['parameters']:,} "
            f"parameters, {record['vocabulary']:,} subwords; mean loss {record['last_loss']:.3f} at the end.", "",
        ]  # fmt: skip


class Elmo(LanguageModelRun[BiLanguageModel]):
    """An ELMo, and beside it what predicts words.

    Args:
        held_out: sentences of each language, drawn evenly from its text, that are not trained on but give the perplexity.
            Of these, those that stand in the rest of the text word for word are left out, and those without words.
        options: of `BiLanguageModel`.

    Raises:
        MissingExtraError: h5py is not installed.
    """

    unit = "words"

    def __init__(self, *, held_out: int = 0, **options: Any):
        from calque.encoders.elmo_files import h5py_module

        h5py_module()
        self.method = BiLanguageModel(**options)
        self._held_out, self._aside = held_out, list[Any]()

    def training_part(self, corpora: dict[str, Sentences]) -> dict[str, Sentences]:
        if not self._held_out:
            return corpora
        parts = {lang: _hold_out(text, self._held_out) for lang, text in corpora.items()}
        self._aside = [aside for _, aside in parts.values()]
        return {lang: rest for lang, (rest, _) in parts.items()}

    def train(
        self, corpora: Mapping[str, Sentences], folder: Path, *, say: Say, checkpoint_every: int, progress: bool
    ) -> None:
        self.method.train(corpora, folder=folder, checkpoint_every=checkpoint_every, progress=progress)

    @property
    def vocabulary_size(self) -> int:
        return len(self.method.model.vocabulary)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.method.model.network.parameters())

    def size(self, sentences: Sentences, blocks: Blocks) -> int:
        return int(sentences.lengths().sum())

    def figures(self, name: str) -> dict[str, Any]:
        """How well the words of the texts held out are predicted."""
        from calque.tasks.perplexity import word_perplexity

        return {
            "scores": [
                score.to_dict()
                for text in self._aside
                for score in word_perplexity(
                    self.method.model, text, data=f"{len(text):,} sentences held out", name=name
                )
            ]
        }

    def save(self, folder: Path) -> None:
        self.method.model.save(folder)

    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        settings, lstm = record["settings"], record["settings"]["options"]["lstm"]
        front = ["language:", *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque", "- elmo"]
        return front, [
            f"# An ELMo of {lstm['n_layers']} layers, {lstm['dim']} projected to {lstm['projection_dim']}", "",
            f"Trained from scratch as a bidirectional language model with calque {record['calque']}: "
            f"{record['updates']:,} updates of {settings['batch']} sentences; {record['parameters']:,} parameters without "
            f"the softmax over {record['vocabulary']:,} words; mean loss {record['last_loss']:.3f} at the end.", "",
            "`options.json` and `weights.hdf5` are in the format of bilm-tf and AllenNLP; `softmax.safetensors` and "
            "`vocabulary.json` are the output layer.", "",
        ]  # fmt: skip


MODELS: Mapping[str, type[LanguageModelRun]] = {"bert": Bert, "elmo": Elmo}


def _own_tokenizer(corpora: Mapping[str, Sentences], folder: Path, how: Mapping[str, Any], say: Say) -> Any:
    """Of these texts; the one that a stopped run trained, if that read the same texts in the same way."""
    from calque.distributed import is_first

    key = json.dumps([how, {lang: digest_of(text) for lang, text in corpora.items()}], sort_keys=True)
    about = folder / "made-from.json"
    if about.is_file() and about.read_text(encoding="utf-8") == key:
        return _open_tokenizer(folder)
    say(f"training a tokenizer of {how['size']:,} subwords")
    tokenizer = train_tokenizer(corpora, **how)
    if not is_first():
        return tokenizer
    about.unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    about.write_text(key, encoding="utf-8")
    return _open_tokenizer(folder)  # as the run that goes on from here will have it


def _open_tokenizer(where: str | Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(where))
    except Exception as error:  # a name the hub does not know, a damaged file
        raise InputError(f"not a tokenizer ({str(error).splitlines()[0]})", path=where) from error
    if not getattr(tokenizer, "is_fast", False) or tokenizer.mask_token_id is None:
        raise InputError("not a fast tokenizer with a mask token, which masked language modelling needs", path=where)
    return tokenizer


def _hold_out(text: Sentences, n: int) -> tuple[Sentences, Sentences]:
    """A text without some of its sentences, and these."""
    if not 0 < 2 * n <= len(text):
        raise SettingError(f"cannot hold out {n} of {len(text)} sentences in {text.lang}: at most half")
    chosen = np.arange(n) * len(text) // n
    rest = text.take(np.setdiff1d(np.arange(len(text)), chosen))
    known = {sentence.words for sentence in rest}
    new = [k for k in chosen.tolist() if text[k].words and text[k].words not in known]
    if not new:
        raise SettingError(f"every held-out sentence in {text.lang} also occurs in the training text: hold out more")
    return rest, text.take(np.array(new, dtype=np.int64))
