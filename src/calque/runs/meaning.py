"""From an encoder to scores on dictionaries and on texts with senses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.runs.texts import Say

if TYPE_CHECKING:
    from calque.tasks import Score


def lexicon(
    encoder: str,
    *,
    test: str,
    langs: tuple[str, str],
    texts: Sequence[str] = (),
    similarity: Any = "csls",
    pretokenized: bool = False,
    limit: int | None = None,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Bilingual lexicon induction.

    Args:
        encoder: hub name, folder, `mini`, or a file of static vectors.
        test: dictionary.
        langs: its languages.
        texts: plain text, one sentence a line, in both languages (`de=de.txt` where the name does not say); a word's
            vector is the mean over its occurrences. Without it each word is encoded alone.
        similarity: csls or cosine.
        pretokenized, limit: of the texts: words stand between spaces; read only so many lines of each.
        load: keyword arguments of `load_encoder`.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.corpora import read_dictionary
    from calque.corpora.languages import language_of
    from calque.encoders import load_encoder
    from calque.runs.pretrain import read_languages
    from calque.tasks.lexicon import Lexicon

    dictionary = read_dictionary(test, langs=langs)
    named = [text if "=" in text else f"{language_of(text) or ''}={text}" for text in texts]
    for text in named:
        if text.startswith("="):
            raise SettingError(f"{text[1:]}: which language is it in? Say it before the name, as in de{text}")
    found = read_languages(named, pretokenized=pretokenized, limit=limit, say=say) if named else None
    task = Lexicon(dictionary, texts=found, similarity=similarity, data=Path(test).name)
    return task.evaluate(load_encoder(encoder, **dict(load or {})), progress=progress)


def disambiguate(
    encoder: str,
    *,
    train: str,
    test: Sequence[str],
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Word sense disambiguation by the nearest sense vector.

    Args:
        encoder: hub name, folder or `mini`.
        train, test: XML files of the unified evaluation framework, with their key files beside them.
        load: keyword arguments of `load_encoder`.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.corpora import read_senses
    from calque.encoders import load_encoder
    from calque.tasks.disambiguation import Disambiguation

    texts = {Path(path).name: read_senses(path) for path in (train, *test)}
    for name, text in texts.items():
        say(f"{name}: {len(text):,} words with senses in {len(text.sentences):,} sentences")
    learnt = texts.pop(Path(train).name)
    task = Disambiguation(learnt, texts)
    return task.evaluate(load_encoder(encoder, **dict(load or {})), progress=progress)
