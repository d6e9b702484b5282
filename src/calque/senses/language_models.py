"""The two language models that can be pretrained: what differs between their runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from calque.errors import InputError, SettingError
from calque.linking import Say, digest_of
from calque.senses.base import LanguageModel
from calque.senses.bidirectional import BiLanguageModel
from calque.senses.masked import MaskedLanguageModel, train_tokenizer, untie
from calque.senses.sense_files import save_senses
from calque.senses.softmax import SenseSoftmax

if TYPE_CHECKING:
    from calque.annotated import Dictionary
    from calque.senses.blocks import Blocks
    from calque.senses.sense_table import SenseTable
    from calque.tasks import Score
    from calque.text import Sentences

M = TypeVar("M", bound=LanguageModel)


class LanguageModelRun(ABC, Generic[M]):
    """A language model, its training and what is saved of it.

    Args:
        held_out: sentences of each language, drawn evenly from its text, that are not trained on but give the perplexity;
            see `_hold_out`.

    Attributes:
        unit: what its text is counted in.
        lower: whether the text is read in lower case, as this run decides it.
    """

    unit: str
    lower: bool = False

    def __init__(self, method: M, held_out: int = 0):
        self.method: M = method
        self._held_out, self._aside = held_out, list[Any]()

    def training_part(self, corpora: dict[str, Sentences]) -> dict[str, Sentences]:
        """The text to train on; the rest is for `figures`."""
        if not self._held_out:
            return corpora
        parts = {lang: _hold_out(text, self._held_out) for lang, text in corpora.items()}
        self._aside = [aside for _, aside in parts.values()]
        return {lang: rest for lang, (rest, _) in parts.items()}

    @abstractmethod
    def train(self, corpora: Mapping[str, Sentences], folder: Path, say: Say, **how: Any) -> None:
        """Train; whatever a stopped run needs to go on is kept in the folder.

        Args:
            folder: for the training.
            how: `dictionaries`, `checkpoint_every` and `progress`, as `LanguageModel.train` takes them.
        """

    @property
    @abstractmethod
    def _senses(self) -> SenseSoftmax | None:
        """What predicts senses; None for a plain model."""

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

    def figures(self, name: str, dictionaries: Sequence[Dictionary]) -> dict[str, Any]:
        """Return for the record what was measured of the model called `name`: how well the texts held out are predicted, and
        how many senses words have."""
        scores = [
            score.to_dict()
            for text in self._aside
            for score in self._measured(text, f"{len(text):,} sentences held out", name)
        ]
        learnt = self._senses
        about = {} if learnt is None else {"senses": _about_senses(self.method, learnt.senses, dictionaries)}
        return {**about, "scores": scores}

    @abstractmethod
    def _measured(self, text: Sentences, data: str, name: str) -> Sequence[Score]: ...

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @abstractmethod
    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Lines of the model card's front matter, and those that say what the model is."""


