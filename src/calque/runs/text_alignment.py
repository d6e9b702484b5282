"""From plain text of each language and an encoder to a folder with the encoder and maps that need no translations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calque.alignment import METHODS, methods_for
from calque.corpora.languages import language_and_path
from calque.errors import SettingError
from calque.linking import Say, read_languages
from calque.runs.align import Aligned, leave
from calque.runs.folder import check, writing


def align_text(
    texts: Sequence[str],
    *,
    encoder: str,
    method: str,
    towards: str,
    out: str | Path,
    options: Mapping[str, Any] | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    load: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Fit maps on the word vectors of each language's text.

    Arguments not listed here are the options of `calque align`.

    Args:
        texts: plain text, one sentence a line, in two languages or more (`de=de.txt` where the name does not say it); several
            of a language are joined.
        method: one of `methods_for("text")`.

    Raises:
        SettingError: a method that needs more than text, or no text in `towards` and another language.
    """
    from calque.encoders import load_encoder

    if method not in methods_for("text"):
        raise SettingError(f"{method} needs more than text, expected one of {', '.join(methods_for('text'))}")
    how = METHODS.load(method)(towards=towards, **dict(options or {}))
    check(out, overwrite=overwrite)
    named = [language_and_path(text) for text in texts]
    langs = list(dict.fromkeys(lang for lang, _ in named))
    if towards not in langs or len(langs) < 2:
        raise SettingError(
            f"{method} needs text in {towards} and in another language, got {', '.join(langs)}: give one --text per language"
        )
    corpora = read_languages(named, pretokenized=pretokenized, limit=limit, say=say)
    base: Any = load_encoder(encoder, **dict(load or {}))
    with writing(out, overwrite=overwrite) as folder:
        started = time.perf_counter()
        aligned = how.align(base, corpora, progress=progress)
        record = how.record() | {
            "method": method,
            "towards": towards,
            "langs": sorted(corpora),
            "texts": [
                {"path": ", ".join(Path(path).name for other, path in named if other == lang), "langs": [lang],
                 "sentences": len(text)}
                for lang, text in corpora.items()
            ],
            "pretokenized": pretokenized,
            "seconds": {"method": round(time.perf_counter() - started, 2)},
        }  # fmt: skip
        leave(aligned, folder, base, record)
    return Aligned(aligned, Path(out), record)
