"""Choose the layer and the pooling of an encoder by measuring all of them on parallel text.

A *reading* of an encoder is a layer with a pooling of a word's subwords. Which reading is best
differs between encoders and uses: word retrieval with multilingual-e5-small is best at the last
layer, word alignment with the same encoder in the middle (dev/LOG.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.encoders.base import E, Encoder
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import SettingError
from calque.nn.pooling import POOLINGS
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.overlap import covered_words, identical_words, seen_pairs
from calque.tasks.retrieval import retrieve
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from calque.wordalign.similarity import links_from_embeddings

Unit = Literal["words", "sentences", "links"]

#: maximum numbers of sentence pairs that are encoded: of each text, and of all texts together
PAIRS_PER_TEXT, PAIRS = 300, 1_000
#: maximum number of words in a sentence of the sample
MOST_WORDS = 64
# A text with fewer unseen links is measured on all its links.
_ENOUGH = 200
# minimum number of test items (links or sentence pairs) in all texts together
_FEWEST = 100
# A reading replaces the default if it is better by more than this number of standard errors.
_ERRORS = 2.0
_NEIGHBOURS = 10  # neighbourhood size of CSLS


# -- the result ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReadingScore:
    """Score of one layer and pooling.

    Attributes:
        layer, pooling: the reading.
        value: score between 0 and 1, the mean over the texts.
        gain: difference from the score of the default reading.
        error: standard error of `gain`, with sentence pairs as the unit of variation.
        by_text: score on each text.
    """

    layer: int
    pooling: str
    value: float
    gain: float = 0.0
    error: float = 0.0
    by_text: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Layer and pooling that were chosen for an encoder, and the scores of all candidates.

    Attributes:
        layer, pooling: the chosen reading.
        default: the reading that is kept unless another one is better beyond noise.
        criterion: what the scores measure, in words.
        texts: language pair and number of sentence pairs and of test items of each text.
        table: scores of all candidates; empty if nothing was measured.
        reason: why nothing was measured; empty if the readings were compared.
    """

    layer: int
    pooling: str
    default: tuple[int, str]
    criterion: str = ""
    texts: tuple[dict[str, Any], ...] = ()
    table: tuple[ReadingScore, ...] = ()
    reason: str = ""

    @property
    def is_default(self) -> bool:
        """True if the default reading was kept."""
        return (self.layer, self.pooling) == self.default

    def score(self, layer: int, pooling: str) -> ReadingScore:
        """Return the score of a candidate."""
        for row in self.table:
            if (row.layer, row.pooling) == (layer, pooling):
                return row
        raise SettingError(f"layer {layer} with pooling {pooling} was not measured")

    def apply(self, encoder: E) -> E:
        """Return the encoder with the chosen reading; its model is shared."""
        if not self.table or not isinstance(encoder, HuggingFaceEncoder):
            return encoder
        return encoder.read_as(self.layer, check_name(self.pooling))

    @property
    def line(self) -> str:
        """The choice and its evidence in one line."""
        chosen = f"layer {self.layer} and pooling {self.pooling}"
        if not self.table:
            return f"{chosen} (the default), because {self.reason}"
        value = 100 * self.score(self.layer, self.pooling).value
        if self.is_default:
            best = max(self.table, key=lambda row: row.value)
            rest = f"none of {len(self.table)} layers and poolings is better beyond noise"
            if best.gain > 0:
                rest += f" (layer {best.layer} and pooling {best.pooling}: {100 * best.value:.1f})"
            return f"{chosen} (the default): {value:.1f} {self.criterion}; {rest}"
        layer, pooling = self.default
        usual = 100 * self.score(layer, pooling).value
        return (
            f"{chosen}: {value:.1f} {self.criterion}; the default, layer {layer} and pooling "
            f"{pooling}: {usual:.1f}"
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the choice that `record` describes."""
        rows = []
        for row in record.get("table", ()):
            rows.append(ReadingScore(**{**row, "by_text": tuple(row["by_text"])}))
        default = record["default"]
        return cls(
            record["layer"],
            record["pooling"],
            (default["layer"], default["pooling"]),
            record.get("criterion", ""),
            tuple(record.get("texts", ())),
            tuple(rows),
            record.get("reason", ""),
        )

    def record(self) -> dict[str, Any]:
        """Return the choice and the scores as plain values for `calque-run.json`."""
        layer, pooling = self.default
        record: dict[str, Any] = {
            "layer": self.layer,
            "pooling": self.pooling,
            "default": {"layer": layer, "pooling": pooling},
        }
        if not self.table:
            return {**record, "reason": self.reason}
        return {
            **record,
            "criterion": self.criterion,
            "texts": [dict(text) for text in self.texts],
            "table": [asdict(row) for row in self.table],
        }


# -- the choice ------------------------------------------------------------------------------------
def choose_reading(
    encoder: Encoder,
    corpora: ParallelCorpus | Sequence[ParallelCorpus],
    links: WordPairs | Sequence[WordPairs] = (),
    *,
    unit: Unit = "words",
    layers: Sequence[int] | None = None,
    poolings: Sequence[str] = POOLINGS,
    pairs_per_text: int = PAIRS_PER_TEXT,
    pairs: int = PAIRS,
) -> Reading:
    """Choose the layer and the pooling of an encoder by their scores on a sample of parallel text.

    The sample is evenly spaced over each text, and is encoded once. The score is the mean over the
    texts of

    - for `unit="words"`: the accuracy of word retrieval by CSLS in both directions, over linked
      words of different spelling whose word types are not linked in the rest of the texts of these
      languages, or over all links of a text that has fewer than 200 such links;
    - for `unit="sentences"`: the accuracy of sentence retrieval by CSLS in both directions, with
      the mean of a sentence's word vectors;
    - for `unit="links"`: the F1 of the links between mutual nearest neighbours within a sentence
      pair, with the given links as gold links.

    The reading with the best score is chosen if its gain over the encoder's own reading exceeds two
    standard errors; otherwise, the encoder's own reading is kept. The same text can be used for
    training afterwards: a choice among some forty readings cannot memorise it.

    Args:
        encoder: encoder before alignment; its own reading is the default.
        corpora: parallel texts.
        links: word links of each text, which the units "words" and "links" need.
        layers, poolings: candidates; default: all layers and all poolings. The encoder's own
            reading is always measured, too.
        pairs_per_text, pairs: maximum number of sentence pairs of each text, and of all texts.

    Returns:
        the choice with its table; the encoder's own reading with a reason if readings cannot be
        compared, for example because the encoder is not a Transformers model.

    Raises:
        SettingError: the arguments contradict each other.

    Example:
        `reading = calque.choose_reading(encoder, corpora, links)`, `encoder =
        reading.apply(encoder)`
    """
    if unit not in get_args(Unit):
        raise SettingError(f"unit must be one of {', '.join(get_args(Unit))}, got {unit!r}")
    corpora = [corpora] if isinstance(corpora, ParallelCorpus) else list(corpora)
    links = [links] if isinstance(links, WordPairs) else list(links)
    if unit != "sentences" and len(links) != len(corpora):
        raise SettingError(
            f"unit={unit!r} needs the word links of each text, got {len(corpora)} texts but links "
            f"for {len(links)}"
        )
    reason = why_fixed(encoder)
    if reason or not isinstance(encoder, HuggingFaceEncoder):
        return _kept(encoder, reason)
    default = encoder.layer, encoder.pooling
    numbers = range(encoder.n_layers + 1) if layers is None else encoder.layer_numbers(layers)
    candidates = [default]
    for layer in numbers:
        for pooling in map(check_name, poolings):
            if (layer, pooling) != default:
                candidates.append((layer, pooling))
    tests = _tests(corpora, links, unit, pairs_per_text, pairs)
    n_items = sum(test.n_items for test in tests)
    if len(candidates) < 2:
        return _kept(encoder, "no other layer or pooling is allowed")
    if n_items < _FEWEST:
        what = "sentence pairs" if unit == "sentences" else "word links"
        return _kept(
            encoder,
            f"the text has only {n_items:,} {what} to compare layers by, and {_FEWEST} are needed",
        )
    counts = [_counts_of_readings(encoder, test, candidates) for test in tests]
    table = score_readings(candidates, counts)
    best = max(table, key=lambda row: row.value)  # the default is first, and so wins ties
    chosen = best if best.gain > _ERRORS * best.error else table[0]
    texts = tuple(test.about for test in tests)
    return Reading(
        chosen.layer, chosen.pooling, default, _criterion(tests), texts, tuple(sorted_rows(table))
    )


def why_fixed(encoder: Encoder) -> str:
    """Return why the layer and the pooling of an encoder cannot be chosen, or an empty string."""
    if encoder.base is not None:
        return f"{encoder.name} has maps of its layers"
    if encoder.rows != "words":
        return f"{encoder.name} returns vectors of {encoder.rows}"
    if not isinstance(encoder, HuggingFaceEncoder):
        return f"only Transformers models have poolings, and {encoder.name} is none"
    if encoder.standard:
        return f"the word vectors of {encoder.name} are standardised"
    return ""


def _kept(encoder: Encoder, reason: str) -> Reading:
    """Return the encoder's own reading with the reason why nothing was measured."""
    layer = -1 if encoder.layer is None else encoder.layer
    pooling = str(getattr(encoder, "pooling", ""))
    return Reading(layer, pooling, (layer, pooling), reason=reason)


def check_name(pooling: str) -> Any:
    """Return the name of a pooling; raise a SettingError if it is unknown."""
    from calque.encoders.huggingface import check_pooling

    return check_pooling(pooling)


def sorted_rows(table: Iterable[ReadingScore]) -> list[ReadingScore]:
    """Return the scores in the order of layers and poolings."""
    order = list(POOLINGS)
    return sorted(table, key=lambda row: (row.layer, order.index(check_name(row.pooling))))


# -- scores ----------------------------------------------------------------------------------------
def score_readings(
    candidates: Sequence[tuple[int, str]], counts: Sequence[np.ndarray]
) -> list[ReadingScore]:
    """Return the score of each candidate, and its gain over the first candidate.

    Args:
        candidates: layer and pooling of each candidate, the default first.
        counts: numerators and denominators of the score in each sentence pair of each text, float64
            `[n_candidates, n_sentences, 2]`.
    """
    rows = []
    for number, (layer, pooling) in enumerate(candidates):
        values, gains, variances = [], [], []
        for of_text in counts:
            gain, error = paired_gain(of_text[number], of_text[0])
            values.append(_ratio(of_text[number]))
            gains.append(gain)
            variances.append(error**2)
        n = len(counts)
        rows.append(
            ReadingScore(
                layer,
                pooling,
                value=sum(values) / n,
                gain=sum(gains) / n,
                error=math.sqrt(sum(variances)) / n,
                by_text=tuple(values),
            )
        )
    return rows


def _ratio(counts: np.ndarray) -> float:
    """Return Σ numerators / Σ denominators, or 0 if all denominators are 0."""
    numerator, denominator = counts.sum(axis=0)
    return float(numerator / denominator) if denominator else 0.0


def paired_gain(counts: np.ndarray, usual: np.ndarray) -> tuple[float, float]:
    """Return the difference of two scores on the same sentence pairs, and its standard error.

    A score is a ratio r = Σ a_s / Σ b_s over S sentence pairs s. To first order, the error of r is
    the mean of e_s = (a_s − r b_s) / (Σ b / S) (the ratio estimator, Cochran 1977, "Sampling
    techniques", Eq. 2.46). The standard error of the difference is therefore √(Σ d_s² / (S (S −
    1))), where d_s is the difference of both scores' e_s.

    Args:
        counts, usual: numerator a and denominator b of each sentence pair, `[S, 2]`.
    """
    n = len(counts)
    difference = _ratio(counts) - _ratio(usual)
    if n < 2:
        return difference, math.inf
    deviations = []
    for each in (counts, usual):
        mean = max(each[:, 1].mean(), np.finfo(np.float64).tiny)
        deviations.append((each[:, 0] - _ratio(each) * each[:, 1]) / mean)
    squares = (deviations[0] - deviations[1]) ** 2
    return difference, math.sqrt(squares.sum() / (n * (n - 1)))


# -- what is measured ------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Test:
    """Sample of one text on which readings are compared.

    Attributes:
        corpus: sentence pairs of the sample.
        links: one-to-one word links of the sample; None if sentences are retrieved.
        selected: mask of the links that are scored, bool `[n_links]`.
        count: function that returns the numerator and the denominator of the score in each sentence
            pair, `[n_sentences, 2]`, from the word vectors of both sides.
        about: languages and sizes, for the record.
        criterion: what is scored, in words.
    """

    corpus: ParallelCorpus
    n_items: int
    count: Callable[[Embeddings, Embeddings], np.ndarray]
    about: dict[str, Any]
    criterion: str


def _tests(
    corpora: Sequence[ParallelCorpus],
    links: Sequence[WordPairs],
    unit: Unit,
    pairs_per_text: int,
    pairs: int,
) -> list[_Test]:
    """Return the sample of each text that has sentence pairs to measure."""
    size = max(1, min(pairs_per_text, pairs // max(1, len(corpora))))
    tests = []
    for number, corpus in enumerate(corpora):
        rows = sampled_pairs(corpus, links[number] if links else None, size)
        if not len(rows):
            continue
        if unit == "sentences":
            test = _sentence_test(corpus.take(rows))
        elif unit == "links":
            test = _link_test(corpus.take(rows), links[number].take(rows))
        else:
            test = _word_test(corpora, links, number, rows)
        if test.n_items:
            tests.append(test)
    return tests


def sampled_pairs(corpus: ParallelCorpus, links: WordPairs | None, size: int) -> np.ndarray:
    """Return the indices of at most `size` evenly spaced sentence pairs, int64, among those of 1 to
    64 words a side that have a link if there are links.
    """
    lengths = np.stack([corpus.source.lengths(), corpus.target.lengths()])
    usable = (lengths > 0).all(axis=0) & (lengths <= MOST_WORDS).all(axis=0)
    if links is not None:
        usable &= np.bincount(links.sentence, minlength=len(corpus)) > 0
    rows = np.flatnonzero(usable)
    if len(rows) <= size:
        return rows
    return rows[np.linspace(0, len(rows) - 1, size).round().astype(np.int64)]


def _about(corpus: ParallelCorpus, **more: Any) -> dict[str, Any]:
    return {"langs": list(corpus.langs), "sentence_pairs": len(corpus), **more}


def _word_test(
    corpora: Sequence[ParallelCorpus],
    links: Sequence[WordPairs],
    number: int,
    rows: np.ndarray,
) -> _Test:
    """Return the test of word retrieval on the given sentence pairs of the text `number`."""
    sample = corpora[number].take(rows)
    pairs = links[number].take(rows).one_to_one()
    unseen = _unseen_elsewhere(corpora, links, number, rows, sample, pairs)
    enough = int(unseen.sum()) >= _ENOUGH
    selected = unseen if enough else np.ones(len(pairs), dtype=bool)

    def count(source: Embeddings, target: Embeddings) -> np.ndarray:
        return retrieval_counts(source, target, pairs, selected)

    n = int(selected.sum())
    about = _about(sample, links=n, unseen=enough)
    return _Test(sample, n, count, about, "of unseen word pairs" if enough else "of word pairs")


def _unseen_elsewhere(
    corpora: Sequence[ParallelCorpus],
    links: Sequence[WordPairs],
    number: int,
    rows: np.ndarray,
    sample: ParallelCorpus,
    pairs: WordPairs,
) -> np.ndarray:
    """Return the mask of the sample's links between different spellings whose word types are not
    linked outside the sample, in any text with the same languages.
    """
    unseen = ~identical_words(sample, pairs)
    rest = np.setdiff1d(np.arange(len(corpora[number])), rows)
    for other, (corpus, of_corpus) in enumerate(zip(corpora, links, strict=True)):
        if corpus.langs != sample.langs:
            continue
        if other == number:
            corpus, of_corpus = corpus.take(rest), of_corpus.take(rest)
        if len(of_corpus):
            unseen &= ~seen_pairs(sample, pairs, corpus, of_corpus)
    return unseen


def retrieval_counts(
    source: Embeddings, target: Embeddings, pairs: WordPairs, selected: np.ndarray
) -> np.ndarray:
    """Return the number of correct answers of word retrieval by CSLS and the number of queries in
    each sentence pair, `[n_sentences, 2]`; each selected link is a query in both directions.

    A link with a word that has no vector counts as two wrong answers, so that all readings have
    the same queries.
    """
    found = retrieve(source, target, pairs, similarity="csls", k=_NEIGHBOURS)
    hits = np.zeros(len(pairs))
    hits[found.queries] = found.source_hits.astype(float) + found.target_hits
    sentence, n = pairs.sentence[selected], pairs.n_sentences
    right = np.bincount(sentence, weights=hits[selected], minlength=n)
    return np.stack([right, 2.0 * np.bincount(sentence, minlength=n)], axis=1)


def _sentence_test(sample: ParallelCorpus) -> _Test:
    about = _about(sample)
    return _Test(sample, len(sample), sentence_counts, about, "of sentences")


def sentence_counts(source: Embeddings, target: Embeddings) -> np.ndarray:
    """Return the number of correct answers of sentence retrieval by CSLS and the number of queries,
    2, of each sentence pair, `[n_sentences, 2]`.
    """
    neighbours = csls_neighbours(
        unit_rows(_sentence_means(source)), unit_rows(_sentence_means(target)), k=_NEIGHBOURS
    )
    own = np.arange(len(source))
    right = (neighbours.targets[:, 0] == own).astype(float) + (neighbours.sources[:, 0] == own)
    return np.stack([right, np.full(len(own), 2.0)], axis=1)


def _sentence_means(vectors: Embeddings) -> np.ndarray:
    """Return the mean of each sentence's word vectors, float32 `[n_sentences, dim]`; zero if no
    word has a vector.
    """
    covered = covered_words(vectors)
    ends = offsets_of(covered)[vectors.offsets]
    sums = np.zeros((len(vectors), vectors.data.shape[1]), dtype=np.float64)
    owner = np.repeat(np.arange(len(vectors)), np.diff(ends))
    np.add.at(sums, owner, vectors.data[covered])
    return (sums / np.maximum(np.diff(ends), 1)[:, None]).astype(np.float32)


def _link_test(sample: ParallelCorpus, gold: WordPairs) -> _Test:
    gold = gold.distinct()

    def count(source: Embeddings, target: Embeddings) -> np.ndarray:
        return link_counts(links_from_embeddings(source, target, method="mutual"), gold)

    about = _about(sample, links=len(gold))
    return _Test(sample, len(gold), count, about, "F1 against the links of the aligner")


def link_counts(links: WordPairs, gold: WordPairs) -> np.ndarray:
    """Return 2 |A ∩ G| and |A| + |G| of each sentence pair, `[n_sentences, 2]`, where A are the
    links and G the gold links. The ratio of their sums is the F1.
    """
    n = gold.n_sentences
    width = 1 + max(int(side.max(initial=0)) for side in (links.source, gold.source))
    height = 1 + max(int(side.max(initial=0)) for side in (links.target, gold.target))
    codes = []
    for each in (links, gold):
        codes.append(np.unique((each.sentence * width + each.source) * height + each.target))
    common = np.intersect1d(*codes)

    def per_sentence(found: np.ndarray) -> np.ndarray:
        return np.bincount(found // (width * height), minlength=n).astype(float)

    total = per_sentence(codes[0]) + per_sentence(codes[1])
    return np.stack([2 * per_sentence(common), total], axis=1)


def _counts_of_readings(
    encoder: HuggingFaceEncoder, test: _Test, candidates: Sequence[tuple[int, str]]
) -> np.ndarray:
    """Return the counts of each candidate on one text, `[n_candidates, n_sentences, 2]`."""
    wanted = {candidate: number for number, candidate in enumerate(candidates)}
    layers = sorted({layer for layer, _ in candidates})
    counts = np.zeros((len(candidates), len(test.corpus), 2))
    both = zip(
        encoder.encode_readings(test.corpus.source, layers),
        encoder.encode_readings(test.corpus.target, layers),
        strict=True,
    )
    for (layer, pooling, source), (_, _, target) in both:
        number = wanted.get((layer, pooling))
        if number is not None:
            counts[number] = test.count(source, target)
    return counts


def _criterion(tests: Sequence[_Test]) -> str:
    """Return what the scores measure, in words."""
    return " and ".join(dict.fromkeys(test.criterion for test in tests))
