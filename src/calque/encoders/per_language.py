"""An encoder for each language, as one: languages that were never trained together, as in Schuster et al. (2019)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calque.corpora.languages import best_match
from calque.encoders.base import Encoder
from calque.encoders.folder import saving
from calque.encoders.huggingface import save_whole
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings

ABOUT_FILE = "calque.json"


class PerLanguage(Encoder):
    """Encodes each sentence with the encoder of its language.

    Their spaces have nothing to do with each other until maps join them (`calque.encoders.anchored`).

    Args:
        encoders: by language; all of the same dimensions and number of layers, set to the same layer.
        name: what reports call it; None for the names of all.

    Raises:
        SettingError: encoders that differ, or that do not give their layers one by one.
    """

    def __init__(self, encoders: Mapping[str, Any], *, name: str | None = None):
        if not encoders:
            raise SettingError("no encoder was given")
        self.encoders = dict(encoders)
        shapes = {}
        for lang, encoder in self.encoders.items():
            if not hasattr(encoder, "encode_layers"):
                raise SettingError(f"{lang}: {encoder.name} does not give its layers one by one")
            shapes[lang] = (encoder.dim, encoder.n_layers, encoder.layer)
        if len(set(shapes.values())) != 1:
            raise SettingError(f"(dimensions, layers, layer) of the encoders must be the same, got {shapes}")
        self.dim, self.n_layers, self.layer = next(iter(shapes.values()))
        self.name = name or "+".join(encoder.name for encoder in self.encoders.values())

    def layer_number(self, layer: int) -> int:
        """`layer` counted from 0."""
        return next(iter(self.encoders.values())).layer_number(layer)

    def encode(
        self, sentences: Iterable[Sentence], *, progress: bool = False, out: str | PathLike[str] | None = None
    ) -> Embeddings:
        """One vector per word.

        Raises:
            SettingError: a sentence is in a language without an encoder.
        """
        found = self.encode_layers(sentences, [self.layer], progress=progress)[self.layer]
        if out is None:
            return found
        found.save(out)
        return Embeddings.open(out)

    def encode_layers(
        self, sentences: Iterable[Sentence], layers: Sequence[int], *, progress: bool = False
    ) -> dict[int, Embeddings]:
        """Several layers, by the numbers that were asked for."""
        if isinstance(sentences, Sentences):
            return self._of(sentences.lang).encode_layers(sentences, layers, progress=progress)
        sentences = list(sentences)
        places: dict[str, list[int]] = {}
        for place, sentence in enumerate(sentences):
            places.setdefault(sentence.lang, []).append(place)
        offsets = offsets_of(list(map(len, sentences)))
        data = {layer: np.zeros((offsets[-1], self.dim), dtype=np.float32) for layer in layers}
        covered = np.ones(offsets[-1], dtype=bool)
        for lang, of in places.items():
            part = Sentences.of([sentences[place].words for place in of], lang)
            rows = np.concatenate([np.arange(offsets[place], offsets[place + 1]) for place in of])
            for layer, found in self._of(lang).encode_layers(part, layers, progress=progress).items():
                data[layer][rows] = found.data
                if found.covered is not None:
                    covered[rows] = found.covered
        return {layer: Embeddings(rows, offsets, covered) for layer, rows in data.items()}

    def _of(self, lang: str) -> Any:
        found = best_match(lang, self.encoders)  # a variety, as de-AT, is read by its language's
        if found is None:
            raise SettingError(f"no encoder for language {lang!r}, there are those of {', '.join(self.encoders)}")
        return self.encoders[found]

    @property
    def fingerprint(self) -> str:
        about = [[lang, self.encoders[lang].fingerprint] for lang in sorted(self.encoders)]
        return hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write each encoder to a folder of its own, and `calque.json`, which names them."""
        with saving(folder) as path:
            for number, encoder in enumerate(self.encoders.values()):
                save_whole(encoder, path / f"encoder-{number}")
            about = {"kind": "per-language", "langs": list(self.encoders), "name": self.name}
            (path / ABOUT_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: str | PathLike[str], about: Mapping[str, Any], load: Any, **options: Any) -> PerLanguage:
        """Read what `save` wrote.

        Args:
            folder: where it is.
            about: what its `calque.json` says.
            load: `load_encoder`, and `options` for it.

        Raises:
            InputError: something is missing or damaged.
        """
        path = Path(folder)
        try:
            langs, name = list(about["langs"]), str(about["name"])
        except (KeyError, TypeError) as error:
            raise InputError(f"no encoders by language ({error} is missing)", path=path / ABOUT_FILE) from error
        return cls({lang: load(path / f"encoder-{n}", **options) for n, lang in enumerate(langs)}, name=name)
