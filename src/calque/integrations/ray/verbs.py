"""Vectors, anchors and word links of a text, shard by shard."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from calque.encoders import load_encoder
from calque.encoders.anchors import sum_anchors
from calque.encoders.base import Encoder, require
from calque.encoders.extraction import UncoveredWordsWarning
from calque.errors import InputError, SettingError
from calque.integrations.ray.cluster import Cluster, ClusterError, Counts, Work, run
from calque.integrations.ray.shards import (
    FORMATS,
    WINDOW,
    Columns,
    Shard,
    arriving,
    blocks,
    files_of,
    format_of,
    is_local,
    joined,
    left_of,
    opened,
    reading,
    reason,
    sentences,
    shards_of,
    written,
)
from calque.linking import Say, Words
from calque.named import TRUST_CODE
from calque.runs.anchors import merge_anchors, read_vocabulary
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.anchors import Anchors
    from calque.vectors import Embeddings
    from calque.wordalign import WordAligner

COLUMNS = ("text", "sentence", "words")
_SENTENCES, _PAIRS = 2048, 16_384  # summed and linked at a time; the results do not depend on it


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a command on a cluster has besides its own options.

    Attributes:
        out: address of a folder that all nodes can write to.
        columns: with the text or lists of words, the first that exists, by default text, sentence or words; of parallel text
            those of the source and of the target, by default source and target, or the names of the languages, also in
            an object `translation`.
        format: of the results, parquet or jsonl; None for that of the text.
        rows: maximum number of rows of a shard, a multiple of 32,768.
        cluster: where.
        progress: show a bar on standard error.
        say: takes a line of news.
    """

    out: str
    columns: Sequence[str] | None = None
    format: str | None = None
    rows: int = 2 * WINDOW
    cluster: Cluster = field(default_factory=Cluster)
    progress: bool = False
    say: Say = lambda line: None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.rows % WINDOW:
            fact = f"--shard-rows {self.rows}: expected a multiple of {WINDOW:,}"
            raise SettingError(f"{fact}, so that batches are those of the whole")
        if self.format not in (None, *FORMATS):
            raise SettingError(f"--format {self.format}: expected one of {', '.join(FORMATS)}")

    def run(self, texts: Sequence[str], work: Work, verb: str, **settings: Any) -> tuple[Counts, list[Shard], str]:
        """Do the work on the shards that have no result; return its counts, all shards, and their number in words.

        Args:
            texts: addresses of Parquet and JSON lines: files, folders or with wildcards.
            settings: what else the results depend on.
        """
        shards = shards_of(files_of(texts), self.rows)
        left = left_of(self.out, {"verb": verb, "shard rows": self.rows, **settings}, shards, work.target)
        done = len(shards) - len(left)
        counts = run(work, left, self.cluster, title=verb, done=done, progress=self.progress)
        return counts, shards, f"{len(left):,} shards" + (f", {done:,} were done before" if done else "")


# -- work of an encoder ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Encoded(ABC):
    """What an encoder does with a text.

    Attributes:
        name: hub name, folder, `mini` or a file of vectors; a folder must be there on every node.
        load: keyword arguments of `load_encoder`.
        fingerprint: that the encoder must have.
        lang, pretokenized: of the text, see `calque.segment.splitter`.
        out, columns, cluster: see `Job`.
    """

    name: str
    load: Mapping[str, Any]
    fingerprint: str
    lang: str
    pretokenized: bool
    out: str
    columns: Sequence[str]
    cluster: Cluster

    @abstractmethod
    def target(self, shard: Shard) -> str:
        """Return the name of the result in the folder."""

    @abstractmethod
    def do(self, encoder: Encoder, shard: Shard) -> Counts:
        """Write the result of a shard."""

    def open(self) -> Callable[[Shard], Counts]:
        """Load the encoder in an actor.

        Raises:
            ClusterError: another encoder has this name there, or PyTorch cannot use the GPU.
        """
        import torch

        torch.set_num_threads(self.cluster.cpus)
        if self.cluster.gpus and not torch.cuda.is_available():
            raise ClusterError("PyTorch cannot use the GPU here; is this a build for CUDA?")
        encoder = load_encoder(self.name, **self.load)
        if encoder.fingerprint != self.fingerprint:
            raise ClusterError(f"{self.name} is another encoder here than where the command was given")
        return lambda shard: self.do(encoder, shard)

    def blocks(self, shard: Shard, size: int) -> Iterator[tuple[Columns, Sentences]]:
        """Read rows and their sentences, `size` at a time."""
        for first, rows in blocks(shard, size):
            how = {"lang": self.lang, "pretokenized": self.pretokenized, "path": shard.path, "first": first}
            yield rows, sentences(rows, self.columns, **how)


