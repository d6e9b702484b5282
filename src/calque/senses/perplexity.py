"""Measure the perplexity of language models on masked words or on next words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calque.corpora.readers import AUTO
from calque.encoders.batches import collate, token_batches
from calque.encoders.folder import BUNDLED, file_pair
from calque.encoders.loading import load_encoder
from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.input_texts import Say, read_languages
from calque.offsets import offsets_of, ranges
from calque.senses.bidirectional import WordModel
from calque.senses.masked import open_masked
from calque.senses.sense_table import SOFTMAX_FILE, Softmax, has_senses
from calque.tasks.base import Score
from calque.tasks.bootstrap import measure, ratio
from calque.text import Sentences

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from calque.encoders.batches import WordBatch
    from calque.encoders.subwords import Subwords
    from calque.encoders.trainable import TrainableEncoder

_LOGITS = 100_000_000  # maximum number of logits in memory at a time


@torch.inference_mode()
def masked_perplexity(
    model: PreTrainedModel,
    splitter: TrainableEncoder | Subwords,
    sentences: Sentences,
    *,
    mask_id: int,
    share: float = 0.15,
    senses: Softmax | None = None,
    seed: int = 0,
    data: str = "",
    name: str = "",
) -> Score:
    """Return the perplexity of masked words, which is exp of the mean of −log p(word | rest of the
    sentence).

    The same random words are masked for every model. All subwords of a word are masked together,
    and the probability of a word is the product of the probabilities of its subwords, so models
    with different vocabularies are comparable.

    Args:
        model: model with a language-model head (`AutoModelForMaskedLM`).
        splitter: encoder of this model, or its subword splitter.
        share: fraction of words to mask in each sentence; at least one word is masked.
        senses: softmax over senses, which replaces the output layer of the head.
        data, name: names of the text and of the model, which are saved with the score.

    Returns:
        the perplexity; its `settings` contain the number of selected words that the model cannot
        read (`left_out`).

    Raises:
        SettingError: the model cannot read any of the selected words.
    """
    if not 0 < share <= 1:
        raise SettingError(f"share must be above 0 and at most 1, got {share}")
    split = splitter.split(sentences)
    chosen = choose_words(np.diff(split.word_offsets), share, seed)
    readable = split.word_lengths[chosen] > 0
    left_out, chosen = int((~readable).sum()), chosen[readable]
    if not len(chosen):
        raise SettingError(
            f"{data or 'the text'} has no word that {name or 'the model'} can read, so there is "
            "nothing to measure"
        )
    # sentence of each masked word, and number of masked words in each sentence
    owner = np.searchsorted(split.word_offsets, chosen, side="right") - 1
    counts = np.bincount(owner, minlength=len(split))
    masked_words = SplitSentences(
        split.ids,
        split.offsets,
        offsets_of(counts),
        split.word_starts[chosen],
        split.word_lengths[chosen],
        pad_id=split.pad_id,
    )
    vocabulary: Any = model.get_input_embeddings()
    budget = max(64, min(4096, _LOGITS // vocabulary.num_embeddings))
    losses = np.zeros(len(chosen))  # −log p of each masked word
    read = np.flatnonzero(counts)  # sentences with masked words
    for part in token_batches(split.lengths[read], budget):
        numbers = read[part]
        batch = collate(masked_words, numbers)
        hidden = torch.from_numpy(ranges(batch.starts.numpy(), batch.lengths.numpy()))
        answers = batch.input_ids.view(-1)[hidden].to(model.device)
        batch.input_ids.view(-1)[hidden] = mask_id
        subword_losses = _losses(model, senses, batch.to(model.device), hidden, answers)
        # The probability of a word is the product of those of its subwords.
        places = ranges(masked_words.word_offsets[numbers], counts[numbers])
        losses[places] = np.add.reduceat(
            subword_losses.double().cpu().numpy(), offsets_of(batch.lengths.numpy())[:-1]
        )
    sums = np.zeros((len(sentences), 2))
    np.add.at(sums, owner, np.stack([losses, np.ones(len(losses))], axis=1))
    subwords_per_word = round(float(split.word_lengths[chosen].mean()), 3)
    about = {
        "share": share,
        "left_out": left_out,
        "encoder": name,
        "subwords_per_word": subwords_per_word,
    }
    return _score(
        "masked-words", f"perplexity.{sentences.lang}", sums, data, sentences.lang, seed, about
    )


def _losses(
    model: PreTrainedModel,
    senses: Softmax | None,
    batch: WordBatch,
    hidden: Tensor,
    answers: Tensor,
) -> Tensor:
    """Return −log p of masked subwords, `[n]`.

    Args:
        hidden: positions of the masked subwords in the flattened batch, int64 `[n]`.
        answers: their ids before masking, int64 `[n]`.
    """
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if senses is None:
        logits = model(**inputs).logits.flatten(0, 1)[hidden]
        return F.cross_entropy(logits.float(), answers, reduction="none")
    bert: Any = model  # only a BERT is trained with senses
    states = bert.bert(**inputs).last_hidden_state.flatten(0, 1)[hidden]
    states = bert.cls.predictions.transform(states).float()
    return senses.negative_log_likelihood(states, answers)


def word_perplexity(
    model: WordModel, sentences: Sentences, *, seed: int = 0, data: str = "", name: str = ""
) -> list[Score]:
    """Return the perplexity of words and sentence ends over both directions, and that of an
    add-one-smoothed unigram model. `settings` contains the perplexity of each direction. All
    out-of-vocabulary words, counted in `unknown`, share one class.

    Raises:
        SettingError: the text has no words.
    """
    sums = model.negative_log_likelihood(sentences)
    forward, backward, _, n, unknown = sums.sum(axis=0).tolist()
    about = {
        "forward": round(math.exp(forward / n), 3),
        "backward": round(math.exp(backward / n), 3),
        "unknown": int(unknown),
        "vocabulary": len(model.vocabulary),
        "encoder": name,
    }
    scores = []
    for metric, losses in (
        ("perplexity", sums[:, :2].mean(axis=1)),
        ("unigram-perplexity", sums[:, 2]),
    ):
        pairs = np.stack([losses, sums[:, 3]], axis=1)
        scores.append(_score("next-word", metric, pairs, data, sentences.lang, seed, about))
    return scores


def _score(
    task: str, metric: str, sums: np.ndarray, data: str, lang: str, seed: int, about: dict[str, Any]
) -> Score:
    """Return exp(mean loss per word) with its confidence interval. `sums` contains each sentence's
    loss and number of words.
    """

    def mean_perplexity(sums: np.ndarray) -> np.ndarray:
        return np.exp(ratio(sums[..., 0], sums[..., 1]))

    measured = measure(sums, mean_perplexity, samples=1000)
    n = int(sums[:, 1].sum())
    return Score(
        task, data, (lang,), metric, *measured.ends, n, seed, about, percent=False, **measured.kept
    )


def choose_words(counts: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return the sorted indices of the words to mask: a fraction `share` of each sentence, but at
    least one word.
    """
    rng = np.random.default_rng(seed)
    chosen = [np.zeros(0, dtype=np.int64)]
    for start, count in zip(offsets_of(counts)[:-1].tolist(), counts.tolist(), strict=True):
        if count:
            n_chosen = max(1, round(share * count))
            chosen.append(start + np.sort(rng.permutation(count)[:n_chosen]))
    return np.concatenate(chosen)


