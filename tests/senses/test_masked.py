"""Compare masked pretraining with the loss in `transformers`, and blocks and masks with their
definitions.
"""

from __future__ import annotations

import copy
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError
from calque.senses.masked import (
    SPECIAL,
    MaskedLanguageModel,
    MaskedPrediction,
    train_tokenizer,
    train_wordpiece,
)
from calque.senses.text import Blocks, Mixture, mask
from calque.text import Sentences

WORDS = {
    "en": ["the", "cat", "sees", "a", "house", "of", "time"],
    "de": ["die", "Katze", "sieht", "ein", "Haus", "和"],
}


def make_text(lang: str, n: int, seed: int = 0) -> Sentences:
    rng = np.random.default_rng(seed)
    return Sentences.of(
        [list(rng.choice(WORDS[lang], rng.integers(0, 12))) for _ in range(n)], lang
    )


@pytest.fixture(scope="module")
def texts():
    return {"en": make_text("en", 60), "de": make_text("de", 15)}


@pytest.fixture(scope="module")
def tokenizer(texts):
    return train_tokenizer(texts, size=80)


def small(**options) -> MaskedLanguageModel:
    shape = {"layers": 2, "dim": 16, "heads": 2, "inner": 24, "positions": 40, "length": 20}
    return MaskedLanguageModel(**shape | {"batch": 4, "updates": 6} | options)


def test_the_tokenizer_splits_known_text_and_preserves_case(tokenizer):
    subwords = Subwords(tokenizer, max_length=20, vocabulary=len(tokenizer))
    split = subwords.split([["Katze", "katze", "和"]])
    assert len(tokenizer) <= 80
    assert (
        tokenizer.decode(split.ids[split.word_starts[0] + np.arange(split.word_lengths[0])])
        == "Katze"
    )


def test_the_same_text_gives_the_same_tokenizer():
    """Use many merges of equal frequency, for which the trainer of `tokenizers` chooses at
    random.
    """
    text = ["Wel come to the Tok en izers libr ary , naïve café 東京 do n't [CLS]"]
    found = [train_wordpiece(text, size=60) for _ in range(12)]
    assert len({one.to_str() for one in found}) == 1
    vocabulary = found[0].get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    letters = {letter for word in text[0].split() for letter in word}
    assert letters <= set(vocabulary)
    assert {
        "##" + letter for word in ("Wel", "izers", "naïve", "café", "CLS") for letter in word[1:]
    } <= set(vocabulary)
    assert not {"##東", "##京", "##W"} & set(vocabulary)
    # Only BERT's special tokens are special, although letters were passed to the trainer as special
    # tokens.
    assert found[0].encode("##a [MASK]").tokens == [
        "[CLS]",
        "[UNK]",
        "[UNK]",
        "a",
        "[MASK]",
        "[SEP]",
    ]
    once, often = (train_wordpiece(text * n, size=60, letters=8).get_vocab() for n in (1, 5))
    assert sum(len(part) == 1 for part in once) == sum(len(part) == 1 for part in often) == 8
    assert len(once) < len(often) <= 60  # only pairs that occur at least twice are merged
    assert train_wordpiece([], size=60).get_vocab() == {name: k for k, name in enumerate(SPECIAL)}


def test_blocks_contain_every_sentence_once_in_order(texts, tokenizer):
    split = Subwords(tokenizer, max_length=20, vocabulary=len(tokenizer)).split(texts["en"])
    blocks = Blocks.of(split, 20)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert blocks.lengths.max() <= 20
    assert (blocks.ids[blocks.offsets[:-1]] == cls).all()
    assert (blocks.ids[blocks.offsets[1:] - 1] == sep).all()
    sentences = [
        split.ids[a + 1 : b - 1].tolist()
        for a, b in zip(split.offsets[:-1], split.offsets[1:], strict=True)
    ]
    joined = [
        i
        for k in range(len(blocks))
        for i in blocks.ids[blocks.offsets[k] + 1 : blocks.offsets[k + 1]].tolist()
    ]
    assert joined == [i for sentence in sentences if sentence for i in [*sentence, sep]]
    # Blocks are filled greedily: a block ends only if the next sentence does not fit.
    ends = np.cumsum(
        [blocks.ids[a + 1 : b].tolist().count(sep) for a, b in pairwise(blocks.offsets)]
    )
    following = [[sentence for sentence in sentences if sentence][n] for n in ends[:-1].tolist()]
    assert all(
        n + len(sentence) + 1 > 20 for n, sentence in zip(blocks.lengths, following, strict=False)
    )
    with pytest.raises(SettingError, match="length must be at least"):
        Blocks.of(split, 5)


