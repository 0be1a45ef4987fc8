"""Numba's compiler, with types, for the packages whose loops are too slow otherwise."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")

_HERE = Path(__file__).parent
_SOURCES = b"".join(
    source.read_bytes() for package in ("compression", "state") for source in sorted((_HERE / package).glob("*.py"))
)
_VERSION = hashlib.sha256(_SOURCES).hexdigest()[:16]
# Numba compiles a function anew when its own file changes, but not when one does that it calls: so a folder a version.
numba.config.CACHE_DIR = str(_HERE / "__pycache__" / f"compiled-{_VERSION}")  # type: ignore[attr-defined]


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """``function`` as machine code, kept on disk beside its source; it runs without the interpreter's lock."""
    return cast(Callable[P, T], numba.njit(cache=True, nogil=True)(function))
