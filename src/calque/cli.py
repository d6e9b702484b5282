"""The command line: verbs, and nothing that a library call could not do.

Results go to standard output, progress and news to standard error. A mistake of the user's is one line and exit code 2.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from calque import __version__
from calque.errors import CalqueError, SettingError

app = typer.Typer(
    name="calque",
    help="Make a multilingual encoder speak one language inside: measure, align and give back its word vectors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help comes up four times as fast
)

Langs = Annotated[
    list[str], typer.Option("--langs", metavar="SOURCE TARGET", help="The two languages of the text, e.g. en de.")
]
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Words are separated by white space; otherwise calque splits them.")
]
Symmetrize = Annotated[
    str,
    typer.Option(
        help="How the two directions are joined: intersection, union, grow-diag, grow-diag-final, "
        "grow-diag-final-and, one-to-one."
    ),
]
Model = Annotated[str, typer.Option("--model", help="Word aligner: auto, fast-align, hmm or gibbs (most accurate).")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first so many sentence pairs of each text.")]
Pooling = Annotated[str | None, typer.Option(help="A word's vector from its subwords: last, first or mean.")]
MaxLength = Annotated[int | None, typer.Option(min=3, help="Most subwords of a sentence; default: the model's limit.")]
Precision = Annotated[str, typer.Option(help="Training: auto, float32 or bfloat16.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no news on standard error.")]


def _version(value: bool) -> None:
    if value:
        print(f"calque {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


@app.command()
def words(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Parallel text: TSV, a ||| b, Moses, TMX, PO, …")],
    langs: Langs,
    out: Annotated[Path, typer.Option(help="Pharaoh file to write: one line i-j … for each sentence pair.")],
    model: Model = "auto",
    symmetrize: Symmetrize = "intersection",
    pretokenized: Pretokenized = False,
    extra: Annotated[
        list[str] | None, typer.Option(help="More text in the same languages to learn from; not in the output.")
    ] = None,
    posteriors: Annotated[bool, typer.Option("--posteriors", help="Write i-j:p with each link's probability.")] = False,
    tables: Annotated[Path | None, typer.Option(help="Also save the trained aligner here, for new text.")] = None,
    use: Annotated[Path | None, typer.Option(help="Link with an aligner saved by --tables; trains nothing.")] = None,
    seed: Seed = 0,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Link the words of parallel text that translate each other."""
    from calque.runs.texts import Words
    from calque.runs.words import link_words

    settings = Words(model=model, symmetrize=symmetrize, pretokenized=pretokenized, seed=seed, limit=limit)
    say = _say(quiet)
    pairs = link_words(
        train, langs=_pairs(langs, 1)[0], out=out, words=settings, extra=extra or [], posteriors=posteriors,
        tables=tables, use=use, progress=not quiet, say=say,
    )  # fmt: skip
    say(f"{len(pairs):,} links for {pairs.n_sentences:,} sentence pairs in {out}")


