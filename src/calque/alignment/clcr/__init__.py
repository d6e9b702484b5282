"""CLCR: encoders whose rows are key points, the same in number and order for a sentence and its translation."""
