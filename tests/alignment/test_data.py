"""Test the types of training data, and that a method is not changed by running it."""

import copy

import pytest
from torch.nn.functional import cosine_similarity

from calque.alignment.contrastive import Contrastive
from calque.alignment.data import Dictionaries, LinkedText, PlainText, training_data
from calque.alignment.finetune import FineTune
from calque.alignment.maps import LinkedMaps
from calque.alignment.text_maps import LanguageMeans, Standardize
from calque.alignment.tuner import Tuner
from calque.annotated import Dictionary
from calque.encoders.anchors import compute_anchors
from calque.errors import SettingError
from linked_text import make_text


@pytest.fixture
def text():
    return make_text("xx", 8, 0)


def test_arguments_of_python_users_become_training_data(tiny_encoder, text):
    corpus, pairs = text
    linked = LinkedText((corpus,), (pairs,))
    assert training_data(corpus, pairs) == training_data([corpus], [pairs]) == linked
    assert training_data(linked) is linked
    assert training_data(corpus) == LinkedText((corpus,))
    plain = training_data({"en": corpus.source, "xx": corpus.target})
    assert isinstance(plain, PlainText)
    for lang, (side,) in linked.by_language().items():
        assert [sentence.words for sentence in plain.texts[lang]] == [
            sentence.words for sentence in side
        ]
    anchors = {
        "en": compute_anchors(tiny_encoder, corpus.source),
        "xx": compute_anchors(tiny_encoder, corpus.target),
    }
    entries = Dictionary(("a",), ("A",), ("xx", "en"), "")
    assert (
        training_data(anchors, entries)
        == training_data(anchors, [entries])
        == Dictionaries(anchors, (entries,))
    )


def test_every_text_needs_word_links_or_none_does(text):
    corpus, pairs = text
    with pytest.raises(
        SettingError, match="each text must have word links, got 2 texts but links for 1"
    ):
        LinkedText((corpus, corpus), (pairs,))
    with pytest.raises(SettingError, match="at least one parallel text is needed"):
        training_data([])


METHODS = [
    LinkedMaps("rotation", towards="en"),
    LanguageMeans(towards="en"),
    Standardize(towards="en"),
    FineTune(towards="en", epochs=0.5, batch=4),
    Contrastive(towards="en", epochs=0.5, batch=4, centre=True),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_running_a_method_does_not_change_it(tiny_encoder, text, method):
    before = copy.deepcopy(vars(method))
    first, second = (method.fit(tiny_encoder, training_data(*text)) for _ in range(2))
    assert vars(method) == before
    assert first.encoder.fingerprint == second.encoder.fingerprint
    assert first.record == second.record


def test_settings_of_the_class_cannot_be_given_to_align(tiny_encoder, text):
    with pytest.raises(
        SettingError, match=r"centre is not an argument of align.*Contrastive\(centre=…\)"
    ):
        Contrastive(towards="en").align(tiny_encoder, *text, centre=True)


def test_tune_is_align(tiny_encoder, text):
    method = Contrastive(towards="en", epochs=0.5, batch=4)
    found = [
        each(tiny_encoder, *text, checkpoint_every=0).fingerprint
        for each in (method.tune, method.align)
    ]
    assert found[0] == found[1]


class Cosine(Tuner):
    """A loss that counts the linked rows that it receives."""

    rows = 0

    def loss(self, batch):
        type(self).rows = len(batch.source)
        return (1 - cosine_similarity(batch.source, batch.target)).mean()


@pytest.mark.parametrize("special", [False, True])
def test_a_loss_of_ones_own_receives_words_only_unless_it_asks_for_boundary_tokens(
    tiny_encoder, text, special
):
    kind = type("Cosine", (Cosine,), {"special": special})
    kind(towards="en", batch=len(text[0]), epochs=1).fit(tiny_encoder, training_data(*text))
    assert kind.rows == len(text[1]) + 2 * special * len(text[0])
