"""Anchors of a text: sums shard by shard, joined here."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from calque.encoders.anchors import sum_anchors
from calque.encoders.base import Encoder
from calque.encoders.extraction import UncoveredWordsWarning
from calque.errors import InputError, SettingError
from calque.integrations.ray.cluster import Cluster, run
from calque.integrations.ray.encoding import COLUMNS, Named, Reading, checked_rows, told
from calque.integrations.ray.places import arriving, is_local, joined, opened, reason
from calque.integrations.ray.shards import WINDOW, Shard, files_of, left_of, shards_of
from calque.integrations.ray.work import Report
from calque.linking import Say
from calque.runs.anchors import merge_anchors, read_vocabulary
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.anchors import Anchors

_BLOCK = 2048  # sentences encoded at a time, as on one machine
SUMS = "sums"


@dataclass(frozen=True)
class Summing:
    """Sums over the words of a shard, as a file of `sums/`.

    Attributes:
        encoder: the encoder.
        text: how sentences are found.
        out: address of the folder for the results.
        layers: see `sum_anchors`.
        vocabulary: the words that count; None for all.
    """

    encoder: Named
    text: Reading
    out: str
    layers: tuple[int, ...] | None = None
    vocabulary: tuple[str, ...] | None = None

    def target(self, shard: Shard) -> str:
        """Name of the result in the folder."""
        return f"{SUMS}/{shard.name}.safetensors"

    def open(self) -> Callable[[Shard], Report]:
        encoder = self.encoder.open()
        return lambda shard: self._sum(encoder, shard)

    def _sum(self, encoder: Encoder, shard: Shard) -> Report:
        sums = sum_anchors(encoder, self._blocks(shard), self.layers, vocabulary=self.vocabulary)
        about = {"encoder": encoder.name, "fingerprint": encoder.fingerprint, "shard": asdict(shard), "finished": True}
        with arriving(joined(self.out, self.target(shard))) as local:
            sums.save(local, note=json.dumps(about))
        return Report(shard.name, sums.n_sentences, int(sums.counts.sum()), sums.uncovered)

    def _blocks(self, shard: Shard) -> Iterator[Sentences]:
        from calque.integrations.ray.rows import blocks, column, sentences

        yield Sentences.of([], self.text.lang)  # says the language of a text without rows
        for first, rows in blocks(shard, _BLOCK):
            values = column(rows, self.text.columns, shard.path)
            how = {"lang": self.text.lang, "pretokenized": self.text.pretokenized}
            yield sentences(values, **how, path=shard.path, first=first)


def anchors(
    texts: Sequence[str],
    *,
    lang: str,
    encoder: str,
    out: str,
    columns: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    vocabulary: str | None = None,
    pretokenized: bool = False,
    rows: int = 2 * WINDOW,
    load: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
    **finishing: Any,
) -> dict[int, Anchors]:
    """Average the vectors of each word over a text, on a Ray cluster.

    Sums are in float64, so the anchors are those of `calque anchors` on one machine but for rounding, whatever the shards,
    if the nodes have the same kind of processor. The sums of a shard stand in `out/sums`, and are not made again.

    Args:
        texts, lang, encoder, out, columns, pretokenized, rows, load, cluster, progress, say: see
            `calque.integrations.ray.encoding.encode`.
        layers: by number; None for the encoder's own.
        vocabulary: file with a word a line, the only ones that count. Without one the sums of a shard have every word that
            comes in it.
        finishing: `at_least`, `most` and `format` of `merge_anchors`.
    """
    if finishing.get("senses", "keep") != "keep":
        raise SettingError("senses are told apart by occurrences drawn in the order of the text: on one machine only")
    cluster = cluster or Cluster()
    checked_rows(rows)
    words = None if vocabulary is None else tuple(dict.fromkeys(read_vocabulary(vocabulary)))
    files = files_of(texts)
    named, loaded = Named.of(encoder, dict(load or {}), cluster)
    numbers = None if layers is None else tuple(loaded.layer_numbers(layers))
    work = Summing(named, Reading(tuple(columns or COLUMNS), lang, pretokenized), out, numbers, words)
    settings = {"verb": "anchors", "encoder": named.fingerprint, "lang": lang, "columns": work.text.columns,
                "pretokenized": pretokenized, "layers": numbers, "vocabulary": _digest(words), "shard rows": rows}  # fmt: skip
    shards = shards_of(files, rows)
    left = left_of(out, settings, files, shards, work.target)
    report = run(work, left, cluster, title="anchors", done=len(shards) - len(left), progress=progress)
    say(f"{report.sentences:,} sentences summed, {told(left, shards)}")
    if report.uncovered:
        message = f"{report.uncovered:,} words have no vector and are not counted"
        warnings.warn(message, UncoveredWordsWarning, stacklevel=2)
    with _local(out, [work.target(shard) for shard in shards]) as (sums, folder):
        return merge_anchors(sums, out=folder, say=say, **finishing)


def _digest(words: Sequence[str] | None) -> str | None:
    return None if words is None else hashlib.blake2b("\n".join(words).encode(), digest_size=16).hexdigest()


@contextmanager
def _local(out: str, names: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Files of a folder by their names on this machine, and where to write what shall stand beside them."""
    file_system, path = opened(out)
    if is_local(file_system):
        yield [joined(path, name) for name in names], path
        return
    with TemporaryDirectory() as near, TemporaryDirectory() as made:
        try:
            for number, name in enumerate(names):
                file_system.get_file(joined(path, name), f"{near}/{number}")
        except Exception as error:
            raise InputError(f"cannot be read ({reason(error)})", path=out) from error
        yield [f"{near}/{number}" for number in range(len(names))], made
        for file in sorted(Path(made).rglob("*")):
            if file.is_file():
                with arriving(joined(out, str(file.relative_to(made)))) as local:
                    shutil.copyfile(file, local)
