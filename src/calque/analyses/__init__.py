"""Analyses of the factors that influence a score."""
