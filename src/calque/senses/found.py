"""Senses learned in pretraining, or induced from text by clustering the hidden states that predict
words (`calque senses`).
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.algebra.normalize import unit_rows
from calque.corpora.languages import language_and_path
from calque.corpora.plain import read_sentences
from calque.encoders import load_encoder
from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.extraction import word_counts
from calque.encoders.folder import file_pair, read_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import arithmetic
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.clusters import FEWEST_WORDS, MIN_VECTORS, discriminant_axes, split_words
from calque.senses.elmo import ElmoEncoder
from calque.senses.masked import open_masked, single_subwords
from calque.senses.sense_table import SenseTable, open_senses
from calque.senses.text import FIRST_WORD, Vocabulary
from calque.storage import write_lines
from calque.text import Sentence, Sentences, number_words

#: every seventh word of a sentence is masked, which is about the same fraction as in pretraining
EVERY = 7
_WINDOW = 16_384  # number of sentences whose hidden states are in memory at a time
_WORDS = 2000  # maximum number of words with senses; the most frequent words are used
_OCCURRENCES = 200  # maximum number of occurrences to cluster for each word
_EXAMPLES = 3  # number of example sentences for each sense


class Neighbour(NamedTuple):
    """Sense with a large cosine to a given sense: its word's index, its number within the word, and
    the cosine.
    """

    word: int
    number: int
    cosine: float


class Inventory:
    """Inventory of word senses. The senses of each word are numbered from 1.

    Args:
        name: name of the model.
        words: words that have senses.
        n_senses: number of senses of each word, int64 `[n_words]`.
        shares: fraction of each word's occurrences with each sense, float64 `[n_words, k]`, padded
            with 0.
        vectors: L2-normalised vectors of the senses, `[n_senses, dim]`, sorted by word and number.
        lower: whether to lower-case words before they are looked up.
    """

    lacks = "is not in the vocabulary of {}"

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        n_senses: np.ndarray,
        shares: np.ndarray,
        vectors: Tensor,
        *,
        lower: bool = False,
    ):
        self.name, self.words, self.lower = name, words, lower
        self.n_senses, self.shares, self.vectors = n_senses, shares, vectors
        self._index = {form: k for k, form in enumerate(words)}
        #: word index and number of each sense, int64 `[n, 2]`
        self.senses = np.stack(
            [np.repeat(np.arange(len(n_senses)), n_senses), ranges(0 * n_senses, n_senses) + 1],
            axis=1,
        )

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """Return the index of each word, int64 `[n]`, or −1 for a word without senses."""
        forms = (word.lower() if self.lower else word for word in words)
        return np.fromiter(
            (self._index.get(form, -1) for form in forms), dtype=np.int64, count=len(words)
        )

    def in_text(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the index of each word in a text, int64 `[n]`, or −1 for a word without senses."""
        types, numbers, _ = number_words(sentences)
        return self.numbers(types)[numbers]

    def find(self, word: str) -> int:
        """Return the index of a word.

        Raises:
            SettingError: the word has no senses. The message suggests similar words.
        """
        number = int(self.numbers([word])[0])
        if number < 0:
            close = difflib.get_close_matches(word, self.words, n=3, cutoff=0.7)
            hint = (
                f"did you mean {' or '.join(close)}?" if close else "only whole words have senses"
            )
            raise SettingError(f"{word!r} {self.lacks.format(self.name)}: {hint}")
        return number

    def nearest(
        self, word: int, number: int, k: int, among: np.ndarray | None = None
    ) -> list[Neighbour]:
        """Return the k senses (of any word) with the largest cosine to a sense, nearest first.

        Args:
            among: mask of the words to search, bool `[n_words]`; default: all words.
        """
        own = int(self.n_senses[:word].sum()) + number - 1
        cosines = (self.vectors @ self.vectors[own]).double().numpy()
        cosines[own] = -np.inf
        if among is not None:
            cosines[~among[self.senses[:, 0]]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:k]
        found = (
            (*self.senses[r].tolist(), float(cosines[r])) for r in best if np.isfinite(cosines[r])
        )
        return [Neighbour(word, number, cosine) for word, number, cosine in found]

    def languages(self, texts: Sequence[Sentences]) -> np.ndarray | None:
        """Return the language in which each word has the highest relative frequency, or None for
        words that no text contains.

        Returns:
            an array of language names, `[n_words]`; None if the languages of all texts are unknown.
        """
        uses: dict[str, np.ndarray] = {}
        for text in texts:
            if text.lang:
                words = self.in_text(text)
                counts = np.bincount(words[words >= 0], minlength=len(self.words))
                uses[text.lang] = uses.get(text.lang, 0) + counts
        if not uses:
            return None
        shares = np.stack([counts / max(1, counts.sum()) for counts in uses.values()])
        names = np.array([*uses, None], dtype=object)
        return names[np.where(shares.any(axis=0), shares.argmax(axis=0), len(uses))]


