"""Numba's compiler, with types."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """``function`` as machine code, kept on disk beside its source; it runs without the interpreter's lock."""
    return cast(Callable[P, T], numba.njit(cache=True, nogil=True)(function))
