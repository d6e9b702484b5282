"""From the plan to steps: each names what it reads, so that it is done once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.alignment import METHODS
from calque.runs.steps import Step, Steps
from calque.runs.study.options import OF_ROWS, PARTS, of_anchors
from calque.runs.study.plan import BASE, Study, Training, is_for, listed, seeds_of, trainings
from calque.tasks.table import TASKS


@dataclass(frozen=True)
class Row:
    """An encoder as the tables show it.

    Attributes:
        about: `encoder`, `layer`, `method`, `supervision` and `training_seed`, by which a score is known; the seed is None
            where nothing random was trained.
        encoder: where it is: the step that makes it, or what `load_encoder` takes.
        load: keyword arguments of `load_encoder`.
        langs: languages that it was made for; None for all.
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
        number, seed: which of several trainings it is, and of which seed; None where there is but one.
    """

    encoder: Step | str
    langs: tuple[str, ...] | None = None
    number: int | None = None
    seed: int | None = None


def label_of(about: Mapping[str, Any]) -> str:
    """An encoder by the study's own names."""
    layer, seed = about["layer"], about["training_seed"]
    parts = [about["encoder"], f"layer {layer}" if layer is not None else "", about["method"], about["supervision"]]
    return ", ".join([*filter(None, parts), *([f"seed {seed}"] if seed is not None else [])])


def about_of(encoder: str, layer: int | None, method: str, supervision: str, seed: int | None = None) -> dict[str, Any]:
    """What is known of a score beside the score."""
    return {"encoder": encoder, "layer": layer, "method": method, "supervision": supervision, "training_seed": seed}


