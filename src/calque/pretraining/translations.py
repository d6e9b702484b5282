"""Which numbers of a joint vocabulary translate each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from calque.annotated import Dictionary
from calque.errors import SettingError


class Translations:
    """The translations of each word of a joint vocabulary, by the language of the text that it stands in.

    A dictionary counts in both directions. A word that the vocabulary has not as it is written is looked for without
    regard to capitals, so that an entry `haus` is found for `Haus`; a word is no translation of itself.

    Args:
        dictionaries: between languages of the text.
        languages: of the text, in the order of their numbers.
        vocabulary: number of each word that can be predicted, the most frequent first.
        most: translations of a word into each other language; those that stand first in the dictionary are taken.

    Attributes:
        words: how many words have a translation, by language.

    Raises:
        SettingError: a dictionary of another language, or without a pair of words of the vocabulary.
    """

    def __init__(
        self,
        dictionaries: Sequence[Dictionary],
        languages: Sequence[str],
        vocabulary: Mapping[str, int],
        *,
        most: int = 4,
    ):
        self.languages = list(languages)
        folded: dict[str, list[str]] = {}
        for word in vocabulary:
            folded.setdefault(word.lower(), []).append(word)
        known: dict[tuple[int, int], dict[int, list[int]]] = {}
        for dictionary in dictionaries:
            ends = self._ends(dictionary)
            columns, pairs = (dictionary.source, dictionary.target), 0
            for side in (0, 1):
                exact = set(columns[side])
                into = known.setdefault((ends[side], ends[1 - side]), {})
                for word, translation in zip(columns[side], columns[1 - side], strict=True):
                    right = _one(translation, vocabulary, folded)
                    if right is None:
                        continue
                    for form in _all(word, vocabulary, folded, exact):
                        several = into.setdefault(vocabulary[form], [])
                        pairs += right != vocabulary[form]
                        if right != vocabulary[form] and right not in several and len(several) < most:
                            several.append(right)
            if not pairs:
                raise SettingError(
                    f"{dictionary.path or 'the dictionary'}: none of its {len(dictionary):,} pairs of different words is "
                    f"in the vocabulary of the text; is it of {' and '.join(dictionary.langs)}?"
                )
        self._fill(known, max(vocabulary.values()) + 1, most)

    def _ends(self, dictionary: Dictionary) -> list[int]:
        """The numbers of its two languages."""
        place, langs = dictionary.path or "a dictionary", dictionary.langs
        if not set(langs) <= set(self.languages):
            raise SettingError(f"{place} is of {'-'.join(langs)}, but the text is in {', '.join(self.languages)}")
        if langs[0] == langs[1]:
            raise SettingError(f"{place} is of {'-'.join(langs)}: expected two different languages")
        return [self.languages.index(lang) for lang in langs]

    def _fill(self, known: Mapping[tuple[int, int], Mapping[int, list[int]]], size: int, most: int) -> None:
        n = len(self.languages)
        rows, self.words = [np.full((max(1, n - 1), most), -1, dtype=np.int64)], dict.fromkeys(self.languages, 0)
        place = np.zeros((n, size + 1), dtype=np.int64)  # the last column is that of all other numbers
        for source in range(n):
            for (begin, end), into in known.items():
                if begin != source:
                    continue
                column = end - (end > source)
                for word, several in into.items():
                    if not several:
                        continue
                    if not place[source, word]:
                        place[source, word] = len(rows)
                        rows.append(np.full_like(rows[0], -1))
                        self.words[self.languages[source]] += 1
                    rows[place[source, word]][column, : len(several)] = several
        self._place, self._rows = torch.from_numpy(place), torch.from_numpy(np.stack(rows))

    @property
    def fingerprint(self) -> str:
        """Hash of what translates what."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self._place, self._rows):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device) -> Translations:
        """The same on a device."""
        self._place, self._rows = self._place.to(device), self._rows.to(device)
        return self

    def of(self, languages: Tensor, words: Tensor) -> Tensor:
        """Translations of words in text.

        Args:
            languages: int64 `[n]`, of the text that each word stands in.
            words: int64 `[n]`; a number that the vocabulary has not has no translations.

        Returns:
            int64 `[n, n_languages - 1, most]`, into the other languages in their order; −1 for none.
        """
        return self._rows[self._place[languages, words.clamp(max=self._place.shape[1] - 1)]]


def _one(word: str, vocabulary: Mapping[str, int], folded: Mapping[str, list[str]]) -> int | None:
    """The word as it is written, or else its most frequent form."""
    if word in vocabulary:
        return vocabulary[word]
    forms = folded.get(word.lower())
    return None if forms is None else vocabulary[forms[0]]


def _all(word: str, vocabulary: Mapping[str, int], folded: Mapping[str, list[str]], exact: set[str]) -> list[str]:
    """The forms that an entry speaks of: as it is written, and with other capitals where no entry has these."""
    others = [form for form in folded.get(word.lower(), ()) if form != word and form not in exact]
    return ([word] if word in vocabulary else []) + others
