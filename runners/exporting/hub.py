"""Uploads a folder to the Hugging Face hub."""

import os
import re
from pathlib import Path

from runners.command_line.errors import UserError


def valid(name: str) -> bool:
    """Whether a repository can be called so: OWNER/NAME."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII) is not None


def push(folder: Path, name: str, *, public: bool) -> str:
    """Makes the repository where it is missing, uploads the folder, and returns its address. Raises UserError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    # The HTTP client's own error, and OSError: which client it is depends on the version.
    client = (base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))
    failures: tuple[type[Exception], ...] = (*client, ValueError)
    try:
        api = HfApi()
        made = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message="Exported by Turnwise")
    except failures as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise UserError(f"{folder} is written, but was not pushed to {name}: {why}{offline}") from None
    return f"pushed to {made.url}"
