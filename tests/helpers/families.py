"""Tiny models of common families, with tokenizers trained in memory, saved in `transformers`
format.

Each model has the tokenizer pipeline, classes and special tokens of the family's published
checkpoints. The random weights are large enough for the hidden states of the layers to differ.

"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    ModernBertConfig,
    Olmo2Config,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    XLMRobertaConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

from calque.senses.masked import train_wordpiece

# Text written for these tests.
TEXT = """\
The old ferry leaves the harbour at seven, unless the wind blows from the north.
She didn't believe that (re)reading 42 letters would take until 18:30.
Der alte Fährmann öffnete die Tür und grüßte die Gäste aus Übersee.
Wir haben gestern drei Bücher über Vögel, Käfer und Flüsse gekauft.
El niño corrió hacia la montaña; ¿quién le había enseñado a nadar?
L'été dernier, nous avons mangé des crêpes près du château d'eau.
Старый паром уходит из гавани в семь часов, если нет ветра.
Момчето прочете три книги за птици и реки.
Yaşlı kaptan sabah yedide limandan ayrıldı, çünkü rüzgâr dinmişti.
老船长早上七点离开了港口，因为风停了。
彼女は図書館で三冊の本を読みました。
שלום לכולם, הספינה יוצאת בשבע.
غادرت السفينة الميناء في الساعة السابعة.
बूढ़ा नाविक सुबह सात बजे निकल गया।
เรือออกจากท่าตอนเจ็ดโมงเช้า
the cat sees a house of time and water in the harbour
[note] <tag> a/b = c & d_e@f #1 % $ £ € ^ ~
` | \\ { } * + "quoted" </s> <s> [SEP]
[CLS] [MASK] <mask> <pad>
""".splitlines()

VOCABULARY = 400
#: decoder architectures: the configuration class, and whether a sentence begins with a special
#: token
DECODERS = {
    "gemma3": (Gemma3TextConfig, True),
    "llama": (LlamaConfig, True),
    "mistral": (MistralConfig, True),
    "qwen3": (Qwen3Config, False),
    "olmo2": (Olmo2Config, False),
}
_ANGLED = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_SQUARE = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def _ends(tokenizer: Tokenizer, first: str | None, last: str | None) -> processors.PostProcessor:
    names = [name for name in (first, last) if name]
    return processors.TemplateProcessing(
        single=[part for part in (first, "$A", last) if part],
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in names],
    )


def _wordpiece() -> Tokenizer:
    # The trainer in `tokenizers` creates a different vocabulary in every run.
    tokenizer = train_wordpiece(TEXT, size=VOCABULARY)._tokenizer
    tokenizer.post_processor = _ends(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def _byte_level(special: list[str], first: str | None, last: str | None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY + 100,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    if first or last:
        tokenizer.post_processor = _ends(tokenizer, first, last)
    return tokenizer


def _unigram(special: list[str], unknown: str, first: str | None, last: str) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=special, unk_token=unknown, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = _ends(tokenizer, first, last)
    return tokenizer


def _tokenizer(family: str) -> tuple[Tokenizer, dict]:
    """Return the tokenizer of a family and the content of its tokenizer_config.json."""
    if family in ("bert", "distilbert", "electra"):
        name = {
            "bert": "BertTokenizer",
            "distilbert": "DistilBertTokenizer",
            "electra": "ElectraTokenizer",
        }[family]
        about = {
            "tokenizer_class": name,
            "do_lower_case": False,
            "strip_accents": False,
            "model_max_length": 64,
        }
        return _wordpiece(), about | _SQUARE
    if family == "roberta":
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        about = {
            "tokenizer_class": "RobertaTokenizer",
            "add_prefix_space": False,
            "model_max_length": 64,
        }
        return _byte_level(special, "<s>", "</s>"), about | _ANGLED
    if family == "xlm-roberta":
        tokenizer = _unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>", "<s>", "</s>")
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        return tokenizer, {
            "tokenizer_class": "XLMRobertaTokenizer",
            "model_max_length": 64,
        } | _ANGLED
    if family == "deberta-v2":
        tokenizer = _unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[UNK]", "[CLS]", "[SEP]")
        tokenizer.add_special_tokens(["[MASK]"])
        about = {
            "tokenizer_class": "DebertaV2Tokenizer",
            "model_max_length": int(1e30),
            "do_lower_case": False,
        }
        return tokenizer, about | _SQUARE | {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    if family == "modernbert":
        special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
        return _byte_level(special, "[CLS]", "[SEP]"), about | _SQUARE
    if family == "gpt2":
        end = "<|endoftext|>"
        about = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 64}
        return _byte_level([end], None, None), about | {
            "bos_token": end,
            "eos_token": end,
            "unk_token": end,
        }
    if family == "t5":
        tokenizer = _unigram(["<pad>", "</s>", "<unk>"], "<unk>", None, "</s>")
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
        return tokenizer, about | {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    raise ValueError(family)


def _config(family: str, tokenizer: Tokenizer):
    size, ids = tokenizer.get_vocab_size(), tokenizer.token_to_id
    shape = dict(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=48,
        initializer_range=0.2,
    )
    if family == "bert":
        return BertConfig(**shape, max_position_embeddings=64, pad_token_id=ids("[PAD]"))
    if family == "electra":
        return ElectraConfig(
            **shape, embedding_size=16, max_position_embeddings=64, pad_token_id=ids("[PAD]")
        )
    if family == "distilbert":
        return DistilBertConfig(
            vocab_size=size,
            dim=32,
            n_layers=3,
            n_heads=2,
            hidden_dim=48,
            initializer_range=0.2,
            max_position_embeddings=64,
            pad_token_id=ids("[PAD]"),
        )
    if family in (
        "roberta",
        "xlm-roberta",
    ):  # published models have 514 positions, of which 512 can be used
        kind = RobertaConfig if family == "roberta" else XLMRobertaConfig
        return kind(
            **shape,
            max_position_embeddings=66,
            type_vocab_size=1,
            pad_token_id=ids("<pad>"),
            bos_token_id=ids("<s>"),
            eos_token_id=ids("</s>"),
        )
    if family == "deberta-v2":
        return DebertaV2Config(
            **shape,
            max_position_embeddings=64,
            relative_attention=True,
            position_buckets=16,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            type_vocab_size=0,
            max_relative_positions=-1,
            pad_token_id=ids("[PAD]"),
        )
    if family == "modernbert":
        return ModernBertConfig(
            **shape,
            max_position_embeddings=64,
            pad_token_id=ids("[PAD]"),
            cls_token_id=ids("[CLS]"),
            sep_token_id=ids("[SEP]"),
            bos_token_id=ids("[CLS]"),
            eos_token_id=ids("[SEP]"),
            local_attention=8,
            global_attn_every_n_layers=2,
        )
    if family == "gpt2":
        return GPT2Config(
            vocab_size=size,
            n_positions=64,
            n_embd=32,
            n_layer=3,
            n_head=2,
            initializer_range=0.2,
            bos_token_id=0,
            eos_token_id=0,
        )
    if family == "t5":
        return T5Config(
            vocab_size=size,
            d_model=32,
            d_kv=16,
            d_ff=48,
            num_layers=3,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=ids("<pad>"),
            eos_token_id=ids("</s>"),
        )
    raise ValueError(family)


def make_family(family: str, folder: Path) -> Path:
    """Write a tiny model of the family and its tokenizer to `folder`; the weights are the same in
    every call.
    """
    tokenizer, about = _tokenizer(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(family))
        model = MODEL_MAPPING[type(config := _config(family, tokenizer))](config)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def make_decoder(layout: str, folder: Path) -> Path:
    """Write a tiny decoder with an LM head and its tokenizer to `folder`; the weights are the same
    in every call.
    """
    kind, begins = DECODERS[layout]
    tokenizer = _byte_level(["<pad>", "<s>", "</s>"], "<s>" if begins else None, None)
    local = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
    config = kind(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        head_dim=8,
        num_key_value_heads=2,
        intermediate_size=48,
        initializer_range=0.2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **(local if layout == "gemma3" else {}),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(layout))
        model = MODEL_FOR_CAUSAL_LM_MAPPING[kind](config)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder
