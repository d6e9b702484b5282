"""Parts of study files that several tests use."""

#: supervision by a dictionary, whose anchors are computed from two texts
DICTIONARY = """
[supervision.dictionary]
kind = "dictionary"
texts = { en = "en.txt", de = "de.txt" }
de = "entries.tsv"
"""
