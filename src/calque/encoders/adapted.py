"""Low-rank adapters (LoRA) for a frozen encoder, which are saved without the encoder.

A weight matrix W becomes W + B A, where A `[r, n]` and B `[m, r]` are trained, and B is initialised
to 0 (Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", Eq. 3). The PEFT library
computes, saves and loads adapters.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from calque.encoders.adapter_files import (
    MODEL_PACKAGES,
    PREFIX,
    TOKENIZER_FILES,
    WEIGHTS_FILE,
    library,
    of_encoder,
    read_config,
    read_weights,
)
from calque.encoders.base import Encoder
from calque.encoders.checkpoint import (
    first_line,
    read_checkpoint,
    read_tokenizer,
    save_tokenizer,
    weights_digest,
)
from calque.encoders.folder import (
    ABOUT_FILE,
    ADAPTERS_FILE,
    BASE_FOLDER,
    BUNDLED,
    read_about,
    saving,
    write_about,
)
from calque.encoders.hub_cache import hub_folder
from calque.encoders.huggingface import HuggingFaceEncoder, recorded_options, saved_reading
from calque.encoders.layers import find_blocks
from calque.encoders.merging import merged_model
from calque.encoders.numerics import number_type, usable_device
from calque.encoders.sentence_folders import model_folder, modules_of
from calque.encoders.sentence_transformers import copy_modules, own_modules, write_layer
from calque.errors import CalqueError, InputError, SettingError
from calque.storage import JsonObject

if TYPE_CHECKING:
    from peft import LoraConfig

_NAME = "default"  # PEFT requires a name for each set of adapters; calque uses only one set


class Origin(NamedTuple):
    """Source of the base encoder: its folder or name on the hub, a hash of its weights
    (`weights_digest`), their type, and the revision on the hub."""

    place: str
    weights: str
    dtype: str
    revision: str = ""

    @classmethod
    def of(cls, encoder: HuggingFaceEncoder) -> Origin:
        """Return the origin of an encoder; raise SettingError if its weights differ from those in
        its folder or on the hub.
        """
        model = encoder.model
        place = encoder.place
        for name, folder in BUNDLED.items():
            if str(folder) == place:
                place = name  # the folder differs between installations
                break
        place = _absolute(place)
        origin = cls(place, weights_digest(model), str(model.dtype).removeprefix("torch."))
        if not place or weights_digest(origin.read(None)[0]) != origin.weights:
            fact = f"the weights of {encoder.name} differ from those in {place or 'any folder'}"
            raise SettingError(
                f"adapters cannot be added: {fact}; save this encoder, and load it from the new "
                "folder"
            )
        return origin

    def read(
        self, attention: str | None, beside: str = ""
    ) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
        """Load the model and the tokenizer of the base encoder; for `beside`, see
        `read_checkpoint`.
        """
        place, dtype = str(BUNDLED.get(self.place, self.place)), number_type(self.dtype)
        return read_checkpoint(
            place, dtype, attention, revision=self.revision or None, beside=beside
        )


def _absolute(place: str) -> str:
    return os.path.abspath(place) if place not in BUNDLED and os.path.isdir(place) else place


class AdaptedEncoder(HuggingFaceEncoder):
    """An encoder with low-rank adapters in some of its linear modules.

    A saved folder contains only the adapters in PEFT's format (`adapter_config.json`,
    `adapter_model.safetensors`) and `calque.json`, which records where the base encoder can be
    loaded from.

    Args:
        origin: source of the base encoder, which has no adapters.
        model, tokenizer, options: see `HuggingFaceEncoder`; the model must contain the adapters.

    Attributes:
        own_tokenizer: whether the tokenizer was read from the folder of the adapters, and is saved
            with them.
        own_embeddings: whether the adapters replace the embeddings, for example because words were
            added to the vocabulary.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        origin: Origin,
        **options: Any,
    ):
        super().__init__(model, tokenizer, **options)
        self.origin = origin
        self.own_tokenizer = self.own_embeddings = False

    @torch.no_grad()
    def merged(self) -> HuggingFaceEncoder:
        """Return an encoder with the merged weights W + (α/r) B A. The merged encoder is saved in
        full and does not need PEFT.

        Raises:
            SettingError: PEFT cannot merge these adapters, or merging them would change the
                vectors.
        """
        plain: Any = copy.copy(self)
        plain.__class__ = HuggingFaceEncoder
        plain.model = merged_model(self.model)
        del plain.origin, plain.own_tokenizer, plain.own_embeddings
        # Some kinds of adapters are not linear in W, so the merged vectors are compared.
        batch, layers = self._probe(), self.layers
        with self.reading(layers) as adapted_vectors, plain.reading(layers) as merged_vectors:
            before, after = adapted_vectors(batch), merged_vectors(batch)
        tolerance = max(1e-3, 32 * torch.finfo(self.model.dtype).eps)
        for layer in layers:
            difference = float((after[layer] - before[layer]).abs().max())
            if difference > tolerance * float(before[layer].abs().max()):
                fact = (
                    f"merging these adapters would change the vectors of layer {layer} of "
                    f"{self.name}"
                )
                raise SettingError(f"{fact}; use the adapters without merging them")
        return plain

    def save(self, folder: str | PathLike[str], *, keep_layers: bool = False) -> None:
        """Write only the adapters; `keep_layers` is ignored. `merged().save(folder)` writes the
        complete encoder.

        The modules of a sentence-transformers model are written too, so that
        `SentenceTransformer(folder)` opens the folder. The adapters of a standardised encoder are
        written to the subfolder `base`, so that other programs cannot open them without the
        standardisation; `merged().save(folder)` writes an encoder that they can open.
        """
        place = self.origin.place
        with saving(folder, self) as path:
            is_outside = self.layer not in self.standard
            inner = path if is_outside else path / BASE_FOLDER
            inner.mkdir(exist_ok=True)
            self._peft_config().save_pretrained(str(inner))
            weights = _state(self.model, embeddings=self.own_embeddings)
            state = {
                f"{PREFIX}{name}": x.detach().cpu().contiguous() for name, x in weights.items()
            }
            save_file(state, inner / WEIGHTS_FILE, metadata={"format": "pt"})
            if self.modules is not None or self.own_tokenizer:
                save_tokenizer(self.tokenizer, inner)
            if self.modules is not None:
                copy_modules(self.modules, inner, keep_config=True)
                # calque reads the layer of adapters in a subfolder from calque.json.
                layer = self.layer if is_outside else self.n_layers
                write_layer(inner, dim=self.dim, layer=layer, n_layers=self.n_layers)
            origin = self.origin._asdict()
            if not self.origin.revision:
                del origin["revision"]
            if os.path.isdir(place):
                # Record a relative path too, so that both folders can be moved together.
                origin["beside"] = os.path.relpath(place, Path(folder).absolute())
            about: dict[str, object] = {"adapted": origin}
            if not is_outside:
                about["base_folder"] = BASE_FOLDER
            write_about(path, "adapters", {**about, **self._record(path)})

    def _peft_config(self) -> LoraConfig:
        """Return PEFT's configuration of the adapters as it is saved, with the base encoder."""
        place, config = self.origin.place, copy.copy(_config_of(self.model))
        if os.path.isdir(place):
            # Old sentence-transformers folders have the model in a subfolder, where PEFT must look
            # for it.
            base = model_folder(Path(place))
        else:
            base = BUNDLED.get(place, place)
        config.base_model_name_or_path, config.inference_mode = str(base), True
        config.revision = self.origin.revision or None
        model_class = type(self.model)
        if model_class.__module__.partition(".")[0] in MODEL_PACKAGES:
            config.auto_mapping = {
                "base_model_class": model_class.__name__,
                "parent_library": model_class.__module__,
            }
        config.target_modules = sorted(config.target_modules or [])
        return config

    def vector_settings(self, about: JsonObject) -> JsonObject | None:
        settings = super().vector_settings(about)
        # transformers cannot load the tokenizer, or does not resize the embeddings.
        if settings is None or not self.tokenizer.name_or_path or self.own_embeddings:
            return None
        base = about["adapted"]
        return {**settings, "adapted": base["place"], "revision": base.get("revision", "")}

    def save_whole(self, folder: str | PathLike[str]) -> None:
        self.save(folder)

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
        """Load adapters that `save` or PEFT wrote, with their base encoder; raise InputError if the
        base encoder has changed.
        """
        path, number = Path(folder), number_type(dtype)
        recorded = read_about(path) if about is None else about
        inner = path / BASE_FOLDER if "base_folder" in recorded else path
        config = read_config(inner)
        origin = _recorded_origin(path, recorded, config)
        place = origin.place
        if "adapted" in recorded:
            remedy = f"check adapted.place in {ABOUT_FILE}"
        else:
            remedy = f"check the base model in {ADAPTERS_FILE}"
        _check_base(path, place)
        beside = str(inner) if modules_of(inner) else ""
        try:
            model, tokenizer = origin.read(attention, beside)
        except InputError as error:
            raise InputError(
                f"the adapters' base encoder cannot be loaded ({error}); {remedy}", path=path
            ) from error
        weights = weights_digest(model)
        if origin.weights not in ("", weights):
            raise InputError(
                f"these adapters were not trained on the weights of {place}; {remedy}", path=path
            )
        own_embeddings = _read_adapters(model, inner, config)
        own_tokenizer = any((inner / name).is_file() for name in TOKENIZER_FILES)
        if own_tokenizer:
            tokenizer = read_tokenizer(inner, model.config)
        model.to(usable_device(device))  # type: ignore[arg-type]
        if isinstance(number, torch.dtype):
            model.to(number)  # type: ignore[arg-type]
        base = BUNDLED.get(place, place)
        about_base = read_about(base)
        modules = own_modules(str(inner), recorded) or own_modules(str(base), about_base)
        saved_options: dict[str, object] = {"name": path.resolve().name}
        if modules is not None:
            saved_options["layer"] = -1  # the default of sentence-transformers
        # PEFT does not save the options of the base encoder with its adapters.
        saved_options |= recorded_options(about_base, base)
        saved_options |= recorded_options(recorded, path)
        saved_options["origin"] = origin._replace(weights=weights)
        opened = cls._of(model, tokenizer, {**saved_options, **options}, str(path))
        opened.modules, opened.saved = modules, saved_reading(about_base) | saved_reading(recorded)
        opened.own_tokenizer, opened.own_embeddings = own_tokenizer, own_embeddings
        if recorded:
            return opened._read_standard(path, recorded)
        return opened._read_standard(Path(base), about_base)


