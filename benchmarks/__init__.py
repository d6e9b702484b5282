"""Benchmarks, which print ratios of times within one run: `make bench`."""