def _loaded(name: str, load: Mapping[str, Any] | None, lang: str, pretokenized: bool, job: Job):
    """Load an encoder here, to see that it can be; return it, the fields of `_Encoded`, and the settings to be recorded."""
    load = {"trust_code": bool(TRUST_CODE), **(load or {})}  # in the actors as here
    encoder, columns = load_encoder(name, **load), tuple(job.columns or COLUMNS)
    require(encoder, "measured", rows=("words", "key points"))
    made = (name, load, encoder.fingerprint, lang, pretokenized, job.out, columns, job.cluster)
    settings = {"encoder": encoder.fingerprint, "lang": lang, "columns": columns, "pretokenized": pretokenized}
    return encoder, made, settings


@dataclass(frozen=True)
class Encoding(_Encoded):
    """Vectors of every word: `words`, `vectors` and `covered` beside the columns of the text, in Parquet or JSON lines."""

    format: str | None = None

    def target(self, shard: Shard) -> str:
        return f"{shard.name}.{self.format or format_of(shard.path)}"

    def do(self, encoder: Encoder, shard: Shard) -> Counts:
        counts: Counts = Counter()
        with written(joined(self.out, self.target(shard))) as write:
            for rows, text in self.blocks(shard, WINDOW):
                vectors = encoder.encode(text)
                write({**rows, **_columns(text, vectors, of_words=encoder.rows == "words")})
                uncovered = 0 if vectors.covered is None else int((~vectors.covered).sum())
                counts.update(sentences=len(text), items=vectors.n_words, uncovered=uncovered)
        return counts


def _columns(text: Sentences, vectors: Embeddings, *, of_words: bool) -> Columns:
    """Return the columns `vectors` and, unless the vectors are of key points, `words` and `covered`."""
    offsets = pa.array(vectors.offsets, pa.int32())
    data = np.ascontiguousarray(vectors.data)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(data.reshape(-1)), vectors.dim)
    columns: Columns = {"vectors": pa.ListArray.from_arrays(offsets, rows)}
    if not of_words:
        return columns
    covered = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered
    words = pa.array([list(sentence.words) for sentence in text])
    return {"words": words, **columns, "covered": pa.ListArray.from_arrays(offsets, pa.array(covered))}


def encode(
    encoder: str,
    texts: Sequence[str],
    *,
    lang: str,
    pretokenized: bool = False,
    load: Mapping[str, Any] | None = None,
    **job: Any,
) -> Counts:
    """Write vectors for every word of a text on a Ray cluster.

    Each shard becomes a file of `out` with the name of its part of the text. It has the vectors that `calque encode` gives
    on one machine, bit by bit, if the nodes have the same kind of processor. A result that exists is not made again.

    Args:
        encoder: hub name, folder, `mini` or a file of vectors; a folder must be there on every node.
        texts: addresses of Parquet and JSON lines: files, folders or with wildcards.
        load: keyword arguments of `load_encoder`.
        job: see `Job`.

    Returns:
        Numbers of `sentences`, `items` and `uncovered` words, without those of shards that were done before.
    """
    on = Job(**job)
    loaded, made, settings = _loaded(encoder, load, lang, pretokenized, on)
    counts, _, told = on.run(texts, Encoding(*made, on.format), "encode", format=on.format, **settings)
    what = f"{counts['items']:,} {loaded.rows} in {counts['sentences']:,} sentences"
    on.say(f"{what}, {loaded.dim} dimensions; {told}: {on.out}")
    if counts["uncovered"]:
        fact = f"{counts['uncovered']:,} words have no vector: they exceed the limit of subwords per sentence"
        warnings.warn(f"{fact}, or the tokenizer drops them", UncoveredWordsWarning, stacklevel=2)
    return counts