class Grid:
    """All steps of a study, in the order in which they can be done.

    Attributes:
        pretraining, joining, preparing, aligning, scoring: steps, of which each list reads the results of those before.
        rows: every encoder that is measured.
        scores: steps that leave figures, and what each is a figure of.
    """

    def __init__(self, plan: Study, steps: Steps):
        self.plan, self._steps = plan, steps
        self.pretraining: list[Step] = []
        self.joining: list[Step] = []
        self.preparing: list[Step] = []
        self.aligning: list[Step] = []
        self.rows: list[Row] = []
        self.scores: list[tuple[dict[str, Any], Step]] = []
        for name, given in plan.encoders.items():
            for base in self._bases(name, given):
                self._rows(name, given, base)
        self.scores += [
            ({**row.about, "task": task}, step)
            for row in self.rows
            for task, given in plan.tasks.items()
            if is_for(given, row.about["encoder"], row.about["method"])
            for step in self._scoring(row, task, given)
        ]
        self.scoring = [step for _, step in self.scores if step.kind == "score"]

    # -- encoders ----------------------------------------------------------------------------------------------------
    def _bases(self, name: str, given: Mapping[str, Any]) -> list[Base]:
        """An encoder as it is: one, or one for each training and language."""
        if "path" in given:
            return [Base(given["path"])]
        found, apart, seeds = [], given["pretrain"].get("apart", False), seeds_of(given)
        parts = trainings(given["pretrain"], self.plan.source)
        for number, seed in enumerate(seeds):
            run = (None, None) if len(seeds) == 1 else (number, seed)
            made = [self._trained(name, given["pretrain"], part, seed, run[1]) for part in parts]
            if apart:
                found.append(Base(self._joined(name, list(given["pretrain"]["texts"]), made), None, *run))
            else:
                langs = [None if part.other is None else (part.other,) for part in parts]
                found += [Base(step, some, *run) for step, some in zip(made, langs, strict=True)]
        return found

    def _trained(self, name: str, given: Mapping[str, Any], part: Training, seed: int, run: int | None) -> Step:
        own = ("texts", "apart", "pairs", "dictionaries")
        settings = {**{key: value for key, value in given.items() if key not in own}, "seed": seed}
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
        """The encoders of several languages as one."""
        settings, after = {"name": name, "langs": list(langs)}, {"encoder": self._places(made)}
        self.joining.append(self._step("join", settings, after=after, label=name))
        return self.joining[-1]

    def _rows(self, name: str, given: Mapping[str, Any], base: Base) -> None:
        """An encoder as it is, and after each method."""
        plan, own = self.plan, {name: given[name] for name in ("pooling", "bidirectional") if name in given}
        layers: list[int | None] = list(given.get("layers", [None]))
        loads = {layer: own if layer is None else {**own, "layer": layer} for layer in layers}

        def about(method: str, learnt: str, layer: int | None, seed: int | None) -> dict[str, Any]:
            return about_of(name, layer, method, learnt, base.seed if base.seed is not None else seed)

        def row(method, learnt, encoder: Step | str, load: dict[str, Any], layer: int | None, langs=None, seed=None):
            self.rows.append(Row(about(method, learnt, layer, seed), encoder, load, langs or base.langs))

        several = len(plan.supervision) > 1

        def label(method: str, learnt: str, some: Sequence[str], layer: int | None, seed: int | None) -> str:
            known = about(method, learnt if several else "", layer, seed)
            return label_of(known) + ("" if plan.together and base.langs is None else f", {' and '.join(some)}")

        if BASE in plan.methods:
            for layer, load in loads.items():
                row(BASE, "", base.encoder, load, layer)
        for learnt, texts in plan.supervision.items():
            langs = [lang for lang in plan.languages(texts) if base.langs is None or lang in base.langs]
            for some in [langs] * bool(langs) if plan.together else [[lang] for lang in langs]:
                made_for = None if plan.together else tuple(some)
                for method, given in plan.methods.items():
                    if method == BASE or learnt not in plan.supervisions(given) or not is_for(given, name):
                        continue
                    for seed in plan.training_seeds(given, None if base.number is None else [base.number]):
                        settings = given if seed is None else {**given, "seed": seed}
                        trains = METHODS[settings["method"]].trains  # once for each layer
                        if trains or layers == [None] or "layers" in settings:
                            for layer, load in (loads if trains else {None: own}).items():
                                called = label(method, learnt, some, layer, seed)
                                step = self._aligned(base.encoder, settings, texts, some, load, called)
                                if step.kind == "align":  # which leaves the figures that a method has of its own
                                    self.scores.append((about(method, learnt, layer, seed), step))
                                for name_of_row, how in plan.rows_of(method, given).items():
                                    row(name_of_row, learnt, step, how, layer, made_for, seed)
                        else:  # the maps of all layers from one pass
                            called = label(method, learnt, some, None, seed)
                            step = self._aligned(base.encoder, {"layers": layers, **settings}, texts, some, own, called)
                            for layer in layers:
                                row(method, learnt, step, {"layer": layer}, layer, made_for, seed)

    def _aligned(
        self, base: Step | str, settings: Mapping[str, Any], texts, langs: Sequence[str], load, label: str
    ) -> Step:
        options = {
            name: value for name, value in settings.items() if name not in ("supervision", "encoders", "runs", "views")
        }
        about = {
            "load": load,
            "towards": self.plan.towards,
            "langs": [[self.plan.source, lang] for lang in langs],
            **options,
        }
        if texts["kind"] == "parallel":
            step = self._on_links(base, about, texts, langs, label)
        elif not METHODS[settings["method"]].needs_links:
            step = self._on_texts(base, about, texts, langs, label)
        else:
            step = self._on_words(base, about, texts, langs, label)
        self.aligning.append(step)
        return step

    def _on_links(self, base: Step | str, about: Mapping[str, Any], texts, langs: Sequence[str], label: str) -> Step:
        """From the linked words of parallel texts; for a method that needs no links, from their sides."""
        words, files, links = self._linked(texts, langs, about["method"])
        settings = {**about, "words": words}
        return self._reading(base, "align", settings, {"text": files}, {"links": links}, label=label)

    def _linked(self, texts, langs: Sequence[str], method: str) -> tuple[dict[str, Any], list[str], list[str]]:
        """How words are linked for a method, parallel texts, and where their links will be; none for one without need."""
        words = {"symmetrize": METHODS[method].symmetrize, **self.plan.words, **_given(texts, "limit", "pretokenized")}
        files = [self.plan.path(texts[lang]) for lang in langs]
        linking = [
            self._step(
                "links", {"langs": [self.plan.source, lang], "words": words}, {"text": [file]},
                label=f"word links, {self.plan.source}-{lang}",
            )
            for lang, file in zip(langs, files, strict=True)
            if METHODS[method].needs_links
        ]  # fmt: skip
        self.preparing += linking
        return words, files, self._places(linking)

    def _on_words(self, base: Step | str, about: Mapping[str, Any], texts, langs: Sequence[str], label: str) -> Step:
        """From words' anchors, and the dictionaries that pair them, if there are any."""
        plan, after = self.plan, {}
        shared = {**_given(about, "load", "layers"), **_given(texts, *of_anchors())}
        read = {lang: plan.path(file) for lang, file in texts["texts"].items() if lang in (plan.source, *langs)}
        anchors = [
            self._reading(
                base, "anchors", {**shared, "lang": lang}, {"text": [file]}, label=f"anchors of words, {lang}"
            )
            for lang, file in read.items()
        ]
        self.preparing += anchors
        if texts["kind"] == "dictionary":
            after["dictionary"] = self._dictionaries(about["langs"], texts)
        after["anchors"] = self._places(anchors)
        return self._reading(base, "fit", {**about, "texts": list(read)}, {}, after, label=label)

    def _on_texts(self, base: Step | str, about: Mapping[str, Any], texts, langs: Sequence[str], label: str) -> Step:
        """Return the step of a method that learns from text of each language."""
        read = {
            lang: self.plan.path(file) for lang, file in texts["texts"].items() if lang in (self.plan.source, *langs)
        }
        settings, files = (
            {**about, **_given(texts, "limit", "pretokenized"), "texts": list(read)},
            {"text": list(read.values())},
        )
        return self._reading(base, "plain", settings, files, label=label)

    def _dictionaries(self, pairs: Sequence[Sequence[str]], texts) -> list[str]:
        """Where the entries to learn from are."""
        entries = list(texts.get("entries", [0]))
        parts = [
            self._step(
                "entries", {"langs": pair, "entries": entries}, {"dictionary": [self.plan.path(texts[pair[1]])]},
                label=f"entries of a dictionary, {'-'.join(pair)}",
            )
            for pair in pairs
        ]  # fmt: skip
        self.preparing += parts
        return self._places(parts)

    # -- tasks -------------------------------------------------------------------------------------------------------
    def _scoring(self, row: Row, name: str, given: Mapping[str, Any]) -> list[Step]:
        """The steps of a task for one encoder: one, or one for each language."""
        plan, task = self.plan, TASKS[given["task"]]
        own = (*PARTS, *OF_ROWS, "texts")
        load = {name: value for name, value in row.load.items() if name != "translations"}
        about = {"load": load, **{key: v for key, v in given.items() if key not in own}}
        if task.languages == "pairs":
            tests = {lang: file for lang, file in given["test"].items() if row.langs is None or lang in row.langs}
            return [self._by_language(row, name, given, about, lang, file) for lang, file in tests.items()]
        texts = {part: [plan.named(file) for file in listed(given.get(part))] for part in PARTS}
        if row.langs is not None and task.lang is None:
            own = (plan.source, *row.langs)
            texts |= {part: [(lang, file) for lang, file in texts[part] if lang in own] for part in ("test", "ceiling")}
            if not texts["test"]:  # of other languages than this encoder's
                return []
        about["langs"] = {part: [lang for lang, _ in several] for part, several in texts.items()}
        files = {part: [file for _, file in several] for part, several in texts.items()}
        if "first_senses" in task.files:
            files["first_senses"] = [plan.path(file) for file in listed(about.pop("first_senses", None))]
            files["keys"] = [key for part in ("train", "test") for file in files[part] for key in keys_of(file)]
        if "translations" in row.load:  # files that the encoder reads
            about["translations"] = list(row.load["translations"])
            files["translations"] = [plan.path(file) for two in row.load["translations"].values() for file in two]
        if "seeds" in task.options and given.get("seeds", plan.seeds) is not None:
            about["seeds"] = given.get("seeds", plan.seeds)
        after: dict[str, list[str]] = {}
        made_for = "" if row.langs is None else f", {' and '.join(row.langs)}"
        called = f"{name}: {label_of(row.about)}{made_for}"
        return [self._reading(row.encoder, "score", about, files, after, label=called)]

    def _by_language(self, row: Row, name: str, given: Mapping[str, Any], about, lang: str, test: str) -> Step:
        plan = self.plan
        settings, files = {**about, "langs": [plan.source, lang]}, {"test": [plan.path(test)]}
        files |= {
            part: [plan.path(given[part][lang])] for part in PARTS if part != "test" and lang in given.get(part, {})
        }
        if "text" in TASKS[given["task"]].files:
            files["text"] = [plan.path(given["texts"][side]) for side in settings["langs"] if given.get("texts")]
        if "seed" in TASKS[given["task"]].options:
            limit = settings.pop("limit", None)
            settings["words"] = plan.words if limit is None else {**plan.words, "limit": limit}
        return self._reading(row.encoder, "score", settings, files, label=f"{name}, {lang}: {label_of(row.about)}")

    # -- what a step reads -------------------------------------------------------------------------------------------
    def _reading(
        self, encoder: Step | str, kind: str, settings: Mapping[str, Any], files, after=None, *, label: str
    ) -> Step:
        """A step that reads an encoder."""
        about, files, after = dict(settings), dict(files), dict(after or {})
        self.refer("encoder", encoder, about, files, after)
        return self._step(kind, about, files, after, label)

    def refer(self, role: str, encoder: Step | str, about, files, after) -> None:
        """Say which encoder a step reads: another step's result; or what `load_encoder` takes. Of that, the content of files
        and folders counts, those that come with calque included; a name on the hub stands for itself.

        Args:
            role: what it is to the step.
            encoder: which one.
            about, files, after: the step's, which are added to.
        """
        if isinstance(encoder, Step):
            after[role] = self._places([encoder])
            return
        beside = "beside" if role == "encoder" else f"beside_{role}"
        about[role], files[role], files[beside] = [], [], []
        for lang, name in self._parts(encoder).items():
            place = self._place(name)
            about[role].append([lang, name if place is None else None])
            files[role] += [] if place is None else [place]
            files[beside] += [] if place is None else beside_encoder(place)

    def _parts(self, encoder: str) -> dict[str, str]:
        """The encoders of `en=a.vec,de=b.vec`; a single one without a language."""
        from calque.encoders.loading import by_language

        return {"": encoder} if os.path.exists(self.plan.path(encoder)) else by_language(encoder) or {"": encoder}

    def _place(self, encoder: str) -> str | None:
        """Where an encoder lies; None for a name on the hub."""
        from calque.encoders.loading import BUNDLED

        if encoder in BUNDLED:
            return str(BUNDLED[encoder])
        path = self.plan.path(encoder)
        return path if os.path.exists(path) else None

    def _step(self, kind: str, settings: Mapping[str, Any], files=None, after=None, label: str = "") -> Step:
        return self._steps.step(kind, settings, files or {}, after or {}, label)

    def _places(self, steps: Sequence[Step]) -> list[str]:
        return [str(self._steps.place(step)) for step in steps]


def _given(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def beside_encoder(encoder: str) -> list[str]:
    """What else is read with an encoder's file: `NAME_options.json` with `NAME_weights.hdf5`."""
    from calque.encoders.folder import file_pair

    pair = file_pair(Path(encoder))
    return [str(pair[0])] if pair is not None and not Path(encoder).is_dir() else []


def keys_of(data: str) -> list[str]:
    """Files of right senses beside a text."""
    stem, is_senses, _ = Path(data).name.partition(".data.xml")
    return sorted(str(file) for file in Path(data).parent.glob(f"{stem}.gold.key.txt*")) if is_senses else []
