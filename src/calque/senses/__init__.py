"""Pretraining: an encoder from text alone."""
