"""Code-switching: text some of whose words are replaced by translations in other languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from calque.errors import SettingError, check_number
from calque.offsets import offsets_of
from calque.storage import from_numpy, from_words, to_numpy
from calque.text import Sentences
from calque.wordalign.translations import Translations


@dataclass(frozen=True)
class CodeSwitch:
    """Multi-lingual code-switching by dictionaries (Qin et al. 2020, "CoSDA-ML: Multi-lingual code-switching data augmentation
    for zero-shot cross-lingual NLP": selection of sentences, of tokens and of replacements).

    A text is drawn with the probability `texts`; each of its words is drawn with the probability `words`; for each drawn word
    one of the languages is drawn, and one of the word's translations in it takes its place. A word that the language drawn has
    no translation for stays. So one word stands for one word, at its place, and whatever is said of it by labels, spans and
    trees still holds.

    Departures: the published code puts all text in lower case, here a word with a capital gets a translation with one;
    translations of several words are left out, so that labels need not be stretched (`Translations`). The paper draws anew
    for each batch, here there are so many copies as one asks for.

    Args:
        translations: by language.
        texts, words: the two probabilities, the paper's sentence and token replacement ratios.
        seed: of what is drawn.
    """

    translations: Mapping[str, Translations]
    texts: float = 0.5
    words: float = 0.5
    seed: int = 0

    def __post_init__(self):
        for name in ("texts", "words"):
            check_number(name, getattr(self, name), above=0, most=1)
        check_number("seed", self.seed, least=0, whole=True)
        if empty := [lang for lang, found in self.translations.items() if not len(found)]:
            raise SettingError(f"no translation of a single word into {', '.join(empty)}: leave the language out")
        if not self.translations:
            raise SettingError("code-switching needs translations into at least one language")

    def copy(self, columns: Sequence[Sentences], number: int = 0) -> tuple[np.ndarray, list[Sentences], dict[str, int]]:
        """A copy of texts, of which those are given that are not what they were.

        Args:
            columns: the texts; where they are pairs, of both sides, whose texts are drawn together.
            number: which of several copies; each has draws of its own.

        Returns:
            rows: int64 `[n]`, numbers of the texts in which a word has changed.
            columns: these texts as they are now.
            counts: `texts` drawn and `texts_changed`; of all their `words` how many were drawn (`words_drawn`), of these the
                ones without a translation into the language drawn (`words_without_translation`), and `words_changed`.
        """
        rng = np.random.default_rng([self.seed, number])
        drawn = rng.random(len(columns[0])) < self.texts
        changed, words = np.zeros(len(drawn), dtype=bool), []
        names = ("texts", "texts_changed", "words", "words_drawn", "words_without_translation", "words_changed")
        counts: dict[str, int] = dict.fromkeys(names, 0)
        for column in columns:
            words.append(self._words(column, drawn, changed, rng, counts))
        rows = np.flatnonzero(changed)
        counts["texts"], counts["texts_changed"] = int(drawn.sum()), len(rows)
        return (
            rows,
            [Sentences(each, column.lang).take(rows) for each, column in zip(words, columns, strict=True)],
            counts,
        )

    def _words(
        self, column: Sentences, drawn: np.ndarray, changed: np.ndarray, rng: np.random.Generator, counts: dict[str, int]
    ) -> pa.Array:  # fmt: skip
        """All words of a column with those replaced that are; notes the texts in `changed`."""
        flat, offsets = column.flat()
        owner = np.repeat(np.arange(len(column)), np.diff(offsets))
        chosen = drawn[owner] & (rng.random(len(owner)) < self.words)
        lang = rng.integers(len(self.translations), size=len(owner))
        pick = rng.random(len(owner))
        encoded = flat.combine_chunks().dictionary_encode()
        types, codes = encoded.dictionary.to_pylist(), to_numpy(encoded.indices).astype(np.int64)
        # The forms of all translations stand behind the types; those of a type in a language are a run of `choices`.
        choices = [[each[word] for word in types] for each in self.translations.values()]
        sizes = np.array([[len(forms) for forms in of_lang] for of_lang in choices], dtype=np.int64)
        sizes = sizes.reshape(len(choices), len(types))
        starts = offsets_of(sizes.reshape(-1))[:-1].reshape(sizes.shape)
        forms = [form for of_lang in choices for several in of_lang for form in several]
        n = sizes[lang, codes]
        has = chosen & (n > 0)
        numbers = np.where(has, len(types) + starts[lang, codes] + (pick * n).astype(np.int64), codes)
        every = from_words([[*types, *forms]]).flatten()
        new = np.array([*types, *forms], dtype=object)
        differs = np.zeros(len(numbers), dtype=bool)
        differs[has] = new[numbers[has]] != new[codes[has]]
        changed[owner[differs]] = True
        counts["words"] += int(drawn[owner].sum())
        counts["words_drawn"] += int(chosen.sum())
        counts["words_without_translation"] += int((chosen & (n == 0)).sum())
        counts["words_changed"] += int(differs.sum())
        return pa.ListArray.from_arrays(from_numpy(offsets.astype(np.int32)), every.take(from_numpy(numbers)))
