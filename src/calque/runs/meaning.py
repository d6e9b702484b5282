"""From an encoder to scores on dictionaries and on texts with senses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.linking import Say, skipped

if TYPE_CHECKING:
    from calque.tasks import Score


def lexicon(
    encoder: str,
    *,
    test: str,
    langs: tuple[str, str],
    texts: Sequence[str] = (),
    similarity: Any = "csls",
    entries: tuple[int, int | None] = (0, None),
    lower: bool = False,
    pretokenized: bool = False,
    limit: int | None = None,
    on_error: Any = "raise",
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
        entries: only the source words from this number to that, in the dictionary's order.
        lower: capital letters are small ones.
        pretokenized, limit: of the texts: words stand between spaces; read only so many lines of each.
        on_error: "raise", or "skip" to leave out lines of the dictionary that are no pair.
        load: keyword arguments of `load_encoder`.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.corpora import read_dictionary
    from calque.corpora.languages import language_and_path
    from calque.encoders import load_encoder
    from calque.runs.pretrain import read_languages
    from calque.tasks.lexicon import Lexicon, by_frequency

    dictionary = by_frequency(read_dictionary(test, langs=langs, on_error=on_error), *entries)
    named = ["=".join(language_and_path(text)) for text in texts]
    found = read_languages(named, pretokenized=pretokenized, limit=limit, say=say) if named else None
    task = Lexicon(dictionary, texts=found, similarity=similarity, lower=lower, data=Path(test).name)
    about = {
        "entries": "-".join("" if end is None else str(end) for end in entries),
        "text": [Path(t).name for t in texts],
    }
    scores = _asked(task.evaluate(load_encoder(encoder, **dict(load or {})), progress=progress), about)
    left_out, n = scores[0].settings["left_out"], scores[0].n
    say(f"{test}: {n:,} source words")
    if left_out:
        skipped(f"{test}: {left_out:,} of {len(dictionary):,} entries skipped because a word has no vector")
    return scores


def disambiguate(
    encoder: str,
    *,
    train: str,
    test: Sequence[str],
    first_senses: str | None = None,
    restrict: Any = "lemma",
    limit: int | None = None,
    test_limit: int | None = None,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Score]:
    """Word sense disambiguation by the nearest sense vector.

    Args:
        encoder: hub name, folder or `mini`.
        train, test: XML files of the unified evaluation framework, with their key files beside them, or data sets; the
            language is English where neither the name nor `de=FILE` says another.
        first_senses: WordNet's `index.sense`, for words whose lemma the training text has not.
        restrict: "lemma", to its senses in the training text; "none" takes the nearest of all senses.
        limit, test_limit: use only so many sentences, at even distances.
        load: keyword arguments of `load_encoder`.
        progress, say: show bars on standard error; take a line of news.
    """
    from calque.corpora import read_senses
    from calque.corpora.languages import language_and_path
    from calque.encoders import load_encoder
    from calque.runs.transfer import spread_over
    from calque.tasks.disambiguation import Disambiguation
    from calque.tasks.disambiguation import first_senses as read_first

    def read(file: str, most: int | None) -> Any:
        lang, path = language_and_path(file, "en")
        text = read_senses(path, lang=lang)
        some = spread_over(len(text.sentences), most)
        used = "" if some is None else f", of which {len(some):,} are used"
        say(f"{path}: {len(text):,} sense-annotated words in {len(text.sentences):,} sentences{used}")
        return text if some is None else text.take(some)

    learnt = read(train, limit)
    texts = {}
    for file in test:
        name = Path(file).name
        texts[file if name in texts else name] = read(file, test_limit)
    first = None if first_senses is None else read_first(first_senses)
    task = Disambiguation(learnt, texts, first_sense=first, restrict=restrict)
    about = {"train": [Path(train).name]}
    scores = _asked(task.evaluate(load_encoder(encoder, **dict(load or {})), progress=progress), about)
    for score in scores:
        about = score.settings
        missing = f", {n:,} without a vector" if (n := about["words_without_vector"]) else ""
        say(
            f"{score.data}: {about['answered']:,} of {score.n:,} words answered, {about['unseen_lemmas']:,} with a lemma missing "
            f"from {Path(train).name}{missing}; most frequent sense {100 * about['frequent']:.1f}, random guess "
            f"{100 * about['chance']:.1f}"
        )
    return scores


def _asked(scores: Sequence[Score], about: Mapping[str, Any]) -> list[Score]:
    """The same with what else decides the question, which the task itself does not see."""
    return [replace(score, settings={**score.settings, **about}) for score in scores]
