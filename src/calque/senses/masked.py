"""Masked language modelling from scratch: an encoder for whoever has text and no encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.encoders.checkpoint import weights_as, weights_digest
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import InputError, SettingError, check_number
from calque.senses.base import LanguageModel, Prediction, Update
from calque.senses.blocks import Blocks, Mixture, mask
from calque.senses.sense_table import SenseTable
from calque.senses.softmax import SenseSoftmax
from calque.senses.training import Selected, Senses, SenseTraining
from calque.senses.translations import Translations
from calque.text import Sentences

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_INSIDE = "##"
# Parts of the head of a masked language model, the same three in every family: dense layer, activation and norm before the
# output layer. RoBERTa's activation is not a part but in its code.
_PARTS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.transform_act_fn", "cls.predictions.transform.LayerNorm"),
    ("lm_head.dense", None, "lm_head.layer_norm"),
    ("vocab_transform", "activation", "vocab_layer_norm"),
    ("head.dense", "head.act", "head.norm"),
    ("generator_predictions.dense", "generator_predictions.activation", "generator_predictions.LayerNorm"),
)  # fmt: skip


def train_tokenizer(
    texts: Mapping[str, Sentences],
    *,
    size: int = 16_000,
    alpha: float = 0.5,
    sample: int = 400_000,
    lower: bool = False,
    seed: int = 0,
) -> PreTrainedTokenizerFast:
    """WordPiece over several languages, with accents, Chinese characters apart.

    Args:
        texts: sentences by language.
        size: subwords of the vocabulary, the special ones included.
        alpha: a language with n sentences is drawn with probability ∝ n^alpha.
        sample: sentences to learn from.
        lower: put all text in lower case first, here and wherever the tokenizer is used.
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
    backend = train_wordpiece(lines(), size=size, letters=size // 4, lower=lower)
    return BertTokenizerFast(
        tokenizer_object=backend._tokenizer, do_lower_case=lower, strip_accents=False, model_max_length=512
    )


def train_wordpiece(
    lines: Iterable[str], *, size: int, letters: int | None = None, lower: bool = False
) -> BertWordPieceTokenizer:
    """A tokenizer like BERT's, with accents, Chinese characters apart.

    The trainer of `tokenizers` numbers letters inside words in the order of a hash table, another one each time, and decides
    by these numbers between merges of equal count (its issue 1794). Here all letters are numbered beforehand.

    Args:
        lines: text.
        size: subwords of the vocabulary, the special ones and the letters included.
        letters: how many different ones at most, the most frequent; None for all.
        lower: whether it puts all text in lower case first.
    """
    from tokenizers import BertWordPieceTokenizer

    def blank(*vocabulary) -> BertWordPieceTokenizer:
        return BertWordPieceTokenizer(*vocabulary, lowercase=lower, strip_accents=False)

    words = Counter(word for line in lines for word in line.split())
    trained = blank()
    counts, inside = Counter[str](), set[str]()
    for word, n in words.items():
        for part, _ in trained.pre_tokenizer.pre_tokenize_str(trained.normalizer.normalize_str(word)):
            inside.update(part[1:])
            for letter in part:
                counts[letter] += n
    alphabet = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters])
    # What is called special comes first and in this order. Only the true ones are special in what is given back.
    trained.train_from_iterator(
        (" ".join([word] * n) for word, n in words.items()),
        vocab_size=size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False,
        special_tokens=[*SPECIAL, *(_INSIDE + letter for letter in alphabet if letter in inside)],
    )  # fmt: skip
    return blank(trained.get_vocab())


