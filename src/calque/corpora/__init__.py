"""Readers of text that others wrote."""

from __future__ import annotations

from calque.corpora.conllu import read_treebank
from calque.corpora.dictionary import read_dictionary
from calque.corpora.harvest import SkippedWarning
from calque.corpora.labelled import read_labelled
from calque.corpora.parallel import gold_links, read_parallel
from calque.corpora.plain import read_sentences
from calque.corpora.probes import read_probe
from calque.corpora.senses import read_senses
from calque.corpora.squad import read_questions
from calque.corpora.tagged import read_tagged

__all__ = [
    "SkippedWarning",
    "gold_links",
    "read_dictionary",
    "read_labelled",
    "read_parallel",
    "read_probe",
    "read_questions",
    "read_senses",
    "read_sentences",
    "read_tagged",
    "read_treebank",
]
