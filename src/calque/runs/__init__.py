"""Functions that implement the commands: they read files and write folders of results."""
