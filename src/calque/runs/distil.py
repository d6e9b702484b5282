"""Distil a teacher into a student, and save the student with its sentence pooling and model
card.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
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


def distil(
    how: DistilSettings,
    *,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> Aligned:
    """Train a student to reproduce a teacher's sentence vectors, both for sentences in the
    teacher's language and for their translations.

    Args:
        how: settings. Texts are split at spaces. `out` is written only when the result is complete.
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

    check(how.out, overwrite=how.overwrite)
    texts, langs = named_pairs(how.train or (), how.langs or ())
    if not texts and not how.text:
        raise SettingError(
            "no training text was given; add parallel texts, or text in the teacher's language "
            "(--text)"
        )
    if how.towards is None and not langs:
        raise SettingError("--langs is missing; give the languages of the text, e.g. --langs en de")
    towards = how.towards or langs[0][0]
    method = Distillation(towards=towards, seed=how.seed, **dict(options or {}))
    known = load_encoder(how.teacher)
    teaching = teacher_vector(known, how.teacher_pooling, how.teacher_prompt)
    corpora = (
        Words(pretokenized=True, limit=how.limit, format=how.format).read_all(texts, langs)
        if texts
        else []
    )
    for path, corpus in zip(texts, corpora, strict=True):
        if best_match(towards, corpus.langs) is None:
            fact = (
                f"{path} is in {corpus.langs[0]} and {corpus.langs[1]}, but the teacher's language "
                f"is {towards}"
            )
            raise SettingError(f"{fact}; give the teacher's language with --towards")
    more = [
        read_sentences(
            path, lang=towards, format=how.text_format, pretokenized=True, limit=how.limit
        )
        for path in how.text or ()
    ]
    load: dict[str, Any] = {"layer": how.layer, "max_length": how.max_length}
    learner: Any = load_encoder(
        how.student, **{name: value for name, value in load.items() if value is not None}
    )
    pooling = student_pooling(learner, how.sentence_pooling)
    with writing(how.out, overwrite=how.overwrite) as folder:
        place = folder / TRAINING / "teacher" if how.vectors is None else how.vectors
        store = TeacherVectors(place, known, teaching, counts=folder / TRAINING / "teacher.json")
        started = time.perf_counter()
        if how.static:
            sides = [side for corpus in corpora for side in (corpus.source, corpus.target)]
            unit = teaching.unit_length
            learner = static_student(
                learner.tokenizer,
                store,
                [*sides, *more],
                lang=towards,
                name=how.out.name,
                unit=unit,
                progress=progress,
            )
            pooling = SentencePooling.of(learner)
        say(
            f"distil: {sum(map(len, corpora)):,} sentence pairs, {sum(map(len, more)):,} sentences "
            f"in {towards}"
        )
        running = Run(folder / TRAINING, how.checkpoint_every, progress)
        found = method.distil(learner, pooling, store, corpora, more, running)
        rows: list[dict[str, Any]] = []
        for path, corpus in zip(texts, corpora, strict=True):
            rows.append(
                {"path": name_of(path), "langs": list(corpus.langs), "sentence_pairs": len(corpus)}
            )
        for path, text in zip(how.text or (), more, strict=True):
            rows.append({"path": Path(path).name, "langs": [towards], "sentences": len(text)})
        record = {
            **found.record,
            "method": "distillation",
            "towards": towards,
            "teacher": known.name,
            "teacher_fingerprint": known.fingerprint,
            "texts": rows,
            "teacher_vectors": {"computed": store.computed, "kept": len(store)},
            "seconds": {"method": round(time.perf_counter() - started, 2)},
        }
        with tempfile.TemporaryDirectory() as modules:
            if not how.static:
                found.write_modules(Path(modules))
            save_result(found.encoder, folder, learner, record, place=how.student)
    if is_first() and not how.static:
        found.encoder.modules = how.out
    return Aligned(found.encoder, how.out, record)


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

    if (
        name is None
        and not isinstance(encoder, SubwordVectors)
        and getattr(encoder, "modules", None) is None
    ):
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
