"""Pivots are word pairs in a sentence and its translation that are mutual nearest neighbours under
the transforms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.nn.matched import MatchedSentences
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.vectors import Embeddings

_WORDS = 32_768  # number of words on both sides that are processed at a time
_MIN_COST = 1e-9  # smaller costs are rounded up to this cost before ratios are computed
_EQUAL = 1e-5  # costs count as equal up to this relative difference, because of float32 rounding

TOLERANCE = 0.05  # maximum loss of F1 when the threshold is moved to a gap between costs


@dataclass(frozen=True)
class Pivots:
    """Mutual best word pairs, before a threshold is applied to their costs.

    Attributes:
        pairs: word pairs; each word occurs in at most one pair, and `posterior` is exp(−cost).
        costs: cost of each pair, float32 `[n_pairs]`.
    """

    pairs: WordPairs
    costs: np.ndarray

    def __len__(self) -> int:
        return len(self.costs)

    def within(self, threshold: float, *, at_least_one: bool = False) -> WordPairs:
        """Return the word pairs whose cost is at most the threshold. If `at_least_one`, also return
        the cheapest word pair of each sentence pair in which all costs exceed the threshold."""
        kept = self.costs <= threshold
        if at_least_one and len(self):
            order = np.lexsort((self.costs, self.pairs.sentence))
            _, first = np.unique(self.pairs.sentence[order], return_index=True)
            kept[order[first]] = True
        return self.pairs.select(kept)


def covered_words(vectors: Embeddings) -> np.ndarray:
    """Return the mask of words that have a vector, bool `[n_words]`."""
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def words_with_vectors(vectors: Embeddings) -> np.ndarray:
    """Return the number of words with a vector in each sentence, int64 `[n_sentences]`."""
    return np.diff(offsets_of(covered_words(vectors))[vectors.offsets])


def covered_rows(vectors: Embeddings, sentences: np.ndarray) -> np.ndarray:
    """Return the rows in `vectors.data` of the words with a vector in the given sentences,
    int64 `[n]`.
    """
    starts = vectors.offsets[sentences]
    rows = ranges(starts, vectors.offsets[sentences + 1] - starts)
    return rows if vectors.covered is None else rows[vectors.covered[rows]]


def float32_rows(vectors: Embeddings, rows: np.ndarray) -> Tensor:
    """Return the vectors of the selected words, float32 `[n, dim]`. `rows` are indices or a
    mask.
    """
    return torch.from_numpy(np.asarray(vectors.data[rows], dtype=np.float32))


@torch.no_grad()
def find_pivots(
    source: Embeddings, target: Embeddings, to_target: nn.Module, from_target: nn.Module
) -> Pivots:
    """Return the pairs of words (i, j) in a sentence and its translation that are each other's best
    match under the cost

        ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

    (CLCR, §3.2), where T₁₂ is `to_target` and T₂₁ is `from_target`. In a tie, the first word is
    chosen. Words without a vector are ignored. About 32,768 words are processed at a time.
    """
    device = next(to_target.parameters()).device
    lengths, translation_lengths = words_with_vectors(source), words_with_vectors(target)
    filled = np.flatnonzero((lengths > 0) & (translation_lengths > 0))
    # Split the sentence pairs into blocks of about _WORDS words.
    block_of_pair = np.cumsum((lengths + translation_lengths)[filled]) // _WORDS
    blocks = np.split(filled, np.flatnonzero(np.diff(block_of_pair)) + 1)
    source_rows, target_rows, costs = [], [], []
    for sentences in blocks:
        x_rows, y_rows = covered_rows(source, sentences), covered_rows(target, sentences)
        x = float32_rows(source, x_rows).to(device)
        y = float32_rows(target, y_rows).to(device)
        i, j, block_costs = mutual_rows(
            x, y, to_target(x), from_target(y), lengths[sentences], translation_lengths[sentences]
        )
        source_rows.append(x_rows[i.cpu().numpy()])
        target_rows.append(y_rows[j.cpu().numpy()])
        costs.append(block_costs.cpu().numpy())
    first, second, cost = map(np.concatenate, (source_rows, target_rows, costs))
    sentence = np.searchsorted(source.offsets, first, side="right") - 1
    pairs = WordPairs(
        sentence,
        first - source.offsets[sentence],
        second - target.offsets[sentence],
        n_sentences=len(source),
        posterior=np.exp(-cost),
    )
    return Pivots(pairs, cost)


@torch.no_grad()
def mutual_rows(
    x: Tensor,
    y: Tensor,
    mapped_x: Tensor,
    mapped_y: Tensor,
    lengths: np.ndarray,
    translation_lengths: np.ndarray,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mutual best pairs in a batch: the indices of their words in x and in y, int64
    `[n_pairs]` each, ordered by x, and their costs, `[n_pairs]`.

    Args:
        x, y: concatenated word vectors of the sentences, `[n_x, d₁]`, and of their translations,
            `[n_y, d₂]`.
        mapped_x, mapped_y: transformed vectors T₁₂(x), `[n_x, d₂]`, and T₂₁(y), `[n_y, d₁]`.
        lengths, translation_lengths: number of words in each sentence, and in its translation,
            int64 `[n]`; at least 1.
    """
    # The cost of a pair is the squared distance between two points in a joint space of d₁ + d₂
    # dimensions.
    root_d1, root_d2 = x.shape[1] ** 0.5, y.shape[1] ** 0.5
    x_points = torch.cat([mapped_x / root_d2, x / root_d1], dim=1)
    y_points = torch.cat([y / root_d2, mapped_y / root_d1], dim=1)
    mean = y_points.mean(0)  # subtracted because a large mean would reduce the precision
    x_points, y_points = x_points - mean, y_points - mean
    sentences = MatchedSentences(lengths, translation_lengths, device=x.device)
    pairs = [torch.zeros(2, 0, dtype=torch.int64, device=x.device)]
    for x_side, y_side in sentences.groups:
        a, b = x_side.take(x_points), y_side.take(y_points)  # [n_sentences, words, d₁ + d₂]
        # ‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b; the sum of the norms also bounds the rounding error.
        norms = a.square().sum(2)[:, :, None] + b.square().sum(2)[:, None]
        cost = torch.baddbmm(norms, a, b.mT, alpha=-2).clamp_(min=0)
        cost.masked_fill_(~(x_side.held[:, :, None] & y_side.held[:, None]), torch.inf)
        best_y = _first_minimum(cost, _EQUAL * norms, dim=2)
        best_x = _first_minimum(cost, _EQUAL * norms, dim=1)
        x_words = torch.arange(cost.shape[1], device=cost.device)
        is_mutual = x_side.held & (best_x.gather(1, best_y) == x_words)
        pair, word = is_mutual.nonzero(as_tuple=True)
        i, j = x_side.places[pair, word], y_side.places[pair, best_y[pair, word]]
        pairs.append(torch.stack([i, j]))
    i, j = torch.cat(pairs, dim=1)
    order = i.argsort()
    i, j = i[order], j[order]
    return i, j, (x_points[i] - y_points[j]).square().sum(1)


