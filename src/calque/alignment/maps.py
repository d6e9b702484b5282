"""Alignment with maps that are fitted on linked words or sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import LinkedText
from calque.encoders.mapped import Combine, MappedEncoder
from calque.encoders.standard import standardized
from calque.encoders.static import StaticEncoder
from calque.errors import SettingError
from calque.maps import KINDS, VectorMap
from calque.maps.shrinkage import Shrinkage
from calque.spec import Layer, option

#: kind of map that is fitted by each method that uses sentences instead of words
_OF_SENTENCES = {"sentence-rotation": "rotation"}


@dataclass(frozen=True, eq=False)
class LinkedMaps(Method):
    """Maps for each language and layer, fitted on linked words in context or on sentence pairs (see
    `MappedEncoder.fit`).

    """

    method: str = option(
        ...,
        "kind of map: rotation (Wang et al. 2019), normalized-rotation, linear or "
        "sentence-rotation (Aldarmaki & Diab 2019).",
    )
    _: KW_ONLY
    towards: str = option(
        ..., "target language, to which the vectors of all other languages are mapped."
    )
    layers: Sequence[Layer] | None = option(
        None, "layers to map; default: the encoder's output layer."
    )
    combine: Combine = option(
        "last",
        "how to combine the mapped layers: sum, mean, concat, or last (use only the last layer).",
    )
    shrinkage: Shrinkage = option(
        "auto",
        "how strongly maps are shrunk towards the identity, which leaves vectors unchanged: from 0 "
        "(the maps of the papers) to 1 (the identity), or auto, which chooses the value with the "
        "best retrieval among held-out sentences, and the identity unless a map is better.",
    )
    standardize: bool | None = option(
        None,
        "whether to standardise the vectors first; default: only if one dimension dominates the "
        "vectors.",
    )

    def __post_init__(self):
        if _OF_SENTENCES.get(self.method, self.method) not in KINDS:
            raise SettingError(
                f"method must be one of {', '.join((*KINDS, *_OF_SENTENCES))}, got {self.method!r}"
            )

    def fit(self, encoder: Any, data: LinkedText, run: Run = Run()) -> Fitted:
        """Return the encoder with maps fitted in one pass over the text; `run.folder` is not used.

        A static encoder stores the maps itself instead of being wrapped. Its maps are fitted on
        word vectors without sentence statistics (option `sentence`), because the encoder computes
        these statistics from mapped vectors.
        """
        encoder = standardized(encoder, data.sides, self.layers, self.standardize)
        unmapped = encoder
        if isinstance(encoder, StaticEncoder):
            unmapped = encoder.replace(sentence=None, maps=None)
        mapped = MappedEncoder.fit(
            unmapped,
            data.corpora,
            data.pairs,
            make=KINDS[_OF_SENTENCES.get(self.method, self.method)],
            towards=self.towards,
            layers=self.layers,
            combine=self.combine,
            shrinkage=self.shrinkage,
            unit="sentences" if self.method in _OF_SENTENCES else "words",
            progress=run.progress,
        )
        layers = {"layers": list(mapped.layers), "combine": mapped.combine}
        record = {"settings": {**mapped.settings, **layers}}
        if not isinstance(encoder, StaticEncoder):
            return Fitted(mapped, record)
        aligned = with_maps(encoder, mapped.maps, towards=self.towards, settings=mapped.settings)
        aligned.made = mapped.made
        return Fitted(aligned, record)


def with_maps(
    encoder: Any,
    maps: Mapping[str, Mapping[int, VectorMap]],
    *,
    towards: str,
    combine: Combine = "last",
    settings: Mapping[str, Any],
) -> MappedEncoder | StaticEncoder:
    """Return the encoder with maps by language and layer. A static encoder has one layer and stores
    the maps itself.

    Args:
        encoder, maps, towards, combine: see `MappedEncoder`.
        settings: settings to save with the encoder; the value of `method` is appended to the name
            of a static encoder.
    """
    if isinstance(encoder, StaticEncoder):
        name = f"{encoder.name}+{settings['method']}"
        return encoder.replace(
            maps={lang: by_layer[0] for lang, by_layer in maps.items()}, name=name
        )
    return MappedEncoder(encoder, maps, towards=towards, combine=combine, settings=settings)
