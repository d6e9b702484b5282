"""Word retrieval accuracy by part of speech, frequency and length of the words, and by layer of the
encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from calque.analyses.questions import SIDES, Finding, Questions, View, frequency_ranks
from calque.encoders.base import Encoder, require
from calque.errors import SettingError
from calque.tasks.base import about_encoder
from calque.tasks.bootstrap import intervals, ratio
from calque.tasks.retrieval import WordRetrieval

#: word classes of Cao et al. (2020, Table 4); as in the paper, the tags PART, SYM, INTJ and X
#: belong to no class
CLASSES = {
    "lexical overlap": ("NUM", "PUNCT", "PROPN"),
    "closed-class": ("DET", "ADP", "CONJ", "PRON", "AUX"),
    "open-class": ("NOUN", "ADV", "ADJ", "VERB"),
}
_CONJUNCTIONS = ("CCONJ", "SCONJ")  # the paper's tagset has a single tag, CONJ, for both

#: lower ends of the bins of `by_rank`
RANKS = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
#: lower ends of the bins of `by_length`
LENGTHS = (1, 2, 4, 6, 8, 10, 13)


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
    settings: Mapping[str, object] = field(default_factory=dict)


def accuracies(analysis: str, questions: Questions, view: View, groups: Groups) -> list[Finding]:
    """Compute the accuracy of each group over both retrieval directions, and the mean accuracy over
    the groups of each class.

    Groups without queries are omitted. The bootstrap resamples sentences, as in word retrieval.
    """
    findings = []
    for selection, selected in questions.selections.items():
        sums = _sums(questions, view, groups, selected)
        findings += _findings_of(analysis, questions, view, groups, selection, sums)
    return findings


def _findings_of(
    analysis: str,
    questions: Questions,
    view: View,
    groups: Groups,
    selection: str,
    sums: np.ndarray,
) -> list[Finding]:
    """Return the accuracies of the groups and of the classes over one selection of links.

    Args:
        selection: name of the selection, "all" or "unseen".
        sums: numbers of correct answers and queries per direction, sentence and group,
            `[n_sentences, n_groups, 4]`, see `_sums`.
    """
    totals = sums.sum(axis=0)
    queries = totals[:, 1] + totals[:, 3]
    used = np.flatnonzero(queries).tolist()
    classes = _classes_in_use(groups, used)

    def group_and_class_accuracies(drawn: np.ndarray) -> np.ndarray:
        rates = ratio(drawn[..., 0] + drawn[..., 2], drawn[..., 1] + drawn[..., 3])
        means = [_mean(rates[..., members])[..., None] for members in classes.values()]
        return np.concatenate([rates, *means], axis=-1)

    samples = questions.task.bootstrap
    values, low, high = intervals(sums, group_and_class_accuracies, samples=samples)
    about = {
        "links": selection,
        **groups.settings,
        "counted": "links" if groups.of_links else "questions",
    }
    class_of = {k: title for title, members in classes.items() for k in members}
    # Each value with the groups that it covers. The values of the classes follow those of all
    # groups.
    described: list[_GroupAccuracy] = []
    for k in used:
        settings: dict[str, object] = {"directions": _by_direction(questions.langs, totals[k])}
        if k in class_of:
            settings["class"] = class_of[k]
        described.append(_GroupAccuracy(k, [k], groups.names[k], groups.x[k], settings))
    for index, (title, members) in enumerate(classes.items(), len(groups.names)):
        mean_of = [groups.names[k] for k in members]
        described.append(_GroupAccuracy(index, members, title, None, {"mean_of": mean_of}))
    findings = []
    for value in described:
        n = int(queries[value.members].sum())
        if groups.of_links:
            n //= 2  # both queries of a link are in the same group
        row = value.row
        findings.append(
            questions.finding(
                analysis,
                view,
                f"accuracy.{selection}",
                (float(values[row]), float(low[row]), float(high[row])),
                n,
                {**about, **value.settings},
                group=value.name,
                x=value.x,
            )
        )
    return findings


class _GroupAccuracy(NamedTuple):
    """Accuracy of a group or of a class of groups.

    Attributes:
        row: index of the value among the values of all groups and classes.
        members: indices of the groups that the value covers.
        name, x: name of the group or class, and its position on the axis.
        settings: settings to record with the value.
    """

    row: int
    members: list[int]
    name: str
    x: float | None
    settings: dict[str, object]


def _classes_in_use(groups: Groups, used: Sequence[int]) -> dict[str, list[int]]:
    """Return the indices of the groups with queries in each class that has any.

    Args:
        used: indices of the groups with queries.
    """
    classes: dict[str, list[int]] = {}
    for title, names in groups.classes.items():
        members = [k for k in used if groups.names[k] in names]
        if members:
            classes[title] = members
    return classes


def _by_direction(langs: tuple[str, str], totals: np.ndarray) -> dict[str, float | None]:
    """Return the accuracy in each direction, or None in a direction without queries.

    Args:
        totals: numbers of correct answers and queries of the source words, then of the target
            words, `[4]`.
    """
    source, target = langs
    source_hits, source_queries, target_hits, target_queries = totals
    return {
        f"{source}-{target}": float(source_hits / source_queries) if source_queries else None,
        f"{target}-{source}": float(target_hits / target_queries) if target_queries else None,
    }


def _sums(questions: Questions, view: View, groups: Groups, selected: np.ndarray) -> np.ndarray:
    """Count correct answers and queries per direction, sentence and group, `[n_sentences, n_groups,
    4]`.

    Args:
        selected: mask of the links to count, bool `[n_pairs]`.
    """
    answers, n_groups = view.answers, len(groups.names)
    # A cell is one sentence and group, so that one `bincount` counts all of them.
    n_cells = len(questions.corpus) * n_groups
    columns = []
    for hits, codes in ((answers.source_hits, groups.source), (answers.target_hits, groups.target)):
        is_counted = selected[answers.queries] & (codes[answers.queries] >= 0)
        queries = answers.queries[is_counted]
        cells = questions.pairs.sentence[queries] * n_groups + codes[queries]
        columns.append(np.bincount(cells, weights=hits[is_counted], minlength=n_cells))
        columns.append(np.bincount(cells, minlength=n_cells))
    return np.stack(columns, axis=1).reshape(-1, n_groups, 4)


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the last axis, ignoring NaN."""
    is_finite = np.isfinite(values)
    return ratio(np.where(is_finite, values, 0).sum(axis=-1), is_finite.sum(axis=-1))


