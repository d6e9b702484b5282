"""Test that settings of a sentence-transformers folder change vectors as in sentence-transformers,
or are refused.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from calque.encoders import load_encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError, SettingError
from calque.text import Sentence, Sentences
from families import make_decoder

TEXTS = (
    "the cat sees a house of time and water in the harbour, unless the wind blows from the north",
    "Water",
    "Wir haben GESTERN drei Bücher über Vögel [SEP] gekauft.",
)
BERT = "sentence_bert_config.json"
WHOLE = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"


@pytest.fixture(scope="module")
def decoder_folder(tmp_path_factory):
    return make_decoder("llama", tmp_path_factory.mktemp("llama"))


def library():
    reason = "needs sentence-transformers: pip install 'calque-align[sentence-transformers]'"
    return pytest.importorskip("sentence_transformers", reason=reason)


def sentence_model(folder, target, mode="mean", **limits):
    """Save a sentence-transformers model around a saved encoder."""
    library()
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    model = Transformer(str(folder), **limits)
    SentenceTransformer(modules=[model, Pooling(32, pooling_mode=mode)], device="cpu").save(
        str(target)
    )
    return target


def change(folder, file, settings):
    path = folder / file
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**content, **settings}))


def theirs(folder, texts=TEXTS, **how):
    return library().SentenceTransformer(str(folder), device="cpu").encode(list(texts), **how)


def ours(folder, texts=TEXTS, **how):
    encoder = load_encoder(folder, device="cpu", **how)
    text = Sentences.of([text.split(" ") for text in texts], "en")
    return sentence_vectors(encoder, text, SentencePooling.of(encoder, "own")).data


def close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


APPLIED = [
    (WHOLE, {"truncate_dim": 16}),
    (WHOLE, {"truncate_dim": 500}),
    (
        WHOLE,
        {
            "prompts": {"query": "the cat: ", "passage": "a house: "},
            "default_prompt_name": "passage",
        },
    ),
    (
        WHOLE,
        {"prompts": {"text": None}, "default_prompt_name": "query", "similarity_fn_name": "dot"},
    ),
    (BERT, {"max_seq_length": 7}),
    (BERT, {"tokenizer_args": {"model_max_length": 8}}),
    (BERT, {"max_seq_length": 20, "processor_kwargs": {"model_max_length": 8}}),
    (BERT, {"processor_kwargs": {"truncation_side": "left", "model_max_length": 9}}),
    (BERT, {"tokenizer_args": {"split_special_tokens": True}}),
    (BERT, {"tokenizer_args": {"pad_token": "[SEP]", "use_fast": True}}),
    (BERT, {"processing_kwargs": {"text": {"max_length": 6, "truncation": True}}}),
    (BERT, {"processing_kwargs": {"text": {"padding": "longest"}, "image": {"size": 3}}}),
    (BERT, {"do_lower_case": True}),
    (BERT, {"config_args": {"num_hidden_layers": 2}}),
    (BERT, {"config_kwargs": {"hidden_act": "relu", "output_hidden_states": True}}),
    (BERT, {"model_args": {"attn_implementation": "eager", "torch_dtype": "float32"}}),
    (BERT, {"unpad_inputs": False, "query_length": 5, "document_length": 6}),
    (TOKENIZER, {"truncation_side": "left", "model_max_length": 9}),
    (TOKENIZER, {"split_special_tokens": True}),
    (TOKENIZER, {"do_lower_case": True}),
]


@pytest.mark.parametrize(
    ("file", "settings"), APPLIED, ids=[str(settings)[:60] for _, settings in APPLIED]
)
def test_settings_are_applied_as_in_sentence_transformers_before_and_after_saving(
    file, settings, tiny_folder, tmp_path
):
    folder = sentence_model(tiny_folder, tmp_path / "st", max_seq_length=12)
    if (
        "model_max_length" in settings
    ):  # the limit of the module would override that of the tokenizer
        (folder / BERT).unlink()
    change(folder, file, settings)
    expected = theirs(folder)
    close(ours(folder), expected)
    load_encoder(folder, device="cpu").save(tmp_path / "saved")
    close(ours(tmp_path / "saved"), expected)
    close(theirs(tmp_path / "saved"), expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"add_eos_token": True},
        {"add_bos_token": False},
        {"model_max_length": 5},
        {"padding_side": "left"},
    ],
    ids=str,
)
def test_arguments_of_a_decoders_tokenizer_are_applied(settings, decoder_folder, tmp_path):
    folder = sentence_model(decoder_folder, tmp_path / "st", mode="lasttoken")
    change(folder, BERT, {"tokenizer_args": {"pad_token": "</s>", **settings}})
    close(ours(folder, layer=-1), theirs(folder))


def test_a_limit_above_that_of_the_tokenizer_is_applied(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    change(folder, TOKENIZER, {"model_max_length": 8})
    change(folder, BERT, {"max_seq_length": 15})
    close(ours(folder), theirs(folder))
    close(ours(folder, max_length=6), theirs(folder, processing_kwargs={"text": {"max_length": 6}}))


def test_folders_whose_model_is_in_a_subfolder_can_be_opened_and_saved(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    inner = folder / "0_Transformer"  # as in the first versions of sentence-transformers
    inner.mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        if file.name not in ("modules.json", WHOLE, "README.md"):
            file.rename(inner / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    change(inner, BERT, {"max_seq_length": 7})
    expected = theirs(folder)
    close(ours(folder), expected)
    encoder = load_encoder(folder)
    encoder.save(tmp_path / "saved")
    close(ours(tmp_path / "saved"), expected)
    close(theirs(tmp_path / "saved"), expected)
    assert encoder.name == "st"


def test_settings_in_a_file_with_an_earlier_name_are_applied(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    (folder / BERT).unlink()
    (folder / "sentence_roberta_config.json").write_text('{"max_seq_length": 6}')
    close(ours(folder), theirs(folder))


def test_a_layer_can_be_chosen_even_if_the_folder_sets_the_number_of_layers(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    change(folder, BERT, {"config_kwargs": {"num_hidden_layers": 2}})
    encoder = load_encoder(folder, layer=1)
    assert (encoder.n_layers, encoder.layer) == (2, 1)
    encoder.save(tmp_path / "saved")
    assert load_encoder(tmp_path / "saved").layer == 1
    close(ours(tmp_path / "saved"), theirs(tmp_path / "saved"))


REFUSED = [
    (
        WHOLE,
        {"model_type": "SparseEncoder"},
        "model_type must be SentenceTransformer, got 'SparseEncoder'",
    ),
    (WHOLE, {"rotate_dims": 3}, "rotate_dims is not a setting of sentence-transformers 5 or 6"),
    (WHOLE, {"truncate_dim": -1}, "truncate_dim must be a positive integer, got -1"),
    (WHOLE, {"similarity_fn_name": "maxsim"}, "similarity_fn_name must be one of cosine, dot"),
    (
        WHOLE,
        {"default_prompt_name": "missing", "prompts": {"a": "b"}},
        "default_prompt_name must be one of a, got 'miss",
    ),
    (WHOLE, {"default_prompt_name": {"a": {}}}, "default_prompt_name must be one of"),
    (WHOLE, {"similarity_fn_name": [1]}, "similarity_fn_name must be one of cosine, dot"),
    (BERT, {"new_setting": 1}, "new_setting is not supported; was the folder written by a later"),
    (BERT, {"max_seq_length": True}, "max_seq_length must be a positive integer, got True"),
    (
        BERT,
        {"processor_kwargs": {"vocab_file": "/etc/passwd"}},
        "processor_kwargs.vocab_file = '/etc/passwd' is not supp",
    ),
    (
        BERT,
        {"tokenizer_args": {"use_fast": False}},
        "processor_kwargs.use_fast = False is not supported",
    ),
    (BERT, {"tokenizer_args": ["a"]}, "processor_kwargs must be a JSON object"),
    (
        BERT,
        {"model_args": {"torch_dtype": "float16"}},
        "asks for weights in float16, but they are float32; load the enc",
    ),
    (
        BERT,
        {"model_kwargs": {"dtype": "int8"}},
        "dtype must be one of float32, float16, bfloat16 or auto, got 'int8'",
    ),
    (
        BERT,
        {"model_kwargs": {"attn_implementation": "somebody/kernel"}},
        "attn_implementation 'somebody/kernel' is not",
    ),
    (
        BERT,
        {"model_kwargs": {"quantization_config": {}}},
        "model_kwargs.quantization_config is not supported",
    ),
    (
        BERT,
        {"config_kwargs": {"auto_map": {"AutoModel": "a.B"}}},
        "config_kwargs.auto_map is not supported",
    ),
    (
        BERT,
        {"config_args": {"_attn_implementation": "a/b"}},
        "config_kwargs._attn_implementation is not supported",
    ),
    (
        BERT,
        {"processing_kwargs": {"text": {"add_special_tokens": False}}},
        "text.add_special_tokens = False is not supp",
    ),
    (
        BERT,
        {"processing_kwargs": {"text": {"truncation": False}}},
        "processing_kwargs.text.truncation = False is not",
    ),
    (
        BERT,
        {"transformer_task": "fill-mask"},
        "transformer_task must be feature-extraction, got 'fill-mask'",
    ),
    (
        BERT,
        {"module_output_name": "scores"},
        "module_output_name must be token_embeddings, got 'scores'",
    ),
    (BERT, {"tokenizer_name_or_path": "other/one"}, "tokenizer_name_or_path is not supported"),
    (
        BERT,
        {"query_expansion": {"strategy": "fixed", "length": 8}},
        "query_expansion is not supported",
    ),
    (BERT, {"do_lower_case": "yes"}, "do_lower_case must be true or false, got 'yes'"),
    (
        BERT,
        {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
        "modality_config must use the last hidden state for text",
    ),
    (
        BERT,
        {
            "modality_config": {
                "text": {},
                "message": {"method": "forward", "method_output_name": "last_hidden_state"},
            }
        },
        "modality_config must use the last hidden state for text, without a chat template",
    ),
    (
        "1_Pooling/config.json",
        {"attend": 1},
        "config.json: attend is not supported; set the sentence pooling to words",
    ),
    (
        "2_Normalize/config.json",
        {"module_input_name": "token_embeddings"},
        "only sentence vectors can be L2-normalised",
    ),
    ("3_Dense/config.json", {"use_residual": True}, "residual connections and inputs other than"),
    (
        "3_Dense/config.json",
        {"module_output_name": "other"},
        "residual connections and inputs other than",
    ),
    ("3_Dense/config.json", {"scale": 2}, "config.json: scale is not supported"),
    (
        "3_Dense/config.json",
        {"activation_function": "mine.Tanh"},
        "the activation must be one of Identity, Tanh",
    ),
]


@pytest.mark.parametrize(
    ("file", "settings", "said"), REFUSED, ids=[said[:60] for _, _, said in REFUSED]
)
def test_settings_that_cannot_be_applied_are_refused(file, settings, said, tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    modules = json.loads((folder / "modules.json").read_text())
    for number, kind in ((2, "Normalize"), (3, "Dense")):
        path = f"{number}_{kind}"
        (folder / path).mkdir()
        modules.append(
            {
                "idx": number,
                "name": path,
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
    (folder / "modules.json").write_text(json.dumps(modules))
    dense = {
        "in_features": 32,
        "out_features": 4,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "3_Dense" / "config.json").write_text(json.dumps(dense))
    save_file({"linear.weight": torch.ones(4, 32)}, folder / "3_Dense" / "model.safetensors")
    assert ours(folder).shape == (3, 4)
    change(folder, file, settings)
    with pytest.raises((SettingError, InputError), match=re.escape(said)) as caught:
        ours(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [0, 1])
def test_modules_from_other_packages_are_refused(number, tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    modules = json.loads((folder / "modules.json").read_text())
    modules[number]["type"] = "custom_st." + modules[number]["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(SettingError, match=r"custom_st\.(Transformer|Pooling)"):
        ours(folder)


def test_incomplete_lists_of_modules_are_refused(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "1_Pooling").rmdir()
    with pytest.raises(InputError, match=r"1_Pooling/config.json: not a JSON object"):
        ours(folder)
    (folder / "modules.json").write_text('{"0": ""}')
    with pytest.raises(InputError, match=r"modules.json: not a list of modules"):
        load_encoder(folder)


def test_half_precision_is_used_if_it_is_requested(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    change(folder, BERT, {"model_kwargs": {"torch_dtype": "bfloat16"}})
    found, expected = ours(folder, dtype="bfloat16"), theirs(folder).astype(np.float32)
    np.testing.assert_allclose(
        found, expected, atol=0.1 * np.abs(expected).max()
    )  # the precision of bfloat16


PROMPTS = {"query": "the cat: ", "passage": "a house: "}


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("query", "the cat: "), ("passage", "a house: "), ("in time: ", "in time: "), ("", "")],
)
def test_a_prompt_is_given_by_its_name_or_as_text(prompt, text, tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    change(folder, WHOLE, {"prompts": PROMPTS, "default_prompt_name": "query"})
    encoder = load_encoder(folder)
    found = sentence_vectors(encoder, list(TEXTS), SentencePooling.of(encoder, prompt=prompt)).data
    close(found, theirs(folder, prompt=text))
    assert SentencePooling.of(encoder, "subwords", prompt=prompt).prompt == text


def test_prompts_that_do_not_exist_or_do_not_apply_are_refused(tiny_folder, tmp_path):
    folder = sentence_model(tiny_folder, tmp_path / "st")
    change(folder, WHOLE, {"prompts": PROMPTS})
    encoder = load_encoder(folder)
    with pytest.raises(
        SettingError, match=r"has no prompt named 'qurey', only .*query, passage; give one of these"
    ):
        SentencePooling.of(encoder, prompt="qurey")
    with pytest.raises(
        SettingError, match="a prompt requires the sentence pooling own, subwords or cls, got words"
    ):
        SentencePooling.of(encoder, "words", prompt="query")
    change(folder, "1_Pooling/config.json", {"include_prompt": False})
    assert SentencePooling.of(encoder).prompt == ""
    with pytest.raises(
        SettingError, match="excluding the prompt 'the cat: ' from the mean is not supported"
    ):
        SentencePooling.of(encoder, prompt="query")


def test_lists_of_strings_words_and_sentences_are_encoded(tiny_encoder):
    words = [text.split() for text in TEXTS]
    expected = sentence_vectors(
        tiny_encoder, Sentences.of(words), SentencePooling.of(tiny_encoder)
    ).data
    for given in (
        list(TEXTS),
        words,
        [Sentence(tuple(each), "en") for each in words],
        np.array(TEXTS),
    ):
        np.testing.assert_allclose(sentence_vectors(tiny_encoder, given).data, expected, atol=1e-5)
    mixed = [
        Sentence(tuple(words[0]), "de"),
        Sentence(tuple(words[1]), "en"),
        Sentence(tuple(words[2]), "de"),
    ]
    np.testing.assert_allclose(sentence_vectors(tiny_encoder, mixed).data, expected, atol=1e-5)
    assert sentence_vectors(tiny_encoder, []).data.shape[0] == 0
    with pytest.raises(SettingError, match="must be a list of sentences, got one string; try"):
        sentence_vectors(tiny_encoder, "the cat")
