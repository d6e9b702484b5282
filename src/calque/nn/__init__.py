"""Neural network layers over words: CRFs, LSTMs and scorers for word pairs. Sentences are
concatenated without padding.
"""
