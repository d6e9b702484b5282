"""Lay out the steps of a study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.alignment import METHODS
from calque.runs.steps import Step, Steps
from calque.runs.study.options import OF_ANCHORS
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
from calque.tasks.table import TASKS


@dataclass(frozen=True)
class Row:
    """A row of the tables: an encoder, before or after a method.

    Attributes:
        about: `encoder`, `layer`, `method`, `supervision` and `training_seed`, which identify a score; the seed is None without
            random training.
        encoder: the step that makes the encoder, or an argument of `load_encoder`.
        load: keyword arguments of `load_encoder`.
        langs: languages of the encoder; None for all.
    """

    about: dict[str, Any]
    encoder: Step | str
    load: dict[str, Any] = field(default_factory=dict)
    langs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Base:
    """An encoder before any method.

    Attributes:
        encoder: as in `Row`.
        langs: as in `Row`.
        number, seed: index and seed of the training; None if there is only one.
    """

    encoder: Step | str
    langs: tuple[str, ...] | None = None
    number: int | None = None
    seed: int | None = None


def label_of(about: Mapping[str, Any]) -> str:
    """Return the label of an encoder from the study's names."""
    layer, seed = about["layer"], about["training_seed"]
    parts = [about["encoder"], f"layer {layer}" if layer is not None else "", about["method"], about["supervision"]]
    return ", ".join([*filter(None, parts), *([f"seed {seed}"] if seed is not None else [])])


def about_of(encoder: str, layer: int | None, method: str, supervision: str, seed: int | None = None) -> dict[str, Any]:
    """Return the keys that identify a score."""
    return {"encoder": encoder, "layer": layer, "method": method, "supervision": supervision, "training_seed": seed}


