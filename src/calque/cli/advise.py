"""`calque advise`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Limit, Linking, Loading, Pretokenized, Quiet, by_name, grouped, news, pairs_of
from calque.errors import SettingError
from calque.tasks.table import TASKS

_OF_FITTING = ("data", "results", "out")
_OF_ASKING = (
    "encoder", "text", "langs", "task", "train", "tune", "method", "option", "fitted", "as_json", "pretokenized", "limit",
    "layer", "pooling", "max_length", "steps", "delta", "model", "symmetrize", "seed",
)  # fmt: skip


@grouped
def advise(
    context: typer.Context,
    loading: Loading,
    linking: Linking,
    encoder: Annotated[
        str | None,
        typer.Argument(metavar="ENCODER", help="Hub name, folder or mini (bundled), before alignment."),
    ] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="PARALLEL", help="Parallel text that it may be aligned on.")
    ] = None,
    langs: Annotated[
        list[str] | None,
        typer.Option("--langs", metavar="SOURCE TARGET", help="The language the task is learnt in, and the other."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Task that is learnt, such as pos, ner or nli.")] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Training text of the task: the cosine of its gradient with the alignment's is measured.",
        ),
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="The encoder will be trained along with the task.")] = False,
    method: Annotated[str, typer.Option(help="Method of alignment, by its name in the fitted study.")] = "contrastive",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the task, for --train; repeatable."),
    ] = None,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    fitted: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A fit of your own; default: the one that comes with calque.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fit: Annotated[
        Path | None,
        typer.Option(metavar="STUDY.toml", help="Fit on a study that is done, instead of advising; needs --out."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="--fit: folder of its texts; default: as in the study.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="--fit: folder of its results; default: as in the study.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="--fit: write the fit to this file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Predict what alignment will bring a task.

    Measures the encoder on parallel text, in seconds, and predicts the gain in the target language and the loss in the
    source language, with an interval; says "do not know" where it does not.
    """
    if fit is not None:
        refuse_unused(context, dict.fromkeys(_OF_ASKING, "is not for --fit"))
        return _fit(fit, data, results, out, encoder, quiet)
    refuse_unused(context, dict.fromkeys(_OF_FITTING, "is for --fit STUDY.toml"))
    if encoder is None or text is None or task is None or not langs:
        raise SettingError(
            "advice needs an encoder, parallel text, --langs and --task, e.g. mini train.tsv --langs en de --task pos"
        )
    if not train:
        refuse_unused(context, {"option": "is of the task's training text: --train FILE"})
    from calque.runs.advise import advise as run

    options = {}
    if option:
        from calque.runs.study.options import options_of

        options = by_name(option, options_of(_known(task)))
    (pair,) = pairs_of(langs, 1)
    advised = run(
        encoder, text, langs=pair, task=_known(task), train=train or [], tune=tune, method=method, options=options,
        load=loading.arguments(), words=linking.words(pretokenized, limit), fitted=fitted, say=news(quiet),
    )  # fmt: skip
    print(json.dumps(advised.to_dict(), ensure_ascii=False) if as_json else advised)


def _known(task: str) -> str:
    TASKS[task]  # complains of one that is not known
    return task


def _fit(
    study: Path, data: Path | None, results: Path | None, out: Path | None, given: str | None, quiet: bool
) -> None:
    from calque.runs.advice_fit import assessment, fit

    if given is not None:
        raise SettingError(f"--fit takes its encoders from the study: leave out {given}")
    if out is None:
        raise SettingError("--fit needs a file to write to: --out FILE")
    output_file("--out", out, [study])
    table = fit(study, data=data, results=results, say=news(quiet))
    table.save(out)
    print(assessment(table))
