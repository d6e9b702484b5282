"""An encoder's folder on the Hugging Face hub: what goes there, with which card, and how it comes back."""

from __future__ import annotations

import json
import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from calque.corpora.by_name import hub_ids
from calque.encoders.folder import BUNDLED, RUN_FILE, holds_encoder, read_about
from calque.encoders.sentence_transformers import modules_of
from calque.errors import InputError, OutputError, SettingError

CARD = "README.md"
_NOT_PART = ("training",)  # what a run goes on from, and its metrics
_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")  # of a repository


def push(
    folder: str | PathLike[str],
    repo: str,
    *,
    private: bool | None = None,
    message: str = "",
    revision: str | None = None,
    license: str | None = None,
    progress: bool = True,
) -> str:
    """Upload a folder with an encoder as a repository of models, made if there is none; its files are one commit.

    What is no part of the encoder stays here: checkpoints and metrics (`training/`), locks, hidden files, links. The card is
    the folder's README.md, with what `card` adds; the file itself stays as it is.

    Args:
        folder: of an encoder.
        repo: USER/NAME, or NAME for a repository of one's own.
        private: whether a new repository is; None for the account's default.
        message: of the commit.
        revision: the branch, made if there is none; None for main.
        license: of the weights, for the card.
        progress: show the bars of huggingface_hub on standard error.

    Returns:
        the commit's address.

    Raises:
        InputError: no encoder there.
        OutputError: no token, no connection, or the hub refused.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    path = Path(folder)
    if not path.is_dir():
        fact = "is a file, expected the folder of an encoder" if path.exists() else "no such folder; is the path right?"
        if fspath(folder) in BUNDLED:
            fact = (
                "the encoder of this name comes with calque and is no folder: save what you made of it, and push that"
            )
        raise InputError(fact, path=folder)
    if not holds_encoder(path):
        raise InputError("no encoder in this folder, expected one that calque or transformers saved", path=path)
    text = card(path, repo, license=license)
    if get_token() is None:
        raise OutputError(f"{repo}: no token of the Hugging Face hub: run hf auth login, or set HF_TOKEN")
    api = HfApi()
    shown = not are_progress_bars_disabled()
    if shown and not progress:
        disable_progress_bars()
    try:
        name = api.create_repo(repo, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        files = [CommitOperationAdd(place, path / place) for place in parts(path) if place != CARD]
        files.append(CommitOperationAdd(CARD, text.encode()))
        said = message or f"Upload {path.resolve().name} with calque"
        return str(api.create_commit(name, files, commit_message=said, revision=revision).commit_url)
    except Exception as error:  # of two HTTP libraries, by version
        raise OutputError(_refused(repo, error)) from error
    finally:
        if shown and not progress:
            enable_progress_bars()


def parts(folder: Path) -> list[str]:
    """Return the files of an encoder's folder that are part of the encoder, by their names from there on."""
    names = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
    return [
        name.as_posix()
        for name in names
        if name.parts[0] not in _NOT_PART
        and not any(part.startswith(".") or part.endswith((".part", ".lock", ".old")) for part in name.parts)
    ]


def _refused(repo: str, error: Exception) -> str:
    """Return the reason in a line."""
    while getattr(error, "response", None) is None and isinstance(error.__cause__, Exception):  # of a large file
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    known = {
        401: "the hub does not accept the token: run hf auth login, or set HF_TOKEN",
        403: "the token may not write there: is the name somebody else's? Take your own, USER/NAME, or a token that may write",
        404: "there is no such user or organisation, or the token may not see it",
        409: "the name is taken by something else: choose another one",
    }
    if status is not None:
        return f"{repo}: {known.get(status, f'the hub refused ({reason})')}"
    if isinstance(error, ValueError):  # a name that cannot be
        return f"{repo}: {reason}"
    return f"{repo}: the hub cannot be reached ({reason}): check the connection, HF_ENDPOINT and HF_HUB_OFFLINE"


# -- the card ----------------------------------------------------------------------------------------------------------
def card(folder: Path, repo: str = "", *, license: str | None = None) -> str:
    """The model card of a folder, as search on the hub reads it.

    Nothing is invented: languages, data and base come from `calque-run.json` and the card that is there, and what neither
    says is left out. A card without code gets a section that loads the encoder with calque.

    Raises:
        InputError: the card or the record is damaged.
    """
    from huggingface_hub import ModelCard, ModelCardData

    try:
        text = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else ""
        found = ModelCard(text, ignore_metadata_errors=True) if text.startswith("---") else None
        record = json.loads((folder / RUN_FILE).read_text(encoding="utf-8")) if (folder / RUN_FILE).is_file() else {}
        front = {} if found is None else found.data.to_dict()
        about = read_about(folder)
        own = bool(modules_of(folder)) and about.get("own_pooling", True)
        name = repo.rpartition("/")[2] or folder.resolve().name
        tags = [*front.get("tags", []), "calque", *(["sentence-transformers"] if modules_of(folder) else [])]
        library = "sentence-transformers" if own else "transformers"
        library = library if about.get("kind", "huggingface") == "huggingface" else "calque"
        data: dict[str, Any] = {
            "library_name": library,
            "pipeline_tag": "sentence-similarity" if own else "feature-extraction",
        }
        data |= {key: value for key, value in front.items() if value} | {"tags": list(dict.fromkeys(tags))}
        base = data.get("base_model")
        if not isinstance(base, str) or not _NAME.fullmatch(base) or base in BUNDLED or Path(base).exists():
            data.pop("base_model", None)  # one of calque's own, or a folder here
        if license is not None:
            data["license"] = license
        if languages := record.get("languages") or record.get("langs"):
            data.setdefault("language", list(languages))
        if sets := hub_ids(text["path"] for text in record.get("texts", [])):
            data.setdefault("datasets", sets)
        data.pop("model-index", None)
        made = ModelCardData(**data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"no card can be made of {CARD} and {RUN_FILE} ({str(error)[:200]})", path=folder) from error
    body = (text if found is None else found.text).strip() or f"# {name}"
    if "```python" not in body:
        code = 'import calque\n\nencoder = calque.load_encoder("FOLDER")  # this one, or its name here'
        body += f"\n\n## Use\n\n```python\n{code}\n```"
    return f"---\n{made.to_yaml()}\n---\n\n{body}\n"


def check_repo(repo: str) -> str:
    """A repository's name, USER/NAME or NAME.

    Raises:
        SettingError: it cannot be one.
    """
    if not _NAME.fullmatch(repo) or repo.startswith(".") or "/." in repo:
        raise SettingError(f"{repo!r} is no name on the hub, expected USER/NAME or NAME of letters, digits, - _ and .")
    return repo
