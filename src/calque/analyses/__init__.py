"""Analyses of the factors behind a score."""
