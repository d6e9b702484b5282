"""Convert Marian and M2M100 tokenizers to fast tokenizers, which `transformers` does not
provide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.normalizers import Normalizer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import import_protobuf

from calque.errors import InputError

# Score of vocabulary pieces that the source language's model lacks. Any segmentation without such
# pieces scores higher.
_FOREIGN = -1e4


def fast_tokenizer(slow: Any) -> PreTrainedTokenizerFast:
    """Return a fast tokenizer with the SentencePiece model, the vocabulary and the language tokens
    of a slow tokenizer.

    The result differs from `MarianTokenizer` in two ways. Pieces outside the vocabulary are not
    used, whereas `MarianTokenizer` maps them to `<unk>`. Unknown text is split into pieces of the
    target language; `MarianTokenizer` looks it up as one piece.

    Args:
        slow: slow tokenizer, a `MarianTokenizer` or `M2M100Tokenizer`.

    Raises:
        InputError: the model is neither Unigram nor BPE, or the vocabulary ids are not consecutive.
    """
    # language tokens, whose ids follow the vocabulary
    languages = list(getattr(slow, "lang_token_to_id", ()))
    first = slow.get_lang_token(slow.src_lang) if languages else ""
    vocabulary: dict[str, int] = slow.encoder
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise InputError("the ids in vocab.json must be consecutive and start at 0")
    spm: Any = import_protobuf().ModelProto()  # type: ignore[attr-defined]
    processor = slow.sp_model if languages else slow.spm_source
    spm.ParseFromString(processor.serialized_model_proto())
    norm = spm.normalizer_spec
    backend = Tokenizer(_segmentation_model(spm, vocabulary, tokens))
    backend.normalizer = _normalizer(norm)
    scheme = "always" if norm.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    targets = [token for token in tokens if token.startswith(">>") and token.endswith("<<")]
    backend.add_tokens([AddedToken(token, normalized=False) for token in targets])
    # The language tokens get the ids after the vocabulary, as in the slow tokenizer.
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in languages])
    special = [(token, backend.token_to_id(token)) for token in ("</s>", first) if token]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A </s>".strip(),
        pair=f"{first} $A $B </s>".strip(),
        special_tokens=special,
    )
    names = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    if languages:
        names |= {"bos_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=slow.model_max_length, **names
    )


def _normalizer(spec: Any) -> Normalizer:
    """Return the normaliser of `tokenizers` for a `NormalizerSpec` of SentencePiece."""
    steps: list[Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    return normalizers.Sequence(steps)


def _segmentation_model(spm: Any, vocabulary: dict[str, int], tokens: list[str]) -> models.Model:
    """Return the Unigram or BPE model of `tokenizers` for a SentencePiece model; `tokens` lists the
    vocabulary by id.
    """
    scores = {}
    for piece in spm.pieces:
        if piece.type in (piece.NORMAL, piece.USER_DEFINED):
            scores[piece.piece] = piece.score
    trainer = spm.trainer_spec
    if trainer.model_type == trainer.UNIGRAM:
        token_scores = [(token, scores.get(token, _FOREIGN)) for token in tokens]
        return models.Unigram(token_scores, unk_id=vocabulary["<unk>"])
    if trainer.model_type == trainer.BPE:
        known = {piece: score for piece, score in scores.items() if piece in vocabulary}
        merges = _merges(known, vocabulary)
        return models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True)
    raise InputError(
        f"SentencePiece models must be of type Unigram (1) or BPE (2), got {trainer.model_type}"
    )


def _merges(scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a BPE model in order of decreasing score."""
    ranked = []
    for piece, score in scores.items():
        # A piece can be merged from each pair of pieces that it consists of.
        for place in range(1, len(piece)):
            first, second = piece[:place], piece[place:]
            if first in scores and second in scores:
                ranked.append((-score, vocabulary[first], vocabulary[second], first, second))
    return [(first, second) for _, _, _, first, second in sorted(ranked)]
