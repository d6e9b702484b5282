"""CLCR: encoders whose rows are key points, the same in number and order for a sentence and its translation.

A room of its own on top of the rest of calque: nothing imports it but the rows of `METHODS` and `ENCODERS`.
"""
