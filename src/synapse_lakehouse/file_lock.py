"""Lock files (flock) between processes of this machine. A process that ends releases its locks."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(file: Path) -> Iterator[None]:
    """Hold the lock of ``file`` in the context. Wait while another process holds it. A missing file is created."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Hold the lock of ``file`` in the context unless another process holds it; yield whether this process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
