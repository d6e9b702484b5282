"""Encoders, which compute word vectors."""

from calque.encoders.base import Encoder
from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.loading import load_encoder
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords

__all__ = [
    "Encoder",
    "HuggingFaceEncoder",
    "SplitSentences",
    "Subwords",
    "WordBatch",
    "collate",
    "load_encoder",
    "token_batches",
]
