"""Upload an encoder's folder and model card to the Hugging Face hub."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from calque.encoders.card_blocks import CARD_FILE
from calque.encoders.checkpoint import first_line
from calque.encoders.folder import ENCODER_MARKS, holds_encoder
from calque.encoders.hub_cache import unconnected
from calque.errors import InputError, OutputError, SettingError
from calque.storage import json_text

#: files that are not uploaded, such as training checkpoints, locks and hidden files; `push` adds
#: the model card separately
_NOT_PART = ["training/*", ".*", "*/.*", "*.part", "*.lock", "*.old", CARD_FILE]


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
    """Upload an encoder's folder to a model repository in one commit, and return the URL of the
    commit.

    Checkpoints and metrics (`training/`), locks, hidden files and symbolic links are not uploaded.
    In the uploaded JSON files and model card, the local paths of base encoders are replaced by
    their last part; the local files are not changed.

    Args:
        folder: folder that contains the encoder.
        repo: repository, USER/NAME, or NAME for the logged-in user; it is created if necessary.
        private: whether a new repository is private; default: the setting of the account.
        message: commit message.
        revision: branch, which is created if necessary; default: main.
        license: licence of the weights, added to the uploaded card; the local card is not changed.
        progress: whether to show the progress bars of huggingface_hub on standard error.

    Raises:
        InputError: the folder contains no encoder, or its model card is corrupt.
        OutputError: there is no access token, the hub cannot be reached, or it rejects the upload.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.utils import disable_progress_bars, filter_repo_objects

    path = Path(folder)
    if not holds_encoder(path):
        raise InputError(
            "this folder contains no encoder saved by calque or transformers", path=path
        )
    card_text = _card_text(path, license)
    if get_token() is None:
        raise OutputError(
            f"{repo}: there is no token for the Hugging Face hub; run hf auth login, or set "
            "HF_TOKEN"
        )
    if not progress:
        disable_progress_bars()
    api = HfApi()
    try:
        name = api.create_repo(repo, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        names = [
            file.relative_to(path).as_posix() for file in sorted(path.rglob("*")) if file.is_file()
        ]
        places = _local_places(path)
        files = []
        for file_name in filter_repo_objects(names, ignore_patterns=_NOT_PART):
            # A symbolic link could lead to a file outside the folder.
            if not (path / file_name).is_symlink():
                content_or_path = _published(path / file_name, places)
                files.append(CommitOperationAdd(file_name, content_or_path))
        files.append(CommitOperationAdd(CARD_FILE, _without(places, card_text).encode()))
        message = message or f"Upload {path.resolve().name} with calque"
        commit = api.create_commit(name, files, commit_message=message, revision=revision)
        return str(commit.commit_url)
    except Exception as error:
        # The HTTP library and its errors depend on the version of huggingface_hub.
        remedy = "check the connection, the token (hf auth whoami), HF_ENDPOINT and HF_HUB_OFFLINE"
        raise OutputError(f"{repo}: the upload failed ({first_line(error)}); {remedy}") from error


def _card_text(folder: Path, license: str | None) -> str:
    """Return the text of the model card in a folder, or of a card with only a heading, with the
    licence if one is given.
    """
    from huggingface_hub import ModelCard

    file = folder / CARD_FILE
    try:
        if file.is_file():
            card, text = ModelCard.load(file), file.read_bytes().decode()
        else:
            card = ModelCard(f"# {folder.resolve().name}\n")
            text = str(card)
    except Exception as error:  # the YAML of a corrupt card raises errors of another library
        raise InputError(f"not a model card ({first_line(error)})", path=file) from error
    if license is None:
        return text  # the card as the user wrote it
    card.data.license = license  # type: ignore[attr-defined]
    return str(card)


#: keys of JSON files in an encoder's folder whose values can be local paths of other encoders
_PLACES = ("encoder_path", "place", "beside", "adapted", "base_model_name_or_path")


def _local_places(folder: Path) -> list[str]:
    """Return the local paths of other encoders in the JSON files of a folder, the longest first."""
    paths: set[str] = set()
    for file in sorted(folder.rglob("*.json")):
        with suppress(OSError, ValueError, RecursionError):
            for key, text in _texts(json.loads(file.read_text(encoding="utf-8"))):
                is_local = os.path.isabs(text) or text.startswith(("~", ".."))
                if key in _PLACES and is_local:
                    paths.add(text)
    return sorted(paths - {"..", "~", "/"}, key=len, reverse=True)


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in parsed JSON with the key of the object that contains it; the texts of a
    list have the key of the list.
    """
    if isinstance(value, str):
        yield key, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, name)
    if isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)


def _published(file: Path, places: Sequence[str]) -> Path | bytes:
    """Return the content of a JSON file or model card without local paths, or the path of any other
    file.
    """
    if file.suffix not in (".json", ".md") or not places:
        return file
    try:
        text = file.read_text(encoding="utf-8")
    except ValueError:
        return file
    changed = _without(places, text)
    return file if changed == text else changed.encode()


def _without(places: Sequence[str], text: str) -> str:
    """Replace each local path, plain or escaped as in JSON, by its last part."""
    for place in places:
        name = Path(place).name
        for written in (place, json_text(place)[1:-1], json_text(place, ensure_ascii=False)[1:-1]):
            text = text.replace(written, name)
    return text


def has_encoder(repo: str) -> bool:
    """Return whether a repository on the hub, or its local copy, can be reached and contains a file
    that marks an encoder.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    offline = unconnected()
    for mark in ENCODER_MARKS:
        try:
            hf_hub_download(repo, mark, local_files_only=offline)
            return True
        except EntryNotFoundError:
            continue
        except (
            OSError,
            ValueError,
            HfHubHTTPError,
        ):  # no such repository, no access or no connection
            return False
    return False


def check_repo(repo: str) -> str:
    """Return the name of a repository (USER/NAME or NAME) after checking it."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise SettingError(
            f"{repo!r} is not a valid repository name; use USER/NAME or NAME ({error})"
        ) from error
    return repo
