"""Analyses: what lies behind a score, as data."""

from calque.analyses.finding import ANALYSES, Finding
from calque.analyses.questions import Questions, View

__all__ = ["ANALYSES", "Finding", "Questions", "View"]