def _first_minimum(cost: Tensor, bound: Tensor, dim: int) -> Tensor:
    """Return the first index along a dimension where the cost is within `bound` of the lowest
    cost.
    """
    is_lowest = cost <= cost.amin(dim, keepdim=True) + bound
    return is_lowest.to(torch.uint8).argmax(dim)


def choose_threshold(
    pivots: Pivots, links: WordPairs, *, tolerance: float = TOLERANCE, gap: float = 1.25
) -> tuple[float, float]:
    """Return the cost threshold at which the pivots have the highest F1 against word alignments.

    Words that are linked directly or through other words form one group, for example a word and the
    words of its translation (the "finest common granularity", §2.2). Each group counts as one gold
    pivot, which may link any two of its words. Only the cheapest pivot within a group counts as
    correct, and the group then counts as found. If all links are one-to-one, each group is one
    link, and F1 is the standard F1 of word links.

    The threshold is halfway between the costs of the last accepted and the first rejected pivot. If
    no pivot is rejected, the threshold is the cost of the last pivot. If several thresholds have
    the same F1, the lowest is returned.

    Links can contain systematic errors, such as articles linked to particles in the same position.
    Such wrong pairs cost more than translations, with a gap in between. The threshold is therefore
    moved to the middle of a lower gap, namely between the two successive costs with the largest
    ratio. It is moved only if this ratio is at least `gap` and F1 falls by at most `tolerance`. The
    paper does not specify how the threshold is chosen.

    Args:
        pivots, links: pivots, and all word links of held-out text, including "possible" links.
        tolerance, gap: maximum loss of F1, and minimum ratio of the costs around a gap; tolerance 0
            keeps the highest F1.

    Returns:
        the threshold and its F1.
    """
    if not len(pivots) or not len(links):
        raise SettingError(
            f"held-out text must have pivots and links, got {len(pivots)} pivots and {len(links)} "
            "links; hold out more pairs"
        )
    order = np.argsort(pivots.costs, kind="stable")
    costs = pivots.costs[order].astype(np.float64)
    pivot_groups, n_groups = _groups(pivots.pairs, links)
    # Only the cheapest pivot of each group, which is the first in this order, counts as correct.
    groups, first_places = np.unique(pivot_groups[order], return_index=True)
    is_correct = np.isin(np.arange(len(costs)), first_places[groups >= 0])
    # f1[k]: F1 if the pivots 0 … k are accepted
    n_accepted = np.arange(1, len(costs) + 1)
    f1 = 2 * is_correct.cumsum() / (n_accepted + n_groups)
    f1[:-1][np.diff(costs) == 0] = -1.0  # a threshold cannot separate equal costs
    last = int(f1.argmax())  # index of the last accepted pivot
    if tolerance and last > 0:
        # Ratios of successive costs below the best threshold, if F1 does not fall too much there
        ratios = costs[1 : last + 1] / np.maximum(costs[:last], _MIN_COST)
        ratios = np.where(f1[:last] >= f1[last] - tolerance, ratios, 0.0)
        if ratios.max() >= gap:
            last = int(ratios.argmax())
    threshold = costs[last]
    if last + 1 < len(costs):
        threshold = (costs[last] + costs[last + 1]) / 2
    return float(threshold), float(f1[last])


