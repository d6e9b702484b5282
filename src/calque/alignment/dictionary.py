"""Alignment with maps that are fitted on anchors, with or without dictionaries."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from calque.alignment.base import Fitted, Method, Run
from calque.alignment.data import Dictionaries
from calque.alignment.maps import with_maps
from calque.annotated import Dictionary
from calque.encoders.base import made_of
from calque.encoders.mapped import Combine
from calque.errors import SettingError
from calque.maps.dictionary import DictionaryFit, fit_dictionary, with_identical_words
from calque.maps.unsupervised import fit_unsupervised

#: default arguments of `fit_dictionary` for each method
_FITS: dict[str, dict[str, Any]] = {
    "rotation": {"method": "rotation"},
    "normalized-rotation": {"method": "rotation", "normalise": "centre"},
    "linear": {"method": "linear"},
}


class FailedMapWarning(UserWarning):
    """Warning that fitting a map without a dictionary failed."""


class DictionaryMaps(Method):
    """Maps for each layer and language, fitted on anchors (Schuster et al. 2019, §4).

    Args:
        method: kind of map, "rotation", "normalized-rotation" or "linear".
        towards: target language, to which the vectors of all other languages are mapped.
        start: initialisation for fitting without dictionaries, see `fit_unsupervised`.
        identical: whether to add identically spelt words to the dictionary, see
            `with_identical_words`.
        combine: see `MappedEncoder`.
        options: arguments of `fit_dictionary` or `fit_unsupervised`; they override the defaults of
            the method.

    Raises:
        SettingError: the method is unknown.
    """

    def __init__(
        self,
        method: str = "rotation",
        *,
        towards: str,
        start: str | None = None,
        identical: bool = False,
        combine: Combine = "last",
        **options: Any,
    ):
        if method not in _FITS:
            raise SettingError(f"method must be one of {', '.join(_FITS)}, got {method!r}")
        self.method, self.towards, self.start, self.identical = method, towards, start, identical
        self.combine: Combine = combine
        self._options = _FITS[method] | options

    def fit(self, encoder: Any, data: Dictionaries, run: Run = Run()) -> Fitted:
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
        fits = {
            lang: {layer: self._fit(lang, layer, data, dictionary) for layer in layers}
            for lang, dictionary in by_lang.items()
        }
        record = {"settings": {"fits": _records_of(fits)}}
        maps = {
            lang: {layer: fit.source for layer, fit in by_layer.items()}
            for lang, by_layer in fits.items()
        }
        settings = {
            "method": f"{self.start or 'dictionary'}-{self._options['method']}",
            **record["settings"],
        }
        aligned = with_maps(
            encoder, maps, towards=self.towards, combine=self.combine, settings=settings
        )
        about = made_of(encoder, settings["method"], self.towards, [], [], record)
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
        without = {lang: None for lang in anchors if lang != self.towards}
        by_lang = joined(dictionaries, self.towards) if dictionaries else without
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
            return fit_dictionary(*sides, dictionary, **self._options)
        fit = fit_unsupervised(*sides, start=self.start, **self._options)  # type: ignore[arg-type]
        if fit.verdict is not None and fit.verdict.failed:
            warnings.warn(
                f"{lang}, layer {layer}: {fit.verdict.why}", FailedMapWarning, stacklevel=3
            )
        return fit


def _records_of(fits: Mapping[str, Mapping[int, DictionaryFit]]) -> dict[str, Any]:
    """Return the results of the fits of each language and layer as JSON values."""
    return {
        lang: {str(layer): record_of(fit) for layer, fit in by_layer.items()}
        for lang, by_layer in fits.items()
    }


def record_of(fit: DictionaryFit) -> dict[str, Any]:
    """Return the results of a fit as JSON values."""

    def number(value: float) -> float | None:
        return round(value, 4) if math.isfinite(value) else None

    rounds = [
        {
            "pairs": fitted.pairs,
            "held_out_p@1": number(fitted.held_out),
            "mutual_csls": number(fitted.mutual),
            "mutual_pairs": fitted.mutual_pairs,
        }
        for fitted in fit.rounds
    ]
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
        if (old := by_lang.get(langs[0])) is not None:
            source, target = (*old.source, *source), (*old.target, *target)
        by_lang[langs[0]] = Dictionary(source, target, langs, dictionary.path)
    return by_lang
