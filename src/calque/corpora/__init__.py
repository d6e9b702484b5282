"""Readers for text and corpus formats. `readers.READERS` lists the formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported

if TYPE_CHECKING:
    from calque.corpora.conllu import read_treebank as read_treebank
    from calque.corpora.labelled import read_labelled as read_labelled
    from calque.corpora.lines import Omission as Omission
    from calque.corpora.lines import RawPair as RawPair
    from calque.corpora.lines import SkippedWarning as SkippedWarning
    from calque.corpora.parallel import gold_links as gold_links
    from calque.corpora.parallel import read_parallel as read_parallel
    from calque.corpora.plain import read_dictionary as read_dictionary
    from calque.corpora.plain import read_sentences as read_sentences
    from calque.corpora.probes import read_probe as read_probe
    from calque.corpora.readers import READERS as READERS
    from calque.corpora.squad import read_questions as read_questions
    from calque.corpora.stanzas import TaggedSentence as TaggedSentence
    from calque.corpora.tagged import read_tagged as read_tagged

# Readers are imported on first use, so a command imports only the readers that it needs.
__getattr__ = exported(
    __name__,
    {
        "conllu": "read_treebank",
        "labelled": "read_labelled",
        "lines": "Omission RawPair SkippedWarning",
        "parallel": "gold_links read_parallel",
        "plain": "read_dictionary read_sentences",
        "probes": "read_probe",
        "readers": "READERS",
        "squad": "read_questions",
        "stanzas": "TaggedSentence",
        "tagged": "read_tagged",
    },
)
