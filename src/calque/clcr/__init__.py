"""CLCR represents a sentence by key points, whose number and order are the same for a sentence and its translation.

This package depends on the rest of calque, and is imported only through the entries of `METHODS` and `ENCODERS`.
"""
