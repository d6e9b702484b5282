"""Which sense each word of a text has: against one sentence, one word at a time."""

import numpy as np
import pytest
import torch

from calque.encoders import load_encoder
from calque.errors import InputError, SettingError
from calque.senses import reader as sense_reader
from calque.senses.clusters import word_space
from calque.senses.reader import EVERY, ContextSenseReader, open_contexts, open_sense_reader
from calque.senses.sense_files import open_senses, save_senses
from sense_models import WORDS, a_bert, a_table, a_text, an_elmo


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return an_elmo(tmp_path_factory.mktemp("elmo") / "elmo")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return a_bert(tmp_path_factory.mktemp("bert") / "bert")


def number(table, word: int, state: torch.Tensor) -> int:
    """The number of the nearest centre in use, literally (Algorithm 1, line 7)."""
    classes = [c for c in table.index[word].tolist() if c >= 0 and table.live[c]]
    projected = (state - table.mean) @ table.projection
    centres = {c: (table.centres[c] - table.mean) @ table.projection for c in classes}
    cosines = {c: float(torch.cosine_similarity(projected, centre, dim=0)) for c, centre in centres.items()}
    order = sorted(classes, key=lambda c: (-int(table.counts[c]), c))
    return order.index(max(cosines, key=cosines.get)) + 1


@pytest.mark.parametrize(("direction", "side"), [("forward", 0), ("backward", 1)])
def test_an_elmo_selects_by_the_half_of_its_last_layer(elmo, direction, side):
    reader, text = open_sense_reader(elmo, direction=direction), a_text(60)
    table, got, place = open_senses(elmo).tables[side], reader.select(text), 0
    for sentence in text:
        if not sentence.words:
            continue
        states = reader.encoder.encode_layers([sentence], [-1])[-1].data
        for word, state in zip(sentence.words, states, strict=True):
            known = reader.vocabulary.numbers([word])[0] if word in WORDS else None
            half = torch.from_numpy(state[8 * side : 8 * side + 8])
            assert got[place] == (0 if known is None else number(table, known, half))
            place += 1
    assert place == len(got)
    assert len(set(got.tolist())) > 3


def test_both_directions_are_one_number_that_each_has_a_say_in(elmo):
    text = a_text(200)
    both, forward, backward = (
        open_sense_reader(elmo, direction=d).select(text) for d in ("both", "forward", "backward")
    )
    assert ((both > 0) == (forward > 0)).all()
    assert ((both > 0) == (backward > 0)).all()
    inventory = open_sense_reader(elmo).inventory
    assert both.max() <= inventory.n_senses.max()
    assert np.array_equal(open_sense_reader(elmo).select(text), both)


def test_directions_that_were_trained_together_share_their_senses(elmo, tmp_path):
    import shutil

    folder = shutil.copytree(elmo, tmp_path / "joint")
    tables = [a_table(len(WORDS) + 3, 8, 5), a_table(len(WORDS) + 3, 8, 5)]
    save_senses(tables, folder, {"joint": True})
    inventory = open_sense_reader(folder).inventory
    assert torch.equal(inventory.classes[0], inventory.classes[1])
    save_senses([*tables[:1], a_table(len(WORDS) + 3, 8, 6)], folder, {"joint": False})
    assert open_sense_reader(folder).direction == "forward"
    with pytest.raises(SettingError, match="trained to select for itself, so they share no senses"):
        open_sense_reader(folder, direction="both")


def hidden_state(reader, model, words, place: int) -> torch.Tensor:
    """The state of one word of a sentence alone, with every so many-th word that has several senses hidden with it."""
    split = reader.contexts.encoder.split([words])
    ids = split.ids.copy()
    for k in range(place % EVERY, len(words), EVERY):
        (known,) = reader.numbers([words[k]])
        if known >= 0 and reader.inventory.n_senses[known] > 1 and split.word_lengths[k]:
            ids[split.word_starts[k]] = reader.contexts.encoder.tokenizer.mask_token_id
    with torch.inference_mode():
        states = model.bert(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0]
        return model.cls.predictions.transform(states[split.word_starts[place]])


def test_a_bert_selects_by_the_mask_in_the_place_of_a_word(bert):
    from transformers import BertForMaskedLM

    reader, text = open_sense_reader(bert), a_text(40)
    got = reader.select(text)
    model, (table,) = BertForMaskedLM.from_pretrained(bert).eval(), open_senses(bert).tables
    place, several = 0, 0
    for sentence in text:
        split = reader.contexts.encoder.split([sentence.words])
        for k, word in enumerate(sentence.words):
            ids = reader.contexts.encoder.tokenizer(word, add_special_tokens=False)["input_ids"]
            unknown = ids == [reader.contexts.encoder.tokenizer.unk_token_id]
            if len(ids) != 1 or unknown or not split.word_lengths[k]:
                assert got[place] == 0
            else:
                state = hidden_state(reader, model, list(sentence.words), k)
                assert got[place] == number(table, ids[0], state)
                several += reader.inventory.n_senses[ids[0]] > 1
            place += 1
    assert several > 50


