"""Parts of networks over words: chains of tags, recurrent layers, pairs of words. Sentences stand in a row, unpadded."""
