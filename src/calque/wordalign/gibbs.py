"""Gibbs sampling of HMM alignments with fertility.

Model (Östling & Tiedemann 2016, "Efficient word alignment with Markov chain Monte Carlo", sections
3-4): every observed word is aligned to a position on the other side or to null, and is drawn from
the translation distribution of the word at that position. The jump between successive positions and
the fertility of each word, which is the number of words aligned to it, are also random. All
distributions have Dirichlet priors and are integrated out, so positions are sampled from counts
over the rest of the text:

    P(a_j = i | rest)  ~  (n(e_i, f_j) + a(e_i, f_j)) / (n(e_i) + a(e_i))
                          * (c(i - i') + b) (c(i'' - i) + b) / ((c(i'' - i') + b) (c + B b))
                          * (z(e_i, k + 1) + g(k + 1)) / (z(e_i, k) + g(k)) * (1 - null)
    P(a_j = none | rest)  ~  (n(f_j) + a0) / (n + V a0) * null

where i' and i'' are the positions of the previous and the next aligned word, k is the fertility of
e_i without word j, c is a jump count and z a fertility count. Several chains run independently; a
link's posterior is the mean of these conditional probabilities over the last sweeps of all chains.
There are three departures from the paper. Chains are initialised with samples from the HMM's
posterior instead of at random, so a few sweeps suffice. The prior a(e, f) depends on spelling. The
fertility prior g is the fertility distribution over all words instead of a uniform distribution. A
seed gives the same links with any number of threads and on any processor (see
`calque.wordalign.bitext`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from calque.wordalign.bitext import GOLDEN, Bitext, F, fast_loop, fast_part, loop, mix, unit
from calque.wordalign.hmm import HmmModel, HmmPass, HmmSettings, HmmTables, known, priors, train
from calque.wordalign.model import Job, Links, Model, run
from calque.wordalign.prior import Prior, prior_of

REACH = 100  # maximum jump width; wider jumps share the count of this width
# number of fertility counts per word type; higher fertilities share the last count
FERTILITIES = 12


@dataclass(frozen=True)
class GibbsSettings:
    """Settings of the Gibbs sampler; the same default values were chosen for all languages.

    Args:
        chains: number of independent chains, whose marginals are averaged.
        burn_in: number of sweeps of each chain before marginals are collected.
        sweeps: number of sweeps of each chain in which marginals are collected.
        null: prior probability that a word is aligned to null.
        strength: pseudo-count of each type pair (Dirichlet prior).
        spelling: additional pseudo-count of a pair of identically spelt words, as a multiple of
            `strength`.
        null_strength, jump_strength: pseudo-counts of the alignment of each word type to null, and
            of each jump width.
        fertility_strength: sum of the pseudo-counts of all fertilities of a word type.
        similarity: weight of the similarities that are used as a prior, see
            `calque.wordalign.prior`.
        hmm: settings of the HMM that initialises the chains.
    """

    chains: int = 8
    burn_in: int = 2
    sweeps: int = 6
    null: float = 0.1
    strength: float = 1e-4
    spelling: float = 3000.0
    null_strength: float = 1e-3
    jump_strength: float = 5.0
    fertility_strength: float = 2.0
    similarity: float = 2.0
    hmm: HmmSettings = field(default_factory=HmmSettings)

    @property
    def passes(self) -> int:
        return self.hmm.passes + self.burn_in

    def weighted(self, similarity: float) -> GibbsSettings:
        """Return the settings with a different similarity weight for both the sampler and the
        HMM.
        """
        return replace(self, similarity=similarity, hmm=self.hmm.weighted(similarity))


@dataclass
class DirectionTables:
    """Counts of one alignment direction, without priors.

    Args:
        counts: number of links of each type pair, float32 `[n_pairs]`.
        given_total: number of links of each word type on the given side, float32 `[n_given]`.
        given_prior: sum of the pseudo-counts of all pairs of each word type on the given side,
            float32 `[n_given]`.
        observed_null: number of null-aligned words of each word type on the observed side, float32
            `[n_observed]`.
        jumps: number of jumps of each width from -REACH to REACH, float64 `[2 REACH + 1]`.
        fertilities: number of words with each fertility for each type on the given side, float32
            `[n_given, FERTILITIES]`.
    """

    counts: np.ndarray
    given_total: np.ndarray
    given_prior: np.ndarray
    observed_null: np.ndarray
    jumps: np.ndarray
    fertilities: np.ndarray

    @classmethod
    def empty(cls, bitext: Bitext, across: bool, prior: np.ndarray) -> DirectionTables:
        """Return tables for a text, with all counts 0."""
        given, observed = bitext.sides(across)
        types = bitext.pairs.source if across else bitext.pairs.target
        return cls(
            counts=np.zeros(len(prior), np.float32),
            given_total=np.zeros(given.n_types, np.float32),
            given_prior=np.bincount(types, prior, minlength=given.n_types).astype(np.float32),
            observed_null=np.zeros(observed.n_types, np.float32),
            jumps=np.zeros(2 * REACH + 1),
            fertilities=np.zeros((given.n_types, FERTILITIES), np.float32),
        )

    def with_counts(self, old: DirectionTables, numbers: np.ndarray) -> DirectionTables:
        """Copy trained counts to these tables, and return self; `numbers` contains each type pair's
        index in `old.counts`.
        """
        self.counts, self.jumps = known(old.counts, numbers), old.jumps
        for name in ("given_total", "given_prior", "observed_null", "fertilities"):
            trained = getattr(old, name)
            getattr(self, name)[: len(trained)] = trained
        return self


_TABLES = [column.name for column in fields(DirectionTables)]


class State(NamedTuple):
    """State of a chain, which compiled loops update in place; counts include priors unless stated
    otherwise.

    Attributes:
        links: position to which each observed word is aligned, or -1 for null, int32
            `[n_observed]`.
        counts, given_total, observed_null, fertilities: see `DirectionTables`; the last two do not
            include priors.
        sums: number of null-aligned words without prior, sum of `jumps` (unused in training) and
            number of observed types.
        jumps: jump counts, with the count of jumps by d at index `len // 2 + d`, float64.
        fertility_prior: pseudo-count of each fertility, float32 `[FERTILITIES]`.
        generator: state of the random number generator, uint64 `[1]`.
    """

    links: np.ndarray
    counts: np.ndarray
    given_total: np.ndarray
    observed_null: np.ndarray
    sums: np.ndarray
    jumps: np.ndarray
    fertilities: np.ndarray
    fertility_prior: np.ndarray
    generator: np.ndarray


class Chain:
    """A Gibbs sampling chain for one alignment direction.

    Args:
        links: initial links of the observed words, which are changed in place.
        begin: initial counts.
        trained: tables of the trained model if the text is new, or None in training.
        keys: seed of each sentence pair, see `sample`.
        prior: prior over positions, see `calque.wordalign.prior`.
    """

    def __init__(
        self,
        bitext: Bitext,
        across: bool,
        links: np.ndarray,
        seed: int,
        settings: GibbsSettings,
        begin: DirectionTables,
        trained: DirectionTables | None,
        keys: np.ndarray,
        prior: Prior,
    ):
        self.sentences, self.text = bitext.used, bitext.text(across)
        self.keys, self.prior = keys, prior
        self.settings, self.trained = settings, trained
        # `slots` maps each jump of up to `middle` positions to its count in
        # `DirectionTables.jumps`. The compiled loops use one count for each jump, so that they need
        # not clip jumps.
        middle = 2 * bitext.longest + 2
        self.slots = np.clip(np.arange(2 * middle + 1) - middle, -REACH, REACH) + REACH
        self.given_prior = begin.given_prior
        self.state = State(
            links=links,
            counts=begin.counts.copy(),
            given_total=begin.given_total.copy(),
            observed_null=begin.observed_null.copy(),
            sums=np.zeros(3),
            jumps=begin.jumps[self.slots],
            fertilities=begin.fertilities.copy(),
            fertility_prior=np.zeros(FERTILITIES, F),
            generator=np.array([seed], dtype=np.uint64),
        )

    def settle(self, prior: np.ndarray) -> None:
        """Add the priors to the counts."""
        state, strength = self.state, self.settings.jump_strength
        # Sums over a new text would depend on its out-of-vocabulary words, so they are those of the
        # training text.
        counted = state if self.trained is None else self.trained
        nulls, jumps = counted.observed_null, counted.jumps
        state.sums[0] = nulls.sum(dtype=np.float64)
        state.sums[1] = jumps.sum() + len(jumps) * strength
        state.sums[2] = len(nulls)
        shape = counted.fertilities.sum(0, dtype=np.float64) + 1
        state.fertility_prior[:] = self.settings.fertility_strength * shape / shape.sum()
        np.add(state.counts, prior, out=state.counts)
        np.add(state.given_total, self.given_prior, out=state.given_total)
        np.add(state.jumps, strength, out=state.jumps)

    def sweep(self, learn: bool, marginal: np.ndarray, null_marginal: np.ndarray) -> None:
        """Resample all links; the arguments are those of `sample`."""
        null, strength = F(self.settings.null), F(self.settings.null_strength)
        sample(
            self.sentences,
            self.text,
            self.state,
            self.prior,
            self.keys,
            null,
            strength,
            learn,
            marginal,
            null_marginal,
        )

    def tables(self, prior: np.ndarray) -> DirectionTables:
        """Return the counts without the priors."""
        state = self.state
        jumps = np.bincount(
            self.slots, state.jumps - self.settings.jump_strength, minlength=2 * REACH + 1
        )
        # Rounding can make a difference slightly negative.
        return DirectionTables(
            counts=np.maximum(state.counts - prior, 0),
            given_total=np.maximum(state.given_total - self.given_prior, 0),
            given_prior=self.given_prior,
            observed_null=state.observed_null,
            jumps=jumps,
            fertilities=state.fertilities,
        )


class GibbsModel(Model[GibbsSettings]):
    """Trained Gibbs sampler: the HMM that initialises the chains, and the mean counts of all chains
    in both directions.
    """

    name = "gibbs"
    settings_type = GibbsSettings

    def __init__(
        self,
        settings: GibbsSettings,
        hmm: HmmModel,
        forward: DirectionTables,
        backward: DirectionTables,
    ):
        self.settings, self.hmm, self.directions = settings, hmm, (forward, backward)

    @classmethod
    def fit(cls, job: Job, settings: GibbsSettings) -> tuple[GibbsModel, Links]:
        passes = HmmPass(job, settings.hmm)
        hmm = HmmModel(settings.hmm, train(passes))
        prior = priors(settings.strength, settings.spelling)[job.alike()]
        tables = [DirectionTables.empty(job.bitext, across, prior) for across in (True, False)]
        chains = _chains(job, settings, passes, hmm.tables, tables, (None, None))
        del passes  # frees its memory
        tasks = []
        for chain in [*chains[0], *chains[1]]:
            tasks.append(partial(tally, chain.sentences, chain.text, chain.state))
        run(tasks, job.threads)
        links = _sample(job, chains, prior, settings, learn=True)
        forward, backward = (
            _mean([chain.tables(prior) for chain in of_direction]) for of_direction in chains
        )
        return cls(settings, hmm, forward, backward), links

    def links(self, job: Job) -> Links:
        bitext, settings = job.bitext, self.settings
        prior = priors(settings.strength, settings.spelling)[job.alike()]
        numbers = bitext.pairs.find(self.hmm.tables.pairs)
        forward, backward = self.directions
        tables = [
            DirectionTables.empty(bitext, True, prior).with_counts(forward, numbers),
            DirectionTables.empty(bitext, False, prior).with_counts(backward, numbers),
        ]
        passes, hmm_tables = self.hmm.passes(job)
        chains = _chains(job, settings, passes, hmm_tables, tables, self.directions)
        return _sample(job, chains, prior, settings, learn=False)

    @classmethod
    def settings_of(cls, saved: dict[str, Any]) -> GibbsSettings:
        values: dict[str, Any] = saved | {"hmm": HmmSettings(**saved["hmm"])}
        return GibbsSettings(**values)

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"hmm.{name}": array for name, array in self.hmm.arrays().items()}
        for direction, tables in zip(("forward", "backward"), self.directions, strict=True):
            for name in _TABLES:
                arrays[f"{direction}.{name}"] = getattr(tables, name)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: GibbsSettings) -> GibbsModel:
        hmm = {
            name.removeprefix("hmm."): array
            for name, array in arrays.items()
            if name.startswith("hmm.")
        }
        forward = DirectionTables(**{name: arrays[f"forward.{name}"] for name in _TABLES})
        backward = DirectionTables(**{name: arrays[f"backward.{name}"] for name in _TABLES})
        return cls(settings, HmmModel.from_arrays(hmm, settings.hmm), forward, backward)


def _chains(
    job: Job,
    settings: GibbsSettings,
    passes: HmmPass,
    hmm: HmmTables,
    begin: list[DirectionTables],
    trained: tuple[DirectionTables | None, DirectionTables | None],
) -> list[list[Chain]]:
    """Return the chains of both directions, initialised with samples from the HMM's posterior."""
    bitext, n = job.bitext, settings.chains
    seeds = np.random.SeedSequence(job.seed).generate_state(3 * n, dtype=np.uint64).reshape(3, -1)
    keys = np.arange(len(bitext), dtype=np.uint64) if job.keys is None else job.keys
    starts = passes.samples(hmm, seeds[0], keys)
    prior = prior_of(job.similarities, bitext, settings.similarity)
    chains: list[list[Chain]] = [[], []]
    for direction, across in enumerate((True, False)):
        for k in range(n):
            chain = Chain(
                bitext,
                across,
                starts[direction][k],
                seeds[direction + 1, k],
                settings,
                begin[direction],
                trained[direction],
                keys,
                prior,
            )
            chains[direction].append(chain)
    return chains


