"""`calque push`."""

from __future__ import annotations

from typing import Annotated

import typer

from calque.cli.options import Quiet, news


def push(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of an encoder.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="Name on the Hugging Face hub: USER/NAME.")],
    private: Annotated[
        bool | None,
        typer.Option("--private/--public", help="Who sees a new repository; default: as your account has it."),
    ] = None,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "",
    revision: Annotated[str | None, typer.Option(help="Branch, made if there is none; default: main.")] = None,
    license: Annotated[str | None, typer.Option(help="Licence of the weights, for the card, such as mit.")] = None,
    quiet: Quiet = False,
) -> None:
    """Upload an encoder to the Hugging Face hub, with its model card.

    Checkpoints and locks stay here. Log in before with hf auth login, or set HF_TOKEN.
    """
    from calque.encoders.hub import check_repo
    from calque.encoders.hub import push as run

    url = run(
        folder,
        check_repo(repo),
        private=private,
        message=message,
        revision=revision,
        license=license,
        progress=not quiet,
    )
    news(quiet)(f"uploaded: {url}")
