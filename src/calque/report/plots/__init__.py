"""Plots as SVG: a small toolkit, and a module for each kind of plot."""