class Bert(LanguageModelRun[MaskedLanguageModel]):
    """A BERT, trained by masked language modelling.

    Args:
        start: folder, or `mini`, of a BERT to go on from, with its tokenizer.
        held_out: see `LanguageModelRun`.
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
        lower: bool = False,
        held_out: int = 0,
        **options: Any,
    ):
        from calque.encoders.loading import BUNDLED

        if start is not None:
            start = tokenizer = str(BUNDLED.get(str(start), start))
            if not (Path(start) / "config.json").exists():
                raise InputError("no config.json in this folder, expected a BERT to continue from", path=start)
        super().__init__(MaskedLanguageModel(**options, start=start), held_out)
        self._vocabulary, self._tokenizer, self._half = vocabulary, tokenizer, half
        self.lower = lower and tokenizer is None

    def train(self, corpora: Mapping[str, Sentences], folder: Path, say: Say, **how: Any) -> None:
        if self._tokenizer is not None:
            tokenizer = _open_tokenizer(self._tokenizer)
        else:
            kind = {"size": self._vocabulary, "alpha": self.method.alpha, "seed": self.method.seed}
            kind |= {"lower": True} if self.lower else {}
            tokenizer = _own_tokenizer(corpora, folder / "tokenizer", kind, say)
        self._encoder = self.method.train(corpora, tokenizer, folder=folder, **how)

    @property
    def _senses(self) -> SenseSoftmax | None:
        return None if self.method.senses is None else self.method.sense_softmax

    def _measured(self, text: Sentences, data: str, name: str) -> Sequence[Score]:
        from calque.senses.perplexity import masked_perplexity

        mask: Any = self._encoder.tokenizer.mask_token_id
        return [
            masked_perplexity(
                self.method.model, self._encoder.subwords, text, mask_id=mask, senses=self._senses, data=data, name=name
            )
        ]

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
        from calque.encoders.sentence_transformers import write_modules

        self._encoder.save(folder)
        if (senses := self._senses) is not None:
            (table,) = senses.senses
            save_senses([table], folder, self.method.settings().get("senses", {}))
            untie(self.method.model, table)
        self.method.model.to(dtype=torch.float16 if self._half else torch.float32)  # type: ignore[call-arg]
        save_model(self.method.model, folder)  # with its head, instead of the bare encoder
        tokenizer = self._encoder.tokenizer
        write_modules(folder, dim=self._encoder.dim, max_length=tokenizer.model_max_length, tokenizer=tokenizer)
        write_about(folder, "huggingface", read_about(folder) | {"max_length": None, "own_pooling": False})

    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        settings, senses = record["settings"], _told(record)
        if senses:
            senses += ["As a masked language model of transformers it predicts each subword by the vector of its most "
                       "selected sense alone; `calque perplexity` sums over the senses.", ""]  # fmt: skip
        front = ["library_name: transformers", "pipeline_tag: fill-mask", "language:",
                 *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque"]  # fmt: skip
        return front, [
            f"# A BERT of {settings['num_hidden_layers']} layers × {settings['hidden_size']}", "",
            f"Trained from scratch by masked language modelling with calque {record['calque']}: {record['updates']:,} "
            f"updates of {settings['batch']} blocks of up to {settings['length']} subwords; {record['parameters']:,} "
            f"parameters, {record['vocabulary']:,} subwords; mean loss {record['last_loss']:.3f} at the end.", "",
            *senses,
        ]  # fmt: skip


class Elmo(LanguageModelRun[BiLanguageModel]):
    """An ELMo, and beside it what predicts words.

    Raises:
        MissingExtraError: h5py is not installed.
    """

    unit = "words"

    def __init__(self, *, held_out: int = 0, **options: Any):
        from calque.senses.elmo_files import h5py_module

        h5py_module()
        super().__init__(BiLanguageModel(**options), held_out)
        self.lower = self.method.lower

    def train(self, corpora: Mapping[str, Sentences], folder: Path, say: Say, **how: Any) -> None:
        self.method.train(corpora, folder=folder, **how)

    @property
    def _senses(self) -> SenseSoftmax | None:
        head = self.method.model.head
        return head if isinstance(head, SenseSoftmax) else None

    @property
    def vocabulary_size(self) -> int:
        return len(self.method.model.vocabulary)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.method.model.network.parameters())

    def size(self, sentences: Sentences, blocks: Blocks) -> int:
        return int(sentences.lengths().sum())

    def _measured(self, text: Sentences, data: str, name: str) -> Sequence[Score]:
        from calque.senses.perplexity import word_perplexity

        return word_perplexity(self.method.model, text, data=data, name=name)

    def save(self, folder: Path) -> None:
        self.method.model.save(folder, self.method.settings().get("senses", {}))

    def card(self, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        settings, lstm, senses = record["settings"], record["settings"]["options"]["lstm"], _told(record)
        output = "senses" if senses else "softmax"
        front = ["language:", *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque", "- elmo"]
        return front, [
            f"# An ELMo of {lstm['n_layers']} layers, {lstm['dim']} projected to {lstm['projection_dim']}", "",
            f"Trained from scratch as a bidirectional language model with calque {record['calque']}: "
            f"{record['updates']:,} updates of {settings['batch']} sentences; {record['parameters']:,} parameters without "
            f"the softmax over {record['vocabulary']:,} words; mean loss {record['last_loss']:.3f} at the end.", "",
            *senses,
            "`options.json` and `weights.hdf5` are in the format of bilm-tf and AllenNLP; "
            f"`{output}.safetensors` and `vocabulary.json` are the output layer.", "",
        ]  # fmt: skip


MODELS: Mapping[str, type[LanguageModelRun]] = {"bert": Bert, "elmo": Elmo}


def _hold_out(text: Sentences, n: int) -> tuple[Sentences, Sentences]:
    """Split a text into two: most of its sentences, and some that are drawn evenly from it.

    Of these, those that stand in the rest of the text word for word are left out, and those without words.

    Raises:
        SettingError: more than half the text; or none of them is new.
    """
    if not 0 < 2 * n <= len(text):
        raise SettingError(f"cannot hold out {n} of {len(text)} sentences in {text.lang}: at most half")
    chosen = np.arange(n) * len(text) // n
    rest = text.take(np.setdiff1d(np.arange(len(text)), chosen))
    known = {sentence.words for sentence in rest}
    new = [k for k in chosen.tolist() if text[k].words and text[k].words not in known]
    if not new:
        raise SettingError(f"every held-out sentence in {text.lang} also occurs in the training text: hold out more")
    return rest, text.take(np.array(new, dtype=np.int64))


def _about_senses(
    method: LanguageModel, tables: Sequence[SenseTable], dictionaries: Sequence[Dictionary]
) -> dict[str, Any]:
    """What the record says under `senses`: of each table how many senses a word has left, and what translates what."""
    about: dict[str, Any] = {"tables": [_table(table) for table in tables]}
    if method.translations is not None:
        about["translated_words"] = dict(method.translations.words)
        about["dictionaries"] = [
            {"path": Path(d.path or "").name, "langs": list(d.langs), "pairs": len(d)} for d in dictionaries
        ]
    return about


def _table(table: SenseTable) -> dict[str, Any]:
    used = (table.live.cpu()[table.index.cpu().clamp(min=0)] & (table.index.cpu() >= 0)).sum(1).numpy()
    n = np.bincount(used)
    return {
        "words": len(used),
        "senses_per_word": round(float(used.mean()), 3),
        "several": round(float((used > 1).mean()), 4),
        "words_by_senses": {str(k): int(n[k]) for k in range(1, len(n)) if n[k]},
    }


def _told(record: Mapping[str, Any]) -> list[str]:
    """Return paragraphs for the model card; none without senses."""
    if "senses" not in record:
        return []
    about, most = record["senses"], record["settings"]["senses"]["senses"]
    tables = about["tables"]
    names = ["forwards", "backwards"] if len(tables) == 2 else [""]
    left = "; ".join(
        f"{name + ': ' if name else ''}{row['senses_per_word']:.2f} senses a word in use after training, several for "
        f"{row['several']:.1%} of the words"
        for name, row in zip(names, tables, strict=True)
    )
    lines = [
        f"It is sense-aware: its output layer had up to {most} vectors for each word while it was trained, and the model's "
        f"own state told which of them was meant. {left[0].upper()}{left[1:]}. The encoder has the same size as without; "
        "the senses are in `senses.safetensors`.",
        "",
    ]
    if "dictionaries" in about:
        files = ", ".join(f"{d['path']} ({'-'.join(d['langs'])}, {d['pairs']:,} pairs)" for d in about["dictionaries"])
        words = ", ".join(f"{n:,} words in {lang}" for lang, n in about["translated_words"].items())
        lines += [f"It also learnt to predict the senses of translations, from {files}: {words} had any.", ""]
    return lines


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
