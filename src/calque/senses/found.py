"""Senses of words: those that a model was trained with, and clusters of the states that predict the words of a text; what
`calque senses` shows and writes of them."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.algebra.normalize import unit_rows
from calque.analyses.questions import Finding
from calque.corpora.languages import language_of, name_and_path
from calque.corpora.plain import stream_sentences
from calque.encoders import load_encoder
from calque.encoders.base import Encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.extraction import word_counts
from calque.encoders.folder import file_pair, read_about
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import arithmetic
from calque.encoders.split import SplitSentences, number_words
from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.senses.clusters import ENOUGH, FEWEST_WORDS, split_words, word_space
from calque.senses.elmo import ElmoEncoder
from calque.senses.masked import open_masked, open_tokenizer
from calque.senses.sense_table import SenseTable, open_senses, principal_axes
from calque.senses.text import FIRST_WORD, Vocabulary
from calque.storage import append_lines, write_lines
from calque.tasks.base import Score
from calque.text import Sentence, Sentences

#: of the words of a sentence every so many-th is hidden at a time: about the share of training
EVERY = 7
_WINDOW = 4096  # sentences whose states are held at once
_WORDS = 2000  # words of a text whose senses are asked, the most frequent
_OCCURRENCES = 200  # of each of these that are divided


class Neighbour(NamedTuple):
    """A sense near to another: number of its word, its own number within that, and the cosine."""

    word: int
    number: int
    cosine: float


class Inventory:
    """Senses of words, numbered from 1 for each word.

    Args:
        name: of the model.
        words: form of each word.
        n_senses: int64 `[n_words]`.
        shares: float64 `[n_words, k]`, of the uses of each word; 0 for no sense.
        vectors: `[n_senses, dim]`, of length 1, in the order of words and numbers.
        lower: look words up in lower case.
    """

    lacks = "is not in the vocabulary of {}"

    def __init__(
        self, name: str, words: Sequence[str], n_senses: np.ndarray, shares: np.ndarray, vectors: Tensor, *,
        lower: bool = False,
    ):  # fmt: skip
        self.name, self.words, self.lower = name, words, lower
        self.n_senses, self.shares, self.vectors = n_senses, shares, vectors
        self._number = {form: k for k, form in enumerate(words)}
        #: word and number of every sense, int64 `[n, 2]`
        self.senses = np.stack(
            [np.repeat(np.arange(len(n_senses)), n_senses), ranges(0 * n_senses, n_senses) + 1], axis=1
        )

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """The number of each word, int64 `[n]`; −1 for one that has no senses."""
        forms = (word.lower() if self.lower else word for word in words)
        return np.fromiter((self._number.get(form, -1) for form in forms), dtype=np.int64, count=len(words))

    def find(self, word: str) -> int:
        """The number of a word.

        Raises:
            SettingError: it is not in the vocabulary; close ones are named.
        """
        number = int(self.numbers([word])[0])
        if number < 0:
            close = difflib.get_close_matches(word, self.words, n=3, cutoff=0.7)
            hint = f"did you mean {' or '.join(close)}?" if close else "only whole words of it have senses"
            raise SettingError(f"{word!r} {self.lacks.format(self.name)}: {hint}")
        return number

    def row(self, word: int, number: int) -> int:
        """Return the index of a sense in `senses`."""
        return int(self.n_senses[:word].sum()) + number - 1

    def nearest(self, word: int, number: int, k: int, among: np.ndarray | None = None) -> list[Neighbour]:
        """The other senses, of any word, whose vectors are nearest to that of a sense, nearest first.

        Args:
            among: bool `[n_words]`, words to look among; None for all.
        """
        own = self.row(word, number)
        cosines = (self.vectors @ self.vectors[own]).double().numpy()
        cosines[own] = -np.inf
        if among is not None:
            cosines[~among[self.senses[:, 0]]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:k]
        found = ((*self.senses[r].tolist(), float(cosines[r])) for r in best if np.isfinite(cosines[r]))
        return [Neighbour(word, number, cosine) for word, number, cosine in found]

    def plane(self, rows: np.ndarray) -> np.ndarray:
        """Some senses on the first two principal axes of the vectors of all senses, float64 `[n, 2]` (Multi-sense, Figures
        4 to 7)."""
        axes = principal_axes(self.vectors, min(2, self.vectors.shape[1]))
        signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # otherwise the sign of an axis is arbitrary
        places = np.zeros((len(rows), 2))
        places[:, : axes.shape[1]] = ((self.vectors[rows] - self.vectors.mean(0)) @ (axes * signs)).numpy()
        return places

    def uses(self, sentences: Iterable[Sentence | Sequence[str]]) -> np.ndarray:
        """How often each word stands in a text, int64 by number."""
        types, place, _ = number_words(sentences)
        words = self.numbers(types)[place] if len(types) else np.zeros(0, dtype=np.int64)
        return np.bincount(words[words >= 0], minlength=len(self.words))


def languages_of(uses: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return the language of each word, by number: that in whose text it has the largest share; None for a word of no text.

    Args:
        uses: by language, see `Inventory.uses`; without any nothing is known.
    """
    if not uses:
        return None
    shares = np.stack([of_lang / max(1, of_lang.sum()) for of_lang in uses.values()])
    names = np.array([*uses, None], dtype=object)
    return names[np.where(shares.any(axis=0), shares.argmax(axis=0), len(uses))]