def _sample(
    job: Job, chains: list[list[Chain]], prior: np.ndarray, settings: GibbsSettings, *, learn: bool
) -> Links:
    """Run the burn-in of all chains, collect their marginals, and choose the links."""
    bitext, no_marginals = job.bitext, (np.zeros(0, F), np.zeros(0, F))
    both = [*chains[0], *chains[1]]
    for chain in both:
        chain.settle(prior)
    for _ in range(settings.burn_in):
        run([partial(chain.sweep, learn, *no_marginals) for chain in both], job.threads)
        job.step()
    links = Links.none(bitext)
    # Marginals of the cells and of null for the observed words, in each direction.
    forward = np.zeros(bitext.n_cells, F), np.zeros(len(links.forward), F)
    backward = np.zeros(bitext.n_cells, F), np.zeros(len(links.backward), F)

    def collect(of_direction: list[Chain], marginals: tuple[np.ndarray, np.ndarray]) -> None:
        # The chains of a direction run one after another, because the rounding of summed marginals
        # depends on their order.
        for chain in of_direction:
            for _ in range(settings.sweeps):
                chain.sweep(learn, *marginals)

    run([partial(collect, chains[0], forward), partial(collect, chains[1], backward)], job.threads)
    for array in (*forward, *backward):
        array /= settings.chains * settings.sweeps
    choose(bitext.used, bitext.text(True), *forward, *backward, links)
    job.step()
    return links


