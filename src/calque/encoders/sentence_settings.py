"""Settings of sentence-transformers folders (versions 5 and 6): which ones calque applies, ignores
or refuses.

sentence-transformers reads its settings from two files: one next to the model
(`sentence_bert_config.json`, or a name from an earlier version) and
`config_sentence_transformers.json`. A setting that could change a vector is either applied, so that
the vectors stay equal, or refused with an error. It is never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from calque.errors import InputError, SettingError
from calque.storage import JsonObject, read_json_object

LIMIT_FILE, PROMPTS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
#: names of the file next to the model; sentence-transformers reads the first that contains a
#: setting
LIMIT_FILES = (
    LIMIT_FILE,
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
#: tasks of `encode_query` and `encode_document`, each with the names of its prompts, the first of
#: which is used
PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}

_RENAMED = {
    "model_args": "model_kwargs",
    "tokenizer_args": "processor_kwargs",
    "config_args": "config_kwargs",
}
#: settings that cannot change the vector of a text: file locations, memory, and how fast attention
#: is computed
_WITHOUT_EFFECT = {
    "model_kwargs": {
        "add_pooling_layer",
        "device_map",
        "low_cpu_mem_usage",
        "use_safetensors",
        "trust_remote_code",
    },
    "processor_kwargs": {
        "padding_side",
        "pad_token",
        "padding",
        "clean_up_tokenization_spaces",
        "legacy",
        "trust_remote_code",
    },
    "config_kwargs": {
        "output_hidden_states",
        "output_attentions",
        "return_dict",
        "use_cache",
        "add_pooling_layer",
        "pad_token_id",
        "id2label",
        "label2id",
        "num_labels",
        "trust_remote_code",
    },
}
_ATTENTIONS = (None, "eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
#: arguments of tokenizers that change subwords; calque loads the tokenizer with them
_OF_TOKENIZERS = {
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "bos_token",
    "cls_token",
    "do_lower_case",
    "eos_token",
    "keep_accents",
    "mask_token",
    "sep_token",
    "split_special_tokens",
    "src_lang",
    "strip_accents",
    "tgt_lang",
    "tokenize_chinese_chars",
    "truncation_side",
    "unk_token",
}
#: attributes of a configuration that name files, classes or code; a folder must not set them
_NOT_APPLIED = {
    "architectures",
    "auto_map",
    "code_revision",
    "experts_implementation",
    "model_type",
    "name_or_path",
    "quantization_config",
    "revision",
    "subfolder",
    "tokenizer_class",
    "transformers_version",
}
_DTYPES = ("float32", "float16", "bfloat16")
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_PLAIN_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}


@dataclass
class ModelSettings:
    """Settings in the file next to the model.

    Attributes:
        config: attributes of the model's configuration to set before the model is loaded.
        tokenizer: arguments for loading the tokenizer.
        max_length: maximum number of subwords in a text, including special tokens, or None.
        task_lengths: the same for queries and documents, keyed by task; without a value,
            `max_length` applies.
        lower: whether texts are lower-cased.
        dtype: weight type that the folder asks for, or None.
        refused: one message for each setting that calque does not support.
    """

    config: JsonObject = field(default_factory=dict)
    tokenizer: JsonObject = field(default_factory=dict)
    max_length: int | None = None
    task_lengths: dict[str, int] = field(default_factory=dict)
    lower: bool = False
    dtype: str | None = None
    refused: list[str] = field(default_factory=list)

    @property
    def longest(self) -> int | None:
        """The largest limit for any text, or None if there is no limit."""
        return max(
            (limit for limit in (self.max_length, *self.task_lengths.values()) if limit),
            default=None,
        )


@dataclass
class TextSettings:
    """Settings in `config_sentence_transformers.json`.

    Attributes:
        prompts: prompts by name; `default` is the prompt that is put before a text if no other is
            requested.
        truncate: number of dimensions that are kept at the end, or None for all dimensions.
        similarity: name of the similarity between two vectors.
    """

    prompts: dict[str, str] = field(default_factory=dict)
    default: str = ""
    truncate: int | None = None
    similarity: str = "cosine"


#: reads the value of one setting from a file into `ModelSettings`
_Reader: TypeAlias = Callable[[ModelSettings, object, Path], None]


# -- the file next to the model --------------------------------------------------------------------
def read_model_settings(folder: Path) -> ModelSettings:
    """Read the settings next to the model in a folder; all settings have their defaults if there is
    no such file.
    """
    settings = ModelSettings()
    content, path = _first_settings(folder)
    for name, value in content.items():
        name = _RENAMED.get(name, name)
        reader = _READERS.get(name)
        if reader is None:
            settings.refused.append(
                f"{name} is not supported; was the folder written by a later sentence-transformers?"
            )
        elif value is not None:
            reader(settings, value, path)
    _set_lengths(settings, content, path)
    return settings


def _first_settings(folder: Path) -> tuple[JsonObject, Path]:
    for name in LIMIT_FILES:
        content = read_object(folder / name, {})
        if content:
            return content, folder / name
    return {}, folder / LIMIT_FILE


def without_config(content: JsonObject) -> JsonObject:
    """Return the settings for a model saved by calque, whose own configuration already contains the
    changes.
    """
    kept = dict(content)
    for name in ("config_args", "config_kwargs"):
        if isinstance(kept.get(name), dict):
            keys = kept[name].keys() & _WITHOUT_EFFECT["config_kwargs"]
            kept[name] = {key: kept[name][key] for key in keys}
    return kept


def _set_lengths(settings: ModelSettings, content: JsonObject, path: Path) -> None:
    """Set the maximum lengths: `processing_kwargs` overrides `model_max_length`, which overrides
    the older `max_seq_length`.
    """
    renamed = {_RENAMED.get(name, name): value or {} for name, value in content.items()}
    processor = _mapping(renamed.get("processor_kwargs"))
    text_call = _mapping(_mapping(renamed.get("processing_kwargs")).get("text"))
    # The last length that is set applies.
    limits = {
        "max_seq_length": content.get("max_seq_length"),
        "model_max_length": processor.get("model_max_length"),
        "max_length": text_call.get("max_length"),
    }
    for name, value in limits.items():
        if value is not None:
            settings.max_length = _length(name, value, path)
    if limits["max_length"] is not None:
        return
    for task in PROMPT_NAMES:
        value = content.get(f"{task}_length")
        if value is not None:
            settings.task_lengths[task] = _length(f"{task}_length", value, path)


def _length(name: str, value: object, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a positive integer, got {value!r:.60}", path=path)
    return value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _read_model(settings: ModelSettings, value: object, path: Path) -> None:
    for name, setting in _checked("model_kwargs", value, path).items():
        if name in ("dtype", "torch_dtype"):
            _read_dtype(settings, name, setting)
        elif name == "attn_implementation":
            _read_attention(settings, setting)
        elif setting is not None:
            settings.refused.append(f"model_kwargs.{name} is not supported")


def _read_tokenizer(settings: ModelSettings, value: object, path: Path) -> None:
    for name, setting in _checked("processor_kwargs", value, path).items():
        if name == "model_max_length" or (name == "use_fast" and setting is not False):
            continue  # the limit is read by `_set_lengths`
        is_simple = isinstance(setting, str | bool | int) or setting is None
        if name in _OF_TOKENIZERS and is_simple:
            settings.tokenizer[name] = setting
        else:
            settings.refused.append(f"processor_kwargs.{name} = {setting!r:.60} is not supported")


def _read_config(settings: ModelSettings, value: object, path: Path) -> None:
    for name, setting in _checked("config_kwargs", value, path).items():
        is_attribute = name.isidentifier() and not name.startswith("_")
        if name in ("dtype", "torch_dtype"):
            _read_dtype(settings, name, setting)
        elif name == "attn_implementation":
            _read_attention(settings, setting)
        elif is_attribute and name not in _NOT_APPLIED and not isinstance(setting, dict):
            settings.config[name] = setting
        else:
            settings.refused.append(f"config_kwargs.{name} is not supported")


def _read_dtype(settings: ModelSettings, name: str, value: object) -> None:
    dtype = str(value).removeprefix("torch.")
    if dtype in _DTYPES:
        settings.dtype = dtype
    elif dtype != "auto" and value is not None:
        settings.refused.append(
            f"{name} must be one of {', '.join(_DTYPES)} or auto, got {value!r:.60}"
        )


def _read_attention(settings: ModelSettings, value: object) -> None:
    if value not in _ATTENTIONS:  # any other name refers to code that would be downloaded
        settings.refused.append(f"attn_implementation {value!r:.60} is not supported")


def _read_call(settings: ModelSettings, value: object, path: Path) -> None:
    """Read `processing_kwargs`, the arguments of every tokenizer call; only those for text are
    used.
    """
    parts = _checked("processing_kwargs", value, path)
    known = {
        "padding": (True, "longest", "max_length"),
        "truncation": (True, "longest_first"),
        "return_tensors": ("pt",),
    }
    for part in ("common", "text"):
        for name, setting in _mapping(parts.get(part)).items():
            if part == "text" and name == "max_length":
                continue  # read by `_set_lengths`
            if setting not in known.get(name, ()):
                settings.refused.append(
                    f"processing_kwargs.{part}.{name} = {setting!r:.60} is not supported"
                )
    for part in parts.keys() - {"common", "text", "audio", "image", "video", "chat_template"}:
        settings.refused.append(f"processing_kwargs.{part} is not supported")


def _read_modalities(settings: ModelSettings, value: object, path: Path) -> None:
    """Check that texts go through the plain forward pass; a chat template would change them."""
    modalities = _checked("modality_config", value, path)
    text = {**_PLAIN_TEXT, **_mapping(modalities.get("text"))}
    if text["method_output_name"] == ["last_hidden_state"]:
        text["method_output_name"] = "last_hidden_state"
    if "text" not in modalities or "message" in modalities or text != _PLAIN_TEXT:
        settings.refused.append(
            "modality_config must use the last hidden state for text, without a chat template"
        )


def _checked(name: str, value: object, path: Path) -> JsonObject:
    """Return the settings in a JSON object, except those without effect on vectors."""
    if not isinstance(value, dict):
        raise InputError(f"{name} must be a JSON object, got {value!r:.60}", path=path)
    ignored = _WITHOUT_EFFECT.get(name, ())
    return {key: setting for key, setting in value.items() if key not in ignored}


def _read_lower(settings: ModelSettings, value: object, path: Path) -> None:
    if not isinstance(value, bool):
        raise InputError(f"do_lower_case must be true or false, got {value!r:.60}", path=path)
    settings.lower = value


def _must_be(name: str, expected: str) -> _Reader:
    def read(settings: ModelSettings, value: object, path: Path) -> None:
        if value != expected:
            settings.refused.append(f"{name} must be {expected}, got {value!r:.60}")

    return read


def _refuse(name: str) -> _Reader:
    def read(settings: ModelSettings, value: object, path: Path) -> None:
        settings.refused.append(f"{name} is not supported")

    return read


def _skip(settings: ModelSettings, value: object, path: Path) -> None:
    """Do nothing: the setting is read elsewhere, or has no effect on vectors."""


#: functions that read one setting each, keyed by its name since version 6
_READERS: dict[str, _Reader] = {
    "model_kwargs": _read_model,
    "processor_kwargs": _read_tokenizer,
    "config_kwargs": _read_config,
    "processing_kwargs": _read_call,
    "modality_config": _read_modalities,
    "do_lower_case": _read_lower,
    "transformer_task": _must_be("transformer_task", "feature-extraction"),
    "module_output_name": _must_be("module_output_name", "token_embeddings"),
    "tokenizer_name_or_path": _refuse("tokenizer_name_or_path"),
    "query_expansion": _refuse("query_expansion"),
    "max_seq_length": _skip,
    "query_length": _skip,
    "document_length": _skip,
    "unpad_inputs": _skip,
    "backend": _skip,
    "cache_dir": _skip,
}


# -- config_sentence_transformers.json -------------------------------------------------------------
def read_text_settings(folder: Path) -> TextSettings:
    """Read the prompts and the settings for the whole model; raise SettingError for a setting that
    is not supported.
    """
    path = folder / PROMPTS_FILE
    return parse_text_settings(read_object(path, {}), path)


def parse_text_settings(content: Mapping[str, object], path: Path) -> TextSettings:
    """Check the content of `config_sentence_transformers.json`; see `read_text_settings`."""
    known = {
        "__version__",
        "requirements",
        "prompts",
        "default_prompt_name",
        "similarity_fn_name",
        "truncate_dim",
    }
    unknown = content.keys() - known - {"model_type"}
    if unknown:
        raise SettingError(
            not_supported(path, f"{min(unknown)} is not a setting of sentence-transformers 5 or 6")
        )
    model_type = content.get("model_type") or "SentenceTransformer"
    if model_type != "SentenceTransformer":
        raise SettingError(
            not_supported(path, f"model_type must be SentenceTransformer, got {model_type!r:.60}")
        )
    prompts = _prompts(content.get("prompts") or {}, path)
    name = content.get("default_prompt_name")
    if name is not None and (not isinstance(name, str) or name not in (*prompts, *PROMPT_NAMES)):
        raise InputError(
            f"default_prompt_name must be one of {', '.join(prompts)}, got {name!r:.60}", path=path
        )
    settings = TextSettings(prompts=prompts)
    if name is not None:
        settings.default = prompts.get(name, "")
    similarity = content.get("similarity_fn_name")
    if similarity is not None:
        settings.similarity = _similarity(similarity, path)
    truncate = content.get("truncate_dim")
    if truncate is not None:
        settings.truncate = _length("truncate_dim", truncate, path)
    return settings


def _similarity(name: object, path: Path) -> str:
    """Return the name of a similarity after checking it."""
    if not isinstance(name, str) or name not in _SIMILARITIES:
        raise InputError(
            f"similarity_fn_name must be one of {', '.join(_SIMILARITIES)}, got {name!r:.60}",
            path=path,
        )
    return name


def _prompts(prompts: object, path: Path) -> dict[str, str]:
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise InputError(f"prompts must map names to strings, got {prompts!r:.60}", path=path)
    return {name: text or "" for name, text in prompts.items()}


def not_supported(place: Path, fact: str) -> str:
    """Return an error message for a setting, with a remedy."""
    return f"{place}: {fact}; set the sentence pooling to words, subwords or cls"


def read_object(path: Path, otherwise: JsonObject | None = None) -> JsonObject:
    """Return the JSON object in a file, or `otherwise` if the file does not exist."""
    if otherwise is not None and not path.is_file():
        return otherwise
    return read_json_object(path, "not a JSON object as written by sentence-transformers")
