"""Train a masked language model (BERT) from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from calque.errors import InputError, SettingError, check_number
from calque.input_texts import Say
from calque.senses.sense_table import SenseTable, Softmax
from calque.senses.text import Blocks, Mixture, mask
from calque.senses.training import (
    LanguageModel,
    Prediction,
    Pretrained,
    Selected,
    SenseTraining,
    Update,
)
from calque.spec import Count, Share, option
from calque.text import Sentences

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertForMaskedLM, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CONTINUATION = "##"  # prefix of subwords that do not begin a word
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
    sample_sizes = counts**alpha / (counts**alpha).sum() * min(_SAMPLE, counts.sum())

    def lines() -> Iterator[str]:
        for text, size in zip(texts.values(), sample_sizes.tolist(), strict=True):
            yield from _sampled_lines(text, round(size), rng)

    # Single characters are limited to a quarter of the vocabulary, because Chinese has many rare
    # characters.
    backend = train_wordpiece(lines(), size=size, letters=size // 4, lower=lower)
    return BertTokenizerFast(
        tokenizer_object=backend._tokenizer,
        do_lower_case=lower,
        strip_accents=False,
        model_max_length=512,
    )


def _sampled_lines(text: Sentences, count: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield `count` random sentences; each sentence is repeated only after all others."""
    while count > 0:
        drawn = np.sort(rng.permutation(len(text))[:count])
        for k in drawn.tolist():
            yield " ".join(text[k].words)
        count -= len(drawn)


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

    def tokenizer(*vocabulary: dict[str, int]) -> BertWordPieceTokenizer:
        return BertWordPieceTokenizer(*vocabulary, lowercase=lower, strip_accents=False)

    words, letter_counts, inner_letters = Counter[str](), Counter[str](), set[str]()
    for line in lines:
        words.update(line.split())
    trained = tokenizer()
    for word, n in words.items():
        normalised = trained.normalizer.normalize_str(word)
        for part, _ in trained.pre_tokenizer.pre_tokenize_str(normalised):
            inner_letters.update(part[1:])
            for letter in part:
                letter_counts[letter] += n
    # Equally frequent letters are sorted by their code.
    by_frequency = sorted(letter_counts, key=lambda letter: (-letter_counts[letter], letter))
    alphabet = sorted(by_frequency[:letters])
    inner = [_CONTINUATION + letter for letter in alphabet if letter in inner_letters]
    trained.train_from_iterator(
        (" ".join([word] * n) for word, n in words.items()),
        vocab_size=size,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
        special_tokens=[*SPECIAL, *inner],
    )
    # In a new tokenizer with this vocabulary, the characters are not special tokens.
    return tokenizer(trained.get_vocab())


