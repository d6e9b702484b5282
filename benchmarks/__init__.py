"""Benchmarks that `make bench` runs; each prints ratios of times that were measured in the same run."""
