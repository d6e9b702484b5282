"""Engines and libraries of others, each behind an extra of its own."""
