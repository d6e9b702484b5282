"""Build the list of steps of a study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from calque.alignment import METHODS
from calque.runs.steps import Step, Steps
from calque.runs.study.recipe import (
    BASE,
    PARTS,
    EncoderTable,
    MethodTable,
    Study,
    SupervisionTable,
    TaskTable,
    Training,
    given,
    is_for,
    listed,
    trainings,
)
from calque.runs.study.values import OF_ANCHORS
from calque.tasks.table import TASKS


@dataclass(frozen=True)
class Row:
    """A row of the result tables: an encoder before alignment, or aligned by a method.

    Attributes:
        about: keys that identify a score, see `about_of`.
        encoder: step that creates the encoder, or argument of `load_encoder`.
        load: keyword arguments of `load_encoder`.
        langs: languages of the encoder; None means all languages.
    """

    about: dict[str, Any]
    encoder: Step | str
    load: dict[str, Any] = field(default_factory=dict)
    langs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Base:
    """An encoder before alignment, see `Row`. If it was pretrained several times, `number` and
    `seed` identify the run.
    """

    encoder: Step | str
    langs: tuple[str, ...] | None = None
    number: int | None = None
    seed: int | None = None


def label_of(about: Mapping[str, Any], langs: Sequence[str] | None = None) -> str:
    """Return a label for an encoder, built from the names in the study and the languages of the
    encoder.
    """
    layer, seed = about["layer"], about["training_seed"]
    parts = [
        about["encoder"],
        "" if layer is None else f"layer {layer}",
        about["method"],
        about["supervision"],
    ]
    parts += ["" if seed is None else f"seed {seed}", " and ".join(langs or ())]
    return ", ".join(filter(None, parts))


def about_of(
    encoder: str, layer: int | None, method: str, supervision: str, seed: int | None = None
) -> dict[str, Any]:
    """Return the keys that identify a score; the seed is None if training is deterministic."""
    return {
        "encoder": encoder,
        "layer": layer,
        "method": method,
        "supervision": supervision,
        "training_seed": seed,
    }


#: kinds of steps in each phase
_PHASES = {
    "pretraining": "pretrain",
    "joining encoders": "join",
    "preparing": "links entries anchors",
    "aligning": "align fit plain",
    "evaluating": "score",
}


class Grid:
    """Steps of a study, in the order of execution.

    Attributes:
        phases: steps of each phase, keyed by title; the steps of a phase may read results of
            earlier phases.
        rows: rows of the result tables.
        scores: pairs of the keys that identify scores and the step that computes these scores.
    """

    def __init__(self, plan: Study, steps: Steps):
        self.plan, self._steps = plan, steps
        self.phases: dict[str, list[Step]] = {title: [] for title in _PHASES}
        self._phase_of = {
            kind: self.phases[title] for title, kinds in _PHASES.items() for kind in kinds.split()
        }
        self.rows: list[Row] = []
        self.scores: list[tuple[dict[str, Any], Step]] = []
        for name, encoder in plan.encoders.items():
            for base in self._bases(name, encoder):
                self._measure(name, encoder, base)
        self.scores += [
            ({**row.about, "task": name}, step)
            for row in self.rows
            for name, task in plan.tasks.items()
            if is_for(task.encoders, row.about["encoder"])
            and is_for(task.methods, row.about["method"])
            for step in self._scoring(row, name, task)
        ]

    # -- encoders
    # ----------------------------------------------------------------------------------------------
    def _bases(self, name: str, table: EncoderTable) -> Iterator[Base]:
        """Yield the base encoders: a single encoder, or one per pretraining run and (with `pairs`)
        language.
        """
        if table.pretrain is None:
            yield Base(table.path)
            return
        parts, first = trainings(table.pretrain, self.plan.source), table.pretrain.get("seed", 0)
        for number in range(table.runs):
            run = (None, None) if table.runs == 1 else (number, first + number)
            made = [
                self._trained(name, table.pretrain, part, first + number, run[1]) for part in parts
            ]
            if table.pretrain.get("apart"):
                settings = {"name": name, "langs": list(table.pretrain["texts"])}
                joined = self._step(
                    "join", settings, after={"encoder": self._places(made)}, label=name
                )
                yield Base(joined, None, *run)
                continue
            for part, step in zip(parts, made, strict=True):
                yield Base(step, None if part.other is None else (part.other,), *run)

    def _trained(
        self, name: str, table: Mapping[str, Any], part: Training, seed: int, run: int | None
    ) -> Step:
        own = ("texts", "apart", "pairs", "dictionaries")
        settings = {**{key: value for key, value in table.items() if key not in own}, "seed": seed}
        files = {"text": [self.plan.path(file) for file in part.texts.values()]}
        if part.dictionaries:
            settings["dictionaries"] = list(part.dictionaries)
            files["dictionary"] = [self.plan.path(file) for file in part.dictionaries.values()]
        label = f"{name}, {' and '.join(part.texts)}" + ("" if run is None else f", seed {run}")
        step = self._step("pretrain", {**settings, "langs": list(part.texts)}, files, label=label)
        self.scores.append(
            ({**about_of(name, None, BASE, "", run), "task": "language-model"}, step)
        )
        return step

    def _measure(self, name: str, table: EncoderTable, base: Base) -> None:
        """Add the rows for an encoder before and after each method."""
        plan, layers, own = (
            self.plan,
            list(table.layers or [None]),
            given(table, "pooling", "bidirectional"),
        )
        loads = {layer: own if layer is None else {**own, "layer": layer} for layer in layers}

        def about(
            method: str, supervision: str, layer: int | None, seed: int | None
        ) -> dict[str, Any]:
            return about_of(
                name, layer, method, supervision, seed if base.seed is None else base.seed
            )

        for layer, load in loads.items() if BASE in plan.methods else ():
            self.rows.append(Row(about(BASE, "", layer, None), base.encoder, load, base.langs))
        for (learns_from, texts), (method, how) in product(
            plan.supervision.items(), plan.methods.items()
        ):
            langs = [
                lang
                for lang in texts.languages(plan.source)
                if base.langs is None or lang in base.langs
            ]
            if (
                method == BASE
                or not langs
                or learns_from not in how.supervision
                or not is_for(how.encoders, name)
            ):
                continue
            # Methods that train the encoder run once for each layer. Maps are fitted for all layers
            # at once.
            trains = METHODS[how.method].trains
            at_once = not trains and layers != [None] and "layers" not in how.options
            for seed, (layer, load) in product(
                how.seeds(plan.runs, base.number), (loads if trains else {None: own}).items()
            ):
                options = {**({"layers": layers} if at_once else {}), **how.options}
                options |= {} if seed is None else {"seed": seed}
                label = about(method, learns_from if len(plan.supervision) > 1 else "", layer, seed)
                label = label_of(label, None if base.langs is None else langs)
                step = self._aligned(base.encoder, how, options, texts, langs, load, label)
                if (
                    step.kind == "align" and not at_once
                ):  # add the held-out scores of the method itself
                    self.scores.append((about(method, learns_from, layer, seed), step))
                for read, (row, view) in product(
                    layers if at_once else (layer,), how.rows(method).items()
                ):
                    load = {"layer": read} if at_once else view
                    self.rows.append(
                        Row(about(row, learns_from, read, seed), step, load, base.langs)
                    )

    # -- alignment
    # ----------------------------------------------------------------------------------------------
    def _aligned(
        self,
        base: Step | str,
        how: MethodTable,
        options: Mapping[str, Any],
        texts: SupervisionTable,
        langs: Sequence[str],
        load: Mapping[str, Any],
        label: str,
    ) -> Step:
        """Return the step that runs a method on parallel text, on text in each language, or on
        type-level anchors.
        """
        plan, method = self.plan, METHODS[how.method]
        pairs, words = (
            [(plan.source, lang) for lang in langs],
            given(texts, "limit", "pretokenized"),
        )
        about: dict[str, Any] = {
            "load": {**load, **given(how, "bidirectional")},
            "towards": plan.towards,
            "method": how.method,
            "options": options,
        }
        read = {
            lang: plan.path(file)
            for lang, file in texts.texts.items()
            if lang in (plan.source, *langs)
        }
        if texts.kind != "parallel" and not method.needs_links:
            files = {"text": [f"{lang}={file}" for lang, file in read.items()]}
            return self._reading(base, "plain", {**about, "words": words}, files, label=label)
        about["langs"] = pairs
        if texts.kind == "parallel":
            files = {"text": [plan.path(texts.options[lang]) for lang in langs]}
            words = {"symmetrize": method.symmetrize, **plan.words, **words}
            links = [
                self._step(
                    "links",
                    {"langs": pair, "words": words},
                    {"text": [file]},
                    label=f"word links, {'-'.join(pair)}",
                )
                for pair, file in zip(pairs, files["text"], strict=True)
                if method.needs_links
            ]
            about["words"], after = words, {"links": self._places(links)}
            return self._reading(base, "align", about, files, after, label=label)
        shared = {"load": load, **words, **given(texts, *OF_ANCHORS)}
        if "layers" in options:
            shared["layers"] = ",".join(map(str, options["layers"]))
        anchors, entries = [], []
        for lang, file in read.items():
            settings = {**shared, "lang": lang}
            step = self._reading(
                base, "anchors", settings, {"text": [file]}, label=f"anchors of words, {lang}"
            )
            anchors += [f"{lang}={place}" for place in self._places([step])]
        for pair in pairs if texts.kind == "dictionary" else ():
            settings, files = (
                {"langs": pair, "entries": texts.entries},
                [plan.path(texts.options[pair[1]])],
            )
            label_of_pair = f"dictionary entries, {'-'.join(pair)}"
            entries.append(
                self._step("entries", settings, {"dictionary": files}, label=label_of_pair)
            )
        after = {"anchors": anchors, "dictionary": self._places(entries)}
        return self._reading(base, "fit", {**about, "words": words}, {}, after, label=label)

    # -- tasks
    # ----------------------------------------------------------------------------------------------
    def _scoring(self, row: Row, name: str, table: TaskTable) -> list[Step]:
        """Return the steps that score one encoder on a task: a single step, or one step for each
        language.
        """
        plan, task, options = self.plan, TASKS[table.task], dict(table.options)
        load = {key: value for key, value in row.load.items() if key != "translations"}
        words = {"pretokenized": task.pretokenized, **given(table, "limit", "pretokenized")}
        about = {"load": load, "task": table.task, "options": options, **given(table, "test_limit")}
        label = label_of(row.about, row.langs)
        if task.languages == "pairs":
            if "seed" in task.options:
                words = {**plan.words, **words}
            steps = []
            for lang in table.files["test"]:
                if row.langs is None or lang in row.langs:
                    langs = (plan.source, lang)
                    files = {
                        part: [plan.path(named[lang])]
                        for part, named in table.files.items()
                        if lang in named
                    }
                    if "text" in task.files and table.texts:
                        files["text"] = [f"{side}={plan.path(table.texts[side])}" for side in langs]
                    settings = {**about, "words": words, "langs": [langs]}
                    steps.append(
                        self._reading(
                            row.encoder, "score", settings, files, label=f"{name}, {lang}: {label}"
                        )
                    )
            return steps
        texts = {
            part: [plan.named(file) for file in listed(table.files.get(part))] for part in PARTS
        }
        if row.langs is not None and task.lang is None:
            own = (plan.source, *row.langs)
            texts |= {
                part: [(lang, file) for lang, file in texts[part] if lang in own]
                for part in ("test", "ceiling")
            }
            if not texts["test"]:  # no test text is in a language of the encoder
                return []
        files = {
            part: [f"{lang or task.lang}={file}" for lang, file in named]
            for part, named in texts.items()
        }
        if "first_senses" in task.files:
            files["first_senses"] = [
                plan.path(file) for file in listed(options.pop("first_senses", None))
            ]
            files["keys"] = [
                key
                for part in ("train", "test")
                for _, file in texts[part]
                for key in keys_of(file)
            ]
        if "translations" in row.load:  # the encoder reads these files itself
            about["translations"] = list(row.load["translations"])
            files["translations"] = [
                plan.path(file) for two in row.load["translations"].values() for file in two
            ]
        seeds = plan.seeds if table.seeds is None else table.seeds
        if "seeds" in task.options and seeds is not None:
            options["seeds"] = seeds
        return [
            self._reading(
                row.encoder, "score", {**about, "words": words}, files, label=f"{name}: {label}"
            )
        ]

    # -- inputs of steps
    # --------------------------------------------------------------------------------------------
    def _reading(
        self,
        encoder: Step | str,
        kind: str,
        settings: Mapping[str, Any],
        files: Mapping[str, Sequence[str]],
        after: Mapping[str, Sequence[str]] | None = None,
        *,
        label: str,
    ) -> Step:
        """Return a step that reads an encoder, which is the result of another step or an argument
        of `load_encoder`. Files and folders are identified by their contents, and encoders on the
        hub by their names."""
        from calque.encoders.loading import BUNDLED, by_language

        settings, files, after = dict(settings), dict(files), dict(after or {})
        if isinstance(encoder, Step):
            after["encoder"] = self._places([encoder])
        else:
            path = self.plan.path
            named = (
                {"": encoder}
                if os.path.exists(path(encoder))
                else by_language(encoder) or {"": encoder}
            )
            places = {lang: str(BUNDLED.get(name, path(name))) for lang, name in named.items()}
            local = {lang: place for lang, place in places.items() if os.path.exists(place)}
            settings["encoder"] = [
                (lang, None if lang in local else name) for lang, name in named.items()
            ]
            files["encoder"] = list(local.values())
            files["beside"] = [file for place in local.values() for file in beside_encoder(place)]
        return self._step(kind, settings, files, after, label)

    def _step(
        self, kind: str, settings: Mapping[str, Any], files=None, after=None, label: str = ""
    ) -> Step:
        """Create a step, add the step to the list of its phase, and return the step."""
        step = self._steps.step(kind, settings, files or {}, after or {}, label)
        self._phase_of[kind].append(step)
        return step

    def _places(self, steps: Sequence[Step]) -> list[str]:
        return [str(self._steps.place(step)) for step in steps]


def beside_encoder(encoder: str) -> list[str]:
    """Return the additional files of an encoder: `NAME_options.json` for the ELMo weights
    `NAME_weights.hdf5`.
    """
    from calque.encoders.folder import file_pair

    pair = file_pair(Path(encoder))
    return [str(pair[0])] if pair is not None and not Path(encoder).is_dir() else []


def keys_of(data: str) -> list[str]:
    """Return the files with the gold senses of a text, which are in the same folder."""
    stem, is_senses, _ = Path(data).name.partition(".data.xml")
    return (
        sorted(str(file) for file in Path(data).parent.glob(f"{stem}.gold.key.txt*"))
        if is_senses
        else []
    )