# -- senses of a training ------------------------------------------------------------------------------------------------
def trained_senses(folder: str | PathLike[str]) -> Inventory:
    """Open the senses that a language model in a folder has learnt, of words that are one number of its vocabulary. Those of an
    ELMo are the ones of its forward direction.

    Args:
        folder: what `calque pretrain --senses` has made.

    Raises:
        InputError: a file is missing or damaged.
    """
    path = Path(folder)
    (table, *more), name = open_senses(path), path.resolve().name
    if file_pair(path) is not None and not (path / "config.json").is_file():
        vocabulary = Vocabulary.open(path)
        if len(more) != 1 or table.n_words != len(vocabulary):
            raise InputError(f"senses of another vocabulary than that of {len(vocabulary):,} words here", path=path)
        numbers = np.arange(FIRST_WORD, len(vocabulary))
        return inventory_of(name, vocabulary.words, numbers, table, lower=bool(read_about(path).get("lower")))
    tokenizer = open_tokenizer(path)
    if more or len(tokenizer) != table.n_words:
        raise InputError(f"senses of {table.n_words:,} subwords, but a tokenizer of {len(tokenizer):,}", path=path)
    forms = [form.strip() for form in tokenizer.batch_decode(np.arange(len(tokenizer))[:, None].tolist())]
    # What a subword's form is split into again is that subword alone, where it is a whole word.
    single = single_subwords(Subwords(tokenizer, max_length=8, vocabulary=len(tokenizer)), forms)
    numbers = np.flatnonzero(single == np.arange(len(forms)))
    lower = bool(getattr(tokenizer, "do_lower_case", False))
    return inventory_of(name, [forms[k] for k in numbers], numbers, table, lower=lower)


def inventory_of(
    name: str, words: Sequence[str], numbers: np.ndarray, table: SenseTable, *, lower: bool = False
) -> Inventory:
    """Return the senses in use of some words, those selected most often in training first, of equally frequent ones that of the
    lower class. A word that was never selected has equal shares of all.

    Args:
        words: their forms.
        numbers: int64 `[n]`, their numbers in the table.
    """
    index = table.index.cpu()[torch.from_numpy(numbers)]  # [n, S]
    live = table.live.cpu()[index.clamp(min=0)] & (index >= 0)
    counts = torch.where(live, table.counts.cpu()[index.clamp(min=0)], -1)
    order = torch.argsort(-counts, dim=1, stable=True)[:, : int(live.sum(1).max())]
    live, counts, classes = live.gather(1, order), counts.gather(1, order).clamp(min=0).double(), index.gather(1, order)
    shares = torch.where(counts.any(1, keepdim=True), counts, live.double())
    vectors = nn.functional.normalize(table.weight.detach().cpu()[classes[live]], dim=1, eps=1e-30)
    shares = (shares / shares.sum(1, keepdim=True)).numpy()
    return Inventory(name, words, live.sum(1).numpy(), shares, vectors, lower=lower)


