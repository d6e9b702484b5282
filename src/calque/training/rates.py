"""How fast to learn where nobody says: by the width of the encoder."""

from __future__ import annotations


def rate_by_width(dim: int, power: float) -> float:
    """5e-5 at 768 dimensions, the usual choice for a BERT-base, and more for a narrower encoder.

    Args:
        dim: of the encoder's vectors.
        power: how steeply; found for each method at 128 dimensions, on held-out text.
    """
    return min(2e-3, 5e-5 * (768 / dim) ** power)
