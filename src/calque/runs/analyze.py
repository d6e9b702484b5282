"""Analyse what the scores of an encoder depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.analyses.questions import Finding
from calque.analyses.table import ANALYSES
from calque.corpora.languages import language_of, name_and_path
from calque.errors import SettingError
from calque.input_texts import Say, Words, check_pairs
from calque.named import imported
from calque.runs.compare import lower_is_better
from calque.runs.score_table import columns
from calque.runs.settings import AnalysisSettings, pairs_of
from calque.tasks.inputs import Inputs

if TYPE_CHECKING:
    from calque.analyses.questions import Questions, View
    from calque.encoders import Encoder
    from calque.tasks import WordRetrieval
    from calque.vectors import Embeddings


def analyze(
    settings: AnalysisSettings,
    *,
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Finding]:
    """Run the requested analyses, or by default all analyses whose input files are given.

    Each encoder encodes the test text once, with all layers in one pass.

    Args:
        settings: settings of the analysis. Word links are computed unless files with links are
            given. With `non_contextual`, retrieval uses only the first occurrence of each word
            type, as in Table 4 of Cao et al. Without `only`, an analysis whose files are missing is
            skipped with a message.

    Raises:
        SettingError: an analysis is unknown, or the files of a requested analysis are missing.
    """
    from calque.analyses.questions import Questions
    from calque.encoders import load_encoder

    words = words or Words()
    only = None
    if settings.only is not None:
        names = [name.strip() for name in settings.only.split(",")]
        only = [name for name in names if name]
    options = {
        "forms": settings.forms,
        "pairs": settings.pairs,
        "projection": settings.projection,
        "seed": words.seed,
    }
    chosen, paths = _Chosen(only, options, say), _by_name(settings.encoders or ())
    task = _task(settings, bool(paths), words, say)
    loader = partial(load_encoder, **dict(load or {}))
    questions = Questions(task, _tags(task, settings.upos or (), say))
    findings = _of_vectors(paths, questions, chosen, loader, progress)
    order = {name: place for place, name in enumerate(ANALYSES)}
    return sorted(findings, key=lambda finding: order[finding.analysis])


def _task(settings: AnalysisSettings, has_encoders: bool, words: Words, say: Say) -> WordRetrieval:
    """Return word retrieval in the test text, on which all analyses are based."""
    from calque.tasks import WordRetrieval

    langs = pairs_of([] if settings.test is None else [settings.test], settings.langs or ())
    if not (has_encoders and settings.test and langs):
        raise SettingError(
            "the analyses need encoders, --test FILE and --langs, e.g. --langs en de"
        )
    check_pairs([settings.test], langs)
    files: dict[str, Any] = {}
    for name in ("test", "train", "links", "train_links"):
        if file := getattr(settings, name):
            files[name] = [file]
    (inputs,) = Inputs("analyze", langs=langs, words=words, say=say, **files).per_test_text()
    task = WordRetrieval.read(
        inputs, contextual=not settings.non_contextual, bootstrap=settings.bootstrap
    )
    if not len(task.links[0]):
        raise SettingError(f"{task.data} contains no linked words, so nothing can be measured")
    return task


class _Chosen:
    """Selected analyses (by default all) with the values of their options. Analyses that cannot be
    run are reported in messages."""

    def __init__(self, only: Sequence[str] | None, options: Mapping[str, Any], say: Say):
        for name in only or ():
            if name not in ANALYSES:
                raise SettingError(
                    f"unknown analysis {name!r}, expected one or more of {', '.join(ANALYSES)}"
                )
        self.only, self.options, self.say = only, options, say

    def __contains__(self, name: str) -> bool:
        return self.only is None or name in self.only

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function of an analysis, with its options bound as arguments."""
        row = ANALYSES[name]
        names = {*row.options, "seed"} if row.seeded else {*row.options}
        options = {key: value for key, value in self.options.items() if key in names}
        return partial(imported(row.target), **options)

    def names(self, kind: str) -> list[str]:
        """Return the names of the selected analyses of a kind."""
        return [name for name, row in ANALYSES.items() if row.kind == kind and name in self]

    def skip(self, name: str, remedy: str = "", *, some: bool = False, **about: str) -> None:
        """Report a skipped analysis: raise an error if the user requested it and `some` is false;
        otherwise, print a message.
        """
        remedy = remedy or ANALYSES[name].lacks.format(**about)
        if self.only is not None and not some:
            raise SettingError(f"{name}: {remedy}")
        self.say(f"{name} skipped: {remedy}")


def _by_name(encoders: Sequence[str]) -> dict[str, str]:
    """Return the paths of encoders by their names, which are given as `NAME=PATH` or are the
    paths.
    """
    paths: dict[str, str] = {}
    for item in encoders:
        name, path = name_and_path(item)
        name = name or item
        if name in paths:
            raise SettingError(
                f"encoders must have different names, got {name} twice; rename one, e.g. "
                f"other={path}"
            )
        paths[name] = path
    return paths