# -- senses of a text ------------------------------------------------------------------------------------------------------
class ElmoContexts:
    """States of an ELMo that predict words, see `ElmoEncoder.encode_contexts`."""

    def __init__(self, encoder: ElmoEncoder):
        self.encoder, self.lower = encoder, encoder.lower

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        """Return the mask of the words that have a state that predicts them alone, bool `[n]`."""
        return np.ones(len(words), dtype=bool)

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of the words that the model reads, bool `[n_words]`."""
        return np.ones(int(word_counts(sentences).sum()), dtype=bool)

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states `[n, dim]` of the words with some indices, int64 `[n]`, ascending, among all of the sentences."""
        return torch.from_numpy(self.encoder.encode_contexts(sentences).data[rows])


class MaskedContexts:
    """States of a masked language model in the place of a word that is hidden, after its head's dense layer and norm.

    Only words of one subword have such states. Every `EVERY`-th word of a sentence is hidden at a time, as in training, so
    that a sentence is read up to so many times.

    Args:
        encoder: around the model's body.
        read: gives the states of a batch, `[n, length, dim]`.
    """

    def __init__(self, encoder: HuggingFaceEncoder, read: Callable[..., Tensor]):
        tokenizer: Any = encoder.tokenizer
        self.encoder, self._read = encoder, read
        self.lower, self._mask = bool(getattr(tokenizer, "do_lower_case", False)), int(tokenizer.mask_token_id)

    def predicted(self, words: Sequence[str]) -> np.ndarray:
        """Return the mask of the words that have a state that predicts them alone, bool `[n]`."""
        return single_subwords(self.encoder.subwords, words) >= 0

    def covered(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the mask of the words that the model reads, bool `[n_words]`."""
        return self.encoder.split(sentences).covered

    def states(self, sentences: Sequence[Sentence | Sequence[str]], rows: np.ndarray) -> Tensor:
        """Return the states `[n, dim]` of the words with some indices, int64 `[n]`, ascending, among all of the sentences."""
        copies, order = _copies(self.encoder.split(sentences), rows, self._mask)
        sizes, device, parts, places = np.diff(copies.word_offsets), self.encoder.device, [], []
        with arithmetic("highest"), torch.inference_mode():
            for numbers in token_batches(copies.lengths, self.encoder.budget):
                batch = collate(copies, numbers).to(device)
                states = self._read(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
                parts.append(states.flatten(0, 1)[batch.starts].float().cpu())
                places.append(order[ranges(copies.word_offsets[numbers], sizes[numbers])])
        found = torch.cat(parts)
        return torch.empty_like(found).index_copy_(0, torch.from_numpy(np.concatenate(places)), found)


Contexts = ElmoContexts | MaskedContexts


def open_contexts(encoder: Encoder) -> Contexts:
    """Open the states by which an encoder predicts words.

    Raises:
        SettingError: it is neither an ELMo nor a model of `transformers` with a mask among its subwords.
    """
    if isinstance(encoder, ElmoEncoder):
        return ElmoContexts(encoder)
    if not isinstance(encoder, HuggingFaceEncoder) or encoder.tokenizer.mask_token_id is None:
        raise SettingError(
            f"{encoder.name} predicts no words from their context: senses need an ELMo or a model with a mask"
        )
    try:
        model = without_output(open_masked(str(getattr(encoder.model, "name_or_path", "")))[0]).to(encoder.device)
    except InputError:  # aligned encoders and sentence encoders have no head
        return MaskedContexts(encoder, lambda **batch: encoder.model(**batch).last_hidden_state)
    return MaskedContexts(encoder, lambda **batch: model(**batch).logits)


def without_output(model: Any) -> Any:
    """Return a masked language model of `transformers` whose scores are the states that its output layer would read."""
    output: Any = nn.Identity()
    output.bias = None
    model.set_output_embeddings(output)
    return model.eval()


class ContextSenses(Inventory):
    """Senses of the words of a text: clusters of the states that predict them, see `split_words`. The model needs no senses.

    Words are those with a letter that occur `ENOUGH` times or more, the most frequent 2,000 at most. Of each up to 200
    occurrences are divided, drawn evenly; every other one has the sense whose centre is nearest.

    Args:
        contexts: of the model.
        name: of the model.
        texts: gives the blocks of sentences anew at each call.
        word: to be among the words, however many are more frequent.
        most, seed: see `split_words`.

    Raises:
        SettingError: the text has fewer than `FEWEST_WORDS` such words.
    """

    lacks = f"does not occur {ENOUGH} times in the text as a word that the model can predict"

    def __init__(
        self, contexts: Contexts, name: str, texts: Callable[[], Iterable[Sentences]], *, word: str = "", most: int = 5,
        seed: int = 0,
    ):  # fmt: skip
        self.contexts, self.lower = contexts, contexts.lower
        counts: Counter[str] = Counter()
        for block in texts():
            types, place, _ = number_words(block)
            for form, n in zip(types, np.bincount(place, minlength=len(types)).tolist(), strict=True):
                counts[self._form(form)] += n
        forms = [form for form, n in counts.most_common() if n >= ENOUGH and any(letter.isalpha() for letter in form)]
        forms = [form for form, can in zip(forms, contexts.predicted(forms).tolist(), strict=True) if can]
        forms = forms[:_WORDS] + [form for form in forms[_WORDS:] if form == self._form(word)]
        self._number = {form: k for k, form in enumerate(forms)}
        kept = self._sample(texts, np.array([counts[form] for form in forms], dtype=np.int64), seed)
        forms = [form for form, states in zip(forms, kept, strict=True) if len(states) >= ENOUGH]
        kept = [states for states in kept if len(states) >= ENOUGH]
        if len(forms) < FEWEST_WORDS:
            raise SettingError(
                f"only {len(forms)} words of the text occur {ENOUGH} times or more, {FEWEST_WORDS} are needed to tell how "
                "words of one sense divide: give more text"
            )
        self._mean, self._axes = word_space(kept)
        labels = split_words(kept, most=most, seed=seed)
        n_senses = np.array([of_word.max() + 1 for of_word in labels])
        shares = np.stack([np.bincount(of_word, minlength=n_senses.max()) / len(of_word) for of_word in labels])
        centres = [
            self._compared(states)[of_word == sense].mean(0)
            for states, of_word in zip(kept, labels, strict=True)
            for sense in range(of_word.max() + 1)
        ]
        self._centres, self._first = np.stack(centres), offsets_of(n_senses)
        vectors = torch.from_numpy(unit_rows(self._centres))
        super().__init__(name, forms, n_senses, shares, vectors, lower=contexts.lower)

    def _form(self, word: str) -> str:
        return word.lower() if self.lower else word

    def _compared(self, states: np.ndarray) -> np.ndarray:
        return unit_rows((states - self._mean) @ self._axes)

    def _sample(self, texts: Callable[[], Iterable[Sentences]], counts: np.ndarray, seed: int) -> list[np.ndarray]:
        """Return the states of up to `_OCCURRENCES` occurrences of each word, of words with these counts."""
        rng, first = np.random.default_rng(seed), offsets_of(counts)
        drawn, seen = np.zeros(first[-1], dtype=bool), np.zeros(len(counts), dtype=np.int64)
        for begin, n in zip(first.tolist(), counts.tolist(), strict=False):
            drawn[begin + rng.permutation(n)[:_OCCURRENCES]] = True
        kept: list[list[np.ndarray]] = [[] for _ in counts]
        for block in texts():
            types, place, _ = number_words(block)
            words = self.numbers(types)[place] if len(types) else place
            rows = np.flatnonzero(words >= 0)
            order = rows[np.argsort(words[rows], kind="stable")]
            uses = np.bincount(words[rows], minlength=len(counts))
            rank = np.empty(len(words), dtype=np.int64)
            rank[order] = ranges(first[:-1] + seen, uses)
            seen += uses
            rows = rows[drawn[rank[rows]]]
            rows = rows[self.contexts.covered(block)[rows]]
            if len(rows):
                states = self.contexts.states(block, rows).numpy()
                for k in np.unique(words[rows]).tolist():
                    kept[k].append(states[words[rows] == k])
        return [np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32) for parts in kept]

    def select(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        """Return the number of the sense of every word, from 1.

        Returns:
            int64 `[n_words]`, of all sentences in a row; 0 where a word has none, because it is none of the words, or lies beyond
            the length that the model reads.
        """
        parts = [sentences[start : start + _WINDOW] for start in range(0, len(sentences), _WINDOW)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *map(self._selected, parts)])

    def _selected(self, sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
        types, place, _ = number_words(sentences)
        words = self.numbers(types)[place] if len(types) else np.zeros(0, dtype=np.int64)
        chosen = (self.contexts.covered(sentences) & (words >= 0)).astype(np.int64)
        rows = np.flatnonzero((chosen > 0) & (self.n_senses[words] > 1))  # of one sense there is nothing to select
        if not len(rows):
            return chosen
        x, words = self._compared(self.contexts.states(sentences, rows).numpy()), words[rows]
        for word in np.unique(words).tolist():
            own = words == word
            centres = self._centres[self._first[word] : self._first[word + 1]]
            chosen[rows[own]] = ((x[own, None] - centres) ** 2).sum(2).argmin(1) + 1
        return chosen


def single_subwords(subwords: Subwords, words: Sequence[str]) -> np.ndarray:
    """Return the subword that each word is, int64 `[n]`; −1 for a word of several, or of none that means something."""
    split = subwords.split([[word] for word in words])
    ids = split.ids[split.offsets[:-1] + split.word_starts]
    nothing = np.array(sorted(subwords.tokenizer.all_special_ids))
    return np.where((split.word_lengths == 1) & ~np.isin(ids, nothing), ids, -1).astype(np.int64)


def _copies(split: SplitSentences, rows: np.ndarray, mask: int) -> tuple[SplitSentences, np.ndarray]:
    """Copy sentences so often that each of some words is hidden in one of the copies.

    Args:
        rows: int64 `[n]`, the words, each of one subword; in order.
        mask: the subword that hides them.

    Returns:
        the copies, whose words are those that are hidden in them; and the place of each in `rows`.
    """
    counts = np.diff(split.word_offsets)
    sentence = np.repeat(np.arange(len(split)), counts)[rows]
    names, copy = np.unique(sentence * EVERY + (rows - split.word_offsets[sentence]) % EVERY, return_inverse=True)
    order = np.argsort(copy, kind="stable")
    lengths = split.lengths[names // EVERY]
    offsets = offsets_of(lengths)
    ids = split.ids[ranges(split.offsets[names // EVERY], lengths)]
    starts = split.word_starts[rows[order]]
    ids[offsets[copy[order]] + starts] = mask
    return SplitSentences(
        ids, offsets, offsets_of(np.bincount(copy, minlength=len(names))), starts, np.ones_like(starts),
        pad_id=split.pad_id,
    ), order  # fmt: skip


_NEAR = 30  # neighbours of each sense in a plot


def named_texts(texts: Sequence[str], pretokenized: bool) -> list[tuple[str, str]]:
    """Return the languages and files of texts as a user names them, `de=FILE` or FILE.

    Raises:
        SettingError: the language of a text is not known; words that stand between spaces need none.
    """
    files = []
    for text in texts:
        lang, path = name_and_path(text)
        lang = lang or language_of(path) or ""
        if not path or (not lang and not pretokenized):
            raise SettingError(f"{text}: which language and file is it? Say both, as in de={path or 'FILE'}")
        files.append((lang, path))
    return files


def senses(
    folder: str | Path, word: str, texts: Sequence[str] = (), *, k: int = 10, examples: int = 3, trained: bool = False,
    pretokenized: bool = False, limit: int | None = None, out: str | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the senses of a word: how frequent they are, what lies near to them, and sentences with each.

    Arguments not listed here are the options of `calque senses`.

    Args:
        texts: files, one sentence a line, `de=FILE` if the name does not say the language. The senses are found in them,
            see `ContextSenses`; those of a training get the languages of words from them.
        out: JSON lines file to which the senses among their neighbours are appended, for reports.

    Returns:
        `word`, `model`, `trained`, and `senses`, the most frequent first: `number`, `share` of the uses of the word in the
        texts, or in training, and `nearest`: senses with `word`, `number`, `cosine` and `lang`, None where it is not known.
        Of senses found in texts also `occurrences` of the word, and for each sense `chosen`, how many of them are of it, and
        `sentences`: `words`, `place` of the word, and `lang`.

    Raises:
        InputError: no model in the folder, or none with senses; or a text that cannot be read.
        SettingError: the word is not in the vocabulary, or too rare; no text to find senses in.
    """
    files = named_texts(texts, pretokenized)
    read = partial(_blocks, files, pretokenized, limit)
    inventory = trained_senses(folder) if trained else _found(folder, files, read, word)
    number, uses = inventory.find(word), dict[str, np.ndarray]()
    of_word = _Occurrences(inventory, number, examples) if isinstance(inventory, ContextSenses) else None
    for block in read():
        if block.lang:
            uses[block.lang] = uses.get(block.lang, 0) + inventory.uses(block)
        if of_word is not None:
            of_word.look(block)
    langs = languages_of(uses)
    if out is not None:
        named = list(dict.fromkeys(lang for lang, _ in files if lang))
        append_lines(out, [neighbourhoods(inventory, number, langs=langs, languages=named).to_json() + "\n"])
    several = [] if langs is None else sorted({lang for lang in langs.tolist() if lang})
    among = [langs == lang for lang in several] if len(several) > 1 else [None]
    found = [
        {
            "number": sense,
            "share": round(float(inventory.shares[number, sense - 1]), 4),
            "nearest": [
                {"word": inventory.words[near.word], "number": near.number, "cosine": round(near.cosine, 4),
                 "lang": None if langs is None else langs[near.word]}
                for part in among for near in inventory.nearest(number, sense, k, part)
            ],
            **({} if of_word is None else {"chosen": int(of_word.chosen[sense]), "sentences": of_word.sentences[sense]}),
        }
        for sense in range(1, int(inventory.n_senses[number]) + 1)
    ]  # fmt: skip
    counted = {} if of_word is None else {"occurrences": int(of_word.chosen.sum())}
    return {"word": inventory.words[number], "model": inventory.name, "trained": trained, **counted, "senses": found}


def write_senses(
    folder: str | Path, texts: Sequence[str], out: str | Path, *, pretokenized: bool = False, limit: int | None = None
) -> dict[str, int]:
    """Write for every line of some texts a line with the number of the sense of each word, `-` for a word that has none.

    Args:
        texts: files, one after the other in the result.

    Returns:
        how many `lines` and `words` there are, and how many words are `known`, which have a number.

    Raises:
        InputError: see `senses`.
    """
    files, done = named_texts(texts, pretokenized), {"lines": 0, "words": 0, "known": 0}
    read = partial(_blocks, files, pretokenized, limit)
    inventory = _found(folder, files, read)

    def lines() -> Iterator[str]:
        for block in read():
            chosen, start = inventory.select(block), 0
            for length in block.lengths().tolist():
                yield " ".join(str(n) if n else "-" for n in chosen[start : start + length].tolist()) + "\n"
                start += length
            done["lines"] += len(block)
            done["words"] += len(chosen)
            done["known"] += int((chosen > 0).sum())

    write_lines(out, lines())
    return done


def neighbourhoods(
    inventory: Inventory, word: int, *, k: int = _NEAR, langs: np.ndarray | None = None, languages: Sequence[str] = ()
) -> Finding:
    """Each sense of a word with those nearest to it, in the plane of the first two principal axes of all senses (Multi-sense,
    Figures 4 to 7).

    Args:
        k: neighbours of each sense.
        langs: the language of each word, as far as it is known.

    Returns:
        one finding, with an item for every point: `of`, the number of the sense whose neighbour it is, or which it is itself;
        `word`, `number`, `share`, `lang`, `cosine`, `x`, `y`.
    """
    points = []
    for number in range(1, int(inventory.n_senses[word]) + 1):
        points.append((number, word, number, 1.0))
        points += [(number, *near) for near in inventory.nearest(word, number, k)]
    places = inventory.plane(np.array([inventory.row(of, number) for _, of, number, _ in points]))
    items: list[dict[str, Any]] = [
        {
            "of": sense, "word": inventory.words[of], "number": number,
            "share": round(float(inventory.shares[of, number - 1]), 4), "lang": None if langs is None else langs[of],
            "cosine": round(cosine, 4), "x": round(float(x), 5), "y": round(float(y), 5),
        }
        for (sense, of, number, cosine), (x, y) in zip(points, places.tolist(), strict=True)
    ]  # fmt: skip
    name = inventory.words[word]
    score = Score(
        "senses", name, tuple(languages) or ("und",), "pca", math.nan, math.nan, math.nan, len(items), 0,
        {"encoder": inventory.name},
    )  # fmt: skip
    return Finding("senses", inventory.name, score, group=name, items=items)


def _blocks(files: Sequence[tuple[str, str]], pretokenized: bool, limit: int | None) -> Iterator[Sentences]:
    for lang, path in files:
        yield from stream_sentences(path, lang=lang, pretokenized=pretokenized, limit=limit)


def _found(
    folder: str | Path, files: Sequence[tuple[str, str]], texts: Callable[[], Iterable[Sentences]], word: str = ""
) -> ContextSenses:
    """Find the senses of some texts."""
    if not files:
        raise SettingError(
            "senses are found in a text: add --text FILE; or --trained for those that the model was trained with"
        )
    encoder = load_encoder(str(folder))
    return ContextSenses(open_contexts(encoder), encoder.name, texts, word=word)


class _Occurrences:
    """How often each sense of a word occurs, and sentences with it."""

    def __init__(self, inventory: ContextSenses, word: int, examples: int):
        self.chosen = np.zeros(int(inventory.n_senses[word]) + 1, dtype=np.int64)
        self.sentences: list[list[dict[str, Any]]] = [[] for _ in self.chosen]
        self._inventory, self._word, self._examples = inventory, word, examples

    def look(self, block: Sentences) -> None:
        """Read a part of a text."""
        types, place, offsets = number_words(block)
        words = self._inventory.numbers(types)[place] if len(types) else place
        needed = np.unique(np.searchsorted(offsets, np.flatnonzero(words == self._word), side="right") - 1)
        part = block.take(needed)
        chosen, first = self._inventory.select(part), 0
        for row, sentence in zip(needed.tolist(), part, strict=True):
            for k in np.flatnonzero(words[offsets[row] : offsets[row + 1]] == self._word).tolist():
                sense = int(chosen[first + k])
                self.chosen[sense] += bool(sense)
                shown = self.sentences[sense]
                about = {"words": list(sentence.words), "place": k, "lang": block.lang or None}
                if len(shown) < self._examples and all(other["words"] != about["words"] for other in shown):
                    shown.append(about)
            first += len(sentence)


# -- for people --------------------------------------------------------------------------------------------------------
def table(found: Mapping[str, Any]) -> str:
    """Return what `senses` found as lines of text."""
    several = len(found["senses"])
    lines = [f"{found['word']}: {several} sense{'s' if several > 1 else ''} ({found['model']})"]
    uses = "uses in training" if found["trained"] else "uses in a sample of the text"
    for sense in found["senses"]:
        lines += ["", f"{found['word']}_{sense['number']}  {100 * sense['share']:.1f}% of its {uses}"]
        by_lang: dict[str | None, list[str]] = {}
        for near in sense["nearest"]:
            by_lang.setdefault(near["lang"], []).append(f"{near['word']}_{near['number']} {near['cosine']:.2f}")
        for lang, words in by_lang.items():
            lines.append(f"  nearest{f' in {lang}' if lang and len(by_lang) > 1 else ''}: {', '.join(words)}")
        if "chosen" in sense:
            lines.append(f"  {sense['chosen']:,} of {found['occurrences']:,} in the text")
            lines += [f"    {_marked(about)}" for about in sense["sentences"]]
    return "\n".join(lines)


def _marked(about: Mapping[str, Any]) -> str:
    """A sentence with its word in brackets; of a long one the part around it."""
    place, words = about["place"], list(about["words"])
    first, last = max(0, place - 8), place + 9
    shown = [f"[{word}]" if number == place else word for number, word in enumerate(words)]
    return " ".join([*(["…"] if first else []), *shown[first:last], *(["…"] if last < len(words) else [])])
