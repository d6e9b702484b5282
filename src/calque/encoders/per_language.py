"""Separately trained encoders, one for each language, as in Schuster et al. (2019)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from calque.corpora.languages import best_match
from calque.encoders.base import Encoder, require
from calque.encoders.extraction import word_counts
from calque.encoders.folder import ABOUT_FILE, open_folder, read_about, saving, write_about
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.storage import JsonObject, json_text, mapped_array
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings


class PerLanguage(Encoder):
    """Encoder that passes each sentence to the encoder of its language.

    The vector spaces of the encoders are unrelated until maps are fitted, for example on anchors
    (`calque.encoders.anchors`).

    Args:
        encoders: encoders, keyed by language.
        name: name shown in reports; default: the joined names of the encoders.
        alike: whether all encoders must have the same `dim`, `n_layers` and `layer`. This argument
            is not saved.

    Raises:
        SettingError: the encoders differ although `alike` is true, or an encoder lacks required
            members.
    """

    def __init__(
        self, encoders: Mapping[str, Encoder], *, name: str | None = None, alike: bool = True
    ):
        if not encoders:
            raise SettingError("no encoder was given")
        self.encoders = dict(encoders)
        for encoder in self.encoders.values():
            require(encoder, "measured")
        shapes = {
            lang: (encoder.dim, encoder.n_layers, encoder.layer)
            for lang, encoder in self.encoders.items()
        }
        if alike and len(set(shapes.values())) != 1:
            raise SettingError(
                f"all encoders must have the same dim, n_layers and layer, got {shapes}"
            )
        self.dim, self.n_layers, self.layer = next(iter(shapes.values()))
        self.name = name or "+".join(encoder.name for encoder in self.encoders.values())

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(self.encoders)

    def stored_words(self, lang: str) -> Sequence[str] | None:
        encoder = self.encoder_of(lang)
        words = encoder.stored_words(lang)
        return encoder.stored_words("") if words is None else words

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word; raise SettingError if a language has no encoder."""
        return encode_by_language(
            sentences,
            [0],
            self.dim,
            lambda part: {0: self.encoder_of(part.lang).encode(part, progress=progress)},
        )[0]

    def _encode(
        self, sentences: Iterable[Sentence | Sequence[str]], layers: list[int], progress: bool
    ) -> dict[int, Embeddings]:
        return encode_by_language(
            sentences,
            layers,
            self.dim,
            lambda part: self.encoder_of(part.lang).encode_layers(part, layers, progress=progress),
        )

    def encoder_of(self, lang: str) -> Encoder:
        """Return the encoder of a language; raise SettingError if there is none."""
        match = best_match(
            lang, self.encoders
        )  # a variety such as de-AT uses the encoder of its language
        if match is None:
            raise SettingError(
                f"there is no encoder for language {lang!r}; use one of {', '.join(self.encoders)}"
            )
        return self.encoders[match]

    @property
    def fingerprint(self) -> str:
        about = [[lang, self.encoders[lang].fingerprint] for lang in sorted(self.encoders)]
        return hashlib.blake2b(json_text(about).encode(), digest_size=16).hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write each encoder to a subfolder, and the languages to `calque.json`."""
        with saving(folder, self) as path:
            for number, encoder in enumerate(self.encoders.values()):
                encoder.save_whole(path / f"encoder-{number}")
            write_about(path, "per-language", {"langs": list(self.encoders), "name": self.name})

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        *,
        about: JsonObject | None = None,
        alike: bool = True,
        **options: Any,
    ) -> Self:
        """Load a folder that `save` wrote, with the same options for all encoders; for `alike`, see
        `PerLanguage`.
        """
        path = Path(folder)
        about = read_about(path) if about is None else about
        try:
            langs, name = list(about["langs"]), str(about["name"])
        except (KeyError, TypeError) as error:
            raise InputError(
                f"no list of encoders by language ({error} is missing)", path=path / ABOUT_FILE
            ) from error
        encoders = {
            lang: open_folder(path / f"encoder-{n}", **options) for n, lang in enumerate(langs)
        }
        return cls(encoders, name=name, alike=alike)


class HasMaps(Protocol):
    """An encoder with maps, keyed by language."""

    name: str
    maps: dict


def encode_by_language(
    sentences: Iterable[Sentence | Sequence[str]],
    layers: Sequence[int],
    dim: int,
    encode: Callable[[Sentences], Mapping[int, Embeddings]],
) -> dict[int, Embeddings]:
    """Call `encode` for the sentences of each language, and return the vectors, keyed by layer, in
    sentence order.
    """
    if isinstance(sentences, Sentences) and len(sentences):
        return dict(encode(sentences))
    sentences = list(sentences)
    offsets = offsets_of(word_counts(sentences))
    data = {layer: mapped_array((offsets[-1], dim), np.float32) for layer in layers}
    covered = np.ones(offsets[-1], dtype=bool)
    for part, places in sentences_by_language(sentences):
        rows = ranges(offsets[places], part.lengths())
        for layer, vectors in encode(part).items():
            data[layer][rows] = vectors.data
            if vectors.covered is not None:
                covered[rows] = vectors.covered
    return {layer: Embeddings(rows, offsets, covered) for layer, rows in data.items()}


def sentences_by_language(
    sentences: Sequence[Sentence | Sequence[str]],
) -> list[tuple[Sentences, np.ndarray]]:
    """Return the sentences of each language with their indices; a plain list of words has the
    language "".
    """
    places: dict[str, list[int]] = {}
    for place, sentence in enumerate(sentences):
        places.setdefault(getattr(sentence, "lang", ""), []).append(place)
    texts = []
    for lang, lang_places in places.items():
        chosen = [sentences[place] for place in lang_places]
        words = [
            sentence.words if isinstance(sentence, Sentence) else sentence for sentence in chosen
        ]
        texts.append((Sentences.of(words, lang), np.array(lang_places)))
    return texts


def check_language(encoder: HasMaps, lang: str) -> None:
    """Raise SettingError if the encoder has maps and a sentence has no language."""
    if encoder.maps and not lang:
        fact = (
            f"a sentence has no language, but {encoder.name} has maps for {', '.join(encoder.maps)}"
        )
        example = f'calque.Sentence(words, lang="{next(iter(encoder.maps))}")'
        raise SettingError(f"{fact}; use {example} or calque.Sentences.of(lists, lang=…)")
