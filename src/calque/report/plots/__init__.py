"""Plots as SVG drawings: basic drawing elements, and the charts used in reports."""
