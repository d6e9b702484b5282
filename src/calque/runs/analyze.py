"""From encoders and files to analyses of their scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.analyses.finding import Finding
from calque.analyses.table import ANALYSES
from calque.corpora.languages import language_of, name_and_path
from calque.errors import InputError, SettingError
from calque.linking import Say, Words
from calque.named import imported

if TYPE_CHECKING:
    from calque.analyses.questions import Questions, View
    from calque.encoders import Encoder

Tags = Mapping[str, tuple[np.ndarray, Sequence[str]]]


@dataclass(frozen=True)
class Options:
    """Settings of the analyses.

    Args:
        contextual: retrieval among all words; False: among the first of each form, as Cao et al.'s Table 4 has it.
        sizes: numbers of sentence pairs of the training text that maps are fitted on.
        map: which map.
        forms: forms that the examples show.
        pairs: word pairs in the picture.
        projection: auto, pca or tsne.
        bootstrap: samples of the intervals.
    """

    contextual: bool = True
    sizes: tuple[int, ...] = ()
    map: str = "rotation"
    forms: int = 8
    pairs: int = 100
    projection: str = "auto"
    bootstrap: int = 1000


def analyze(
    encoders: Sequence[str] = (),
    *,
    test: str | None = None,
    langs: tuple[str, str] | None = None,
    only: Sequence[str] | None = None,
    links: str | None = None,
    train: str | None = None,
    train_links: str | None = None,
    upos: Sequence[str] = (),
    treebank: Sequence[str] = (),
    results: Sequence[str] = (),
    words: Words | None = None,
    load: Mapping[str, Any] | None = None,
    options: Options | None = None,
    progress: bool = False,
    say: Say = lambda line: None,
) -> list[Finding]:
    """All analyses that the files allow, or those that are asked for.

    Each encoder encodes the test text once, all layers in the same pass, and each set of vectors is searched once.

    Args:
        encoders: hub names, folders, `mini` or files of vectors, each perhaps as `NAME=PATH`; the one before alignment first.
        test, langs: parallel text and its languages.
        only: analyses to do, of `ANALYSES`. None: all; those whose files are not given are skipped, with a message.
        links: word links of the test text; made by the aligner, from test and training text together, if None.
        train, train_links: training text of the encoders and its links, to tell seen from unseen word pairs.
        upos: files with parts of speech of the test sentences (CoNLL-U or `word⇥UPOS`), `de=FILE` if the name does not say
            the language.
        treebank: files to train a tagger on instead, on vectors of the first encoder.
        results: files with scores of retrieval and of zero-shot tasks.
        words: how words are found and linked; its limit cuts the test text only: what has been seen stays seen.
        load: keyword arguments of `load_encoder`.
        options: see `Options`.
        progress, say: show bars on standard error; take a line of news.

    Raises:
        SettingError: an analysis that is not known, or that was asked for and lacks what it needs.
    """
    words, options = words or Words(), options or Options()
    for name in only or ():
        if name not in ANALYSES:
            raise SettingError(f"unknown analysis {name!r}, expected some of {', '.join(ANALYSES)}")
    wanted = _Wanted(only, say)
    findings: list[Finding] = []
    if wanted("correlation", bool(results), "give files with retrieval and task scores (--results FILE)"):
        from calque.analyses.correlation import correlation

        findings = correlation(_records(results), seed=words.seed)
        if not findings:
            wanted.lacks(
                "correlation", "no encoder has both retrieval and zero-shot scores of one language in --results"
            )
    if only is not None and set(only) <= {"correlation"}:
        return findings
    named = _named(encoders)
    if not named or test is None or langs is None:
        if only is None and results and not named:
            return findings
        raise SettingError("analyses of vectors need encoders, --test FILE and --langs, e.g. --langs en de")
    questions = _questions(test, langs, links, train, train_links, words, options)
    own = _own(named, questions, upos, treebank, words, wanted, options, load, progress, say)
    order = {name: place for place, name in enumerate(ANALYSES)}
    return sorted([*findings, *own], key=lambda finding: order[finding.analysis])


class _Wanted:
    """Which analyses are to be done, and what is said of those that cannot be."""

    def __init__(self, only: Sequence[str] | None, say: Say):
        self._only, self._say = only, say

    def __call__(self, name: str, possible: bool = True, remedy: str = "", *, some: bool = False) -> bool:
        if self._only is not None and name not in self._only:
            return False
        if not possible:
            self.lacks(name, remedy, some=some)
        return possible

    def lacks(self, name: str, remedy: str, *, some: bool = False) -> None:
        """An error for what was asked for by name; a line for what was not, and where only some encoders lack it."""
        if self._only is not None and name in self._only and not some:
            raise SettingError(f"{name}: {remedy}")
        self._say(f"{name} skipped: {remedy}")


def _named(encoders: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in encoders:
        name, path = name_and_path(item)
        name = name or item
        if name in found:
            raise SettingError(f"two encoders are called {name}: rename one of them, e.g. other={path}")
        found[name] = path
    return found


def _records(files: Sequence[str]) -> list[dict[str, Any]]:
    records = []
    for path in files:
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read ({error})", path=path) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InputError(f"is not JSON ({error})", path=path, line=number) from error
            if not isinstance(record, dict) or "metric" not in record:
                raise InputError(
                    "is not a score: expected a file written by calque evaluate --out", path=path, line=number
                )
            records.append(record)
    return records


def _questions(test, langs, links, train, train_links, words: Words, options: Options) -> Questions:
    from calque.analyses.questions import Questions
    from calque.tasks import WordRetrieval

    if train_links is not None and train is None:
        raise SettingError("--train-links needs --train")
    corpus = words.read(test, langs)
    seen = words.unlimited.read(train, langs) if train else None
    task = WordRetrieval(
        corpus,
        words.open_pairs(links, corpus) if links else None,
        train=seen,
        train_pairs=words.unlimited.open_pairs(train_links, seen) if train_links and seen is not None else None,
        contextual=options.contextual,
        model=words.model,
        symmetrize=words.symmetrize,
        bootstrap=options.bootstrap,
        data=test,
        seed=words.seed,
    )
    if not len(task.links[0]):
        raise SettingError(f"{test}: no words are linked, so there is nothing to measure")
    return Questions(task)


# -- encoder by encoder ------------------------------------------------------------------------------------------------
def _own(named, questions: Questions, upos, treebank, words, wanted: _Wanted, options: Options, load, progress, say):
    from calque.analyses.examples import examples
    from calque.analyses.groups import accuracies, by_pos
    from calque.analyses.points import points
    from calque.encoders import load_encoder

    loader = partial(load_encoder, **dict(load or {}))
    tags = _tags(named, questions, upos, treebank, loader, words.seed, progress, say)
    groups: dict[str, Any] = {}
    if wanted(
        "pos",
        bool(tags),
        "no parts of speech: give them with --upos en=FILE, or train a tagger with --treebank en=FILE",
    ):
        groups["pos"] = by_pos(questions, tags)
    for name, row in ANALYSES.items():
        if row.kind == "division" and wanted(name):
            groups[name] = imported(row.target)(questions)
            if name == "rank" and questions.task.train is None:
                say(
                    "rank: frequencies come from the test text alone, where most words occur once; --train improves them"
                )
    measures: dict[str, Callable[[Questions, View], list[Finding]]] = {
        name: partial(imported(row.target), **({"seed": words.seed} if row.seeded else {}))
        for name, row in ANALYSES.items() if row.kind == "measure" and wanted(name)
    }  # fmt: skip
    compared = wanted("examples", len(named) > 1, "give two encoders, the base encoder first")
    pictured = wanted("points")
    findings, views = [], []
    for name, path in named.items():
        say(f"{name}: {len(questions.corpus):,} sentence pairs, {len(questions.pairs):,} links")
        encoder = loader(path)
        view, more = _seen(name, path, encoder, questions, wanted, options, progress, some=len(named) > 1)
        findings += more
        for analysis, chosen in groups.items():
            findings += accuracies(analysis, questions, view, chosen)
        for analysis, measure in measures.items():
            found = measure(questions, view)
            if not found:
                wanted.lacks(analysis, f"{questions.task.data} has too few words")
            findings += found
        if compared or pictured:
            views.append(view)
    if compared:
        findings += examples(questions, views, forms=options.forms, tags=tags or None)
    if pictured:
        found = points(
            questions, views, n=options.pairs, projection=options.projection, seed=words.seed, tags=tags or None
        )
        if not found:
            wanted.lacks("points", "no linked words that are spelt differently")
        findings += found
    return findings


def _seen(
    name: str, path: str, encoder: Encoder, questions: Questions, wanted: _Wanted, options: Options, progress: bool,
    *, some: bool,
) -> tuple[View, list[Finding]]:  # fmt: skip
    """One encoder's answers, and the analyses that need the encoder itself; `some`: it is one of several."""
    from calque.analyses.curves import headline, layer_curve, size_curve
    from calque.analyses.groups import accuracies, by_subwords
    from calque.encoders.base import TrainableEncoder
    from calque.maps import KINDS

    about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
    layers, own, findings = encoder.layers, encoder.layer, []
    curve = wanted("layers", len(layers) > 1, f"{name} has only one layer", some=some)
    texts = [questions.sentences(side) for side in ("source", "target")]
    if curve:
        found = [encoder.encode_layers(text, layers, progress=progress) for text in texts]
        if own is not None:
            vectors = [by_layer[own] for by_layer in found]
        else:
            vectors = [encoder.encode(text, progress=progress) for text in texts]
        view = questions.ask(name, vectors[0], vectors[1], about)
        known = {} if own is None else {own: view}
        findings += layer_curve(questions, name, found[0], found[1], about=about, known=known)
    else:
        vectors = [encoder.encode(text, progress=progress) for text in texts]
        view = questions.ask(name, vectors[0], vectors[1], about)
    inner = encoder.base or encoder
    splits = isinstance(inner, TrainableEncoder)
    if wanted("subwords", splits, f"{name} has no subwords", some=some) and isinstance(inner, TrainableEncoder):
        counts = {side: inner.split(text).word_lengths for side, text in zip(("source", "target"), texts, strict=True)}
        findings += accuracies("subwords", questions, view, by_subwords(questions, counts))
    trained = _training(path, questions.langs)
    grows = bool(options.sizes) and questions.task.train is not None
    remedy = (
        "give --train and --sizes 100,1000 (numbers of sentence pairs to fit maps on), or encoders made by calque align"
    )
    if wanted("data-size", grows or trained is not None, f"{name}: {remedy}" if some else remedy, some=some):
        if trained is not None:
            method, size, more = trained
            findings += headline(
                "data-size", questions, view, group=method, x=float(size), about={**more, "method": method}
            )
        if grows:
            if options.map not in KINDS:
                raise SettingError(f"unknown map {options.map!r}, expected one of {', '.join(KINDS)}")
            pairs = questions.task.links[1]
            assert pairs is not None
            findings += size_curve(
                questions, view, encoder, pairs, options.sizes, make=KINDS[options.map], progress=progress
            )
    return view, findings