def _groups(pairs: WordPairs, links: WordPairs) -> tuple[np.ndarray, int]:
    """Return the group of each word pair, int64 `[n_pairs]`, which is −1 if the two words are in
    different groups; and the number of groups."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Groups are the connected components of a graph whose nodes are words and whose edges are
    # links. A word is identified by its sentence, its position and its side (0 or 1).
    n_links = len(links)
    sentence = np.append(links.sentence, pairs.sentence)
    source = np.append(links.source, pairs.source)
    target = np.append(links.target, pairs.target)
    source_words = np.stack([sentence, source, np.zeros_like(source)])
    target_words = np.stack([sentence, target, np.ones_like(target)])
    words = np.concatenate([source_words, target_words], axis=1)
    _, nodes = np.unique(words, axis=1, return_inverse=True)
    source_nodes, target_nodes = nodes.reshape(2, -1)
    n_nodes = int(nodes.max()) + 1
    edges = source_nodes[:n_links], target_nodes[:n_links]
    graph = coo_array((np.ones(n_links), edges), shape=(n_nodes, n_nodes))
    _, group_of_node = connected_components(graph, directed=False)
    source_groups, target_groups = group_of_node[source_nodes], group_of_node[target_nodes]
    pair_groups = np.where(source_groups == target_groups, source_groups, -1)[n_links:]
    return pair_groups, len(np.unique(source_groups[:n_links]))
