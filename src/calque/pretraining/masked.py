"""Masked language modelling from scratch: an encoder for whoever has text and no encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.batches import WordBatch
from calque.encoders.checkpoint import weights_digest
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import InputError, SettingError, check_number
from calque.pretraining.base import Done, LanguageModel, Prediction, Term, Update
from calque.pretraining.blocks import Blocks, Mixture, mask
from calque.pretraining.sense_softmax import SenseSoftmax
from calque.pretraining.senses import Selected, SenseTraining, add_rows
from calque.pretraining.translations import Translations
from calque.pretraining.wordpiece import train_wordpiece
from calque.text import Sentences
from calque.threads import Threads
from calque.training.passes import Pass, add_gradients, shares_at_once

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def train_tokenizer(
    texts: Mapping[str, Sentences], *, size: int = 16_000, alpha: float = 0.5, sample: int = 400_000, seed: int = 0
) -> PreTrainedTokenizerFast:
    """WordPiece over several languages, cased, with accents, Chinese characters apart.

    Args:
        texts: sentences by language.
        size: subwords of the vocabulary, the special ones included.
        alpha: a language with n sentences is drawn with probability ∝ n^alpha.
        sample: sentences to learn from.
        seed: of the sample.
    """
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    rng = np.random.default_rng(seed)
    counts = np.array([len(text) for text in texts.values()], dtype=np.float64)
    shares = counts**alpha / (counts**alpha).sum() * min(sample, counts.sum())

    def lines():
        for text, share in zip(texts.values(), shares, strict=True):
            wanted = round(share)
            while wanted > 0:
                drawn = np.sort(rng.permutation(len(text))[:wanted])
                for k in drawn.tolist():
                    yield " ".join(text[k].words)
                wanted -= len(drawn)

    # Letters come first, so that a quarter of the vocabulary at most goes to rare Chinese characters.
    backend = train_wordpiece(lines(), size=size, letters=size // 4)
    return BertTokenizerFast(
        tokenizer_object=backend._tokenizer, do_lower_case=False, strip_accents=False, model_max_length=512
    )


@dataclass(kw_only=True, eq=False)
class MaskedLanguageModel(LanguageModel):
    """Trains a BERT from scratch to predict masked subwords (Devlin et al. 2019, §3.1; no next-sentence task).

    Args:
        layers, dim, heads, inner: shape of the model; by default heads of 64 dimensions, but four where that many of 32
            or more fit, and an inner size of 4 · dim.
        positions: longest text the model takes, in subwords.
        share: of subwords hidden.
        learning_rate: the highest; None: 1e-4 · (768 / dim)^1.5.
        length, alpha, batch, updates, warmup, decay, betas, epsilon, clip, seed, precision: see `LanguageModel`.
        start: folder of a BERT with its head to go on from, instead of random weights; its shape counts then, and its
            tokenizer is the one to train with.
    """

    layers: int = 6
    heads: int | None = None
    inner: int | None = None
    positions: int = 256
    share: float = 0.15
    warmup: float = 0.05
    decay: Literal["constant", "linear", "cosine"] = "cosine"
    clip: float | None = 1.0
    start: str | Path | None = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("layers", "heads", "inner"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=1, whole=True)
        check_number("share", self.share, above=0, below=1)
        check_number("positions", self.positions, least=4, whole=True)
        check_number("length", self.length, least=4, most=self.positions, whole=True)
        dim = self.dim
        heads = max(1, dim // 64, min(4, dim // 32)) if self.heads is None else self.heads
        if dim % heads:
            raise SettingError(f"dim={dim} cannot be divided among {heads} heads")
        self.shape: dict[str, Any] = {"num_hidden_layers": self.layers, "hidden_size": dim, "num_attention_heads": heads,
                      "intermediate_size": 4 * dim if self.inner is None else self.inner,
                      "max_position_embeddings": self.positions}  # fmt: skip
        self._start_weights: str | None = None

    def default_rate(self) -> float:
        return 1e-4 * (768 / self.dim) ** 1.5

    def settings(self) -> dict[str, Any]:
        """What the result depends on; a model to go on from with the hash of its weights, once they are loaded."""
        names = ("length", "share", "alpha", "batch", "updates", "precision", "seed")
        start = {} if self.start is None else {"start": Path(self.start).name, "start_weights": self._start_weights}
        return {"method": "masked language model", **self.shape, **{n: getattr(self, n) for n in names}, **start}

    def train(
        self,
        texts: Mapping[str, Sentences],
        tokenizer: PreTrainedTokenizerFast,
        *,
        dictionaries: Sequence[Dictionary] = (),
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> HuggingFaceEncoder:
        """A new encoder.

        Args:
            texts: sentences by language.
            tokenizer: with a mask and special subwords at both ends.
            folder, checkpoint_every, progress: see `Tuner.tune`.

        Returns:
            the encoder; its model with the language model's head is `self.model`.
        """
        from transformers import BertConfig, BertForMaskedLM

        processes = Processes(self.precision)
        torch.manual_seed(self.seed)
        if self.start is not None:
            model = self.model = self._started(len(tokenizer))
        else:
            pad: Any = tokenizer.pad_token_id
            config = BertConfig(
                vocab_size=len(tokenizer), pad_token_id=pad, type_vocab_size=1, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0, initializer_range=0.02 * (768 / self.dim) ** 0.5, **self.shape,
            )  # fmt: skip
            model = self.model = BertForMaskedLM(config)
            _waves(model.bert.embeddings.position_embeddings.weight, config.initializer_range)
        tokenizer.model_max_length = self.shape["max_position_embeddings"]
        encoder = HuggingFaceEncoder(model.bert, tokenizer, max_length=self.length, name="pretrained")
        mixture = Mixture(
            {lang: Blocks.of(encoder.split(text), self.length) for lang, text in texts.items()},
            batch=self.batch, alpha=self.alpha, seed=self.seed,
        )  # fmt: skip
        model.to(device=processes.device).train()  # type: ignore[call-arg]
        with Threads(shares_at_once(encoder, processes.device)) as threads:
            settings = (model, encoder, mixture, self.share, processes, threads)
            objective = MaskedPrediction(*settings) if self.senses is None else self._sense_prediction(*settings, dictionaries)
            self._run(
                objective,
                identity={"tokenizer": tokenizer.get_vocab()}, folder=folder, checkpoint_every=checkpoint_every,
                progress=progress,
            )  # fmt: skip
        model.eval()
        return HuggingFaceEncoder(model.bert, tokenizer, name="pretrained")

    def _sense_prediction(
        self, model: Any, encoder: HuggingFaceEncoder, mixture: Mixture, share: float, processes: Processes,
        threads: Threads, dictionaries: Sequence[Dictionary],
    ) -> MaskedSensePrediction:  # fmt: skip
        settings: Any = self.senses
        counts = sum(
            np.bincount(blocks.ids, minlength=len(encoder.tokenizer)) for blocks in mixture.languages.values()
        )
        table = settings.table(np.asarray(counts), self.shape["hidden_size"])
        softmax = self.sense_softmax = SenseSoftmax([table], negatives=None, own=settings.own).to(processes.device)
        training = SenseTraining([table], settings, self.updates, processes)
        languages = list(mixture.languages)
        translations = None
        if dictionaries:
            translations = Translations(dictionaries, languages, _whole_words(encoder, dictionaries))
            translations.to(processes.device)
        return MaskedSensePrediction(
            model, encoder, mixture, share, processes, threads, softmax, training, translations
        )

    def _started(self, vocabulary: int) -> Any:
        """The model to go on from, in float32."""
        from transformers import AutoConfig, BertForMaskedLM

        try:
            config = AutoConfig.from_pretrained(str(self.start))
            if config.model_type != "bert":
                raise SettingError(f"{self.start} is a {config.model_type}: only a BERT can be trained further")
            loaded: Any = BertForMaskedLM.from_pretrained(
                str(self.start), dtype=torch.float32, output_loading_info=True
            )
            model, report = loaded
        except (OSError, ValueError) as error:
            raise InputError(f"not a BERT to continue from ({str(error).splitlines()[0]})", path=self.start) from error
        if report["missing_keys"]:
            raise InputError("no language-model head in this folder; calque pretrain saves one", path=self.start)
        if config.vocab_size != vocabulary or config.max_position_embeddings < self.length:
            raise SettingError(
                f"{self.start} has {config.vocab_size} subwords and reads {config.max_position_embeddings}; the tokenizer "
                f"has {vocabulary}, and blocks are up to {self.length} long"
            )
        self.shape = {name: getattr(config, name) for name in self.shape}
        self._start_weights = weights_digest(model)
        return model


def _whole_words(encoder: HuggingFaceEncoder, dictionaries: Sequence[Dictionary]) -> dict[str, int]:
    """The number of each word of some dictionaries, and of its capitalised forms, that is one subword."""
    words = sorted({word for d in dictionaries for word in (*d.source, *d.target)})
    words = list(dict.fromkeys([*words, *(word.lower() for word in words), *(word.capitalize() for word in words)]))
    split = encoder.split([[word] for word in words])
    single = (np.diff(split.word_offsets) == 1) & (split.word_lengths == 1)
    ids = split.ids[split.offsets[:-1] + split.word_starts]
    unknown: Any = encoder.tokenizer.unk_token_id
    return {word: int(k) for word, k, one in zip(words, ids, single, strict=True) if one and k != unknown}


@torch.no_grad()
def _waves(table: Tensor, size: float) -> None:
    """Let positions begin as sines and cosines (Vaswani et al. 2017, §3.5) of the same size as the other embeddings: what
    lies so many places away looks alike from everywhere, which attention would have to learn for each position else."""
    n, dim = table.shape
    half = torch.arange(0, dim, 2, dtype=torch.float64)
    turns = torch.arange(n, dtype=torch.float64)[:, None] * 10_000.0 ** (-half / dim)
    table.copy_(torch.stack([turns.sin(), turns.cos()], dim=2).flatten(1)[:, :dim] * (size * 2**0.5))


class MaskedPrediction(Prediction):
    """The mean cross-entropy of hidden subwords.

    Args:
        model: with its head.
        encoder: around the model's body.
        share: of the subwords to hide.
        mixture, processes, threads: see `Prediction`.
    """

    def __init__(
        self,
        model: Any,
        encoder: HuggingFaceEncoder,
        mixture: Mixture,
        share: float,
        processes: Processes,
        threads: Threads,
    ):
        super().__init__(model, mixture, processes, threads)
        self.encoder, self.share = encoder, share
        tokenizer: Any = encoder.tokenizer
        self._special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)
        self._head: Any = model.cls
        self._head_weights = list(model.cls.parameters())

    def backward(self, update: Update) -> dict[str, float]:
        ids = self._ids(update)
        # The text that is hidden follows from the update's own random state, which `Loop` sets from its number.
        rng = np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=_shared_generator(self.processes))))
        read, chosen = mask(
            ids, self._special, mask_id=self._mask_id, vocabulary=self._vocabulary, share=self.share, rng=rng
        )
        width, (languages, words) = ids.shape[1], self._about(update, ids.shape)
        everybody = self.processes.shares(np.arange(len(ids)))
        counts = [int(np.isin(chosen // width, part).sum()) for part in everybody]
        mine = everybody[self.processes.rank]
        rows = [part for part in np.array_split(mine, self.threads.count) if len(part)]
        if not rows:  # fewer blocks than processes
            self._finish([], counts)
            return {"loss": float(self.processes.sum_numbers(torch.zeros((), device=self.processes.device)))}
        shares, hidden = [], []
        for part in rows:
            order = np.flatnonzero((chosen // width >= part[0]) & (chosen // width <= part[-1]))
            shares.append(self._batch(read, chosen[order], part))
            about = ids.flat[chosen[order]].astype(np.int64), order, languages[chosen[order] // width], words.flat[chosen[order]]
            hidden.append(Hidden(*(torch.from_numpy(x).to(self.processes.device) for x in about)))
        last = self.encoder.n_layers
        done = Pass(
            self.encoder, [[batch] for batch in shares], [last], threads=self.threads, context=self.processes.autocast
        )
        vectors = done.vectors[last].split([len(part.answers) for part in hidden])

        self._draw()

        def work(number: int) -> Done:
            with torch.enable_grad(), self.processes.autocast():
                given = vectors[number].detach().requires_grad_()
                term = self._term(given, hidden[number])
                loss = term.value / len(chosen)
            return Done.of(loss, [given, *self._head_weights], [term])

        parts = self.threads.map(work, range(len(hidden)))
        add_gradients(self._head_weights, [part.gradients[1:] for part in parts])
        done.backward({last: torch.cat([part.gradients[0] for part in parts])})  # type: ignore[misc]
        self._finish(parts, counts)
        return {"loss": float(self.processes.sum_numbers(torch.stack([part.loss for part in parts]).sum()))}

    def _term(self, vectors: Tensor, hidden: Hidden) -> Term:
        """The summed loss of the hidden subwords of a share."""
        scores = self._head(vectors)
        return Term(F.cross_entropy(scores.float(), hidden.answers, reduction="sum"))

    def _draw(self) -> None:
        """Whatever all shares of an update have in common."""

    def _finish(self, done: Sequence[Done], counts: list[int]) -> None:
        """Take what the shares of an update left besides the gradients.

        Args:
            done: this process's shares.
            counts: hidden subwords of every process.
        """

    def _ids(self, update: Update) -> np.ndarray:
        pad = self._special[0]
        parts = [self.mixture.languages[lang].padded(numbers, pad) for lang, numbers in update]
        width = max(part.shape[1] for part in parts)
        return np.concatenate(
            [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=pad) for part in parts]
        )

    def _about(self, update: Update, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """The number of each block's language, and which subwords are whole words."""
        names, words = list(self.mixture.languages), np.zeros(shape, dtype=bool)
        languages = np.repeat([names.index(lang) for lang, _ in update], [len(numbers) for _, numbers in update])
        for k, (lang, numbers) in enumerate(update):
            whole = self.mixture.languages[lang].whole_words(numbers)
            first = sum(len(earlier) for _, earlier in update[:k])
            words[first : first + len(numbers), : whole.shape[1]] = whole
        return languages, words

    def _batch(self, read: np.ndarray, chosen: np.ndarray, rows: np.ndarray) -> WordBatch:
        """Some rows of what is read, whose hidden subwords are its words."""
        device, width = self.processes.device, read.shape[1]
        part = read[rows]
        inside = part != self._special[0]
        starts = chosen - rows[0] * width
        padded = not inside.all()
        packed = np.cumsum(inside) - 1
        return WordBatch(
            input_ids=torch.from_numpy(part.astype(np.int64)),
            attention_mask=torch.from_numpy(inside.astype(np.int64)) if padded else None,
            inside=torch.from_numpy(np.flatnonzero(inside)) if padded else None,
            spread=torch.from_numpy(np.maximum(packed, 0)) if padded else None,
            starts=torch.from_numpy(starts),
            packed=torch.from_numpy(packed[starts]),
            lengths=torch.ones(len(starts), dtype=torch.int64),
            word_counts=torch.from_numpy(np.bincount(starts // width, minlength=len(rows))),
        ).to(device)


class Hidden(NamedTuple):
    """The hidden subwords of a share.

    Attributes:
        answers: int64 `[n]`, what they are.
        order: int64 `[n]`, the place of each among those of the update.
        languages: int64 `[n]`, number of the language of each one's text.
        words: bool `[n]`, whether each is a whole word.
    """

    answers: Tensor
    order: Tensor
    languages: Tensor
    words: Tensor


class MaskedSensePrediction(MaskedPrediction):
    """The same of senses of subwords, and of translations of whole words (Multi-sense, Eqs. 4 to 7).

    Selected by and predicted from the state after the head's dense layer and norm.

    Args:
        senses: predicts in place of the head's last layer.
        training: of its table.
        translations: of the words, by language; None for one language.
        model, encoder, mixture, share, processes, threads: see `MaskedPrediction`.
    """

    def __init__(
        self, model: Any, encoder: HuggingFaceEncoder, mixture: Mixture, share: float, processes: Processes,
        threads: Threads, senses: SenseSoftmax, training: SenseTraining, translations: Translations | None,
    ):  # fmt: skip
        super().__init__(model, encoder, mixture, share, processes, threads)
        self.module = nn.ModuleDict({"model": model, "senses": senses})
        self.senses, self.training, self.translations = senses, training, translations
        self._transform = model.cls.predictions.transform
        self._head_weights = list(self._transform.parameters())
        training.begin()

    def _draw(self) -> None:
        seed = torch.initial_seed() - self.processes.rank
        (self._negatives,) = self.senses.draw(np.random.default_rng([seed, 1]))

    def _term(self, vectors: Tensor, hidden: Hidden) -> Term:
        states = self._transform(vectors).float()
        translations = None
        if self.translations is not None:
            translations = self.translations.of(hidden.languages, hidden.answers)
            translations = translations.masked_fill(~hidden.words[:, None, None], -1)
        targets = self.training.targets(0, states.detach(), hidden.answers, translations)
        loss = self.senses.loss(states, targets, 0, self._negatives)
        return Term(loss.value, loss.rows, (loss.classes, Selected(hidden.order, states.detach(), targets.classes[:, 0])))

    def _finish(self, done: Sequence[Done], counts: list[int]) -> None:
        notes = [part.terms[0].notes for part in done]
        (table,) = self.training.tables
        add_rows(table, [(classes, part.of_leaves[0]) for (classes, _), part in zip(notes, done, strict=True)])
        self.training.keep([[selected for _, selected in notes]], counts)

    def after_update(self, step: int) -> None:
        self.training.after_update(step)


def _shared_generator(processes: Processes) -> torch.Generator:
    """Random numbers that are the same in every process of an update; each knows its own seed from its rank."""
    return torch.Generator().manual_seed(torch.initial_seed() - processes.rank)
