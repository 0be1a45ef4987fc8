"""Numba's JIT compiler with a cache, for packages whose loops are too slow in Python."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE = Path(__file__).parent
_SOURCES = b"".join(
    source.read_bytes()
    for package in ("compressor/algorithm", "room_state")
    for source in sorted((_PACKAGE / package).glob("*.py"))
)
_VERSION = hashlib.sha256(_SOURCES).hexdigest()[:16]


def find_cache_folder() -> Path | None:
    """Return the folder for machine code: beside the sources, or else in LAKEHOUSE_HOME; None if neither is writable.

    Each version of the sources has its own folder, because Numba does not recompile a function when its callee changes.
    """
    home = os.environ.get("LAKEHOUSE_HOME")
    for parent in [_PACKAGE / "__pycache__", *([Path(home)] if home else [])]:
        # The home folder of `~` may be unknown.
        with suppress(OSError, RuntimeError):
            folder = parent.expanduser() / f"compiled-{_VERSION}"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            TemporaryFile(dir=folder).close()
            return folder
    return None


_CACHE = find_cache_folder()
numba.config.CACHE_DIR = str(_CACHE or "")  # type: ignore[attr-defined]


def cached_njit(function: Callable[P, T]) -> Callable[P, T]:
    """Compile ``function`` to machine code, which is cached on disk if possible. The code runs without the GIL."""
    return cast(Callable[P, T], numba.njit(cache=_CACHE is not None, nogil=True)(function))
