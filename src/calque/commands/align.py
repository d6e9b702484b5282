"""The command `calque align`, which aligns an encoder with parallel text, dictionaries, plain text
or released maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from calque.alignment import METHODS, learns_from, methods_for, options_of_method
from calque.commands.base import LINKING, Choosing, Linking, Tracking, say_unless
from calque.commands.checks import output_folder
from calque.errors import SettingError, did_you_mean
from calque.runs.settings import DEFAULT_METHOD, AlignSettings, named_pairs, warn_of_languages
from calque.spec import Declared

#: subject of the command: the name of a method, and the data that it learns from
Subject = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Align(AlignSettings, Linking, Choosing, Tracking):
    """Align the languages of an encoder.

    The result is a folder that calque and transformers can load. Choose one kind of data: parallel
    text (TRAIN), dictionaries (--dictionary), plain text for a --method that needs no translations
    (--text), no translations at all (--unsupervised), or released maps (--released).
    """

    rare = (
        "model",
        "symmetrize",
        "one_based",
        "max_length",
        "bidirectional",
        "track_folder",
        "keep_layers",
        "checkpoint_every",
    )
    full_help = (
        "calque align --method NAME --help; for other data add --dictionary or --unsupervised"
    )

    # -- options of a method
    @classmethod
    def subject_in(cls, words: Sequence[str]) -> Subject | None:
        words = " ".join(words).replace("=", " ").split()
        data = "parallel"
        for name in ("dictionary", "unsupervised", "released"):
            if f"--{name}" in words:
                data = name
                break
        method = ""
        if "--method" in words[:-1]:
            method = words[words.index("--method") + 1]
        if "--help" in words and data == "parallel" and not method:
            return None
        if ("--dictionary", "identical") in pairwise(words):
            return method or DEFAULT_METHOD[data], "identical"
        return method or DEFAULT_METHOD[data], data

    @classmethod
    def subjects(cls) -> Mapping[str, Subject]:
        titles = {
            f"calque align --method {name}": (name, "parallel") for name in methods_for("parallel")
        }
        for data in ("dictionary", "unsupervised"):
            titles[f"calque align --{data}"] = ("rotation", data)
        return titles

    @classmethod
    def specific_options(cls, subject: Subject | None) -> Mapping[str, Declared]:
        if subject is None:
            return {}
        from calque.runs.map_options import options_of_maps

        method, data = subject
        if data == "released":
            options = options_of_maps()
            return {name: options[name] for name in ("layers", "combine")}
        if data != "parallel":
            return options_of_maps(data)
        return options_of_method(method) if method in METHODS else {}

    @classmethod
    def refuse_option(cls, name: str, flag: str, subject: Subject | None) -> None:
        if subject is None:
            return
        method, data = subject
        methods = [each for each in METHODS if not METHODS[each].of_each or each == method]
        if any(name in options_of_method(each) for each in methods):
            if data != "parallel":
                raise SettingError(f"{flag} is only for parallel text")
            if method in methods_for("parallel") and not METHODS[method].trains:
                raise SettingError(f"{flag} needs a method that trains, unlike {method}")
            raise SettingError(f"{flag} is not an option of --method {method}")
        without_text = [("", "dictionary"), ("", "unsupervised")]
        if any(name in cls.specific_options(each) for each in without_text):
            raise SettingError(
                f"{flag} requires --dictionary or --unsupervised, and a method that has this option"
            )

    # -- running
    def run(self) -> int | None:
        from calque.runs.align import align

        data = self._data()
        inputs = [self.train, self.dictionary, self.released, self.links, self.text, self.anchors]
        output_folder("--out", self.out, [*self.encoder.split(","), *_flat(inputs)])
        method = self.method or ("contrastive" if self.train else "rotation")
        self._refuse_unused(data, method)
        if data == "TRAIN" and not learns_from(method, "parallel"):
            raise _unknown_method(method)
        options, settings = self._for_method(data, method)
        self._check_languages(data, settings)
        say = say_unless(self.quiet)
        result = align(
            settings,
            words=settings.words(self.pretokenized, self.limit, self.format),
            load=self.loading(),
            choose=True,
            options=options,
            progress=not self.quiet,
            say=say,
        )
        steps = {"words": "linking words", "anchors": "anchors", "method": method}
        seconds = result.record.get("seconds", {})
        took = ", ".join(f"{steps[name]} {number:.0f} s" for name, number in seconds.items())
        say(f"saved to {result.folder} ({took or ', '.join(result.record['langs'])})")
        return 1 if result.record.get("failed") else 0

    def _for_method(self, data: str, method: str) -> tuple[dict[str, Any], Align]:
        """Return the options of the method, and the settings with the method's defaults."""
        options, settings = dict(self.specific), replace(self, method=method)
        if data == "TRAIN":
            if "seed" in options_of_method(method):
                options.setdefault("seed", self.seed)
            if "symmetrize" not in self.used:
                settings = replace(settings, symmetrize=METHODS[method].symmetrize)
        elif data in ("--dictionary", "--unsupervised"):
            options, settings = _with_start(options, settings)
            options["seed"] = self.seed
        return options, settings

    def _check_languages(self, data: str, settings: Align) -> None:
        """Raise an error if the languages of the data are missing, and warn about unknown ones."""
        files = settings.train or settings.dictionary or ()
        _, pairs = named_pairs(files, self.langs or ())
        warn_of_languages(chain(*pairs))
        if data not in ("--text", "--released") and not pairs:
            what = "the languages of the text" if data == "TRAIN" else "the languages to map"
            raise SettingError(f"--langs is missing; give {what}, e.g. --langs en de")

    def _data(self) -> str:
        """Return the option that selects the training data: TRAIN, --dictionary, --unsupervised,
        --released or --text.

        Raises:
            SettingError: there is none, or more than one.
        """
        choices = {
            "TRAIN": self.train,
            "--dictionary": self.dictionary,
            "--unsupervised": self.unsupervised,
            "--released": self.released,
        }
        # Otherwise, --text is the text for the anchors of a dictionary map.
        if self.method in methods_for("text"):
            choices["--text"] = self.text
        chosen = [name for name, value in choices.items() if value]
        if len(chosen) != 1:
            got = " and ".join(chosen) or "nothing"
            raise SettingError(f"give exactly one of {', '.join(choices)}; got {got}")
        return chosen[0]

    def _refuse_unused(self, data: str, method: str) -> None:
        """Raise an error if the user gave an option that has no effect."""
        unused: dict[str, str] = {}

        def add(reason: str, *names: str) -> None:
            unused.update(dict.fromkeys(names, reason))

        if data != "TRAIN":
            add("is only for parallel text", "links", "model", "symmetrize", "one_based")
            add("is only for parallel text", "keep_layers", "checkpoint_every")
        elif method in METHODS.rows and not METHODS[method].needs_links:
            reason = f"has no effect with --method {method}, which needs no word links"
            add(reason, "links", *LINKING)
        elif self.links:
            add("has no effect with --links, whose files already contain the word links", "model")
        else:
            add("is only for files of word links; add --links FILE", "one_based")
        if data not in ("--dictionary", "--unsupervised"):
            names = ("anchors",) if data == "--text" else ("text", "anchors")
            add("is only for --dictionary and --unsupervised", *names)
        if data == "--text":
            add(f"has no effect with --method {method} and --text", "langs", "seed")
        if data == "--released":
            add("does not apply to --released", "langs", "method", "pretokenized", "limit", "seed")
        self.refuse_unused(unused)


