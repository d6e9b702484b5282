"""The command `calque push`."""

from __future__ import annotations

from dataclasses import dataclass

from calque.commands.base import Command, say_unless
from calque.runs.settings import Quiet
from calque.spec import argument, option


@dataclass(frozen=True, kw_only=True)
class Push(Command):
    """Upload an encoder to the Hugging Face Hub.

    The model card is also uploaded, but checkpoints and lock files are not. First log in with hf
    auth login, or set HF_TOKEN.
    """

    folder: str = argument(..., "Folder of the encoder to upload.", "FOLDER")
    repo: str = argument(..., "Repository on the Hugging Face Hub, as USER/NAME.", "REPO")
    private: bool | None = option(
        None, "Make a new repository private or public.", "--private/--public"
    )
    message: str = option("", "Commit message.")
    revision: str | None = option(
        None, "Branch to upload to; a missing branch is created; default: main."
    )
    license: str | None = option(
        None, "Licence of the weights, stated in the model card, e.g. mit."
    )
    quiet: Quiet = False

    def run(self) -> None:
        from calque.encoders.hub import check_repo, push

        url = push(
            self.folder,
            check_repo(self.repo),
            private=self.private,
            message=self.message,
            revision=self.revision,
            license=self.license,
            progress=not self.quiet,
        )
        say_unless(self.quiet)(f"uploaded: {url}")
