"""Find files of Hugging Face hub repositories, which are downloaded to the local cache if there is
a connection.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies


def hub_folder(name: str, mark: str, patterns: Sequence[str] = ()) -> Path | None:
    """Return the local copy of a hub repository that contains the file `mark`, or None. `patterns`
    selects the files to fetch.
    """
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if name.count("/") != 1 or name[0] in "/." or Path(name).exists():
        return None
    try:
        here = unconnected()
        hf_hub_download(name, mark, local_files_only=here)
        return Path(
            snapshot_download(name, allow_patterns=list(patterns) or None, local_files_only=here)
        )
    except (
        OSError,
        ValueError,
        HfHubHTTPError,
    ):  # the file does not exist, or there is no access or no connection
        return None


def unconnected() -> bool:
    """Return whether the hub's host name cannot be resolved; this check avoids half a minute of
    connection attempts.
    """
    from huggingface_hub.constants import ENDPOINT

    try:
        if not getproxies():
            socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None)
    except OSError:
        return True
    return False
