"""Bilingual lexicon induction: word translation by nearest neighbours among word type vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from calque.algebra.similarity import csls_neighbours
from calque.anchors import Anchors, anchors_of
from calque.corpora import read_dictionary
from calque.corpora.languages import language_and_path
from calque.encoders.base import require
from calque.errors import SettingError
from calque.input_texts import check_pairs, read_languages, skipped
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure_all
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

_CELLS = 40_000_000  # maximum number of similarity values in memory
_TYPES = 200_000  # maximum number of candidates, which are the most frequent word types of a language


class Lexicon(Task):
    """Translate the source words of a dictionary by the nearest word types of the target language.

    Precision at k is the fraction of source words with a gold translation among the k nearest words (Conneau et al. 2018a). The
    mean reciprocal rank uses the rank of the best gold translation (Glavaš et al. 2019). If a word has several entries, all of
    their translations count as correct. `left_out` counts the entries that are skipped because a word has no vector.

    Args:
        dictionary: word pairs to test.
        texts: text in each language, by language code. The vector of a word is the mean over its occurrences in the text. If
            None, every word is encoded as a one-word sentence, which suits static vectors.
        similarity: similarity measure, "csls" or "cosine".
        lower: whether to merge words that differ only in case, in the texts and in the dictionary. The texts are encoded
            in their original case. This option is meant for lower-cased dictionaries.
        k: number of nearest neighbours in CSLS.
        bootstrap: number of bootstrap samples for the confidence intervals.
        seed, data: seed and name of the dictionary, both recorded with the scores.
    """

    def __init__(
        self, dictionary: Dictionary, *, texts: Mapping[str, Sentences] | None = None,
        similarity: Literal["csls", "cosine"] = "csls", lower: bool = False, k: int = 10, bootstrap: int = 1000, seed: int = 0,
        data: str = "",
    ):  # fmt: skip
        if similarity not in ("csls", "cosine"):
            raise SettingError(f"similarity must be csls or cosine, got {similarity!r}")
        if texts is not None and set(dictionary.langs) - set(texts):
            raise SettingError(f"texts must be in {', '.join(dictionary.langs)}, got {', '.join(sorted(texts))}")
        self.lower = lower
        if lower:
            source, target = (tuple(word.lower() for word in side) for side in (dictionary.source, dictionary.target))
            dictionary = replace(dictionary, source=source, target=target)
        self.dictionary, self.texts, self.similarity, self.k = dictionary, texts, similarity, k
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        similarity: Literal["csls", "cosine"] = "csls",
        entries: Sequence[int] = (0,),
        lower: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> list[Task]:
        """Build the task from files.

        Args:
            inputs: a dictionary, its languages, and optionally text in each language (`de=FILE` if FILE has no language code).
            entries: range of source words to test, in dictionary order: the first index and, optionally, the end (exclusive).
            on_error: how to treat dictionary lines that are not word pairs: "raise" an error, or "skip" the line.
        """
        if not inputs.langs:
            raise SettingError(f"{inputs.task} requires --langs, e.g. --langs en de")
        test = inputs.only("test")
        check_pairs(inputs.test, inputs.langs)
        (langs,), words, (start, stop) = inputs.langs, inputs.words, (*entries, None)[:2]
        dictionary = by_frequency(read_dictionary(test, langs=langs, on_error=on_error), int(start or 0), stop)
        texts = None
        if inputs.text:
            files = map(language_and_path, inputs.text)
            texts = read_languages(files, pretokenized=words.pretokenized, limit=words.limit, say=inputs.say)
        task = cls(dictionary, texts=texts, similarity=similarity, lower=lower, data=Path(test).name)
        texts_used = [Path(text).name for text in inputs.text]
        task.notes = {"entries": f"{start}-{'' if stop is None else stop}", "text": texts_used}
        return [task]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        left_out, path = scores[0].settings["left_out"], self.dictionary.path
        yield f"{path}: {scores[0].n:,} source words"
        if left_out:
            skipped(f"{path}: {left_out:,} of {len(self.dictionary):,} entries skipped because a word has no vector")

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Return the precision at 1, 5 and 10, and the mean reciprocal rank.

        Raises:
            SettingError: no entry has a vector for both words.
        """
        require(encoder, "measured", self.rows)
        source, target = self.anchors(encoder, progress=progress)
        ranks, left_out = self._ranks(source, target)
        if not len(ranks):
            name, n, langs = (
                self.dictionary.path or self.data or "the dictionary",
                len(self.dictionary),
                self.dictionary.langs,
            )
            where = f"is in the texts in {' and '.join(langs)}" if self.texts else "consists of two words with vectors"
            fact = f"{name}: none of its {n:,} entries {where}"
            raise SettingError(f"{fact}, so there is nothing to measure; check the languages")
        about = {
            "similarity": self.similarity, "k": self.k, "anchors": self.texts is not None, "lower": self.lower,
            "candidates": len(target), "left_out": left_out, **about_encoder(encoder),
        }  # fmt: skip
        metrics = [("p@1", ranks <= 1), ("p@5", ranks <= 5), ("p@10", ranks <= 10), ("mrr", 1 / ranks)]
        sums = [(np.stack([right, np.ones(len(ranks))], axis=1), accuracy) for _, right in metrics]
        found = zip(metrics, measure_all(sums, samples=self.bootstrap), strict=True)
        langs, n = self.dictionary.langs, len(ranks)
        return [
            Score("lexicon", self.data, langs, metric, *each.ends, n, self.seed, about, **each.kept)
            for (metric, _), each in found
        ]

    def anchors(self, encoder: Encoder, *, progress: bool = False) -> tuple[Anchors, Anchors]:
        """Return the word types of both languages with their vectors."""
        anchors = []
        for lang, words in zip(self.dictionary.langs, (self.dictionary.source, self.dictionary.target), strict=True):
            alone = Sentences.of([[word] for word in dict.fromkeys(words)], lang)
            text = alone if self.texts is None else self.texts[lang]
            embeddings = encoder.encode(text, progress=progress)
            if self.lower:
                text = Sentences.of([[word.lower() for word in sentence.words] for sentence in text], lang)
            anchors.append(anchors_of(text, embeddings, most=_TYPES))
        return anchors[0], anchors[1]

    def _ranks(self, source: Anchors, target: Anchors) -> tuple[np.ndarray, int]:
        """Return the rank of each source word's best gold translation, counted from 1, and the number of skipped entries."""
        left, right = ({word: k for k, word in enumerate(side.words)} for side in (source, target))
        gold: dict[int, list[int]] = {}
        entries = zip(self.dictionary.source, self.dictionary.target, strict=True)
        known = [(left[a], right[b]) for a, b in entries if a in left and b in right]
        left_out = len(self.dictionary) - len(known)
        if not known:
            return np.zeros(0), left_out
        for a, b in known:
            gold.setdefault(a, []).append(b)
        vectors = (torch.from_numpy(np.asarray(side.vectors, dtype=np.float32)) for side in (source, target))
        x, y = (torch.nn.functional.normalize(each, dim=1) for each in vectors)
        hubness = torch.zeros(len(y))
        if self.similarity == "csls":
            none = np.zeros(0, dtype=np.int64)
            neighbours = csls_neighbours(x.numpy(), y.numpy(), k=self.k, source_queries=none, target_queries=none)
            assert neighbours.target_hubness is not None
            hubness = torch.from_numpy(neighbours.target_hubness).float()
        queries, ranks = sorted(gold), []
        step = max(1, _CELLS // len(y))
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            for query, scores in zip(part, (2 * x[part] @ y.T).sub_(hubness), strict=True):
                of_gold = scores[gold[query]]
                # Candidates with the same similarity are ranked before the gold word, so a tie counts as wrong.
                ranks.append(int((scores >= of_gold.max()).sum()) - int((of_gold == of_gold.max()).sum()) + 1)
        return np.array(ranks, dtype=np.float64), left_out


def by_frequency(dictionary: Dictionary, start: int, stop: int | None) -> Dictionary:
    """Return the entries whose source word has an index from `start` to `stop` (exclusive) in dictionary order.

    Raises:
        SettingError: the dictionary has no source words in this range.
    """
    order = {word: k for k, word in enumerate(dict.fromkeys(dictionary.source))}
    stop = len(order) if stop is None else stop
    chosen = [k for k, word in enumerate(dictionary.source) if start <= order[word] < stop]
    if not chosen:
        name = dictionary.path or "dictionary"
        raise SettingError(f"{name}: entries must be within its {len(order):,} source words, got {start} to {stop}")
    source, target = (tuple(side[k] for k in chosen) for side in (dictionary.source, dictionary.target))
    return replace(dictionary, source=source, target=target)
