"""Readers of text that others wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported

if TYPE_CHECKING:
    from calque.corpora.conllu import read_treebank
    from calque.corpora.harvest import SkippedWarning
    from calque.corpora.labelled import read_labelled
    from calque.corpora.parallel import gold_links, read_parallel
    from calque.corpora.plain import read_dictionary, read_sentences
    from calque.corpora.probes import read_probe
    from calque.corpora.senses import read_senses
    from calque.corpora.squad import read_questions
    from calque.corpora.tagged import read_tagged

# Imported when first asked for: a command that reads or links text need not know how everything else is read or linked.
__getattr__ = exported(
    __name__,
    {
        "SkippedWarning": "calque.corpora.harvest:SkippedWarning",
        "gold_links": "calque.corpora.parallel:gold_links",
        "read_dictionary": "calque.corpora.plain:read_dictionary",
        "read_labelled": "calque.corpora.labelled:read_labelled",
        "read_parallel": "calque.corpora.parallel:read_parallel",
        "read_probe": "calque.corpora.probes:read_probe",
        "read_questions": "calque.corpora.squad:read_questions",
        "read_senses": "calque.corpora.senses:read_senses",
        "read_sentences": "calque.corpora.plain:read_sentences",
        "read_tagged": "calque.corpora.tagged:read_tagged",
        "read_treebank": "calque.corpora.conllu:read_treebank",
    },
)

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
