"""CLCR represents sentences by key points. A sentence and its translation have the same key points in the same order.

This package depends on the rest of calque, and is imported only through its entries in `METHODS` and `ENCODERS`.
"""
