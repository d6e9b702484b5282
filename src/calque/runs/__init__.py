"""Runs: the steps of a whole job, from files to a folder."""
