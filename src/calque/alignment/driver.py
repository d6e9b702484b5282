"""Run any alignment method by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from calque.alignment import METHODS, learns_from, methods_for
from calque.errors import SettingError

if TYPE_CHECKING:
    from calque.alignment.base import Method
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus, Sentences

    Data = ParallelCorpus | Sequence[ParallelCorpus] | Mapping[str, Sentences] | Mapping[str, Mapping[int, Anchors]]


def align(
    encoder: Encoder | str,
    data: Data,
    method: str = "contrastive",
    *,
    pairs: WordPairs | Sequence[WordPairs] | Sequence[Dictionary] | None = None,
    towards: str | None = None,
    folder: str | Path | None = None,
    checkpoint_every: int = 200,
    progress: bool = False,
    **options: Any,
) -> Encoder:
    """Align the languages of an encoder.

    Args:
        encoder: an encoder, or an argument of `load_encoder`; it is not changed.
        data: one or more parallel texts; or sentences by language, for methods without translations; or anchors by language and
            layer, for dictionaries.
        method: name of a method, see `calque align`, or `package.module:Class`.
        pairs: word links of each parallel text (default: by the statistical aligner), or dictionaries.
        towards: language that the others are aligned with; default: the first language of the data.
        folder, checkpoint_every: folder for checkpoints, from which training resumes, and number of updates between checkpoints.
        options: options of the method.

    Raises:
        SettingError: the method is unknown, cannot use such data, or does not have an option.

    Example:
        >>> import calque
        >>> text = calque.ParallelCorpus.of([["a", "house"]] * 4, [["ein", "Haus"]] * 4, ("en", "de"))
        >>> calque.align("mini", text, "rotation").name
        'mini+rotation'
    """
    from calque.annotated import Dictionary
    from calque.encoders.loading import load_encoder
    from calque.text import ParallelCorpus, Sentences
    from calque.wordalign import align_words

    several = [data] if isinstance(data, ParallelCorpus) else data
    if isinstance(several, Mapping):
        kind = "text" if all(isinstance(each, Sentences) for each in several.values()) else "dictionary"
        first = next(iter(several), "")
    else:
        kind, first = "parallel", several[0].langs[0]
    made = make_method(method, towards or first, options, kind)
    learnt: Any = pairs
    if pairs is None:
        is_linked = kind == "parallel" and METHODS[method].needs_links
        corpora = cast("Sequence[ParallelCorpus]", several)
        learnt = [align_words(each, symmetrize=METHODS[method].symmetrize) for each in corpora] if is_linked else ()
    elif not isinstance(pairs, Sequence) or isinstance(pairs, Dictionary):
        learnt = [pairs]
    loaded = load_encoder(encoder, alike=not METHODS[method].of_each) if isinstance(encoder, str) else encoder
    return made.align(loaded, several, learnt, folder=folder, checkpoint_every=checkpoint_every, progress=progress)


def make_method(name: str, towards: str, options: Mapping[str, Any], kind: str = "parallel") -> Method:
    """Build a method for parallel text, dictionaries or plain text.

    Raises:
        SettingError: the method is unknown, or does not have an option.
    """
    if not learns_from(name, kind):
        what = {"parallel": "parallel text", "dictionary": "dictionaries", "text": "text alone"}[kind]
        raise SettingError(f"{name!r} is no method for {what}, expected one of {', '.join(methods_for(kind))}")
    settings, kept = METHODS[name].settings, METHODS.load(name)
    if kind == "dictionary":
        from calque.alignment.dictionary import DictionaryMaps

        kept = DictionaryMaps
    try:
        return kept(towards=towards, **settings, **options)
    except TypeError as error:
        raise SettingError(f"{name} cannot be made with {', '.join(options) or 'no options'} ({error})") from error
