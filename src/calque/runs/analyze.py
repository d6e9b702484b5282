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


def analyze(
    how: AnalysisSettings,
    *,
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Finding]:
    """Run the requested analyses, or by default all analyses whose input files are given.

    Each encoder encodes the test text once, with all layers in one pass.

    Args:
        how: settings of the analysis. Word links are computed unless files with links are given.
            With `non_contextual`, retrieval uses only the first occurrence of each word type, as in
            Table 4 of Cao et al. Without `only`, an analysis whose files are missing is skipped
            with a message.

    Raises:
        SettingError: an analysis is unknown, or the files of a requested analysis are missing.
    """
    from calque.analyses.questions import Questions
    from calque.encoders import load_encoder
    from calque.tasks import WordRetrieval

    words = words or Words()
    settings = {
        "forms": how.forms,
        "pairs": how.pairs,
        "projection": how.projection,
        "seed": words.seed,
    }
    only = (
        None if how.only is None else [name.strip() for name in how.only.split(",") if name.strip()]
    )
    chosen, paths = _Chosen(only, settings, say), _by_name(how.encoders or ())
    langs = pairs_of([] if how.test is None else [how.test], how.langs or ())
    if not (paths and how.test and langs):
        raise SettingError(
            "the analyses need encoders, --test FILE and --langs, e.g. --langs en de"
        )
    check_pairs([how.test], langs)
    files: dict[str, Any] = {
        name: [file]
        for name in ("test", "train", "links", "train_links")
        if (file := getattr(how, name))
    }
    (one,) = Inputs("analyze", langs=langs, words=words, say=say, **files).per_test_text()
    task = WordRetrieval.read(one, contextual=not how.non_contextual, bootstrap=how.bootstrap)
    if not len(task.links[0]):
        raise SettingError(f"{task.data} contains no linked words, so nothing can be measured")
    loader = partial(load_encoder, **dict(load or {}))
    findings = _of_vectors(
        paths, Questions(task, _tags(task, how.upos or (), say)), chosen, loader, progress
    )
    order = {name: place for place, name in enumerate(ANALYSES)}
    return sorted(findings, key=lambda finding: order[finding.analysis])


class _Chosen:
    """Selected analyses (by default all) with the values of their options. Analyses that cannot be
    run are reported in messages."""

    def __init__(self, only: Sequence[str] | None, settings: Mapping[str, Any], say: Say):
        for name in only or ():
            if name not in ANALYSES:
                raise SettingError(
                    f"unknown analysis {name!r}, expected one or more of {', '.join(ANALYSES)}"
                )
        self.only, self.settings, self.say = only, settings, say

    def __contains__(self, name: str) -> bool:
        return self.only is None or name in self.only

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function of an analysis, with its options bound as arguments."""
        row = ANALYSES[name]
        taken = {*row.options, *(["seed"] if row.seeded else [])}
        return partial(
            imported(row.target),
            **{key: each for key, each in self.settings.items() if key in taken},
        )

    def of(self, kind: str) -> list[str]:
        return [name for name, row in ANALYSES.items() if row.kind == kind and name in self]

    def lacks(self, name: str, remedy: str = "", *, some: bool = False, **about: str) -> None:
        """Report a skipped analysis: raise an error if the user requested it and `some` is false;
        otherwise, print a message.
        """
        remedy = remedy or ANALYSES[name].lacks.format(**about)
        if self.only is not None and not some:
            raise SettingError(f"{name}: {remedy}")
        self.say(f"{name} skipped: {remedy}")


def _by_name(encoders: Sequence[str]) -> dict[str, str]:
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


# -- encoders
# -------------------------------------------------------------------------------------------------
def _of_vectors(
    paths: Mapping[str, str],
    questions: Questions,
    chosen: _Chosen,
    loader: Callable[[str], Encoder],
    progress: bool,
) -> list[Finding]:
    """Return the findings for all encoders, while keeping only one encoder in memory at a time."""
    from calque.analyses.groups import accuracies

    data = questions.task.data

    def found(analysis: str, findings: Any) -> Any:
        """Return the findings of an analysis; if there are none, report that the analysis was
        skipped.
        """
        if not findings:
            chosen.lacks(analysis, data=data)
        return findings or []

    divisions = {
        analysis: found(analysis, chosen[analysis](questions)) for analysis in chosen.of("division")
    }
    divisions = {analysis: groups for analysis, groups in divisions.items() if groups}
    if "rank" in divisions and questions.task.train is None:
        chosen.say(
            "rank: words are counted only in the test text; give --train for better frequency "
            "estimates"
        )
    comparisons = chosen.of("comparison")
    if len(paths) == 1 and "examples" in comparisons:
        chosen.lacks("examples")
        comparisons.remove("examples")
    findings, views = [], []
    for name, path in paths.items():
        chosen.say(
            f"{name}: {len(questions.corpus):,} sentence pairs, {len(questions.pairs):,} links"
        )
        view, values = _of_encoder(
            name, loader(path), questions, chosen, progress, some=len(paths) > 1
        )
        findings += values
        for analysis, groups in divisions.items():
            findings += accuracies(analysis, questions, view, groups)
        for analysis in chosen.of("measure"):
            findings += found(analysis, chosen[analysis](questions, view))
        if comparisons:
            views.append(view)
    for analysis in comparisons:
        findings += found(analysis, chosen[analysis](questions, views))
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
    layers = encoder.layers
    texts = [questions.sentences(side) for side in ("source", "target")]
    by_layer = [{}, {}]
    if "layers" in chosen and len(layers) > 1:
        by_layer = [encoder.encode_layers(text, layers, progress=progress) for text in texts]
    elif "layers" in chosen:
        chosen.lacks("layers", encoder=name, some=some)
    source, target = (
        known[encoder.layer] if encoder.layer in known else encoder.encode(text, progress=progress)
        for known, text in zip(by_layer, texts, strict=True)
    )
    view = questions.ask(name, source, target, about)
    views = {
        n: view
        if n == encoder.layer
        else questions.ask(name, by_layer[0][n], by_layer[1][n], about, depth=1)
        for n in by_layer[0]
    }
    return view, layer_curve(questions, views)


# -- parts of speech
# --------------------------------------------------------------------------------------------------
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


# -- tables
# --------------------------------------------------------------------------------------------------
def table(findings: Sequence[Finding]) -> str:
    """Format scores as one text table per analysis, with a row for each encoder, metric and
    group.
    """
    blocks = []
    for analysis in dict.fromkeys(finding.analysis for finding in findings):
        rows = [("encoder", "metric", "group", "x", "value", "95% interval", "n", "better")]
        for finding in (finding for finding in findings if finding.analysis == analysis):
            score, items = finding.score, finding.items
            value, low, high = score.shown(2)
            rows.append(
                (
                    finding.encoder or "",
                    score.metric,
                    finding.group or "",
                    "" if finding.x is None else f"{finding.x:,g}",
                    value if items is None else f"{len(items)} items",
                    "" if "nan" in (low, high) else f"{low} – {high}",
                    f"{score.n:,}",
                    ""
                    if items is not None
                    else "lower"
                    if lower_is_better(score.metric)
                    else "higher",
                )
            )
        blocks.append("\n".join([analysis, *columns(rows, range(3, 7))]))
    return "\n\n".join(blocks)
