"""Run any alignment method by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment import METHODS, learns_from, methods_for
from calque.alignment.base import Run
from calque.alignment.data import LinkedText, training_data
from calque.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from calque.alignment.base import Method
    from calque.alignment.data import TrainingData
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus


def align(
    encoder: Encoder | str,
    data: TrainingData | ParallelCorpus | Sequence[ParallelCorpus] | Mapping[str, Any],
    method: str = "contrastive",
    *,
    pairs: WordPairs | Dictionary | Sequence[WordPairs] | Sequence[Dictionary] | None = None,
    towards: str | None = None,
    folder: str | Path | None = None,
    checkpoint_every: int = 200,
    progress: bool = False,
    **options: Any,
) -> Encoder:
    """Align the languages of an encoder.

    Args:
        encoder: encoder, which is not changed, or a name or path for `load_encoder`.
        data: training data (see `calque.alignment.data`), or one or more parallel texts. Methods
            that need no translations also accept sentences by language, and methods that use
            dictionaries accept anchors by language and layer.
        method: name of a method (see `calque align`), or a class as `package.module:Class`.
        pairs: word links of each parallel text, or dictionaries; default: links computed by the
            statistical aligner.
        towards: language that all other languages are aligned with; default: the first language of
            the data.
        folder, checkpoint_every: folder for checkpoints, from which training can resume, and number
            of updates between them.
        progress: whether to show progress bars on standard error.
        options: arguments of the method's class.

    Raises:
        SettingError: the method is unknown, cannot use this kind of data, or does not have one of
            the options.

    Example:
        >>> import calque
        >>> text = calque.ParallelCorpus.of([["a", "house"]] * 4, [["ein", "Haus"]] * 4, ("en", "de"))
        >>> calque.align("mini", text, "rotation").name
        'mini+rotation'
    """
    from calque.encoders.huggingface import with_default_pooling
    from calque.encoders.loading import load_encoder
    from calque.wordalign import align_words

    training = training_data(data, pairs)
    row = METHODS[method]
    built = make_method(method, towards or training.langs[0], options, training.kind)
    if isinstance(training, LinkedText) and not training.pairs and row.needs_links:
        links = [align_words(corpus, symmetrize=row.symmetrize) for corpus in training.corpora]
        training = training.linked(links)
    if isinstance(encoder, str):
        encoder = with_default_pooling(load_encoder(encoder, alike=not row.of_each), row.pooling)
    return built.fit(encoder, training, Run(folder, checkpoint_every, progress)).encoder


#: description of each kind of training data in messages
_DATA = {"parallel": "parallel text", "dictionary": "dictionaries", "text": "text alone"}


def make_method(
    name: str, towards: str, options: Mapping[str, Any], kind: str = "parallel"
) -> Method:
    """Build a method for the given kind of data.

    Raises:
        SettingError: the method is unknown, cannot use this kind of data, or does not have one of
            the options.
    """
    if not learns_from(name, kind):
        names = methods_for(kind)
        meant = did_you_mean(name, names)
        raise SettingError(
            f"method must be one of {', '.join(names)} for {_DATA[kind]}, got {name!r}{meant}"
        )
    settings, method_class = METHODS[name].settings, METHODS.load(name)
    if kind == "dictionary":
        from calque.alignment.dictionary import DictionaryMaps

        method_class = DictionaryMaps
    try:
        return method_class(towards=towards, **settings, **options)
    except TypeError as error:
        raise SettingError(
            f"{name} cannot be built with {', '.join(options) or 'no options'} ({error})"
        ) from error