# -- senses learned in pretraining
# ---------------------------------------------------------------------------------------
def trained_senses(folder: str | PathLike[str]) -> Inventory:
    """Open the senses that `calque pretrain --senses` saved. For ELMo, these are the senses of the
    forward direction; for BERT, the senses of words that are single subwords.

    Raises:
        InputError: a file is missing or corrupt.
    """
    path = Path(folder)
    (table, *more), name = open_senses(path), path.resolve().name
    if file_pair(path) is not None and not (path / "config.json").is_file():
        vocabulary = Vocabulary.open(path)
        if len(more) != 1 or table.n_words != len(vocabulary):
            raise InputError(
                f"the senses do not belong to the vocabulary of {len(vocabulary):,} words",
                path=path,
            )
        numbers = np.arange(FIRST_WORD, len(vocabulary))
        return inventory_of(
            name, vocabulary.words, numbers, table, lower=bool(read_about(path).get("lower"))
        )
    tokenizer = open_masked(path)[1]
    if more or len(tokenizer) != table.n_words:
        raise InputError(
            f"{table.n_words:,} subwords have senses, but the tokenizer has {len(tokenizer):,}",
            path=path,
        )
    forms = [
        form.strip() for form in tokenizer.batch_decode(np.arange(len(tokenizer))[:, None].tolist())
    ]
    # A subword is a whole word if the tokenizer maps its text back to only this subword.
    single = single_subwords(Subwords(tokenizer, max_length=8, vocabulary=len(tokenizer)), forms)
    numbers = np.flatnonzero(single == np.arange(len(forms)))
    lower = bool(getattr(tokenizer, "do_lower_case", False))
    return inventory_of(name, [forms[k] for k in numbers], numbers, table, lower=lower)


def inventory_of(
    name: str, words: Sequence[str], numbers: np.ndarray, table: SenseTable, *, lower: bool = False
) -> Inventory:
    """Return the active senses of the words with indices `numbers` in a table, with the most
    selected senses first. If no sense of a word was ever selected, all its senses have equal
    shares."""
    index = table.index.cpu()[torch.from_numpy(numbers)]  # [n, S]
    live = table.live.cpu()[index.clamp(min=0)] & (index >= 0)
    counts = torch.where(live, table.counts.cpu()[index.clamp(min=0)], -1)
    order = torch.argsort(-counts, dim=1, stable=True)[:, : int(live.sum(1).max())]
    live, counts, classes = (
        live.gather(1, order),
        counts.gather(1, order).clamp(min=0).double(),
        index.gather(1, order),
    )
    shares = torch.where(counts.any(1, keepdim=True), counts, live.double())
    vectors = nn.functional.normalize(table.weight.detach().cpu()[classes[live]], dim=1, eps=1e-30)
    shares = (shares / shares.sum(1, keepdim=True)).numpy()
    return Inventory(name, words, live.sum(1).numpy(), shares, vectors, lower=lower)


