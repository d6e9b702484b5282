"""Settings that say which layers of an encoder a task head is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from calque.errors import SettingError, did_you_mean
from calque.nn.mixture import Norm
from calque.spec import numbers

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

#: value of the option `layers`, see `reading_of`
Layers = str | int | Sequence[int] | None
MIX, BEST, ALL = "mix", "best", "all"


@dataclass(frozen=True)
class Mixture:
    """Read a learned mixture of all layers, see `ScalarMix`.

    Attributes:
        pooling: pooling of a word's subwords; None for that of the encoder.
        norm: normalisation of each layer before it is mixed.
    """

    pooling: str | None = None
    norm: Norm = "standard"

    def settings(self) -> dict[str, object]:
        """Return the settings that are recorded with the scores."""
        return {"reading": MIX, "mix_norm": self.norm}

    def prepared(self, encoder: Encoder) -> Encoder:
        """Return the encoder with the pooling to read."""
        from calque.encoders.readings import with_pooling

        return encoder if self.pooling is None else with_pooling(encoder, self.pooling)


@dataclass(frozen=True)
class BestLayer:
    """Read the single layer and the pooling with the best score on development text in the source
    languages.

    Attributes:
        layers: candidate layers; None for all layers.
        poolings: candidate poolings; None for that of the encoder, mean and last.
    """

    layers: tuple[int, ...] | None = None
    poolings: tuple[str, ...] | None = None

    def settings(self) -> dict[str, object]:
        """Return the settings that are recorded with the scores."""
        if self.layers is None:
            return {"reading": BEST}
        return {"reading": f"{BEST} of layers {', '.join(map(str, self.layers))}"}

    def candidates(self, encoder: Encoder) -> list[tuple[str | None, Encoder]]:
        """Return the encoder with each candidate pooling, and the name of the pooling (None if the
        encoder has no such setting).
        """
        from calque.encoders.readings import poolings_of, with_pooling

        names = self.poolings
        if names is None:
            possible = poolings_of(encoder)
            # The encoder's own pooling comes first.
            compared = {*possible[:1], "mean", "last"}
            names = tuple(name for name in possible if name in compared)
        if not names:
            return [(None, encoder)]
        return [(name, with_pooling(encoder, name)) for name in names]


Reading = Mixture | BestLayer


def reading_of(
    layers: Layers,
    poolings: Sequence[str] | None = None,
    mix_norm: Norm = "standard",
    *,
    tune: bool = False,
) -> Reading | None:
    """Return the reading that the options of a task describe, or None for the encoder's own layer.

    Args:
        layers: "mix"; "best" or "all", for the best of all layers; or the layers to choose from, as
            a list or as text (`4,8,12` or `0-12`).
        poolings: poolings to choose from; for a mixture, the only pooling.
        mix_norm: see `Mixture`. The norm "standard" is replaced by "layer" with `tune`, because the
            statistics of the dimensions change while the encoder is trained.

    Raises:
        SettingError: an option is invalid or has no effect.
    """
    if mix_norm not in get_args(Norm):
        raise SettingError(f"mix_norm must be standard, layer or none, got {mix_norm!r}")
    if mix_norm != "standard" and layers != MIX:
        raise SettingError("mix_norm applies only to mixtures; add layers=mix")
    if layers is None:
        if poolings is not None:
            raise SettingError("poolings applies only with layers; add layers=best or layers=mix")
        return None
    if isinstance(layers, str) and layers not in (MIX, BEST, ALL):
        layers = _numbers(layers)
    if layers == MIX:
        if poolings is not None and len(poolings) != 1:
            raise SettingError(
                f"layers=mix reads one pooling, got {', '.join(poolings)}; give one of them, or "
                "choose with layers=best"
            )
        if tune and mix_norm == "standard":
            mix_norm = "layer"
        return Mixture(None if poolings is None else poolings[0], mix_norm)
    names = None if poolings is None else tuple(poolings)
    if layers in (BEST, ALL):
        return BestLayer(None, names)
    candidates = (layers,) if isinstance(layers, int) else tuple(layers)
    if len(set(candidates)) < 2:
        raise SettingError(
            f"layers must be mix, best, or two or more layers to choose from, got {layers}; set a "
            "single layer with layer (--layer)"
        )
    return BestLayer(candidates, names)


def chooses_layers(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a task choose or mix layers. A whole number in `layers` is the
    number of LSTM layers of a task head, as in earlier versions.
    """
    return options.get("layers") is not None and not isinstance(options["layers"], int)


def _numbers(text: str) -> list[int]:
    """Parse layers such as `4,8,12` or `0-12`."""
    try:
        return numbers(text, "layers") or []
    except SettingError:
        known = (MIX, BEST, ALL)
        raise SettingError(
            f"layers must be mix, best, or layers such as 4,8,12 or 0-12, got {text!r}"
            f"{did_you_mean(text, known)}"
        ) from None


def messages(task: str, settings: Mapping[str, Any]) -> list[str]:
    """Return one line that describes the layers that were read for a score, or an empty list if
    they were those of the encoder.

    Args:
        settings: settings of the score.
    """
    if settings.get("reading") == MIX:
        layers = settings["read_layers"]
        of_layers = zip(*settings["mix_weights"], strict=True)  # the weights of all runs
        means = [sum(weights) / len(weights) for weights in of_layers]
        heaviest = sorted(zip(means, layers, strict=True), reverse=True)[:3]
        shown = ", ".join(f"layer {layer} {100 * weight:.0f}%" for weight, layer in heaviest)
        return [f"{task}: mixture of layers {layers[0]} to {layers[-1]}, mostly {shown}"]
    if "read_layer" not in settings:
        return []
    layer, pooling = settings["read_layer"], settings["read_pooling"]
    scores = settings["layer_scores"]
    best = max(max(of_pooling) for of_pooling in scores.values())
    name = f"layer {layer}" if pooling is None else f"layer {layer} with pooling {pooling}"
    last = next(iter(scores.values()))[-1]
    return [
        f"{task}: {name} is best on development text in the training languages: "
        f"{100 * best:.1f} (layer {settings['read_layers'][-1]} as loaded: {100 * last:.1f})"
    ]
