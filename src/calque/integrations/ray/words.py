"""Word links of a parallel text, shard by shard, by tables that were learnt before."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calque.errors import SettingError
from calque.integrations.ray.cluster import Cluster, run
from calque.integrations.ray.encoding import checked_format, checked_rows, told
from calque.integrations.ray.places import joined, reading
from calque.integrations.ray.shards import WINDOW, Shard, files_of, kind_of, left_of, shards_of
from calque.integrations.ray.work import ClusterError, Report
from calque.linking import Say, Words

if TYPE_CHECKING:
    from calque.wordalign import WordAligner

_BLOCK = 16_384  # sentence pairs linked at a time; links do not depend on it


@dataclass(frozen=True)
class Linking:
    """Links of every sentence pair: `links`, in Pharaoh format, beside the columns that the text has.

    Attributes:
        tables: address of the tables.
        digest: of what they must be.
        langs: source and target.
        columns: of the source and of the target, the first that there is.
        words: how words are found and links of both directions joined.
        out: address of the folder for the results.
        posteriors: each link with its probability.
        format: of the results, parquet or jsonl; None for that of the text.
        cpus: threads.
    """

    tables: str
    digest: str
    langs: tuple[str, str]
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    words: Words
    out: str
    posteriors: bool = False
    format: str | None = None
    cpus: int = 1

    def target(self, shard: Shard) -> str:
        """Name of the result in the folder."""
        from calque.integrations.ray.rows import ending

        return shard.name + ending(self.format or (kind_of(shard.path) or ("parquet",))[0])

    def open(self) -> Callable[[Shard], Report]:
        aligner, digest = open_tables(self.tables)
        if digest != self.digest:
            raise ClusterError(f"{self.tables} has other tables here than where the command was given")
        return lambda shard: self._link(aligner, shard)

    def _link(self, aligner: WordAligner, shard: Shard) -> Report:
        import pyarrow as pa

        from calque.integrations.ray.rows import blocks, column, sentences, with_columns, written
        from calque.text import ParallelCorpus

        report, name = Report(), self.target(shard)
        with written(joined(self.out, name), (kind_of(name) or ("",))[0]) as writer:
            for first, rows in blocks(shard, _BLOCK):
                how = {"pretokenized": self.words.pretokenized, "path": shard.path, "first": first}
                source, target = (
                    sentences(column(rows, names, shard.path), lang=lang, **how)
                    for names, lang in zip(self.columns, self.langs, strict=True)
                )
                corpus = ParallelCorpus.of([s.words for s in source], [s.words for s in target], self.langs)
                symmetrize, seed = self.words.symmetrize, self.words.seed
                pairs = aligner.align(corpus, symmetrize=symmetrize, seed=seed, threads=self.cpus)
                lines = [line.rstrip("\n") for line in pairs.pharaoh_lines(posteriors=self.posteriors)]
                writer.write(with_columns(rows, {"links": pa.array(lines, pa.string())}))
                report += Report("", len(corpus), len(pairs))
        return Report(shard.name, report.sentences, report.items)


def open_tables(address: str) -> tuple[WordAligner, str]:
    """Tables of `calque words --tables`, from any address, and a hash of them.

    Raises:
        InputError: they cannot be read.
    """
    from calque.wordalign import WordAligner

    with reading(address) as file:
        data = file.read()
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / Path(address).name
        local.write_bytes(data)
        return WordAligner.open(local), hashlib.blake2b(data, digest_size=16).hexdigest()


def link(
    texts: Sequence[str],
    *,
    langs: tuple[str, str],
    use: str,
    out: str,
    words: Words,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    posteriors: bool = False,
    rows: int = 2 * WINDOW,
    cluster: Cluster | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Report:
    """Link the words of a parallel text on a Ray cluster.

    The tables are learnt on one machine, from a sample of the text that stands for all of it; the links of a sentence pair
    depend on them alone, so they are those that `calque words --use` gives on one machine.

    Args:
        texts, out, format, rows, cluster, progress, say: see `calque.integrations.ray.encoding.encode`.
        langs: source and target.
        use: address of the tables, of `calque words --tables`.
        words: how words are found and links of both directions joined.
        columns: of the source and of the target; None for source and target, or the names of the languages, also in an
            object `translation`.
        posteriors: write each link with its probability.
    """
    cluster = cluster or Cluster()
    checked_rows(rows)
    checked_format(format)
    if columns is not None and len(columns) != 2:
        raise SettingError(f"--column {' --column '.join(columns)}: parallel text needs two, of source and target")
    named = columns or (None, None)
    choice = [
        (own,) if own else (side, lang, f"translation.{lang}")
        for own, side, lang in zip(named, ("source", "target"), langs, strict=True)
    ]
    files = files_of(texts)
    aligner, digest = open_tables(use)
    if aligner.langs != langs:
        raise SettingError(f"{use}: tables for {'-'.join(aligner.langs)}, but --langs {' '.join(langs)}")
    work = Linking(use, digest, langs, (choice[0], choice[1]), words, out, posteriors, format, cluster.cpus)
    settings = {"verb": "words", "tables": digest, "langs": langs, "columns": choice, "format": format, "shard rows": rows,
                "pretokenized": words.pretokenized, "symmetrize": words.symmetrize, "seed": words.seed,
                "posteriors": posteriors}  # fmt: skip
    shards = shards_of(files, rows)
    left = left_of(out, settings, files, shards, work.target)
    report = run(work, left, cluster, title="words", done=len(shards) - len(left), progress=progress)
    say(f"{report.items:,} links for {report.sentences:,} sentence pairs; {told(left, shards)}: {out}")
    return report