@app.command()
def align(
    train: Annotated[list[str], typer.Argument(metavar="TRAIN...", help="Parallel texts, one or several.")],
    langs: Langs,
    encoder: Annotated[str, typer.Option(help="Hub name, folder, or mini (comes with calque).")],
    towards: Annotated[str, typer.Option(help="The language that the others move towards.")],
    out: Annotated[Path, typer.Option(help="Folder for the aligned encoder.")],
    method: Annotated[
        str,
        typer.Option(help="rotation, normalized-rotation, sentence-rotation, linear, finetune or contrastive."),
    ] = "contrastive",
    links: Annotated[
        list[str] | None, typer.Option(help="Pharaoh file with the word links; default: the aligner of calque words.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Hidden layer of the word vectors: 0 is the embeddings, -1 the last.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers that the method works on, e.g. -4,-3,-2,-1; default: --layer.")
    ] = None,
    pooling: Pooling = None,
    combine: Annotated[str, typer.Option(help="Maps: sum, mean or concat of --layers, or last of them.")] = "last",
    learning_rate: Annotated[float | None, typer.Option(help="Training: highest learning rate.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Training: passes over the longest text.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Training: sentence pairs of a language in an update.")
    ] = None,
    accumulate: Annotated[int, typer.Option(min=1, help="Training: parts of an update, to save memory.")] = 1,
    temperature: Annotated[float | None, typer.Option(help="contrastive: temperature.")] = None,
    weight: Annotated[float | None, typer.Option(help="Training: weight of staying near the encoder.")] = None,
    freeze: Annotated[int | None, typer.Option(help="Training: keep the embeddings and so many layers fixed.")] = None,
    reduction: Annotated[str | None, typer.Option(help="finetune: sum (paper) or mean (code).")] = None,
    target: Annotated[str | None, typer.Option(help="finetune: live (paper) or frozen (code) target words.")] = None,
    precision: Precision = "auto",
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Align an encoder with parallel text and write it to a folder that transformers loads."""
    from calque.runs.align import MAPS, TUNERS
    from calque.runs.align import align as run
    from calque.runs.texts import Words

    if method not in MAPS + TUNERS:
        raise SettingError(f"--method {method} is not known, expected one of {', '.join(MAPS + TUNERS)}")
    trained: dict[str, Any] = {
        "learning_rate": learning_rate, "epochs": epochs, "batch": batch, "temperature": temperature,
        "weight": weight, "freeze": freeze, "reduction": reduction, "target": target,
    }  # fmt: skip
    given = {name: value for name, value in trained.items() if value is not None}
    options: dict[str, Any] = {"layers": _numbers(layers)}
    if method in MAPS:
        if given:
            raise SettingError(f"--{next(iter(given)).replace('_', '-')} is for training, and {method} is a map")
        options["combine"] = combine
    else:
        wrong = {"finetune": ("temperature",), "contrastive": ("reduction", "target")}[method]
        for name in wrong:
            if name in given:
                raise SettingError(f"--{name} is not an option of --method {method}")
        options |= given | {"accumulate": accumulate, "precision": precision, "seed": seed}
    say = _say(quiet)
    result = run(
        train, langs=_pairs(langs, len(train)), encoder=encoder, method=method, towards=towards, out=out,
        links=links or [], words=Words(model, symmetrize, pretokenized, seed, limit),
        load=_loading(layer, pooling, max_length), options=options, overwrite=overwrite, progress=not quiet, say=say,
    )  # fmt: skip
    seconds = result.record["seconds"]
    say(f"written to {result.folder} in {seconds['method']:.0f} s, after {seconds['words']:.0f} s of linking words")


@app.command()
def evaluate(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini, or vectors.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="retrieval or word-alignment.")],
    test: Annotated[str, typer.Option(help="Parallel text to test on.")],
    langs: Langs,
    links: Annotated[
        str | None, typer.Option(help="Its word links (gold for word-alignment; default there: the third column).")
    ] = None,
    train: Annotated[str | None, typer.Option(help="retrieval: training text, to tell seen pairs.")] = None,
    train_links: Annotated[str | None, typer.Option(help="retrieval: word links of --train.")] = None,
    candidates: Annotated[str, typer.Option(help="retrieval: all words, or linked ones only.")] = "all",
    similarity: Annotated[str, typer.Option(help="retrieval: csls or cosine.")] = "csls",
    non_contextual: Annotated[
        bool, typer.Option("--non-contextual", help="retrieval: only the first occurrence of each word type.")
    ] = False,
    extract: Annotated[str, typer.Option(help="word-alignment: mutual, iterative, softmax or transport.")] = "mutual",
    layer: Annotated[int | None, typer.Option(help="Hidden layer; default: as the folder says, or -1.")] = None,
    pooling: Pooling = None,
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Annotated[
        bool | None,
        typer.Option("--pretokenized/--tokenize", help="Words are separated by white space; so for word-alignment."),
    ] = None,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    record: Annotated[bool, typer.Option("--record", help="Add the scores to the model card in ENCODER.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure an encoder: contextual word retrieval, or word alignment against gold links."""
    from calque.runs.evaluate import evaluate as run
    from calque.runs.evaluate import table
    from calque.runs.texts import Words

    if pretokenized is None:
        pretokenized = task == "word-alignment"  # gold links count the words of the text as it stands
    scores = run(
        encoder, task, test=test, langs=_pairs(langs, 1)[0], links=links, train=train, train_links=train_links,
        words=Words(model, symmetrize, pretokenized, seed, limit), load=_loading(layer, pooling, max_length),
        options={"candidates": candidates, "similarity": similarity, "contextual": not non_contextual,
                 "method": extract}, progress=not quiet, say=_say(quiet),
    )  # fmt: skip
    if record:
        from calque.runs.card import add_scores

        add_scores(Path(encoder), [score.to_dict() for score in scores])
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))