@dataclass(frozen=True)
class Summing(_Encoded):
    """Sums over the words of a shard, as a file of `sums/`.

    Attributes:
        layers: see `sum_anchors`.
        vocabulary: the words that count; None for all.
    """

    layers: tuple[int, ...] | None = None
    vocabulary: tuple[str, ...] | None = None

    def target(self, shard: Shard) -> str:
        return f"sums/{shard.name}.safetensors"

    def do(self, encoder: Encoder, shard: Shard) -> Counts:
        def read() -> Iterator[Sentences]:
            yield Sentences.of([], self.lang)  # the language of a text without rows
            yield from (text for _, text in self.blocks(shard, _SENTENCES))

        sums = sum_anchors(encoder, read(), self.layers, vocabulary=self.vocabulary)
        about = {"encoder": encoder.name, "fingerprint": encoder.fingerprint, "shard": asdict(shard), "finished": True}
        with arriving(joined(self.out, self.target(shard))) as local:
            sums.save(local, note=json.dumps(about))
        return Counter(sentences=sums.n_sentences, items=int(sums.counts.sum()), uncovered=sums.uncovered)


def anchors(
    texts: Sequence[str],
    *,
    lang: str,
    encoder: str,
    layers: Sequence[int] | None = None,
    vocabulary: str | None = None,
    pretokenized: bool = False,
    load: Mapping[str, Any] | None = None,
    finishing: Mapping[str, Any] | None = None,
    **job: Any,
) -> dict[int, Anchors]:
    """Average the vectors of each word over a text, on a Ray cluster.

    Sums are exact, so the anchors are those of `calque anchors` on one machine, bit by bit, whatever the shards, if the
    nodes have the same kind of processor. The sums of a shard stand in `out/sums`, and are not made again.

    Args:
        texts, lang, encoder, pretokenized, load, job: see `encode`.
        layers: by number; None for the encoder's own.
        vocabulary: file with a word a line, the only words that count. Without one the sums of a shard have every word that
            occurs in it.
        finishing: `at_least`, `most` and `format` of `merge_anchors`.
    """
    on, finishing = Job(**job), dict(finishing or {})
    words = None if vocabulary is None else tuple(dict.fromkeys(read_vocabulary(vocabulary)))
    loaded, made, settings = _loaded(encoder, load, lang, pretokenized, on)
    numbers = None if layers is None else tuple(loaded.layer_numbers(layers))
    work, digest = Summing(*made, numbers, words), None if words is None else _digest("\n".join(words).encode())
    counts, shards, told = on.run(texts, work, "anchors", layers=numbers, vocabulary=digest, **settings)
    on.say(f"{counts['sentences']:,} sentences summed, {told}")
    if counts["uncovered"]:
        message = f"{counts['uncovered']:,} words have no vector and are not counted"
        warnings.warn(message, UncoveredWordsWarning, stacklevel=2)
    with _local(on.out, [work.target(shard) for shard in shards]) as (sums, folder):
        return merge_anchors(sums, out=folder, say=on.say, **finishing)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@contextmanager
