"""The demo, which links words, aligns an encoder, and measures the result on the bundled text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.alignment import METHODS as ALL_METHODS
from calque.alignment.base import Run
from calque.alignment.data import LinkedText
from calque.alignment.driver import make_method
from calque.corpora.sample import LANGUAGES, sample_links, sample_text
from calque.distributed.environment import environment
from calque.encoders.folder import RUN_FILE
from calque.errors import SettingError
from calque.input_texts import Say
from calque.progress import bar
from calque.runs.compare import mean_over_tests
from calque.runs.folder import TRAINING, check, writing
from calque.storage import json_text, write_text

if TYPE_CHECKING:
    from calque.analyses.questions import Finding, View
    from calque.encoders import Encoder
    from calque.tasks import Score

#: Methods of the demo with their options. A small text needs more epochs than the default. Nothing
#: is held out, because the demo compares the methods on its test text, including one that gains
#: little.
METHODS: dict[str, dict[str, Any]] = {
    "rotation": {},
    "finetune": {"epochs": 4, "held_out": 0.0},
    "contrastive": {"epochs": 8, "batch": 32, "held_out": 0.0},
}

#: title of the table for each metric, and the function that selects the best score
_SHOWN: dict[str, tuple[str, Callable[..., str]]] = {
    "accuracy.unseen": (
        "Contextual word retrieval by CSLS, word pairs unseen in training (higher is better)",
        max,
    ),
    "form.unseen": (
        "Type-level retrieval: any occurrence of the correct word counts (higher is better)",
        max,
    ),
    "same-form": (
        "English words whose nearest other English word is the same word (higher is better)",
        max,
    ),
    "aer": ("Word alignment, error rate against gold alignments (lower is better)", min),
}


def demo(
    *,
    encoder: str = "mini",
    out: str | Path = "calque-demo",
    langs: Sequence[str] = LANGUAGES,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda line: None,
    then: Callable[[Path], object] = lambda folder: None,
) -> list[dict[str, Any]]:
    """Align an encoder on the sample text by rotation, by Cao's loss and by contrastive training,
    each time in all languages.

    Arguments not listed here are the options of `calque demo`.

    Args:
        out: folder for the text (`text/XX.train.tsv`, `text/XX.test.tsv`), the aligned encoders
            (one folder for each method), `results.jsonl`, `analyses.jsonl` and `calque-run.json`.
            The folder appears only when it is complete; an interrupted demo resumes from
            `.OUT.calque-part`.
        then: function that is called with the temporary folder, to which it can add files, before
            the folder is renamed.

    Returns:
        the lines of `results.jsonl`, as dictionaries with `method`, `training_seed` and the keys of
        `Score.to_dict`.
    """
    from calque.encoders import load_encoder
    from calque.encoders.base import require

    check(out, overwrite=overwrite, holds="a demo")
    unknown = sorted(set(langs) - set(LANGUAGES))
    if unknown or not langs:
        raise SettingError(
            f"languages must be among {', '.join(LANGUAGES)}, got {', '.join(unknown) or 'none'}"
        )
    base = load_encoder(encoder)
    require(base, "measured")
    with writing(out, overwrite=overwrite, holds="a demo") as folder:
        records = _demo(base, encoder, folder, langs, seed, progress, say)
        then(folder)
    return records


def _demo(
    base: Encoder,
    encoder: str,
    folder: Path,
    langs: Sequence[str],
    seed: int,
    progress: bool,
    say: Say,
) -> list[dict[str, Any]]:
    began = time.perf_counter()
    say(f"linking the words of {len(langs)} languages")
    texts = {
        lang: _Text(lang, seed)
        for lang in bar(langs, unit="language", title="link words", show=progress)
    }
    _write(folder / "text", texts)
    records = _records("base", _measure("base", base, texts, progress), None)
    seconds: dict[str, float] = {}
    data = LinkedText(
        tuple(text.train for text in texts.values()), tuple(text.links for text in texts.values())
    )
    n_pairs = sum(map(len, data.corpora))
    for name, options in METHODS.items():
        started = time.perf_counter()
        say(f"{name}: {n_pairs:,} sentence pairs in {len(langs)} languages")
        method_seed = seed if ALL_METHODS[name].trains else None
        if method_seed is not None:
            options = {**options, "seed": method_seed}
        method = make_method(name, "en", options)
        run = Run(folder / TRAINING / name, progress=progress)
        aligned = method.fit(base, data, run).encoder
        aligned.save(folder / name)
        records += _records(name, _measure(name, aligned, texts, progress), method_seed)
        seconds[name] = round(time.perf_counter() - started, 1)
        say(f"{name}: {seconds[name]:.0f} s")
    records += _records("statistical aligner", [text.aligner for text in texts.values()], None)
    results = [json_text(record, ensure_ascii=False) + "\n" for record in records]
    write_text(folder / "results.jsonl", "".join(results))
    findings: list[str] = []
    for text in texts.values():
        findings += [finding.to_json() + "\n" for finding in text.findings(seed)]
    write_text(folder / "analyses.jsonl", "".join(findings))
    languages = "" if tuple(langs) == LANGUAGES else f" --languages {','.join(langs)}"
    record = {
        **environment(),
        "command": f"calque demo --encoder {encoder}{languages} --seed {seed}",
        "encoder": base.name,
        "encoder_fingerprint": base.fingerprint,
        "encoder_precision": base.precision,
        "towards": "en",
        "seed": seed,
        "texts": [
            {
                "path": f"text/{lang}.train.tsv",
                "langs": ["en", lang],
                "sentence_pairs": len(text.train),
                "word_pairs": len(text.links),
            }
            for lang, text in texts.items()
        ],
        "methods": METHODS,
        "seconds": {**seconds, "all": round(time.perf_counter() - began, 1)},
    }
    write_text(folder / RUN_FILE, json_text(record, indent=2, ensure_ascii=False) + "\n")
    return records


def _measure(
    name: str, encoder: Encoder, texts: Mapping[str, _Text], progress: bool
) -> list[Score]:
    """Return the scores of an encoder on all texts."""
    scores: list[Score] = []
    for text in bar(texts.values(), unit="language", title=f"measure {name}", show=progress):
        scores += text.scores(name, encoder)
    # All languages have the same English sentences.
    scores.append(next(iter(texts.values())).english())
    return scores


def _records(
    method: str, scores: Iterable[Score], training_seed: int | None
) -> list[dict[str, Any]]:
    """Return the records of the scores that the demo shows, in the order of its tables."""
    metrics = list(_SHOWN)
    shown = [score for score in scores if score.metric in metrics]
    shown.sort(key=lambda score: metrics.index(score.metric))
    about = {"method": method, "training_seed": training_seed}
    return [{**about, **score.to_dict()} for score in shown]


class _Text:
    """Sample text for one language, its word links, and the retrieval results of every encoder on
    its test part.
    """

    def __init__(self, lang: str, seed: int):
        from calque.analyses.questions import Questions
        from calque.tasks import WordAlignment, WordRetrieval
        from calque.wordalign import align_words

        self.train, self.test = sample_text(lang, "train"), sample_text(lang, "test")
        self.gold = sample_links(lang)
        # The aligner is trained on both training and test text, because the sample is small. It
        # does not use gold links.
        settings = {"symmetrize": "one-to-one", "seed": seed}
        self.links = align_words(self.train, extra=self.test, **settings)
        test_links = align_words(self.test, extra=self.train, **settings)
        # Every third sentence of the test text has gold links.
        gold_sentences = test_links.take(np.arange(1, len(self.test), 3))
        task = WordAlignment(*self.gold, data="sample", seed=seed)
        self.aligner = task.score(gold_sentences)[0]
        retrieval = WordRetrieval(
            self.test, test_links, data="sample", train=self.train, train_pairs=self.links
        )
        self.questions = Questions(retrieval)
        self.views: list[View] = []

    def scores(self, name: str, encoder: Encoder) -> list[Score]:
        """Return the scores of word retrieval and word alignment, and store the retrieval
        results.
        """
        from calque.tasks import WordAlignment

        task, corpus = self.questions.task, self.questions.corpus
        source, target = encoder.encode(corpus.source), encoder.encode(corpus.target)
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        view = self.questions.ask(name, source, target, about)
        self.views.append(view)
        scores = task.evaluate_embeddings(source, target, about=about, retrieved=view.answers)
        return [*scores, WordAlignment(*self.gold, data="sample").evaluate(encoder)[0]]

    def english(self) -> Score:
        """Return the same-language consistency of English words for the encoder that was measured
        last.
        """
        from calque.tasks.consistency import Consistency

        view, task = self.views[-1], Consistency(self.questions.corpus.source, data="sample")
        return task.evaluate_embeddings(view.source, about=view.about)[0]

    def findings(self, seed: int) -> Iterator[Finding]:
        """Return the results of all analyses that need no tags, layers or further text."""
        from calque.analyses.groups import accuracies, by_length, by_rank
        from calque.analyses.space import hubness, language
        from calque.analyses.words import examples, points

        divisions = {"rank": by_rank(self.questions), "length": by_length(self.questions)}
        for analysis, groups in divisions.items():
            for view in self.views:
                yield from accuracies(analysis, self.questions, view, groups)
        for view in self.views:
            yield from hubness(self.questions, view)
            yield from language(self.questions, view, seed=seed)
        yield from examples(self.questions, self.views, forms=2)
        yield from points(self.questions, self.views, pairs=80, projection="pca", seed=seed)


def _write(folder: Path, texts: Mapping[str, _Text]) -> None:
    """Write the text as files, for commands such as `calque align demo/text/de.train.tsv --langs en
    de …`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for lang, text in texts.items():
        for part, corpus in (("train", text.train), ("test", text.test)):
            lines = []
            for source, target in corpus:
                lines.append(f"{' '.join(source.words)}\t{' '.join(target.words)}\n")
            (folder / f"{lang}.{part}.tsv").write_text("".join(lines), encoding="utf-8")


