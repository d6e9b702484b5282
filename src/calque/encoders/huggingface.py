"""Word vectors from any `transformers` encoder."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from calque.encoders import folding
from calque.encoders import layers as passes
from calque.encoders.base import E
from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.checkpoint import (
    first_line,
    read_checkpoint,
    save_model,
    save_tokenizer,
    weights_digest,
)
from calque.encoders.folder import ABOUT_FILE, BASE_FOLDER, read_about, saving, write_about
from calque.encoders.numerics import check_precision, number_type, usable_device
from calque.encoders.sentence_folders import model_folder, modules_of
from calque.encoders.sentence_transformers import (
    MAPPED_MODULE,
    copy_modules,
    own_modules,
    read_recipe,
    write_layer,
    write_modules,
    write_outer_modules,
)
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords, stable_text
from calque.encoders.trainable import TrainableEncoder
from calque.errors import CalqueError, CalqueWarning, InputError, SettingError, similar_path
from calque.nn.pooling import POOLINGS, Pooling, chosen_subwords, pooled_words, word_means
from calque.offsets import offsets_of, ranges
from calque.storage import JsonObject, json_text, mapped_array
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

# Pooling of models whose folder and whose caller choose none. The mean is best for encoders; only
# the last subword of a decoder has read the whole word ("Layer and pooling" in dev/LOG.md).
_DEFAULT_POOLING: Pooling = "mean"
_DECODER_POOLING: Pooling = "last"
# pooling of folders that versions of calque without a recorded pooling wrote
_OLD_POOLING: Pooling = "last"
# arguments that are recorded in `calque.json`
_OPTIONS = ("layer", "pooling", "max_length", "precision", "bidirectional")
# configuration keys that only encoder-decoder models have
_DECODERS = {"decoder_layers", "num_decoder_layers"}
# pooling modes of sentence-transformers that are weighted means, whose weights add up to 1
_AFFINE_MODES = {"cls", "lasttoken", "mean", "weightedmean"}
STANDARD_FILE = "standardization.safetensors"
# training recomputes activations if they would take more than this number of bytes
_ACTIVATIONS = 1_000_000_000


class HuggingFaceEncoder(TrainableEncoder):
    """Encoder whose word vectors are hidden states from one layer of a `transformers` model.

    Layer 0 is the embedding output; layer L is the last layer, also called −1. The vectors of a
    sentence do not depend on the other sentences in its batch, except for relative differences up
    to 1e-5 in float32 (`precision` "highest", the default).

    Args:
        model: model whose `hidden_states` all have the same shape. Only the encoder of an
            encoder-decoder model is used.
        tokenizer: fast tokenizer of the model.
        layer, pooling, max_length, precision: see `load_encoder`.
        name: name shown in reports.
        bidirectional: whether the subwords of a decoder attend to all subwords of the sentence, as
            in LLM2Vec (BehnamGhader et al. 2024), instead of only to previous subwords; default:
            the setting in the model's configuration.

    Attributes:
        subwords: the encoder's subword splitter.
        standard: means and standard deviations `[2, dim]`, keyed by layer, of the layers with
            standardised word vectors (see `calque.encoders.standard`). Hidden states are not
            standardised.
        modules: folder of the sentence-transformers model whose modules `save` copies, or None.
        uses_decoder_layer: whether the layer is the default layer of a decoder.
        saved: which of the arguments "layer" and "pooling" the folder of the encoder recorded.

    Raises:
        SettingError: the model does not support a setting.
    """

    has_special_tokens = True

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        layer: int | None = None,
        pooling: Pooling | None = None,
        max_length: int | None = None,
        name: str = "",
        precision: str = "highest",
        bidirectional: bool | None = None,
    ):
        self.model: PreTrainedModel = model.eval()  # type: ignore[assignment]
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model.config, "name_or_path", "")) or type(model).__name__
        self.precision = check_precision(precision)
        if pooling is not None:
            check_pooling(pooling)
        self.modules: Path | None = None
        self.saved: frozenset[str] = frozenset()
        self.standard: dict[int, Tensor] = {}
        vocabulary = _vocabulary_size(model)
        self.subwords = Subwords(
            tokenizer, max_length=self._limit(max_length), vocabulary=vocabulary
        )
        self.max_length = self.subwords.max_length
        self.bidirectional = passes.attend_both_ways(model, bidirectional, self._probe())
        self.n_layers, self.dim, self._flat, self._shortened = passes.examine(model, self._probe())
        # Without padding, fewer but larger batches are faster.
        self.padding = 2.0 if self._flat else 1.2
        self._blocks = passes.find_blocks(model, self.n_layers)
        is_decoder = False
        if layer is None or pooling is None:
            is_decoder = self._is_decoder()
        if pooling is None:
            pooling = _DEFAULT_POOLING
            if is_decoder and not self.bidirectional:
                pooling = _DECODER_POOLING
        self.pooling: Pooling = check_pooling(pooling)
        # The last layers of a decoder are specialised in predicting the next word.
        self.uses_decoder_layer = layer is None and is_decoder
        if layer is None:
            layer = round(2 * self.n_layers / 3) if is_decoder else -1
        self.layer = self.layer_number(layer)
        if self.uses_decoder_layer:
            self.warn_of_default_layer(level=3)
        # The fastest batches on two cores fit in the CPU cache: 1,024 subwords of 128 dimensions,
        # or 512 of 768 dimensions.
        on_cpu = self.device.type == "cpu"
        self.budget = min(1024, max(512, 131_072 // self.dim)) if on_cpu else 16_384

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}, layer {self.layer} of {self.n_layers}, "
            f"{self.pooling}, {self.dim}d)"
        )

    # -- properties of the model -------------------------------------------------------------------
    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        return self.subwords.split(sentences)

    def split_sequences(self, texts: Sequence[Sentences]) -> SplitSentences:
        return self.subwords.with_first(texts, segments=passes.has_segments(self.model))

    def single_subwords(self, words: Sequence[str]) -> np.ndarray:
        """Return the id of each word that is a single subword, or −1; see `Subwords`."""
        return self.subwords.single_subwords(words)

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token, or None if the tokenizer has none."""
        return self.tokenizer.mask_token_id  # type: ignore[return-value]

    @property
    def lower(self) -> bool:
        """True if the tokenizer lower-cases words."""
        return bool(getattr(self.tokenizer, "do_lower_case", False))

    @property
    def place(self) -> str:
        """Folder or name on the hub that the model was loaded from; empty if it was built in
        Python.
        """
        return str(getattr(self.model, "name_or_path", ""))

    def last_hidden_states(self, batch: WordBatch) -> Tensor:
        """Return the model's output for subwords, `[B, T, dim]`, after its final norm if it has
        one.
        """
        output = self.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        return output.last_hidden_state

    def _probe(self) -> WordBatch:
        """Return a small batch with padding."""
        split = self.split([["a"] * 2, ["the", "a", "in"] * 3])
        return collate(split, np.arange(2)).to(self.device)

    def _is_decoder(self) -> bool:
        """Return whether the model was trained to predict the next token."""
        if self._flat:
            return False
        return self.bidirectional or passes.reads_left_to_right(self.model, self._probe())

    def warn_of_default_layer(self, *, level: int = 2) -> None:
        """Warn that no layer was set for a decoder, so that its default layer is used.

        Args:
            level: `stacklevel` of the warning.
        """
        fact = f"{self.name} is a decoder, so its default layer is {self.layer} of {self.n_layers}"
        remedy = (
            "set another layer with --layer, or compare layers with calque evaluate … retrieval "
            "--layers all"
        )
        warnings.warn(passes.DefaultLayerWarning(f"{fact}; {remedy}"), stacklevel=level)

    def _limit(self, wanted: int | None) -> int | None:
        """Return `wanted`, or by default the maximum number of subwords that the tokenizer and the
        model support.
        """
        limits = [self.tokenizer.model_max_length]
        positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        if positions > 0:
            # RoBERTa numbers positions from the padding id + 1, so 514 positions allow 512
            # subwords.
            unused = 0
            for name, part in self.model.named_modules():
                padding_id = getattr(part, "padding_idx", None)
                if name.endswith("position_embeddings") and padding_id is not None:
                    unused = max(unused, 1 + int(padding_id))  # type: ignore[arg-type]
            limits.append(positions - unused)
        limit = int(min(limits))
        if wanted is None:
            return limit
        if wanted > limit:
            raise SettingError(f"max_length must be at most {limit} for {self.name}, got {wanted}")
        return wanted

    # -- one batch ---------------------------------------------------------------------------------
    def forward(
        self, batch: WordBatch | Sequence[WordBatch], layers: Sequence[int]
    ) -> dict[int, Tensor]:
        batches = [batch] if isinstance(batch, WordBatch) else list(batch)
        numbers = {layer: self.layer_number(layer) for layer in layers}
        run = self._flat_forward if self.is_flat() else self._plain_forward
        vectors = run(batches, sorted(set(numbers.values())))
        for number in vectors.keys() & self.standard.keys():
            rows = vectors[number]
            covered = torch.cat([batch.lengths for batch in batches]) > 0
            mean, deviation = self.standard[number].to(rows.device)
            # Words without a vector keep a zero vector.
            vectors[number] = ((rows - mean) / deviation * covered[:, None]).to(rows.dtype)
        return {layer: vectors[number] for layer, number in numbers.items()}

    def _plain_forward(
        self, batches: Sequence[WordBatch], layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Compute word vectors with the forward pass of `transformers`, batch by batch."""
        self._save_memory(batches, max(layers))
        blocks = self._blocks if self._shortened else None
        vectors: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        for batch in batches:
            states = passes.states_up_to(self.model, batch, layers, blocks)
            for layer in layers:
                vectors[layer].append(self.pool(states[layer], batch))
        return {layer: torch.cat(parts) for layer, parts in vectors.items()}

    def _save_memory(self, batches: Sequence[WordBatch], top: int) -> None:
        """Enable gradient checkpointing (Chen et al. 2016) if activations would take more than 1
        GB.

        Gradients remain bitwise identical. The estimate per subword and layer is 16 vectors of the
        hidden size and 3 of the feed-forward size.
        """
        model = self.model
        trained = torch.is_grad_enabled() and model.training
        if not trained or not getattr(model, "supports_gradient_checkpointing", False):
            return
        inner_dim = getattr(model.config, "intermediate_size", None) or 4 * self.dim
        n_subwords = sum(batch.input_ids.numel() for batch in batches)
        n_bytes = 4 * n_subwords * top * (16 * self.dim + 3 * inner_dim)
        if n_bytes <= _ACTIVATIONS:
            return
        if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
            return  # it is enabled already
        # The method was renamed in transformers 5.
        enable = getattr(model, "activation_checkpointing_enable", None)
        if enable is None:
            enable = model.gradient_checkpointing_enable
        enable({"use_reentrant": False})

    def pool(self, states: Tensor, batch: WordBatch) -> Tensor:
        """Return word vectors `[W, dim]` from hidden states `[B, T, dim]`."""
        flat = states.reshape(-1, states.shape[-1])
        return pooled_words(flat, batch.starts, batch.lengths, self.pooling)

    # -- without padding ---------------------------------------------------------------------------
    def is_flat(self) -> bool:
        """Return whether `forward` currently uses the forward pass without padding
        (`bert_states`).
        """
        return (
            self._flat
            and isinstance(self.model, PreTrainedModel)
            and passes.is_bert_like(self.model)
        )

    def _flat_forward(
        self, batches: Sequence[WordBatch], layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Compute word vectors with the forward pass without padding."""
        starts = offsets_of([batch.n_subwords for batch in batches])[:-1].tolist()
        # index of each word's first subword among the subwords of all batches
        first = torch.cat(
            [batch.packed + start for batch, start in zip(batches, starts, strict=True)]
        )
        lengths = torch.cat([batch.lengths for batch in batches])
        rows = None
        if self.pooling != "mean":  # the highest layer is computed for these subwords only
            rows = chosen_subwords(first, lengths, self.pooling)
        x = passes.embedded(self.model, batches)
        states = passes.bert_states(self.model, x, batches, layers, rows)
        if rows is None:
            return {layer: word_means(states[layer], first, lengths) for layer in layers}
        return {layer: states[layer] * (lengths > 0)[:, None] for layer in layers}

    # -- readings ----------------------------------------------------------------------------------
    def read_as(self, layer: int | None = None, pooling: Pooling | None = None) -> Self:
        """Return an encoder with the same model that reads another layer or pools the subwords of a
        word differently.

        Args:
            layer, pooling: see `load_encoder`; default: those of this encoder.

        Raises:
            SettingError: there is no such layer, or the word vectors are standardised, because
                means and standard deviations apply only to the vectors they were computed from.
        """
        if self.standard:
            raise SettingError(
                f"the layer and the pooling of {self.name} cannot be changed, because its word "
                "vectors are standardised; load the encoder it was made from"
            )
        other = copy.copy(self)
        if layer is not None:
            other.layer, other.uses_decoder_layer = self.layer_number(layer), False
        if pooling is not None:
            other.pooling = check_pooling(pooling)
        return other

    def encode_readings(
        self, sentences: Sequence[Sentence | Sequence[str]], layers: Sequence[int]
    ) -> Iterator[tuple[int, Pooling, Embeddings]]:
        """Yield the word vectors of every layer and pooling. The model runs once; only one set of
        word vectors is held in memory besides the hidden states of all subwords.

        Args:
            sentences: a small number of sentences, such as a thousand.
            layers: numbers of the layers, counted from 0.
        """
        split = self.split(sentences)
        subwords = split.each_subword()
        states = {layer: mapped_array((len(split.ids), self.dim), np.float32) for layer in layers}
        with self.reading(layers) as vectors, torch.inference_mode():
            for batch in token_batches(split.lengths, self.budget):
                rows = ranges(split.offsets[batch], split.lengths[batch])
                # Each subword is a "word" here, so pooling leaves the hidden states unchanged.
                for layer, found in vectors(collate(subwords, batch)).items():
                    states[layer][rows] = found.to("cpu", torch.float32).numpy()
        counts = np.diff(split.word_offsets)
        starts = torch.from_numpy(split.word_starts + np.repeat(split.offsets[:-1], counts))
        lengths = torch.from_numpy(split.word_lengths.astype(np.int64))
        for layer in layers:
            flat = torch.from_numpy(states.pop(layer))
            for pooling in POOLINGS:
                words = pooled_words(flat, starts, lengths, pooling).numpy()
                yield layer, pooling, Embeddings(words, split.word_offsets, split.covered)

    # -- fingerprint and files ---------------------------------------------------------------------
    @property
    def fingerprint(self) -> str:
        """Hash of the weights, tokenizer, layer, pooling, length limit, and all settings that
        differ from their defaults. It is recomputed on each access (half a second for BERT-base),
        because weight changes cannot be detected reliably."""
        digest = hashlib.blake2b(digest_size=16)
        backend = json.loads(stable_text(self.subwords.backend))
        # calque sets the truncation and the padding itself.
        backend |= {"truncation": None, "padding": None}
        about = [self.layer, self.pooling, self.max_length, backend]
        if self.precision != "highest":
            about.append(self.precision)
        if self.bidirectional:
            about.append("bidirectional")
        digest.update(json_text(about, undefined="name", sort_keys=True).encode())
        digest.update(weights_digest(self.model).encode())
        for layer, standard in sorted(self.standard.items()):
            digest.update(f"{layer}".encode() + standard.numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: str | PathLike[str], *, keep_layers: bool = False) -> None:
        """Write a folder that `load_encoder`, `transformers.AutoModel` and `AutoTokenizer` can
        load.

        Layers above the encoder's layer are removed, because other programs use the last layer. A
        model that cannot be truncated (see `cut_above`) is saved with all layers, and `calque.json`
        records the layer. An encoder-decoder model is saved with 0 decoder layers.
        `AutoModel.from_pretrained(folder).get_encoder()` returns the aligned encoder, but the saved
        model cannot translate.

        `SentenceTransformer(folder)` can also load the folder. The modules of a
        sentence-transformers folder are copied; other encoders get mean pooling over all subwords
        including special tokens (`subwords` in `sentence_vectors`). Encoder-decoder models get no
        modules, because sentence-transformers would compute different vectors.

        Standardisation is folded into the last LayerNorm of the saved model if this is exact (see
        `calque.encoders.folding`). Otherwise, the model is saved in the subfolder `base`, so that
        transformers cannot open the folder without the standardisation, and a dense layer after the
        pooling standardises the vectors of sentence-transformers.

        Args:
            folder: folder to write to; existing files with the same names are replaced.
            keep_layers: whether to save all layers.
        """
        self._save(folder, keep_layers, declare=True)

    def save_whole(self, folder: str | PathLike[str]) -> None:
        self._save(folder, keep_layers=True, declare=False)

    def _save(self, folder: str | PathLike[str], keep_layers: bool, *, declare: bool) -> None:
        """Write the folder as described in `save`, but add new sentence-transformers modules only
        if `declare` is set.
        """
        declare = declare and self.modules is None and not self.model.config.is_encoder_decoder
        with saving(folder, self) as path:
            self.model.eval()
            blocks = None if keep_layers else self._blocks
            with passes.cut_above(self.model, blocks, self.layer, self._probe()) as cut:
                n_layers = self.layer if cut else self.n_layers
                norm = self._norm_for_folding(n_layers)
                outside = self.layer not in self.standard or norm is not None
                place = path if outside else path / BASE_FOLDER
                unfolded = self._save_model(place, norm)
            save_tokenizer(self.tokenizer, place)
            if self.modules is not None:
                copy_modules(self.modules, place)
            if declare:
                write_modules(
                    place, dim=self.dim, max_length=self.max_length, tokenizer=self.tokenizer
                )
            # calque reads the layer of a model in a subfolder from calque.json.
            layer = self.layer if outside else n_layers
            write_layer(place, dim=self.dim, layer=layer, n_layers=n_layers)
            has_modules = declare or self.modules is not None
            if not outside and has_modules and self._modules_allow_standardising(pooled=True):
                self._write_outer(path, n_layers)
            about = {"cut": cut, **self._record(path, unfolded)}
            if declare:
                about["own_pooling"] = False
            if norm is not None:
                about["folded"] = norm
            if not outside:
                about["base_folder"] = BASE_FOLDER
            write_about(path, "huggingface", about)

    def _norm_for_folding(self, n_layers: int) -> str | None:
        """Return the name of the LayerNorm into which the standardisation of the encoder's layer
        can be folded, or None.

        Args:
            n_layers: number of layers of the model that is saved.
        """
        if self.layer not in self.standard or self.layer != n_layers:
            return None
        if not self._modules_allow_standardising(pooled=False):
            return None
        return folding.last_norm(self.model, self._probe())

    def _save_model(self, place: Path, norm: str | None) -> dict[str, Tensor]:
        """Save the model after folding the standardisation into `norm` if it is given; return the
        weights of the norm before folding, by name.
        """
        if norm is None:
            save_model(self.model, place)
            return {}
        with folding.folded(self.model, norm, self.standard[self.layer]) as unfolded:
            save_model(self.model, place)
        return unfolded.arrays()

    def _modules_allow_standardising(self, *, pooled: bool) -> bool:
        """Return whether the encoder's sentence-transformers modules can follow standardisation.

        Dense layers cannot, because they were trained on vectors that are not standardised.

        Args:
            pooled: whether pooled vectors are standardised instead of subword vectors, with which
                not every pooling commutes.
        """
        if self.modules is None:
            return True
        try:
            recipe = read_recipe(self.modules)
        except CalqueError:  # calque does not support a module or a setting of the folder
            return False
        if any(isinstance(part, nn.Linear) for part in recipe["after"]):
            return False
        return not pooled or "mean_sqrt_len_tokens" not in recipe["modes"]

    def modules_allow_maps(self, layers: Sequence[int]) -> bool:
        """Return whether the encoder's sentence-transformers modules can pool the mapped vectors of
        these layers: only of the encoder's own layer.
        """
        if self.modules is None:
            return True
        if tuple(layers) != (self.layer,):
            return False
        if self.layer in self.standard:
            return self._modules_allow_standardising(pooled=False)
        try:
            read_recipe(self.modules)
        except CalqueError:  # calque does not support a module or a setting of the folder
            return False
        return True

    def pooling_is_affine(self) -> bool:
        """Return whether an affine map of the pooled vector equals the pooled vector of mapped
        subwords.
        """
        if self.modules is None:
            return True
        return _AFFINE_MODES.issuperset(read_recipe(self.modules)["modes"])

    def _write_outer(self, folder: Path, n_layers: int) -> None:
        """Write sentence-transformers modules that read the model in the subfolder `base` and
        standardise its pooled vectors.
        """
        mean, deviation = self.standard[self.layer].double()
        matrix = torch.diag(1 / deviation)
        write_outer_modules(
            folder,
            BASE_FOLDER,
            dim=self.dim,
            layer=self.layer,
            n_layers=n_layers,
            weight=matrix,
            bias=-mean / deviation,
            max_length=self.max_length,
            tokenizer=self.tokenizer,
        )

    def _record(self, folder: Path, unfolded: Mapping[str, Tensor] | None = None) -> JsonObject:
        """Return the settings for `calque.json`, and write the means and standard deviations of
        standardised layers.

        Args:
            unfolded: weights of the norm into which the standardisation was folded, before folding.
        """
        recorded: JsonObject = {key: getattr(self, key) for key in _OPTIONS}
        if self.precision == "highest":
            del recorded["precision"]
        if not self.bidirectional:
            del recorded["bidirectional"]
        if self.standard:
            arrays = {f"{layer}": rows.numpy() for layer, rows in self.standard.items()}
            arrays |= {name: weights.numpy() for name, weights in (unfolded or {}).items()}
            write_arrays(folder / STANDARD_FILE, arrays)
            recorded["standardized"] = sorted(self.standard)
        return recorded

    def vector_settings(self, about: JsonObject) -> JsonObject | None:
        if self.layer in self.standard and "folded" not in about:
            return None  # transformers does not standardise vectors
        settings: JsonObject = {
            "layer": about["layer"],
            "n_layers": about["layer"] if about.get("cut") else self.n_layers,
            "pooling": about["pooling"],
            "add_prefix_space": bool(self.subwords.needs_space),
            "decoder": bool(_DECODERS & self.model.config.to_dict().keys()),
        }
        languages = self.subwords.languages
        if languages:
            settings["language"] = self.tokenizer.convert_ids_to_tokens(languages[""])
        return settings

    def _read_standard(self, folder: Path, about: JsonObject) -> Self:
        """Read the means and standard deviations from a folder if its `calque.json` lists
        standardised layers.
        """
        layers = about.get("standardized")
        if not layers:
            return self
        arrays, _ = map_arrays(folder / STANDARD_FILE)
        self.standard = {}
        for layer in layers:
            rows = arrays.get(f"{layer}")
            if rows is None or rows.shape != (2, self.dim):
                fact = (
                    "means or standard deviations are missing or have the wrong shape; save the "
                    "encoder again"
                )
                raise InputError(fact, path=folder / STANDARD_FILE)
            self.standard[layer] = torch.from_numpy(np.array(rows))
        if "folded" in about:
            self._unfold(folder, about["folded"], arrays)
        return self

    def _unfold(self, folder: Path, norm: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the weights of the norm into which the standardisation of the saved layer was
        folded.
        """
        saved = {name: torch.from_numpy(np.array(rows)) for name, rows in arrays.items()}
        try:
            before = folding.NormWeights.from_arrays(saved)
        except KeyError as error:
            fact = f"{error} is missing; save the encoder again"
            raise InputError(fact, path=folder / STANDARD_FILE) from error
        # The folded layer is the last one of the saved model.
        standard = self.standard[self.n_layers]
        folding.unfold(self.model, norm, standard, before, folder)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        *,
        about: JsonObject | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        attention: str | None = None,
        **options: Any,
    ) -> Self:
        """Load an encoder from a folder or from the hub; for the options, see `load_encoder`."""
        path, number = Path(folder), number_type(dtype)
        if about is None:
            about = read_about(path)
        is_standardized = "base_folder" in about and "standardized" in about
        name = fspath(path / BASE_FOLDER if is_standardized else folder)
        _check_folder(name)
        modules = own_modules(name, about)
        saved_options: dict[str, object] = {"name": path.resolve().name if path.is_dir() else name}
        if modules is not None:
            saved_options["layer"] = -1  # sentence-transformers reads the last layer
        saved_options |= recorded_options(about, path)
        model, tokenizer = read_checkpoint(name, number, attention)
        model.to(usable_device(device))  # type: ignore[arg-type]
        encoder = cls._of(model, tokenizer, {**saved_options, **options}, name)
        encoder.modules, encoder.saved = modules, saved_reading(about)
        return encoder._read_standard(path, about)

    @classmethod
    def _of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        options: Mapping[str, Any],
        place: str,
    ) -> Self:
        """Build an encoder from a model and its tokenizer; raise InputError with the path `place`
        if they do not match.
        """
        try:
            return cls(model, tokenizer, **options)
        except InputError as error:
            raise InputError(error.fact, path=error.path or place) from error
        except (CalqueError, CalqueWarning):
            raise
        except Exception as error:
            # The model needs other inputs, such as pixels, or the files are corrupt.
            fact = (
                f"the tokenizer and {type(model).__name__} do not work together "
                f"({first_line(error)})"
            )
            raise InputError(fact, path=place) from error


def _vocabulary_size(model: PreTrainedModel) -> int:
    """Return the number of embeddings. PEFT's wrappers of embeddings have their weights, but no
    `num_embeddings`.
    """
    table = cast("nn.Embedding", model.get_input_embeddings())
    return table.num_embeddings if hasattr(table, "num_embeddings") else len(table.weight)


def _check_folder(name: str) -> None:
    """Raise InputError if `name` is a folder without a model, or a path that does not exist."""
    path = Path(name)
    modules = modules_of(path)
    if modules and modules[0].get("type") == MAPPED_MODULE:
        fact = "sentence-transformers saved this copy of an encoder with maps"
        raise InputError(f"{fact}; give the folder that calque saved", path=path)
    if model_folder(path).joinpath("config.json").is_file():
        return
    if path.exists() or path.is_absolute() or name.count(os.sep) > 1:
        if path.exists():
            fact = "this folder has no config.json; give an encoder saved by transformers or calque"
        else:
            fact = f"no such folder{similar_path(path)}"
        raise InputError(fact, path=path)


def recorded_options(about: JsonObject, folder: str | PathLike[str]) -> JsonObject:
    """Return the encoder's arguments from the content of `calque.json`."""
    if about.get("pooling", "last") not in POOLINGS or not isinstance(about.get("layer", 0), int):
        fact = "invalid layer or pooling; correct the value, or save the encoder again"
        raise InputError(fact, path=Path(folder) / ABOUT_FILE)
    options = {key: about[key] for key in _OPTIONS if key in about}
    if about:
        options.setdefault("pooling", _OLD_POOLING)
    return options


def saved_reading(about: JsonObject) -> frozenset[str]:
    """Return which of "layer" and "pooling" the content of `calque.json` determines. A folder
    without a recorded pooling was written when there was only one default, so it determines the
    pooling, too.
    """
    if not about:
        return frozenset()
    return frozenset({"pooling"} | ({"layer"} & about.keys()))


def with_default_pooling(encoder: E, pooling: str) -> E:
    """Return the encoder with a pooling that a method prefers, unless its folder recorded a pooling,
    it has no pooling, or `pooling` is empty.
    """
    if not pooling or not isinstance(encoder, HuggingFaceEncoder) or "pooling" in encoder.saved:
        return encoder
    return encoder.read_as(pooling=check_pooling(pooling))


def check_pooling(pooling: str) -> Pooling:
    """Return the name of a pooling; raise SettingError if it is unknown."""
    for known in POOLINGS:
        if pooling == known:
            return known
    raise SettingError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