# -- encoders --------------------------------------------------------------------------------------
def _of_vectors(
    paths: Mapping[str, str],
    questions: Questions,
    chosen: _Chosen,
    loader: Callable[[str], Encoder],
    progress: bool,
) -> list[Finding]:
    """Return the findings for all encoders, while keeping only one encoder in memory at a time."""
    from calque.analyses.groups import accuracies

    def run(analysis: str, *views: View | Sequence[View]) -> Any:
        """Run an analysis, and report an analysis without results as skipped."""
        results = chosen[analysis](questions, *views)
        if not results:
            chosen.skip(analysis, data=questions.task.data)
        return results or []

    divisions = {}
    for analysis in chosen.names("division"):
        if groups := run(analysis):
            divisions[analysis] = groups
    if "rank" in divisions and questions.task.train is None:
        chosen.say(
            "rank: words are counted only in the test text; give --train for better frequency "
            "estimates"
        )
    comparisons = chosen.names("comparison")
    if len(paths) == 1 and "examples" in comparisons:
        chosen.skip("examples")
        comparisons.remove("examples")
    findings: list[Finding] = []
    views: list[View] = []
    for name, path in paths.items():
        chosen.say(
            f"{name}: {len(questions.corpus):,} sentence pairs, {len(questions.pairs):,} links"
        )
        view, curve = _of_encoder(
            name, loader(path), questions, chosen, progress, some=len(paths) > 1
        )
        findings += curve
        for analysis, groups in divisions.items():
            findings += accuracies(analysis, questions, view, groups)
        for analysis in chosen.names("measure"):
            findings += run(analysis, view)
        if comparisons:  # otherwise, the vectors are not kept
            views.append(view)
    for analysis in comparisons:
        findings += run(analysis, views)
    return findings


def _of_encoder(
    name: str,
    encoder: Encoder,
    questions: Questions,
    chosen: _Chosen,
    progress: bool,
    *,
    some: bool,
) -> tuple[View, list[Finding]]:
    """Return the retrieval results of one encoder and its accuracy by layer; `some` is true if
    there are several encoders.
    """
    from calque.analyses.groups import layer_curve
    from calque.encoders.base import require

    require(encoder, "measured")
    about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
    sides = [questions.sentences(side) for side in ("source", "target")]
    by_layer: list[dict[int, Embeddings]] = [{}, {}]  # vectors of the two sides
    if "layers" in chosen and len(encoder.layers) > 1:
        by_layer = [
            encoder.encode_layers(text, encoder.layers, progress=progress) for text in sides
        ]
    elif "layers" in chosen:
        chosen.skip("layers", encoder=name, some=some)
    vectors = []
    for layers, text in zip(by_layer, sides, strict=True):
        if encoder.layer in layers:
            vectors.append(layers[encoder.layer])
        else:
            vectors.append(encoder.encode(text, progress=progress))
    view = questions.ask(name, vectors[0], vectors[1], about)
    views = {}
    for layer in by_layer[0]:
        if layer == encoder.layer:
            views[layer] = view
        else:
            source, target = by_layer[0][layer], by_layer[1][layer]
            views[layer] = questions.ask(name, source, target, about, depth=1)
    return view, layer_curve(questions, views)


# -- parts of speech -------------------------------------------------------------------------------
def _tags(
    task: WordRetrieval, upos: Sequence[str], say: Say
) -> dict[str, tuple[np.ndarray, Sequence[str]]]:
    """Return the part-of-speech tags of the source and target words, read from files that contain
    the test sentences.
    """
    from calque.analyses.questions import SIDES, tags_for
    from calque.corpora import read_tagged

    tags: dict[str, tuple[np.ndarray, Sequence[str]]] = {}
    for item in upos:
        lang, path = name_and_path(item)
        lang, langs = lang or language_of(item) or "", task.corpus.langs
        if lang not in langs:
            fact = f"the language is {lang!r}" if lang else "the language is unknown"
            raise SettingError(
                f"--upos {item}: {fact}; expected {' or '.join(langs)}, e.g. {langs[0]}={path}"
            )
        side = SIDES[langs.index(lang)]
        tagged = read_tagged(path, lang=lang)
        codes = tags_for(getattr(task.corpus, side), tagged)
        known = int((codes >= 0).sum())
        if not known:
            raise SettingError(
                f"--upos {path}: none of the {len(tagged):,} sentences occurs in {task.data}"
            )
        say(f"{path}: parts of speech for {known:,} of {len(codes):,} words in {lang}")
        tags[side] = (codes, tagged.tags.names)
    return tags


# -- tables ----------------------------------------------------------------------------------------
def table(findings: Sequence[Finding]) -> str:
    """Format scores as one text table per analysis, with a row for each encoder, metric and
    group.
    """
    by_analysis: dict[str, list[Finding]] = {}
    for finding in findings:
        by_analysis.setdefault(finding.analysis, []).append(finding)
    blocks = []
    for analysis, of_analysis in by_analysis.items():
        header = ("encoder", "metric", "group", "x", "value", "95% interval", "n", "better")
        rows = [header, *(_row(finding) for finding in of_analysis)]
        blocks.append("\n".join([analysis, *columns(rows, range(3, 7))]))
    return "\n\n".join(blocks)


def _row(finding: Finding) -> tuple[str, ...]:
    score = finding.score
    value, low, high = score.shown(2)
    better = "lower" if lower_is_better(score.metric) else "higher"
    if finding.items is not None:  # examples and points have items instead of a score
        value, better = f"{len(finding.items)} items", ""
    return (
        finding.encoder or "",
        score.metric,
        finding.group or "",
        "" if finding.x is None else f"{finding.x:,g}",
        value,
        "" if "nan" in (low, high) else f"{low} – {high}",
        f"{score.n:,}",
        better,
    )