@dataclass(kw_only=True, eq=False)
class MaskedLanguageModel(LanguageModel):
    """Trains a BERT from scratch to predict masked subwords (Devlin et al. 2019, §3.1; no next-sentence task).

    Args:
        layers, dim, heads, inner: shape of the model; by default heads of 64 dimensions, but four where that many of 32
            or more fit, and an inner size of 4 · dim.
        positions: longest text the model takes, in subwords.
        share: of subwords hidden.
        dropout: of states and of attention.
        initial: standard deviation of the weights at the beginning; None: 0.02 · (768 / dim)^0.5.
        segments: kinds of segments that the model can tell apart. Only the first is trained.
        learning_rate: the highest; None: 1e-4 · (768 / dim)^1.5.
        length, alpha, batch, updates, warmup, decay, clip, seed, precision: see `LanguageModel`.
        start: folder of a BERT with its head to go on from, instead of random weights; its shape counts then, and its
            tokenizer is the one to train with.
    """

    layers: int = 6
    heads: int | None = None
    inner: int | None = None
    positions: int = 256
    share: float = 0.15
    dropout: float = 0.0
    initial: float | None = None
    segments: int = 1
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
        check_number("dropout", self.dropout, least=0, below=1)
        check_number("segments", self.segments, least=1, whole=True)
        if self.initial is not None:
            check_number("initial", self.initial, above=0)
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
        return {
            "method": "masked language model",
            **self.shape,
            **{n: getattr(self, n) for n in names},
            **self._unusual(),
            **start,
            **super().settings(),
        }

    def _unusual(self) -> dict[str, Any]:
        """Settings of which only those that differ from the usual ones are told."""
        usual = {"dropout": 0.0, "initial": None, "segments": 1}
        return {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}

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
            dictionaries: between these languages; for senses.
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
            initial = 0.02 * (768 / self.dim) ** 0.5 if self.initial is None else self.initial
            config = BertConfig(
                vocab_size=len(tokenizer), pad_token_id=pad, type_vocab_size=self.segments,
                hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout, initializer_range=initial,
                **self.shape,
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
        identity: dict[str, Any] = {"tokenizer": tokenizer.get_vocab()}
        of_all: Any = {"body": model.bert, "tokenizer": tokenizer, "share": self.share}
        if self.senses is not None:
            softmax = self.sense_softmax = self._sense_softmax(self.senses, model, mixture).to(processes.device)
            training = self._training(self.senses, softmax, encoder, mixture, dictionaries, processes)
            identity |= training.identity
            transform = model.cls.predictions.transform
            objective: Prediction = MaskedSensePrediction(mixture, processes, transform, softmax, training, **of_all)
        elif dictionaries:
            raise SettingError("a dictionary translates senses: say how many a word has at most, 2 or more")
        else:
            objective = MaskedPrediction(model, mixture, processes, head=model.cls, **of_all)
        self._run(objective, identity=identity, folder=folder, checkpoint_every=checkpoint_every, progress=progress)
        model.eval()
        return HuggingFaceEncoder(model.bert, tokenizer, name="pretrained")

    def _sense_softmax(self, senses: Senses, model: Any, mixture: Mixture) -> SenseSoftmax:
        """Untied from the embeddings; of a model to go on from, the first senses begin with its output layer."""
        head: Any = model.cls.predictions.decoder
        (table,) = senses.tables(_counts(mixture, len(head.weight)), self.shape["hidden_size"])
        if self.start is not None:
            table.begin_with(head.weight, head.bias)
        return SenseSoftmax([table], negatives=None)

    def _training(
        self, senses: Senses, softmax: SenseSoftmax, encoder: HuggingFaceEncoder, mixture: Mixture,
        dictionaries: Sequence[Dictionary], processes: Processes,
    ) -> SenseTraining:  # fmt: skip
        if dictionaries:
            words, counts = whole_words(encoder, dictionaries), _counts(mixture, softmax.senses[0].n_words)
            words = dict(sorted(words.items(), key=lambda item: -counts[item[1]]))
            self.translations = Translations(dictionaries, list(mixture.languages), words)
        return SenseTraining(softmax.senses, senses, self.updates, processes, self.translations, self.seed)

    def _started(self, vocabulary: int) -> Any:
        """The model to go on from, in float32."""
        from transformers import AutoConfig, BertForMaskedLM

        try:
            config = AutoConfig.from_pretrained(str(self.start))
            if config.model_type != "bert":
                raise SettingError(f"{self.start} is a {config.model_type}: only a BERT can be trained further")
            loaded: Any = BertForMaskedLM.from_pretrained(
                str(self.start), **weights_as(torch.float32), output_loading_info=True
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


def _counts(mixture: Mixture, size: int) -> np.ndarray:
    """How often each subword occurs in the text, int64 `[size]`."""
    return np.sum([np.bincount(blocks.ids, minlength=size) for blocks in mixture.languages.values()], axis=0)


@torch.no_grad()
def untie(model: Any, table: SenseTable) -> None:
    """Give a BERT's output layer, apart from the embeddings, one vector and bias for each subword: its most selected sense's.

    Then it predicts without its senses, too, though not as well as with them.
    """
    head, chosen = model.cls.predictions, table.most_selected()
    model.config.tie_word_embeddings = False
    head.decoder.weight = torch.nn.Parameter(table.weight[chosen].clone())
    # Two of them, as transformers keeps them where the layer is not tied.
    head.bias, head.decoder.bias = (torch.nn.Parameter(table.bias[chosen].clone()) for _ in range(2))


def whole_words(encoder: HuggingFaceEncoder, dictionaries: Sequence[Dictionary]) -> dict[str, int]:
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


class Hidden(NamedTuple):
    """The hidden subwords that a process predicts.

    Attributes:
        answers: int64 `[n]`, what they are.
        languages: int64 `[n]`, index of the language of each one's text.
        words: bool `[n]`, whether each is a whole word.
        masked: bool `[n]`, whether the mask stands in its place.
    """

    answers: Tensor
    languages: Tensor
    words: Tensor
    masked: Tensor


class MaskedPrediction(Prediction):
    """The mean cross-entropy of hidden subwords, predicted from the last layer's states in the place of each.

    Args:
        module: all that is trained.
        mixture, processes: see `Prediction`.
        body: model of `transformers` without its head.
        tokenizer: of the body, with a mask.
        share: of the subwords to hide.
        visible: see `mask`.
        head: gives scores of all subwords.
    """

    def __init__(
        self, module: nn.Module, mixture: Mixture, processes: Processes, *, body: nn.Module, tokenizer: Any, share: float,
        visible: float = 0.1, head: nn.Module | None = None,
    ):  # fmt: skip
        super().__init__(module, mixture, processes)
        self.body, self.head, self.share, self.visible = body, head, share, visible
        self._special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)

    def backward(self, update: Update) -> dict[str, float]:
        ids, whole = self._ids(update)
        # The text that is hidden follows from the update's own random state, which `Loop` sets from its number and from the
        # rank; without the rank it is the same in every process.
        shared = torch.Generator().manual_seed(torch.initial_seed() - self.processes.rank)
        read, chosen = mask(
            ids, self._special, mask_id=self._mask_id, vocabulary=self._vocabulary, share=self.share, visible=self.visible,
            rng=np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=shared))),
        )  # fmt: skip
        row, mine = chosen // ids.shape[1], self.processes.share(np.arange(len(ids)))
        loss, selected = torch.zeros((), device=self.processes.device), None
        if len(mine):
            own = np.isin(row, mine)
            answers, masked = ids.flat[chosen[own]].astype(np.int64), read.flat[chosen[own]] == self._mask_id
            about = answers, self._languages(update)[row[own]], whole.flat[chosen[own]], masked
            part = torch.from_numpy(read[mine].astype(np.int64)).to(self.processes.device)
            places = torch.from_numpy(chosen[own] - mine[0] * ids.shape[1]).to(part.device)
            with self.processes.autocast():
                inside = (part != self._special[0]).long()
                states = self.body(input_ids=part, attention_mask=inside).last_hidden_state.flatten(0, 1)[places]
                total, selected = self._term(
                    states.float(), Hidden(*(torch.from_numpy(x).to(part.device) for x in about))
                )
                loss = total / len(chosen)
            loss.backward()
        self._finish(
            selected, [int(np.isin(row, of_one).sum()) for of_one in self.processes.shares(np.arange(len(ids)))]
        )
        return {"loss": float(self.processes.sum_numbers(loss.detach()))}

    def _term(self, states: Tensor, hidden: Hidden) -> tuple[Tensor, Selected | None]:
        """Return the summed loss of this process's hidden subwords, and the senses that were selected."""
        assert self.head is not None
        return F.cross_entropy(self.head(states).float(), hidden.answers, reduction="sum"), None

    def _finish(self, selected: Selected | None, counts: list[int]) -> None:
        """Take what an update left besides the gradients.

        Args:
            selected: by this process; None where it has no text.
            counts: number of hidden subwords of every process.
        """

    def _ids(self, update: Update) -> tuple[np.ndarray, np.ndarray]:
        """Return the blocks of an update, int32 `[n, longest]`, and which of their subwords are whole words, bool."""
        pad, named = self._special[0], [(self.mixture.languages[lang], numbers) for lang, numbers in update]
        width = max(int(blocks.lengths[numbers].max()) for blocks, numbers in named)
        parts = [(blocks.padded(numbers, pad), blocks.whole_words(numbers)) for blocks, numbers in named]
        ids, whole = (
            [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill) for part in of_all]
            for of_all, fill in zip(zip(*parts, strict=True), (pad, False), strict=True)
        )
        return np.concatenate(ids), np.concatenate(whole)