def _recorded_origin(path: Path, recorded: JsonObject, config: LoraConfig) -> Origin:
    """Return the origin of the base encoder from the content of `calque.json`, or from PEFT's
    configuration.
    """
    adapted = recorded.get("adapted", {})
    if adapted:
        revision = str(adapted.get("revision") or "")
    else:
        revision = str(config.revision or "")
    place = str(adapted.get("place") or config.base_model_name_or_path or "")
    if not adapted and _holds_model(path):
        # transformers also applies adapters to a complete model in the same folder
        place = str(path)
    elif "beside" in adapted:
        # The relative path comes first, because both folders may have been moved together.
        beside = str(path / adapted["beside"])
        if beside in BUNDLED or os.path.isdir(beside):
            place = beside
    weights, dtype = adapted.get("weights", ""), adapted.get("dtype", "float32")
    return Origin(_absolute(place), weights, dtype, revision)


def _holds_model(folder: Path) -> bool:
    """Return whether a folder contains a complete model beside the adapters."""
    weights = [*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return (folder / "config.json").is_file() and bool(weights)


def _check_base(path: Path, place: str) -> None:
    """Check that the base encoder of adapters is named, and has no adapters itself."""
    if not place:
        fact = "base_model_name_or_path must name the base encoder of these adapters, got nothing"
        raise InputError(f"{fact}; add a folder or a name on the hub", path=path / ADAPTERS_FILE)
    if place in BUNDLED:
        return
    if os.path.isdir(place):
        if os.path.realpath(place) == os.path.realpath(path):
            return
        base = Path(place)
    else:
        base = hub_folder(place, ADAPTERS_FILE, [ADAPTERS_FILE])
    if base is not None and (base / ADAPTERS_FILE).is_file():
        fact = f"the base encoder of these adapters, {place}, contains adapters itself"
        raise InputError(
            f"{fact}; merge them first (calque merge), and name the new folder as base", path=path
        )


def with_adapters(
    encoder: Encoder,
    rank: int,
    *,
    layers: range,
    device: torch.device,
    seed: int,
    kept: bool = True,
) -> AdaptedEncoder:
    """Return the encoder with trainable adapters in float32. If the encoder already has adapters,
    they are made trainable.

    Frozen weights are shared with `encoder` if they are float32 and on `device`. All weight
    matrices of a layer get adapters (Dettmers et al. 2023, "QLoRA: Efficient finetuning of
    quantized LLMs", §4).

    Args:
        rank: rank r, which is the number of rows of A and of columns of B.
        layers: indices of the layers that get adapters, counted from 0.
        seed: seed for the initialisation.
        kept: whether the adapters will be saved; if so, `encoder` must be loadable from a folder or
            from the hub.

    Raises:
        SettingError: `encoder` is not a `transformers` model, already has adapters of a different
            rank, or (if `kept` is set) cannot be reloaded.
    """
    if not isinstance(encoder, HuggingFaceEncoder) or not isinstance(
        encoder.model, PreTrainedModel
    ):
        raise SettingError(
            f"lora requires a Transformers model, but {encoder.name} is a {type(encoder).__name__}"
        )
    model = _with_shared_weights(encoder.model)
    if isinstance(encoder, AdaptedEncoder):
        origin = encoder.origin
        _train_existing(model, rank, encoder.name)
    else:
        origin = Origin.of(encoder) if kept else Origin("", "", "")
        _add_new(model, rank, layers, seed)
    adapted = AdaptedEncoder(
        model,
        encoder.tokenizer,
        origin=origin,
        layer=encoder.layer,
        pooling=encoder.pooling,
        max_length=encoder.max_length,
        name=encoder.name,
        precision=encoder.precision or "highest",
    )
    adapted.model.to(device=device).float()  # type: ignore[call-arg]
    adapted.standard, adapted.modules = encoder.standard, encoder.modules
    if isinstance(encoder, AdaptedEncoder):
        adapted.own_tokenizer = encoder.own_tokenizer
        adapted.own_embeddings = encoder.own_embeddings
    return adapted


def _with_shared_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model whose frozen weights and buffers share the memory of the
    original.
    """
    # `deepcopy` does not copy the tensors that its memo contains.
    memo: dict[int, Tensor] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        memo[id(weight)] = nn.Parameter(weight.detach(), requires_grad=False)
    return copy.deepcopy(model, memo)


def _train_existing(model: PreTrainedModel, rank: int, name: str) -> None:
    """Make the adapters of a model trainable; raise SettingError if their rank differs."""
    existing_rank = _config_of(model).r
    if existing_rank != rank:
        fact = (
            f"lora must be {existing_rank}, the rank of the existing adapters of {name}, got {rank}"
        )
        raise SettingError(f"{fact}; merge these adapters (calque merge) before adding new ones")
    for weight in _trained_parts(model):
        weight.data = weight.data.clone()  # so that training does not change the original encoder
        weight.requires_grad_(True)


def _add_new(model: PreTrainedModel, rank: int, layers: range, seed: int) -> None:
    """Add adapters to all weight matrices of the given layers in place."""
    targets = _targets(model, layers)
    transposed = any(type(model.get_submodule(name)).__name__ == "Conv1D" for name in targets)
    # With α = r, the factor α/r of B A is 1, as in Eq. 3.
    config = library().LoraConfig(
        r=rank, lora_alpha=rank, target_modules=targets, fan_in_fan_out=transposed
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _inject(config, model)


def _config_of(model: PreTrainedModel) -> LoraConfig:
    """Return PEFT's configuration of a model with a single set of adapters."""
    (config,) = cast("dict[str, LoraConfig]", model.peft_config).values()
    return config


def _targets(model: PreTrainedModel, layers: range) -> list[str]:
    """Return the names of all linear modules in the given layers, or in all layers if the model has
    no list of layers.
    """
    blocks = find_blocks(model, getattr(model.config, "num_hidden_layers", None))
    linear = [
        name
        for name, module in model.named_modules()
        if type(module).__name__ in ("Linear", "Conv1D")
    ]
    if blocks is not None:
        # Names have the form `encoder.layer.3.output.dense`.
        inside = [name for name in linear if name.startswith(f"{blocks}.")]
        linear = []
        for name in inside:
            layer = name[len(blocks) + 1 :].partition(".")[0]
            if int(layer) in layers:
                linear.append(name)
    if not linear:
        raise SettingError(
            f"lora: the trained layers of this {model.config.model_type} model contain no linear "
            "module"
        )
    return linear


def _trained_parts(model: nn.Module) -> list[nn.Parameter]:
    """Return the trained weights of the low-rank adapters: the matrices A and B, and the magnitudes
    of DoRA.
    """
    return [p for name, p in model.named_parameters() if ".lora_" in name]


def _inject(config: LoraConfig, model: PreTrainedModel) -> None:
    """Add adapters to a model in place, and freeze all other weights."""
    library().inject_adapter_in_model(config, model, adapter_name=_NAME)
    model.requires_grad_(False)
    for p in _trained_parts(model):
        p.requires_grad_(True)


def _state(model: PreTrainedModel, *, embeddings: bool = False) -> dict[str, Tensor]:
    """Return the weights of the adapters by name.

    Args:
        embeddings: whether to include the embeddings; PEFT's own default would query the hub.
    """
    with _without_warnings():
        state = library().get_peft_model_state_dict(
            model, adapter_name=_NAME, save_embedding_layers=embeddings
        )
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def _read_adapters(model: PreTrainedModel, folder: Path, config: LoraConfig) -> bool:
    """Load the adapters in a folder into a model in place, and return whether they replace the
    embeddings.

    Raises:
        InputError: names or shapes do not match the model.
    """
    weights, replicated = read_weights(folder), config.layer_replication
    try:
        if replicated:
            _replicate(model, replicated, folder)
        state = of_encoder(config, weights, model, folder)
        own_embeddings = _read_embeddings(model, config, state)
        # The layers are replicated already. PiSSA is initialised with random numbers, which must be
        # the same each time.
        config.layer_replication = None
        with _without_warnings(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _inject(config, model)
        config.layer_replication = replicated
        _check_shapes(state, _state(model), folder)
        library().set_peft_model_state_dict(model, state, adapter_name=_NAME)
    except CalqueError:
        raise
    except Exception as error:  # corrupt files can raise many kinds of exceptions
        raise InputError(
            f"the adapters do not match the base encoder ({first_line(error)})", path=folder
        ) from error
    return own_embeddings


def _check_shapes(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], folder: Path
) -> None:
    """Raise InputError unless the weights have the expected names and shapes."""
    wrong = []
    for name in {**state, **expected}:
        if name not in state:
            # A model under a head has no pooler, and the pooler does not change the vectors.
            is_wrong = not name.startswith("pooler.")
        else:
            is_wrong = name not in expected or state[name].shape != expected[name].shape
        if is_wrong:
            wrong.append(name)
    if wrong:
        raise InputError(f"{min(wrong)} is missing, unexpected or of the wrong shape", path=folder)


def _replicate(model: PreTrainedModel, layers: list[tuple[int, int]], folder: Path) -> None:
    """Repeat ranges of layers as PEFT does; raise InputError if the configuration has settings for
    individual layers.
    """
    from peft.tuners.tuners_utils import replicate_layers

    if getattr(model.config, "layer_types", None):
        fact = f"layer_replication is not supported for {type(model).__name__}, whose layers differ"
        raise InputError(f"{fact}; use adapters without this setting", path=folder / ADAPTERS_FILE)
    replicate_layers(model, layers)


@torch.no_grad()
def _read_embeddings(model: PreTrainedModel, config: LoraConfig, state: dict[str, Tensor]) -> bool:
    """Move the embeddings in `state` to the model; return whether they differ from the embeddings
    of the base encoder.

    PEFT saves all embeddings if words were added to the vocabulary, or if the embeddings have
    adapters. If the embeddings are in `modules_to_save`, they stay in `state`.
    """
    table = cast("nn.Embedding", model.get_input_embeddings())
    name = next(name for name, part in model.named_modules() if part is table)
    saved = _pop_embeddings(name, config, state)
    new_weights = state.get(f"{name}.weight") if saved is None else saved
    # Words that were added to the vocabulary need rows before the adapters are added.
    if new_weights is not None and len(new_weights) != len(table.weight):
        model.resize_token_embeddings(len(new_weights), mean_resizing=False)
        table = cast("nn.Embedding", model.get_input_embeddings())
    if saved is None or torch.equal(saved.to(table.weight), table.weight):
        return False
    table.weight.copy_(saved)
    return True


def _pop_embeddings(name: str, config: LoraConfig, state: dict[str, Tensor]) -> Tensor | None:
    """Remove the weights of the embeddings, whose module is called `name`, from `state`, and return
    them; return None if they are not saved or are in `modules_to_save`.
    """
    # PEFT also saves the trained embeddings under their own name.
    for repeated in ("original_module", "modules_to_save"):
        state.pop(f"{name}.{repeated}.weight", None)
    keys = [f"{name}.base_layer.weight", f"{name}.token_adapter.base_layer.weight"]
    is_trained = any(name.endswith(entry) for entry in config.modules_to_save or [])
    if not is_trained:
        keys.append(f"{name}.weight")
    saved = [state.pop(key) for key in keys if key in state]
    return saved[0] if saved else None


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide the warnings of PEFT, which concern only training and PEFT's own classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
