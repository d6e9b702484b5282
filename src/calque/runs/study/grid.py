"""Build the list of steps of a study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.alignment import METHODS
from calque.runs.steps import Step, Steps
from calque.runs.study.recipe import (
    BASE,
    OF_ANCHORS,
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
from calque.tasks.reading import chooses_layers
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
    parts = [about["encoder"]]
    if about["layer"] is not None:
        parts.append(f"layer {about['layer']}")
    parts += [about["method"], about["supervision"]]
    if about["training_seed"] is not None:
        parts.append(f"seed {about['training_seed']}")
    parts.append(" and ".join(langs or ()))
    return ", ".join(part for part in parts if part)


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
        self._phase_of: dict[str, list[Step]] = {}
        for title, kinds_of_steps in _PHASES.items():
            for kind in kinds_of_steps.split():
                self._phase_of[kind] = self.phases[title]
        self.rows: list[Row] = []
        self.scores: list[tuple[dict[str, Any], Step]] = []
        for name, encoder in plan.encoders.items():
            for base in self._bases(name, encoder):
                self._add_rows(name, encoder, base)
        for row in self.rows:
            for name, task in plan.tasks.items():
                if not is_for(task.encoders, row.about["encoder"]):
                    continue
                if not is_for(task.methods, row.about["method"]):
                    continue
                about = {**row.about, "task": name}
                self.scores += [(about, step) for step in self._scoring(row, name, task)]

    # -- encoders ----------------------------------------------------------------------------------
    def _bases(self, name: str, table: EncoderTable) -> Iterator[Base]:
        """Yield the base encoders: a single encoder, or one per pretraining run and (with `pairs`)
        language.
        """
        if table.pretrain is None:
            yield Base(table.path)
            return
        parts, first_seed = (
            trainings(table.pretrain, self.plan.source),
            table.pretrain.get("seed", 0),
        )
        for number in range(table.runs):
            seed = first_seed + number
            # A single run has no number or seed in the tables.
            run = (None, None) if table.runs == 1 else (number, seed)
            trained = [self._trained(name, table.pretrain, part, seed, run[1]) for part in parts]
            if table.pretrain.get("apart"):
                settings = {"name": name, "langs": list(table.pretrain["texts"])}
                after = {"encoder": self._places(trained)}
                yield Base(self._step("join", settings, after=after, label=name), None, *run)
                continue
            for part, step in zip(parts, trained, strict=True):
                langs = None if part.other is None else (part.other,)
                yield Base(step, langs, *run)

    def _trained(
        self, name: str, table: Mapping[str, Any], part: Training, seed: int, run: int | None
    ) -> Step:
        """Return the step that pretrains an encoder with one seed, and record its scores.

        Args:
            run: seed in the result tables; None if there is only one run.
        """
        # Texts and dictionaries are files of the step, so its key depends on their contents.
        without = ("texts", "apart", "pairs", "dictionaries")
        settings = {key: value for key, value in table.items() if key not in without}
        settings["seed"] = seed
        files = {"text": [self.plan.path(file) for file in part.texts.values()]}
        if part.dictionaries:
            settings["dictionaries"] = list(part.dictionaries)
            files["dictionary"] = [self.plan.path(file) for file in part.dictionaries.values()]
        settings["langs"] = list(part.texts)
        label = f"{name}, {' and '.join(part.texts)}"
        if run is not None:
            label += f", seed {run}"
        step = self._step("pretrain", settings, files, label=label)
        about = {**about_of(name, None, BASE, "", run), "task": "language-model"}
        self.scores.append((about, step))
        return step

    def _add_rows(self, name: str, table: EncoderTable, base: Base) -> None:
        """Add the rows for an encoder before and after each method."""
        plan = self.plan
        load = given(table, "pooling", "bidirectional")
        if BASE in plan.methods:
            for layer in dict.fromkeys(table.layers or [None]):
                layer_load = load if layer is None else {**load, "layer": layer}
                about = about_of(name, layer, BASE, "", base.seed)
                self.rows.append(Row(about, base.encoder, layer_load, base.langs))
        for supervision_name, supervision in plan.supervision.items():
            langs = supervision.languages(plan.source)
            if base.langs is not None:
                langs = [lang for lang in langs if lang in base.langs]
            if not langs:
                continue
            for method_name, method in plan.methods.items():
                usable = supervision_name in method.supervision and is_for(method.encoders, name)
                if method_name != BASE and usable:
                    self._add_aligned_rows(
                        name, table, base, method_name, method, supervision_name, langs
                    )

    def _add_aligned_rows(
        self,
        name: str,
        table: EncoderTable,
        base: Base,
        method_name: str,
        method: MethodTable,
        supervision_name: str,
        langs: Sequence[str],
    ) -> None:
        """Add the rows for an encoder after one method, for each seed and layer."""
        plan = self.plan
        layers: list[int | None] = list(table.layers) or [None]
        encoder_load = given(table, "pooling", "bidirectional")
        # Methods that train the encoder run once for each layer. Maps are fitted for all layers
        # at once.
        trains = METHODS[method.method].trains
        at_once = not trains and bool(table.layers) and "layers" not in method.options
        for seed in method.seeds(plan.runs, base.number):
            # The seed of a pretrained encoder is also the seed of its rows.
            row_seed = seed if base.seed is None else base.seed
            for layer in dict.fromkeys(layers) if trains else [None]:
                load = encoder_load if layer is None else {**encoder_load, "layer": layer}
                options = {"layers": layers, **method.options} if at_once else {**method.options}
                if seed is not None:
                    options["seed"] = seed
                # With one supervision table, its name would say nothing in a label.
                shown = supervision_name if len(plan.supervision) > 1 else ""
                label = label_of(
                    about_of(name, layer, method_name, shown, row_seed),
                    None if base.langs is None else langs,
                )
                supervision = plan.supervision[supervision_name]
                step = self._aligned(base.encoder, method, options, supervision, langs, load, label)
                if step.kind == "align" and not at_once:
                    # the held-out scores that the method computes itself
                    about = about_of(name, layer, method_name, supervision_name, row_seed)
                    self.scores.append((about, step))
                for read_layer in layers if at_once else [layer]:
                    for row_name, view in method.rows(method_name).items():
                        about = about_of(name, read_layer, row_name, supervision_name, row_seed)
                        row_load = {"layer": read_layer} if at_once else view
                        self.rows.append(Row(about, step, row_load, base.langs))

    # -- alignment ---------------------------------------------------------------------------------
    def _aligned(
        self,
        base: Step | str,
        table: MethodTable,
        options: Mapping[str, Any],
        supervision: SupervisionTable,
        langs: Sequence[str],
        load: Mapping[str, Any],
        label: str,
    ) -> Step:
        """Return the step that runs a method on parallel text, on text in each language, or on
        type-level anchors.
        """
        plan, method = self.plan, METHODS[table.method]
        pairs = [(plan.source, lang) for lang in langs]
        words = given(supervision, "limit", "pretokenized")
        settings: dict[str, Any] = {
            "load": {**load, **given(table, "bidirectional")},
            "towards": plan.towards,
            "method": table.method,
            "options": options,
        }
        if supervision.kind == "parallel":
            files = [plan.path(supervision.options[lang]) for lang in langs]
            words = {"symmetrize": method.symmetrize, **plan.words, **words}
            settings |= {"langs": pairs, "words": words}
            links: list[Step] = []
            if method.needs_links:
                links = self._links(pairs, files, words)
            after = {"links": self._places(links)}
            return self._reading(base, "align", settings, {"text": files}, after, label=label)
        texts = {
            lang: plan.path(file)
            for lang, file in supervision.texts.items()
            if lang in (plan.source, *langs)
        }
        if not method.needs_links:
            texts_by_lang = [f"{lang}={file}" for lang, file in texts.items()]
            settings["words"] = words
            return self._reading(base, "plain", settings, {"text": texts_by_lang}, label=label)
        settings |= {"langs": pairs, "words": words}
        averaging = {"load": load, **words, **given(supervision, *OF_ANCHORS)}
        if "layers" in options:
            averaging["layers"] = ",".join(map(str, options["layers"]))
        anchors = self._anchors(base, texts, averaging)
        entries: list[Step] = []
        if supervision.kind == "dictionary":
            entries = self._entries(pairs, supervision)
        after = {"anchors": anchors, "dictionary": self._places(entries)}
        return self._reading(base, "fit", settings, {}, after, label=label)

    def _links(
        self, pairs: Sequence[tuple[str, str]], files: Sequence[str], words: Mapping[str, Any]
    ) -> list[Step]:
        """Return the steps that link the words of each parallel text."""
        steps = []
        for pair, file in zip(pairs, files, strict=True):
            settings, label = {"langs": pair, "words": words}, f"word links, {'-'.join(pair)}"
            steps.append(self._step("links", settings, {"text": [file]}, label=label))
        return steps

    def _anchors(
        self, base: Step | str, texts: Mapping[str, str], averaging: Mapping[str, Any]
    ) -> list[str]:
        """Return `LANG=FOLDER` of the anchors in each language; their steps are added."""
        places = []
        for lang, file in texts.items():
            settings, label = {**averaging, "lang": lang}, f"anchors of words, {lang}"
            step = self._reading(base, "anchors", settings, {"text": [file]}, label=label)
            places.append(f"{lang}={self._steps.place(step)}")
        return places

    def _entries(
        self, pairs: Sequence[tuple[str, str]], supervision: SupervisionTable
    ) -> list[Step]:
        """Return the steps that select the dictionary entries of each language pair."""
        steps = []
        for source, target in pairs:
            settings = {"langs": (source, target), "entries": supervision.entries}
            files = {"dictionary": [self.plan.path(supervision.options[target])]}
            label = f"dictionary entries, {source}-{target}"
            steps.append(self._step("entries", settings, files, label=label))
        return steps

    # -- tasks -------------------------------------------------------------------------------------
    def _scoring(self, row: Row, name: str, table: TaskTable) -> list[Step]:
        """Return the steps that score one encoder on a task: a single step, or one step for each
        language.
        """
        words = {
            "pretokenized": TASKS[table.task].pretokenized,
            **given(table, "limit", "pretokenized"),
        }
        ignored = {"translations"}
        # The task reads other layers, and the maps of all of them are needed for this.
        if chooses_layers(table.options):
            ignored.add("layer")
        settings = {
            "load": {key: value for key, value in row.load.items() if key not in ignored},
            "task": table.task,
            "options": dict(table.options),
            **given(table, "test_limit"),
            "words": words,
        }
        if TASKS[table.task].languages == "pairs":
            return self._scoring_of_pairs(row, name, table, settings)
        return self._scoring_of_texts(row, name, table, settings)

    def _scoring_of_pairs(
        self, row: Row, name: str, table: TaskTable, settings: dict[str, Any]
    ) -> list[Step]:
        """Return a step for each parallel test text in a language of the encoder."""
        plan, task = self.plan, TASKS[table.task]
        if "seed" in task.options:  # the task links the words of its texts
            settings["words"] = {**plan.words, **settings["words"]}
        steps = []
        for lang in table.files["test"]:
            if row.langs is not None and lang not in row.langs:
                continue
            files = {
                part: [plan.path(by_lang[lang])]
                for part, by_lang in table.files.items()
                if lang in by_lang
            }
            langs = (plan.source, lang)
            if "text" in task.files and table.texts:
                files["text"] = [f"{side}={plan.path(table.texts[side])}" for side in langs]
            of_pair = {**settings, "langs": [langs]}
            label = f"{name}, {lang}: {label_of(row.about, row.langs)}"
            steps.append(self._reading(row.encoder, "score", of_pair, files, label=label))
        return steps

    def _scoring_of_texts(
        self, row: Row, name: str, table: TaskTable, settings: dict[str, Any]
    ) -> list[Step]:
        """Return one step for all test texts, or none if no test text is in a language of the
        encoder.
        """
        plan, task, options = self.plan, TASKS[table.task], settings["options"]
        texts = plan.texts_of(table)
        if row.langs is not None and task.lang is None:
            langs = (plan.source, *row.langs)
            for part in ("test", "ceiling"):
                texts[part] = [(lang, file) for lang, file in texts[part] if lang in langs]
            if not texts["test"]:
                return []
        files = {
            part: [f"{lang}={file}" for lang, file in by_lang] for part, by_lang in texts.items()
        }
        if "first_senses" in task.files:
            first_senses = listed(options.pop("first_senses", None))
            files["first_senses"] = [plan.path(file) for file in first_senses]
            # The task finds the files with gold senses itself. They are listed here, because the
            # key of the step must depend on their contents.
            files["keys"] = []
            for _, file in (*texts["train"], *texts["test"]):
                files["keys"] += keys_of(file)
        if "translations" in row.load:  # the encoder reads these files itself
            translations = row.load["translations"]
            settings["translations"] = list(translations)
            files["translations"] = []
            for pair in translations.values():
                files["translations"] += [plan.path(file) for file in pair]
        seeds = plan.seeds if table.seeds is None else table.seeds
        if "seeds" in task.options and seeds is not None:
            options["seeds"] = seeds
        label = f"{name}: {label_of(row.about, row.langs)}"
        return [self._reading(row.encoder, "score", settings, files, label=label)]

    # -- inputs of steps ---------------------------------------------------------------------------
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
            return self._step(kind, settings, files, after, label)
        names = {"": encoder}  # names of the encoders by language
        if not os.path.exists(self.plan.path(encoder)):
            names = by_language(encoder) or names
        settings["encoder"], files["encoder"], files["beside"] = [], [], []
        for lang, name in names.items():
            path = str(BUNDLED.get(name, self.plan.path(name)))
            if os.path.exists(path):
                settings["encoder"].append((lang, None))
                files["encoder"].append(path)
                files["beside"] += beside_encoder(path)
            else:
                settings["encoder"].append((lang, name))
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
    if pair is None or Path(encoder).is_dir():
        return []
    return [str(pair[0])]


def keys_of(data: str) -> list[str]:
    """Return the files with the gold senses of a text, which are in the same folder."""
    stem, suffix, _ = Path(data).name.partition(".data.xml")
    if not suffix:
        return []
    return sorted(str(file) for file in Path(data).parent.glob(f"{stem}.gold.key.txt*"))
