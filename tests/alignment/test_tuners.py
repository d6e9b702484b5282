"""Compare fine-tuning with naive implementations of the papers' formulas."""

import copy
import math

import numpy as np
import pytest
import torch

from calque.alignment.aligned import AlignedText
from calque.alignment.contrastive import Contrastive, info_nce
from calque.alignment.data import LinkedText, training_data
from calque.alignment.finetune import FineTune
from calque.distributed import Processes
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.training.plan import BatchPlan
from calque.training.sources import freeze_below
from encoder_copies import moved, with_dropout
from linked_text import make_text
from tuner_cases import Linked


@pytest.fixture
def text():
    return make_text("xx", 12, 0)


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def fast(tuner, encoder, corpora, pairs, chosen):
    """Compute the loss terms and gradients of one update with calque."""
    tuned = moved(encoder)  # changes the weights, otherwise the second term would be zero
    freeze_below(tuned, tuner.freeze)
    objective = tuner.objective(
        tuned, encoder, LinkedText(tuple(corpora), tuple(pairs)), Processes()
    )
    return objective.backward(chosen), gradients(tuned.model), tuned


def vectors(model, tokenizer, sentence, layer, special):
    """Return the vector of each word's last subword and, if `special` is set, also those of the
    special tokens.
    """
    encoded = tokenizer(list(sentence.words), is_split_into_words=True, return_tensors="pt")
    states = model(**encoded, output_hidden_states=True).hidden_states[layer][0]
    ids = encoded.word_ids()
    last = {w: k for k, w in enumerate(ids) if w is not None}
    words = [states[last[i]] for i in range(len(sentence))]
    return words, ([states[0], states[-1]] if special else [])


def literal_cao(
    model, frozen, tokenizer, corpora, pairs, chosen, layers, *, towards, weight, code, special
):
    """Compute the loss of Cao 2020, §3.3, and Kulshreshtha 2020, Eqs. 7-10, in Python loops."""
    align_total = stay_total = 0.0
    for corpus, links, numbers in zip(corpora, pairs, chosen, strict=True):
        for layer in layers:
            align, stay, n_pairs, n_words = 0.0, 0.0, 0, 0
            for number in numbers:
                s, t = corpus[int(number)]
                if s.lang == towards:
                    s, t = t, s
                fs, fs_ends = vectors(model, tokenizer, s, layer, special)
                ft, ft_ends = vectors(model, tokenizer, t, layer, special)
                with torch.no_grad():
                    f0, f0_ends = vectors(frozen, tokenizer, t, layer, special)
                for k, i, j in zip(links.sentence, links.source, links.target, strict=True):
                    if k == number:
                        i, j = (j, i) if corpus.langs[0] == towards else (i, j)
                        align = align + ((fs[i] - (f0[j] if code else ft[j])) ** 2).sum()
                        n_pairs += 1
                for a, b, c in zip(fs_ends, ft_ends, f0_ends, strict=True):
                    align = align + ((a - (c if code else b)) ** 2).sum()
                    n_pairs += 1
                for now, before in zip(ft + ft_ends, f0 + f0_ends, strict=True):
                    stay = stay + ((now - before) ** 2).sum()
                    n_words += 1
            dim = f0[0].numel()
            if code:
                align, stay = align / (n_pairs * dim), stay / (n_words * dim)
            align_total, stay_total = align_total + align, stay_total + weight * stay
    return align_total, stay_total


class WordsAlone(FineTune):
    """Fine-tuning with small batches and without links between special tokens."""

    special = False
    budget = 60


@pytest.mark.parametrize("variant", ["paper", "code"])
@pytest.mark.parametrize("make", [FineTune, WordsAlone])
@pytest.mark.parametrize("towards", ["en", "xx"])
def test_finetuning_loss_and_gradients_equal_the_formula(
    tiny_encoder, text, variant, make, towards
):
    corpus, pairs = text
    tuner = make(towards=towards, variant=variant, weight=0.7, layers=(1, -1))
    chosen = [np.array([3, 0, 7, 8])]
    encoder = tiny_encoder.read_as(pooling="last")
    terms, fast_gradients, tuned = fast(tuner, encoder, [corpus], [pairs], chosen)
    slow = copy.deepcopy(tuned.model)
    slow.zero_grad()
    align, stay = literal_cao(
        slow,
        tiny_encoder.model,
        tiny_encoder.tokenizer,
        [corpus],
        [pairs],
        chosen,
        (1, tiny_encoder.n_layers),
        towards=towards,
        weight=0.7,
        code=variant == "code",
        special=make.special,
    )
    (align + stay).backward()
    assert terms["align"] == pytest.approx(align.item(), rel=1e-4)
    assert terms["stay"] == pytest.approx(stay.item(), rel=1e-4)
    assert_same(fast_gradients, gradients(slow))


