"""CLCR represents sentences by key points: words whose vectors and order should be the same in all
languages.

This package depends on the rest of calque, and is imported only through its entries in `METHODS`
and `ENCODERS`.
"""
