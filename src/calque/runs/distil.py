"""Distil a teacher into a student, and save the student with its pooling and model card."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora import read_sentences
from calque.corpora.by_name import name_of
from calque.corpora.languages import best_match
from calque.distributed import is_first
from calque.errors import SettingError
from calque.input_texts import Say, Words
from calque.runs.align import Aligned, leave
from calque.runs.folder import TRAINING, check, writing

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.encoders.sentence_vectors import SentencePooling
    from calque.text import ParallelCorpus


def distil(
    texts: Sequence[str],
    *,
    langs: Sequence[tuple[str, str]],
    teacher: str,
    student: str,
    out: str | Path,
    towards: str | None = None,
    monolingual: Sequence[str] = (),
    static: bool = False,
    pooling: str | None = None,
    teacher_pooling: str | None = None,
    vectors: str | Path | None = None,
    limit: int | None = None,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    checkpoint_every: int = 200,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Train a student to give the sentence vectors of a teacher in the teacher's language and in the languages of the
    translations.

    Arguments not listed here are the options of `calque distil`.

    Args:
        texts: parallel texts in any format of `read_parallel`, divided at spaces only.
        out: folder for the result, which appears when it is complete; an interrupted training resumes.
        load: keyword arguments of `load_encoder`, for the student.
        options: keyword arguments of `Distillation`.

    Raises:
        SettingError: a teacher without a sentence vector, a student that is no encoder of subwords, languages that the text does
            not have, or settings that do not fit each other.
        InputError: a file cannot be read.
    """
    from calque.alignment.distilled import Distillation, static_student
    from calque.encoders import load_encoder
    from calque.encoders.sentence_store import TeacherVectors
    from calque.encoders.sentence_vectors import SentencePooling, UnitLength

    check(out, overwrite=overwrite)
    if not texts and not monolingual:
        raise SettingError("nothing to learn from: name parallel texts, or lines of the teacher's language with --text")
    if towards is None and not langs:
        raise SettingError("--langs is missing: name the languages of the text, e.g. --langs en de")
    towards = towards or langs[0][0]
    how = Distillation(towards=towards, **dict(options or {}))
    known = load_encoder(teacher)
    teaching = teacher_vector(known, teacher_pooling)
    corpora = Words(pretokenized=True, limit=limit).read_all(texts, langs) if texts else []
    for path, corpus in zip(texts, corpora, strict=True):
        if best_match(towards, corpus.langs) is None:
            raise SettingError(
                f"{path} is in {corpus.langs[0]} and {corpus.langs[1]}, the teacher's language is {towards}: say it with "
                "--towards"
            )
    more = [read_sentences(path, lang=towards, pretokenized=True, limit=limit) for path in monolingual]
    learner: Any = load_encoder(student, **dict(load or {}))
    ending = student_pooling(learner, pooling)
    with writing(out, overwrite=overwrite) as folder:
        place = folder / TRAINING / "teacher" if vectors is None else Path(vectors)
        store = TeacherVectors(place, known, teaching)
        started = time.perf_counter()
        if static:
            share = [side for corpus in corpora for side in (corpus.source, corpus.target)]
            unit = any(isinstance(part, UnitLength) for part in list(teaching.after)[-1:])
            learner = static_student(
                learner.tokenizer,
                store,
                [*share, *more],
                lang=towards,
                name=Path(out).name,
                unit=unit,
                progress=progress,
            )
            ending = SentencePooling.of(learner)
        say(f"distil: {sum(map(len, corpora)):,} sentence pairs, {sum(map(len, more)):,} sentences in {towards}")
        found = how.distil(
            learner, ending, store, corpora, more, folder=folder / TRAINING, checkpoint_every=checkpoint_every,
            progress=progress,
        )  # fmt: skip
        record = {
            **how.record(), "method": "distillation", "towards": towards, "teacher": known.name,
            "teacher_fingerprint": known.fingerprint, "texts": _texts(texts, corpora, monolingual, more, towards),
            "teacher_vectors": {"computed": how.computed, "kept": len(store)},
            "seconds": {"method": round(time.perf_counter() - started, 2)},
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as place:
            if not static:
                found.write_modules(Path(place))
            leave(found.encoder, folder, learner, record)
    if is_first() and not static:
        found.encoder.modules = Path(out)
    return Aligned(found.encoder, Path(out), record)


def teacher_vector(encoder: Encoder, name: str | None) -> SentencePooling:
    """Return the sentence pooling of a teacher.

    Raises:
        SettingError: the teacher has no pooling of its own, and none is named.
    """
    from calque.encoders.sentence_vectors import SentencePooling

    if name is None and getattr(encoder, "modules", None) is None:
        raise SettingError(
            f"the teacher {encoder.name} has no sentence vector of its own, as a sentence-transformers folder has: say how it "
            "makes one with --teacher-pooling words, subwords or cls"
        )
    return SentencePooling.of(encoder, name)  # type: ignore[arg-type]


def student_pooling(encoder: Encoder, name: str | None) -> SentencePooling:
    """Return the sentence pooling of a student: the named one, its own, or the mean of subwords.

    Raises:
        SettingError: the student has no subwords, or the pooling is unknown.
    """
    from calque.encoders import HuggingFaceEncoder
    from calque.encoders.sentence_vectors import SentencePooling

    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(
            f"the student {encoder.name} cannot be trained on sentences: expected a model of transformers"
        )
    if name == "own" or (name is None and getattr(encoder, "modules", None) is not None):
        return SentencePooling.of(encoder, "own")
    if name in ("subwords", "cls", None):
        return SentencePooling.of(encoder, name or "subwords")  # type: ignore[arg-type]
    raise SettingError(f"sentence pooling {name!r}, expected own, subwords or cls")


def _texts(
    paths: Sequence[str], corpora: Sequence[ParallelCorpus], more: Sequence[str], sentences: Sequence[Any], lang: str
) -> list[dict[str, Any]]:
    """Return the rows of the texts for the model card."""
    rows: list[dict[str, Any]] = [
        {"path": name_of(path), "langs": list(corpus.langs), "sentence_pairs": len(corpus)}
        for path, corpus in zip(paths, corpora, strict=True)
    ]
    return rows + [
        {"path": Path(path).name, "langs": [lang], "sentences": len(text)}
        for path, text in zip(more, sentences, strict=True)
    ]
