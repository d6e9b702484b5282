"""From a study to steps: each names what it reads, so that it is done once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.alignment import METHODS
from calque.encoders.key_points import PIVOTS
from calque.runs.pretrain import pair_of
from calque.runs.steps import ENTRIES, LINKS, File, Made, Step, Steps
from calque.runs.study.options import OF_ANCHORS
from calque.runs.study.recipe import (
    BASE,
    PARTS,
    EncoderTable,
    MethodTable,
    Study,
    SupervisionTable,
    TaskTable,
    given,
    is_for,
    listed,
)  # fmt: skip
from calque.tasks.table import TASKS

Langs = tuple[str, ...] | None


@dataclass(frozen=True)
class Row:
    """An encoder as the tables show it.

    Attributes:
        about: `encoder`, `layer`, `method`, `supervision` and `training_seed`, by which a score is known; the seed is None
            where nothing random was trained.
        encoder: where it is: the step that makes it, or what `load_encoder` takes.
        load: keyword arguments of `load_encoder`.
        langs: languages that it was made for; None for all.
        base: the encoder before the method, as `encoder`; None where there was no method.
    """

    about: dict[str, Any]
    encoder: Step | str
    load: Mapping[str, Any] = field(default_factory=dict)
    langs: Langs = None
    base: Step | str | None = None


@dataclass(frozen=True)
class Base:
    """An encoder before any method; `encoder` and `langs` as in `Row`. `number` and `seed` are those of one of several
    trainings."""

    encoder: Step | str
    langs: Langs = None
    number: int | None = None
    seed: int | None = None


def label_of(about: Mapping[str, Any], langs: Langs = None) -> str:
    """Return the name of an encoder in the study's own words."""
    layer, seed = about["layer"], about["training_seed"]
    parts = [about["encoder"], f"layer {layer}" if layer is not None else "", about["method"], about["supervision"]]
    parts += [f"seed {seed}" if seed is not None else "", " and ".join(langs or ())]
    return ", ".join(filter(None, parts))


def about_of(encoder: str, layer: int | None, method: str, supervision: str, seed: int | None = None) -> dict[str, Any]:
    """Return what is known of a score beside the score."""
    return {"encoder": encoder, "layer": layer, "method": method, "supervision": supervision, "training_seed": seed}


