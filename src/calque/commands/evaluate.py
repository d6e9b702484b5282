"""The command `calque evaluate`, which runs a task from `TASKS` or from another package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calque.commands.base import LINKING, Choosing, Linking, Tracking, say_unless
from calque.commands.checks import output_file
from calque.corpora.readers import AUTO
from calque.errors import SettingError
from calque.named import is_path
from calque.runs.settings import (
    OwnOption,
    PairLangs,
    ParallelFormat,
    Quiet,
    Several,
    file_name,
    pairs_of,
    warn_of_languages,
)
from calque.spec import Count, Declared, Few, argument, declared, files, numbers, option
from calque.storage import append_lines, json_text
from calque.tasks.inputs import FIELDS, FILES, Inputs
from calque.tasks.table import TASKS, options_of_task, trains_head, users

if TYPE_CHECKING:
    from calque.tasks.base import Score


@dataclass(frozen=True, kw_only=True)
class ParallelReading:
    """Settings for reading the texts of a task that declares no formats."""

    format: ParallelFormat = AUTO


@dataclass(frozen=True, kw_only=True)
class Evaluate(Linking, Choosing, Tracking):
    """Measure encoders on a task.

    Tasks include word and sentence retrieval, word alignment, bilingual lexicon induction,
    word-sense disambiguation, and zero-shot transfer, in which a task head is trained in one
    language and tested in others.
    """

    # Options that only some tasks accept. `rename` is declared by task classes, and asking `users`
    # for it would import them, which makes the general help slow.
    rare = (*(name for name in FIELDS if users(name)), "rename")
    full_help = "calque evaluate ENCODER TASK --help lists the options of a task"

    encoders: list[str] = argument(
        ...,
        "One or more encoders: Hugging Face names, folders, mini (bundled) or word vectors.",
        "ENCODER",
    )
    task: str = argument(..., "Name of a task, e.g. retrieval, or package.module:Class.", "TASK")
    test: list[str] = option(..., "One or more test files.", metavar="FILE...", several=True)
    train: Several = files(
        "Training text; write de=FILE if the file name does not contain the language. For wsd, "
        "give sense-annotated text. For retrieval, give the text that the encoder was aligned on, "
        "so that unseen word pairs are also scored separately."
    )
    dev: Several = files(
        "Development text for choosing the epoch (see --select; default: every tenth training text "
        "is held out), or for choosing the mining threshold of the task sentences."
    )
    ceiling: Several = files(
        "Training text in the test languages, used to measure an upper bound of the scores."
    )
    links: Several = files(
        "Word alignments of --test; for word-alignment, gold alignments (default: column 3)."
    )
    train_links: Several = files("Word alignments of the --train text.")
    text: Several = files(
        "Plain text in both languages, over which the vectors of each word are averaged."
    )
    project: Several = files(
        "Parallel text (with --langs) for label projection: tags predicted for its source side are "
        "copied along word links."
    )
    first_senses: str | None = option(
        None, "WordNet's index.sense, used for lemmas missing from --train.", metavar="FILE"
    )
    langs: PairLangs = None
    by_layer: str | None = option(
        None,
        "Layers to compare (all, 4,8,12 or 0-12). With retrieval, the layer that is best on half of "
        "the pairs is scored on the rest. A task with a trained head chooses the layer and the "
        "pooling on development text in the training languages (best, the same as all), or learns "
        "a mixture of all layers (mix).",
        "--layers",
    )
    options: OwnOption = None
    rename: Several = option(
        None,
        "Rename label OLD to NEW; OLD= drops it.",
        metavar="OLD=NEW...",
        several=True,
    )
    pretokenized: bool | None = option(
        None,
        "Split text only at spaces (default for word-alignment) or tokenise it.",
        "--pretokenized/--tokenize",
    )
    limit: Count | None = option(
        None,
        "Use only N evenly spaced texts of --text, of parallel or plain --test files, and of each "
        "--train file (retrieval uses the whole file). With the task sentences, also use only N "
        "of --dev.",
    )
    test_limit: Count | None = option(
        None, "Use only N evenly spaced texts per --test or --dev file."
    )
    record: bool = option(False, "Add the scores to the model card in the folder ENCODER.")
    out: Path | None = option(
        None,
        "JSON Lines file to which the scores are appended.",
        metavar="PATH",
        check=file_name,
    )
    as_json: bool = option(
        False, "Print the scores as one JSON object instead of a table.", "--json"
    )
    quiet: Quiet = False

    # -- options of a task
    @classmethod
    def subject_in(cls, words: Sequence[str]) -> str | None:
        n_first = 0
        while n_first < len(words) and not words[n_first].startswith("-"):
            n_first += 1
        # The word before the first option is the task; an encoder can have the name of a task.
        if n_first > 1 and (words[n_first - 1] in TASKS or is_path(words[n_first - 1])):
            return words[n_first - 1]
        others = [word for word in words if not word.startswith("-")][1:]
        tasks = [word for word in others if word in TASKS.rows]
        classes = [word for word in others if is_path(word)]
        return next(iter([*tasks, *classes]), None)

    @classmethod
    def subjects(cls) -> Mapping[str, str]:
        return {f"calque evaluate ENCODER {name}": name for name in TASKS}

    @classmethod
    def specific_options(cls, subject: str | None) -> Mapping[str, Declared]:
        if subject is None:
            return {}
        options = options_of_task(subject)
        row = TASKS[subject]
        if row.languages == "pairs" and row.reads == "parallel":
            options.setdefault("format", declared(ParallelReading)["format"])
        if "seeds" in options:
            options["seeds"] = Declared("seeds", Few, None, options["seeds"].option)
        return options

    @classmethod
    def refuse_option(cls, name: str, flag: str, subject: str | None) -> None:
        tasks = users(name)
        if tasks:
            raise SettingError(f"{flag} does not apply to {subject}; it is for {', '.join(tasks)}")

    @classmethod
    def applies(cls, name: str, subject: str | None) -> bool:
        if name not in cls.rare:
            return True
        return subject is not None and name in TASKS[subject].takes

    @classmethod
    def description(cls, subject: str | None) -> str:
        return cls.__doc__ or "" if subject is None else f"{subject}: {TASKS[subject].help}"

    @classmethod
    def lists(cls, subject: str | None) -> Mapping[str, Sequence[tuple[str, str]]]:
        if subject is not None:
            return {}
        return {"Tasks": [(name, row.help) for name, row in TASKS.items()]}

    # -- running
    def run(self) -> None:
        from calque.input_texts import SKIP_UNUSABLE
        from calque.runs.evaluate import evaluate_each

        row, say = TASKS[self.task], say_unless(self.quiet)
        self._refuse_unused()
        _check_encoders(self.encoders, record=self.record)
        paths = {name: getattr(self, name) for name in FILES if getattr(self, name)}
        pretokenized = row.pretokenized if self.pretokenized is None else self.pretokenized
        pairs: list[tuple[str, str]] = []
        if row.languages == "pairs" or self.project:
            pairs = pairs_of(self.project or self.test, self.langs or [])
        else:
            pairs = pairs_of([], self.langs or [])
        warn_of_languages(chain(*pairs))
        options = dict(self.specific)
        # Tasks on annotated text declare formats of their own.
        format = AUTO
        if "format" not in options_of_task(self.task):
            format = options.pop("format", AUTO)
        inputs = Inputs(
            self.task,
            **paths,
            langs=pairs,
            words=self.words(pretokenized, self.limit, format),
            test_limit=self.test_limit,
            say=say,
        )
        if self.rename:
            options["rename"] = _renaming(self.rename)
        if SKIP_UNUSABLE and "on_error" in self.specific_options(self.task):
            options["on_error"] = "skip"
        layers = None
        if self.by_layer is not None:
            self.refuse_unused({"layer": "cannot be combined with --layers"})
            if trains_head(self.task):
                options["layers"] = self.by_layer
            else:
                layers = _layers_to_compare(self.by_layer)
                self.refuse_unused({"record": "cannot be combined with --layers"})
        named = [*_flat(paths.values()), *self.encoders]
        output_file("--out", self.out, named, self.langs or [], adds=True)
        evaluate_each(
            self.encoders,
            inputs,
            options=options,
            load=self.loading(),
            choose=True,
            layers=layers,
            out=self.out,
            then=self._finish,
            progress=not self.quiet,
        )

    def tracked_name(self) -> str:
        return self.task if self.out is None else super().tracked_name()

    def _finish(self, several: Sequence[Sequence[Score]]) -> None:
        """Write the scores to the files, and then print them, even if writing failed."""
        try:
            if self.out is not None:
                lines = (score.to_json() + "\n" for scores in several for score in scores)
                append_lines(self.out, lines)
            if self.record:
                _record(self.encoders, several)
        finally:
            if self.as_json:
                text = json_text(_as_json(self.encoders, several), default=str)
            else:
                by_layer = self.by_layer is not None and not trains_head(self.task)
                text = _shown(self.encoders, several, by_layer=by_layer)
            print(text, flush=True)

    def _refuse_unused(self) -> None:
        """Raise an error if the user gave an option that the task does not use."""
        row = TASKS[self.task]
        for name, flag in self.used.items():
            if not self.applies(name, self.task):
                self.refuse_option(name, flag, self.task)
            # A task with a trained head uses these options only for projecting labels.
            is_for_projection = name in ("langs", *LINKING) or name == "links"
            if is_for_projection and "project" in row.files and not self.project:
                hint = "; --seeds sets the number of runs" if name == "seed" else ""
                raise SettingError(
                    f"{flag} does not apply to {self.task} without the parallel text of "
                    f"--project{hint}"
                )
        computes_links = "train_links" in row.files or "project" in row.files
        has_link_files = self.links or self.train_links
        if computes_links and self.one_based is not None and not has_link_files:
            raise SettingError(
                "--one-based and --zero-based are only for files of word links; add --links FILE"
            )


def _layers_to_compare(text: str) -> list[int] | Literal["all"]:
    """Parse the layers that word retrieval compares."""
    return "all" if text in ("all", "best") else numbers(text) or []


def _flat(paths: Any) -> list[str]:
    """Return the names in a sequence of names and lists of names."""
    names: list[str] = []
    for each in paths:
        names += [each] if isinstance(each, str) else each
    return names


def _record(encoders: Sequence[str], several: Sequence[Sequence[Score]]) -> None:
    """Add the scores to the model card in the folder of each encoder."""
    from calque.runs.card import add_scores

    for encoder, scores in zip(encoders, several, strict=True):
        add_scores(Path(encoder), [score.to_dict() for score in scores])


def _check_encoders(encoders: Sequence[str], *, record: bool) -> None:
    """Check the names of all encoders first, because evaluating one encoder can take long.

    Raises:
        SettingError: an encoder is given twice, or scores cannot be recorded in its folder.
        InputError: there are several encoders, and one of them does not exist.
    """
    places: dict[str, str] = {}
    for encoder in encoders:
        place = os.path.realpath(encoder) if os.path.exists(encoder) else encoder
        first = places.setdefault(place, encoder)
        if first is not encoder:
            raise SettingError(
                f"each encoder must be given once, got {first} and {encoder}; remove one of them"
            )
        if record and not (Path(encoder) / "calque.json").is_file():
            raise SettingError(
                "--record adds scores to the model card in a folder written by calque, but "
                f"{encoder} has no calque.json; pass a folder that has one, or save the scores "
                "with --out FILE"
            )
    if len(encoders) > 1:
        from calque.encoders.names import check_encoder

        for encoder in encoders:
            check_encoder(encoder)


def _shown(encoders: Sequence[str], several: Sequence[Sequence[Any]], *, by_layer: bool) -> str:
    """Return the scores of the encoders, or the findings of each layer, as text."""
    from calque.runs.score_table import layer_table, table, table_of_encoders

    if len(encoders) == 1:
        return layer_table(several[0]) if by_layer else table(several[0])
    if by_layer:
        tables = map(layer_table, several)
        return "\n\n".join(f"{name}\n{rows}" for name, rows in zip(encoders, tables, strict=True))
    return table_of_encoders(dict(zip(encoders, several, strict=True)))


def _as_json(encoders: Sequence[str], several: Sequence[Sequence[Score]]) -> dict[str, Any]:
    """Return the scores as a JSON object: the main score with the list of all scores, or one such
    object for each encoder.
    """
    objects = []
    for scores in several:
        every = [score.to_dict() for score in scores]
        # With --layers, the main score is that of the selected layer on the held-out half.
        held_out = [score for score in every if score["metric"].endswith(".test-half")]
        main = held_out[0] if held_out else every[0]
        objects.append({**main, "scores": every})
    if len(encoders) == 1:
        return objects[0]
    return {
        "encoders": [{"name": name, **one} for name, one in zip(encoders, objects, strict=True)]
    }


def _renaming(items: Sequence[str]) -> dict[str, str]:
    """Parse the items of `--rename`."""
    labels = {}
    for item in items:
        old, equals, new = item.partition("=")
        if not equals or not old:
            raise SettingError(f"--rename must be OLD=NEW, or OLD= to drop a label, got {item}")
        labels[old] = new
    return labels
