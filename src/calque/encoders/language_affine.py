"""Affine maps of each language, in the form in which other programs apply them.

A map x → (x − x̄)W + ȳ of a standardised vector (h − μ) / σ is one affine map h → hA + b of the
hidden state h. This module computes A and b, and applies them to hidden states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from calque.corpora.identify import LanguageIdentifier
from calque.maps import VectorMap
from calque.storage import JsonObject, json_text

#: files beside the model: the matrices A and the vectors b, and the names of the languages
AFFINE_FILE, LANGUAGES_FILE = "language_maps.safetensors", "language_maps.json"


def affine_of(
    fitted: VectorMap | None, standard: np.ndarray | None, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return A `[dim, dim]` and b `[dim]`, float64, of h → hA + b.

    Args:
        fitted: map of a language, or None for a language that is not mapped.
        standard: means μ and standard deviations σ of hidden states, `[2, dim]`, or None if they
            are not standardised.
    """
    matrix, offset = np.eye(dim), np.zeros(dim)
    if fitted is not None:
        arrays = fitted.arrays()
        matrix = np.asarray(arrays["matrix"], dtype=np.float64)
        # (x − x̄)W + ȳ = xW + (ȳ − x̄W)
        offset = arrays["target_mean"] - arrays["source_mean"] @ matrix
    if standard is not None:
        mean, deviation = np.asarray(standard, dtype=np.float64)
        # ((h − μ) / σ)W + b = h(W / σ) + (b − (μ / σ)W), where row i of W is divided by σ_i
        offset = offset - (mean / deviation) @ matrix
        matrix = matrix / deviation[:, None]
    return matrix, offset


class LanguageAffine(nn.Module):
    """Affine maps of hidden states by layer and language.

    Args:
        languages: languages with maps.
        towards: language of the common space, whose vectors are not mapped unless it is among
            `languages`.
        combine: how mapped layers are combined, see `MappedEncoder`.
        matrices: matrices A by layer, float32 `[n_languages + 1, dim, dim]`; the last one is that
            of texts that are not mapped, which may be standardised.
        offsets: vectors b by layer, float32 `[n_languages + 1, dim]`.
    """

    def __init__(
        self,
        languages: Sequence[str],
        towards: str,
        combine: str,
        matrices: Mapping[int, Tensor],
        offsets: Mapping[int, Tensor],
    ):
        super().__init__()
        self.languages, self.towards, self.combine = tuple(languages), towards, combine
        self.layers = sorted(matrices)
        if combine == "last":
            self.layers = self.layers[-1:]
        for layer in self.layers:
            self.register_buffer(f"matrix_{layer}", matrices[layer])
            self.register_buffer(f"offset_{layer}", offsets[layer])

    @classmethod
    def of(
        cls,
        maps: Mapping[str, Mapping[int, VectorMap]],
        standard: Mapping[int, np.ndarray],
        *,
        towards: str,
        combine: str,
        dim: int,
    ) -> Self:
        """Combine maps with the standardisation of the layers that hidden states do not include."""
        matrices, offsets = {}, {}
        languages = list(maps)
        for layer in next(iter(maps.values())):
            by_lang = [*(maps[lang][layer] for lang in languages), None]
            parts = [affine_of(fitted, standard.get(layer), dim) for fitted in by_lang]
            matrices[layer] = torch.from_numpy(np.stack([matrix for matrix, _ in parts])).float()
            offsets[layer] = torch.from_numpy(np.stack([offset for _, offset in parts])).float()
        return cls(languages, towards, combine, matrices, offsets)

    def of_language(self, states: Tensor, layer: int, place: int) -> Tensor:
        """Map the hidden states of texts in one language, `[B, T, dim]`; `place` is the index of
        the language, or −1 for texts that are not mapped.
        """
        matrix, offset = self.get_buffer(f"matrix_{layer}"), self.get_buffer(f"offset_{layer}")
        return states @ matrix[place] + offset[place]

    def forward(self, states: Tensor, layer: int, places: Tensor) -> Tensor:
        """Map the hidden states of texts in several languages, whose indices are `places`,
        `[B]`.
        """
        mapped = torch.empty_like(states)
        for place in places.unique().tolist():
            of_lang = places.to(states.device) == place
            mapped[of_lang] = self.of_language(states[of_lang], layer, place)
        return mapped

    def combined(self, parts: Sequence[Tensor]) -> Tensor:
        """Combine the mapped hidden states of all layers."""
        if self.combine == "concat":
            return torch.cat(list(parts), dim=-1)
        total = torch.stack(list(parts)).sum(0)
        return total / len(parts) if self.combine == "mean" else total

    def save(self, folder: Path, identifier: LanguageIdentifier | None) -> None:
        """Write the maps and the language identifier beside a model."""
        save_file({name: x.contiguous() for name, x in self.named_buffers()}, folder / AFFINE_FILE)
        record = {
            "languages": list(self.languages),
            "towards": self.towards,
            "combine": self.combine,
            "layers": self.layers,
            "identifier": None if identifier is None else identifier.record(),
        }
        text = json_text(record, undefined="refuse", ensure_ascii=False)
        (folder / LANGUAGES_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def from_record(cls, record: JsonObject, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild maps from the files that `save` wrote."""
        layers = [int(layer) for layer in record["layers"]]
        return cls(
            record["languages"],
            record["towards"],
            record["combine"],
            {layer: tensors[f"matrix_{layer}"] for layer in layers},
            {layer: tensors[f"offset_{layer}"] for layer in layers},
        )
