"""Network layers over words: CRFs, recurrent layers, scorers of word pairs. Sentences are concatenated without padding."""
