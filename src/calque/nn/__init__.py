"""Network layers over words: CRFs, recurrent layers, scores of word pairs. Sentences are concatenated without padding."""