class MaskedSensePrediction(MaskedPrediction):
    """The mean cross-entropy of senses of hidden subwords, and of translations of whole words (Multi-sense, Eqs. 4 to 7).

    Selected by and predicted from the state after the head's dense layer and norm.

    Args:
        mixture, processes: see `Prediction`.
        transform: what stands between the body's states and the scores.
        senses: predicts in place of the head's last layer.
        training: of its table.
        about: `body`, `tokenizer`, `share` and `visible` of `MaskedPrediction`.
    """

    def __init__(
        self, mixture: Mixture, processes: Processes, transform: nn.Module, senses: SenseSoftmax, training: SenseTraining,
        **about: Any,
    ):  # fmt: skip
        module = nn.ModuleDict({"model": about["body"], "transform": transform, "senses": senses})
        super().__init__(module, mixture, processes, **about)
        self.transform, self.senses, self.training = transform, senses, training
        training.begin()

    def _term(self, states: Tensor, hidden: Hidden) -> tuple[Tensor, Selected]:
        states, answers = self.transform(states).float(), hidden.answers
        targets = self.training.targets({0: states.detach()}, answers, hidden.languages, hidden.words)
        selected = Selected(states.detach(), answers, targets.classes[:, 0], unread=hidden.masked)
        return self.senses.loss(states, targets, 0), selected

    def _finish(self, selected: Selected | None, counts: list[int]) -> None:
        self.training.keep([selected], counts)

    def after_update(self, step: int) -> None:
        self.training.after_update(step)


