"""An encoder that goes on with its masked language model, senses and translations: what moves, what stays, and exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM

from calque.alignment.senses import SenseAlignment, Subset
from calque.annotated import Dictionary
from calque.encoders import load_encoder
from calque.errors import SettingError
from calque.pretraining.blocks import Blocks, Mixture
from calque.text import Sentences
from command import fails, works

# Letters are subwords of their own in every family; words begin with a mark of their own in some.
LETTERS = {"en": "a e t s", "de": "d r u n"}
DICTIONARY = Dictionary(("a", "e", "t", "s"), ("d", "r", "u", "n"), ("en", "de"))


def text(lang: str, n: int = 24) -> Sentences:
    rng = np.random.default_rng(len(lang))
    letters = LETTERS[lang].split()
    return Sentences.of([list(rng.choice(letters, rng.integers(3, 9))) for _ in range(n)], lang)


TEXTS = {lang: text(lang) for lang in LETTERS}


def method(**options) -> SenseAlignment:
    small = {"towards": "en", "epochs": 2, "batch": 2, "length": 24, "axes": 4, "senses": 2, "occurrences": 0}
    return SenseAlignment(**small | options)


@pytest.fixture(scope="module")
def with_head(tmp_path_factory, family_folders):
    """A tiny BERT with the head of a language model, saved."""
    folder = tmp_path_factory.mktemp("with-head")
    torch.manual_seed(1)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(family_folders("bert")))
    torch.nn.init.normal_(model.get_output_embeddings().bias)
    model.save_pretrained(folder)
    load_encoder(family_folders("bert")).tokenizer.save_pretrained(folder)
    return folder


def weights(encoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in encoder.model.state_dict().items()}


def subset_of(encoder, dictionary: Dictionary = DICTIONARY) -> Subset:
    blocks = {lang: Blocks.of(encoder.split(sentences), 24) for lang, sentences in TEXTS.items()}
    return Subset.of(encoder, Mixture(blocks, batch=2), [dictionary])


def test_every_family_goes_on_and_the_original_stays(family_folder, tmp_path):
    encoder = load_encoder(family_folder)
    before, how = weights(encoder), method(epochs=1)
    aligned = how.align(encoder, TEXTS, [DICTIONARY])
    assert all(torch.equal(value, before[name]) for name, value in weights(encoder).items())
    changed = [name for name, value in weights(aligned).items() if not torch.equal(value, before[name])]
    assert any("layer" in name for name in changed)
    assert any("embeddings" in name for name in changed)
    assert all(number > 0 for number in how.counts["translated_words"].values())
    assert how.counts["first_senses_from"] == "input embeddings"
    aligned.save(tmp_path / "aligned")
    sentences = [["a", "d", "t"]]
    np.testing.assert_array_equal(
        load_encoder(tmp_path / "aligned").encode(sentences).data, aligned.encode(sentences).data
    )


def test_first_senses_begin_with_the_output_layer(with_head):
    """Hardly moved, the first sense of a subword of the text has the vector and the bias of the language model's own."""
    output = AutoModelForMaskedLM.from_pretrained(with_head).get_output_embeddings()
    encoder, how = load_encoder(with_head), method(epochs=0.01, learning_rate=1e-12)
    how.align(encoder, TEXTS, [DICTIONARY])
    assert how.counts["first_senses_from"] == "output layer"
    table = how.softmax.senses[0]
    used = subset_of(encoder).used
    assert how.counts["subwords"] == table.n_words == len(used)
    first = table.index[:, 0]
    torch.testing.assert_close(table.weight[first], output.weight[used])
    torch.testing.assert_close(table.bias[first], output.bias[used])


def test_text_without_a_head_begins_with_frequencies(tiny_encoder):
    how = method(epochs=0.01, learning_rate=1e-12)
    how.align(tiny_encoder, TEXTS, [DICTIONARY])
    subset, table = subset_of(tiny_encoder), how.softmax.senses[0]
    shares = (subset.counts + 1) / (subset.counts + 1).sum()
    biases = table.bias[table.index[:, 0]].detach().numpy()
    np.testing.assert_allclose(biases, np.log(shares[subset.used]), atol=1e-5)


def test_subset_numbers_what_occurs_and_what_translates(tiny_encoder):
    subset = subset_of(tiny_encoder, Dictionary(("a", "i", "catcatcat"), ("d", "o", "u"), ("en", "de")))
    seen = np.unique(np.concatenate([tiny_encoder.split(sentences).ids for sentences in TEXTS.values()]))
    names = tiny_encoder.tokenizer.convert_ids_to_tokens(subset.used.tolist())
    assert set(seen) <= set(subset.used)
    assert {"i", "o"} <= set(names)
    assert "catcatcat" not in subset.words  # of several subwords
    assert all(names[row] == word for word, row in subset.words.items())
    frequencies = [subset.counts[subset.used[row]] for row in subset.words.values()]
    assert frequencies == sorted(frequencies, reverse=True)
    assert (subset.rows[subset.used] == np.arange(len(subset.used))).all()
    assert (subset.rows >= -1).all()


