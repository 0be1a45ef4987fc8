"""Read and write files that only this user can read."""

import os
import tempfile
from pathlib import Path


def write_private_file(file: Path, text: str) -> None:
    """Write ``file`` atomically with mode 600: other users cannot read it, and no reader sees an incomplete file."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    Path(temporary).replace(file)


def read_private_text(file: Path) -> str:
    """Return the text of ``file`` without surrounding space; "" if the file is absent, or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
