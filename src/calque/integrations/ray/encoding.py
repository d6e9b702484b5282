"""Vectors of a text, shard by shard."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calque.encoders import load_encoder
from calque.encoders.base import Encoder, require
from calque.encoders.extraction import UncoveredWordsWarning
from calque.errors import SettingError
from calque.integrations.ray.cluster import Cluster, run
from calque.integrations.ray.places import joined
from calque.integrations.ray.shards import FORMATS, WINDOW, Shard, files_of, kind_of, left_of, shards_of
from calque.integrations.ray.work import ClusterError, Report
from calque.linking import Say

COLUMNS = ("text", "sentence", "words")


@dataclass(frozen=True)
class Reading:
    """How sentences are found in rows.

    Attributes:
        columns: the first of these that there is.
        lang: their language.
        pretokenized: words stand between spaces.
    """

    columns: tuple[str, ...]
    lang: str
    pretokenized: bool = False


@dataclass(frozen=True)
class Named:
    """An encoder by its name, as each actor loads it.

    Attributes:
        name: hub name, folder, `mini` or a file of vectors; a folder must be there on every node.
        options: of `load_encoder`.
        fingerprint: that it must have.
        cpus, gpus: that the actor has.
    """

    name: str
    options: tuple[tuple[str, Any], ...]
    fingerprint: str
    cpus: int
    gpus: int

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], cluster: Cluster) -> tuple[Named, Encoder]:
        """The name of an encoder, and itself, loaded here to see that it can be."""
        encoder = load_encoder(name, **options)
        require(encoder, "measured", rows=("words", "key points"))
        return cls(name, tuple(options.items()), encoder.fingerprint, cluster.cpus, cluster.gpus), encoder

    def open(self) -> Encoder:
        """Load it in an actor.

        Raises:
            ClusterError: it is another one there, or PyTorch cannot use the graphics card.
        """
        import torch

        torch.set_num_threads(self.cpus)
        if self.gpus and not torch.cuda.is_available():
            raise ClusterError("PyTorch cannot use the graphics card here; is this a build for CUDA?")
        encoder = load_encoder(self.name, **dict(self.options))
        if encoder.fingerprint != self.fingerprint:
            raise ClusterError(f"{self.name} is another encoder here than where the command was given")
        return encoder


@dataclass(frozen=True)
class Encoding:
    """Vectors of every word: `words`, `vectors` and `covered` beside the columns that the text has.

    Attributes:
        encoder: the encoder.
        text: how sentences are found.
        out: address of the folder for the results.
        format: of theirs, parquet or jsonl; None for that of the text.
        block: sentences encoded at a time.
    """

    encoder: Named
    text: Reading
    out: str
    format: str | None = None
    block: int = WINDOW

    def target(self, shard: Shard) -> str:
        """Name of the result in the folder."""
        from calque.integrations.ray.rows import ending

        kind = self.format or (kind_of(shard.path) or ("parquet",))[0]
        return shard.name + ending(kind)

    def open(self) -> Callable[[Shard], Report]:
        encoder = self.encoder.open()
        return lambda shard: self._encode(encoder, shard)

    def _encode(self, encoder: Encoder, shard: Shard) -> Report:
        from calque.integrations.ray.rows import blocks, column, sentences, vector_columns, with_columns, written

        report, name = Report(), self.target(shard)
        kind = (kind_of(name) or ("",))[0]
        with written(joined(self.out, name), kind) as writer:
            for first, rows in blocks(shard, self.block):
                values = column(rows, self.text.columns, shard.path)
                how = {"lang": self.text.lang, "pretokenized": self.text.pretokenized}
                text = sentences(values, **how, path=shard.path, first=first)
                vectors = encoder.encode(text)
                writer.write(with_columns(rows, vector_columns(text, vectors, of_words=encoder.rows == "words")))
                uncovered = 0 if vectors.covered is None else int((~vectors.covered).sum())
                report += Report("", len(text), vectors.n_words, uncovered)
        return Report(shard.name, report.sentences, report.items, report.uncovered)


def encode(
    encoder: str,
    texts: Sequence[str],
    *,
    lang: str,
    out: str,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    pretokenized: bool = False,
    rows: int = 2 * WINDOW,
    load: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Report:
    """Write vectors for every word of a text on a Ray cluster.

    Each shard becomes a file of `out` with the name of its part of the text; it has the vectors that `calque encode` gives
    on one machine, bit by bit, if the nodes have the same kind of processor. What stands there is not made again.

    Args:
        encoder: see `Named`.
        texts: addresses of Parquet and JSON lines: files, folders or with wildcards.
        lang: their language.
        out: address of a folder that all nodes can write to.
        columns: with the text or lists of words, the first that there is; None for text, sentence or words.
        format: parquet or jsonl; None for that of the text.
        pretokenized: words stand between spaces.
        rows: most rows of a shard, a multiple of 32,768.
        load: keyword arguments of `load_encoder`.
        cluster: where.
        progress, say: show a bar on standard error; take a line of news.

    Returns:
        What has been done now, not what was done before.
    """
    cluster = cluster or Cluster()
    checked_rows(rows)
    checked_format(format)
    files = files_of(texts)
    named, loaded = Named.of(encoder, dict(load or {}), cluster)
    work = Encoding(named, Reading(tuple(columns or COLUMNS), lang, pretokenized), out, format)
    settings = {"verb": "encode", "encoder": named.fingerprint, "lang": lang, "columns": work.text.columns,
                "pretokenized": pretokenized, "format": format, "shard rows": rows}  # fmt: skip
    shards = shards_of(files, rows)
    left = left_of(out, settings, files, shards, work.target)
    report = run(work, left, cluster, title="encode", done=len(shards) - len(left), progress=progress)
    say(
        f"{report.items:,} {loaded.rows} in {report.sentences:,} sentences, {loaded.dim} dimensions; "
        f"{told(left, shards)}: {out}"
    )
    warn_of_uncovered(report)
    return report


def checked_rows(rows: int) -> None:
    """Raise unless a shard of so many rows ends where a batch does."""
    if rows < 1 or rows % WINDOW:
        raise SettingError(
            f"--shard-rows {rows}: expected a multiple of {WINDOW:,}, so that batches are those of the whole"
        )


def checked_format(format: str | None) -> None:
    """Raise unless results can be written in this format."""
    if format is not None and format not in FORMATS:
        raise SettingError(f"--format {format}: expected one of {', '.join(FORMATS)}")


def told(left: Sequence[Shard], shards: Sequence[Shard]) -> str:
    """How much was there to do."""
    done = len(shards) - len(left)
    return f"{len(left):,} shards" + (f", {done:,} were done before" if done else "")


def warn_of_uncovered(report: Report) -> None:
    """Say that words have no vector, where some have none."""
    if report.uncovered:
        warnings.warn(
            f"{report.uncovered:,} words have no vector: they exceed the limit of subwords per sentence, or the tokenizer "
            "drops them",
            UncoveredWordsWarning,
            stacklevel=3,
        )
