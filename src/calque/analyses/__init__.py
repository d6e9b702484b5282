"""Analyses: what lies behind a score, as data."""
