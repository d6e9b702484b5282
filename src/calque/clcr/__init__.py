"""CLCR: encoders whose rows are key points, equal in number and order for a sentence and its translation.

This package builds on the rest of calque; only the entries of `METHODS` and `ENCODERS` import it.
"""
