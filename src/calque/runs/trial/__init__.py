"""Find out whether alignment helps one task: train, compare, and save the encoder only if it helps.

A trial is a study that ends with an answer in one sentence. The published encoder and the aligned
encoders are measured on the user's task in three uses: frozen, so that only a task head is trained
on the output layer; frozen, with a head on a learned mixture of all layers; and trained together
with the head. The trial writes its study file, so every score can be computed again with
`calque study`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.input_texts import Say, Words
from calque.runs import study as studies
from calque.runs.compare import Record
from calque.runs.folder import check
from calque.runs.reading import Wish, linked_sample, read_encoder
from calque.runs.steps import Steps
from calque.runs.study.grid import Grid
from calque.runs.study.recipe import read_study
from calque.runs.study.work import WORK
from calque.runs.study.writing import study_text
from calque.runs.trial.plan import (
    CONTRASTIVE,
    STANDARDIZE,
    TrialSettings,
    TrialTexts,
    renamed,
    study_tables,
)
from calque.runs.trial.verdict import Verdict, compared, judge, use_of
from calque.storage import json_text, write_text
from calque.tasks.reporting import NOT_CONVERGED, warnings_of
from calque.tasks.table import TASKS
from calque.text_files import readable_lines

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.runs.study.recipe import Study
    from calque.text import ParallelCorpus, Sentences

STUDY_FILE, RESULTS, VERDICT, REPORT = "study.toml", "results.jsonl", "verdict.json", "report.html"
# Heads on frozen vectors that have not converged are trained again, for this many times as many
# epochs.
_LONGER = (1, 3, 8)


def try_alignment(
    settings: TrialSettings,
    *,
    load: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int = 1,
    say: Say = lambda line: None,
    then: Callable[[Path, Verdict], object] = lambda folder, verdict: None,
) -> Verdict:
    """Compare the published encoder with aligned encoders on a task, and save the better one.

    Finished steps are not repeated, so an interrupted trial resumes.

    Args:
        load: keyword arguments of `load_encoder` (layer, pooling).
        options: options of the task.
        workers: number of parallel processes.
        then: function that is called with the folder of the trial and the verdict, to add files.

    Raises:
        SettingError: the task trains no head, or a language is missing.
    """
    from calque.encoders.loading import load_encoder

    check(settings.out, overwrite=settings.overwrite)
    uses, texts = settings.compared_uses, TrialTexts.of(settings)
    place = settings.place
    corpora = _corpora(settings, texts)
    wish = Wish.of(load, usual=True)
    with wish.loading():
        encoder = load_encoder(settings.encoder, **wish.load)
    load = _reading(encoder, wish, corpora, place, say)
    sample = [side for corpus in corpora for side in (corpus.source[:256], corpus.target[:256])]
    methods = _methods(encoder, sample)
    cost = estimated_cost(encoder, corpora, settings, texts)
    minutes = _minutes(cost / max(1, workers))
    say(
        f"{settings.runs} training runs, compared as {', '.join(uses)}: about {minutes} on this "
        "machine; finished steps are kept"
    )
    del encoder

    records: list[dict[str, Any]] = []
    for longer in _LONGER:
        tables = study_tables(settings, texts, methods, load, options or {}, longer)
        comment = "Written by calque try; calque study repeats it."
        write_text(place / STUDY_FILE, study_text(tables, comment))
        scores = studies.study(place / STUDY_FILE, workers=workers, say=say)
        records = [renamed(score, settings.task) for score in scores]
        if all(_has_converged(record) for record in records if use_of(record) != "tuned"):
            break
        if longer != _LONGER[-1]:
            say("task heads have not converged; they are trained again for more epochs")
    lines = [json_text(record, ensure_ascii=False) + "\n" for record in records]
    write_text(place / RESULTS, "".join(lines))

    comparisons = compared(records, texts.source, texts.targets)
    verdict = judge(comparisons, TASKS[settings.task].title, texts.source)
    about = {"task": settings.task, **verdict.to_dict()}
    write_text(place / VERDICT, json_text(about, indent=2, ensure_ascii=False) + "\n")
    if verdict.method is not None:
        plan = read_study(place / STUDY_FILE)
        _ship(plan, verdict.method, records, settings)
    then(place, verdict)
    return verdict


def _has_converged(record: Record) -> bool:
    return NOT_CONVERGED not in warnings_of(record["settings"])


def _corpora(settings: TrialSettings, texts: TrialTexts) -> list[ParallelCorpus]:
    """Return the parallel texts that the encoders are aligned with."""
    from calque.corpora import read_parallel

    return [
        read_parallel(path, langs=(texts.source, lang), on_error="skip", limit=settings.pairs_limit)
        for lang, path in texts.pairs.items()
    ]


def _reading(
    encoder: Encoder, wish: Wish, corpora: Sequence[ParallelCorpus], place: Path, say: Say
) -> dict[str, Any]:
    """Return the keyword arguments of `load_encoder` for all encoders of the trial. A layer and a
    pooling that neither the user nor the folder sets are chosen on the parallel text.
    """
    _, choice = read_encoder(
        encoder,
        wish,
        lambda: linked_sample(corpora, Words()),
        unit="words",
        folder=place,
        say=say,
    )
    load = dict(wish.load)
    if choice is not None:
        load["pooling"] = choice.pooling
        # The default layer is left out, so that the study has one layer and no column of layers.
        if choice.layer != getattr(encoder, "layer", None):
            load["layer"] = choice.layer
    return load


def _methods(encoder: Encoder, sample: Sequence[Sentences]) -> tuple[str, ...]:
    """Return the methods to compare. Standardisation is worth a row only if one dimension dominates
    the vectors.
    """
    from calque.encoders.standard import standardized

    before = getattr(encoder, "standard", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `calque align` repeats this warning
        after = getattr(standardized(encoder, sample, None, None), "standard", {})
    return (STANDARDIZE, CONTRASTIVE) if len(after) > len(before) else (CONTRASTIVE,)


def estimated_cost(
    encoder: Encoder,
    corpora: Sequence[ParallelCorpus],
    settings: TrialSettings,
    texts: TrialTexts,
) -> float:
    """Return the estimated number of seconds of one process, from the time that the encoder takes
    for a few sentences.

    Training a sentence takes about as long as encoding it four times: the forward pass, the
    backward pass, and activations that are computed again.
    """
    few = corpora[0].source[:48]
    encoder.encode(few[:8])  # the first call includes loading
    began = time.perf_counter()
    encoder.encode(few)
    per_sentence = (time.perf_counter() - began) / max(1, len(few))
    n_pairs = sum(map(len, corpora))
    n_train = sum(min(settings.limit, _count(path)) for _, path in texts.train)
    n_test = sum(min(settings.test_limit, _count(path)) for _, path in texts.test)
    aligning = settings.runs * n_pairs * 2 * (2 * 4 + 1)
    encoded = 2 * (n_train + n_test) * (1 + settings.runs)
    tuned = 0
    if "tuned" in settings.compared_uses:
        tuned = 2 * settings.runs * (n_train * 3 * 4 + n_test)
    return per_sentence * (aligning + encoded + tuned)


def _count(path: str) -> int:
    """Return an upper bound of the number of texts in a file: its lines, or for one word a line,
    its empty lines.
    """

    lines = blank = 0
    for line in readable_lines(path):
        lines += 1
        blank += not line.strip()
    return blank or lines


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute" if minutes == 1 else f"{minutes} minutes"


# -- shipping --------------------------------------------------------------------------------------
def _ship(plan: Study, method: str, records: Sequence[Record], settings: TrialSettings) -> None:
    """Save the encoder of the first training run, with its scores in the model card."""
    from calque.encoders.adapted import AdaptedEncoder
    from calque.encoders.loading import load_encoder
    from calque.runs.align import merge
    from calque.runs.card import add_scores
    from calque.runs.folder import writing

    steps = Steps(Path(plan.folder) / plan.out / "steps", WORK)
    row = next(row for row in Grid(plan, steps).rows if row.about["method"] == method)
    assert not isinstance(row.encoder, str)
    place = steps.place(row.encoder)
    encoder = load_encoder(place)
    if isinstance(encoder, AdaptedEncoder):
        merge(str(place), out=settings.out, overwrite=settings.overwrite)
    else:
        from calque.encoders.folder import read_run
        from calque.runs.align import save_with_card

        with writing(settings.out, overwrite=settings.overwrite) as folder:
            save_with_card(encoder, folder, read_run(place))
    seed = row.about["training_seed"]
    own = [
        {name: value for name, value in record.items() if name not in row.about}
        for record in records
        if record["method"] == method and record["training_seed"] == seed
    ]
    add_scores(settings.out, own)