def _training(path: str, langs: tuple[str, str]) -> tuple[str, int, dict[str, Any]] | None:
    """Method, sentence pairs and other counts of an encoder that `calque align` made from text in these languages."""
    file = Path(path) / "calque-run.json"
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        own = [text for text in record.get("texts", ()) if set(text.get("langs", ())) == set(langs)]
        sizes = {name: sum(int(text[name]) for text in own) for name in ("sentence_pairs", "word_pairs")}
        return (str(record["method"]), sizes["sentence_pairs"], sizes) if own and "method" in record else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not written by calque ({type(error).__name__}: {error})", path=file) from error


# -- parts of speech ---------------------------------------------------------------------------------------------------
def _tags(named, questions: Questions, upos, treebank, loader, seed: int, progress: bool, say: Say) -> Tags:
    """By side: from files that have the sentences, or from a tagger trained on a treebank."""
    from calque.analyses.words import tags_for
    from calque.corpora import read_tagged

    found: dict[str, tuple[np.ndarray, Sequence[str]]] = {}
    for item in upos:
        side, lang, path = _side(item, questions, "upos")
        tagged = read_tagged(path, lang=lang)
        codes = tags_for(questions.sentences(side), tagged)
        known = int((codes >= 0).sum())
        if not known:
            raise SettingError(f"--upos {path}: none of its {len(tagged):,} sentences occurs in {questions.task.data}")
        say(f"{path}: parts of speech for {known:,} of {len(codes):,} words in {lang}")
        found[side] = (codes, tagged.tags.names)
    for item in treebank:
        side, lang, path = _side(item, questions, "treebank")
        if side in found:
            raise SettingError(f"both --upos and --treebank are given for {lang}")
        from calque.tasks.datasets import Dataset
        from calque.tasks.tagging import Tagging

        name, where = next(iter(named.items()))
        text = Dataset(Path(path).name, lang, read_tagged(path, lang=lang))
        say(f"{path}: training a tagger on {len(text.data):,} sentences, with the vectors of {name}")
        tagged = Tagging("pos", [text], [text]).tag(
            loader(where), questions.sentences(side), seed=seed, progress=progress
        )
        found[side] = (tagged.tags.codes, tagged.tags.names)
    return found


