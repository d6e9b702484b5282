"""Accuracy by layer and by the amount of training text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.algebra.procrustes import Moments
from calque.analyses.finding import Finding
from calque.analyses.questions import Questions, View
from calque.encoders.base import require
from calque.encoders.mapped import paired_words
from calque.errors import SettingError
from calque.maps import VectorMap
from calque.progress import bar
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

_BLOCK = 2048  # sentence pairs of a training text encoded at a time


def mapped(vectors: Embeddings, by: VectorMap) -> Embeddings:
    """Vectors through a map; a word without a vector has none behind it either."""
    data = by.transform(np.asarray(vectors.data))
    if vectors.covered is not None:
        data[~vectors.covered] = 0
    return Embeddings(data, vectors.offsets, vectors.covered)


def headline(
    analysis: str, questions: Questions, view: View, *, group: str | None = None, x: float | None = None,
    about: Mapping[str, Any] | None = None,
) -> list[Finding]:  # fmt: skip
    """Accuracy over all links, and over unseen ones, then both by form: one point of a curve each."""
    asked = (questions.pairs, questions.unseen, view.answers)
    scores = questions.task.evaluate_embeddings(
        view.source, view.target, about={**view.about, **dict(about or {})}, asked=asked
    )
    wanted = [f"{kind}.{name}" for kind in ("accuracy", "form") for name in questions.selections]
    return [Finding(analysis, view.name, s, group, x) for name in wanted for s in scores if s.metric == name]


def layer_curve(
    questions: Questions,
    name: str,
    source: Mapping[int, Embeddings],
    target: Mapping[int, Embeddings],
    *,
    about: Mapping[str, Any] | None = None,
    known: Mapping[int, View] | None = None,
) -> list[Finding]:
    """Accuracy of every layer; x is the layer, 0 the embeddings.

    Args:
        name: of the encoder.
        source, target: the test text by layer.
        about: what to record of the encoder.
        known: answers of layers that have been asked already.
    """
    findings = []
    for layer in source:
        view = (known or {}).get(layer) or questions.ask(name, source[layer], target[layer], depth=1)
        settings = {**dict(about or {}), "layer": layer}
        findings += headline("layers", questions, view, x=float(layer), about=settings)
    return findings


def growing_maps(
    encoder: Encoder,
    corpus: ParallelCorpus,
    pairs: WordPairs,
    sizes: Sequence[int],
    *,
    make: Callable[[], VectorMap],
    progress: bool = False,
) -> Iterator[tuple[int, VectorMap]]:
    """Maps from target to source vectors, fitted on the first so many sentence pairs; the text is encoded once.

    Args:
        encoder: whose vectors are mapped.
        corpus, pairs: training text and its word links.
        sizes: numbers of sentence pairs, rising. Those beyond the text are left out.
        make: gives a new map.
        progress: show a bar on standard error.
    """
    require(encoder, "measured")
    pairs.check(corpus)
    moments = Moments(encoder.dim, encoder.dim)
    total, done = min(max(sizes, default=0), len(corpus)), 0
    shown = bar(total, unit="pair", title="fit maps", show=progress and total > 0)
    for size in sorted(set(sizes)):
        if size > len(corpus):
            break
        while done < size:
            stop = min(done + _BLOCK, size)
            part, part_pairs = corpus[done:stop], pairs.slice(done, stop)
            source, target = (encoder.encode(side) for side in (part.source, part.target))
            x, y = paired_words(source, target, part_pairs)
            moments.update(y, x)
            shown.update(stop - done)
            done = stop
        if moments.n:
            yield size, make().fit_moments(moments)
    shown.close()


def size_curve(
    questions: Questions,
    view: View,
    encoder: Encoder,
    pairs: WordPairs,
    sizes: Sequence[int],
    *,
    make: Callable[[], VectorMap],
    progress: bool = False,
) -> list[Finding]:
    """Accuracy after maps fitted on growing parts of the training text; x is the number of sentence pairs, 0 none.

    Args:
        view: the encoder's answers without a map.
        encoder: the encoder.
        pairs: word links of the training text.
        sizes, make: see `growing_maps`.

    Raises:
        SettingError: the questions have no training text.
    """
    if questions.task.train is None:
        raise SettingError("a curve over data sizes needs a training text")
    findings = headline("data-size", questions, view, group=make().kind, x=0.0, about={"sentence_pairs": 0})
    train = questions.task.train
    for size, fitted in growing_maps(encoder, train, pairs, sizes, make=make, progress=progress):
        aligned = questions.ask(view.name, view.source, mapped(view.target, fitted), view.about, depth=1)
        about = {"sentence_pairs": size, "word_pairs": fitted.n_pairs, "map": fitted.kind}
        findings += headline("data-size", questions, aligned, group=fitted.kind, x=float(size), about=about)
    return findings