def table(records: Sequence[dict[str, Any]]) -> str:
    """Format the scores (%) of every method and language, in one table for each metric in
    `_SHOWN`.
    """
    return "\n\n".join(_block(metric, records) for metric in _SHOWN)


def _block(metric: str, records: Sequence[dict[str, Any]]) -> str:
    """Format the scores of one metric; an asterisk marks the method with the best mean."""
    title, best = _SHOWN[metric]
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record["metric"] == metric:
            by_method.setdefault(record["method"], []).append(record)
    langs = [record["languages"][-1] for record in next(iter(by_method.values()))]
    has_mean = len(langs) > 1
    means = {method: mean_over_tests(scores) for method, scores in by_method.items()}
    best_method = best(means, key=lambda method: means[method][0])
    header = f"{'':20}" + "".join(f"{lang:>7}" for lang in langs)
    if has_mean:
        header += "   mean"
    lines = [title, f"{header}  95% interval"]
    for method, (mean, low, high) in means.items():
        values = [record["value"] for record in by_method[method]]
        if has_mean:
            values.append(mean)
        cells = "".join(f"{100 * value:7.1f}" for value in values)
        line = f"{method:20}{cells}  {100 * low:.1f} – {100 * high:.1f}"
        lines.append(f"{line} *" if method == best_method else line)
    return "\n".join(lines)