def _side(item: str, questions: Questions, option: str) -> tuple[str, str, str]:
    lang, path = name_and_path(item)
    lang = lang or language_of(item) or ""
    if lang not in questions.langs:
        said = f"it is in {lang!r}" if lang else "which language is it in?"
        raise SettingError(
            f"--{option} {item}: {said}; expected one of {' and '.join(questions.langs)}, as in {questions.langs[0]}={path}"
        )
    return ("source", "target")[questions.langs.index(lang)], lang, path


# -- shown -------------------------------------------------------------------------------------------------------------
def table(findings: Sequence[Finding]) -> str:
    """Figures as lines of text, a block for each analysis: a row for each encoder, metric and group."""
    blocks = []
    for analysis in dict.fromkeys(finding.analysis for finding in findings):
        mine = [finding for finding in findings if finding.analysis == analysis]
        rows = [("encoder", "metric", "group", "x", "value", "95% interval", "n")]
        for finding in mine:
            score = finding.score
            value, low, high = score.shown(2)
            between = f"{low} – {high}" if "nan" not in (low, high) else ""
            rows.append((
                finding.encoder or "", score.metric, finding.group or "", "" if finding.x is None else f"{finding.x:,g}",
                f"{len(finding.items)} items" if finding.items is not None else value, between, f"{score.n:,}",
            ))  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(widths[i]) if i < 3 else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip()
            for row in rows
        ]
        blocks.append("\n".join([analysis, lines[0], "-" * len(lines[0]), *lines[1:]]))
    return "\n\n".join(blocks)