def assert_same(found, expected, tolerance=1e-4):
    assert found.keys() == expected.keys()
    scale = max(float(g.abs().max()) for g in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, atol=tolerance * scale, rtol=1e-3, msg=lambda m: f"{name}: {m}"
        )


def test_losses_of_several_languages_are_summed(tiny_encoder, text):
    other = make_text("yy", 9, 5)
    tuner = FineTune(towards="en", variant="code")
    chosen = [np.array([1, 2]), np.array([4, 0])]
    both, both_gradients, _ = fast(
        tuner, tiny_encoder, [text[0], other[0]], [text[1], other[1]], chosen
    )
    one, one_gradients, _ = fast(tuner, tiny_encoder, [text[0]], [text[1]], chosen[:1])
    two, two_gradients, _ = fast(tuner, tiny_encoder, [other[0]], [other[1]], chosen[1:])
    assert both["loss"] == pytest.approx(one["loss"] + two["loss"], rel=1e-5)
    assert_same(
        both_gradients, {name: one_gradients[name] + two_gradients[name] for name in one_gradients}
    )


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (FineTune, {"variant": "code"}),
        (Contrastive, {"similarity_distillation": 0.5}),
        (Linked, {"similarity_distillation": 0.2, "sentences": 0.5}),
    ],
)
@pytest.mark.parametrize(
    ("n", "accumulate"), [(9, 3), (9, 11), (1, 5)]
)  # includes more parts than sentence pairs
def test_gradient_accumulation_equals_the_full_batch(
    tiny_encoder, text, make, options, n, accumulate
):
    corpus, pairs = text
    whole, parts = (
        fast(
            make(towards="en", accumulate=number, **options),
            tiny_encoder,
            [corpus],
            [pairs],
            [np.arange(n)],
        )
        for number in (1, accumulate)
    )
    assert parts[0] == pytest.approx(whole[0], rel=1e-4)
    assert_same(parts[1], whole[1])


def test_frozen_layers_remain_unchanged(tiny_encoder, text):
    corpus, pairs = text
    tuned = Contrastive(towards="en", batch=6, freeze=1).align(tiny_encoder, corpus, pairs)
    changed = {
        name
        for (name, p), q in zip(
            tuned.model.named_parameters(), tiny_encoder.model.parameters(), strict=True
        )
        if not torch.equal(p, q)
    }
    assert changed
    assert not any("embeddings" in name or ".layer.0." in name for name in changed)
    assert any(".layer.1." in name for name in changed)
    for options, message in (
        ({"freeze": tiny_encoder.n_layers}, "freeze must be at least 0 and below"),
        ({"freeze": 1, "layers": (1,)}, "freeze=1 would freeze all layers that affect the loss"),
    ):
        with pytest.raises(SettingError, match=message):
            Contrastive(towards="en", **options).align(tiny_encoder, corpus, pairs)