class Head(NamedTuple):
    """score(v | state) = weight_v · transform(state) + bias_v.

    Attributes:
        transform: from states of the last layer, `[n, dim]` to `[n, inner]`.
        weight: `[n_subwords, inner]`.
        bias: `[n_subwords]`.
    """

    transform: nn.Module
    weight: Tensor
    bias: Tensor


class Transform(nn.Module):
    """norm(activation(dense(state)))."""

    def __init__(self, dense: nn.Module, activation: Callable[[Tensor], Tensor], norm: nn.Module):
        super().__init__()
        self.dense, self.activation, self.norm = dense, activation, norm

    def forward(self, states: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(states)))


def head_of(model: Any) -> Head | None:
    """The head of a masked language model of `transformers`: of BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, DeBERTa (v2 and
    v3 as published), ModernBERT, ELECTRA's generator, and whatever else is built as one of these; None of any other.

    Its modules are the model's own; weight and bias are those of the output layer.
    """
    output = model.get_output_embeddings()
    known = dict(model.named_modules())
    for dense, activation, norm in _PARTS:
        if isinstance(output, nn.Linear) and {dense, norm} <= known.keys() and (not activation or activation in known):
            activate: Any = known[activation] if activation else F.gelu
            bias = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias
            return Head(Transform(known[dense], activate, known[norm]), output.weight, bias)
    return None
