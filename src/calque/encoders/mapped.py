"""An encoder with maps from each language's vector space to a common space."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from calque.corpora.identify import LanguageIdentifier
from calque.corpora.languages import best_match
from calque.encoders.base import Encoder, made_of, require
from calque.encoders.folder import (
    BASE_FOLDER,
    ENCODERS,
    OWN,
    encoder_kind,
    read_about,
    saving,
    write_about,
)
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.language_affine import LanguageAffine, affine_of
from calque.encoders.linked_vectors import LinkedVectors, Unit
from calque.encoders.numerics import number_type
from calque.encoders.per_language import PerLanguage, check_language, encode_by_language
from calque.encoders.sentence_transformers import write_mapped_modules, write_outer_modules
from calque.encoders.trainable import TrainableEncoder
from calque.errors import InputError, SettingError
from calque.maps import VectorMap, about_map, open_map
from calque.maps.shrinkage import Shrinkage
from calque.named import is_path
from calque.pairs import WordPairs
from calque.progress import bar
from calque.storage import JsonObject, json_text, read_json_object
from calque.text import ParallelCorpus, Sentence, Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

Combine = Literal["sum", "mean", "concat", "last"]
COMBINATIONS = ("sum", "mean", "concat", "last")
MAPS_FILE, IDENTIFIER_FILE = "maps.safetensors", "language_identifier.json"


class MappedEncoder(Encoder):
    """An encoder whose word vectors are mapped into the vector space of one language.

    Word vectors are mapped with the maps of the sentence's language; a variety (de-AT) without maps
    uses the maps of de. Vectors of languages without maps do not change. The language `towards` has
    maps only if the method maps both languages. Every sentence must have a language; plain lists of
    words are rejected.

    Args:
        base: encoder whose layers are mapped.
        maps: `{language: {layer: map}}`; all languages must have maps for the same layers.
        towards: language of the common space.
        combine: word vector to return: the sum, mean or concatenation of all mapped layers, or only
            the last mapped layer. Kulshreshtha et al. (2020) use the sum of four layers.
        settings: settings of the method, which are saved in `calque.json`.
        only: language of all texts, with which a sentence needs no language; there must be no maps
            for other languages. See `of_language`.
        identifier: identifies the language of a text in sentence-transformers, where a text has no
            language. calque does not use it.
    """

    def __init__(
        self,
        base: Encoder,
        maps: Mapping[str, Mapping[int, VectorMap]],
        *,
        towards: str,
        combine: Combine = "last",
        settings: Mapping[str, object] | None = None,
        only: str | None = None,
        identifier: LanguageIdentifier | None = None,
    ):
        if only is not None and list(maps) != [only]:
            raise SettingError(f"an encoder for {only} must have maps for {only}, got {list(maps)}")
        if combine not in COMBINATIONS:
            raise SettingError(f"combine must be one of {', '.join(COMBINATIONS)}, got {combine!r}")
        layers = {tuple(sorted(by_layer)) for by_layer in maps.values()}
        if len(layers) != 1 or not min(layers):
            raise SettingError(
                f"all languages must have maps for the same layers, got {sorted(layers)}"
            )
        require(base, "mapped")
        self.base: Encoder = base  # type: ignore[assignment]
        self.combine: Combine = combine
        self.towards, self.maps = towards, {lang: dict(by_layer) for lang, by_layer in maps.items()}
        (self._layers,) = layers
        self.n_layers = self._layers[-1]
        self.layer = self.n_layers if combine == "last" or len(self._layers) == 1 else None
        self.dim = base.dim * (len(self._layers) if combine == "concat" else 1)
        self.settings = dict(settings or {})
        self.only, self.identifier = only, identifier
        self.name = f"{base.name}+{self.settings.get('method', 'maps')}"

    @classmethod
    def fit(
        cls,
        base: Encoder,
        corpus: ParallelCorpus | Sequence[ParallelCorpus],
        pairs: WordPairs | Sequence[WordPairs],
        *,
        make: Callable[[], VectorMap],
        towards: str,
        layers: Sequence[int] | None = None,
        combine: Combine = "last",
        unit: Unit = "words",
        shrinkage: Shrinkage = 0.0,
        block: int = 2048,
        progress: bool = False,
    ) -> MappedEncoder:
        """Fit one map per language and layer on linked words or on sentences.

        The text is encoded block by block, and only moments and the vectors of a few hundred
        sentence pairs are kept, so memory use does not grow with the text.

        Args:
            base: encoder to fit maps for.
            corpus, pairs: parallel text and its word links, or sequences of both.
            make: function that returns a new map to fit, such as the class `Rotation`.
            towards: language of the common space; every corpus must contain this language.
            layers: layers to map; default: the encoder's layer, or the last layer if the encoder
                combines several layers.
            combine: see `MappedEncoder`.
            unit: whether maps are fitted on linked words (Wang et al. 2019), or on sentence means
                (Aldarmaki & Diab 2019; Cao 2020, "sentence-aligned"), which need no word links.
            shrinkage: how strongly each map is shrunk towards the identity, from 0 (the papers'
                maps) to 1, or "auto" to choose it on held-out pairs, see `choose_shrinkage`. Unless
                it is 0, `make` must accept it as a keyword argument.
            block: number of sentence pairs encoded at a time.
            progress: whether to show a progress bar on standard error.

        Raises:
            SettingError: the encoder already has maps, a corpus does not contain `towards`, or a
                setting is invalid.
        """
        require(base, "mapped")
        corpora = list(corpus) if isinstance(corpus, Sequence) else [corpus]
        corpus_pairs = list(pairs) if isinstance(pairs, Sequence) else [pairs]
        numbers = sorted(set(base.layer_numbers(layers)))
        by_lang: dict[str, tuple[list[ParallelCorpus], list[WordPairs]]] = {}
        for text, linked in zip(corpora, corpus_pairs, strict=True):
            linked.check(text)
            # The moments are those of maps from the other language to `towards`.
            if text.side(towards) == "source":
                text, linked = text.swapped(), linked.swapped()
            texts, links = by_lang.setdefault(text.langs[0], ([], []))
            texts.append(text)
            links.append(linked)
        maps: dict[str, dict[int, VectorMap]] = {}
        fits: dict[str, dict[str, JsonObject]] = {}
        n_pairs, used = sum(map(len, corpora)), 0
        with bar(n_pairs, unit="pair", title="fit maps", show=progress) as counter:
            # The statistics of one language are dropped before the next language is encoded.
            for lang, (texts, links) in by_lang.items():
                vectors = LinkedVectors(
                    texts, links, dim=base.dim, layers=numbers, unit=unit, shrinkage=shrinkage
                )
                vectors.encode(base, block=block, done=counter.update)
                used += vectors.n_pairs
                maps[lang], fits[lang] = {}, {}
                for layer in numbers:
                    maps[lang][layer], fits[lang][str(layer)] = vectors.fit(layer, make)
        map_name = next(iter(maps.values()))[numbers[0]].kind
        method = map_name if unit == "words" else f"sentence-{map_name}"
        settings: dict[str, Any] = {
            "method": method,
            "unit": unit,
            "sentence_pairs": n_pairs,
            "pairs": used,
            "shrinkage": shrinkage,
        }
        if shrinkage != 0:
            settings["fits"] = fits
        aligned = cls(base, maps, towards=towards, combine=combine, settings=settings)
        aligned.identifier = identifier_of(corpora)
        about = {"settings": {**settings, "layers": list(aligned.layers), "combine": combine}}
        aligned.made = made_of(base, method, towards, corpora, corpus_pairs, about)
        return aligned

    def without_maps(self) -> MappedEncoder:
        """Return an encoder that combines the layers in the same way, but without mapping them."""
        unmapped = copy.copy(self)
        unmapped.maps, unmapped.settings = {}, {}
        unmapped.name, unmapped.made = self.base.name, None
        return unmapped

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the mapped layers."""
        return self._layers

    @property
    def languages(self) -> tuple[str, ...]:
        if self.only is not None:
            return ()
        return tuple(dict.fromkeys((self.towards, *self.maps)))

    def of_language(self, lang: str) -> Encoder:
        """Return an encoder for texts in one language, which needs no language of a text.

        Its maps apply to every text, so other programs can open its folder (see `save`). For a
        language without maps, such as `towards`, this is the base encoder.
        """
        base = self.base
        if isinstance(base, PerLanguage):
            base = base.encoder_of(lang)
        match = best_match(lang, [*self.maps, self.towards])
        if match is None:
            raise SettingError(
                f"lang must be one of {', '.join(self.languages)} for {self.name}, got {lang!r}"
            )
        if match not in self.maps:
            return base
        maps = {match: self.maps[match]}
        single = MappedEncoder(
            base,
            maps,
            towards=self.towards,
            combine=self.combine,
            settings=self.settings,
            only=match,
        )
        single.made = None if self.made is None else dict(self.made)
        return single

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(
            json_text([self.base.fingerprint, self.towards, self.combine, self.layers]).encode()
        )
        if self.only is not None:
            digest.update(f"only {self.only}".encode())
        for lang in sorted(self.maps):
            for layer in self.layers:
                arrays = self.maps[lang][layer].arrays()
                for name in sorted(arrays):
                    digest.update(f"{lang}.{layer}.{name}".encode())
                    digest.update(np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()

    def stored_words(self, lang: str) -> Sequence[str] | None:
        return self.base.stored_words(lang)

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word; every sentence must have a language."""
        wanted = self.read_layers
        by_layer = self.encode_layers(sentences, wanted, progress=progress)
        parts = [by_layer[layer] for layer in wanted]
        data = self.combined([part.data for part in parts])
        return Embeddings(data, parts[0].offsets, parts[0].covered)

    @property
    def read_layers(self) -> tuple[int, ...]:
        """Numbers of the mapped layers that `encode` combines."""
        return self._layers[-1:] if self.combine == "last" else self._layers

    def combined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Combine the mapped vectors `[n, dim]` of `read_layers` into one vector each."""
        if len(parts) == 1:
            return parts[0]
        if self.combine == "concat":
            return np.concatenate(parts, axis=1)
        total = sum(parts[1:], parts[0])
        return total / len(parts) if self.combine == "mean" else total

    def _encode(
        self, sentences: Iterable[Sentence | Sequence[str]], layers: list[int], progress: bool
    ) -> dict[int, Embeddings]:
        def mapped(text: Sentences) -> dict[int, Embeddings]:
            maps = self._maps_of(text.lang)  # checks the language before the text is encoded
            by_layer = dict(self.base.encode_layers(text, layers, progress=progress))
            for layer in maps.keys() & by_layer.keys():
                before = by_layer[layer]
                vectors = self.map_vectors(np.asarray(before.data), text.lang, layer)
                if before.covered is not None:
                    vectors[~before.covered] = 0.0  # words without a vector keep a zero vector
                by_layer[layer] = Embeddings(vectors, before.offsets, before.covered)
            return by_layer

        return encode_by_language(sentences, layers, self.base.dim, mapped)

    def _maps_of(self, lang: str) -> Mapping[int, VectorMap]:
        """Return the maps of a language by layer; they are empty for a language that is not
        mapped.
        """
        if self.only is not None:
            if lang and best_match(lang, [self.only]) is None:
                fact = f"{self.name} is an encoder for texts in {self.only}, got a text in {lang}"
                raise SettingError(f"{fact}; use the encoder with the maps of all languages")
            return self.maps[self.only]
        check_language(self, lang)
        return self.maps.get(best_match(lang, [*self.maps, self.towards]) or "", {})

    def map_vectors(self, vectors: np.ndarray, lang: str, layer: int) -> np.ndarray:
        """Map vectors `[n, dim]` of a layer of the base encoder to float32 vectors; without a map,
        return them unchanged.
        """
        maps = self._maps_of(lang)
        if layer not in maps:
            return vectors
        mapped = maps[layer].transform(vectors).astype(np.float32, copy=False)
        if not np.isfinite(mapped).all():
            raise InputError(
                f"{self.name}: mapped vectors of layer {layer} are not finite; fit the maps again"
            )
        return mapped

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `maps.safetensors`, `calque.json`, and the base encoder in its own format in the
        subfolder `base`.

        transformers cannot open the folder itself, so it never computes vectors without maps by
        mistake. It can open the base encoder in the subfolder. sentence-transformers can open the
        folder if the base encoder is a `transformers` model: it applies the maps with calque's
        module `MappedTransformer`, or, for an encoder of one language (`of_language`), with a dense
        layer after the pooling.

        If the class of the base encoder cannot be imported, the base encoder must be passed to
        `open`. A word vector x is mapped to `(x - source_mean) @ matrix + target_mean`; the saved
        tensors have names such as `LANGUAGE.LAYER.matrix`.
        """
        with saving(folder, self) as path:
            inner = path / BASE_FOLDER
            self.base.save_whole(inner)
            tensors: dict[str, np.ndarray] = {}
            map_records: dict[str, dict[str, JsonObject]] = {}
            for lang, by_layer in self.maps.items():
                map_records[lang] = {}
                for layer, fitted in by_layer.items():
                    map_records[lang][str(layer)] = about_map(fitted)
                    for name, array in fitted.arrays().items():
                        tensors[f"{lang}.{layer}.{name}"] = array
            write_arrays(path / MAPS_FILE, tensors)
            # empty if the base is from another package and writes no calque.json
            base = read_about(inner)
            if "maps" in base:
                fact = (
                    f"{self.base.name} cannot be saved as the base of maps, because it stores its "
                    "own maps"
                )
                raise SettingError(f"{fact}; use StaticEncoder.replace or an alignment method")
            about = {
                "base": base.get("kind", encoder_kind(self.base)),
                "base_folder": BASE_FOLDER,
                "base_fingerprint": self.base.fingerprint,
                "towards": self.towards,
                "combine": self.combine,
                "layers": list(self.layers),
                "settings": self.settings,
                "maps": map_records,
            }
            if self.only is not None:
                about["only"] = self.only
            if self.identifier is not None:
                record = json_text(self.identifier.record(), ensure_ascii=False)
                (path / IDENTIFIER_FILE).write_text(record + "\n", encoding="utf-8")
                about["identifier"] = IDENTIFIER_FILE
            write_about(path, "mapped", about)
            self._write_modules(path, base)

    def _write_modules(self, folder: Path, about: JsonObject) -> None:
        """Write modules with which sentence-transformers opens the folder if it would compute the
        same vectors.

        Args:
            about: content of the base encoder's `calque.json`.
        """
        base = self.base
        if type(base) is not HuggingFaceEncoder or base.model.config.is_encoder_decoder:
            return
        # The pooling of a sentence-transformers model reads the layer of the base encoder.
        if base.modules is not None and not base.modules_allow_maps(self.read_layers):
            return
        inner = f"{BASE_FOLDER}/{about.get('base_folder', '')}".rstrip("/")
        # Hidden states of the saved model include a folded standardisation.
        standard = {layer: rows.numpy() for layer, rows in base.standard.items()}
        if "folded" in about:
            del standard[base.layer]
        if self.only is None:
            affine = LanguageAffine.of(
                self.maps, standard, towards=self.towards, combine=self.combine, dim=base.dim
            )
            affine.save(folder / inner, self.identifier)
            write_mapped_modules(
                folder,
                inner,
                dim=self.dim,
                max_length=base.max_length,
                tokenizer=base.tokenizer,
            )
        elif len(self.read_layers) == 1 and base.pooling_is_affine():
            (layer,) = self.read_layers
            fitted = self.maps[self.only][layer]
            matrix, offset = affine_of(fitted, standard.get(layer), base.dim)
            write_outer_modules(
                folder,
                inner,
                dim=base.dim,
                layer=layer,
                n_layers=base.n_layers,
                weight=torch.from_numpy(matrix.T.copy()),
                bias=torch.from_numpy(offset),
                max_length=base.max_length,
                tokenizer=base.tokenizer,
            )

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        base: Encoder | None = None,
        *,
        about: JsonObject | None = None,
        layer: int | None = None,
        dtype: str | torch.dtype | None = None,
        **options: Any,
    ) -> MappedEncoder:
        """Load an encoder with maps that `save` wrote.

        Args:
            folder, about, options: see `Encoder.open`.
            base: base encoder; by default, it is loaded from the folder.
            layer: if given, only the maps of this layer are used.
            dtype: type to which the weights of the base encoder are converted.
        """
        path = Path(folder)
        about = read_about(path) if about is None else about
        if base is None:
            base = _open_base(path, about, options)
        try:
            maps = _open_maps(path, about["maps"], base.dim)
            towards, combine, settings = about["towards"], about["combine"], about["settings"]
            fingerprint, only = about["base_fingerprint"], about.get("only")
        except (OSError, ValueError, LookupError, AttributeError, TypeError, SettingError) as error:
            raise InputError(
                f"incomplete or invalid maps ({type(error).__name__}: {error})", path=path
            ) from error
        if base.fingerprint != fingerprint:
            fact = (
                "the maps were fitted with different weights, tokenizer, layer, pooling or "
                "precision"
            )
            raise InputError(f"{fact}; fit the maps again", path=path)
        # The weights are converted after the fingerprint is checked, because it depends on them.
        number = number_type(dtype)
        if dtype is not None and isinstance(number, torch.dtype):
            _convert_weights(base, number)
        if layer is not None:
            maps = _maps_of_layer(maps, base, layer)
            combine = "last"
        return cls(
            base,
            maps,
            towards=towards,
            combine=combine,
            settings=settings,
            only=only,
            identifier=_open_identifier(path, about),
        )


def identifier_of(corpora: Sequence[ParallelCorpus]) -> LanguageIdentifier:
    """Return a language identifier for the languages of parallel texts."""
    texts: dict[str, list[Sentences]] = {}
    for corpus in corpora:
        for lang, side in zip(corpus.langs, (corpus.source, corpus.target), strict=True):
            texts.setdefault(lang, []).append(side)
    return LanguageIdentifier.fit(texts)


def _open_identifier(folder: Path, about: JsonObject) -> LanguageIdentifier | None:
    """Load the language identifier of a folder, or return None if it has none."""
    if "identifier" not in about:
        return None
    path = folder / IDENTIFIER_FILE
    record = read_json_object(path, "not a language identifier of calque")
    return LanguageIdentifier.from_record(record, path)


def _convert_weights(base: Encoder, dtype: torch.dtype) -> None:
    """Convert the weights of an encoder, or of the encoders of several languages, in place."""
    parts = base.encoders.values() if isinstance(base, PerLanguage) else [base]
    for part in parts:
        if not isinstance(part, TrainableEncoder):
            raise SettingError(f"dtype does not apply to {part.name}")
        part.model.to(dtype=dtype)


def _maps_of_layer(
    maps: Mapping[str, Mapping[int, VectorMap]], base: Encoder, layer: int
) -> dict[str, dict[int, VectorMap]]:
    """Return only the maps of one layer of the base encoder; raise SettingError if there are
    none.
    """
    number = base.layer_number(layer)
    if any(number not in by_layer for by_layer in maps.values()):
        known = ", ".join(map(str, sorted(next(iter(maps.values())))))
        raise SettingError(
            f"layer must be one of the mapped layers {known} of {base.name}, got {layer}"
        )
    return {lang: {number: by_layer[number]} for lang, by_layer in maps.items()}


def _open_base(folder: Path, about: JsonObject, options: Mapping[str, Any]) -> Encoder:
    """Load the base encoder of maps with the weights in their saved type."""
    if "pooling" in options:
        raise SettingError(
            "pooling cannot be set, because the maps were fitted with the saved pooling"
        )
    class_name = about.get("base") or "huggingface"
    if class_name == OWN:
        fact = "the class of the base encoder of these maps cannot be imported"
        raise InputError(
            f"{fact}; pass the encoder to MappedEncoder.open(folder, base)", path=folder
        )
    # Users' own classes need not have the option dtype.
    as_fitted = {} if is_path(class_name) else {"dtype": "auto"}
    inner, base_about = _base_of(folder, about)
    encoder_class = ENCODERS.load_from_file(class_name, folder)
    base = encoder_class.open(inner, about=base_about, **as_fitted, **options)
    if base.name == BASE_FOLDER:
        base.name = folder.resolve().name
    return base


def _open_maps(
    folder: Path, records: Mapping[str, Mapping[str, JsonObject]], dim: int
) -> dict[str, dict[int, VectorMap]]:
    """Load the maps of an encoder by language and layer; raise ValueError for other shapes than
    `[dim, dim]`.
    """
    arrays, _ = map_arrays(folder / MAPS_FILE)
    maps: dict[str, dict[int, VectorMap]] = {}
    shapes = set()
    for lang, by_layer in records.items():
        maps[lang] = {}
        for layer, record in by_layer.items():
            fitted = open_map(record, arrays, f"{lang}.{layer}", folder)
            maps[lang][int(layer)] = fitted
            shapes.add(fitted.arrays()["matrix"].shape)
    wrong_shapes = shapes - {(dim, dim)}
    if wrong_shapes:
        raise ValueError(
            f"maps must have shape ({dim}, {dim}), got {min(wrong_shapes)}; fit the maps again"
        )
    return maps


def _base_of(folder: Path, about: JsonObject) -> tuple[Path, JsonObject]:
    """Return the folder of the base encoder and the content of its `calque.json`.

    Earlier versions wrote the base encoder to the folder itself, and both records to one
    `calque.json`.
    """
    if "base_folder" not in about:
        return folder, about
    inner = folder / BASE_FOLDER
    if not inner.is_dir():
        raise InputError(
            "the base encoder of the maps is missing; copy the whole folder again", path=inner
        )
    return inner, read_about(inner)