class Grid:
    """All steps of a study in order of execution.

    Attributes:
        pretraining, joining, preparing, aligning, scoring: lists of steps; each reads results of the previous lists.
        rows: rows of the tables.
        scores: steps with scores, and the keys that identify the scores.
    """

    def __init__(self, plan: Study, steps: Steps):
        self.plan, self._steps = plan, steps
        self.pretraining: list[Step] = []
        self.joining: list[Step] = []
        self.preparing: list[Step] = []
        self.aligning: list[Step] = []
        self.rows: list[Row] = []
        self.scores: list[tuple[dict[str, Any], Step]] = []
        for name, encoder in plan.encoders.items():
            for base in self._bases(name, encoder):
                self._measure(name, encoder, base)
        self.scores += [
            ({**row.about, "task": name}, step)
            for row in self.rows
            for name, task in plan.tasks.items()
            if is_for(task.encoders, row.about["encoder"]) and is_for(task.methods, row.about["method"])
            for step in self._scoring(row, name, task)
        ]
        self.scoring = [step for _, step in self.scores if step.kind == "score"]

    # -- encoders ----------------------------------------------------------------------------------------------------
    def _bases(self, name: str, table: EncoderTable) -> Iterator[Base]:
        """Yield the base encoders: one, or one for each training and language."""
        if table.pretrain is None:
            yield Base(table.path)
            return
        parts, first = trainings(table.pretrain, self.plan.source), table.pretrain.get("seed", 0)
        for number in range(table.runs):
            run = (None, None) if table.runs == 1 else (number, first + number)
            made = [self._trained(name, table.pretrain, part, first + number, run[1]) for part in parts]
            if table.pretrain.get("apart"):
                yield Base(self._joined(name, list(table.pretrain["texts"]), made), None, *run)
            else:
                for part, step in zip(parts, made, strict=True):
                    yield Base(step, None if part.other is None else (part.other,), *run)

    def _trained(self, name: str, table: Mapping[str, Any], part: Training, seed: int, run: int | None) -> Step:
        own = ("texts", "apart", "pairs", "dictionaries")
        settings = {**{key: value for key, value in table.items() if key not in own}, "seed": seed}
        files = {"text": [self.plan.path(file) for file in part.texts.values()]}
        if part.dictionaries:
            settings["dictionaries"] = list(part.dictionaries)
            files["dictionary"] = [self.plan.path(file) for file in part.dictionaries.values()]
        label = f"{name}, {' and '.join(part.texts)}" + ("" if run is None else f", seed {run}")
        step = self._step("pretrain", {**settings, "langs": list(part.texts)}, files, label=label)
        self.pretraining.append(step)
        self.scores.append(({**about_of(name, None, BASE, "", run), "task": "language-model"}, step))
        return step

    def _joined(self, name: str, langs: Sequence[str], made: Sequence[Step]) -> Step:
        """Return the encoders of several languages as one."""
        settings, after = {"name": name, "langs": list(langs)}, {"encoder": self._places(made)}
        self.joining.append(self._step("join", settings, after=after, label=name))
        return self.joining[-1]

    def _measure(self, name: str, table: EncoderTable, base: Base) -> None:
        """Add the rows of an encoder before and after each method."""
        plan, layers, own = self.plan, list(table.layers or [None]), given(table, "pooling", "bidirectional")
        loads = {layer: own if layer is None else {**own, "layer": layer} for layer in layers}

        def about(method: str, learnt: str, layer: int | None, seed: int | None) -> dict[str, Any]:
            return about_of(name, layer, method, learnt, seed if base.seed is None else base.seed)

        for layer, load in loads.items() if BASE in plan.methods else ():
            self.rows.append(Row(about(BASE, "", layer, None), base.encoder, load, base.langs))
        for learnt, texts in plan.supervision.items():
            langs = [lang for lang in texts.languages(plan.source) if base.langs is None or lang in base.langs]
            for method, how in plan.methods.items():
                if method == BASE or not langs or learnt not in how.supervision or not is_for(how.encoders, name):
                    continue
                trains = METHODS[
                    how.method
                ].trains  # trained once for each layer; maps of all layers are fitted in one pass
                at_once = not trains and layers != [None] and "layers" not in how.options
                for seed in how.seeds(plan.runs, base.number):
                    options = {**({"layers": layers} if at_once else {}), **how.options}
                    options |= {} if seed is None else {"seed": seed}
                    for layer, load in (loads if trains else {None: own}).items():
                        known = about(method, learnt if len(plan.supervision) > 1 else "", layer, seed)
                        called = label_of(known) + ("" if base.langs is None else f", {' and '.join(langs)}")
                        step = self._aligned(base.encoder, how, options, texts, langs, load, called)
                        if step.kind == "align" and not at_once:  # adds the method's own scores
                            self.scores.append((about(method, learnt, layer, seed), step))
                        for shown in layers if at_once else (layer,):
                            for row, view in how.rows(method).items():
                                load = {"layer": shown} if at_once else view
                                self.rows.append(Row(about(row, learnt, shown, seed), step, load, base.langs))

    # -- alignment ---------------------------------------------------------------------------------------------------
    def _aligned(
        self, base: Step | str, how: MethodTable, options: Mapping[str, Any], texts: SupervisionTable,
        langs: Sequence[str], load: Mapping[str, Any], label: str,
    ) -> Step:  # fmt: skip
        """Return the step of a method: on parallel text, on text of each language, or on the anchors of words."""
        plan, method = self.plan, METHODS[how.method]
        pairs, reading = [[plan.source, lang] for lang in langs], given(texts, "limit", "pretokenized")
        about: dict[str, Any] = {
            "load": load, "towards": plan.towards, "langs": pairs, "method": how.method, **given(how), **options
        }  # fmt: skip
        read = {lang: plan.path(file) for lang, file in texts.texts.items() if lang in (plan.source, *langs)}
        files: dict[str, list[str]] = {}
        after: dict[str, list[str]] = {}
        if texts.kind == "parallel":
            kind = "align"
            about["words"] = {"symmetrize": method.symmetrize, **plan.words, **reading}
            files["text"] = [plan.path(texts.options[lang]) for lang in langs]
            after["links"] = [
                self._prepared(
                    "links", {"langs": pair, "words": about["words"]}, {"text": [file]}, f"word links, {'-'.join(pair)}"
                )
                for pair, file in zip(pairs, files["text"], strict=True)
                if method.needs_links
            ]
        elif not method.needs_links:
            kind = "plain"
            about |= {**reading, "texts": list(read)}
            files["text"] = list(read.values())
        else:
            kind = "fit"
            shared = {"load": load, **reading, **given(texts, *OF_ANCHORS)}
            shared |= {"layers": options["layers"]} if "layers" in options else {}
            if texts.kind == "dictionary":
                after["dictionary"] = [
                    self._prepared(
                        "entries", {"langs": pair, "entries": list(texts.entries)},
                        {"dictionary": [plan.path(texts.options[pair[1]])]}, f"entries of a dictionary, {'-'.join(pair)}",
                    )
                    for pair in pairs
                ]  # fmt: skip
            after["anchors"] = []
            for lang, file in read.items():
                called = f"anchors of words, {lang}"
                self.preparing.append(
                    self._reading(base, "anchors", {**shared, "lang": lang}, {"text": [file]}, label=called)
                )
                after["anchors"] += self._places(self.preparing[-1:])
            about["texts"] = list(read)
        self.aligning.append(self._reading(base, kind, about, files, after, label=label))
        return self.aligning[-1]

    def _prepared(self, kind: str, settings: Mapping[str, Any], files: Mapping[str, list[str]], label: str) -> str:
        """Add a preparing step, and return its folder."""
        self.preparing.append(self._step(kind, settings, files, label=label))
        return self._places(self.preparing[-1:])[0]

    # -- tasks -------------------------------------------------------------------------------------------------------
    def _scoring(self, row: Row, name: str, table: TaskTable) -> list[Step]:
        """Return the steps of a task for one encoder: one, or one for each language."""
        plan, task = self.plan, TASKS[table.task]
        load = {name: value for name, value in row.load.items() if name != "translations"}
        about: dict[str, Any] = {"load": load, "task": table.task, **table.options}
        about |= given(table, "limit", "test_limit", "pretokenized", "seeds")
        if task.languages == "pairs":
            tested = [lang for lang in table.files["test"] if row.langs is None or lang in row.langs]
            return [self._on_pair(row, name, table, about, lang) for lang in tested]
        texts = {part: [plan.named(file) for file in listed(table.files.get(part))] for part in PARTS}
        if row.langs is not None and task.lang is None:
            own = (plan.source, *row.langs)
            texts |= {part: [(lang, file) for lang, file in texts[part] if lang in own] for part in ("test", "ceiling")}
            if not texts["test"]:  # the encoder has none of the languages
                return []
        about["langs"] = {part: [lang for lang, _ in several] for part, several in texts.items()}
        files = {part: [file for _, file in several] for part, several in texts.items()}
        if "first_senses" in task.files:
            files["first_senses"] = [plan.path(file) for file in listed(about.pop("first_senses", None))]
            files["keys"] = [key for part in ("train", "test") for file in files[part] for key in keys_of(file)]
        if "translations" in row.load:  # files that the encoder reads itself
            about["translations"] = list(row.load["translations"])
            files["translations"] = [plan.path(file) for two in row.load["translations"].values() for file in two]
        if "seeds" in task.options and plan.seeds is not None:
            about.setdefault("seeds", plan.seeds)
        made_for = "" if row.langs is None else f", {' and '.join(row.langs)}"
        return [self._reading(row.encoder, "score", about, files, label=f"{name}: {label_of(row.about)}{made_for}")]

    def _on_pair(self, row: Row, name: str, table: TaskTable, about: Mapping[str, Any], lang: str) -> Step:
        """Return the step of a task on parallel text in one language."""
        plan, langs, task = self.plan, [self.plan.source, lang], TASKS[table.task]
        settings = {**about, "langs": langs}
        files = {part: [plan.path(named[lang])] for part, named in table.files.items() if lang in named}
        if "text" in task.files:
            files["text"] = [plan.path(table.texts[side]) for side in langs if table.texts]
        if "seed" in task.options:
            settings["words"] = {**plan.words, **({"limit": settings.pop("limit")} if "limit" in settings else {})}
        return self._reading(row.encoder, "score", settings, files, label=f"{name}, {lang}: {label_of(row.about)}")

    # -- inputs of steps --------------------------------------------------------------------------------------------
    def _reading(
        self, encoder: Step | str, kind: str, settings: Mapping[str, Any], files, after=None, *, label: str
    ) -> Step:
        """Return a step that reads an encoder: the result of another step, or an argument of `load_encoder`. Files and folders
        count by content, names on the hub by name."""
        about, files, after = dict(settings), dict(files), dict(after or {})
        if isinstance(encoder, Step):
            after["encoder"] = self._places([encoder])
        else:
            named = {lang: (name, self._place(name)) for lang, name in self._parts(encoder).items()}
            about["encoder"] = [[lang, name if place is None else None] for lang, (name, place) in named.items()]
            files["encoder"] = [place for _, place in named.values() if place is not None]
            files["beside"] = [file for place in files["encoder"] for file in beside_encoder(place)]
        return self._step(kind, about, files, after, label)

    def _parts(self, encoder: str) -> dict[str, str]:
        """Return the encoders of `en=a.vec,de=b.vec`, or a single one without a language."""
        from calque.encoders.loading import by_language

        return {"": encoder} if os.path.exists(self.plan.path(encoder)) else by_language(encoder) or {"": encoder}

    def _place(self, encoder: str) -> str | None:
        """Return the path of an encoder; None for a name on the hub."""
        from calque.encoders.loading import BUNDLED

        if encoder in BUNDLED:
            return str(BUNDLED[encoder])
        path = self.plan.path(encoder)
        return path if os.path.exists(path) else None

    def _step(self, kind: str, settings: Mapping[str, Any], files=None, after=None, label: str = "") -> Step:
        return self._steps.step(kind, settings, files or {}, after or {}, label)

    def _places(self, steps: Sequence[Step]) -> list[str]:
        return [str(self._steps.place(step)) for step in steps]


def beside_encoder(encoder: str) -> list[str]:
    """Return further files of an encoder: `NAME_options.json` of `NAME_weights.hdf5`."""
    from calque.encoders.folder import file_pair

    pair = file_pair(Path(encoder))
    return [str(pair[0])] if pair is not None and not Path(encoder).is_dir() else []


def keys_of(data: str) -> list[str]:
    """Return the files of gold senses beside a text."""
    stem, is_senses, _ = Path(data).name.partition(".data.xml")
    return sorted(str(file) for file in Path(data).parent.glob(f"{stem}.gold.key.txt*")) if is_senses else []
