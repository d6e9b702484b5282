"""Parallel text on which an encoder is aligned in the run that trains it for a task: before, during or after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

from calque.alignment.tuner import Tuner
from calque.corpora.by_name import name_of
from calque.encoders.base import require
from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.linking import Say, Words, digest_of
from calque.runs.align import make_method, warn_of_unused
from calque.runs.links import links_of
from calque.training.sources import below
from calque.training.together import Beside, Realignment, When

if TYPE_CHECKING:
    from calque.alignment.aligned import AlignedText
    from calque.distributed import Processes
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus

Linked = tuple[Sequence["ParallelCorpus"], Sequence["WordPairs"]]
#: what the task's own training says, where both are one
_OF_THE_TASK = ("learning_rate", "precision")


class TextRealignment(Realignment):
    """Alignment by a method that trains the encoder.

    Before the task's training or after it, the method has its own schedule, as in `calque align`. Each seed has an alignment
    of its own. Before: each seed starts from its own. After: the head is the one that was learnt before it. During: one
    Adam at the task's rate, and the parallel text once unless the method's `epochs` are given, spread evenly over the task's
    updates; if `patience` ends the training early, less of it.

    Args:
        read: gives the parallel texts and their links; called once, when an encoder is to be realigned.
        when: "before", "during" or "after".
        method: `contrastive`, `finetune`, or `package.module:Class` of a `Tuner`.
        towards: the language that the others move towards; None for the one that the task is learnt in.
        names: of the texts, for the record.

    Raises:
        SettingError: settings that do not fit together.
    """

    def __init__(
        self,
        read: Callable[[], Linked],
        *,
        when: When = "before",
        method: str = "contrastive",
        towards: str | None = None,
        options: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
    ):
        if when not in get_args(When):
            raise SettingError(f"realignment is before, during or after, got {when!r}")
        given = dict(options or {})
        if when == "during" and (own := [name for name in _OF_THE_TASK if name in given]):
            raise SettingError(
                f"{', '.join(own)} of {method}: during the task's training its own {'count' if len(own) > 1 else 'counts'}; "
                "leave it out, or realign before or after"
            )
        tuner = make_method(method, towards or "en", given)
        if not isinstance(tuner, Tuner):
            raise SettingError(f"{method} cannot realign an encoder for a task: expected contrastive or finetune")
        if tuner.centre:
            raise SettingError(
                f"centre of {method}: an encoder with shifted languages cannot learn a task; leave it out"
            )
        if tuner.lora is not None and when == "during":
            raise SettingError(
                f"lora of {method}: during the task's training one Adam moves all weights, the alignment's among them; realign "
                "before or after it, or leave lora out"
            )
        self.when, self._method, self._names = when, method, list(names)
        self._tuner, self._towards, self._given, self._read = tuner, towards, given, read
        self._linked: Linked | None = None
        self._text: tuple[TrainableEncoder, AlignedText] | None = None
        self._warned = False

    def prepare(self, encoder: Encoder, sources: Sequence[str]) -> None:
        if (rows := getattr(encoder, "rows", "words")) != "words":
            raise SettingError(f"{encoder.name} cannot be realigned: its vectors are of {rows}, expected words")
        require(encoder, "trained")
        if not isinstance(encoder, TrainableEncoder):
            raise SettingError(f"{encoder.name} cannot be realigned: it has no weights to train")
        if self._linked is None:
            self._linked = self._read()
        langs = [set(corpus.langs) for corpus in self._linked[0]]
        said = ", ".join("-".join(corpus.langs) for corpus in self._linked[0])
        shared = [lang for lang in sources if all(lang in pair for pair in langs)]
        towards = self._towards or next(iter(shared), None)
        if towards is None:
            raise SettingError(
                f"the task is learnt in {', '.join(sources)}, and the text to realign on is in {said}: name the language that "
                "the others move towards (--realign-towards)"
            )
        if any(towards not in pair for pair in langs):
            raise SettingError(f"cannot realign towards {towards}: the text is in {said}")
        self._tuner = replace(self._tuner, towards=towards)

    def align(self, encoder: TrainableEncoder, *, seed: int = 0, progress: bool = False) -> TrainableEncoder:
        # A head that was learnt before reads vectors as they were.
        standardize = False if self.when == "after" else self._tuner.standardize
        tuner = replace(self._tuner, seed=self._tuner.seed + seed, standardize=standardize)
        aligned = tuner.tune(encoder, *self._texts, progress=progress, kept=False)
        self._warn(vars(tuner.counts))
        return aligned.merged()

    def beside(
        self, learning: TrainableEncoder, encoder: TrainableEncoder, *, seed: int, processes: Processes
    ) -> Beside:  # fmt: skip
        if self._text is None or self._text[0] is not encoder:
            self._text = encoder, self._tuner.text(encoder, *self._texts)
            self._warn(vars(self._text[1].counts))
        text, tuner = self._text[1], self._tuner
        frozen = below(learning.model, tuner.freeze)
        plan, passes = tuner.plan(text, tuner.seed + seed), self._given.get("epochs", 1.0)
        return Beside(tuner.objective(learning, encoder, text, processes), plan, passes=passes, frozen=frozen)

    @property
    def _texts(self) -> Linked:
        if self._linked is None:
            raise SettingError("prepare comes first: it reads the text")
        return self._linked

    def _warn(self, counts: Mapping[str, Any]) -> None:
        if not self._warned:  # of every seed the same
            self._warned = True
            warn_of_unused(counts, self._tuner.max_words, self._texts[0])

    def settings(self) -> dict[str, Any]:
        corpora, pairs = self._texts
        about: dict[str, Any] = {"when": self.when}
        said = self.when
        if self.when == "during":
            about |= {"how": "alternating", "passes": self._given.get("epochs", 1.0)}
            said += " (alternating)"
        else:
            about["schedule"] = asdict(self._tuner.schedule)
        about |= {
            "method": self._method, "towards": self._tuner.towards, "seed": self._tuner.seed,
            "settings": self._tuner.settings(), "langs": ["-".join(corpus.langs) for corpus in corpora],
            "sentence_pairs": sum(map(len, corpora)), "word_pairs": sum(map(len, pairs)), "text": self._fingerprint(),
        }  # fmt: skip
        whole = hashlib.blake2b(json.dumps(about, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()
        given = "".join(f", {name} {value}" for name, value in self._given.items())
        said += f", {self._method} towards {self._tuner.towards}, {about['sentence_pairs']:,} sentence pairs{given}"
        return {"realign": f"{said} ({whole})", "realignment": {**about, "texts": self._names}}

    def _fingerprint(self) -> str:
        """Hash of the texts and their links."""
        digest = hashlib.blake2b(digest_size=16)
        for corpus, pairs in zip(*self._texts, strict=True):
            digest.update(json.dumps([corpus.langs, digest_of(corpus.source), digest_of(corpus.target)]).encode())
            for array in (pairs.sentence, pairs.source, pairs.target):
                digest.update(array.astype("int64").tobytes())
        return digest.hexdigest()


def realign_on(
    texts: Sequence[str],
    *,
    langs: Sequence[tuple[str, str]],
    links: Sequence[str] = (),
    words: Words | None = None,
    say: Say = lambda line: None,
    **how: Any,
) -> TextRealignment:
    """A realignment on parallel texts from files, linked as `calque align` links them.

    Arguments not listed here are the options of `calque evaluate`.

    Args:
        how: see `TextRealignment`.

    Raises:
        SettingError: numbers of files that do not fit each other, and see `TextRealignment`.
    """
    if not langs:
        raise SettingError("the text to realign on needs --langs, e.g. --langs en de")
    if links and len(links) != len(texts):
        raise SettingError(f"{len(texts)} texts to realign on but {len(links)} files of links: give one for each text")
    words = words or Words()

    def read() -> Linked:
        corpora = words.read_all(texts, langs)
        if links:
            return corpora, [words.open_pairs(path, corpus) for path, corpus in zip(links, corpora, strict=True)]
        return corpora, links_of(corpora, words, folder=None, say=say)

    return TextRealignment(read, names=[name_of(text) for text in texts], **how)
