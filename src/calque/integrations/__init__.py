"""Integrations with other libraries, which are optional dependencies (extras)."""
