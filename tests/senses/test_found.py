"""Tests of trained and induced senses: numbering, nearest senses, selection, and the command
`calque senses`.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, BertForMaskedLM

from calque.encoders import load_encoder
from calque.errors import InputError, SettingError
from calque.senses.clusters import discriminant_axes
from calque.senses.elmo import ElmoEncoder
from calque.senses.found import (
    EVERY,
    ContextSenses,
    inventory_of,
    open_contexts,
    trained_senses,
    without_output,
)
from calque.senses.sense_table import SenseTable, save_senses
from command import fails, works
from sense_models import WORDS, a_bert, a_table, a_text, an_elmo


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return an_elmo(tmp_path_factory.mktemp("elmo") / "elmo")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return a_bert(tmp_path_factory.mktemp("bert") / "bert")


# -- trained senses --------------------------------------------------------------------------------
def numbered(table: SenseTable, word: int) -> list[int]:
    """Return the active classes of a word, sorted by decreasing frequency."""
    classes = [c for c in table.index[word].tolist() if c >= 0 and table.live[c]]
    return sorted(classes, key=lambda c: (-int(table.counts[c]), c))


def inventory(table: SenseTable):
    return inventory_of(
        "it", [f"w{k}" for k in range(table.n_words)], np.arange(table.n_words), table
    )


def test_senses_are_numbered_by_frequency_without_pruned_senses():
    table = a_table(30, 6, 0)
    found, classes = inventory(table), [numbered(table, word) for word in range(30)]
    assert found.n_senses.tolist() == [len(of_word) for of_word in classes]
    for word, of_word in enumerate(classes):
        total = sum(int(table.counts[c]) for c in of_word)
        shares = [int(table.counts[c]) / total if total else 1 / len(of_word) for c in of_word]
        np.testing.assert_allclose(found.shares[word, : len(of_word)], shares, atol=1e-12)
    unit = torch.nn.functional.normalize(
        table.weight.detach()[[c for of_word in classes for c in of_word]], dim=1
    )
    torch.testing.assert_close(found.vectors, unit)
    unseen = SenseTable([3, 2], 4, axes=2, queue=4)
    unseen.open()
    np.testing.assert_allclose(inventory(unseen).shares, [[1 / 3] * 3, [0.5, 0.5, 0]])


def test_nearest_senses_have_the_largest_cosine():
    table = a_table(20, 6, 1)
    found = inventory(table)
    classes = {(w, n): c for w in range(20) for n, c in enumerate(numbered(table, w), 1)}
    assert list(classes) == [tuple(sense) for sense in found.senses.tolist()]

    def cosine(one, other) -> float:
        weight = table.weight.detach()
        return float(torch.cosine_similarity(weight[classes[one]], weight[classes[other]], dim=0))

    own = list(classes)[3]
    expected = sorted((s for s in classes if s != own), key=lambda s: -cosine(own, s))
    got = found.nearest(*own, 5)
    assert [(near.word, near.number) for near in got] == expected[:5]
    np.testing.assert_allclose(
        [near.cosine for near in got], [cosine(own, s) for s in expected[:5]], atol=1e-6
    )
    few = np.arange(20) == 7
    assert {near.word for near in found.nearest(*own, 50, few)} == {7}
    assert len(found.nearest(*own, 50, few)) == found.n_senses[7]


def test_elmo_has_forward_senses_and_bert_has_whole_word_senses(elmo, bert):
    found = trained_senses(elmo)
    assert (found.vectors.shape[1], found.words) == (8, WORDS)
    with pytest.raises(
        SettingError, match=r"'bnak' is not in the vocabulary of elmo: did you mean bank\?"
    ):
        found.find("bnak")
    found = trained_senses(bert)
    assert set(WORDS) <= set(found.words)
    assert not any(word.startswith("##") for word in found.words)
    assert [found.words[k] for k in found.numbers(WORDS)] == list(WORDS)
    assert found.numbers(["[MASK]", "zyzzyvas", "", "[UNK]"]).tolist() == [-1] * 4


def test_senses_of_another_model_raise_a_one_line_error(elmo, bert, tmp_path):
    for source, tables, message in [
        (elmo, [a_table(9, 8, 0), a_table(9, 8, 1)], "the senses do not belong to the vocabulary"),
        (bert, [a_table(9, 4, 0)], "9 subwords have senses, but the tokenizer has"),
    ]:
        folder = shutil.copytree(source, tmp_path / f"{len(list(tmp_path.iterdir()))}")
        save_senses(tables, folder, {})
        with pytest.raises(InputError, match=message):
            trained_senses(folder)
    with pytest.raises(InputError, match="calque pretrain --senses writes one"):
        trained_senses(tmp_path)


# -- states that predict words ---------------------------------------------------------------------
def test_contexts_in_elmo_are_the_hidden_states_before_and_after_a_word(elmo):
    encoder, other = ElmoEncoder.open(elmo), ["loan", "bank", "the", "river"]
    for words in (["bank"], ["the", "bank", "of", "a", "river"]):
        last, got = (
            encoder.encode_layers([words], [-1])[-1].data,
            encoder.encode_contexts([words]).data,
        )
        np.testing.assert_allclose(got[1:, :8], last[:-1, :8], atol=1e-6)
        np.testing.assert_allclose(got[:-1, 8:], last[1:, 8:], atol=1e-6)
        for place in range(len(words)):  # the states do not depend on the word itself
            changed = [*words[:place], other[place % 4], *words[place + 1 :]]
            np.testing.assert_allclose(
                encoder.encode_contexts([changed]).data[place], got[place], atol=1e-6
            )


WITH_HEAD = ("bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2", "modernbert", "electra")


@pytest.mark.parametrize("family", WITH_HEAD)
def test_removing_the_output_layer_makes_a_model_return_the_input_of_that_layer(
    family, family_folders
):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(
        AutoConfig.from_pretrained(family_folders(family))
    ).eval()
    output, ids = model.get_output_embeddings(), torch.arange(10, 40).view(2, 15)
    torch.nn.init.normal_(output.bias)
    with torch.no_grad():
        scores = model(input_ids=ids).logits
        states = without_output(model)(input_ids=ids).logits
        torch.testing.assert_close(output(states), scores)


def test_contexts_in_bert_are_the_hidden_states_of_the_mask_token(bert):
    encoder, text = load_encoder(bert), a_text(12)
    contexts, model = open_contexts(encoder), BertForMaskedLM.from_pretrained(bert).eval()
    rows = np.flatnonzero(
        contexts.covered(text) & (np.random.default_rng(0).random(int(text.lengths().sum())) < 0.7)
    )
    rows = np.array(
        [row for row in rows if contexts.predicted([[w for s in text for w in s.words][row]])[0]]
    )
    got, place, asked = contexts.states(text, rows), 0, set(rows.tolist())
    for sentence in text:
        split = encoder.split([sentence.words])
        for k in range(len(sentence.words)):
            if place + k not in asked:
                continue
            ids = split.ids.copy()
            for other in range(k % EVERY, len(sentence.words), EVERY):
                if place + other in asked:
                    ids[split.word_starts[other]] = encoder.tokenizer.mask_token_id
            with torch.inference_mode():
                states = model.bert(
                    input_ids=torch.from_numpy(ids.astype(np.int64))[None]
                ).last_hidden_state[0]
                state = model.cls.predictions.transform(states[split.word_starts[k]])
            torch.testing.assert_close(
                got[int(np.searchsorted(rows, place + k))], state, rtol=1e-4, atol=1e-5
            )
        place += len(sentence.words)


# -- induced senses --------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_a_word_has_the_sense_with_the_nearest_mean_context(request, kind, monkeypatch):
    """Use a text in two parts and predefined clusters."""
    monkeypatch.setattr(
        "calque.senses.found.split_words",
        lambda vectors, **_: [np.arange(len(x)) % 3 % 2 for x in vectors],
    )
    encoder, text = load_encoder(str(request.getfixturevalue(kind))), a_text(70)
    contexts = open_contexts(encoder)
    found = ContextSenses(contexts, "it", [text.take(np.arange(40)), text.take(np.arange(40, 70))])
    words = [word for sentence in text for word in sentence.words]
    read = contexts.covered(text) & (found.numbers(words) >= 0)
    states, known = (
        contexts.states(text, np.flatnonzero(read)).numpy(),
        [words[k] for k in np.flatnonzero(read)],
    )
    own = {
        form: [x for word, x in zip(known, states, strict=True) if word == form]
        for form in found.words
    }
    assert set(WORDS) <= set(found.words)
    mean, axes = discriminant_axes([np.stack(own[form]) for form in found.words])

    def compared(x):
        return (x - mean) @ axes / np.linalg.norm((x - mean) @ axes)

    wanted = []
    for word, state in zip(known, states, strict=True):
        centres = [
            np.mean([compared(x) for x in part], axis=0)
            for part in (
                [x for k, x in enumerate(own[word]) if k % 3 % 2 == sense] for sense in (0, 1)
            )
        ]
        wanted.append(
            1 + int(np.argmin([((compared(state) - centre) ** 2).sum() for centre in centres]))
        )
    got = found.select(text)
    assert got[got > 0].tolist() == wanted
    shares = found.shares[found.find("bank")]
    np.testing.assert_allclose(
        shares, np.bincount(np.arange(len(own["bank"])) % 3 % 2) / len(own["bank"])
    )
    assert found.select([]).tolist() == []
    assert found.select([[], ["unheard"], []]).tolist() == [0]
    if kind == "bert":  # words beyond the maximum length have no sense
        far = found.select([["the"] * 40])
        assert (far[:22] > 0).all()
        assert not far[22:].any()


# -- calque senses ---------------------------------------------------------------------------------
@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(sentence.words) + "\n" for sentence in a_text(50)))
    return path


def several(folder) -> str:
    """Return a word with several senses."""
    found = trained_senses(folder)
    return next(word for word in WORDS if found.n_senses[found.find(word)] > 1)


@pytest.fixture
def divided(monkeypatch):
    """Replace the induced clusters with fixed clusters."""
    labels = lambda vectors, **_: [np.arange(len(x)) % 2 * (len(x) % 2) for x in vectors]  # noqa: E731
    monkeypatch.setattr("calque.senses.found.split_words", labels)


def test_several_texts_are_concatenated_and_tokenised(capsys, elmo, tmp_path, divided):
    (tmp_path / "a.txt").write_text("The bank, of a river.\n")
    (tmp_path / "b.txt").write_text(
        "Geld\n\nder Fluss\n" + "the a of bank river boat money loan may Ufer Fluss Geld\n" * 30
    )
    out = tmp_path / "numbers.txt"
    works(
        capsys,
        "senses",
        elmo,
        "--text",
        f"en={tmp_path}/a.txt",
        f"de={tmp_path}/b.txt",
        "--out",
        out,
        "-q",
    )
    first, *others = out.read_text().splitlines()
    assert len(first.split()) == 7  # the comma and the full stop count as words
    assert first.split()[2] == "-"
    assert first.split()[1] != "-"
    assert [len(line.split()) for line in others] == [1, 0, 2, *[12] * 30]


def test_nearest_senses_are_grouped_by_the_languages_of_the_texts(capsys, elmo, tmp_path):
    (tmp_path / "a.txt").write_text("the bank of a river\nmoney a loan may\n")
    (tmp_path / "b.txt").write_text("Ufer Fluss Geld\n")
    found, _ = works(
        capsys,
        "senses",
        elmo,
        "bank",
        "--trained",
        "--text",
        f"en={tmp_path}/a.txt",
        f"de={tmp_path}/b.txt",
        "--json",
        "-q",
        "-k",
        2,
    )
    for sense in json.loads(found)["senses"]:
        assert [near["lang"] for near in sense["nearest"]] == ["de", "de", "en", "en"]
        assert {near["word"] for near in sense["nearest"][:2]} <= {"Ufer", "Fluss", "Geld"}


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_senses_are_induced_from_text(capsys, request, text, tmp_path, kind, divided):
    folder, out = request.getfixturevalue(kind), tmp_path / "numbers.txt"
    works(capsys, "senses", folder, "--text", f"en={text}", "--pretokenized", "--out", out, "-q")
    encoder = load_encoder(str(folder))
    inventory = ContextSenses(open_contexts(encoder), encoder.name, [a_text(50)])
    expected = [str(n) if n else "-" for n in inventory.select(a_text(50)).tolist()]
    assert [len(line.split()) for line in out.read_text().splitlines()] == [
        len(sentence) for sentence in a_text(50)
    ]
    assert [n for line in out.read_text().splitlines() for n in line.split()] == expected
    assert {"1", "2"} <= set(expected)
    found, _ = works(
        capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "--json", "-q"
    )
    senses, number = json.loads(found), inventory.find("bank")
    assert (senses["trained"], len(senses["senses"])) == (False, inventory.n_senses[number])
    words = [word for sentence in a_text(50) for word in sentence.words]
    for sense in senses["senses"]:
        same = [
            n
            for word, n in zip(words, expected, strict=True)
            if word == "bank" and n == str(sense["number"])
        ]
        assert sense["chosen"] == len(same)
        assert len(sense["nearest"]) == 10
        assert len(sense["sentences"]) == min(3, len(same))
        assert all(
            (each["words"][each["place"]], each["lang"]) == ("bank", "en")
            for each in sense["sentences"]
        )
    shown, _ = works(
        capsys, "senses", folder, "bank", "--text", f"en={text}", "--pretokenized", "-q"
    )
    assert "of its uses in a sample of the text" in shown
    assert "[bank]" in shown


def test_error_messages_have_one_line(capsys, elmo, text, tmp_path):
    assert "calque pretrain --senses writes one" in fails(
        capsys, "senses", tmp_path, "bank", "--trained"
    )
    assert "add --text FILE, or --trained" in fails(capsys, "senses", elmo, "bank")
    assert "did you mean bank?" in fails(capsys, "senses", elmo, "bnak", "--trained")
    rare = fails(capsys, "senses", elmo, "bnak", "--text", f"en={text}", "--pretokenized")
    assert "'bnak' does not occur 20 times in the text" in rare
    few = fails(
        capsys, "senses", elmo, "bank", "--text", f"en={text}", "--pretokenized", "--limit", 3
    )
    assert (
        "at least 12 words must occur 20 times to decide which words have several senses, got 0"
        in few
    )
    assert "the language is unknown" in fails(capsys, "senses", elmo, "bank", "--text", text)
    assert "give a word" in fails(capsys, "senses", elmo, "--text", text)
    assert "give a word" in fails(
        capsys, "senses", elmo, "--trained", "--text", text, "--out", tmp_path / "out.txt"
    )
    assert "applies only to --text" in fails(capsys, "senses", elmo, "bank", "--limit", 3)
    given = ("--text", f"en={text}", "--out", tmp_path / "out.txt")
    assert "--out cannot be combined with WORD" in fails(capsys, "senses", elmo, "bank", *given)
    (tmp_path / "table.vec").write_text("2 2\nbank 1 0\nriver 0 1\n")
    table = fails(capsys, "senses", tmp_path / "table.vec", "bank", "--text", f"en={text}")
    assert "senses need an ELMo or a model with a mask" in table
    assert "no.txt" in fails(
        capsys, "senses", elmo, "--text", f"en={tmp_path}/no.txt", "--out", tmp_path / "out.txt"
    )
    assert "would overwrite the input" in fails(
        capsys, "senses", elmo, "--text", f"en={text}", "--out", text
    )


def test_json_output_contains_numbers_and_fractions_of_trained_senses(capsys, elmo):
    word, found = several(elmo), trained_senses(elmo)
    number = found.find(word)
    printed = json.loads(
        works(capsys, "senses", elmo, word, "--trained", "--json", "-q", "-k", 4)[0]
    )["senses"]
    assert [sense["number"] for sense in printed] == list(range(1, int(found.n_senses[number]) + 1))
    assert sum(sense["share"] for sense in printed) == pytest.approx(1, abs=1e-3)
    for sense in printed:
        near = found.nearest(number, sense["number"], 4)
        assert [(n["word"], n["number"]) for n in sense["nearest"]] == [
            (found.words[n.word], n.number) for n in near
        ]
