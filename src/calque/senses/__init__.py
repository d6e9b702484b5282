"""Pretraining of encoders on plain text, and senses of words."""
