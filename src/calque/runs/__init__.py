"""Functions that implement the commands; they read input files and write folders of results."""
