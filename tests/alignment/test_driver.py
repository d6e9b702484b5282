"""Test that `calque.align` returns the same encoder as calling the method directly."""

import numpy as np
import pytest

import calque
from calque.alignment.contrastive import Contrastive
from calque.alignment.dictionary import DictionaryMaps
from calque.annotated import Dictionary
from calque.encoders.anchors import compute_anchors
from calque.errors import SettingError
from linked_text import make_text


def test_align_passes_each_type_of_data_to_the_method(tiny_encoder):
    corpus, pairs = make_text("xx", 12, 0)
    sides = {"en": corpus.source, "xx": corpus.target}
    trained = calque.align(tiny_encoder, corpus, pairs=pairs, epochs=0.5, batch=4)
    by_hand = Contrastive(towards="en", epochs=0.5, batch=4).align(tiny_encoder, corpus, pairs)
    assert trained.fingerprint == by_hand.fingerprint
    moved = [calque.align(tiny_encoder, data, "means") for data in (sides, corpus)]
    assert moved[0].fingerprint == moved[1].fingerprint
    anchors = {"en": compute_anchors(tiny_encoder, corpus.source)}
    known = next(iter(anchors["en"].values())).words
    same, both = (
        Dictionary(tuple(known), tuple(known), ("en", "yy"), ""),
        {"en": anchors["en"], "yy": anchors["en"]},
    )
    maps = [
        calque.align(tiny_encoder, both, "rotation", pairs=same),
        DictionaryMaps(towards="en").align(tiny_encoder, both, [same]),
    ]
    matrices = [next(iter(each.maps["yy"].values())).matrix for each in maps]
    np.testing.assert_array_equal(*matrices)
    with pytest.raises(
        SettingError, match="method must be one of rotation.* for dictionaries, got 'finetune'"
    ):
        calque.align(tiny_encoder, both, "finetune", pairs=same)
    with pytest.raises(SettingError, match="contrastive cannot be built with temperatur"):
        calque.align(tiny_encoder, corpus, pairs=pairs, temperatur=1)