@pytest.mark.parametrize("sizes", [(100, 37, 99, 96, 95, 8, 3), (12, 12), (7, 5), (33, 32, 31)])
def test_batches_are_full_for_corpora_of_any_size(sizes):
    plan = BatchPlan(sizes, batch=8, seed=1)
    first = np.concatenate([update[0] for update in plan.epoch(0)])
    assert (first == np.concatenate([update[0] for update in plan.epoch(0)])).all()
    assert (first != np.concatenate([update[0] for update in plan.epoch(1)])).any()
    for number in range(3):
        epoch = plan.epoch(number)
        assert len(epoch) == plan.steps_per_epoch == -(-max(sizes) // 8)
        for step, update in enumerate(epoch):
            for n, batch in zip(sizes, update, strict=True):
                last = step == len(epoch) - 1 and n > 8 * step
                assert len(batch) == min(n, 8) or (last and len(batch) == n % 8)
        for corpus, n in enumerate(sizes):
            seen = np.bincount(np.concatenate([update[corpus] for update in epoch]), minlength=n)
            assert corpus != sizes.index(max(sizes)) or (seen == 1).all(), (
                "every pair of the longest corpus is used once"
            )
            rounds = -(-plan.steps_per_epoch // max(1, n // 8))
            assert seen.max() <= rounds, "a pair is repeated before all others are used"


def test_unusable_pairs_and_links_are_counted(tiny_encoder):
    source = [["the", "cat"], ["water"] * 70, ["a", "\x00"], ["house"]]
    target = [["THE", "CAT"], ["WATER"], ["A", "IN"], ["HOUSE"]]
    corpus = ParallelCorpus.of(source, target, ("en", "xx"))
    pairs = WordPairs([0, 0, 1, 2, 2], [0, 1, 0, 0, 1], [0, 1, 0, 0, 1], n_sentences=4)
    text = AlignedText([corpus], [pairs], tiny_encoder, towards="en", special=True)
    counts = text.counts
    assert (counts.sentence_pairs, counts.links) == (2, 3)
    assert (counts.too_long, counts.without_links, counts.links_without_vector) == (1, 1, 1)


def test_invalid_settings_are_rejected(tiny_encoder, text):
    corpus, pairs = text
    with pytest.raises(SettingError, match="the corpus is in .* and .*, not in 'de'"):
        FineTune(towards="de").align(tiny_encoder, corpus, pairs)
    with pytest.raises(SettingError, match="variant must be paper or code"):
        FineTune(towards="en", variant="max")
    empty = WordPairs(*np.zeros((3, 0), dtype=int), n_sentences=len(corpus))
    with pytest.raises(SettingError, match="nothing to train on"):
        Contrastive(towards="en").align(tiny_encoder, corpus, empty)


def test_loss_and_gradient_are_finite_for_one_pair_or_no_pairs():
    for n in (0, 1):
        x = torch.nn.functional.normalize(
            torch.ones(n, 5) + torch.arange(5), dim=1
        ).requires_grad_()
        y = x.detach().clone().requires_grad_()
        loss = info_nce(x, y, temperature=0.1, kinds=torch.arange(n), share=0.5)
        loss.backward()
        assert loss.item() == 0
        assert torch.isfinite(x.grad).all()
        assert torch.isfinite(y.grad).all()


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_the_second_loss_term_is_zero_before_the_first_update(tiny_encoder, text, stored):
    """Check that both encoders compute with the same precision, whatever the dtype of the loaded
    encoder.
    """
    encoder = with_dropout(tiny_encoder)
    encoder.model.to(stored)
    history = FineTune(towards="en", batch=6).fit(encoder, training_data(*text)).history
    assert history[0]["stay"] < 1e-10
    assert history[1]["stay"] > 1e-6
    assert next(encoder.model.parameters()).dtype == stored


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_encoders_use_the_requested_precision(tiny_encoder, text, monkeypatch, precision):
    seen = set()

    def watched(real):
        def called(self, *given):
            seen.add(
                (
                    torch.is_grad_enabled(),
                    torch.get_float32_matmul_precision(),
                    torch.is_autocast_enabled("cpu"),
                )
            )
            return real(self, *given)

        return called

    monkeypatch.setattr(type(tiny_encoder), "forward", watched(type(tiny_encoder).forward))
    tuner = Contrastive(towards="en", batch=6, precision=precision, standardize=False)
    encoder = with_dropout(tiny_encoder)
    fitted = tuner.fit(encoder, training_data(*text))
    assert seen == {(learns, "highest", precision == "bfloat16") for learns in (True, False)}
    assert fitted.record["settings"]["precision"] == precision
    assert (
        fitted.history[0]["similarity"] < 1e-4
    )  # bfloat16 rounding depends on the shape of the batch
    assert torch.get_float32_matmul_precision() == "highest"


def test_training_stops_without_saving_if_weights_are_not_finite(tiny_encoder, text, tmp_path):
    tuner = Contrastive(towards="en", batch=12, epochs=1, learning_rate=3e38)
    with pytest.raises(
        SettingError,
        match="trained tensors .* are not finite after update 1: lower the learning rate",
    ):
        tuner.align(tiny_encoder, *text, folder=tmp_path)
    with pytest.raises(SettingError, match="not finite after update 1"):
        tuner.align(tiny_encoder, *text, folder=tmp_path, checkpoint_every=1)
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    "name",
    [
        "epochs",
        "batch",
        "freeze",
        "temperature",
        "same_share",
        "similarity_distillation",
        "sentences",
    ],
)
def test_invalid_numbers_are_rejected_when_a_method_is_created(name):
    for value in (math.nan, -1, "a", True):
        with pytest.raises(SettingError, match="must be .*, got"):
            Contrastive(**{"towards": "en", name: value})