# -- states that predict words
# -------------------------------------------------------------------------------------------
class Contexts:
    """Reads the hidden states from which ELMo predicts words, see `ElmoEncoder.encode_contexts`."""

    def __init__(self, encoder: Any, lower: bool):
        self.encoder, self.lower = encoder, lower

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        """Return the mask of words that the model predicts from a single state, bool `[n]`."""
        return np.ones(len(words), dtype=bool)

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of words that are within the length limit and not dropped by the
        tokenizer, bool `[n_words]`.
        """
        return np.ones(int(word_counts(sentences).sum()), dtype=bool)

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states that predict the given words, `[n, dim]`.

        Args:
            rows: ascending indices of the words among all words of the sentences, int64 `[n]`.
        """
        offsets, parts = offsets_of(word_counts(sentences)), []
        for start in range(0, len(sentences), _WINDOW):
            data = self.encoder.encode_contexts(sentences[start : start + _WINDOW]).data
            first, last = np.searchsorted(rows, [offsets[start], offsets[start] + len(data)])
            parts.append(torch.from_numpy(data[rows[first:last] - offsets[start]]))
        return torch.cat(parts)


class MaskedContexts(Contexts):
    """Reads the states of masked words in a masked language model: the output of the head's dense
    layer and layer norm.

    In each copy of a sentence, every `EVERY`-th word is masked. `read` returns the states of a
    batch, `[n, length, dim]`.
    """

    def __init__(self, encoder: HuggingFaceEncoder, read: Callable[..., Tensor]):
        super().__init__(encoder, bool(getattr(encoder.tokenizer, "do_lower_case", False)))
        self._read = read

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        return single_subwords(self.encoder.subwords, words) >= 0

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        return self.encoder.split(sentences).covered

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        copies, order = _masked(
            self.encoder.split(sentences), rows, int(self.encoder.tokenizer.mask_token_id)
        )
        sizes, device, parts, places = np.diff(copies.word_offsets), self.encoder.device, [], []
        with arithmetic("highest"), torch.inference_mode():
            for numbers in token_batches(copies.lengths, self.encoder.budget):
                batch = collate(copies, numbers).to(device)
                states = self._read(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
                parts.append(states.flatten(0, 1)[batch.starts].float().cpu())
                places.append(order[ranges(copies.word_offsets[numbers], sizes[numbers])])
        found = torch.cat(parts)
        return torch.empty_like(found).index_copy_(
            0, torch.from_numpy(np.concatenate(places)), found
        )


def open_contexts(encoder: Encoder) -> Contexts:
    """Return an object that reads the hidden states from which an encoder predicts words.

    Raises:
        SettingError: the encoder is neither ELMo nor a Hugging Face encoder with a mask token.
    """
    if isinstance(encoder, ElmoEncoder):
        return Contexts(encoder, encoder.lower)
    if not isinstance(encoder, HuggingFaceEncoder) or encoder.tokenizer.mask_token_id is None:
        raise SettingError(
            f"senses need an ELMo or a model with a mask token, but {encoder.name} predicts no "
            "words from context"
        )
    try:
        model = without_output(open_masked(str(getattr(encoder.model, "name_or_path", "")))[0]).to(
            encoder.device
        )
    except InputError:  # aligned encoders and sentence encoders have no language-model head
        return MaskedContexts(encoder, lambda **batch: encoder.model(**batch).last_hidden_state)
    return MaskedContexts(encoder, lambda **batch: model(**batch).logits)


def without_output(model: Any) -> Any:
    """Remove the output layer of a Hugging Face masked language model, so that its logits are the
    input of that layer.
    """
    output: Any = nn.Identity()
    output.bias = None
    model.set_output_embeddings(output)
    return model.eval()


def _masked(
    split: SplitSentences, rows: np.ndarray, mask: int
) -> tuple[SplitSentences, np.ndarray]:
    """Return copies of the sentences with masked words, and the index in `rows` of each masked
    word.

    Args:
        rows: ascending indices of the words to mask, which are single subwords, int64 `[n]`.
    """
    sentence = np.searchsorted(split.word_offsets, rows, side="right") - 1
    names, copy = np.unique(
        sentence * EVERY + (rows - split.word_offsets[sentence]) % EVERY, return_inverse=True
    )
    order = np.argsort(copy, kind="stable")
    copies, starts = split.take(names // EVERY), split.word_starts[rows[order]]
    copies.ids[copies.offsets[copy[order]] + starts] = mask
    masked = offsets_of(np.bincount(copy, minlength=len(names)))
    return SplitSentences(
        copies.ids, copies.offsets, masked, starts, np.ones_like(starts), pad_id=split.pad_id
    ), order


# -- senses induced from text
# ----------------------------------------------------------------------------------------------
class ContextSenses(Inventory):
    """Senses induced from text by clustering the states that predict a word, see `split_words`.

    Senses are induced for the 2,000 most frequent words that contain a letter and occur at least
    `MIN_VECTORS` times. Up to 200 random occurrences of each word are clustered. `select` assigns
    each occurrence to the sense with the nearest centroid.

    Args:
        contexts: object that reads the hidden states of the model, see `open_contexts`.
        name: name of the model.
        texts: texts to induce the senses from.
        word: word that is included even if 2,000 words are more frequent.
        seed: seed for the sample and for `split_words`.

    Raises:
        SettingError: fewer than `FEWEST_WORDS` words are frequent enough.
    """

    lacks = f"does not occur {MIN_VECTORS} times in the text, or the model cannot predict it"

    def __init__(
        self,
        contexts: Contexts,
        name: str,
        texts: Sequence[Sentences],
        *,
        word: str = "",
        seed: int = 0,
    ):
        self.contexts, self.lower = contexts, contexts.lower
        counts: Counter[str] = Counter()
        for text in texts:
            types, numbers, _ = number_words(text)
            for form, n in zip(
                types, np.bincount(numbers, minlength=len(types)).tolist(), strict=True
            ):
                counts[self._form(form)] += n
        forms = [
            form
            for form, n in counts.most_common()
            if n >= MIN_VECTORS and any(map(str.isalpha, form))
        ]
        forms = [
            form for form, can in zip(forms, contexts.predicted(forms).tolist(), strict=True) if can
        ]
        forms = forms[:_WORDS] + [form for form in forms[_WORDS:] if form == self._form(word)]
        sample = {
            form: x for form, x in self._sample(texts, forms, seed).items() if len(x) >= MIN_VECTORS
        }
        forms, sample = list(sample), list(sample.values())
        if len(forms) < FEWEST_WORDS:
            raise SettingError(
                f"at least {FEWEST_WORDS} words must occur {MIN_VECTORS} times to decide which "
                "words have several senses, "
                f"got {len(forms)}; give more text"
            )
        self._mean, self._axes = discriminant_axes(sample)
        labels = split_words(sample, seed=seed)
        n_senses = np.array([of_word.max() + 1 for of_word in labels])
        shares = np.stack(
            [np.bincount(of_word, minlength=n_senses.max()) / len(of_word) for of_word in labels]
        )
        self._centres = np.stack(
            [
                self._projected(states)[of_word == sense].mean(0)
                for states, of_word in zip(sample, labels, strict=True)
                for sense in range(of_word.max() + 1)
            ]
        )
        self._first = offsets_of(n_senses)
        vectors = torch.from_numpy(unit_rows(self._centres))
        super().__init__(name, forms, n_senses, shares, vectors, lower=contexts.lower)

    def _form(self, word: str) -> str:
        return word.lower() if self.lower else word

    def _projected(self, states: np.ndarray) -> np.ndarray:
        return unit_rows((states - self._mean) @ self._axes)

    def _sample(
        self, texts: Sequence[Sentences], forms: Sequence[str], seed: int
    ) -> dict[str, np.ndarray]:
        """Return the states of up to `_OCCURRENCES` random occurrences of each word."""
        self._index = {form: k for k, form in enumerate(forms)}
        words = [self.in_text(text) for text in texts]
        together = np.concatenate(words)
        order = np.argsort(together, kind="stable")
        places = np.split(order, np.searchsorted(together[order], np.arange(len(forms))))[1:]
        rng, drawn = np.random.default_rng(seed), np.zeros(len(together), dtype=bool)
        for of_word in places:
            drawn[of_word[rng.permutation(len(of_word))[:_OCCURRENCES]]] = True
        found: list[list[np.ndarray]] = [[] for _ in forms]
        for text, of_text, wanted in zip(
            texts, words, np.split(drawn, np.cumsum(list(map(len, words)))), strict=False
        ):
            rows = np.flatnonzero(wanted & self.contexts.covered(text))
            states = (
                self.contexts.states(text, rows).numpy()
                if len(rows)
                else np.zeros((0, 1), dtype=np.float32)
            )
            order = np.argsort(of_text[rows], kind="stable")
            firsts = np.searchsorted(of_text[rows][order], np.arange(1, len(forms)))
            for k, part in enumerate(np.split(order, firsts) if forms else ()):
                found[k] += [states[part]] if len(part) else []
        return {
            form: np.concatenate(parts) for form, parts in zip(forms, found, strict=True) if parts
        }

    def select(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the sense number of each word, from 1, or 0 for a word without senses or without a
        vector, int64 `[n_words]`.
        """
        parts = [sentences[start : start + _WINDOW] for start in range(0, len(sentences), _WINDOW)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *map(self._selected, parts)])

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        words = self.in_text(sentences)
        chosen = (self.contexts.covered(sentences) & (words >= 0)).astype(np.int64)
        rows = np.flatnonzero((chosen > 0) & (self.n_senses[words] > 1))
        if len(rows):
            x = self._projected(self.contexts.states(sentences, rows).numpy())
            for word in np.unique(words[rows]).tolist():
                own = words[rows] == word
                centres = self._centres[self._first[word] : self._first[word + 1]]
                chosen[rows[own]] = ((x[own, None] - centres) ** 2).sum(2).argmin(1) + 1
        return chosen

    def occurrences(
        self, word: int, texts: Sequence[Sentences]
    ) -> tuple[np.ndarray, list[list[dict[str, Any]]]]:
        """Count the occurrences of a word for each sense (0: no sense), int64 `[n_senses + 1]`, and
        collect example sentences.
        """
        counts = np.zeros(int(self.n_senses[word]) + 1, dtype=np.int64)
        examples: list[list[dict[str, Any]]] = [[] for _ in counts]
        for text in texts:
            offsets, rows = offsets_of(text.lengths()), np.flatnonzero(self.in_text(text) == word)
            sentence = np.searchsorted(offsets, rows, side="right") - 1
            part = text.take(np.unique(sentence))
            chosen = self.select(part)[self.in_text(part) == word]
            counts += np.bincount(chosen, minlength=len(counts))
            for row, k, sense in zip(
                rows.tolist(), sentence.tolist(), chosen.tolist(), strict=True
            ):
                if len(examples[sense]) < _EXAMPLES:
                    words = list(text[k].words)
                    if all(other["words"] != words for other in examples[sense]):
                        place = row - int(offsets[k])
                        examples[sense].append(
                            {"words": words, "place": place, "lang": text.lang or None}
                        )
        return counts, examples


def read_texts(
    texts: Sequence[str], *, pretokenized: bool = False, limit: int | None = None
) -> list[Sentences]:
    """Read files with one sentence per line. Each file must be given as `de=FILE`, or its name must
    contain the language.

    Raises:
        InputError: a file cannot be read.
        SettingError: the language of a text is unknown, and `pretokenized` is false.
    """
    found = []
    for text in texts:
        lang, path = language_and_path(text, "und" if pretokenized else None)
        lang = "" if lang == "und" else lang
        found.append(read_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit))
    return found


def senses(
    folder: str | Path,
    word: str,
    texts: Sequence[str] = (),
    *,
    k: int = 10,
    trained: bool = False,
    pretokenized: bool = False,
    limit: int | None = None,
) -> dict[str, Any]:
    """Return the senses of a word with their frequency, the nearest senses of other words, and
    example sentences.

    Arguments not listed here are the options of `calque senses`.

    Args:
        texts: files with one sentence per line, given as `de=FILE` if the name does not contain the
            language. Senses are induced from these texts (see `ContextSenses`). With `trained`,
            they only determine the language of each word.

    Returns:
        `word`, `model`, `trained`, and `senses`, the most frequent sense first. Each sense has a
        `number`, its `share` of the word's occurrences (in a sample of the texts, or in training),
        and `nearest` senses with `word`, `number`, `cosine` and `lang`. Induced senses also have
        `chosen`, their number of occurrences, and example `sentences` with `words`, `lang` and the
        `place` of the word. If senses are induced, `occurrences` is the total of `chosen` over all
        senses.

    Raises:
        InputError: the folder contains no model or no senses, or a text cannot be read.
        SettingError: the word is not in the vocabulary or is too rare, or there is no text to
            induce senses from.
    """
    read = read_texts(texts, pretokenized=pretokenized, limit=limit)
    inventory = trained_senses(folder) if trained else _induced(folder, read, word)
    number, langs = inventory.find(word), inventory.languages(read)
    counts, examples = (
        inventory.occurrences(number, read) if isinstance(inventory, ContextSenses) else (None, [])
    )
    several = [] if langs is None else sorted({lang for lang in langs.tolist() if lang})
    among = [langs == lang for lang in several] if len(several) > 1 else [None]
    found = [
        {
            "number": sense,
            "share": round(float(inventory.shares[number, sense - 1]), 4),
            "nearest": [
                {
                    "word": inventory.words[near.word],
                    "number": near.number,
                    "cosine": round(near.cosine, 4),
                    "lang": None if langs is None else langs[near.word],
                }
                for part in among
                for near in inventory.nearest(number, sense, k, part)
            ],
            **(
                {}
                if counts is None
                else {"chosen": int(counts[sense]), "sentences": examples[sense]}
            ),
        }
        for sense in range(1, int(inventory.n_senses[number]) + 1)
    ]
    total = {} if counts is None else {"occurrences": int(counts[1:].sum())}
    return {
        "word": inventory.words[number],
        "model": inventory.name,
        "trained": trained,
        **total,
        "senses": found,
    }


def write_senses(
    folder: str | Path,
    texts: Sequence[str],
    out: str | Path,
    *,
    pretokenized: bool = False,
    limit: int | None = None,
) -> dict[str, int]:
    """Write the sense numbers of the words in each line of the texts, with `-` for a word without
    senses.

    Returns:
        the number of `lines`, of `words`, and of `known` words, i.e. words with senses.

    Raises:
        InputError, SettingError: see `senses`.
    """
    read, done = (
        read_texts(texts, pretokenized=pretokenized, limit=limit),
        {"lines": 0, "words": 0, "known": 0},
    )
    inventory = _induced(folder, read)

    def lines() -> Iterator[str]:
        for text in read:
            chosen = inventory.select(text)
            for of_line in np.split(chosen, offsets_of(text.lengths())[1:-1]) if len(text) else ():
                yield " ".join(str(n) if n else "-" for n in of_line.tolist()) + "\n"
            done["lines"] += len(text)
            done["words"] += len(chosen)
            done["known"] += int((chosen > 0).sum())

    write_lines(out, lines())
    return done


def _induced(folder: str | Path, texts: Sequence[Sentences], word: str = "") -> ContextSenses:
    if not texts:
        raise SettingError(
            "senses are induced from text; add --text FILE, or --trained for the senses learned in "
            "pretraining"
        )
    encoder = load_encoder(str(folder))
    return ContextSenses(open_contexts(encoder), encoder.name, texts, word=word)


def table(found: Mapping[str, Any]) -> str:
    """Format the result of `senses` as text."""
    several = len(found["senses"])
    lines = [f"{found['word']}: {several} sense{'s' if several > 1 else ''} ({found['model']})"]
    uses = "uses in training" if found["trained"] else "uses in a sample of the text"
    for sense in found["senses"]:
        lines += [
            "",
            f"{found['word']}_{sense['number']}  {100 * sense['share']:.1f}% of its {uses}",
        ]
        by_lang: dict[str | None, list[str]] = {}
        for near in sense["nearest"]:
            by_lang.setdefault(near["lang"], []).append(
                f"{near['word']}_{near['number']} {near['cosine']:.2f}"
            )
        for lang, words in by_lang.items():
            lines.append(
                f"  nearest{f' in {lang}' if lang and len(by_lang) > 1 else ''}: {', '.join(words)}"
            )
        if "chosen" in sense:
            lines.append(f"  {sense['chosen']:,} of {found['occurrences']:,} in the text")
            lines += [
                f"    {_marked(about['words'], about['place'])}" for about in sense["sentences"]
            ]
    return "\n".join(lines)


def _marked(words: Sequence[str], place: int) -> str:
    """Return a word in brackets with up to eight words on each side."""
    first, last = max(0, place - 8), place + 9
    marked = [f"[{word}]" if number == place else word for number, word in enumerate(words)]
    return " ".join(
        [*(["…"] if first else []), *marked[first:last], *(["…"] if last < len(words) else [])]
    )
