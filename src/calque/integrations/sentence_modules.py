"""Open encoders with maps of each language in sentence-transformers.

`SentenceTransformer(folder, trust_remote_code=True)` imports `MappedTransformer`, because
`modules.json` in a folder of `MappedEncoder` names it. Without `trust_remote_code`, version 6
refuses the folder. Requires `pip install 'calque-align[sentence-transformers]'`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from safetensors.torch import load_file
from sentence_transformers.models import Transformer

from calque.corpora.identify import LanguageIdentifier
from calque.corpora.languages import best_match
from calque.encoders.language_affine import AFFINE_FILE, LANGUAGES_FILE, LanguageAffine
from calque.errors import CalqueWarning, InputError, SettingError

#: key under which the index of each text's map, int64 `[B]`, is passed from `preprocess` to
#: `forward`
_PLACES = "language_places"
_IS_PROMPT = "is_prompt"  # option of `preprocess` that is set for the text of a prompt
_TASKS = ("query", "document")  # tasks of sentence-transformers, which are not languages


class UncertainLanguageWarning(CalqueWarning):
    """Texts whose language was not given and cannot be identified with certainty."""


class MappedTransformer(Transformer):
    """A transformer whose subword vectors are mapped with the map of the text's language, before
    the pooling.

    The language is an argument of `encode`: `model.encode(texts, language="de")`, or `task="de"`.
    Without it, the language of each text is identified among the languages of the training text
    (see `LanguageIdentifier`), and an `UncertainLanguageWarning` counts uncertain texts. Texts
    without a known language are not mapped, like texts of a language without maps in calque.

    Attributes:
        affine: affine maps by layer and language.
        identifier: identifies the language of a text; None if every call must name it.
    """

    #: sentence-transformers passes these arguments of `encode` on to `forward`
    forward_kwargs: ClassVar[set[str]] = {*Transformer.forward_kwargs, "language", "task"}
    # A model in the root of a folder could be opened without maps.
    save_in_root = False

    affine: LanguageAffine
    identifier: LanguageIdentifier | None = None

    def preprocess(  # type: ignore[override]
        self,
        inputs: Sequence[Any],
        *args: Any,
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Tokenise texts, and find the index of each text's map.

        Args:
            language, task: language of all texts; default: the language is identified.
        """
        # The library calls this method again with these options to find the length of the prompt,
        # which has no language.
        if options.get(_IS_PROMPT):
            return dict(super().preprocess(inputs, *args, **options))  # type: ignore[arg-type]
        places = self._places(inputs, language, task)
        options[_IS_PROMPT] = True
        if task is not None:
            options["task"] = task
        features = dict(super().preprocess(inputs, *args, **options))  # type: ignore[arg-type]
        features[_PLACES] = torch.tensor(places)
        return features

    def tokenize(  # type: ignore[override]
        self,
        texts: Sequence[Any],
        *args: Any,
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The same for sentence-transformers 5, which calls this method instead of `preprocess`."""
        places = self._places(texts, language, task)
        features = dict(super().tokenize(texts, *args, **options))  # type: ignore[arg-type]
        features[_PLACES] = torch.tensor(places)
        return features

    def forward(
        self,
        features: dict[str, Any],
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Compute mapped subword vectors, `token_embeddings` `[B, T, dim]`."""
        features = dict(features)
        places = features.pop(_PLACES, None)
        named = _named(language, task)
        if places is None and named is None:
            raise SettingError(
                "the language of the texts is missing; pass it as in "
                f'encode(texts, language="{self.affine.languages[0]}")'
            )
        features = super().forward(features, **options)
        states = features["all_layer_embeddings"]
        parts = []
        for layer in self.affine.layers:
            rows = states[layer].float()
            if named is not None:
                parts.append(self.affine.of_language(rows, layer, self._place_of(named)))
            else:
                parts.append(self.affine(rows, layer, places))
        features["token_embeddings"] = self.affine.combined(parts)
        return features

    def _places(self, texts: Sequence[Any], language: str | None, task: str | None) -> list[int]:
        """Return the index of the map of each text; −1 for texts that are not mapped."""
        named = _named(language, task)
        if named is not None:
            return [self._place_of(named)] * len(texts)
        if self.identifier is None:
            known = ", ".join(self.affine.languages)
            fact = f"this encoder has maps for {known}, and cannot identify the language of a text"
            raise SettingError(f'{fact}; pass it as in encode(texts, language="de")')
        places, uncertain = [], []
        for text in texts:
            found = self.identifier.identify(str(text))
            places.append(self._place_of(found.lang) if found.lang else -1)
            if not found.is_certain:
                uncertain.append((text, found.lang or "no language, which is not mapped"))
        if uncertain:
            text, lang = uncertain[0]
            fact = f"the language of {len(uncertain)} of {len(texts)} texts is uncertain"
            remedy = 'pass the language, as in encode(texts, language="de")'
            message = f"{fact} ({str(text)[:40]!r} was identified as {lang}); {remedy}"
            warnings.warn(UncertainLanguageWarning(message), stacklevel=2)
        return places

    def _place_of(self, lang: str) -> int:
        """Return the index of the map of a language, or −1 if it is not mapped; raise SettingError
        for a language that the encoder was not aligned for.
        """
        known = self.affine.languages
        match = best_match(lang, [*known, self.affine.towards])
        if match is None:
            names = ", ".join(dict.fromkeys([*known, self.affine.towards]))
            raise SettingError(f"language must be one of {names}, got {lang!r}")
        return known.index(match) if match in known else -1

    # -- files -------------------------------------------------------------------------------------
    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        """Load the model and its maps from a folder or from the hub."""
        opened = cast("Self", super().load(model_name_or_path, subfolder=subfolder, **options))
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: options[name] for name in names if name in options}
        paths = []
        for name in (AFFINE_FILE, LANGUAGES_FILE):
            path = cls.load_file_path(model_name_or_path, name, subfolder=subfolder, **where)
            if path is None:
                raise InputError(f"the maps of the encoder are missing ({name})", path=subfolder)
            paths.append(Path(path))
        record = json.loads(paths[1].read_text(encoding="utf-8"))
        opened.affine = LanguageAffine.from_record(record, load_file(paths[0]))
        if record["identifier"] is not None:
            opened.identifier = LanguageIdentifier.from_record(record["identifier"], paths[1])
        return opened

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Write the model and its maps."""
        super().save(output_path, *args, **options)
        self.affine.save(Path(output_path), self.identifier)


def _named(language: str | None, task: str | None) -> str | None:
    """Return the language that is named in a call, or None."""
    if language is not None or task in _TASKS:
        return language
    return task
