"""Train a masked language model (BERT) from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.checkpoint import save_model, weights_digest
from calque.encoders.folder import BUNDLED, read_about, write_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError, check_number
from calque.input_texts import Say
from calque.senses.sense_table import SenseTable, Softmax
from calque.senses.text import Blocks, Mixture, mask
from calque.senses.training import LanguageModel, Prediction, Selected, SenseTraining, Update
from calque.text import Sentences

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_INSIDE = "##"
_SAMPLE = 400_000  # maximum number of sentences for training the tokenizer


def train_tokenizer(
    texts: Mapping[str, Sentences],
    *,
    size: int = 16_000,
    alpha: float = 0.5,
    lower: bool = False,
    seed: int = 0,
) -> PreTrainedTokenizerFast:
    """Train a WordPiece tokenizer on several languages. Accents are preserved.

    Args:
        texts: sentences, keyed by language.
        size: vocabulary size, including special tokens.
        alpha: sampling exponent; a language with n sentences is sampled with probability ∝ n^alpha.
        lower: whether to lower-case all text, both when training and when using the tokenizer.
        seed: seed for sampling the sentences.
    """
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    rng = np.random.default_rng(seed)
    counts = np.array([len(text) for text in texts.values()], dtype=np.float64)
    shares = counts**alpha / (counts**alpha).sum() * min(_SAMPLE, counts.sum())

    def lines():
        for text, share in zip(texts.values(), shares, strict=True):
            wanted = round(share)
            while wanted > 0:
                drawn = np.sort(rng.permutation(len(text))[:wanted])
                for k in drawn.tolist():
                    yield " ".join(text[k].words)
                wanted -= len(drawn)

    # Single characters are limited to a quarter of the vocabulary, because Chinese has many rare
    # characters.
    backend = train_wordpiece(lines(), size=size, letters=size // 4, lower=lower)
    return BertTokenizerFast(
        tokenizer_object=backend._tokenizer,
        do_lower_case=lower,
        strip_accents=False,
        model_max_length=512,
    )


def train_wordpiece(
    lines: Iterable[str], *, size: int, letters: int | None = None, lower: bool = False
) -> BertWordPieceTokenizer:
    """Train a BERT tokenizer deterministically. Accents are preserved.

    The trainer in `tokenizers` assigns ids to word-internal characters in random order and breaks
    ties between merges by these ids (issue 1794 of `tokenizers`). This function fixes the ids by
    passing all characters to the trainer as special tokens.

    Args:
        lines: training text.
        size: vocabulary size, including special tokens and characters.
        letters: maximum number of distinct characters, chosen by frequency; default: all
            characters.
        lower: whether to lower-case all text.
    """
    from tokenizers import BertWordPieceTokenizer

    def blank(*vocabulary) -> BertWordPieceTokenizer:
        return BertWordPieceTokenizer(*vocabulary, lowercase=lower, strip_accents=False)

    words = Counter(word for line in lines for word in line.split())
    trained = blank()
    counts, inside = Counter[str](), set[str]()
    for word, n in words.items():
        for part, _ in trained.pre_tokenizer.pre_tokenize_str(
            trained.normalizer.normalize_str(word)
        ):
            inside.update(part[1:])
            for letter in part:
                counts[letter] += n
    alphabet = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters])
    trained.train_from_iterator(
        (" ".join([word] * n) for word, n in words.items()),
        vocab_size=size,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
        special_tokens=[*SPECIAL, *(_INSIDE + letter for letter in alphabet if letter in inside)],
    )
    return blank(trained.get_vocab())


@dataclass(kw_only=True, eq=False)
class MaskedLanguageModel(LanguageModel):
    """Trains a BERT model from scratch to predict masked subwords (Devlin et al. 2019, §3.1,
    without next-sentence prediction).

    Args:
        layers: number of layers.
        inner: intermediate size of the feed-forward networks; default: 4 · dim.
        heads: number of attention heads; default: the larger of dim / 64 and min(4, dim / 32),
            rounded down.
        positions: maximum number of subwords in an input.
        share: fraction of subwords to mask.
        dropout: dropout probability for hidden states and attention.
        initial: standard deviation of the initial weights; default: 0.02 · (768 / dim)^0.5.
        learning_rate: maximum learning rate; default: 1e-4 · (768 / dim)^1.5.
        length, alpha, batch, updates, warmup, decay, clip, seed, precision, lower: see
            `LanguageModel`.
        vocabulary: vocabulary size of the tokenizer to train.
        start: BERT model with a language-model head (folder or `mini`) to continue training; its
            sizes and tokenizer are kept.
        half: whether to save the weights in float16.
    """

    unit = "subwords"
    layers: int = 6
    heads: int | None = None
    inner: int | None = None
    positions: int = 256
    share: float = 0.15
    dropout: float = 0.0
    initial: float | None = None
    warmup: float = 0.05
    decay: Literal["constant", "linear", "cosine"] = "cosine"
    clip: float | None = 1.0
    vocabulary: int = 16_000
    start: str | Path | None = None
    half: bool = False

    def __post_init__(self):
        super().__post_init__()
        dim = self.dim
        heads = max(1, dim // 64, min(4, dim // 32)) if self.heads is None else self.heads
        inner = 4 * dim if self.inner is None else self.inner
        for name, value in (("layers", self.layers), ("heads", heads), ("inner", inner)):
            check_number(name, value, least=1, whole=True)
        check_number("share", self.share, above=0, below=1)
        check_number("dropout", self.dropout, least=0, below=1)
        if self.initial is not None:
            check_number("initial", self.initial, above=0)
        check_number("positions", self.positions, least=4, whole=True)
        check_number("length", self.length, least=4, most=self.positions, whole=True)
        if dim % heads:
            raise SettingError(
                f"dim must be divisible by the number of heads, got dim={dim} and {heads} heads"
            )
        self.shape: dict[str, Any] = {
            "num_hidden_layers": self.layers,
            "hidden_size": dim,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "max_position_embeddings": self.positions,
        }
        if self.start is not None:
            self.start, self.lower = str(BUNDLED.get(str(self.start), self.start)), False

    def default_rate(self) -> float:
        return 1e-4 * (768 / self.dim) ** 1.5

    def settings(self) -> dict[str, Any]:
        names = ("length", "share", "alpha", "batch", "updates", "precision", "seed")
        rare = {name: getattr(self, name) for name in ("dropout", "initial") if getattr(self, name)}
        start = {} if self.start is None else {"start": Path(self.start).name}
        return {
            "method": "masked language model",
            **self.shape,
            **{n: getattr(self, n) for n in names},
            **rare,
            **start,
            **super().settings(),
        }

    def train(
        self,
        texts: Mapping[str, Sentences],
        tokenizer: PreTrainedTokenizerFast | None = None,
        *,
        dictionaries: Sequence[Dictionary] = (),
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
        say: Say = lambda line: None,
    ) -> HuggingFaceEncoder:
        """Train and return a new encoder, and store the model with its language-model head in
        `self.model`.

        Args:
            tokenizer: tokenizer with a mask token and boundary tokens; default: the tokenizer of
                `start`, or a new tokenizer.
        """
        processes, started, weights = Processes(self.precision), None, {}
        if self.start is not None:
            started, own = open_masked(self.start)
            if started.config.model_type != "bert":
                raise SettingError(
                    f"start must be a BERT model, but {self.start} has type "
                    f"{started.config.model_type}"
                )
            self.shape = {name: getattr(started.config, name) for name in self.shape}
            weights, tokenizer = (
                {"start_weights": weights_digest(started)},
                own if tokenizer is None else tokenizer,
            )
        if tokenizer is None:
            say(f"training a tokenizer with {self.vocabulary:,} subwords")
            tokenizer = train_tokenizer(
                texts, size=self.vocabulary, alpha=self.alpha, lower=self.lower, seed=self.seed
            )
        torch.manual_seed(self.seed)
        model = self.model = self._new_model(tokenizer) if started is None else started
        config: Any = model.config
        if config.vocab_size != len(tokenizer) or config.max_position_embeddings < self.length:
            raise SettingError(
                f"{self.start} has a vocabulary of {config.vocab_size} and "
                f"{config.max_position_embeddings} positions, but "
                f"the tokenizer has {len(tokenizer)} subwords, and the block length is "
                f"{self.length}"
            )
        tokenizer.model_max_length = config.max_position_embeddings
        encoder = HuggingFaceEncoder(
            model.bert, tokenizer, max_length=self.length, name="pretrained"
        )
        mixture = Mixture(
            {lang: Blocks.of(encoder.split(text), self.length) for lang, text in texts.items()},
            batch=self.batch,
            alpha=self.alpha,
            seed=self.seed,
        )
        model.to(device=processes.device).train()
        counts = np.sum(
            [np.bincount(b.ids, minlength=len(tokenizer)) for b in mixture.languages.values()],
            axis=0,
        )
        if self.senses is not None:  # the output vectors are not tied to the embeddings
            (table,) = self.senses.tables(counts, self.shape["hidden_size"])
            if started is not None:  # initialise the first sense of each word with the output layer
                decoder, first = model.cls.predictions.decoder, table.index[:, 0]
                with torch.no_grad():
                    table.weight[first], table.bias[first] = (
                        decoder.weight.cpu(),
                        decoder.bias.cpu(),
                    )
            self.softmax = Softmax([table]).to(processes.device)

        def words() -> dict[str, int]:
            return dict(
                sorted(
                    whole_words(encoder, dictionaries).items(), key=lambda item: -counts[item[1]]
                )
            )

        training = self._sense_training(list(mixture.languages), words, dictionaries, processes)
        self._run(
            MaskedPrediction(
                model,
                mixture,
                processes,
                tokenizer=tokenizer,
                share=self.share,
                softmax=self.softmax,
                training=training,
            ),
            identity={"tokenizer": tokenizer.get_vocab(), **weights},
            folder=folder,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        model.eval()
        self.encoder = HuggingFaceEncoder(model.bert, tokenizer, name="pretrained")
        return self.encoder

    def _new_model(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        from transformers import BertConfig, BertForMaskedLM

        pad: Any = tokenizer.pad_token_id
        initial = 0.02 * (768 / self.dim) ** 0.5 if self.initial is None else self.initial
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                pad_token_id=pad,
                type_vocab_size=1,
                hidden_dropout_prob=self.dropout,
                attention_probs_dropout_prob=self.dropout,
                initializer_range=initial,
                **self.shape,
            )
        )
        _sinusoids(model.bert.embeddings.position_embeddings.weight, initial)
        return model

    # -- saving
    # ----------------------------------------------------------------------------------------------
    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.encoder.tokenizer), sum(p.numel() for p in self.model.parameters())

    def save(self, folder: Path) -> None:
        from calque.encoders.sentence_transformers import write_modules

        self.encoder.save(folder)
        if self.softmax is not None:
            self.softmax.save(folder, self.settings().get("senses", {}))
            untie(self.model, self.softmax.senses[0])
        self.model.to(dtype=torch.float16 if self.half else torch.float32)
        save_model(
            self.model, folder
        )  # replace the saved encoder with the model that includes the head
        tokenizer = self.encoder.tokenizer
        write_modules(
            folder, dim=self.encoder.dim, max_length=tokenizer.model_max_length, tokenizer=tokenizer
        )
        write_about(
            folder, "huggingface", read_about(folder) | {"max_length": None, "own_pooling": False}
        )


def open_masked(where: str | PathLike[str]) -> tuple[Any, Any]:
    """Open a masked language model with its head, in float32, and the tokenizer of the model.

    Raises:
        InputError: the model does not exist or has no language-model head.
    """
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForMaskedLM.from_pretrained(
            str(where), dtype=torch.float32, output_loading_info=True
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(str(where))
    except Exception as error:  # the folder is corrupt or contains another kind of encoder
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"this is not a masked language model ({reason})", path=where) from error
    model, report = loaded
    if report["missing_keys"] or tokenizer.mask_token_id is None:
        raise InputError(
            "there is no language-model head in this folder; calque pretrain saves one", path=where
        )
    return model, tokenizer


@torch.no_grad()
def untie(model: Any, table: SenseTable) -> None:
    """Untie BERT's output layer from the embeddings, and set each output vector to the vector of
    the most selected sense.
    """
    head, chosen = model.cls.predictions, table.most_selected()
    model.config.tie_word_embeddings = False
    head.decoder.weight = torch.nn.Parameter(table.weight[chosen].clone())
    # transformers stores the output bias twice if the layer is not tied.
    head.bias, head.decoder.bias = (
        torch.nn.Parameter(table.bias[chosen].clone()) for _ in range(2)
    )


def single_subwords(subwords: Subwords, words: Sequence[str]) -> np.ndarray:
    """Return the subword id of each word that is a single subword, int64 `[n]`, or −1 for other
    words and special tokens.
    """
    split = subwords.split([[word] for word in words])
    ids = split.ids[split.offsets[:-1] + split.word_starts]
    special = np.array(sorted(subwords.tokenizer.all_special_ids))
    return np.where((split.word_lengths == 1) & ~np.isin(ids, special), ids, -1).astype(np.int64)


def whole_words(encoder: HuggingFaceEncoder, dictionaries: Sequence[Dictionary]) -> dict[str, int]:
    """Return the ids of dictionary words that are single subwords, including their lower-cased and
    capitalised variants.
    """
    words = sorted({word for d in dictionaries for word in (*d.source, *d.target)})
    words = list(
        dict.fromkeys(
            [*words, *(word.lower() for word in words), *(word.capitalize() for word in words)]
        )
    )
    ids = single_subwords(encoder.subwords, words).tolist()
    return {word: k for word, k in zip(words, ids, strict=True) if k >= 0}


@torch.no_grad()
def _sinusoids(table: Tensor, size: float) -> None:
    """Initialise position embeddings with sinusoids (Vaswani et al. 2017, §3.5) that have the
    standard deviation `size`.
    """
    n, dim = table.shape
    half = torch.arange(0, dim, 2, dtype=torch.float64)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * 10_000.0 ** (-half / dim)
    table.copy_(
        torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim] * (size * 2**0.5)
    )


class MaskedPrediction(Prediction):
    """Objective: mean cross-entropy over masked subwords. With senses, the output of the dense
    layer and layer norm of the language-model head selects the senses, and `softmax` replaces the
    output layer of the head."""

    def __init__(
        self,
        model: Any,
        mixture: Mixture,
        processes: Processes,
        *,
        tokenizer: Any,
        share: float,
        softmax: Softmax | None = None,
        training: SenseTraining | None = None,
    ):
        self.body, self.head, self.share, self.softmax = model.bert, model.cls, share, softmax
        self._transform = model.cls.predictions.transform
        parts = {"model": model.bert, "transform": self._transform, "senses": softmax}
        super().__init__(
            model if softmax is None else nn.ModuleDict(parts), mixture, processes, training
        )
        self._special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)

    def backward(self, update: Update) -> dict[str, float]:
        ids, whole = self.blocks(update)
        # `Loop` adds the rank to the seed of each update. Subtract it, so that all processes mask
        # the same subwords.
        shared = torch.Generator().manual_seed(torch.initial_seed() - self.processes.rank)
        read, chosen = mask(
            ids,
            self._special,
            mask_id=self._mask_id,
            vocabulary=self._vocabulary,
            share=self.share,
            rng=np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=shared))),
        )
        row, mine = chosen // ids.shape[1], self.processes.share(np.arange(len(ids)))
        loss, selected = torch.zeros((), device=self.processes.device), None
        if len(mine):
            own = np.isin(row, mine)
            answers, masked = (
                ids.flat[chosen[own]].astype(np.int64),
                read.flat[chosen[own]] == self._mask_id,
            )
            about = answers, self._languages(update)[row[own]], whole.flat[chosen[own]], masked
            part = torch.from_numpy(read[mine].astype(np.int64)).to(self.processes.device)
            places = torch.from_numpy(chosen[own] - mine[0] * ids.shape[1]).to(part.device)
            with self.processes.autocast():
                inside = (part != self._special[0]).long()
                states = self.body(input_ids=part, attention_mask=inside).last_hidden_state.flatten(
                    0, 1
                )[places]
                total, selected = self._term(
                    states.float(), *(torch.from_numpy(x).to(part.device) for x in about)
                )
                loss = total / len(chosen)
            loss.backward()
        return self._finish(loss, [selected], np.bincount(row, minlength=len(ids)))

    def _term(
        self, states: Tensor, answers: Tensor, languages: Tensor, whole: Tensor, masked: Tensor
    ) -> tuple[Tensor, Selected | None]:
        """Return the total loss of this process's masked subwords, and the selected senses."""
        if self.softmax is None or self.training is None:
            return F.cross_entropy(self.head(states).float(), answers, reduction="sum"), None
        states = self._transform(states).float()
        targets = self.training.targets({0: states.detach()}, answers, languages, whole)
        selected = (
            states.detach(),
            torch.stack([answers, targets.classes[:, 0], masked.long()], dim=1),
        )
        return self.softmax.loss(states, targets), selected

    def blocks(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """Return the padded blocks of an update, int32 `[n, longest]`, and the mask of subwords
        that are whole words.
        """
        named = [(self.mixture.languages[lang], numbers) for lang, numbers in update]
        width = max(int(blocks.lengths[numbers].max()) for blocks, numbers in named)
        ids, whole = zip(
            *(blocks.padded(numbers, self._special[0], width) for blocks, numbers in named),
            strict=True,
        )
        return np.concatenate(ids), np.concatenate(whole)
