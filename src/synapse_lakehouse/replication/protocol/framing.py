"""Split a stream of bytes into lines."""

from typing import Final

from synapse_lakehouse.errors import LakehouseError

MAX_LINE_BYTES: Final = 1 << 20
"""Bytes of the longest line that is accepted. Lines of Synapse are far shorter."""


class LineTooLongError(LakehouseError):
    """A line is too long, so the other side probably does not use the protocol."""


class LineSplitter:
    """Splits received pieces of any size into lines without line feeds; buffers the last, unfinished line."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._unfinished: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes.

        :raises LineTooLongError: if a line has more than ``max_bytes`` bytes, complete or not.
        """
        first, *following = data.split(b"\n")
        self._unfinished.append(first)
        self._size += len(first)
        if self._size > self._max_bytes or any(len(line) > self._max_bytes for line in following):
            raise LineTooLongError(f"a line of more than {self._max_bytes} bytes")
        if not following:
            return []
        *complete, unfinished = following
        lines = [b"".join(self._unfinished), *complete]
        self._unfinished, self._size = [unfinished], len(unfinished)
        return lines