def _mean(tables: list[DirectionTables]) -> DirectionTables:
    """Return the mean of the tables of several chains, computed in float64."""
    means = {}
    for name in _TABLES:
        arrays = [getattr(table, name) for table in tables]
        means[name] = np.mean(arrays, axis=0, dtype=np.float64).astype(arrays[0].dtype)
    return DirectionTables(**means)


# -- compiled loops --------------------------------------------------------------------------------
@loop
def tally(sentences, text, state):
    """Add the counts of links, jumps and fertilities to `state`."""
    middle = len(state.jumps) // 2
    phi = np.zeros(middle + 1, np.int32)
    for b in sentences:
        top, left, cell = text.given_offsets[b], text.observed_offsets[b], text.origin[b]
        n, m = text.given_offsets[b + 1] - top, text.observed_offsets[b + 1] - left
        row, column = (m, 1) if text.across else (1, n)
        for i in range(n):
            phi[i] = 0
        before = -1
        for j in range(m):
            i = state.links[left + j]
            if i < 0:
                state.observed_null[text.observed[left + j]] += 1
                continue
            state.counts[text.cells[cell + i * row + j * column]] += 1
            state.given_total[text.given[top + i]] += 1
            state.jumps[middle + i - before] += 1
            before = i
            phi[i] += 1
        state.jumps[middle + n - before] += 1
        for i in range(n):
            state.fertilities[text.given[top + i], min(phi[i], FERTILITIES - 1)] += 1


