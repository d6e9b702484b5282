"""Pure functions over vectors: normalisation, similarity, exact nearest neighbours, orthogonal maps."""
