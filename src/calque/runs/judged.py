"""Scores that a run has of its own result: on held-out text, and of what it cost a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calque.tasks.base import Score
from calque.tasks.bootstrap import measure

if TYPE_CHECKING:
    from calque.alignment.base import Judged
    from calque.encoders import Encoder
    from calque.text import ParallelCorpus

_SENTENCES = 1000


def scores_of(judged: Sequence[Judged], *, seed: int = 0) -> list[Score]:
    """A score with its interval over sentences for each figure; those without any sentence are left out."""
    found = []
    for each in judged:
        if not len(each.counts):
            continue
        measured = measure(each.counts, each.statistic)
        found.append(
            Score(
                each.table, f"held out, {each.model}", each.langs, each.metric, *measured.ends, len(each.counts), seed,
                {"model": each.model, "sentences": len(each.counts)}, percent=each.percent, **measured.kept,
            )
        )  # fmt: skip
    return found


def sentence_cost(
    base: Encoder, aligned: Encoder, corpora: Sequence[ParallelCorpus], lang: str
) -> dict[str, float | int | str] | None:
    """Compare a sentence encoder's vectors of one language before and after alignment.

    Args:
        lang: the language, `towards`.

    Returns:
        the number of different sentences, evenly spaced; Pearson's correlation of the cosines of all pairs of them before and
        after; and the mean of these cosines before and after, which is that of unrelated sentences. None where the base is
        no sentence encoder, or the text has fewer than three sentences.
    """
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.encoders.sentence_vectors import SentencePooling, modules_folder, sentence_vectors

    if not isinstance(aligned, HuggingFaceEncoder) or modules_folder(base) is None:
        return None
    corpus = next(each for each in corpora if lang in each.langs)
    text = corpus.source if corpus.langs[0] == lang else corpus.target
    first = np.unique([" ".join(sentence.words) for sentence in text], return_index=True)[1]
    rows = np.sort(first)[np.linspace(0, len(first) - 1, min(len(first), _SENTENCES)).astype(int)]
    if len(rows) < 3:
        return None
    pairs, cosines, pooling = np.triu_indices(len(rows), 1), [], SentencePooling.of(base)
    for encoder in (base, aligned):
        vectors = sentence_vectors(encoder, text.take(rows), pooling).data.astype(np.float64)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        cosines.append((unit @ unit.T)[pairs])
    return {
        "lang": lang, "sentences": len(rows), "correlation": round(float(np.corrcoef(*cosines)[0, 1]), 4),
        "unrelated_before": round(float(cosines[0].mean()), 4), "unrelated_after": round(float(cosines[1].mean()), 4),
    }  # fmt: skip
