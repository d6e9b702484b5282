"""From text and an encoder to a folder in which the nearest words of very many are found fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from calque.errors import InputError, SettingError
from calque.linking import Say
from calque.runs.folder import check_files
from calque.runs.neighbours import BEFORE, query_vector, told
from calque.storage import locked, whole, write_text
from calque.vectors import map_arrays

VECTORS, WORDS, INDEX, ABOUT = "vectors.safetensors", "words.arrow", "index.faiss", "index.json"


def make_index(
    text: str,
    *,
    lang: str,
    encoder: str,
    out: str | Path,
    pretokenized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Encode a text and index the vectors of all its words; a stopped call goes on with the encoding where it was.

    Args:
        text: one sentence a line.
        lang: its language.
        encoder: hub name, folder, `mini` or static vectors.
        out: folder for vectors, words and index.
        pretokenized, limit: words stand between spaces; read only so many lines.
        seed: of the index.
        load: keyword arguments of `load_encoder`.
        progress, say: show a bar on standard error; take a line of news.

    Returns:
        what `index.json` says: encoder, language, kind of index, words and recall.

    Raises:
        MissingExtraError: faiss is not installed.
    """
    from calque.algebra.approximate import Index, recall
    from calque.algebra.rows import UnitRows
    from calque.corpora import read_sentences
    from calque.encoders import load_encoder
    from calque.encoders.base import require

    folder = Path(out)
    check_files(folder, (VECTORS, WORDS, INDEX, ABOUT), lambda: _is_begun(folder))
    sentences = read_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit)
    loaded = load_encoder(encoder, **dict(load or {}))
    require(loaded, "measured")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ABOUT):
        (folder / ABOUT).unlink(missing_ok=True)  # the folder is whole when this is there
        embeddings = loaded.encode(sentences, progress=progress, out=folder / VECTORS)
        known = np.arange(embeddings.n_words) if embeddings.covered is None else np.flatnonzero(embeddings.covered)
        if not len(known):
            raise SettingError(f"{text}: the encoder has a vector for none of its words")
        rows = UnitRows(embeddings.data, None if len(known) == embeddings.n_words else known)
        index = Index.of(rows, seed=seed)
        found = recall(rows, rows, index, seed=seed)
        with whole(folder / INDEX) as part:
            index.save(part)
        with whole(folder / WORDS) as part, pa.OSFile(str(part), "wb") as sink:
            words = pa.table({"words": sentences.flat()[0]})
            with pa.ipc.new_file(sink, words.schema) as writer:
                writer.write_table(words, max_chunksize=1 << 16)
        about = {
            "encoder": loaded.name, "fingerprint": loaded.fingerprint, "lang": lang, "kind": index.kind,
            "words": len(rows), "recall": found,
        }  # fmt: skip
        write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False, indent=1) + "\n")
    say(f"{len(rows):,} words of {len(sentences):,} sentences in {folder}: {told(about)}")
    return about


def _is_begun(folder: Path) -> bool:
    """Whether there is an index of calque's, or vectors for one."""
    with suppress(OSError, ValueError):
        return "fingerprint" in json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    with suppress(InputError):
        return "calque.encode" in map_arrays(folder / VECTORS)[1]
    return False


def indexed_neighbours(
    folder: str | Path,
    *,
    encoder: str,
    lang1: str,
    sentence1: str,
    word1: str,
    k: int = 5,
    pretokenized: bool = False,
    load: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A word's nearest among the words of an index, by exact cosines of its candidates.

    Args:
        folder: what `make_index` wrote.
        encoder: the one that it was made with.
        lang1, sentence1, word1, k, pretokenized, load: see `calque.runs.neighbours.neighbours`.

    Returns:
        what that gives, with `index`: what the folder says of itself.

    Raises:
        InputError: the folder is not whole, or was made with another encoder.
        MissingExtraError: faiss is not installed.
    """
    import torch

    from calque.algebra.approximate import Index, exact_cosines
    from calque.algebra.normalize import unit_rows
    from calque.algebra.rows import HeldRows
    from calque.encoders import load_encoder
    from calque.vectors import Embeddings

    path = Path(folder)
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        kind, lang2, fingerprint = about["kind"], about["lang"], about["fingerprint"]
        words = pa.ipc.open_file(pa.memory_map(str(path / WORDS))).read_all()["words"]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise InputError("not a complete index: make it with calque index", path=path) from error
    loaded = load_encoder(encoder, **dict(load or {}))
    if loaded.fingerprint != fingerprint:
        raise InputError(
            f"this index was made with another encoder ({about.get('encoder')}) than {loaded.name}: make it again",
            path=path,
        )
    sentence, place, vector = query_vector(loaded, sentence1, lang1, word1, pretokenized)
    embeddings = Embeddings.open(path / VECTORS)
    known = np.arange(embeddings.n_words) if embeddings.covered is None else np.flatnonzero(embeddings.covered)
    index = Index.open(path / INDEX, kind)
    if len(index) != len(known) or len(words) != embeddings.n_words:
        raise InputError("its index and its vectors do not fit each other: make it again", path=path)
    (names,) = index.candidates(vector[None])
    rows = known[names[names >= 0]]
    near = HeldRows(torch.from_numpy(unit_rows(embeddings.data, rows)))
    (cosines,) = exact_cosines(HeldRows(torch.from_numpy(vector[None])), near, np.zeros(1, np.int64),
                               np.arange(len(rows))[None])  # fmt: skip
    best: dict[str, dict[str, Any]] = {}
    for number in np.argsort(-cosines, kind="stable"):
        row = int(rows[number])
        text = int(np.searchsorted(embeddings.offsets, row, side="right")) - 1
        first, stop = embeddings.offsets[text : text + 2].tolist()
        about_word = {"word": words[row].as_py(), "sentence": words.slice(first, stop - first).to_pylist(),
                      "place": row - first, BEFORE: float(cosines[number])}  # fmt: skip
        best.setdefault(about_word["word"], about_word)
    return {
        "word": sentence[place], "sentence": sentence, "place": place, "lang": lang1, "lang2": lang2,
        BEFORE: list(best.values())[:k], "index": about,
    }  # fmt: skip