class Grid:
    """All steps of a study, in the order in which they can be done.

    Attributes:
        pretraining, joining, preparing, aligning, scoring: steps, of which each list reads the results of those before.
        rows: every encoder that is measured.
        scores: steps that leave scores, and what each is a score of.
    """

    def __init__(self, plan: Study, steps: Steps):
        self.plan, self._steps = plan, steps
        self.pretraining: list[Step] = []
        self.joining: list[Step] = []
        self.preparing: list[Step] = []
        self.aligning: list[Step] = []
        self.scoring: list[Step] = []
        self.rows: list[Row] = []
        self.scores: list[tuple[dict[str, Any], Step]] = []
        for name, table in plan.encoders.items():
            for base in self._bases(name, table):
                self._measure(name, table, base)
        for row in self.rows:
            for name, task in plan.tasks.items():
                if is_for(task.encoders, row.about["encoder"]) and is_for(task.methods, row.about["method"]):
                    self.scores += [({**row.about, "task": name}, step) for step in self._scoring(row, name, task)]

    def _step(self, phase: list[Step], kind: str, label: str, **settings: Any) -> Step:
        phase.append(self._steps.step(kind, settings, label))
        return phase[-1]

    # -- encoders ------------------------------------------------------------------------------------------------------
    def _bases(self, name: str, table: EncoderTable) -> Iterable[Base]:
        """Yield an encoder as it is: one, or one for each training and language."""
        if table.pretrain is None:
            yield Base(table.path)
            return
        pretrain, first = table.pretrain, table.pretrain.options.get("seed", 0)
        for number in range(table.runs):
            run = (None, None) if table.runs == 1 else (number, first + number)
            made = []
            for langs, measured in pretrain.parts(self.plan.source):
                dictionaries = {pair_of(name, langs): file for name, file in pretrain.dictionaries.items()}
                options = {**pretrain.options, "seed": first + number}
                step = self._step(
                    self.pretraining, "pretrain", label_of(about_of(name, None, "", "", run[1]), tuple(langs)),
                    texts=[(lang, self._file(pretrain.texts[lang])) for lang in langs], model=pretrain.model,
                    dictionaries=[(pair, self._file(file)) for pair, file in dictionaries.items() if pair is not None],
                    **{each: options.pop(each) for each in ("preset", "senses") if each in options},
                    **given(pretrain, "limit", "pretokenized"), options=options,
                )  # fmt: skip
                self.scores.append(({**about_of(name, None, BASE, "", run[1]), "task": "language-model"}, step))
                made.append(step)
                if not pretrain.apart:
                    yield Base(step, measured, *run)
            if pretrain.apart:
                encoders = {lang: Made(step) for lang, step in zip(pretrain.texts, made, strict=True)}
                yield Base(self._step(self.joining, "join", name, name=name, encoders=encoders), None, *run)

    def _measure(self, name: str, table: EncoderTable, base: Base) -> None:
        """Add the rows of an encoder as it is, and after each method."""
        plan, layers, own = self.plan, table.layers or (None,), given(table, "pooling", "bidirectional")
        loads = {layer: own if layer is None else {**own, "layer": layer} for layer in layers}

        def about(method: str, learnt: str, layer: int | None, seed: int | None) -> dict[str, Any]:
            return about_of(name, layer, method, learnt, seed if base.seed is None else base.seed)

        for layer, load in loads.items() if BASE in plan.methods and is_for(plan.methods[BASE].encoders, name) else ():
            self.rows.append(Row(about(BASE, "", layer, None), base.encoder, load, base.langs))
        for learnt, texts in plan.supervision.items():
            langs = [lang for lang in texts.languages(plan.source) if base.langs is None or lang in base.langs]
            for method, how in plan.methods.items():
                if method == BASE or not langs or learnt not in how.supervision or not is_for(how.encoders, name):
                    continue
                trains = METHODS[how.method].trains  # once for each layer; the maps of all layers come from one pass
                at_once = not trains and table.layers and "layers" not in how.options
                for seed in how.seeds(range(plan.runs) if base.number is None else [base.number]):
                    options = {**({"layers": layers} if at_once else {}), **how.options}
                    options |= {} if seed is None else {"seed": seed}
                    for layer, load in (loads if trains else {None: own}).items():
                        called = label_of(
                            about(method, learnt if len(plan.supervision) > 1 else "", layer, seed), base.langs
                        )
                        step = self._aligned(base.encoder, how, options, texts, langs, load, called)
                        if step.kind == "align":  # which leaves the scores that a method has of its own
                            self.scores.append((about(method, learnt, layer, seed), step))
                        for shown in layers if at_once else (layer,):
                            for row, view in how.rows(method).items():
                                made = about(row, learnt, shown, seed)
                                loaded = {"layer": shown} if at_once else view
                                self.rows.append(Row(made, step, loaded, base.langs, base.encoder))

    # -- alignment -----------------------------------------------------------------------------------------------------
    def _aligned(
        self, base: Step | str, how: MethodTable, options: Mapping[str, Any], texts: SupervisionTable,
        langs: Sequence[str], load: Mapping[str, Any], label: str,
    ) -> Step:  # fmt: skip
        """Return the step of a method: on parallel text, on text of each language, or on the anchors of words."""
        plan, method = self.plan, METHODS[how.method]
        encoder, load = self._encoder(base), {**load, **given(how)}
        common = {"encoder": encoder, "load": load, "method": how.method, "towards": plan.towards, "options": options}
        if texts.kind == "parallel":
            return self._step(self.aligning, "align", label, **common, **self._linked(texts, langs, how.method))
        pairs, reading = [(plan.source, lang) for lang in langs], given(texts, "limit", "pretokenized")
        read = {lang: self._file(file, lang) for lang, file in texts.texts.items() if lang in (plan.source, *langs)}
        if not method.needs_links:
            return self._step(self.aligning, "plain", label, **common, texts=list(read.values()), words=reading)
        shared = {"encoder": encoder, "load": load, **reading, **given(texts, *OF_ANCHORS)}
        shared |= {"layers": options["layers"]} if "layers" in options else {}
        anchors = {
            lang: self._step(
                self.preparing, "anchors", f"anchors of words, {lang}", lang=lang, texts=[File(file.path)], **shared
            )
            for lang, file in read.items()
        }
        entries = [] if texts.kind == "text" else [
            self._step(
                self.preparing, "entries", f"entries of a dictionary, {'-'.join(pair)}", langs=pair,
                entries=texts.entries, dictionary=self._file(texts.options[pair[1]]),
            )
            for pair in pairs
        ]  # fmt: skip
        return self._step(
            self.aligning, "fit", label, **common, langs=pairs, dictionaries=[Made(step, ENTRIES) for step in entries],
            anchors=[Made(step, lang=lang) for lang, step in anchors.items()],
        )  # fmt: skip

    def _linked(self, texts: SupervisionTable, langs: Sequence[str], method: str) -> dict[str, Any]:
        """Return parallel texts, how their words are linked for a method, and where the links will be, if it needs any."""
        pairs = [(self.plan.source, lang) for lang in langs]
        words = {"symmetrize": METHODS[method].symmetrize, **self.plan.words, **given(texts, "limit", "pretokenized")}
        files = [self._file(texts.options[lang]) for lang in langs]
        links = [
            self._step(self.preparing, "links", f"word links, {'-'.join(pair)}", text=file, langs=pair, words=words)
            for pair, file in zip(pairs, files, strict=True)
            if METHODS[method].needs_links
        ]
        return {"texts": files, "langs": pairs, "words": words, "links": [Made(step, LINKS) for step in links]}

    # -- tasks ---------------------------------------------------------------------------------------------------------
    def _scoring(self, row: Row, name: str, table: TaskTable) -> list[Step]:
        """Return the steps of a task for one encoder: one, or one for each language."""
        plan, task = self.plan, TASKS[table.task]
        words, options = given(table, "limit", "pretokenized"), dict(table.options)
        settings: dict[str, Any] = {"task": table.task, "encoder": self._encoder(row.encoder), "load": row.load}
        if task.languages == "pairs":
            words = {**(plan.words if "seed" in task.options else {}), **words}
            return [
                self._step(
                    self.scoring, "score", f"{name}, {lang}: {label_of(row.about)}", **settings, words=words, options=options,
                    inputs=self._pair(table, lang),
                )
                for lang in table.files["test"]
                if row.langs is None or lang in row.langs
            ]  # fmt: skip
        own = None if row.langs is None or task.lang else (plan.source, *row.langs)
        inputs: dict[str, Any] = given(table, "test_limit")
        for part, files in table.files.items():
            if part in PARTS:
                named = [plan.named(file) for file in listed(files)]
                chosen = [each for each in named if own is None or part in ("train", "dev") or each[0] in own]
                inputs[part] = [self._file(path, lang or task.lang or "") for lang, path in chosen]
            else:
                inputs[part] = self._file(files)
        if not inputs["test"]:  # of other languages than this encoder's
            return []
        if "seeds" in task.options and (seeds := table.seeds or plan.seeds) is not None:
            options["seeds"] = seeds
        before = options.pop("base", row.base) if task.compares else None
        if before is not None:
            options["base"] = self._encoder(before)
        if row.load.get("steps") == PIVOTS:
            tested = {file.lang for file in inputs["test"]}
            both = {lang: two for lang, two in table.translations.items() if lang in tested}
            settings["translations"] = [(self._file(a, lang), self._file(b)) for lang, (a, b) in both.items()]
        if table.realign is not None:
            how = {"method": "contrastive", **table.realign}
            texts = plan.parallel(f"tasks.{name}.realign", how.pop("supervision", ""))
            langs = [lang for lang in texts.languages(plan.source) if row.langs is None or lang in row.langs]
            settings["realign"] = {**how, **self._linked(texts, langs, how["method"])}
        called = f"{name}: {label_of(row.about, row.langs)}"
        return [self._step(self.scoring, "score", called, **settings, words=words, options=options, inputs=inputs)]

    def _pair(self, table: TaskTable, lang: str) -> dict[str, Any]:
        """Return the files of a task on parallel text for one language."""
        langs = (self.plan.source, lang)
        files = {part: [self._file(named[lang])] for part, named in table.files.items() if lang in named}
        text = [self._file(table.texts[side], side) for side in langs] if table.texts else []
        return {"langs": [langs], **files, **({"text": text} if text else {})}

    # -- what a step reads ---------------------------------------------------------------------------------------------
    def _file(self, name: str, lang: str = "") -> File:
        """Return a file of the study; files of right senses beside a text count as well."""
        path = self.plan.path(name)
        stem, is_senses, _ = Path(path).name.partition(".data.xml")
        keys = sorted(map(str, Path(path).parent.glob(f"{stem}.gold.key.txt*"))) if is_senses else ()
        return File(path, lang, keys)

    def _encoder(self, encoder: Step | str) -> list[Made | File | str]:
        """Return the parts of an encoder: another step's result, or what `load_encoder` takes. Of that, the content of files
        and folders counts, those that come with calque included; a name on the hub stands for itself."""
        from calque.encoders.elmo_files import file_pair
        from calque.encoders.loading import BUNDLED, by_language

        if isinstance(encoder, Step):
            return [Made(encoder)]
        found: list[Made | File | str] = []
        known = os.path.exists(self.plan.path(encoder))
        for lang, name in ({} if known else by_language(encoder) or {}).items() or [("", encoder)]:
            path = str(BUNDLED.get(name, self.plan.path(name)))
            if not os.path.exists(path):
                found.append(f"{lang}={name}" if lang else name)
                continue
            pair = None if os.path.isdir(path) else file_pair(Path(path))  # of an ELMo's weights, the options
            found.append(File(path, lang, () if pair is None else (str(pair[0]),)))
        return found