@fast_part
def _one_more(fertilities, prior, k, included):
    """Return the fertility ratio P(k + 1) / P(k) of a word type."""
    high, low = min(k + 1, FERTILITIES - 1), min(k, FERTILITIES - 1)
    return (fertilities[high] + prior[high]) / (max(fertilities[low] - included, F(0)) + prior[low])


@fast_part
def _refresh(e, words, phi, given_total, fertilities, prior, included, factor):
    """Update the factor of every position whose word has type e."""
    scale = F(1) / given_total
    for i in range(len(words)):
        if words[i] == e:
            factor[i] = scale * _one_more(fertilities, prior, phi[i], included)


@fast_loop
def sample(
    sentences, text, state, prior, keys, null, null_strength, learn, marginal, null_marginal
):
    """Run one sweep, which resamples the link of every observed word.

    Args:
        text, state: the text in one direction, and the state of the chain, which is changed in
            place.
        prior: prior over positions.
        keys: seed of the generator for each sentence pair, uint64 `[n_sentences]`; ignored if
            `learn` is true.
        null, null_strength: see `GibbsSettings`, float32.
        learn: whether to update the counts, which are fixed for a new text.
        marginal, null_marginal: outputs, to which the conditional probabilities of each cell, and
            of null for each word, are added. If `marginal` is empty, nothing is added.
    """
    given_total, counts, cells = state.given_total, state.counts, text.cells
    fertilities, fertility_prior = state.fertilities, state.fertility_prior
    observed_null, jumps = state.observed_null, state.jumps
    middle, collect = len(jumps) // 2, len(marginal) > 0
    # In training, the fertility counts include the word whose factor is computed.
    included = F(1) if learn else F(0)
    scales = prior.forward if text.across else prior.backward
    # Fertility k of each position, unnormalised probability of each position, and the part of it
    # that does not depend on the observed word.
    phi = np.zeros(middle + 1, np.int32)
    weight, factor = np.zeros(middle + 1, F), np.zeros(middle + 1, F)
    # `moves` is the sum of all jump counts, and `empty` the number of null-aligned words.
    moves = jumps.sum() if learn else state.sums[1]
    generator, empty = state.generator[0], state.sums[0]
    vocabulary = null_strength * F(state.sums[2])
    for b in sentences:
        if not learn:  # the links must not depend on the other sentence pairs
            generator = mix(state.generator[0] ^ mix(keys[b]))
        top, left, cell = text.given_offsets[b], text.observed_offsets[b], text.origin[b]
        n, m = text.given_offsets[b + 1] - top, text.observed_offsets[b + 1] - left
        row, column = (m, 1) if text.across else (1, n)
        chosen = state.links[left : left + m]
        words = text.given[top : top + n]
        for i in range(n):
            phi[i] = 0
        for j in range(m):
            if chosen[j] >= 0:
                phi[chosen[j]] += 1
        for i in range(n):
            e = words[i]
            factor[i] = (
                _one_more(fertilities[e], fertility_prior, phi[i], included) / given_total[e]
            )
        before = -1
        for j in range(m):
            f = text.observed[left + j]
            mine = cells[cell + j * column : cell + j * column + (n - 1) * row + 1 : row]
            # Positions of the previous and of the next aligned word: `before` and `after`.
            old, after = chosen[j], n
            for q in range(j + 1, m):
                if chosen[q] >= 0:
                    after = chosen[q]
                    break
            # Remove the old link from the counts.
            if old >= 0:
                e, k = words[old], phi[old] - 1
                phi[old] = k
                if learn:
                    counts[mine[old]] -= 1
                    given_total[e] -= 1
                    jumps[middle + old - before] -= 1
                    jumps[middle + after - old] -= 1
                    jumps[middle + after - before] += 1
                    moves -= 1
                    fertilities[e, min(k + 1, FERTILITIES - 1)] -= 1
                    fertilities[e, min(k, FERTILITIES - 1)] += 1
                _refresh(
                    e, words, phi, given_total[e], fertilities[e], fertility_prior, included, factor
                )
            elif learn:
                observed_null[f] -= 1
                empty -= 1
            # The counts of jumps to and from each position are two slices of `jumps`, of which the
            # second is reversed.
            towards = jumps[middle - before : middle - before + n]
            away = jumps[middle + after - n + 1 : middle + after + 1]
            jumped = (1 - null) / (jumps[middle + after - before] * moves)
            for i in range(n):
                weight[i] = counts[mine[i]]
            if len(prior.at):
                low, scale = prior.at[b] + j * column, scales[left + j]
                likely = prior.odds[low : low + (n - 1) * row + 1 : row]
                for i in range(n):
                    weight[i] *= likely[i] * scale
            # Formula of the module's docstring: P(a_j = i | rest), P(a_j = none | rest), a sample.
            total = F(0)
            for i in range(n):
                w = weight[i] * factor[i] * F(towards[i] * away[n - 1 - i] * jumped)
                weight[i] = w
                total += w
            nothing = null * (observed_null[f] + null_strength) / (F(empty) + vocabulary)
            total += nothing
            generator += GOLDEN
            rest = F(unit(generator)) * total
            new = -1
            for i in range(n):
                rest -= weight[i]
                if rest < 0:
                    new = i
                    break
            if collect:
                added = marginal[cell + j * column : cell + j * column + (n - 1) * row + 1 : row]
                total = F(1) / total
                for i in range(n):
                    added[i] += weight[i] * total
                null_marginal[left + j] += nothing * total
            # Add the new link to the counts.
            chosen[j] = new
            if new >= 0:
                e, k = words[new], phi[new] + 1
                phi[new] = k
                if learn:
                    counts[mine[new]] += 1
                    given_total[e] += 1
                    jumps[middle + new - before] += 1
                    jumps[middle + after - new] += 1
                    jumps[middle + after - before] -= 1
                    moves += 1
                    fertilities[e, min(k - 1, FERTILITIES - 1)] -= 1
                    fertilities[e, min(k, FERTILITIES - 1)] += 1
                _refresh(
                    e, words, phi, given_total[e], fertilities[e], fertility_prior, included, factor
                )
                before = new
            elif learn:
                observed_null[f] += 1
                empty += 1
    state.sums[0] = empty
    state.generator[0] = generator if learn else state.generator[0] + GOLDEN


