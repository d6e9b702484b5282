"""The commands `calque pretrain`, `calque perplexity` and `calque senses`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from calque.commands.base import Command, Tracking, by_name, say_unless
from calque.commands.checks import output_file, output_folder
from calque.corpora.languages import language_and_path, name_and_path, pair_of
from calque.corpora.readers import AUTO
from calque.errors import SettingError
from calque.runs.settings import (
    CheckpointEvery,
    Limit,
    Overwrite,
    OwnOption,
    PlainFormat,
    Pretokenized,
    Quiet,
    Seed,
    Several,
    file_name,
)
from calque.spec import Count, Declared, argument, declared, files, option, types_of
from calque.storage import json_text

#: options that cannot be combined with --start, because the BERT given by --start determines them
_OF_START = ("layers", "dim", "heads", "inner", "positions", "dropout", "vocabulary", "lower")
_TEXTS = "Plain-text files, e.g. en=en.txt."


@dataclass(frozen=True, kw_only=True)
class Pretrain(Tracking):
    """Train a small BERT or ELMo from scratch.

    BERT is trained by masked language modelling, and ELMo by predicting the next and the previous
    word. With --senses, the model predicts the senses of words and, with --dictionary, also the
    senses of their translations.
    """

    full_help = "calque pretrain --model bert --help, or --model elmo"

    texts: list[str] = argument(..., _TEXTS, "LANG=TEXT")
    out: Path = option(
        ..., "Output folder; run the same command again to resume an interrupted run."
    )
    # The names of the options for senses in the Multi-sense paper are in brackets.
    senses: Count | None = option(
        None,
        "Maximum number of senses per word; the model then predicts senses, which are induced "
        "during training (n_context in the paper: 5, or 3 for two languages).",
    )
    dictionary: Several = option(
        None,
        "With --senses: also predict senses of the translations in this dictionary, e.g. "
        "en-de=en-de.txt; repeatable. All languages are then sampled equally often, unless --alpha "
        "is given.",
        metavar="LANG-LANG=FILE",
    )
    sense_option: Several = option(
        None,
        "With --senses: a setting of sense induction, e.g. start=fresh or axes=24; repeatable. The "
        "guide describes all settings.",
        metavar="NAME=VALUE",
    )
    model: str = option("bert", "Model: bert, or elmo (a bidirectional LSTM language model).")
    preset: str | None = option(
        None,
        "Preset for sizes and settings: paper (as in the Multi-sense paper; takes days on GPUs), "
        "small (an hour on two cores) or tiny (minutes). Explicit options override the preset.",
    )
    held_out: int = option(
        0, "Number of sentences per language to hold out for measuring perplexity."
    )
    options: OwnOption = None
    format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    checkpoint_every: CheckpointEvery = 200
    seed: Seed = 0
    limit: Limit = None
    overwrite: Overwrite = False
    quiet: Quiet = False

    # -- options of a model
    @classmethod
    def subject_in(cls, words: Sequence[str]) -> str | None:
        pairs = dict(pairwise(" ".join(words).replace("=", " ").split()))
        model = pairs.get("--model")
        return None if "--help" in words and model is None else model or "bert"

    @classmethod
    def subjects(cls) -> Mapping[str, str]:
        return {f"calque pretrain --model {name}": name for name in ("bert", "elmo")}

    @classmethod
    def specific_options(cls, subject: str | None) -> Mapping[str, Declared]:
        if subject is None:
            return {}
        from calque.senses.pretrain import model_class

        options = dict(declared(model_class(subject), "senses", "seed"))
        if "start" in options:
            options["start"] = replace(options["start"], type=str)
        return options

    @classmethod
    def refuse_option(cls, name: str, flag: str, subject: str | None) -> None:
        if any(name in cls.specific_options(model) for model in ("bert", "elmo")):
            raise SettingError(
                f"{flag} does not apply to {'ELMo' if subject == 'elmo' else 'BERT'}"
            )

    # -- running
    def run(self) -> None:
        from calque.senses.pretrain import pretrain

        options, dictionaries = dict(self.specific), self.dictionary or []
        started_from = [options["start"]] if "start" in options else []
        output_folder("--out", self.out, [*self.texts, *dictionaries, *started_from])
        if started_from:
            for name in self.specific:
                if name in _OF_START:
                    flag = self.specific_options(self.model)[name].flags[0].partition("/")[0]
                    raise SettingError(
                        f"{flag} cannot be combined with --start, because the given BERT "
                        "determines it"
                    )
        if self.preset is None:
            options.setdefault("vocabulary", 16_000)
        langs_and_paths = [language_and_path(text) for text in self.texts]
        langs = [lang for lang, _ in langs_and_paths]
        say = say_unless(self.quiet)
        record = pretrain(
            langs_and_paths,
            out=self.out,
            model=self.model,
            preset=self.preset,
            senses=self._senses(),
            dictionaries=[_dictionary(each, langs) for each in dictionaries],
            options={"seed": self.seed, **options},
            held_out=self.held_out,
            format=self.format,
            pretokenized=self.pretokenized,
            limit=self.limit,
            overwrite=self.overwrite,
            checkpoint_every=self.checkpoint_every,
            progress=not self.quiet,
            say=say,
        )
        say(
            f"saved to {self.out} after {record['updates']:,} updates; loss "
            f"{record['last_loss']:.3f}"
        )
        for table in record.get("senses", {}).get("tables", []):
            say(
                f"{table['senses_per_word']:.2f} senses per word; {table['several']:.1%} of "
                f"{table['words']:,} words have several"
            )
        for score in record["scores"]:
            metric, lang = score["metric"].split(".")[0], score["languages"][0]
            say(f"{metric} in {lang}: {score['value']:.1f}")

    def _senses(self) -> dict[str, Any] | None:
        """Return the arguments for `Senses`, or None if --senses is not given.

        Raises:
            SettingError: an option is unknown, or is given without --senses.
        """
        from calque.senses.training import Senses

        if self.senses is not None:
            types = types_of(Senses, "senses")
            return {
                "senses": self.senses,
                **by_name(self.sense_option or [], types, "--sense-option"),
            }
        remedy = "needs --senses; set --senses to the maximum number of senses per word"
        self.refuse_unused(dict.fromkeys(("sense_option", "dictionary"), remedy))
        return None


def _dictionary(text: str, langs: Sequence[str]) -> tuple[tuple[str, str], str]:
    """Split `en-de=FILE` into the language pair and the path."""
    name, path = name_and_path(text)
    pair = pair_of(name, langs) if path else None
    if pair is None:
        raise SettingError(
            "--dictionary must name two different languages of the text "
            f"({', '.join(dict.fromkeys(langs))}) and a file, e.g. en-de=en-de.txt, got "
            f"{name}={path}"
        )
    return pair, path


def _share(flag: str, value: float) -> float:
    """Check the fraction of words to mask (a `check` of `Option`)."""
    if not (math.isfinite(value) and 0 < value <= 1):
        raise SettingError(f"{flag} must be a finite number above 0 and at most 1, got {value}")
    return value


@dataclass(frozen=True, kw_only=True)
class Perplexity(Command):
    """Measure the perplexity of a language model.

    BERT predicts masked words, and ELMo predicts the next and the previous word. If the model has
    senses, the probability of a word is the sum over its senses.
    """

    encoder: str = argument(
        ..., "ELMo folder, or masked language model (hub name, folder or mini).", "ENCODER"
    )
    texts: list[str] = argument(..., _TEXTS, "LANG=TEXT")
    share: float = option(0.15, "Fraction of the words to mask.", check=_share)
    format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    seed: Seed = 0
    limit: Limit = None
    as_json: bool = option(False, "Print the scores as one JSON object.", "--json")
    quiet: Quiet = False

    def run(self) -> None:
        from calque.runs.score_table import table
        from calque.senses.perplexity import perplexity

        scores = perplexity(
            self.encoder,
            [language_and_path(text) for text in self.texts],
            share=self.share,
            format=self.format,
            pretokenized=self.pretokenized,
            limit=self.limit,
            seed=self.seed,
            say=say_unless(self.quiet),
        )
        if self.as_json:
            every = [score.to_dict() for score in scores]
            print(json_text({**every[0], "scores": every}, default=str))
        else:
            print(table(scores))


@dataclass(frozen=True, kw_only=True)
class SensesOfText(Command):
    """Find the senses of words in a text.

    With WORD, the command prints the frequency of each sense, the nearest senses in all languages,
    and example sentences. Without WORD, it writes a line of sense numbers for each line of the
    text.
    """

    folder: str = argument(
        ..., "ELMo, or encoder with a mask token (hub name, folder or mini).", "ENCODER"
    )
    word: str | None = argument(None, "Word whose senses are shown.", "WORD")
    text: Several = files(
        "Text from which senses are induced; write de=FILE if the file name does not contain the "
        "language."
    )
    out: Path | None = option(
        None,
        "Without WORD: output file; for each line of --text, it contains a line with the sense "
        "number of each word, or a hyphen for a word without senses.",
        metavar="PATH",
        check=file_name,
    )
    trained: bool = option(
        False,
        "Show the senses learned by calque pretrain --senses, instead of inducing senses from "
        "--text. Then --text only determines the language of each word.",
    )
    k: Count = option(10, "Number of nearest senses to show.", "-k")
    format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    limit: Limit = None
    as_json: bool = option(False, "Print one JSON object instead of text.", "--json")
    quiet: Quiet = False

    def run(self) -> None:
        from calque.senses.found import senses, table, write_senses

        texts = self.text or []
        if not texts:
            self.refuse_unused(
                dict.fromkeys(("format", "pretokenized", "limit"), "applies only to --text")
            )
        reading = {
            "format": self.format,
            "pretokenized": self.pretokenized,
            "limit": self.limit,
        }
        if self.word is not None:
            self.refuse_unused({"out": "cannot be combined with WORD"})
            found = senses(self.folder, self.word, texts, k=self.k, trained=self.trained, **reading)
            print(json_text(found, ensure_ascii=False) if self.as_json else table(found))
            return
        if self.out is None or not texts or self.trained:
            raise SettingError(
                "give a word, e.g. calque senses FOLDER bank, or a text and an output file: "
                "--text FILE --out FILE"
            )
        self.refuse_unused(dict.fromkeys(("k", "as_json"), "applies only with WORD"))
        output_file("--out", self.out, [self.folder, *texts])
        counts = write_senses(self.folder, texts, self.out, **reading)
        say_unless(self.quiet)(
            f"wrote {self.out}: {counts['known']:,} of {counts['words']:,} words in "
            f"{counts['lines']:,} lines have a sense"
        )
