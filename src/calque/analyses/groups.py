"""Word retrieval accuracy by part of speech, frequency and length of the words, and by layer of the
encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from calque.analyses.questions import SIDES, Finding, Questions, View, frequency_ranks
from calque.encoders.base import Encoder, require
from calque.errors import SettingError
from calque.tasks.bootstrap import intervals, ratio
from calque.tasks.retrieval import WordRetrieval

# : word classes of Cao et al. (2020, Table 4); as in the paper, the tags PART, SYM, INTJ and X
# belong to no class
CLASSES = {
    "lexical overlap": ("NUM", "PUNCT", "PROPN"),
    "closed-class": ("DET", "ADP", "CONJ", "PRON", "AUX"),
    "open-class": ("NOUN", "ADV", "ADJ", "VERB"),
}
_CONJUNCTIONS = ("CCONJ", "SCONJ")  # the paper's tagset has a single tag, CONJ, for both

RANKS = (
    0,
    1,
    3,
    10,
    30,
    100,
    300,
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
)  # lower ends of the bins of `by_rank`
LENGTHS = (1, 2, 4, 6, 8, 10, 13)  # lower ends of the bins of `by_length`


@dataclass(frozen=True)
class Groups:
    """Groups of retrieval queries. Every word link yields two queries: its source word and its
    target word.

    Attributes:
        names: names of the groups.
        source, target: group index of each link's source or target word, int `[n_pairs]`; −1 if the
            word is in no group.
        x: position of each group on the axis of the plot, or None if the groups have no order.
        of_links: whether both queries of a link are always in the same group; if true, links are
            counted instead of queries.
        classes: names of the groups in each class; the mean accuracy over the groups of a class is
            also reported.
        settings: settings to record with the scores.
    """

    names: Sequence[str]
    source: np.ndarray
    target: np.ndarray
    x: Sequence[float | None]
    of_links: bool = False
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def accuracies(analysis: str, questions: Questions, view: View, groups: Groups) -> list[Finding]:
    """Compute the accuracy of each group over both retrieval directions, and the mean accuracy over
    the groups of each class.

    Groups without queries are omitted. The bootstrap resamples sentences, as in word retrieval.
    """
    findings = []
    for name, chosen in questions.selections.items():
        sums = _sums(questions, view, groups, chosen)
        totals = sums.sum(axis=0)
        queries = totals[:, 1] + totals[:, 3]
        used = np.flatnonzero(queries).tolist()
        classes = {
            title: [k for k in used if groups.names[k] in members]
            for title, members in groups.classes.items()
        }
        classes = {title: members for title, members in classes.items() if members}

        def figures(drawn: np.ndarray, classes=classes) -> np.ndarray:
            rates = ratio(drawn[..., 0] + drawn[..., 2], drawn[..., 1] + drawn[..., 3])
            means = [_mean(rates[..., members]) for members in classes.values()]
            return np.concatenate([rates, np.stack(means, axis=-1)], axis=-1) if means else rates

        values, low, high = intervals(sums, figures, samples=questions.task.bootstrap)
        by_group = {k: title for title, members in classes.items() for k in members}
        about = {
            "links": name,
            **groups.settings,
            "counted": "links" if groups.of_links else "questions",
        }
        # tuples: index of the value, indices of its groups, settings, name, position on the axis
        shown = []
        for k in used:
            ways = zip(
                ("-".join(questions.langs), "-".join(questions.langs[::-1])), (0, 2), strict=True
            )
            rates = {
                way: float(totals[k, i] / totals[k, i + 1]) if totals[k, i + 1] else None
                for way, i in ways
            }
            settings = {"directions": rates, **({"class": by_group[k]} if k in by_group else {})}
            shown.append((k, [k], settings, groups.names[k], groups.x[k]))
        for k, (title, members) in enumerate(classes.items(), len(groups.names)):
            shown.append(
                (k, members, {"mean_of": [groups.names[member] for member in members]}, title, None)
            )
        for k, members, settings, title, x in shown:
            score, n = (
                (float(values[k]), float(low[k]), float(high[k])),
                int(queries[members].sum()) // (2 if groups.of_links else 1),
            )
            record = {**about, **settings}
            findings.append(
                questions.finding(
                    analysis, view, f"accuracy.{name}", score, n, record, group=title, x=x
                )
            )
    return findings


def _sums(questions: Questions, view: View, groups: Groups, chosen: np.ndarray) -> np.ndarray:
    """Count correct answers and queries per direction, sentence and group, `[n_sentences, n_groups,
    4]`.
    """
    answers, size, columns = view.answers, len(groups.names), []
    for hits, codes in ((answers.source_hits, groups.source), (answers.target_hits, groups.target)):
        known = chosen[answers.queries] & (codes[answers.queries] >= 0)
        queries = answers.queries[known]
        cells = questions.pairs.sentence[queries] * size + codes[queries]
        for weights in (hits[known], np.ones(len(cells))):
            columns.append(
                np.bincount(cells, weights=weights, minlength=len(questions.corpus) * size)
            )
    return np.stack(columns, axis=1).reshape(-1, size, 4)


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the last axis, ignoring NaN."""
    known = np.isfinite(values)
    return ratio(np.where(known, values, 0).sum(axis=-1), known.sum(axis=-1))


