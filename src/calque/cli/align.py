"""The command `calque align`, which aligns an encoder with parallel text, dictionaries, plain text
or released maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, ClassVar

import typer

from calque.alignment import METHODS, learns_from, methods_for
from calque.cli.checks import given, output_folder, refuse_unused
from calque.cli.options import (
    Linking,
    Loading,
    SubjectCommand,
    Tracking,
    grouped,
    names_of,
    news,
    own_options,
)
from calque.errors import SettingError, did_you_mean
from calque.runs.settings import DEFAULT_METHOD, AlignSettings, named_pairs, warn_of_languages


class AlignCommand(SubjectCommand):
    """The command `calque align`, whose options depend on the method and the kind of data."""

    hides = (
        "model",
        "symmetrize",
        "one_based",
        "max_length",
        "bidirectional",
        "track_folder",
        "keep_layers",
        "checkpoint_every",
    )
    asks_for = (
        "calque align --method NAME --help; for other data add --dictionary or --unsupervised"
    )
    helps: ClassVar[Mapping[str, str]] = {
        "layers": "layers that are mapped, or on whose vectors the loss is computed; default: the layer set by --layer.",
        "most": "number of words to use per language, the most frequent words first; default: 50000.",
        "at_least": "minimum number of times that a word must occur in the text to be used; default: 1.",
        "most_occurrences": "maximum number of occurrences over which the vector of a word is averaged; default: all.",
    }

    def find_subject(self, words: Sequence[str]) -> tuple[str, str] | None:
        given = " ".join(words).replace("=", " ").split()
        kind = next(
            (kind for kind in ("dictionary", "unsupervised", "released") if f"--{kind}" in given),
            "parallel",
        )
        method = given[given.index("--method") + 1] if "--method" in given[:-1] else ""
        if "--help" in given and kind == "parallel" and not method:
            return None
        return method or DEFAULT_METHOD[kind], "identical" if (
            "--dictionary",
            "identical",
        ) in pairwise(given) else kind

    def subjects(self) -> Mapping[str, tuple[str, str]]:
        methods = {
            f"calque align --method {name}": (name, "parallel") for name in methods_for("parallel")
        }
        return methods | {
            f"calque align --{kind}": ("rotation", kind) for kind in ("dictionary", "unsupervised")
        }

    def types_of(self, subject: tuple[str, str]) -> Mapping[str, Any]:
        from calque.runs.study.values import of_maps, options_of_method

        method, kind = subject
        if kind == "released":
            return {name: of_maps()[name] for name in ("layers", "combine")}
        if kind != "parallel":
            return of_maps(kind)
        return options_of_method(method) if method in METHODS or ":" in method else {}

    def described_by(self, subject: tuple[str, str]) -> list[Any]:
        from calque.maps.adversarial import adversarial_start
        from calque.maps.distributions import self_learning
        from calque.runs.supervision import map_method

        of_maps = [map_method, self_learning, adversarial_start]
        if subject[1] != "parallel":
            return of_maps
        return [METHODS.load(subject[0])]

    def refuse(self, name: str, option: str, subject: tuple[str, str]) -> None:
        method, kind = subject
        if any(
            name in self.types_of((each, "parallel"))
            for each in METHODS
            if not METHODS[each].of_each or each == method
        ):
            if kind != "parallel":
                raise SettingError(f"{option} is only for parallel text")
            is_map = method in methods_for("parallel") and not METHODS[method].trains
            why = (
                f"needs a method that trains, unlike {method}"
                if is_map
                else f"is not an option of --method {method}"
            )
            raise SettingError(f"{option} {why}")
        if any(
            name in of_kind
            for of_kind in map(self.types_of, [("", "dictionary"), ("", "unsupervised")])
        ):
            raise SettingError(
                f"{option} requires --dictionary or --unsupervised, and a method that has this "
                "option"
            )


@grouped
def align(
    *,
    context: typer.Context,
    how: AlignSettings,
    loading: Loading,
    linking: Linking,
    tracking: Tracking,
) -> None:
    """Align the languages of an encoder.

    The result is a folder that calque and transformers can load. Choose one kind of data: parallel
    text (TRAIN), dictionaries (--dictionary), plain text for a --method that needs no translations
    (--text), no translations at all (--unsupervised), or released maps (--released).
    """
    from calque.runs.align import align as run

    kinds = {
        "TRAIN": how.train,
        "--dictionary": how.dictionary,
        "--unsupervised": how.unsupervised,
        "--released": how.released,
    }
    if how.method in methods_for("text"):
        kinds["--text"] = how.text
    if sum(map(bool, kinds.values())) != 1:
        got = " and ".join(name for name, value in kinds.items() if value) or "nothing"
        raise SettingError(f"give exactly one of {', '.join(kinds)}; got {got}")
    (kind,) = (name for name, value in kinds.items() if value)
    inputs = (how.train, how.dictionary, how.released, how.links, how.text, how.anchors)
    output_folder(
        "--out",
        how.out,
        [*how.encoder.split(","), *(file for each in inputs for file in each or ())],
    )
    method = how.method or ("contrastive" if how.train else "rotation")
    _refuse(context, kind, method, how.links)
    if kind == "TRAIN" and not learns_from(method, "parallel"):
        expected = ", ".join(methods_for("parallel"))
        meant = did_you_mean(method, methods_for("parallel"))
        raise SettingError(
            f"unknown --method {method}, expected one of {expected}, or package.module:Class{meant}"
        )
    options = own_options(context, how.option)
    how = replace(how, method=method)
    if kind == "TRAIN":
        command: Any = context.command
        if "seed" in command.types_of(context.meta["subject"]):
            options.setdefault("seed", linking.seed)
        if "symmetrize" not in given(context):
            linking = replace(linking, symmetrize=METHODS[method].symmetrize)
    elif kind in ("--dictionary", "--unsupervised"):
        options, how = _with_start(options, how)
        options["seed"] = linking.seed
    pairs = named_pairs(how.train or how.dictionary or (), how.langs or ())[1]
    warn_of_languages(chain(*pairs))
    if kind not in ("--text", "--released") and not pairs:
        what = "the languages of the text" if kind == "TRAIN" else "the languages to map"
        raise SettingError(f"--langs is missing; give {what}, e.g. --langs en de")
    say = news(how.quiet)
    words = linking.words(how.pretokenized, how.limit)
    result = run(
        how, words=words, load=loading.arguments(), options=options, progress=not how.quiet, say=say
    )
    named = {"words": "linking words", "anchors": "anchors", "method": method}
    took = ", ".join(
        f"{named[name]} {number:.0f} s" for name, number in result.record.get("seconds", {}).items()
    )
    say(f"saved to {result.folder} ({took or ', '.join(result.record['langs'])})")
    if result.record.get("failed"):
        raise typer.Exit(1)


def _refuse(context: typer.Context, kind: str, method: str, links: Sequence[str] | None) -> None:
    """Raise an error if the user gave an option that has no effect."""
    unused: dict[str, str] = {}
    if kind != "TRAIN":
        of_parallel = (
            "links",
            "model",
            "symmetrize",
            "one_based",
            "keep_layers",
            "checkpoint_every",
        )
        unused |= dict.fromkeys(of_parallel, "is only for parallel text")
    elif method in METHODS and not METHODS[method].needs_links:
        unlinked = f"has no effect with --method {method}, which needs no word links"
        unused |= dict.fromkeys(("links", *names_of(Linking)), unlinked)
    elif links:
        unused["model"] = "has no effect with --links, whose files already contain the word links"
    else:
        unused["one_based"] = "is only for files of word links; add --links FILE"
    if kind not in ("--dictionary", "--unsupervised"):
        only = "is only for --dictionary and --unsupervised"
        unused |= dict.fromkeys(("text", "anchors") if kind != "--text" else ("anchors",), only)
    if kind == "--text":
        unused |= dict.fromkeys(
            ("langs", "seed"), f"has no effect with --method {method} and --text"
        )
    if kind == "--released":
        unused |= dict.fromkeys(
            ("langs", "method", "pretokenized", "limit", "seed"), "does not apply to --released"
        )
    refuse_unused(context, unused)


def _with_start(
    options: dict[str, Any], how: AlignSettings
) -> tuple[dict[str, Any], AlignSettings]:
    """Move the options for the initialisation to `start_options`. Also move the dictionary
    `identical`, which selects an initialisation, from the settings to the options."""
    from calque.runs.study.values import of_starts
    from calque.runs.supervision import IDENTICAL

    dictionaries = how.dictionary or []
    if options.get("start") == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: use --dictionary {IDENTICAL} instead")
    if not how.unsupervised and IDENTICAL not in dictionaries:
        return options, how
    if len(dictionaries) > 1:
        others = " ".join(file for file in dictionaries if file != IDENTICAL)
        remedy = (
            f"to add identically spelt words to a dictionary, write --dictionary {others} --option "
            "identical=true"
        )
        raise SettingError(
            f"--dictionary {IDENTICAL} must be the only dictionary, because it replaces one; "
            f"{remedy}"
        )
    start = options.pop("start", "distributions") if how.unsupervised else IDENTICAL
    of_start = {name: options.pop(name) for name in of_starts() if name in options}
    return {**options, "start": start, "start_options": of_start}, replace(how, dictionary=None)


align.command_class = AlignCommand
