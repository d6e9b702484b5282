"""Benchmarks for `make bench`. Speed is printed as a ratio of two times that were measured in the same run."""
