"""Plots as SVG, drawn without a library: a small toolkit, and a module for each kind of figure."""
