"""Pure functions over vectors: normalisation, similarity and exact neighbours, orthogonal maps."""