# -- groups
# --------------------------------------------------------------------------------------------------
def binned(
    source: np.ndarray,
    target: np.ndarray,
    starts: Sequence[float],
    *,
    whole: bool = True,
    **settings: Any,
) -> Groups:
    """Group links into bins by the values of their source and target words. The attribute `x` is
    the midpoint of each bin if `whole`, otherwise the geometric mean of its ends. For the last bin,
    which has no end, `x` is the mean of its values.

    Args:
        source, target: value of each link's source or target word, `[n_pairs]`; NaN and values
            below all bins are in no bin.
        starts: lower end of each bin; the last bin has no upper end.
        whole: whether the values are integers. If true, the bin "2–3" contains 2 and 3. Otherwise,
            the bin "10–30" contains values from 10 up to but not including 30, and both values of a
            link must be equal.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (source, target)]
    codes = [
        np.where(side >= starts[0], np.searchsorted(starts, side, side="right") - 1, -1)
        for side in sides
    ]
    codes = [np.where(np.isnan(side), -1, code) for side, code in zip(sides, codes, strict=True)]
    names: list[str] = []
    places: list[float] = []
    for start, end in pairwise(starts):
        if whole:
            names.append(str(start) if end == start + 1 else f"{start:,}–{end - 1:,}")
            places.append((start + end - 1) / 2)
        else:
            names.append(f"{start:,}–{end:,}")
            places.append(round(float(np.sqrt(start * end)), 2) if start else end / 2)
    inside = np.concatenate(
        [side[code == len(starts) - 1] for side, code in zip(sides, codes, strict=True)]
    )
    names.append(f"{starts[-1]:,}+")
    places.append(round(float(inside.mean()), 2) if len(inside) else float(starts[-1]))
    return Groups(names, *codes, x=places, of_links=not whole, settings=settings)


def by_pos(questions: Questions) -> Groups | None:
    """Group queries by part-of-speech tag, in three classes (Cao et al. 2020, Table 4); return None
    if there are no tags.

    The tags are universal (UPOS). If only one side has tags, both queries of a link get the tag of
    the link's word on that side. If both sides have tags, each query gets the tag of its own word.
    """
    tags = questions.tags
    if not tags:
        return None
    names = [tag for tags_of in CLASSES.values() for tag in tags_of]
    places = {tag: k for k, tag in enumerate(names)} | dict.fromkeys(
        _CONJUNCTIONS, names.index("CONJ")
    )
    codes = {}
    for side, (numbers, known) in tags.items():
        table = np.array([*(places.get(tag, -1) for tag in known), -1], dtype=np.int64)
        codes[side] = table[numbers][questions.rows[side]]
    both = [codes[side] if side in codes else next(iter(codes.values())) for side in SIDES]
    words = {questions.langs[side == "target"]: int((tags[side][0] >= 0).sum()) for side in tags}
    return Groups(
        names,
        *both,
        x=[None] * len(names),
        of_links=len(codes) == 1,
        classes=CLASSES,
        settings={"tagged_words": words},
    )


def by_rank(questions: Questions) -> Groups:
    """Group links by |frequency rank of the source word − frequency rank of the target word| (Cao
    et al. 2020, §5.3, Fig. 3).

    The lower-cased word types of each language are ranked by their frequency in the test and
    training text (`frequency_ranks`); the paper does not specify which text is counted. Each bin is
    about three times as wide as the previous one.

    A training text is recommended. If only the test text is counted, most word types occur once and
    share the same rank, so most differences fall into the same bin.
    """
    ranks = []
    for side in SIDES:
        rank = frequency_ranks(questions.counts[side])
        ranks.append(questions.of_links(side, [rank[word] for word in questions.types[side][1]]))
    apart = np.abs(ranks[0] - ranks[1])
    counted = "test text" if questions.task.train is None else "test and training text"
    return binned(apart, apart, RANKS, whole=False, frequencies=counted)


def by_length(questions: Questions) -> Groups:
    """Group queries by the number of characters in the query word."""
    source, target = (
        questions.of_links(side, [len(word) for word in questions.types[side][1]]) for side in SIDES
    )
    return binned(source, target, LENGTHS, unit="characters")


# -- curves
# --------------------------------------------------------------------------------------------------
def layer_curve(questions: Questions, views: Mapping[int, View]) -> list[Finding]:
    """Return the token-level and type-level accuracy of each layer on all links and, if there is a
    training text, on unseen links. The attribute `x` is the index of the layer; layer 0 is the
    embedding layer."""
    wanted = [f"{kind}.{name}" for kind in ("accuracy", "form") for name in questions.selections]
    findings = []
    for n, view in views.items():
        about = {**view.about, "layer": n}
        scores = questions.task.evaluate_embeddings(
            view.source, view.target, about=about, found=view.answers
        )
        findings += [
            Finding("layers", view.name, score, None, float(n))
            for score in scores
            if score.metric in wanted
        ]
    return findings


def compare_layers(
    tasks: Sequence[WordRetrieval],
    encoder: Encoder,
    layers: Sequence[int] | Literal["all"],
    about: Mapping[str, Any],
    *,
    progress: bool = False,
) -> list[Finding]:
    """Score several layers of an encoder, and select the best layer on every other sentence pair
    (1st, 3rd, …) of each test text.

    The selected layer has the highest mean accuracy on these sentence pairs; with a training text,
    only unseen links count. The retrieval candidates are the words of all sentence pairs.

    Args:
        layers: indices of the layers; negative indices count from the last layer.
        about: settings to record with the scores.

    Returns:
        scores of all layers, scores used for selection (suffix `.dev-half`), and test scores of the
        best layer (`.test-half`).

    Raises:
        SettingError: the encoder has only one layer, or one half of a test text contains no links.
    """
    require(encoder, "measured")
    if len(has := getattr(encoder, "layers", ())) < 2:
        raise SettingError(
            f"--layers requires an encoder with several layers, but {encoder.name} has only one"
        )
    numbers = sorted(set(encoder.layer_numbers(has if layers == "all" else layers)))
    about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, **about}
    parts: dict[str, list[Finding]] = {"": [], ".dev-half": [], ".test-half": []}
    for task in tasks:
        questions = Questions(task)
        odd, every = questions.pairs.sentence % 2 == 1, np.ones(len(questions.pairs), dtype=bool)
        if len(np.unique(odd if task.unseen is None else odd[task.unseen])) < 2:
            raise SettingError(
                f"{task.data}: each half needs word links (unseen links with --train); use more "
                "text"
            )
        texts = task.corpus.source, task.corpus.target
        source, target = (encoder.encode_layers(text, numbers, progress=progress) for text in texts)
        noted = {**about, **task.notes}
        views = {
            n: questions.ask(encoder.name, source[n], target[n], noted, depth=1) for n in numbers
        }
        for part, asked in zip(parts, (every, ~odd, odd), strict=True):
            curve = layer_curve(questions, {n: view.only(asked) for n, view in views.items()})
            parts[part] += [
                replace(f, score=replace(f.score, metric=f.score.metric + part)) for f in curve
            ]
        del (
            source,
            target,
            views,
        )  # free the memory before the vectors of the next text are computed
    whole, dev, test = parts.values()
    dev = [finding for finding in dev if finding.score.metric == dev[0].score.metric]
    chosen = max(
        numbers, key=lambda n: sum(finding.score.value for finding in dev if finding.x == n)
    )
    return [*whole, *dev, *(finding for finding in test if finding.x == chosen)]
