"""From a dictionary, or from none, and an encoder to a folder with the encoder and maps between its languages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.runs.align import Aligned
from calque.runs.card import model_card
from calque.runs.texts import Say

if TYPE_CHECKING:
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders import Encoder

IDENTICAL = "identical"
STARTS = (IDENTICAL, "distributions", "adversarial")
#: what each method fits, in the words of `fit_dictionary`
METHODS: dict[str, dict[str, Any]] = {
    "rotation": {"method": "rotation"},
    "normalized-rotation": {"method": "rotation", "normalise": "centre"},
    "linear": {"method": "linear"},
    "rcsls": {"method": "rcsls"},
    "whitened": {"method": "whitened", "normalise": "unit-centre-unit"},
}


def align_dictionary(
    dictionaries: Sequence[str] = (),
    *,
    langs: Sequence[tuple[str, str]],
    encoder: str,
    towards: str,
    out: str | Path,
    texts: Sequence[str] = (),
    anchors: Sequence[str] = (),
    start: str | None = None,
    method: str = "rotation",
    normalise: str | None = None,
    together: bool = False,
    refine: int = 5,
    held_out: float = 0.1,
    restarts: int = 3,
    layers: Sequence[int] | None = None,
    combine: str = "last",
    most: int = 50_000,
    at_least: int = 1,
    most_occurrences: int | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    load: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Fit a map for each language and layer on the anchors of words that translate each other.

    Args:
        dictionaries: files (MUSE's, XLing-Eval's), each between `towards` and another language; or `identical` alone,
            for words that are written alike. None for maps from nothing (`start`).
        langs: their languages, one pair for each file or one for all; without files, the pairs that shall be mapped.
        encoder: hub name, folder or `mini`; static vectors; or one encoder for each language, `en=elmo-en,de=elmo-de`.
        towards: the language that the others are mapped into.
        out: folder for the result, which `load_encoder` opens.
        texts: plain text, one sentence a line, in every language (`de=de.txt` where the name does not say it), whose
            words get anchors. Static vectors need none.
        anchors: instead of texts, folders with anchors that `calque anchors` wrote for this encoder (`de=FOLDER`, or as
            they say themselves).
        start: without a dictionary: identical, distributions or adversarial.
        method: one of `METHODS`.
        normalise: none, unit, centre or unit-centre-unit; None for what suits the method.
        together: rotate the languages onto each other too, not only onto `towards` (generalised Procrustes).
        refine: rounds of refinement.
        held_out: share of the dictionary that chooses the round.
        restarts: tries of a start that draws at random.
        layers: layers to map; None for the encoder's own.
        combine: sum, mean or concat of the mapped layers, or the last of them only.
        most: frequent words of each language that get an anchor, besides those of the dictionary.
        at_least: occurrences that a word needs.
        most_occurrences: take only so many of each word.
        pretokenized, limit: of the texts: words stand between spaces; read only so many lines.
        seed: of everything random.
        load: keyword arguments of `load_encoder`.
        overwrite: replace a finished result in `out`.
        progress, say: show bars on standard error; take a line of news.

    Returns:
        `record["failed"]` names the languages for which a map without a dictionary is not to be trusted.
    """
    raise SettingError("maps from dictionaries are not available in this version")
