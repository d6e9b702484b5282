"""Integrations with other libraries, each with its own extra."""
