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
    regard to capitals, so that an entry `haus` is found for `Haus`. A word is no translation of itself, but its form with
    other capitals may be: by an entry `bank bank`, `bank` and `Bank` translate each other in both languages.

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
        n, size = len(self.languages), max(vocabulary.values(), default=-1) + 1
        nothing = np.full((max(1, n - 1), most), -1, dtype=np.int64)
        rows: dict[tuple[int, int], np.ndarray] = {}  # of a language's word: by other language, its translations
        for dictionary in dictionaries:
            ends = self._ends(dictionary)
            columns, pairs = (dictionary.source, dictionary.target), 0
            for side in (0, 1):
                exact, source, other = set(columns[side]), ends[side], ends[1 - side]
                for word, translation in zip(columns[side], columns[1 - side], strict=True):
                    wanted = _forms(translation, vocabulary, folded)[: None if word == translation else 1]
                    for form in _forms(word, vocabulary, folded):
                        other_forms = [vocabulary[each] for each in wanted if each != form]
                        if not other_forms or (form != word and form in exact):
                            continue
                        pairs, number, right = pairs + 1, vocabulary[form], other_forms[0]
                        several = rows.setdefault((source, number), nothing.copy())[other - (other > source)]
                        free = np.flatnonzero(several < 0)
                        if right not in several and len(free):
                            several[free[0]] = right
            if not pairs:
                raise SettingError(
                    f"{dictionary.path or 'the dictionary'}: none of its {len(dictionary):,} pairs of different words is "
                    f"in the vocabulary of the text; is it of {' and '.join(dictionary.langs)}?"
                )
        place, keys = np.zeros((n, size + 1), dtype=np.int64), sorted(rows)  # the last column: of all other numbers
        for k, (source, number) in enumerate(keys, 1):
            place[source, number] = k
        self.words = {lang: int((place[k] > 0).sum()) for k, lang in enumerate(self.languages)}
        self._place = torch.from_numpy(place)
        self._rows = torch.from_numpy(np.stack([nothing, *(rows[key] for key in keys)]))

    def _ends(self, dictionary: Dictionary) -> list[int]:
        """The numbers of its two languages."""
        place, langs = dictionary.path or "a dictionary", dictionary.langs
        if not set(langs) <= set(self.languages):
            raise SettingError(f"{place} is of {'-'.join(langs)}, but the text is in {', '.join(self.languages)}")
        if langs[0] == langs[1]:
            raise SettingError(f"{place} is of {'-'.join(langs)}: expected two different languages")
        return [self.languages.index(lang) for lang in langs]

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


def _forms(word: str, vocabulary: Mapping[str, int], folded: Mapping[str, list[str]]) -> list[str]:
    """Return the word as it is written, then its forms with other capitals, the most frequent first."""
    return ([word] if word in vocabulary else []) + [form for form in folded.get(word.lower(), ()) if form != word]
