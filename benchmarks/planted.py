"""Plant senses, translations and key points in a text, and score how well a model finds them.

python -m benchmarks.planted make senses TEXT --out DIR [--joined 2 2 --any --pseudo 30 --test 8000 --seed 22]
calque pretrain en=DIR/train.txt --pretokenized … --out FOLDER
calque senses FOLDER --text DIR/test.txt --pretokenized --out FILE
python -m benchmarks.planted score senses DIR FILE

python -m benchmarks.planted make translations TEXT --out DIR
calque pretrain aa=DIR/train.aa.txt bb=DIR/train.bb.txt --pretokenized \\
    --dictionary aa-bb=DIR/dictionary.tsv … --out FOLDER
python -m benchmarks.planted score translations DIR --encoder FOLDER

python -m benchmarks.planted make key-points --out DIR
python -m calque --trust-code align --method clcr --encoder aa=DIR/aa,bb=DIR/bb DIR/train.tsv --pretokenized --langs aa bb \
    --towards aa --out FOLDER
python -m benchmarks.planted score key-points DIR FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import v_measure_score

from benchmarks.planted_key_points import score_world, write_world
from benchmarks.planted_senses import plant, replace, score_found, supervised
from benchmarks.planted_translations import RARE, rename, score_retrieval
from calque.corpora import read_sentences
from calque.encoders import load_encoder
from calque.errors import CalqueError, InputError
from calque.text import Sentences

LANGS = ("aa", "bb")


def read_text(path: Path, *, lang: str, lengths: tuple[int, int], most: int) -> list[list[str]]:
    """Return up to `most` distinct lower-cased sentences of `lengths[0]` to `lengths[1]` words,
    evenly spaced in the file.
    """
    lines = (
        tuple(word.lower() for word in sentence.words)
        for sentence in read_sentences(path, lang=lang)
    )
    fitting = list(dict.fromkeys(line for line in lines if lengths[0] <= len(line) <= lengths[1]))
    return [list(fitting[k]) for k in _evenly(len(fitting), most)]


def _evenly(n: int, most: int) -> list[int]:
    return np.linspace(0, n - 1, min(n, most)).round().astype(int).tolist()


def write_lines(path: Path, lines: Iterable[Sequence[str]]) -> None:
    path.write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")


def make_senses(given: argparse.Namespace) -> None:
    text = read_text(
        given.text, lang=given.lang, lengths=given.lengths, most=given.sentences + given.test
    )
    held_out = set(_evenly(len(text), given.test))
    train = [line for k, line in enumerate(text) if k not in held_out]
    test = [text[k] for k in sorted(held_out)]
    planted = plant(
        train,
        words=given.pseudo,
        per_pseudo=given.joined,
        at_least=given.at_least,
        unlike=given.unlike,
        seed=given.seed,
    )
    parts = {"train": (planted.sentences, planted.truth), "test": replace(test, planted.members)}
    given.out.mkdir(parents=True, exist_ok=True)
    for name, (sentences, truth) in parts.items():
        write_lines(given.out / f"{name}.txt", sentences)
        write_lines(given.out / f"{name}.truth.txt", truth)
    about = {
        "members": planted.members,
        "controls": planted.controls,
        "seed": given.seed,
        "text": given.text.name,
    }
    about["lang"] = given.lang
    about["sentences"] = {name: len(sentences) for name, (sentences, _) in parts.items()}
    for sides in ("both", "left", "right"):
        told = [
            supervised(*parts["train"], *parts["test"], form, sides=sides)
            for form in planted.members
        ]
        about[f"supervised, neighbours of {sides}"] = round(
            float(np.mean([v_measure_score(*e) for e in told])), 3
        )
    (given.out / "about.json").write_text(
        json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(
        json.dumps(
            {key: value for key, value in about.items() if key not in ("members", "controls")}
        )
    )


def make_translations(given: argparse.Namespace) -> None:
    text = read_text(
        given.text, lang=given.lang, lengths=given.lengths, most=2 * given.sentences + given.test
    )
    renamed = rename(text, held_out=given.test, words=given.words, seed=given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    for lang, lines in zip(LANGS, (renamed.first, renamed.second), strict=True):
        write_lines(given.out / f"train.{lang}.txt", lines)
    for name, entries in (("names", renamed.names), ("dictionary", renamed.dictionary)):
        (given.out / f"{name}.tsv").write_text(
            "".join(f"{a}\t{b}\n" for a, b in entries.items()), encoding="utf-8"
        )
    pairs = (f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in renamed.test)
    (given.out / "test.tsv").write_text("".join(pairs), encoding="utf-8")
    about = {
        "text": given.text.name,
        "seed": given.seed,
        "sentences": [len(renamed.first), len(renamed.second)],
        "test": len(renamed.test),
        "types": len(renamed.names),
        "dictionary": len(renamed.dictionary),
    }
    (given.out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(about))


def score_senses(given: argparse.Namespace) -> None:
    about = json.loads((given.dir / "about.json").read_text(encoding="utf-8"))
    text, truth = (
        [line.split() for line in _text(given.dir / f"{given.part}{kind}")]
        for kind in (".txt", ".truth.txt")
    )
    figures: dict[str, object] = {"part": given.part}
    found = [line.split() for line in _text(given.senses)]
    _check_words(found, text, given.senses)
    figures |= score_found(text, truth, found, list(about["members"]), about["controls"])
    print(json.dumps(_rounded(figures)))


def _check_words(found: list[list[str]], text: list[list[str]], path: Path) -> None:
    """Check that the file contains one sense for each word in the text."""
    if len(found) != len(text):
        raise InputError(
            f"must have {len(text)} lines, as many as the text, got {len(found)}", path=path
        )
    for number, (senses, words) in enumerate(zip(found, text, strict=True), 1):
        if len(senses) != len(words):
            fact = (
                f"must have {len(words)} senses, one per word, got {len(senses)}; try calque "
                "senses --pretokenized"
            )
            raise InputError(fact, path=path, line=number)


def score_translations(given: argparse.Namespace) -> None:
    pairs = [line.split("\t") for line in _text(given.dir / "test.tsv")]
    test = [(first.split(), second.split()) for first, second in pairs]
    words, told = (
        {line.split("\t")[0] for line in _text(given.dir / f"{name}.tsv")}
        for name in ("names", "dictionary")
    )
    encoder = load_encoder(given.encoder, layer=given.layer)
    first, second = (
        encoder.encode(Sentences.of([pair[k] for pair in test], lang))
        for k, lang in enumerate(LANGS)
    )
    print(json.dumps(_rounded(score_retrieval(test, first, second, words - told - {RARE}))))


def make_key_points(given: argparse.Namespace) -> None:
    write_world(
        given.out, pairs=given.sentences, test=given.test, noise=given.noise, seed=given.seed
    )


def score_key_points(given: argparse.Namespace) -> None:
    figures = score_world(given.dir, load_encoder(given.encoder))
    print(
        json.dumps(
            {
                name: _rounded(v) if isinstance(v, dict) else round(v, 4)
                for name, v in figures.items()
            }
        )
    )


def _text(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _rounded(figures: dict) -> dict:
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.planted", description=(__doc__ or "").split("\n")[0]
    )
    what = options.add_subparsers(required=True)
    make = what.add_parser(
        "make", help="plant senses, translations or key points, and write the texts"
    ).add_subparsers(required=True)
    for name, action, sentences, test in (
        ("senses", make_senses, 60_000, 3000),
        ("translations", make_translations, 40_000, 1000),
    ):
        one = make.add_parser(name)
        one.set_defaults(action=action)
        one.add_argument(
            "text", type=Path, help="file with one sentence per line; .gz and .zst are supported"
        )
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--lang", default="en", help="language of the text")
        one.add_argument(
            "--sentences",
            type=int,
            default=sentences,
            help="number of training sentences per language",
        )
        one.add_argument("--test", type=int, default=test, help="number of held-out sentences")
        one.add_argument(
            "--lengths",
            type=int,
            nargs=2,
            default=(5, 30),
            help="minimum and maximum length in words",
        )
        one.add_argument("--seed", type=int, default=0)
        if name == "senses":
            one.add_argument("--pseudo", type=int, default=60, help="number of pseudo-words")
            one.add_argument(
                "--at-least",
                type=int,
                default=100,
                help="minimum number of occurrences of a joined word",
            )
            one.add_argument(
                "--joined",
                type=int,
                nargs=2,
                default=(2, 4),
                help="min. and max. number of joined words",
            )
            one.add_argument(
                "--any",
                dest="unlike",
                action="store_false",
                help="join any words of similar frequency",
            )
        else:
            one.add_argument(
                "--words",
                type=int,
                default=6000,
                help="number of words to keep; the rest become <rare>",
            )
    points = make.add_parser("key-points")
    points.set_defaults(action=make_key_points)
    points.add_argument("--out", type=Path, required=True)
    points.add_argument("--sentences", type=int, default=20_000, help="number of training pairs")
    points.add_argument("--test", type=int, default=1000, help="number of held-out pairs")
    points.add_argument(
        "--noise",
        type=float,
        default=0.2,
        help="standard deviation of the noise in each word vector",
    )
    points.add_argument("--seed", type=int, default=0)
    score = what.add_parser(
        "score", help="score a model, and print one line of JSON"
    ).add_subparsers(required=True)
    senses = score.add_parser("senses")
    senses.set_defaults(action=score_senses)
    senses.add_argument("dir", type=Path, help="folder written by `make senses`")
    senses.add_argument("senses", type=Path, help="file with a sense (or -) for each word")
    senses.add_argument(
        "--part",
        choices=("train", "test"),
        default="test",
        help="text whose senses the file contains",
    )
    translations = score.add_parser("translations")
    translations.set_defaults(action=score_translations)
    translations.add_argument("dir", type=Path, help="folder written by `make translations`")
    translations.add_argument("--encoder", required=True)
    translations.add_argument("--layer", type=int, default=-1)
    points = score.add_parser("key-points")
    points.set_defaults(action=score_key_points)
    points.add_argument("dir", type=Path, help="folder written by `make key-points`")
    points.add_argument("encoder", help="folder written by `calque align --method clcr`")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    try:
        given.action(given)
    except CalqueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