def _unknown_method(method: str) -> SettingError:
    known = methods_for("parallel")
    meant = did_you_mean(method, known)
    return SettingError(
        f"unknown --method {method}, expected one of {', '.join(known)}, or "
        f"package.module:Class{meant}"
    )


def _flat(inputs: Sequence[Sequence[str] | None]) -> list[str]:
    return [*chain.from_iterable(each or () for each in inputs)]


def _with_start(options: dict[str, Any], settings: Align) -> tuple[dict[str, Any], Align]:
    """Move the options for the initialisation to `start_options`. Also move the dictionary
    `identical`, which selects an initialisation, from the settings to the options.
    """
    from calque.runs.map_options import options_of_starts
    from calque.runs.supervision import IDENTICAL

    dictionaries = settings.dictionary or []
    if options.get("start") == IDENTICAL:
        raise SettingError(f"--start {IDENTICAL}: use --dictionary {IDENTICAL} instead")
    if not settings.unsupervised and IDENTICAL not in dictionaries:
        return options, settings
    if len(dictionaries) > 1:
        others = " ".join(file for file in dictionaries if file != IDENTICAL)
        raise SettingError(
            f"--dictionary {IDENTICAL} must be the only dictionary, because it replaces one; "
            f"to add identically spelt words to a dictionary, write --dictionary {others} "
            "--option identical=true"
        )
    start = options.pop("start", "distributions") if settings.unsupervised else IDENTICAL
    of_start = {name: options.pop(name) for name in options_of_starts() if name in options}
    options |= {"start": start, "start_options": of_start}
    return options, replace(settings, dictionary=None)
