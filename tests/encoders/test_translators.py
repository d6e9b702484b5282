"""Compare encoders of translation models, with and without language tokens, with `transformers`."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from calque import Sentence, Sentences, load_encoder
from calque.alignment.driver import make_method
from calque.encoders.sentence_vectors import SentencePooling
from calque.errors import InputError, SettingError
from calque.runs.align import merge
from families import TEXT
from linked_text import make_text

TEXTS = [TEXT[0], TEXT[5], TEXT[6], "the harbour", TEXT[9]]
WORDS = [line.split() for line in TEXTS]
SIZES: Any = {
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}


def spm(folder: Path, name: str, kind: str = "unigram", size: int = 150) -> list[str]:
    """Train and save a SentencePiece model, and return its pieces without control symbols."""
    file = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT[:9] * 3),
        model_writer=file,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    (folder / name).write_bytes(file.getvalue())
    trained = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    return [trained.IdToPiece(number) for number in range(3, trained.GetPieceSize())]


def make(family: str, folder: Path):
    """Save a tiny model with random weights and its tokenizer; return the `transformers` tokenizer
    for French.
    """
    folder.mkdir(exist_ok=True)
    special, limit = ["<s>", "<pad>", "</s>", "<unk>"], {"model_max_length": 128}
    if family in ("marian", "m2m_100"):
        pieces = [*special, *spm(folder, "sentencepiece.bpe.model", "bpe")]
        if family == "marian":
            own, other = spm(folder, "source.spm"), spm(folder, "target.spm", size=200)
            pieces = ["</s>", "<unk>", ">>fr<<", *own, *other, "<pad>"]
        (folder / "vocab.json").write_text(
            json.dumps({piece: n for n, piece in enumerate(dict.fromkeys(pieces))})
        )
        (folder / "tokenizer_config.json").write_text(json.dumps({**limit, "src_lang": "de"}))
        kind = {"marian": transformers.MarianTokenizer, "m2m_100": transformers.M2M100Tokenizer}[
            family
        ]
        tokenizer = kind.from_pretrained(folder)
    else:
        names = {
            "mbart": "MBartTokenizer",
            "mbart50": "MBart50Tokenizer",
            "pegasus": "PegasusTokenizer",
        }
        kind = getattr(transformers, names.get(family, "NllbTokenizer"))
        pieces = [*special[family == "pegasus" :], *spm(folder, "any.spm"), "de_DE", "fr_XX"]
        pieces = [(piece, -k / 9 if k > 4 else 0.0) for k, piece in enumerate(pieces)]
        options: Any = {"src_lang": "de_DE"} if family != "pegasus" else {"offset": 3}
        if family.startswith("nllb"):
            letters = [
                *special,
                "▁",
                *sorted({letter for line in TEXT for letter in line} - {" "}),
                "th",
                "▁th",
            ]
            pieces = {piece: k for k, piece in enumerate(letters)}
            options = {
                "src_lang": "deu_Latn",
                "legacy_behaviour": family != "nllb",
                "merges": [("t", "h")],
            }
        tokenizer = kind(pieces, **options, **limit)
        tokenizer.save_pretrained(folder)
    tokenizer.src_lang = {"m2m_100": "fr", "nllb": "fra_Latn", "nllb-legacy": "fra_Latn"}.get(
        family, "fr_XX"
    )
    config = transformers.AutoConfig.for_model(
        "m2m_100" if family.startswith("nllb") else family.removesuffix("50"),
        vocab_size=len(tokenizer) + 108,
        d_model=32,
        encoder_layers=3,
        num_hidden_layers=3,
        decoder_layers=2,
        init_std=0.2,
        max_position_embeddings=128,
        **SIZES,
        pad_token_id=tokenizer.pad_token_id,
        encoder_layerdrop=0.5,
        decoder_start_token_id=1,
    )
    torch.manual_seed(1)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return tokenizer


def expected(folder: Path, tokenizer, layer: int) -> list[np.ndarray]:
    """Return the hidden states of each text, computed with `transformers` alone."""
    model, states = transformers.AutoModel.from_pretrained(folder).eval().get_encoder(), []
    for text in TEXTS:
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt").input_ids
            states.append(model(ids, output_hidden_states=True).hidden_states[layer][0].numpy())
    return states


def check(encoder, lang: str, states: list[np.ndarray]) -> None:
    sentences = [Sentence(tuple(words), lang) for words in WORDS]
    split, found = encoder.split(sentences), encoder.encode(sentences)
    assert split.lengths.tolist() == list(map(len, states))
    for number, rows in enumerate(states):
        inside = slice(*split.word_offsets[number : number + 2])
        ends = split.word_starts[inside] + split.word_lengths[inside] - 1
        np.testing.assert_allclose(found[number], rows[ends], atol=1e-5)


def saved_equals(encoder, folder, sentences) -> None:
    encoder.save(folder)
    np.testing.assert_allclose(
        load_encoder(folder).encode(sentences).data, encoder.encode(sentences).data, atol=1e-6
    )


@pytest.mark.parametrize(
    "family", ["marian", "m2m_100", "nllb", "nllb-legacy", "mbart", "mbart50", "pegasus"]
)
def test_the_encoder_has_the_hidden_states_of_the_full_model(family, tmp_path):
    tokenizer = make(family, whole := tmp_path / "whole")
    sentences = [
        Sentence(tuple(words), lang)
        for words, lang in zip(WORDS, ["fr", "fr", "de", "", "en"], strict=True)
    ]
    for layer in (0, 2, 3):
        encoder = load_encoder(whole, layer=layer, pooling="last")
        assert encoder.model.decoder is None
        check(encoder, "fr", expected(whole, tokenizer, layer))
        saved_equals(encoder, folder := tmp_path / str(layer), sentences)
        with safe_open(folder / "model.safetensors", "pt") as file:
            assert not [name for name in file.keys() if "decoder" in name]  # noqa: SIM118
        own = transformers.AutoTokenizer.from_pretrained(folder)
        check(
            encoder, "", expected(folder, own, layer)
        )  # the saved tokenizer's `src_lang` is German


@pytest.mark.parametrize("family", ["marian", "nllb", "mbart"])
def test_maps_and_adapters_of_a_translation_model_can_be_saved_and_opened(family, tmp_path):
    pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
    make(family, tmp_path / "whole")
    encoder, text = load_encoder(tmp_path / "whole"), make_text("fr", 12, 0)
    test = [Sentence(("the", "cat"), "en"), Sentence(("CAT", "A", "HOUSE"), "fr")]
    for name, options in (
        ("rotation", {"shrinkage": 0}),
        ("contrastive", {"lora": 2}),
        ("contrastive", {"layers": [2]}),
    ):
        if name == "contrastive":
            options |= {"epochs": 2, "batch": 4, "learning_rate": 1e-2, "held_out": 0}
        method = make_method(name, "en", options)
        aligned = method.align(encoder, *text)
        assert np.abs(aligned.encode(test).data - encoder.encode(test).data).max() > 1e-3
        saved_equals(aligned, folder := tmp_path / f"{name}{len(options)}", test)
        card = (folder / "README.md").read_text()
        code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0].replace(
            'FOLDER = "."', f"FOLDER = {str(folder)!r}"
        )
        # The base model of a Marian adapter has no fast tokenizer.
        if name == "rotation" or (family == "marian" and "lora" in options):
            assert "vectors = encoder.encode(" in code
            continue
        assert ("the tokenizer adds the language token" in card) == (family != "marian")
        exec(code, space := {})
        vectors = aligned.encode([("the", "old", "cat")])[
            0
        ]  # without a language, the tokenizer's default applies
        np.testing.assert_allclose(space["word_vectors"](["the", "old", "cat"]), vectors, atol=1e-5)


@pytest.mark.parametrize("family", ["marian", "nllb", "mbart", "pegasus"])
def test_adapters_of_a_complete_translation_model_are_used_in_its_encoder(family, tmp_path):
    peft = pytest.importorskip(
        "peft", reason="PEFT is not installed: pip install 'calque-align[peft]'"
    )
    tokenizer = make(family, tmp_path / "whole")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "whole")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="SEQ_2_SEQ_LM")
    adapted = peft.get_peft_model(model, config).eval()
    for weight in adapted.parameters():
        if weight.requires_grad:
            weight.data += 0.1 * torch.randn_like(weight)
    adapted.save_pretrained(tmp_path / "a")
    encoder, states = load_encoder(tmp_path / "a", pooling="last"), []
    for text in TEXTS:
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt").input_ids
            states.append(adapted.get_base_model().get_encoder()(ids).last_hidden_state[0].numpy())
    check(encoder, "fr", states)
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    check(load_encoder(tmp_path / "m", pooling="last"), "fr", states)
    base = expected(tmp_path / "whole", tokenizer, 3)
    assert max(float(np.abs(a - b).max()) for a, b in zip(base, states, strict=True)) > 1e-2


def test_each_sentence_has_the_token_of_its_language(tmp_path):
    make("mbart50", tmp_path / "mbart")
    make("nllb-legacy", tmp_path / "nllb")
    encoder, first = load_encoder(tmp_path / "nllb"), load_encoder(tmp_path / "mbart").subwords
    subwords, one = encoder.subwords, Sentences.of([["a", "the"], ["in"]], "fr")

    def languages(split):
        return " ".join(
            encoder.tokenizer.convert_ids_to_tokens(split.ids[split.offsets[1:] - 1].tolist())
        )

    tags = ["zh", "zh-Hant", "zho_Hant", "sw", "pes_Arab", "fa", "prs_Arab", "deu", "yue", "pt-BR"]
    tokens = (
        "zho_Hans zho_Hant zho_Hant swh_Latn pes_Arab pes_Arab prs_Arab deu_Latn yue_Hant por_Latn"
    )
    assert languages(subwords.split([Sentence(("a",), tag) for tag in tags])) == tokens
    assert languages(subwords.split(one)) == "fra_Latn fra_Latn"
    assert languages(subwords.split([["a"]])) == "deu_Latn"  # the default is `src_lang`
    assert languages(subwords.split_texts(["a b"], lang="fr")) == "fra_Latn"
    assert (
        languages(SentencePooling.of(encoder, "subwords").split(encoder, one))
        == "fra_Latn fra_Latn"
    )
    for split, token in (
        (first.with_first([one]), "fr_XX"),
        (first.split([Sentence(("a",), "pt-BR")]), "pt_XX"),
    ):
        assert first.tokenizer.convert_ids_to_tokens(int(split.ids[0])) == token
    for lang, some in (
        ("sr-Latn", ""),
        ("tlh", r"; use one of ace_Arab, .* \(202 in all\), or a two-"),
    ):
        with pytest.raises(SettingError, match=f"no token for the language '{lang}'{some}"):
            encoder.encode([Sentence(("a",), lang)])
    german, french = (encoder.encode([Sentence(("a",), lang)]).data for lang in ("de", "fr"))
    assert np.abs(german - french).max() > 1e-4


def test_marian_models_support_language_tokens_and_unknown_letters(tmp_path):
    slow, encoder = make("marian", tmp_path / "whole"), load_encoder(tmp_path / "whole")
    for words, text in (
        ([">>fr<<", "the", "harbour"], ">>fr<<the harbour"),
        (["the", "ɸ"], "the ɸ"),
    ):
        assert encoder.split([words]).ids.tolist() == slow(text).input_ids
    encoder.save(tmp_path / "saved")
    weights = load_file(file := tmp_path / "saved" / "model.safetensors")
    del weights["encoder.embed_positions.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    np.testing.assert_array_equal(
        load_encoder(tmp_path / "saved").encode(WORDS).data, encoder.encode(WORDS).data
    )


def test_folders_of_translation_models_have_no_modules_file(tmp_path):
    """Check that there is no modules.json: sentence-transformers would load the decoder."""
    make("mbart", tmp_path / "whole")
    load_encoder(tmp_path / "whole", layer=2).save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "modules.json").exists()


def test_models_without_a_usable_text_encoder_are_rejected(tmp_path):
    transformers.ProphetNetConfig(vocab_size=50).save_pretrained(tmp_path)
    with pytest.raises(
        SettingError,
        match=r"\(prophetnet\) whose decoder cannot be removed; supported models are T5",
    ):
        load_encoder(tmp_path)
    make("marian", tmp_path / "marian")
    good = (file := tmp_path / "marian" / "source.spm").read_bytes()
    for damaged, message in (
        (good[:-1], "could not parse"),
        (good + b"\x12\x02\x18\x03", "Unigram .*, got 3"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=message):
            load_encoder(tmp_path / "marian")