@app.command()
def encode(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini, or vectors.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence a line; .gz and .zst too.")],
    lang: Annotated[str, typer.Option(help="Its language.")],
    out: Annotated[Path, typer.Option(help="Safetensors file: data [words, dim] and offsets [sentences + 1].")],
    layer: Annotated[int | None, typer.Option(help="Hidden layer; default: as the folder says, or -1.")] = None,
    pooling: Pooling = None,
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Write a vector for every word of a text; a stopped run continues."""
    from calque.corpora import read_sentences
    from calque.encoders import load_encoder

    sentences = read_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit)
    loaded = load_encoder(encoder, **_loading(layer, pooling, max_length))
    embeddings = loaded.encode(sentences, progress=not quiet, out=out)
    _say(quiet)(f"{embeddings.n_words:,} words of {len(embeddings):,} sentences × {embeddings.dim} in {out}")


@app.command()
def pretrain(
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt.gz …")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder; a stopped run continues from there.")],
    layers: Annotated[int, typer.Option(min=1, help="Hidden layers.")] = 6,
    dim: Annotated[int, typer.Option(min=2, help="Hidden size.")] = 128,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads; default: of 64 dimensions.")] = None,
    vocabulary: Annotated[int, typer.Option(min=100, help="Subwords, where no --tokenizer is given.")] = 16_000,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder with a tokenizer to use.")] = None,
    positions: Annotated[int, typer.Option(min=8, help="Longest text that the encoder takes, in subwords.")] = 256,
    length: Annotated[int, typer.Option(min=8, help="Subwords of a training block.")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="Blocks in an update.")] = 64,
    updates: Annotated[int, typer.Option(min=1, help="How many.")] = 10_000,
    learning_rate: Annotated[float | None, typer.Option(help="Its highest value.")] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="1 draws languages as they are, 0 all alike often.")] = 0.5,
    precision: Precision = "auto",
    half: Annotated[bool, typer.Option("--half", help="Write the weights in float16.")] = False,
    pretokenized: Pretokenized = False,
    checkpoint_every: Annotated[int, typer.Option(min=0, help="Updates between checkpoints.")] = 200,
    seed: Seed = 0,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder from nothing by masked language modelling."""
    from calque.runs.pretrain import pretrain as run

    say = _say(quiet)
    options: dict[str, Any] = {
        "layers": layers, "dim": dim, "heads": heads, "positions": positions, "length": length, "batch": batch,
        "updates": updates, "learning_rate": learning_rate, "alpha": alpha, "precision": precision, "seed": seed,
    }  # fmt: skip
    record = run(
        texts, out=out, vocabulary=vocabulary, tokenizer=tokenizer, options=options, half=half,
        pretokenized=pretokenized, limit=limit, overwrite=overwrite, checkpoint_every=checkpoint_every,
        progress=not quiet, say=say,
    )  # fmt: skip
    say(f"written to {out} after {record['updates']:,} updates; loss {record['last_loss']:.3f}")


@app.command()
def perplexity(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Hub name or folder of a masked language model.")],
    texts: Annotated[list[str], typer.Argument(metavar="LANG=TEXT...", help="Plain text by language: en=en.txt …")],
    share: Annotated[float, typer.Option(help="Of the words to hide.")] = 0.15,
    pretokenized: Pretokenized = False,
    seed: Seed = 0,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure how well a masked language model guesses hidden words."""
    from calque.runs.evaluate import table
    from calque.runs.perplexity import perplexity as run

    scores = run(
        encoder, texts, share=share, pretokenized=pretokenized, limit=limit, seed=seed, say=_say(quiet)
    )  # fmt: skip
    if as_json:
        print(json.dumps({**scores[0].to_dict(), "scores": [score.to_dict() for score in scores]}, default=str))
    else:
        print(table(scores))


@app.command()
def demo(
    encoder: Annotated[str, typer.Option(help="Hub name, folder, or mini (comes with calque).")] = "mini",
    out: Annotated[Path, typer.Option(help="Folder for the text, the aligned encoders and the results.")] = Path(
        "calque-demo"
    ),
    languages: Annotated[str, typer.Option(help="Languages beside English, with commas between.")] = "",
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run the main job on text that comes with calque, by every method, in a few minutes."""
    from calque.corpora.sample import LANGUAGES
    from calque.runs.demo import demo as run
    from calque.runs.demo import table

    chosen = languages.replace(",", " ").split() or list(LANGUAGES)
    rows = run(
        encoder=encoder, out=out, langs=chosen, seed=seed, overwrite=overwrite, progress=not quiet, say=_say(quiet)
    )
    print(table(rows))
    _say(quiet)(f"the aligned encoders and all figures are in {out}")


# -- from words on the command line to arguments ---------------------------------------------------------------------
def _pairs(langs: Sequence[str], n: int) -> list[tuple[str, str]]:
    """The flat list that `_spread` makes of every `--langs A B`, in twos."""
    found = [(a, b) for a, b in zip(langs[::2], langs[1::2], strict=True)]
    if len(found) not in (1, n):
        raise SettingError(f"{len(found)} pairs of --langs for {n} text(s): give one pair for each, or one for all")
    return found


def _loading(layer: int | None, pooling: str | None, max_length: int | None) -> dict[str, Any]:
    given = {"layer": layer, "pooling": pooling, "max_length": max_length}
    return {name: value for name, value in given.items() if value is not None}


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise SettingError(f"--layers {text}: expected whole numbers with commas between, e.g. -4,-3,-2,-1") from None


def _say(quiet: bool):
    return (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))


def _spread(arguments: Sequence[str]) -> list[str]:
    """`--langs en de` → `--langs en --langs de`: the parser has no repeatable option of two values."""
    spread, rest = [], list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return [*spread, argument, *rest]
        if argument != "--langs":
            spread.append(argument)
            continue
        values = rest[:2]
        if len(values) < 2 or any(value.startswith("-") for value in values):
            raise SettingError("--langs takes two languages, e.g. --langs en de")
        del rest[:2]
        for value in values:
            spread += ["--langs", value]
    return spread


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Exit codes: 0, 2 for a mistake of the user's, 130 when interrupted."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.showwarning = lambda message, *_, **__: print(f"calque: {message}", file=sys.stderr)
    code: Any = 0
    try:
        code = app(args=_spread(sys.argv[1:] if arguments is None else arguments), standalone_mode=False)
    except CalqueError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        said = getattr(error, "format_message", None)
        if said is not None:  # the parser's own complaints: a missing option, a value of the wrong type
            _fail(said() or "no command given: calque --help lists them")
        if type(error).__name__ == "Abort":
            sys.exit(130)
        if isinstance(error, OSError) and error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}")
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    print(f"calque: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