def test_words_and_their_translations_come_together(tiny_encoder):
    """Two languages whose words stand in the same order, renamed: with the right dictionary translations get nearer than
    with a wrong one."""

    def nearness(pairs: dict[str, str]) -> float:
        rng = np.random.default_rng(3)
        rows = [list(rng.choice(LETTERS["en"].split(), 6)) for _ in range(48)]
        names = dict(zip(DICTIONARY.source, DICTIONARY.target, strict=True))
        texts = {"en": Sentences.of(rows, "en"), "de": Sentences.of([[names[w] for w in row] for row in rows], "de")}
        how = method(epochs=12, learning_rate=3e-3, batch=4)
        aligned = how.align(tiny_encoder, texts, [Dictionary(tuple(pairs), tuple(pairs.values()), ("en", "de"))])
        en, de = (torch.from_numpy(aligned.encode(texts[lang]).data) for lang in ("en", "de"))
        return float(torch.nn.functional.cosine_similarity(en - en.mean(0), de - de.mean(0)).mean())

    right = dict(zip(DICTIONARY.source, DICTIONARY.target, strict=True))
    wrong = dict(zip(DICTIONARY.source, np.roll(DICTIONARY.target, 1).tolist(), strict=True))
    assert nearness(right) > 0.6
    assert nearness(wrong) < 0.1


def test_frozen_layers_stay(tiny_encoder):
    before = weights(tiny_encoder)
    after = weights(method(freeze=2).align(tiny_encoder, TEXTS, [DICTIONARY]))
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed
    assert all("layer.2." in name for name in changed)


def test_a_stopped_run_goes_on_to_the_same_bits(tiny_encoder, tmp_path, monkeypatch):
    whole = method().align(tiny_encoder, TEXTS, [DICTIONARY])
    from calque.pretraining.senses import SenseTraining

    follow, seen = SenseTraining.after_update, []

    def stop(self, step):
        follow(self, step)
        seen.append(step)
        if len(seen) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(SenseTraining, "after_update", stop)
    arguments = {"folder": tmp_path, "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt):
        method().align(tiny_encoder, TEXTS, [DICTIONARY], **arguments)
    resumed = method().align(tiny_encoder, TEXTS, [DICTIONARY], **arguments)
    assert seen[5] == 5  # from the last checkpoint, after 4
    expected = weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights(resumed).items())
    with pytest.raises(SettingError, match="other settings"):
        method(axes=3).align(tiny_encoder, TEXTS, [DICTIONARY], **arguments)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_no_masked_language_model(family, family_folders):
    with pytest.raises(SettingError, match="no masked language model"):
        method().align(load_encoder(family_folders(family)), TEXTS, [DICTIONARY])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": {"en": TEXTS["en"]}}, "no text in de"),
        ({"pairs": []}, "no dictionary"),
        ({"pairs": [Dictionary(("zzzz",), ("qqqq",), ("en", "de"))]}, "none of its 1 pairs"),
        ({"towards": "fr"}, "towards fr"),
    ],
)
def test_what_cannot_be_learnt_from_is_one_clear_line(tiny_encoder, change, message):
    how = method(**{name: value for name, value in change.items() if name == "towards"})
    with pytest.raises(SettingError, match=message) as caught:
        how.align(tiny_encoder, change.get("corpus", TEXTS), change.get("pairs", [DICTIONARY]))
    assert "\n" not in str(caught.value)


@pytest.fixture
def files(tmp_path):
    for lang, sentences in TEXTS.items():
        lines = "".join(" ".join(sentence.words) + "\n" for sentence in sentences)
        (tmp_path / f"{lang}.txt").write_text(lines, encoding="utf-8")
    lines = zip(DICTIONARY.source, DICTIONARY.target, strict=True)
    (tmp_path / "en-de.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines), encoding="utf-8")
    return tmp_path


def test_on_the_command_line(capsys, files, with_head):
    common = ["align", "--encoder", with_head, "--method", "senses", "--towards", "en", "--epochs", "1", "--batch", "2",
              "--option", "axes=4", "--option", "length=24", "-q"]  # fmt: skip
    texts, dictionary = [f"en={files}/en.txt", f"de={files}/de.txt"], f"{files}/en-de.tsv"
    works(capsys, *common, *texts, "--dictionary", f"en-de={dictionary}", "--out", files / "a")
    works(capsys, *common, "--text", *texts, "--dictionary", dictionary, "--langs", "en", "de", "--out", files / "b")
    one, two = (load_encoder(files / name) for name in "ab")
    assert all(torch.equal(value, weights(two)[name]) for name, value in weights(one).items())
    record = json.loads((files / "a" / "calque-run.json").read_text(encoding="utf-8"))
    assert record["method"] == "senses"
    assert record["counts"]["first_senses_from"] == "output layer"
    assert [entry["path"] for entry in record["texts"]] == ["en-de.tsv", "en.txt", "de.txt"]
    assert "aligned by senses" in (files / "a" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--langs", "en", "de"], "got no dictionary"),
        (["--dictionary", "en-de={}/en-de.tsv", "--langs", "en", "de"], "not both"),
        (["--dictionary", "en={}/en-de.tsv"], "two languages and a file"),
        (["--dictionary", "en-de={}/en-de.tsv", "--lora", "2"], "not an option of --method senses"),
        (["--dictionary", "identical", "--langs", "en", "de"], "identical has none"),
    ],
)
def test_wrong_options_are_one_clear_line(capsys, files, tiny_folder, arguments, message):
    given = [argument.format(files) for argument in arguments]
    texts = [f"en={files}/en.txt", f"de={files}/de.txt"]
    common = ["--encoder", tiny_folder, "--method", "senses", "--towards", "en", "--out", files / "x"]
    said = fails(capsys, "align", *texts, *common, *given)
    assert message in said
    assert not (files / "x").exists()
