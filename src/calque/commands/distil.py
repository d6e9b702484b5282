"""The command `calque distil`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calque.commands.base import Tracking, say_unless
from calque.commands.checks import output_folder
from calque.errors import SettingError
from calque.runs.settings import DistilSettings, warn_of_languages
from calque.spec import Declared, declared

#: default settings for a static student, which has no network
_STATIC = {"batch": 256, "learning_rate": 0.01, "ranking": 0.3}


@dataclass(frozen=True, kw_only=True)
class Distil(DistilSettings, Tracking):
    """Train a sentence encoder for more languages.

    A student is trained to map a sentence and its translations to the vector that a teacher
    computes for the sentence. The result is a folder that calque and sentence-transformers can
    load. An interrupted run can be resumed.
    """

    rare = ("layer", "max_length", "track_folder", "checkpoint_every", "vectors")

    @classmethod
    def subjects(cls) -> Mapping[str, str]:
        return {"calque distil": cls.__name__}

    @classmethod
    def specific_options(cls, subject: Any) -> Mapping[str, Declared]:
        if subject is None:
            return {}
        from calque.alignment.distilled import Distillation

        return declared(Distillation, "towards", "seed")

    def run(self) -> None:
        from calque.runs.distil import distil

        inputs = [self.teacher, self.student, *(self.train or ()), *(self.text or ())]
        output_folder("--out", self.out, inputs)
        options = dict(self.specific)
        if self.static:
            why = "has no effect with --static, because a static student has no layers"
            self.refuse_unused(dict.fromkeys(("layer", "max_length", "sentence_pooling"), why))
            for name in ("freeze", "precision"):
                if name in options:
                    raise SettingError(f"--{name} {why}")
            options = _STATIC | options
        warn_of_languages(self.langs or ())
        say = say_unless(self.quiet)
        result = distil(self, options=options, progress=not self.quiet, say=say)
        say(f"saved to {result.folder} ({result.record['seconds']['method']:.0f} s)")