# -- from a folder ---------------------------------------------------------------------------------
def perplexity(
    encoder: str,
    texts: Sequence[tuple[str, str]],
    *,
    share: float = 0.15,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    say: Say = lambda line: None,
) -> list[Score]:
    """Return each language's perplexity of masked words (ELMo: of next words), with probabilities
    summed over senses.

    Arguments not listed here are the options of `calque perplexity`.

    Args:
        texts: pairs of a language and a file with one sentence per line.

    Raises:
        InputError: the folder contains no language model.
    """
    sentences = read_languages(
        texts, format=format, pretokenized=pretokenized, limit=limit, say=say
    )
    files: dict[str, list[str]] = {lang: [] for lang in sentences}
    for lang, path in texts:
        files[lang].append(Path(path).name)
    names = {lang: ", ".join(paths) for lang, paths in files.items()}
    folder = Path(encoder)
    has_next_words = (folder / SOFTMAX_FILE).is_file()
    if has_next_words or (has_senses(folder) and file_pair(folder) is not None):
        word_model, name = WordModel.open(encoder), folder.resolve().name
        scores: list[Score] = []
        for lang, text in sentences.items():
            scores += word_perplexity(word_model, text, seed=seed, data=names[lang], name=name)
        return scores
    loaded: Any = load_encoder(encoder)
    where = str(BUNDLED.get(encoder, encoder))
    model, tokenizer = open_masked(where)
    model.to(loaded.device).eval()
    senses = None
    if has_senses(where):
        words, dim = model.config.vocab_size, model.config.hidden_size
        senses = Softmax.open(where, words=words, dim=dim, tables=1).to(model.device)
    return [
        masked_perplexity(
            model,
            loaded,
            text,
            share=share,
            mask_id=tokenizer.mask_token_id,
            senses=senses,
            seed=seed,
            data=names[lang],
            name=loaded.name,
        )
        for lang, text in sentences.items()
    ]
