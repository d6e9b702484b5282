"""Word sense disambiguation by the nearest sense vector (Multi-sense, §5.1; Peters et al. 2018, §5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from calque.errors import SettingError
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import interval, ratio

if TYPE_CHECKING:
    from calque.annotated import SenseText
    from calque.encoders.base import Encoder


class Disambiguation(Task):
    """Says in which sense a word is used.

    The vector of a sense is the mean over its occurrences in the training text. A test word takes the nearest one by
    cosine among the senses that its lemma and part of speech have there; a lemma that never occurs there takes the sense
    that `first_sense` says, else it is left without an answer. F1 is that of the unified evaluation framework (Raganato
    et al. 2017): precision over the words answered, recall over all.

    Args:
        train: text with senses.
        tests: texts to test on, by name.
        first_sense: the first sense in WordNet of a lemma and part of speech, "lemma%NOUN" → key, see `first_senses`;
            without it a word whose lemma does not occur in the training text has no answer.
        restrict: "lemma" as described; "none" compares with all senses, by Euclidean distance, as the script released
            with Multi-sense does.
        bootstrap, seed: samples and seed of the interval.
    """

    def __init__(
        self,
        train: SenseText,
        tests: Mapping[str, SenseText],
        *,
        first_sense: Mapping[str, str] | None = None,
        restrict: Literal["lemma", "none"] = "lemma",
        bootstrap: int = 1000,
        seed: int = 0,
    ):
        if restrict not in ("lemma", "none"):
            raise SettingError(f"restrict is lemma or none, got {restrict!r}")
        for name, text in {"train": train, **tests}.items():
            if len(text) and not text.keys:
                raise SettingError(
                    f"{text.path or name}: no key file beside it, so the right senses are not known: "
                    "expected X.gold.key.txt beside X.data.xml"
                )
        self.train, self.tests, self.restrict = train, dict(tests), restrict
        self.first = dict(first_sense or {})
        self.bootstrap, self.seed = bootstrap, seed

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """F1 of each test text. `settings` has the F1 of the most frequent sense and of a blind guess among the senses of
        the lemma (`frequent`, `chance`), and how many words had a lemma that the training text has not."""
        keys, centres = self._senses(self._vectors(encoder, self.train, progress))
        candidates = self._candidates(keys)
        scores = []
        for name, text in self.tests.items():
            vectors = self._vectors(encoder, text, progress)
            answers = self._answers(text, vectors, keys, centres, candidates)
            right = np.array([a is not None and a in k for a, k in zip(answers, text.keys, strict=True)], dtype=float)
            answered = np.array([a is not None for a in answers], dtype=float)
            sums = np.zeros((len(text.sentences), 3))
            np.add.at(sums, text.sentence, np.stack([right, answered, np.ones(len(right))], axis=1))
            about = {
                "restrict": self.restrict, "first_senses": len(self.first), "senses": len(keys),
                "answered": int(answered.sum()), **self._blind(text, keys, candidates),
                "unseen_lemmas": int(sum(_entry(text, i) not in candidates for i in range(len(text)))),
                "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            }  # fmt: skip
            figures = interval(sums, _f1, samples=self.bootstrap, seed=self.seed)
            lang = text.sentences.lang
            scores.append(Score("wsd", name, (lang,), "f1", *figures, len(text), self.seed, about))
        return scores

    def _vectors(self, encoder: Encoder, text: SenseText, progress: bool) -> np.ndarray:
        """Unit vectors of the annotated words (raw ones for `restrict=none`), float32 `[n_instances, dim]`."""
        embeddings = encoder.encode(text.sentences, progress=progress)
        rows = np.asarray(embeddings.data[embeddings.rows(text.sentence, text.word)], dtype=np.float32)
        return rows if self.restrict == "none" else _unit(rows)

    def _senses(self, vectors: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Names of the senses, and their mean vectors `[n_senses, dim]`. A word with several keys counts for each."""
        rows = np.repeat(np.arange(len(vectors)), [len(keys) for keys in self.train.keys])
        flat = [key for keys in self.train.keys for key in keys]
        names, codes = np.unique(np.array(flat, dtype=object).astype(str), return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(names)))
        means = np.add.reduceat(vectors[rows[order]], starts, axis=0, dtype=np.float64)
        means /= np.bincount(codes, minlength=len(names))[:, None]
        means = means.astype(np.float32)
        self._counts = np.bincount(codes, minlength=len(names))
        return names.tolist(), means if self.restrict == "none" else _unit(means)

    def _candidates(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """Senses of each lemma and part of speech in the training text."""
        number = {key: k for k, key in enumerate(keys)}
        found: dict[str, set[int]] = {}
        for i, several in enumerate(self.train.keys):
            found.setdefault(_entry(self.train, i), set()).update(number[key] for key in several)
        return {entry: sorted(several) for entry, several in found.items()}

    def _blind(self, text: SenseText, keys: Sequence[str], candidates: Mapping[str, list[int]]) -> dict[str, float]:
        """F1 of answers that know the lemma and nothing of the sentence: `frequent`, its most frequent sense in the
        training text; `chance`, the mean over drawing any of its senses there."""
        counts = np.zeros((2, 3))
        for i, right in enumerate(text.keys):
            several = candidates.get(_entry(text, i), [])
            first = self.first.get(_entry(text, i))
            hits = [keys[k] in right for k in several] or ([] if first is None else [first in right])
            best = hits[int(np.argmax(self._counts[several]))] if several else sum(hits)
            counts += [[best, bool(hits), 1], [sum(hits) / max(1, len(hits)), bool(hits), 1]]
        frequent, chance = _f1(counts)
        return {"frequent": round(float(frequent), 5), "chance": round(float(chance), 5)}

    def _answers(self, text, vectors, keys, centres, candidates) -> list[str | None]:
        if self.restrict == "none":
            return [keys[k] for k in _nearest(vectors, centres)]
        answers: list[str | None] = []
        for i in range(len(text)):
            entry = _entry(text, i)
            if entry in candidates:
                several = candidates[entry]
                answers.append(keys[several[int(np.argmax(centres[several] @ vectors[i]))]])
            else:
                answers.append(self.first.get(entry))
        return answers


def first_senses(path: str) -> dict[str, str]:
    """The first sense of every lemma and part of speech, from WordNet's `index.sense` (sense_key offset number count)."""
    from calque.corpora.lines import read_lines
    from calque.errors import InputError

    names = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split() if isinstance(line, str) else []
        if len(fields) != 4 or "%" not in fields[0]:
            raise InputError("no line of WordNet's index.sense (sense_key offset number count)", path=path, line=number)
        lemma, _, rest = fields[0].partition("%")
        if fields[2] == "1" and rest[:1] in names:
            found[f"{lemma}%{names[rest[0]]}"] = fields[0]
    return found


def _entry(text: SenseText, i: int) -> str:
    return f"{text.lemmas[i].lower()}%{text.pos[i]}"


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _nearest(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Number of the centre at the smallest Euclidean distance."""
    half = 0.5 * (centres.astype(np.float64) ** 2).sum(axis=1)
    return np.concatenate(
        [np.argmax(part @ centres.T - half, axis=1) for part in np.array_split(vectors, max(1, len(vectors) // 512))]
    )


def _f1(counts: np.ndarray) -> np.ndarray:
    return np.nan_to_num(ratio(2.0 * counts[..., 0], counts[..., 1] + counts[..., 2]))