@dataclass(frozen=True, kw_only=True)
class PretrainedBert(Pretrained):
    """Trained masked language model.

    Attributes:
        half: whether to save the weights in float16.
    """

    encoder: HuggingFaceEncoder
    model: BertForMaskedLM
    half: bool

    @property
    def sizes(self) -> tuple[int, int]:
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return len(self.encoder.tokenizer), n_parameters

    def save(self, folder: Path) -> None:
        from calque.encoders.sentence_transformers import write_modules

        self.encoder.save(folder)
        if self.softmax is not None:
            self.softmax.save(folder, self.settings.get("senses", {}))
            untie(self.model, self.softmax.senses[0])
        self.model.to(dtype=torch.float16 if self.half else torch.float32)  # type: ignore[call-arg]
        # Replace the saved encoder with the model that includes the head.
        save_model(self.model, folder)
        tokenizer = self.encoder.tokenizer
        write_modules(
            folder, dim=self.encoder.dim, max_length=tokenizer.model_max_length, tokenizer=tokenizer
        )
        write_about(
            folder, "huggingface", read_about(folder) | {"max_length": None, "own_pooling": False}
        )


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModel(LanguageModel):
    """Trains a BERT model from scratch to predict masked subwords (Devlin et al. 2019, §3.1,
    without next-sentence prediction).
    """

    unit = "subwords"
    learning_rate: float | None = option(
        None, "maximum learning rate; default: 1e-4 · (768 / dim)^1.5."
    )
    layers: Count = option(6, "number of layers.")
    heads: Count | None = option(
        None,
        "number of attention heads; default: the larger of dim / 64 and min(4, dim / 32), rounded "
        "down.",
    )
    inner: Count | None = option(
        None, "intermediate size of the feed-forward networks; default: 4 · dim."
    )
    positions: Count = option(256, "maximum number of subwords in an input.")
    share: float = option(0.15, "fraction of subwords to mask.")
    dropout: Share = option(0.0, "dropout probability for hidden states and attention.")
    initial: float | None = option(
        None, "standard deviation of the initial weights; default: 0.02 · (768 / dim)^0.5."
    )
    warmup: float = 0.05
    decay: Literal["constant", "linear", "cosine"] = "cosine"
    clip: float | None = 1.0
    vocabulary: Count = option(16_000, "vocabulary size of the tokenizer to train.")
    start: str | Path | None = option(
        None,
        "BERT model with a language-model head (folder or `mini`) to continue training; its sizes "
        "and tokenizer are kept.",
    )
    half: bool = option(False, "whether to save the weights in float16.")

    def __post_init__(self):
        super().__post_init__()
        shape = self.shape
        heads, inner = shape["num_attention_heads"], shape["intermediate_size"]
        for name, value in (("layers", self.layers), ("heads", heads), ("inner", inner)):
            check_number(name, value, least=1, whole=True)
        check_number("share", self.share, above=0, below=1)
        check_number("dropout", self.dropout, least=0, below=1)
        if self.initial is not None:
            check_number("initial", self.initial, above=0)
        check_number("positions", self.positions, least=4, whole=True)
        check_number("length", self.length, least=4, most=self.positions, whole=True)
        if self.dim % heads:
            raise SettingError(
                f"dim must be divisible by the number of heads, got dim={self.dim} and {heads} "
                "heads"
            )

    @property
    def shape(self) -> dict[str, Any]:
        """Arguments of `BertConfig` that determine the sizes of a new model."""
        heads, inner = self.heads, self.inner
        if heads is None:
            heads = max(1, self.dim // 64, min(4, self.dim // 32))
        if inner is None:
            inner = 4 * self.dim
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.dim,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "max_position_embeddings": self.positions,
        }

    def default_rate(self) -> float:
        return 1e-4 * (768 / self.dim) ** 1.5

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"method": "masked language model", **self.shape}
        for name in ("length", "share", "alpha", "batch", "updates", "precision", "seed"):
            settings[name] = getattr(self, name)
        # These settings are recorded only if they are given.
        for name in ("dropout", "initial"):
            if getattr(self, name):
                settings[name] = getattr(self, name)
        if self.start is not None:
            settings["start"] = Path(self._start_model).name
        return {**settings, **super().settings()}

    @property
    def _start_model(self) -> str:
        """Folder or hub name of `start`, which may be the name of a bundled model."""
        return str(BUNDLED.get(str(self.start), self.start))

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
    ) -> PretrainedBert:
        """Train a new encoder.

        Args:
            tokenizer: tokenizer with a mask token and boundary tokens; default: the tokenizer of
                `start`, or a new tokenizer.
        """
        processes = Processes(self.precision)
        started, settings, identity = None, self.settings(), {}
        if self.start is not None:
            started, start_tokenizer = self._open_start()
            tokenizer = start_tokenizer if tokenizer is None else tokenizer
            settings |= {name: getattr(started.config, name) for name in self.shape}
            identity["start_weights"] = weights_digest(started)
        if tokenizer is None:
            say(f"training a tokenizer with {self.vocabulary:,} subwords")
            tokenizer = train_tokenizer(
                texts, size=self.vocabulary, alpha=self.alpha, lower=self.lower, seed=self.seed
            )
        torch.manual_seed(self.seed)
        model = self._new_model(tokenizer) if started is None else started
        self._check_sizes(model, tokenizer)
        tokenizer.model_max_length = model.config.max_position_embeddings
        encoder = HuggingFaceEncoder(
            model.bert, tokenizer, pooling="last", max_length=self.length, name="pretrained"
        )
        blocks = {lang: Blocks.of(encoder.split(text), self.length) for lang, text in texts.items()}
        mixture = Mixture(blocks, batch=self.batch, alpha=self.alpha, seed=self.seed)
        model.to(device=processes.device).train()  # type: ignore[call-arg]
        counts = np.zeros(len(tokenizer), dtype=np.int64)  # frequency of each subword
        for language_blocks in blocks.values():
            counts += np.bincount(language_blocks.ids, minlength=len(tokenizer))
        softmax = self._softmax(counts, model.config.hidden_size, started)
        if softmax is not None:
            softmax.to(processes.device)
        words = whole_words(encoder, dictionaries)
        by_frequency = dict(sorted(words.items(), key=lambda item: -counts[item[1]]))
        translations = self._translations(dictionaries, list(mixture.languages), by_frequency)
        objective = MaskedPrediction(
            model,
            mixture,
            processes,
            tokenizer=tokenizer,
            share=self.share,
            softmax=softmax,
            training=self._sense_training(softmax, translations, processes),
        )
        history = self._run(
            objective,
            settings=settings,
            identity={"tokenizer": tokenizer.get_vocab(), **identity},
            folder=folder,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        model.eval()
        return PretrainedBert(
            # The results in docs/ read the last subword.
            encoder=HuggingFaceEncoder(model.bert, tokenizer, pooling="last", name="pretrained"),
            model=model,
            softmax=softmax,
            settings=settings,
            lower=self.lower and started is None,
            translations=translations,
            mixture=mixture,
            history=history,
            half=self.half,
        )

    def _open_start(self) -> tuple[BertForMaskedLM, PreTrainedTokenizerFast]:
        """Open the model whose training is continued, and its tokenizer."""
        model, tokenizer = open_masked(self._start_model)
        if model.config.model_type != "bert":
            raise SettingError(
                f"start must be a BERT model, but {self._start_model} has type "
                f"{model.config.model_type}"
            )
        return model, tokenizer

    def _check_sizes(self, model: BertForMaskedLM, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raise an error if `start` does not fit the tokenizer or the block length."""
        vocabulary, positions = model.config.vocab_size, model.config.max_position_embeddings
        if vocabulary != len(tokenizer) or positions < self.length:
            raise SettingError(
                f"{self._start_model} has a vocabulary of {vocabulary} and {positions} positions, "
                f"but the tokenizer has {len(tokenizer)} subwords, and the block length is "
                f"{self.length}"
            )

    def _softmax(
        self, counts: np.ndarray, dim: int, started: BertForMaskedLM | None
    ) -> Softmax | None:
        """Return a softmax over senses, which is not tied to the embeddings, or None if the model
        has no senses.

        Args:
            counts: frequency of each subword in the text, int64 `[vocabulary]`.
            started: model whose training is continued.
        """
        if self.senses is None:
            return None
        (table,) = self.senses.tables(counts, dim)
        if started is not None:
            _copy_output(started, table)
        return Softmax([table])

    def _new_model(self, tokenizer: PreTrainedTokenizerFast) -> BertForMaskedLM:
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
def _copy_output(model: BertForMaskedLM, table: SenseTable) -> None:
    """Initialise the first sense of each word with the output layer of a model."""
    decoder, first = model.cls.predictions.decoder, table.index[:, 0]
    table.weight[first], table.bias[first] = decoder.weight.cpu(), decoder.bias.cpu()


@torch.no_grad()
def untie(model: BertForMaskedLM, table: SenseTable) -> None:
    """Untie BERT's output layer from the embeddings, and set each output vector to the vector of
    the most selected sense.
    """
    head, classes = model.cls.predictions, table.most_selected()
    model.config.tie_word_embeddings = False
    head.decoder.weight = nn.Parameter(table.weight[classes].clone())
    # transformers stores the output bias twice if the layer is not tied.
    head.bias = nn.Parameter(table.bias[classes].clone())
    head.decoder.bias = nn.Parameter(table.bias[classes].clone())


def whole_words(encoder: HuggingFaceEncoder, dictionaries: Sequence[Dictionary]) -> dict[str, int]:
    """Return the ids of dictionary words that are single subwords, including their lower-cased and
    capitalised variants.
    """
    distinct: set[str] = set()
    for dictionary in dictionaries:
        distinct.update(dictionary.source, dictionary.target)
    words = sorted(distinct)
    words += [word.lower() for word in words] + [word.capitalize() for word in words]
    words = list(dict.fromkeys(words))
    ids = encoder.single_subwords(words).tolist()
    return {word: k for word, k in zip(words, ids, strict=True) if k >= 0}


@torch.no_grad()
def _sinusoids(table: Tensor, size: float) -> None:
    """Initialise position embeddings with sinusoids (Vaswani et al. 2017, §3.5) that have the
    standard deviation `size`.
    """
    n, dim = table.shape
    even = torch.arange(0, dim, 2, dtype=torch.float64)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * 10_000.0 ** (-even / dim)
    # Sine and cosine alternate along the dimensions. A sinusoid has the mean square 1/2.
    waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
    table.copy_(waves * (size * 2**0.5))


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
        self._transform = model.cls.predictions.transform  # dense layer and layer norm
        module: nn.Module = model
        if softmax is not None:  # train without the output layer of the head
            module = nn.ModuleDict(
                {"model": model.bert, "transform": self._transform, "senses": softmax}
            )
        super().__init__(module, mixture, processes, training)
        self._pad_id, self._mask_id = tokenizer.pad_token_id, tokenizer.mask_token_id
        self._special = [self._pad_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
        self._vocabulary = len(tokenizer)

    def backward(self, update: Update) -> dict[str, float]:
        ids, whole = self.blocks(update)
        # `Loop` adds the rank to the seed of each update. Subtract it, so that all processes mask
        # the same subwords.
        shared = torch.Generator().manual_seed(torch.initial_seed() - self.processes.rank)
        masked_ids, chosen = mask(
            ids,
            self._special,
            mask_id=self._mask_id,
            vocabulary=self._vocabulary,
            share=self.share,
            rng=np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=shared))),
        )
        block = chosen // ids.shape[1]  # block of each chosen subword
        shard = self.processes.share(np.arange(len(ids)))  # consecutive blocks of this process
        device = self.processes.device
        loss, selected = torch.zeros((), device=device), None
        if len(shard):
            in_shard = np.isin(block, shard)
            block_in_shard, chosen_in_shard = block[in_shard], chosen[in_shard]
            predicted = (
                ids.flat[chosen_in_shard].astype(np.int64),
                self._languages(update)[block_in_shard],
                whole.flat[chosen_in_shard],
                masked_ids.flat[chosen_in_shard] == self._mask_id,
            )
            shard_ids = torch.from_numpy(masked_ids[shard].astype(np.int64)).to(device)
            places = torch.from_numpy(chosen_in_shard - shard[0] * ids.shape[1]).to(device)
            with self.processes.autocast():
                states = self.body(
                    input_ids=shard_ids, attention_mask=(shard_ids != self._pad_id).long()
                ).last_hidden_state
                states = states.flatten(0, 1)[places].float()  # of the chosen subwords
                total, selected = self._term(
                    states, *(torch.from_numpy(array).to(device) for array in predicted)
                )
                # The mean is over the chosen subwords of all processes, whose gradients are summed.
                loss = total / len(chosen)
            loss.backward()
        return self._finish(loss, [selected], np.bincount(block, minlength=len(ids)))

    def _term(
        self, states: Tensor, subwords: Tensor, languages: Tensor, whole: Tensor, masked: Tensor
    ) -> tuple[Tensor, Selected | None]:
        """Return the total loss of this process's chosen subwords, and the selected senses.

        Args:
            states: last hidden states at the chosen subwords, `[n, dim]`.
            subwords, languages: ids of the chosen subwords and of their languages, int64 `[n]`.
            whole, masked: whether each subword is a whole word, and whether it was replaced with
                the mask token, bool `[n]`.
        """
        if self.softmax is None or self.training is None:
            logits = self.head(states).float()
            return F.cross_entropy(logits, subwords, reduction="sum"), None
        states = self._transform(states).float()
        targets = self.training.targets({0: states.detach()}, subwords, languages, whole)
        numbers = torch.stack([subwords, targets.classes[:, 0], masked.long()], dim=1)
        return self.softmax.loss(states, targets), Selected(states.detach(), numbers)

    def blocks(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """Return the padded blocks of an update, int32 `[n, longest]`, and the mask of subwords
        that are whole words.
        """
        parts = [(self.mixture.languages[lang], numbers) for lang, numbers in update]
        width = max(int(blocks.lengths[numbers].max()) for blocks, numbers in parts)
        ids, whole = [], []
        for blocks, numbers in parts:
            part_ids, part_whole = blocks.padded(numbers, self._pad_id, width)
            ids.append(part_ids)
            whole.append(part_whole)
        return np.concatenate(ids), np.concatenate(whole)
