"""Neural network layers over words: CRFs, LSTMs, scorers for word pairs. Sentences are concatenated without padding."""