def test_a_bert_has_senses_of_whole_words_alone(bert):
    reader = open_sense_reader(bert)
    assert set(WORDS) <= set(reader.words)
    assert not any(word.startswith("##") for word in reader.words)
    assert [reader.words[k] for k in reader.numbers(WORDS)] == list(WORDS)
    assert reader.numbers(["[MASK]", "zyzzyvas", "", "[UNK]"]).tolist() == [-1] * 4


def test_words_beyond_what_the_model_reads_have_none(bert):
    got = open_sense_reader(bert).select([["the"] * 40])
    assert (got[:22] > 0).all()
    assert not got[22:].any()


def test_no_sentences_and_empty_ones(elmo, bert):
    for folder in (elmo, bert):
        reader = open_sense_reader(folder)
        assert reader.select([]).tolist() == []
        assert reader.select([[], ["zyzzyvas"], []]).tolist() == [0]


def test_a_word_that_is_not_there_is_told_of_close_ones(elmo):
    reader = open_sense_reader(elmo)
    with pytest.raises(SettingError, match=r"'bnak' is not in the vocabulary of elmo: did you mean bank\?"):
        reader.find("bnak")
    with pytest.raises(SettingError, match="'qqqqqqq' is not in the vocabulary of elmo: only whole words"):
        reader.find("qqqqqqq")


def test_the_contexts_of_an_elmo_are_the_states_before_and_after_a_word(elmo):
    reader, other = open_sense_reader(elmo), ["loan", "bank", "the", "river"]
    for words in (["bank"], ["the", "bank", "of", "a", "river"]):
        last, got = reader.encoder.encode_layers([words], [-1])[-1].data, reader.encoder.encode_contexts([words]).data
        np.testing.assert_allclose(got[1:, :8], last[:-1, :8], atol=1e-6)
        np.testing.assert_allclose(got[:-1, 8:], last[1:, 8:], atol=1e-6)
        for place in range(len(words)):  # the word itself is not read
            changed = [*words[:place], other[place % 4], *words[place + 1 :]]
            np.testing.assert_allclose(reader.encoder.encode_contexts([changed]).data[place], got[place], atol=1e-6)


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_a_word_has_the_sense_of_the_nearest_mean_of_its_contexts(request, kind, monkeypatch):
    """Of all occurrences of each word, in two blocks; the clusters are those that a stranger gives."""
    monkeypatch.setattr(sense_reader, "split_words", lambda vectors, **_: [np.arange(len(x)) % 3 % 2 for x in vectors])
    encoder, text = load_encoder(str(request.getfixturevalue(kind))), a_text(70)
    contexts = open_contexts(encoder)
    reader = ContextSenseReader(contexts, "it", lambda: [text.take(np.arange(40)), text.take(np.arange(40, 70))])
    words = [word for sentence in text for word in sentence.words]
    states = contexts.states(text, np.flatnonzero(contexts.covered(text) & (reader.numbers(words) >= 0))).numpy()
    known = [
        word
        for word, read in zip(words, contexts.covered(text), strict=True)
        if read and reader.numbers([word])[0] >= 0
    ]
    own = {form: [x for word, x in zip(known, states, strict=True) if word == form] for form in reader.words}
    assert set(WORDS) <= set(reader.words)
    mean, axes = word_space([np.stack(own[form]) for form in reader.words])

    def compared(x):
        return (x - mean) @ axes / np.linalg.norm((x - mean) @ axes)

    wanted = []
    for word, state in zip(known, states, strict=True):
        centres = [np.mean([compared(x) for x in part], axis=0) for part in
                   ([x for k, x in enumerate(own[word]) if k % 3 % 2 == sense] for sense in (0, 1))]  # fmt: skip
        wanted.append(1 + int(np.argmin([((compared(state) - centre) ** 2).sum() for centre in centres])))
    got = reader.select(text)
    assert got[got > 0].tolist() == wanted
    shares = reader.inventory.shares[reader.find("bank")]
    np.testing.assert_allclose(shares, np.bincount(np.arange(len(own["bank"])) % 3 % 2) / len(own["bank"]))


def test_senses_of_another_model_are_one_line(elmo, bert, tmp_path):
    import shutil

    for source, tables, message in [
        (elmo, [a_table(9, 8, 0), a_table(9, 8, 1)], "senses of another vocabulary"),
        (elmo, [a_table(15, 8, 0)], "senses of another vocabulary"),
        (bert, [a_table(9, 4, 0)], "senses of 4 dimensions, but a model of 16"),
        (bert, [a_table(9, 16, 0), a_table(9, 16, 1)], "2 tables of senses, but a masked language model has one"),
    ]:
        folder = shutil.copytree(source, tmp_path / f"{len(list(tmp_path.iterdir()))}")
        save_senses(tables, folder, {})
        with pytest.raises(InputError, match=message):
            open_sense_reader(folder)
    with pytest.raises(InputError, match="calque pretrain --senses writes one"):
        open_sense_reader(tmp_path)
