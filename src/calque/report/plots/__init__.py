"""Plots as SVG drawings: a toolkit of drawing elements, and the charts of reports."""