@loop
def choose(sentences, text, forward, forward_null, backward, backward_null, links):
    """Link each word to the position with the largest geometric mean of both marginals, or set -1
    if null is more probable.
    """
    for b in sentences:
        top, left, cell = text.given_offsets[b], text.observed_offsets[b], text.origin[b]
        n, m = text.given_offsets[b + 1] - top, text.observed_offsets[b + 1] - left
        across, back = forward[cell : cell + n * m], backward[cell : cell + n * m]
        # Target word j and source word i share cell i m + j in both directions.
        _choose(
            across,
            back,
            n,
            m,
            1,
            m,
            forward_null[left:],
            links.forward[left:],
            links.forward_posterior[left:],
        )
        _choose(
            back,
            across,
            m,
            n,
            m,
            1,
            backward_null[top:],
            links.backward[top:],
            links.backward_posterior[top:],
        )


@loop
def _choose(marginal, other, n_given, n_observed, to_observed, to_given, null, links, posterior):
    """Choose the links of one direction; `to_observed` and `to_given` are strides between adjacent
    words, in cells.
    """
    for j in range(n_observed):
        best, at = null[j], -1
        for i in range(n_given):
            cell = j * to_observed + i * to_given
            p = np.sqrt(marginal[cell] * other[cell])
            if p > best:
                best, at = p, i
        links[j] = at
        posterior[j] = marginal[j * to_observed + at * to_given] if at >= 0 else F(0)
