"""Alignment error rates of calque's statistical aligners, and of eflomal if it is installed, on test sets with gold links.

    python -m benchmarks.aligners align/xlwa.dev.en-hu.tsv en hu
    python -m benchmarks.aligners align/xlwa.dev.en-es.tsv en es --extra parallel/train.en-es.tsv.gz --pairs 10000

Each line of a test set has a source sentence, a target sentence and gold links, separated by tabs; both sentences are tokenised.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean

from calque.corpora import gold_links, read_parallel
from calque.pairs import WordPairs
from calque.tasks.alignment import score_links
from calque.text import ParallelCorpus
from calque.wordalign import WordAligner, symmetrize

METHODS = ("intersection", "grow-diag-final-and")
MODELS = ("fast-align", "hmm", "gibbs")

#: function that returns the links of a corpus for a symmetrisation method
Align = Callable[[str], WordPairs]


def error_rate(links: WordPairs, gold: WordPairs) -> float:
    """Return the alignment error rate in per cent."""
    scores = score_links(links, gold, bootstrap=0)
    return 100 * next(score.value for score in scores if score.metric == "aer")


def calque_aligner(
    corpus: ParallelCorpus, extra: ParallelCorpus | None, model: str, seed: int
) -> Align:
    aligner = WordAligner.train(corpus, extra=extra, model=model, seed=seed)
    return lambda method: aligner.align(corpus, symmetrize=method)


def eflomal_aligner(corpus: ParallelCorpus, extra: ParallelCorpus | None, seed: int) -> Align:
    """Align with eflomal's default settings. eflomal takes no seed, so `seed` only counts the
    runs.
    """
    import eflomal  # pyright: ignore[reportMissingImports]

    both = corpus if extra is None else corpus + extra
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("forward", "backward")]
        lines = [
            [" ".join(sentence.words) + "\n" for sentence in side]
            for side in (both.source, both.target)
        ]
        forward, backward = map(str, files)
        eflomal.Aligner().align(*lines, links_filename_fwd=forward, links_filename_rev=backward)
        links = [WordPairs.open(file).slice(0, len(corpus)) for file in files]
    return lambda method: symmetrize(links[0], links[1], method)


def rows(
    corpus: ParallelCorpus, extra: ParallelCorpus | None, models: Iterable[str], runs: int
) -> Iterable[tuple[str, list[Align]]]:
    """Yield the name of each aligner and one alignment per training run."""
    for model in models:
        seeds = range(runs if model == "gibbs" else 1)  # the other models are deterministic
        yield f"calque, {model}", [calque_aligner(corpus, extra, model, seed) for seed in seeds]
    try:
        yield "eflomal", [eflomal_aligner(corpus, extra, seed) for seed in range(runs)]
    except ImportError:
        print("eflomal is not installed (pip install eflomal)")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("test", help="test set: source⇥target⇥links")
    parser.add_argument("langs", nargs=2, metavar="LANG", help="languages of the test set")
    parser.add_argument("--extra", help="parallel text that is added to the training text")
    parser.add_argument(
        "--pairs",
        type=int,
        default=10_000,
        help="number of sentence pairs of --extra (default: 10,000)",
    )
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs of eflomal and of gibbs (seeds 0, 1 …)"
    )
    options = parser.parse_args(arguments)
    langs = tuple(options.langs)
    corpus = read_parallel(options.test, langs=langs, pretokenized=True)
    extra = None
    if options.extra:
        extra = read_parallel(options.extra, langs=langs, on_error="skip", limit=options.pairs)
    gold = gold_links(
        corpus, check=False
    )  # a link to a word that does not exist counts as not found
    n_extra = 0 if extra is None else len(extra)
    print(
        f"{Path(options.test).name}: {len(corpus):,} sentence pairs, {n_extra:,} additional pairs"
    )
    for name, alignments in rows(corpus, extra, options.models, options.runs):
        for method in METHODS:
            rates = [error_rate(align(method), gold) for align in alignments]
            shown = ", ".join(f"{rate:.1f}" for rate in rates)
            print(f"{name:20} {method:20} {mean(rates):5.1f}   ({shown})", flush=True)


if __name__ == "__main__":
    main()
