"""Distil a teacher into a student, and save the student with its sentence pooling and model
card.
"""

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
from calque.runs.align import Aligned, save_result
from calque.runs.folder import TRAINING, check, writing
from calque.runs.settings import DistilSettings, named_pairs

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.encoders.sentence_vectors import SentencePooling
    from calque.text import ParallelCorpus, Sentences


def distil(
    settings: DistilSettings,
    *,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Train a student to reproduce a teacher's sentence vectors, both for sentences in the
    teacher's language and for their translations.

    Args:
        settings: texts are split at spaces. `out` is written only when the result is complete.
            Later calls resume training.
        options: keyword arguments of `Distillation`.

    Raises:
        SettingError: the teacher has no sentence pooling, the student is not a subword encoder, a
            parallel text lacks the teacher's language, or settings are incompatible.
        InputError: a file cannot be read.
    """
    from calque.alignment.base import Run
    from calque.alignment.distilled import Distillation, static_student
    from calque.encoders import load_encoder
    from calque.encoders.sentence_store import TeacherVectors
    from calque.encoders.sentence_vectors import SentencePooling

    check(settings.out, overwrite=settings.overwrite)
    paths, langs = named_pairs(settings.train or (), settings.langs or ())
    if not paths and not settings.text:
        raise SettingError(
            "no training text was given; add parallel texts, or text in the teacher's language "
            "(--text)"
        )
    if settings.towards is None and not langs:
        raise SettingError("--langs is missing; give the languages of the text, e.g. --langs en de")
    towards = settings.towards or langs[0][0]
    method = Distillation(towards=towards, seed=settings.seed, **dict(options or {}))
    teacher = load_encoder(settings.teacher)
    teacher_pooling = teacher_vector(teacher, settings.teacher_pooling, settings.teacher_prompt)
    corpora, texts = _training_texts(settings, paths, langs, towards)
    student: Any = load_encoder(
        settings.student, layer=settings.layer, max_length=settings.max_length
    )
    pooling = student_pooling(student, settings.sentence_pooling)
    with writing(settings.out, overwrite=settings.overwrite) as folder:
        training = folder / TRAINING
        vectors = training / "teacher" if settings.vectors is None else settings.vectors
        store = TeacherVectors(vectors, teacher, teacher_pooling, counts=training / "teacher.json")
        started = time.perf_counter()
        if settings.static:
            sides: list[Sentences] = []
            for corpus in corpora:
                sides += [corpus.source, corpus.target]
            student = static_student(
                student.tokenizer,
                store,
                [*sides, *texts],
                lang=towards,
                name=settings.out.name,
                unit=teacher_pooling.unit_length,
                progress=progress,
            )
            pooling = SentencePooling.of(student)
        n_pairs, n_sentences = sum(map(len, corpora)), sum(map(len, texts))
        say(f"distil: {n_pairs:,} sentence pairs, {n_sentences:,} sentences in {towards}")
        run = Run(training, settings.checkpoint_every, progress)
        distilled = method.distil(student, pooling, store, corpora, texts, run)
        record = {
            **distilled.record,
            "method": "distillation",
            "towards": towards,
            "teacher": teacher.name,
            "teacher_fingerprint": teacher.fingerprint,
            "texts": [
                *(
                    {
                        "path": name_of(path),
                        "langs": list(corpus.langs),
                        "sentence_pairs": len(corpus),
                    }
                    for path, corpus in zip(paths, corpora, strict=True)
                ),
                *(
                    {"path": Path(path).name, "langs": [towards], "sentences": len(text)}
                    for path, text in zip(settings.text or (), texts, strict=True)
                ),
            ],
            "teacher_vectors": {"computed": store.computed, "kept": len(store)},
            "seconds": {"method": round(time.perf_counter() - started, 2)},
        }
        with tempfile.TemporaryDirectory() as modules:
            if not settings.static:
                distilled.write_modules(Path(modules))
            save_result(distilled.encoder, folder, student, record, place=settings.student)
    if is_first() and not settings.static:
        distilled.encoder.modules = settings.out
    return Aligned(distilled.encoder, settings.out, record)


def _training_texts(
    settings: DistilSettings,
    paths: Sequence[str],
    langs: Sequence[tuple[str, str]],
    towards: str,
) -> tuple[list[ParallelCorpus], list[Sentences]]:
    """Read the parallel texts, and the further texts in the teacher's language."""
    corpora: list[ParallelCorpus] = []
    if paths:
        words = Words(pretokenized=True, limit=settings.limit, format=settings.format)
        corpora = words.read_all(paths, langs)
    for path, corpus in zip(paths, corpora, strict=True):
        if best_match(towards, corpus.langs) is None:
            fact = (
                f"{path} is in {corpus.langs[0]} and {corpus.langs[1]}, but the teacher's language "
                f"is {towards}"
            )
            raise SettingError(f"{fact}; give the teacher's language with --towards")
    texts = [
        read_sentences(
            path,
            lang=towards,
            format=settings.text_format,
            pretokenized=True,
            limit=settings.limit,
        )
        for path in settings.text or ()
    ]
    return corpora, texts


def teacher_vector(
    encoder: Encoder, name: str | None, prompt: str | None = None
) -> SentencePooling:
    """Return the sentence pooling `name` for a teacher, or the teacher's saved pooling if `name` is
    None.

    Args:
        prompt: prompt to put before each text of the teacher, or the name of a saved prompt.
    """
    from calque.encoders.sentence_vectors import SentencePooling
    from calque.encoders.subword_vectors import SubwordVectors

    has_pooling = (
        isinstance(encoder, SubwordVectors) or getattr(encoder, "modules", None) is not None
    )
    if name is None and not has_pooling:
        fact = (
            f"the teacher {encoder.name} has no saved sentence pooling, unlike a "
            "sentence-transformers folder"
        )
        raise SettingError(f"{fact}; choose one with --teacher-pooling words, subwords or cls")
    return SentencePooling.of(encoder, name, prompt=prompt)  # type: ignore[arg-type]


def student_pooling(encoder: Encoder, name: str | None) -> SentencePooling:
    """Return the sentence pooling `name` for a student; default: the student's saved pooling, or
    else `subwords`.
    """
    from calque.encoders import HuggingFaceEncoder
    from calque.encoders.sentence_vectors import SentencePooling

    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(
            f"the student {encoder.name} cannot be trained; expected a Hugging Face encoder"
        )
    if name == "own" or (name is None and getattr(encoder, "modules", None) is not None):
        return SentencePooling.of(encoder, "own")
    if name in ("subwords", "cls", None):
        return SentencePooling.of(encoder, name or "subwords")  # type: ignore[arg-type]
    raise SettingError(f"sentence pooling must be own, subwords or cls, got {name!r}")
