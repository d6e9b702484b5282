"""Word links of a run. They are kept beside its checkpoints: they take time, and a run that goes on needs the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.distributed import is_first
from calque.errors import InputError, SettingError
from calque.linking import Say, Words, digest_of
from calque.pairs import WordPairs
from calque.vectors import map_arrays, write_arrays
from calque.wordalign import LinkFilter, pivoted

if TYPE_CHECKING:
    from calque.text import ParallelCorpus


@dataclass(frozen=True)
class LinkedText:
    """A parallel text of a run with the links that it learns from.

    Attributes:
        name: of the file, or of the two files that it was made from.
        corpus, pairs: its sentence pairs and their links.
        left_out: how many links a filter left out, by reason.
    """

    name: str
    corpus: ParallelCorpus
    pairs: WordPairs
    left_out: dict[str, int] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """What the model card tells of it."""
        return {"path": self.name, "langs": list(self.corpus.langs), "sentence_pairs": len(self.corpus),
                "word_pairs": len(self.pairs), "unusable_lines": sum(self.corpus.skipped.values()),
                **self.left_out}  # fmt: skip

    def filtered(self, by: LinkFilter, say: Say) -> LinkedText:
        """The same with the links that a filter keeps."""
        pairs, counts = by.apply(self.corpus, self.pairs)
        if counts:
            told = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
            say(f"{self.name}: {len(pairs):,} of {len(self.pairs):,} links are kept ({told})")
        return LinkedText(self.name, self.corpus, pairs, counts)


def with_pivoted(texts: Sequence[LinkedText], pivot: str, say: Say) -> list[LinkedText]:
    """The texts, and behind them one for each two languages that have the same sentences in the pivot language.

    Raises:
        SettingError: no two texts have.
    """
    made = pivoted([each.corpus for each in texts], [each.pairs for each in texts], pivot)
    if not made:
        raise SettingError(
            f"--pivot-links: no two texts in different languages share a sentence in {pivot}; leave it out, or give text "
            f"that was translated from the same {pivot} sentences"
        )
    more = [LinkedText(" + ".join(texts[k].name for k in each.of), each.corpus, each.pairs) for each in made]
    for each in more:
        langs = "-".join(each.corpus.langs)
        say(f"{langs}: {len(each.pairs):,} links by way of {pivot}, {len(each.corpus):,} sentence pairs ({each.name})")
    return [*texts, *more]


def links_of(
    corpora: Sequence[ParallelCorpus], words: Words, *, folder: Path | None, say: Say, progress: bool = False
) -> list[WordPairs]:
    """Links of each corpus by the statistical aligner, or those that an earlier run left in the folder.

    Args:
        corpora: parallel texts.
        words: how their words are linked.
        folder: where the links are kept; they are taken from there only if text and settings are the same. None keeps them
            nowhere.
        say: takes a line of news.
        progress: show a bar on standard error.
    """
    linked = []
    for number, corpus in enumerate(corpora):
        langs = "-".join(corpus.langs)
        path = None if folder is None else folder / f"links-{number}.safetensors"
        key = "" if path is None else _key(corpus, words)
        pairs = None if path is None else _kept(path, key)
        if pairs is None:
            say(f"linking the words of {len(corpus):,} sentence pairs ({langs})")
            pairs = words.link(corpus, progress=progress)
            if path is not None and is_first():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_arrays(path, _arrays(pairs), {"key": key})
        else:
            say(f"word links of {len(corpus):,} sentence pairs ({langs}) found from an interrupted run")
        linked.append(pairs)
    return linked


def _key(corpus: ParallelCorpus, words: Words) -> str:
    """Hash over text, languages and settings."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([corpus.langs, words.model, words.symmetrize, words.seed]).encode())
    digest.update((digest_of(corpus.source) + digest_of(corpus.target)).encode())
    return digest.hexdigest()


def _arrays(pairs: WordPairs) -> dict[str, np.ndarray]:
    arrays = {"sentence": pairs.sentence, "source": pairs.source, "target": pairs.target, "possible": pairs.possible,
              "n_sentences": np.array([pairs.n_sentences])}  # fmt: skip
    return arrays if pairs.posterior is None else arrays | {"posterior": pairs.posterior}


def _kept(path: Path, key: str) -> WordPairs | None:
    if not path.is_file():
        return None
    try:
        mapped, about = map_arrays(path)
        if about.get("key") != key:
            return None
        arrays = {name: np.array(array) for name, array in mapped.items()}
        return WordPairs(n_sentences=int(arrays.pop("n_sentences")[0]), **arrays)
    except (InputError, KeyError, TypeError):  # of another version, or damaged: they are made again
        return None
