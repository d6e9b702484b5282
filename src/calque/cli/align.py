"""`calque align`: with parallel text, dictionaries, plain text, no text, or released maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from calque.alignment import METHODS, learns_from, methods_for
from calque.cli.checks import given, output_folder, refuse_unused
from calque.cli.options import (
    Linking,
    Loading,
    SubjectCommand,
    Tracking,
    grouped,
    named_pairs,
    names_of,
    news,
    own_options,
    pairs_of,
)
from calque.errors import SettingError
from calque.runs.settings import (
    CheckpointEvery,
    KeepLayers,
    Limit,
    ManyLangs,
    Overwrite,
    OwnOption,
    Pretokenized,
    Quiet,
    language,
)

_USUAL = {"parallel": "contrastive", "dictionary": "rotation", "unsupervised": "rotation", "released": ""}


def _methods() -> str:
    """Return the help of `--method`, by kind of data."""
    told = {
        kind: ", ".join(f"{name} (default)" if name == _USUAL[kind] else name for name in methods_for(kind))
        for kind in ("parallel", "dictionary")
    }
    return (
        f"With parallel text: {told['parallel']}, or package.module:Class. With dictionaries: {told['dictionary']}. "
        f"With --text alone: {', '.join(methods_for('text'))}."
    )


class AlignCommand(SubjectCommand):
    """Command with a method and its kind of data as subject."""

    hides = ("model", "symmetrize", "max_length", "bidirectional", "track_folder", "keep_layers", "checkpoint_every")
    asks_for = "calque align --method NAME --help (with --dictionary or --unsupervised: of maps from these)"

    def find_subject(self, words: Sequence[str]) -> tuple[str, str] | None:
        given = " ".join(words).replace("=", " ").split()
        kind = next((kind for kind in ("dictionary", "unsupervised", "released") if f"--{kind}" in given), "parallel")
        method = given[given.index("--method") + 1] if "--method" in given[:-1] else ""
        if "--help" in given and kind == "parallel" and not method:
            return None
        return method or _USUAL[kind], "identical" if ("--dictionary", "identical") in pairwise(given) else kind

    def subjects(self) -> Mapping[str, tuple[str, str]]:
        methods = {f"calque align --method {name}": (name, "parallel") for name in methods_for("parallel")}
        return methods | {f"calque align --{kind}": ("rotation", kind) for kind in ("dictionary", "unsupervised")}

    def types_of(self, subject: tuple[str, str]) -> Mapping[str, Any]:
        from calque.runs.study.options import of_maps, options_of_method

        method, kind = subject
        if kind == "released":
            return {name: of_maps()[name] for name in ("layers", "combine")}
        if kind != "parallel":
            return of_maps(kind)
        return options_of_method(method) if method in METHODS or ":" in method else {}

    def described_by(self, subject: tuple[str, str]) -> list[Any]:
        from calque.maps.adversarial import adversarial_start
        from calque.maps.distributions import self_learning, similarity_seeds
        from calque.runs.align import map_method

        of_maps = [map_method, self_learning, similarity_seeds, adversarial_start]
        if subject[1] != "parallel":
            return of_maps
        kind = METHODS.load(subject[0])
        return [kind, kind.align]

    def refuse(self, name: str, option: str, subject: tuple[str, str]) -> None:
        method, kind = subject
        if any(
            name in self.types_of((each, "parallel")) for each in METHODS if not METHODS[each].of_each or each == method
        ):
            if kind != "parallel":
                raise SettingError(f"{option} is only for parallel text")
            is_map = method in methods_for("parallel") and not METHODS[method].trains
            why = f"is for training, but {method} is a map" if is_map else f"is not an option of --method {method}"
            raise SettingError(f"{option} {why}")
        if any(name in of_kind for of_kind in map(self.types_of, [("", "dictionary"), ("", "unsupervised")])):
            raise SettingError(f"{option} is only for --dictionary and --unsupervised, and for some of their methods")


@grouped
def align(
    *,
    context: typer.Context,
    encoder: str = typer.Option(
        ..., help="Hub name, folder, mini (bundled) or word vectors; or en=ENCODER,de=ENCODER."
    ),
    towards: str = typer.Option(..., callback=language, help="The language that the others are aligned with."),
    out: Path = typer.Option(..., help="Folder for the aligned encoder."),
    loading: Loading,
    linking: Linking,
    tracking: Tracking,
    train: list[str] | None = typer.Argument(None, metavar="[TRAIN...]", help="Parallel texts, as FILE or en-de=FILE."),
    langs: ManyLangs = None,
    method: str | None = typer.Option(None, help=_methods()),
    dictionary: list[str] | None = typer.Option(
        None,
        metavar="FILE...",
        help="Align with dictionaries (FILE or en-de=FILE) instead of parallel text; identical: use words spelt alike.",
    ),
    text: list[str] | None = typer.Option(
        None,
        metavar="FILE...",
        help="Text of each language, as de=FILE: to average word vectors over (dictionaries), or to learn from.",
    ),
    anchors: list[str] | None = typer.Option(
        None, metavar="DIR...", help="Dictionaries: folders written by calque anchors, instead of text."
    ),
    unsupervised: bool = typer.Option(
        False,
        "--unsupervised",
        help="Align without text or dictionary. If it fails, a message and the model card say so; the encoder is still "
        "written, and the exit code is 1.",
    ),
    released: list[str] | None = typer.Option(
        None, metavar="DIR...", help="Use released maps (XX_best_mapping.pth); one folder per layer of --layers."
    ),
    links: list[str] | None = typer.Option(
        None, help="Pharaoh file with the word links; default: link as calque words does."
    ),
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    option: OwnOption = None,
    keep_layers: KeepLayers = False,
    checkpoint_every: CheckpointEvery = 200,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Align the languages of an encoder.

    The result is a folder that calque and transformers can load. Align with parallel text (TRAIN), with dictionaries
    (--dictionary), with plain text by a --method that needs no translations (--text), with nothing (--unsupervised), or with
    released maps (--released).
    """
    from calque.runs.align import align as run

    kinds = {"TRAIN": train, "--dictionary": dictionary, "--unsupervised": unsupervised, "--released": released}
    if method in methods_for("text"):
        kinds["--text"] = text
    if sum(map(bool, kinds.values())) != 1:
        got = " and ".join(name for name, value in kinds.items() if value) or "nothing"
        raise SettingError(f"align with one of {', '.join(kinds)}; got {got}")
    (kind,) = (name for name, value in kinds.items() if value)
    say = news(quiet)
    files, langs = named_pairs(train or dictionary or [], langs or [])
    sources = [*files, *(released or []), *(links or []), *(text or []), *(anchors or [])]
    output_folder("--out", out, [*encoder.split(","), *sources])
    method = method or ("contrastive" if train else "rotation")
    _refuse(context, kind, method, links)
    if kind == "TRAIN" and not langs:
        raise SettingError("--langs is missing: name the languages of the text, e.g. --langs en de")
    if kind == "TRAIN" and not learns_from(method, "parallel"):
        expected = ", ".join(methods_for("parallel"))
        raise SettingError(f"unknown --method {method}, expected one of {expected}, or package.module:Class")
    options = own_options(context, option)
    place: dict[str, Any] = {
        "encoder": encoder, "towards": towards, "out": out, "load": loading.arguments(), "overwrite": overwrite
    }  # fmt: skip
    if released:
        result = run(released=released, options=options, **place)
        say(f"saved to {result.folder}: {', '.join(result.record['langs'])}")
        return
    place |= {"method": method, "keep_layers": keep_layers, "checkpoint_every": checkpoint_every}
    if kind == "TRAIN":
        command: Any = context.command
        if "seed" in command.types_of(context.meta["subject"]):
            options.setdefault("seed", linking.seed)
        if "symmetrize" not in given(context):
            linking = replace(linking, symmetrize=METHODS[method].symmetrize)
        place |= {"texts": files, "langs": pairs_of(langs, len(files)), "links": links or []}
    else:
        place["texts"] = text or []
    if kind in ("--dictionary", "--unsupervised"):
        langs = langs or _languages_of(files, text or [], anchors or [])
        if not langs:
            raise SettingError("--langs is missing: name the languages to map, e.g. --langs en de")
        options = _with_start(options, files, unsupervised) | {"seed": linking.seed}
        files = [] if "start" in options else files
        place |= {
            "langs": pairs_of(langs, len(files) or len(langs) // 2),
            "dictionaries": files,
            "anchors": anchors or [],
        }
    result = run(words=linking.words(pretokenized, limit), options=options, progress=not quiet, say=say, **place)
    seconds = result.record["seconds"]
    named = {"words": "linking words", "anchors": "anchors", "method": method}
    took = ", ".join(f"{named[name]} {number:.0f} s" for name, number in seconds.items())
    say(f"saved to {result.folder} ({took})")
    if result.record.get("failed"):
        raise typer.Exit(1)


def _refuse(context: typer.Context, kind: str, method: str, links: Sequence[str] | None) -> None:
    """Raise an error for options without effect."""
    unused: dict[str, str] = {}
    if kind != "TRAIN":
        unused |= dict.fromkeys(
            ("links", "model", "symmetrize", "keep_layers", "checkpoint_every"), "is only for parallel text"
        )
    elif method in METHODS and not METHODS[method].needs_links:
        unlinked = f"has no effect with --method {method}, which needs no word links"
        unused |= dict.fromkeys(("links", *names_of(Linking)), unlinked)
    elif links:
        unused["model"] = "has no effect with --links: the words are linked already"
    if kind not in ("--dictionary", "--unsupervised"):
        only = "is only for --dictionary and --unsupervised"
        unused |= dict.fromkeys(("text", "anchors") if kind != "--text" else ("anchors",), only)
    if kind == "--text":
        unused |= dict.fromkeys(("langs", "seed"), f"has no effect with --method {method} and --text")
    if kind == "--released":
        unused |= dict.fromkeys(("langs", "method", "pretokenized", "limit", "seed"), "does not apply to --released")
    refuse_unused(context, unused)


def _with_start(options: dict[str, Any], dictionaries: Sequence[str], unsupervised: bool) -> dict[str, Any]:
    """Return the options of maps, with those of the start separated; identical words are a start too."""
    from calque.runs.align import IDENTICAL
    from calque.runs.study.options import of_starts

    if IDENTICAL in dictionaries and len(dictionaries) > 1:
        raise SettingError(f"--dictionary {IDENTICAL} must be the only dictionary: it serves all languages")
    if options.get("start") == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: use --dictionary {IDENTICAL} instead")
    if not unsupervised and IDENTICAL not in dictionaries:
        return options
    start = options.pop("start", "distributions") if unsupervised else IDENTICAL
    of_start = {name: options.pop(name) for name in of_starts() if name in options}
    return {**options, "start": start, "start_options": of_start}


def _languages_of(dictionaries: Sequence[str], texts: Sequence[str], anchors: Sequence[str]) -> list[str]:
    """Return the two languages of texts or anchors, in the order of a dictionary's name or of the texts; empty if there are not
    two."""
    from calque.corpora.languages import language_and_path, name_and_path
    from calque.runs.anchors import open_folder

    named = [language_and_path(text)[0] for text in texts]
    for name, path in map(name_and_path, anchors):
        named.append(name or next(iter(open_folder(path).values())).lang or language_and_path(path)[0])
    if len(langs := list(dict.fromkeys(named))) != 2:
        return []
    return langs[::-1] if any("-".join(reversed(langs)) in Path(path).name for path in dictionaries) else langs


align.command_class = AlignCommand