# -- groups ----------------------------------------------------------------------------------------
def binned(
    source: np.ndarray,
    target: np.ndarray,
    starts: Sequence[float],
    *,
    whole: bool = True,
    **settings: object,
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
    source_values = np.asarray(source, dtype=np.float64)
    target_values = np.asarray(target, dtype=np.float64)
    source_bins, target_bins = _bins(source_values, starts), _bins(target_values, starts)
    names: list[str] = []
    places: list[float] = []
    for start, end in pairwise(starts):
        if whole:
            names.append(str(start) if end == start + 1 else f"{start:,}–{end - 1:,}")
            places.append((start + end - 1) / 2)
        else:
            names.append(f"{start:,}–{end:,}")
            places.append(round(float(np.sqrt(start * end)), 2) if start else end / 2)
    last = len(starts) - 1
    in_last = np.concatenate(
        [source_values[source_bins == last], target_values[target_bins == last]]
    )
    names.append(f"{starts[last]:,}+")
    places.append(round(float(in_last.mean()), 2) if len(in_last) else float(starts[last]))
    return Groups(names, source_bins, target_bins, x=places, of_links=not whole, settings=settings)


def _bins(values: np.ndarray, starts: Sequence[float]) -> np.ndarray:
    """Return the bin of each value, int64 `[n]`; −1 for NaN and for values below all bins."""
    bins = np.searchsorted(starts, values, side="right") - 1
    return np.where(values >= starts[0], bins, -1)  # the comparison is false for NaN


def by_pos(questions: Questions) -> Groups | None:
    """Group queries by part-of-speech tag, in three classes (Cao et al. 2020, Table 4); return None
    if there are no tags.

    The tags are universal (UPOS). If only one side has tags, both queries of a link get the tag of
    the link's word on that side. If both sides have tags, each query gets the tag of its own word.
    """
    tags = questions.tags
    if not tags:
        return None
    names: list[str] = []
    for class_tags in CLASSES.values():
        names += class_tags
    group_of = {tag: k for k, tag in enumerate(names)}
    group_of |= dict.fromkeys(_CONJUNCTIONS, group_of["CONJ"])
    codes = {}
    tagged_words = {}
    for side, lang in zip(SIDES, questions.langs, strict=True):
        if side not in tags:
            continue
        numbers, tag_names = tags[side]
        # The last entry is for the tag number −1 of unknown tags.
        group_of_tag = np.array([*(group_of.get(tag, -1) for tag in tag_names), -1], dtype=np.int64)
        codes[side] = group_of_tag[numbers][questions.rows[side]]
        tagged_words[lang] = int((numbers >= 0).sum())
    one_side = next(iter(codes.values()))
    return Groups(
        names,
        codes.get("source", one_side),
        codes.get("target", one_side),
        x=[None] * len(names),
        of_links=len(codes) == 1,
        classes=CLASSES,
        settings={"tagged_words": tagged_words},
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


# -- curves ----------------------------------------------------------------------------------------
def layer_curve(questions: Questions, views: Mapping[int, View]) -> list[Finding]:
    """Return the token-level and type-level accuracy of each layer on all links and, if there is a
    training text, on unseen links. The attribute `x` is the index of the layer; layer 0 is the
    embedding layer."""
    metrics = {f"accuracy.{selection}" for selection in questions.selections}
    metrics |= {f"form.{selection}" for selection in questions.selections}
    findings = []
    for layer, view in views.items():
        scores = questions.task.evaluate_embeddings(
            view.source, view.target, about={**view.about, "layer": layer}, retrieved=view.answers
        )
        for score in scores:
            if score.metric in metrics:  # the other metrics are those of a single direction
                findings.append(Finding("layers", view.name, score, None, float(layer)))
    return findings


def compare_layers(
    tasks: Sequence[WordRetrieval],
    encoder: Encoder,
    layers: Sequence[int] | Literal["all"],
    about: Mapping[str, object],
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
    all_layers = getattr(encoder, "layers", ())
    if len(all_layers) < 2:
        raise SettingError(
            f"--layers requires an encoder with several layers, but {encoder.name} has only one"
        )
    numbers = sorted(set(encoder.layer_numbers(all_layers if layers == "all" else layers)))
    about = {**about_encoder(encoder), **about}
    whole: list[Finding] = []
    dev: list[Finding] = []
    test: list[Finding] = []
    for task in tasks:
        questions = Questions(task)
        # Alternate sentences, because the two halves of a document can differ in topic.
        is_odd = questions.pairs.sentence % 2 == 1
        if len(np.unique(is_odd if task.unseen is None else is_odd[task.unseen])) < 2:
            raise SettingError(
                f"{task.data}: each half needs word links (unseen links with --train); use more "
                "text"
            )
        views = _views_of_layers(questions, encoder, numbers, about, progress=progress)
        whole += layer_curve(questions, views)
        dev += _curve_of_half(questions, views, ~is_odd, ".dev-half")
        test += _curve_of_half(questions, views, is_odd, ".test-half")
        del views  # free the memory before the vectors of the next text are computed
    # The first metric is accuracy, over unseen links if there is a training text.
    dev = [finding for finding in dev if finding.score.metric == dev[0].score.metric]

    def total(layer: int) -> float:
        return sum(finding.score.value for finding in dev if finding.x == layer)

    best = max(numbers, key=total)
    return [*whole, *dev, *(finding for finding in test if finding.x == best)]


def _views_of_layers(
    questions: Questions,
    encoder: Encoder,
    layers: Sequence[int],
    about: Mapping[str, object],
    *,
    progress: bool,
) -> dict[int, View]:
    """Return the retrieval results of each layer on a test text."""
    task = questions.task
    source = encoder.encode_layers(task.corpus.source, layers, progress=progress)
    target = encoder.encode_layers(task.corpus.target, layers, progress=progress)
    settings = {**about, **task.notes}
    return {
        layer: questions.ask(encoder.name, source[layer], target[layer], settings, depth=1)
        for layer in layers
    }


def _curve_of_half(
    questions: Questions, views: Mapping[int, View], selected: np.ndarray, suffix: str
) -> list[Finding]:
    """Return the accuracies of each layer over the selected links, with a suffix on the metrics."""
    # The candidates stay those of the whole text, so both halves are equally hard.
    views_of_half = {layer: view.only(selected) for layer, view in views.items()}
    findings = []
    for finding in layer_curve(questions, views_of_half):
        score = finding.score
        findings.append(replace(finding, score=replace(score, metric=score.metric + suffix)))
    return findings
