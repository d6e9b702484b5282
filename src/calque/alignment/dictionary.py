"""Alignment with maps that are fitted on anchors, with or without dictionaries."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import Dictionaries
from calque.alignment.maps import with_maps
from calque.annotated import Dictionary
from calque.encoders.base import Encoder, made_of
from calque.encoders.mapped import Combine
from calque.errors import SettingError
from calque.maps import VectorMap
from calque.maps.dictionary import (
    DictionaryFit,
    Normalisation,
    fit_dictionary,
    with_identical_words,
)
from calque.maps.refine import Refinement
from calque.maps.shrinkage import Shrinkage
from calque.maps.unsupervised import Start, check_start, fit_unsupervised
from calque.spec import Count, SeedNumber, Share, option

#: type of map that each method fits
_MAP_TYPES = {"rotation": "rotation", "normalized-rotation": "rotation", "linear": "linear"}


class FailedMapWarning(UserWarning):
    """Warning that fitting a map without a dictionary failed."""


@dataclass(frozen=True, eq=False)
class DictionaryMaps(Method):
    """Maps for each layer and language, fitted on anchors (Schuster et al. 2019, §4).

    Raises:
        SettingError: the method or the initialisation is unknown.
    """

    method: Literal["rotation", "normalized-rotation", "linear"] = option(
        "rotation", "kind of map: rotation, normalized-rotation or linear."
    )
    _: KW_ONLY
    towards: str = option(
        ..., "target language, to which the vectors of all other languages are mapped."
    )
    start: Start | None = option(
        None, "initialisation without a dictionary: identical, distributions or adversarial."
    )
    start_options: Mapping[str, Any] | None = option(
        None, "options of the initialisation without a dictionary."
    )
    normalise: Normalisation | None = option(
        None,
        "normalisation of the vectors (none, unit, centre, centre-unit or unit-centre-unit); "
        "default: centre for normalized-rotation, otherwise unit, or unit-centre-unit without a "
        "dictionary.",
    )
    identical: bool = option(
        False, "add all words that are spelt the same in both languages to the dictionary."
    )
    refine: int = option(5, "number of refinement rounds.")
    held_out: Share = option(
        0.1, "fraction of the dictionary that is held out for choosing the best round."
    )
    shrinkage: Shrinkage = option(
        "auto",
        "how strongly a map from a dictionary is shrunk towards the identity, which leaves vectors "
        "unchanged: from 0 (the published maps) to 1 (the identity), or auto, which chooses the "
        "value with the best retrieval among held-out entries, and the identity unless a map is "
        "better.",
    )
    restarts: Count = option(3, "maximum number of random initialisations to try.")
    combine: Combine = option(
        "last",
        "how to combine the mapped layers: sum, mean, concat, or last (use only the last layer).",
    )
    seed: SeedNumber = option(
        0, "random seed for the initialisation and for the choice of held-out entries."
    )

    def __post_init__(self):
        if self.method not in _MAP_TYPES:
            raise SettingError(
                f"method must be one of {', '.join(_MAP_TYPES)}, got {self.method!r}"
            )
        if self.start is not None:
            check_start(self.start, self.start_options)

    @property
    def refinement(self) -> Refinement:
        """Settings of the refinement."""
        return Refinement(rounds=self.refine, held_out=self.held_out, seed=self.seed)

    def _fitting(self) -> dict[str, Any]:
        """Return the arguments that `fit_dictionary` and `fit_unsupervised` have in common."""
        normalise = self.normalise
        if normalise is None and self.method == "normalized-rotation":
            normalise = "centre"
        arguments = {"method": _MAP_TYPES[self.method], "refinement": self.refinement}
        return arguments if normalise is None else arguments | {"normalise": normalise}

    def fit(self, encoder: Encoder, data: Dictionaries, run: Run = Run()) -> Fitted:
        """Return the encoder with its maps. A static encoder stores the maps itself instead of
        being wrapped.

        Args:
            encoder: encoder that computed the anchors.
            data: anchors, with the same layers in all languages, and dictionaries between `towards`
                and another language, in either direction. Dictionaries for the same language are
                joined. If `start` is set, there must be none.
            run: not used.

        Raises:
            SettingError: a language has no anchors or no dictionary, or a map cannot be fitted.

        Warns:
            FailedMapWarning: fitting a map without a dictionary failed.
        """
        by_lang, layers = self._checked(data)
        records: dict[str, dict[str, Any]] = {}
        maps: dict[str, dict[int, VectorMap]] = {}
        for lang, dictionary in by_lang.items():
            records[lang], maps[lang] = {}, {}
            for layer in layers:
                fit = self._fit(lang, layer, data, dictionary)
                records[lang][str(layer)] = record_of(fit)
                maps[lang][layer] = fit.source
        record = {"settings": {"fits": records}}
        name = f"{self.start or 'dictionary'}-{_MAP_TYPES[self.method]}"
        settings = {"method": name, "fits": records}
        aligned = with_maps(
            encoder, maps, towards=self.towards, combine=self.combine, settings=settings
        )
        about = made_of(encoder, name, self.towards, [], [], record)
        aligned.made = about | {"langs": sorted(data.anchors)}
        return Fitted(aligned, record)

    def _checked(
        self, data: Dictionaries
    ) -> tuple[Mapping[str, Dictionary | None], tuple[int, ...]]:
        """Check the data. Return the dictionary of each mapped language (None if `start` is set)
        and the layers.
        """
        anchors, dictionaries = data.anchors, data.entries
        if bool(dictionaries) == (self.start is not None):
            raise SettingError(
                "maps require either dictionaries or an unsupervised initialisation (start), not "
                "both"
            )
        if self.towards not in anchors:
            raise SettingError(
                f"towards must be a language with anchors ({', '.join(anchors)}), got "
                f"{self.towards}"
            )
        by_lang: Mapping[str, Dictionary | None]
        if dictionaries:
            by_lang = joined(dictionaries, self.towards)
        else:
            by_lang = {lang: None for lang in anchors if lang != self.towards}
        # Every language must have the same layers, because a map is fitted for each layer.
        layers, *others = {tuple(sorted(by_layer)) for by_layer in anchors.values()}
        if not by_lang or others:
            raise SettingError(
                "anchors must cover 2 or more languages with the same layers, got "
                f"{[layers, *others]}"
            )
        for lang in by_lang:
            if lang not in anchors:
                raise SettingError(
                    f"every language of a dictionary must have anchors, but {lang} has no anchors"
                )
        return by_lang, layers

    def _fit(
        self, lang: str, layer: int, data: Dictionaries, dictionary: Dictionary | None
    ) -> DictionaryFit:
        sides = data.anchors[lang][layer], data.anchors[self.towards][layer]
        if dictionary is not None:
            if self.identical:
                dictionary = with_identical_words(dictionary, *(side.words for side in sides))
            return fit_dictionary(*sides, dictionary, **self._fitting(), shrinkage=self.shrinkage)
        assert self.start is not None  # `_checked` has compared it with the dictionaries
        fit = fit_unsupervised(
            *sides,
            start=self.start,
            restarts=self.restarts,
            options=dict(self.start_options or {}),
            seed=self.seed,
            **self._fitting(),
        )
        if fit.verdict is not None and fit.verdict.failed:
            warnings.warn(
                f"{lang}, layer {layer}: {fit.verdict.why}", FailedMapWarning, stacklevel=3
            )
        return fit


def record_of(fit: DictionaryFit) -> dict[str, Any]:
    """Return the results of a fit as JSON values."""

    def number(value: float) -> float | None:
        return round(value, 4) if math.isfinite(value) else None

    rounds = []
    for fitted in fit.rounds:
        rounds.append(
            {
                "pairs": fitted.pairs,
                "held_out_p@1": number(fitted.held_out),
                "mutual_csls": number(fitted.mutual),
                "mutual_pairs": fitted.mutual_pairs,
            }
        )
    record = {
        **fit.settings,
        "seeds": fit.seeds,
        "left_out": fit.left_out,
        "best": fit.best,
        "rounds": rounds,
    }
    if fit.verdict is not None:
        record |= {"failed": fit.verdict.failed, "verdict": fit.verdict.why}
    return record


def joined(dictionaries: Sequence[Dictionary], towards: str) -> dict[str, Dictionary]:
    """Merge the dictionaries into one dictionary per language, with `towards` as its target
    language.

    Raises:
        SettingError: a dictionary does not contain the language `towards`, or its two languages are
            equal.
    """
    by_lang: dict[str, Dictionary] = {}
    for dictionary in dictionaries:
        source, target, langs = dictionary.source, dictionary.target, dictionary.langs
        if towards not in langs or langs[0] == langs[1]:
            raise SettingError(
                f"a dictionary for {' and '.join(langs)} cannot be used to map towards {towards}"
            )
        if langs[0] == towards:
            source, target, langs = target, source, (langs[1], towards)
        earlier = by_lang.get(langs[0])
        if earlier is not None:
            source, target = (*earlier.source, *source), (*earlier.target, *target)
        by_lang[langs[0]] = Dictionary(source, target, langs, dictionary.path)
    return by_lang
