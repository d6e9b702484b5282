"""Pure functions on vectors for normalisation, similarity, exact nearest-neighbour search,
orthogonal maps and statistics.
"""