def _local(out: str, names: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Yield files of a folder by their names on this machine, and the folder to write what shall stand beside them."""
    file_system, path = opened(out)
    if is_local(file_system):
        yield [joined(path, name) for name in names], path
        return
    with tempfile.TemporaryDirectory() as near, tempfile.TemporaryDirectory() as made:
        try:
            for number, name in enumerate(names):
                file_system.get_file(joined(path, name), f"{near}/{number}")
        except Exception as error:
            raise InputError(f"cannot be read ({reason(error)})", path=out) from error
        yield [f"{near}/{number}" for number in range(len(names))], made
        for file in sorted(file for file in Path(made).rglob("*") if file.is_file()):
            with arriving(joined(out, str(file.relative_to(made)))) as local:
                shutil.copyfile(file, local)


# -- word links --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Linking:
    """Links of every sentence pair: `links`, in Pharaoh format, beside the columns of the text.

    Attributes:
        tables: address of the tables.
        digest: of what the tables must be.
        langs: source and target.
        columns: names of the columns of the source and of the target, in each the first that exists.
        words: how words are found and links of both directions combined.
        posteriors: write each link with its probability.
        out, format: address of the folder for the results, and their format; None for that of the text.
        cpus: number of threads.
    """

    tables: str
    digest: str
    langs: tuple[str, str]
    columns: Sequence[Sequence[str]]
    words: Words
    posteriors: bool
    out: str
    format: str | None
    cpus: int

    def target(self, shard: Shard) -> str:
        return f"{shard.name}.{self.format or format_of(shard.path)}"

    def open(self) -> Callable[[Shard], Counts]:
        aligner, digest = _open_tables(self.tables)
        if digest != self.digest:
            raise ClusterError(f"{self.tables} has other tables here than where the command was given")
        return lambda shard: self._link(aligner, shard)

    def _link(self, aligner: WordAligner, shard: Shard) -> Counts:
        counts: Counts = Counter()
        with written(joined(self.out, self.target(shard))) as write:
            for first, rows in blocks(shard, _PAIRS):
                how = {"pretokenized": self.words.pretokenized, "path": shard.path, "first": first}
                sides = zip(self.columns, self.langs, strict=True)
                source, target = (sentences(rows, names, lang=lang, **how) for names, lang in sides)
                corpus = ParallelCorpus.of([s.words for s in source], [s.words for s in target], self.langs)
                symmetrize, seed = self.words.symmetrize, self.words.seed
                pairs = aligner.align(corpus, symmetrize=symmetrize, seed=seed, threads=self.cpus)
                lines = [line.rstrip("\n") for line in pairs.pharaoh_lines(posteriors=self.posteriors)]
                write({**rows, "links": pa.array(lines, pa.string())})
                counts.update(sentences=len(corpus), items=len(pairs))
        return counts


def _open_tables(address: str) -> tuple[WordAligner, str]:
    """Open tables of `calque words --tables`, from any address, and hash them."""
    from calque.wordalign import WordAligner

    with reading(address) as file:
        data = file.read()
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / Path(address).name
        local.write_bytes(data)
        return WordAligner.open(local), _digest(data)


def link(
    texts: Sequence[str], *, langs: tuple[str, str], use: str, words: Words, posteriors: bool = False, **job: Any
) -> Counts:
    """Link the words of a parallel text on a Ray cluster.

    The tables are learnt on one machine, from a sample of the text that stands for all of it. The links of a sentence pair
    depend on the tables alone, so they are those that `calque words --use` gives on one machine.

    Args:
        texts, job: see `encode`.
        use: address of the tables, of `calque words --tables`.
        words: how words are found and links of both directions combined.
        posteriors: write each link with its probability.
    """
    on = Job(**job)
    if on.columns is not None and len(on.columns) != 2:
        raise SettingError(f"--column {' --column '.join(on.columns)}: parallel text needs two, of source and target")
    sides = zip(on.columns or (None, None), ("source", "target"), langs, strict=True)
    columns = [(own,) if own else (side, lang, f"translation.{lang}") for own, side, lang in sides]
    aligner, digest = _open_tables(use)
    if aligner.langs != langs:
        raise SettingError(f"{use}: tables for {'-'.join(aligner.langs)}, but --langs {' '.join(langs)}")
    work = Linking(use, digest, langs, columns, words, posteriors, on.out, on.format, on.cluster.cpus)
    counts, _, told = on.run(
        texts, work, "words", tables=digest, langs=langs, columns=columns, format=on.format, posteriors=posteriors,
        pretokenized=words.pretokenized, symmetrize=words.symmetrize, seed=words.seed,
    )  # fmt: skip
    on.say(f"{counts['items']:,} links for {counts['sentences']:,} sentence pairs; {told}: {on.out}")
    return counts
