"""Check the paths in settings."""

import re
from pathlib import Path
from typing import Final

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_WAREHOUSE_URI: Final = re.compile(r"s3://[^/].*|file:///.*", re.DOTALL)


def resolve_path(path: Path) -> Path:
    """Return ``path`` as an absolute path; ``~`` is the home folder.

    :raises ValueError: when the home folder is unknown.
    """
    try:
        return path.expanduser().resolve()
    except RuntimeError:
        raise ValueError("begins with ~, but the home folder of this user is unknown; set an absolute path") from None


def check_warehouse(location: str) -> str:
    """Return ``location``; only a folder or an S3 bucket can be a warehouse.

    :raises ValueError: for anything else.
    """
    if not _SCHEME.match(location):
        resolve_path(Path(location))
    elif not _WAREHOUSE_URI.fullmatch(location):
        raise ValueError("should be a folder, or s3://bucket/prefix; other object stores are not supported")
    return location
