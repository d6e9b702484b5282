"""Build fast tokenizers from the SentencePiece files of Marian and M2M100, for which `transformers` has only slow ones."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from calque.errors import InputError

_FILES = {"marian": "source.spm", "m2m_100": "sentencepiece.bpe.model"}
# Languages of the tokens after the vocabulary, in the order of ids, by the setting `language_codes` of M2M100's tokenizer.
_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig "
        "ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl "
        "so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_NORMAL, _USER_DEFINED = 1, 4  # types of pieces that text is split into
_UNIGRAM, _BPE = 1, 2  # types of models
# Score of pieces of the other language, lower than any split into pieces of the file.
_FOREIGN = -1e4


def read_tokenizer(name: str, kind: str, where: Mapping[str, Any]) -> Any:
    """Return a fast tokenizer of a folder or of a name on the hub, built from SentencePiece files if there is no tokenizer.json.

    Args:
        kind: `model_type` of the model's configuration.
        where: options of `from_pretrained`.
    """
    pieces = vocabulary = None
    if kind in _FILES and _file(name, "tokenizer.json", where) is None:
        pieces, vocabulary = _file(name, _FILES[kind], where), _file(name, "vocab.json", where)
    if pieces is None or vocabulary is None:
        return AutoTokenizer.from_pretrained(name, **where)
    about = _file(name, "tokenizer_config.json", where)
    settings = {} if about is None else json.loads(about.read_text(encoding="utf-8"))
    codes = _LANGUAGES[settings.get("language_codes") or "m2m100"].split() if kind == "m2m_100" else []
    languages, first = [f"__{code}__" for code in codes], f"__{settings.get('src_lang') or 'en'}__" if codes else ""
    try:
        backend = fast_tokenizer(
            pieces.read_bytes(), json.loads(vocabulary.read_text(encoding="utf-8")), languages, first
        )
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"not a SentencePiece model ({error})", path=pieces) from error
    names = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    names |= {"bos_token": "<s>", "sep_token": "</s>"} if languages else {}
    limit = settings.get("model_max_length") or (int(1e30) if languages else 512)
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **names)


def fast_tokenizer(spm: bytes, vocabulary: dict[str, int], languages: list[str], first: str) -> Tokenizer:
    """Build a tokenizer that splits text with a SentencePiece model and uses the ids of a vocabulary.

    It differs from `MarianTokenizer` in two points: pieces of the model outside the vocabulary are not used, where Marian's
    become unknown; and unknown text is split into pieces of the other language, where Marian looks up the whole text.

    Args:
        spm: SentencePiece model, Unigram or BPE.
        vocabulary: id of each piece, from 0 without gaps.
        languages: language tokens, whose ids follow the vocabulary.
        first: language token before a text, or "".

    Raises:
        InputError: the model has another type, or the vocabulary has gaps.
    """
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))) or "<unk>" not in vocabulary:
        raise InputError("vocab.json has gaps or no <unk>, expected an id from 0 on for each piece")
    message = list(_fields(spm))
    pieces = [dict(_fields(value)) for number, value in message if number == 1]
    scores = {
        str(piece[1], "utf-8"): struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
        for piece in pieces
        if piece.get(3, _NORMAL) in (_NORMAL, _USER_DEFINED)
    }
    trainer, norm = (dict(_fields(next((value for n, value in message if n == field), b""))) for field in (2, 3))
    if trainer.get(3, _UNIGRAM) == _UNIGRAM:
        model = models.Unigram([(token, scores.get(token, _FOREIGN)) for token in tokens], unk_id=vocabulary["<unk>"])
    elif trainer[3] == _BPE:
        known = {piece: score for piece, score in scores.items() if piece in vocabulary}
        model = models.BPE(vocab=vocabulary, merges=_merges(known, vocabulary), unk_token="<unk>", fuse_unk=True)
    else:
        raise InputError(f"SentencePiece model of type {trainer[3]}, expected Unigram (1) or BPE (2)")
    backend = Tokenizer(model)
    steps: list[Any] = [normalizers.Precompiled(norm[2])] if norm.get(2) else []
    if norm.get(4, 1):  # remove_extra_whitespaces
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if norm.get(3, 1) else "never"  # add_dummy_prefix
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    targets = [token for token in tokens if token.startswith(">>") and token.endswith("<<")]
    backend.add_tokens([AddedToken(token, normalized=False) for token in targets])
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in languages])
    special = [(token, backend.token_to_id(token)) for token in ("</s>", first) if token]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A </s>".strip(), pair=f"{first} $A $B </s>".strip(), special_tokens=special
    )
    return backend


def _merges(scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a BPE model, highest score first."""
    pairs = []
    for piece, score in scores.items():
        parts = [(piece[:place], piece[place:]) for place in range(1, len(piece))]
        pairs += [(-score, vocabulary[a], vocabulary[b], a, b) for a, b in parts if a in scores and b in scores]
    return [(a, b) for *_, a, b in sorted(pairs)]


def _file(name: str, file: str, where: Mapping[str, Any]) -> Path | None:
    """Return the path of a file in a folder or of a name on the hub, or None."""
    if os.path.isdir(name):
        return path if (path := Path(name, file)).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(hf_hub_download(name, file, local_files_only=where["local_files_only"]))
    except (OSError, ValueError, HfHubHTTPError):  # absent, private or offline
        return None


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message: integers as int, other values as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, place = _varint(message, place)
            value, place = message[place : place + size], place + size
        yield key >> 3, value
    if place > len(message):
        raise IndexError("it ends within a field")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return an integer of variable length and the position after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