def test_a_block_is_repeated_only_after_all_others_and_small_languages_are_oversampled():
    blocks = {
        name: Blocks(np.zeros(n * 10, np.int32), np.arange(n + 1) * 10)
        for name, n in (("a", 90), ("b", 10))
    }
    mixture = Mixture(blocks, batch=7, alpha=0.5, seed=3)
    assert mixture.drawn == {"a": 75, "b": 25}
    seen: dict[str, Counter] = {"a": Counter(), "b": Counter()}
    for number in range(6):
        assert mixture.epoch(number) is not mixture.epoch(number)
        updates = mixture.epoch(number)
        assert len(updates) == mixture.steps_per_epoch == 14
        assert all(sum(len(rows) for _, rows in update) == 7 for update in updates)
        for update in updates:
            for name, rows in update:
                seen[name].update(rows.tolist())
    for name, n in (("a", 90), ("b", 10)):
        assert set(seen[name]) == set(range(n))
        # The end of an epoch may not fill an update.
        assert max(seen[name].values()) - min(seen[name].values()) <= 3
    again = [[(n, r.tolist()) for n, r in update] for update in mixture.epoch(2)]
    assert again == [
        [(n, r.tolist()) for n, r in update] for update in Mixture(blocks, batch=7, seed=3).epoch(2)
    ]
    assert Mixture(blocks, batch=7, alpha=1).drawn == {"a": 90, "b": 10}
    assert Mixture(blocks, batch=7, alpha=0).drawn == {"a": 50, "b": 50}
    with pytest.raises(SettingError, match="no text in c"):
        Mixture({**blocks, "c": Blocks(np.zeros(0, np.int32), np.zeros(1, np.int64))}, batch=2)


def test_masking_uses_the_fractions_in_the_paper_and_skips_special_tokens():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1000, (200, 100)).astype(np.int32)
    read, chosen = mask(ids, [0, 2, 3], mask_id=4, vocabulary=1000, share=0.15, rng=rng)
    possible = ~np.isin(ids, [0, 2, 3])
    assert len(chosen) == round(0.15 * possible.sum()) == len(set(chosen.tolist()))
    assert possible.flat[chosen].all()
    changed = np.ones(ids.size, bool)
    changed[chosen] = False
    assert (read.flat[changed] == ids.flat[changed]).all()
    masked = read.flat[chosen] == 4
    kept = read.flat[chosen] == ids.flat[chosen]
    assert masked.mean() == pytest.approx(0.8, abs=0.02)
    assert kept.mean() == pytest.approx(0.1, abs=0.02)
    assert not np.isin(read.flat[chosen[~masked]], [0, 2, 3]).any()


def test_loss_and_gradient_equal_those_of_transformers(texts, tokenizer, monkeypatch):
    method = small(batch=8, updates=1)
    kept = {}
    backward = MaskedPrediction.backward

    def spy(self, update):
        kept["model"] = copy.deepcopy(self.module)
        torch.manual_seed(77)
        kept["terms"] = backward(self, update)
        kept["gradients"] = {name: p.grad.clone() for name, p in self.module.named_parameters()}
        kept["ids"], _ = self.blocks(update)
        return kept["terms"]

    monkeypatch.setattr(MaskedPrediction, "backward", spy)
    method.train(texts, tokenizer)
    rng = np.random.default_rng(
        torch.randint(1 << 62, (1,), generator=torch.Generator().manual_seed(77)).item()
    )
    special = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
    read, chosen = mask(
        kept["ids"],
        special,
        mask_id=tokenizer.mask_token_id,
        vocabulary=len(tokenizer),
        share=0.15,
        rng=rng,
    )
    labels = np.full(kept["ids"].shape, -100)
    labels.flat[chosen] = kept["ids"].flat[chosen]
    model = kept["model"]
    loss = model(
        input_ids=torch.from_numpy(read.astype(np.int64)),
        attention_mask=torch.from_numpy((read != tokenizer.pad_token_id).astype(np.int64)),
        labels=torch.from_numpy(labels),
    ).loss
    loss.backward()
    assert kept["terms"]["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert expected.keys() == kept["gradients"].keys()
    largest = max(float(g.abs().max()) for g in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(
            kept["gradients"][name], gradient, rtol=1e-3, atol=1e-5 * largest, msg=name
        )


def test_training_can_start_from_an_encoder(texts, tokenizer, tmp_path, tiny_folder):
    first = small(learning_rate=5e-3, updates=1).train(texts, tokenizer)
    first.model.save_pretrained(tmp_path / "first")
    given = {"start": tmp_path / "first", "learning_rate": 1e-9, "layers": 5}
    more = small(**given).train(texts, tokenizer, folder=tmp_path / "run", checkpoint_every=1)
    assert (more.settings["num_hidden_layers"], more.settings["start"]) == (2, "first")
    for name, value in first.model.state_dict().items():
        torch.testing.assert_close(more.model.state_dict()[name], value, atol=1e-6, rtol=0)
    small(**given).train(texts, tokenizer, folder=tmp_path / "run")
    with torch.no_grad():
        first.model.bert.embeddings.word_embeddings.weight[7, 3] += 1e-3
    first.model.save_pretrained(tmp_path / "first")
    with pytest.raises(SettingError, match="start_weights: "):
        small(**given).train(texts, tokenizer, folder=tmp_path / "run")
    with pytest.raises(InputError, match="no language-model head"):
        small(start=tiny_folder).train(texts, tokenizer)
    with pytest.raises(InputError, match="not a masked language model"):
        small(start=tmp_path / "nothing").train(texts, tokenizer)
    with pytest.raises(SettingError, match="the block length is 41"):
        small(start=tmp_path / "first", length=41, positions=64).train(texts, tokenizer)
