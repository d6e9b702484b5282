"""Word links of a run. They are kept beside its checkpoints: they take time, and a run that goes on needs the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.distributed import is_first
from calque.errors import InputError
from calque.linking import Say, Words, digest_of
from calque.pairs import WordPairs
from calque.vectors import map_arrays, write_arrays

if TYPE_CHECKING:
    from calque.text import ParallelCorpus


def links_of(
    corpora: Sequence[ParallelCorpus], words: Words, *, folder: Path | None, say: Say, progress: bool = False
) -> list[WordPairs]:
    """Links of each corpus by the statistical aligner, or those that an earlier run left in the folder.

    Args:
        folder: where the links are kept; they are taken from there only if text and settings are the same. None keeps them
            nowhere.
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
