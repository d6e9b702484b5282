"""Run any alignment method by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment import METHODS, learns_from, methods_for
from calque.alignment.base import RunOptions
from calque.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from calque.alignment.base import AnchorsByLayer, Links, Method, Text
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.text import Sentences


def align(
    encoder: Encoder | str,
    data: Text | Mapping[str, Sentences] | AnchorsByLayer,
    method: str = "contrastive",
    *,
    pairs: Links | Dictionary | Sequence[Dictionary] | None = None,
    towards: str | None = None,
    folder: str | Path | None = None,
    checkpoint_every: int = 200,
    progress: bool = False,
    **options: Any,
) -> Encoder:
    """Align the languages of an encoder.

    Args:
        encoder: encoder, which is not changed, or a name or path for `load_encoder`.
        data: one or more parallel texts. Methods that need no translations also accept sentences by language, and methods that
            use dictionaries accept anchors by language and layer.
        method: name of a method (see `calque align`), or a class as `package.module:Class`.
        pairs: word links of each parallel text, or dictionaries; default: links computed by the statistical aligner.
        towards: language that all other languages are aligned with; default: the first language of the data.
        folder, checkpoint_every: folder for checkpoints, from which training can resume, and number of updates between them.
        progress: whether to show progress bars on standard error.
        options: arguments of the method's class and of its function `align`.

    Raises:
        SettingError: the method is unknown, cannot use this kind of data, or does not have one of the options.

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

    given: Any = [data] if isinstance(data, ParallelCorpus) else data
    if isinstance(given, Mapping):
        kind = "text" if all(isinstance(each, Sentences) for each in given.values()) else "dictionary"
        first = next(iter(given), "")
    else:
        kind, first = "parallel", given[0].langs[0]
    made, further = make_method(method, towards or first, options, kind)
    if pairs is None and kind == "parallel" and METHODS[method].needs_links:
        pairs = [align_words(corpus, symmetrize=METHODS[method].symmetrize) for corpus in given]
    elif pairs is not None and (not isinstance(pairs, Sequence) or isinstance(pairs, Dictionary)):
        pairs = [pairs]  # type: ignore[assignment]
    loaded = load_encoder(encoder, alike=not METHODS[method].of_each) if isinstance(encoder, str) else encoder
    run = RunOptions(folder=folder, checkpoint_every=checkpoint_every, progress=progress)
    return made.align(loaded, given, () if pairs is None else pairs, **run, **further)


def make_method(
    name: str, towards: str, options: Mapping[str, Any], kind: str = "parallel"
) -> tuple[Method, dict[str, Any]]:
    """Build a method for the given kind of data, and return it with the options for its function `align`.

    Raises:
        SettingError: the method is unknown, cannot use this kind of data, or does not have one of the options.
    """
    if not learns_from(name, kind):
        data = {"parallel": "parallel text", "dictionary": "dictionaries", "text": "text alone"}[kind]
        names = methods_for(kind)
        meant = did_you_mean(name, names)
        raise SettingError(f"method must be one of {', '.join(names)} for {data}, got {name!r}{meant}")
    settings, built = METHODS[name].settings, METHODS.load(name)
    if kind == "dictionary":
        from calque.alignment.dictionary import DictionaryMaps

        built = DictionaryMaps
    run = {each: options[each] for each in align_options(built) if each in options}
    try:
        own = {key: value for key, value in options.items() if key not in run}
        return built(towards=towards, **settings, **own), run
    except TypeError as error:
        raise SettingError(f"{name} cannot be built with {', '.join(options) or 'no options'} ({error})") from error


def align_options(method: type[Method]) -> list[str]:
    """Return the option names of a method's function `align`: its keyword-only arguments that are not in `RunOptions`."""
    return [
        name for name, parameter in signature(method.align).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY and name not in RunOptions.__annotations__
    ]  # fmt: skip
