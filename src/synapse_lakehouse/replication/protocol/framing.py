"""A stream of bytes cut into lines."""

from typing import Final

from synapse_lakehouse.errors import LakehouseError

LONGEST: Final = 1 << 20
"""Bytes that a line may have; Synapse's own stay far below."""


class LineTooLongError(LakehouseError):
    """A line without an end: the other side does not speak the protocol."""


class Lines:
    """Cuts what arrives, in whatever pieces, into lines without their line feeds; holds the last, unfinished one."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._unfinished: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that ``data`` ends.

        :raises LineTooLongError: when a line has more than ``longest`` bytes, ended or not.
        """
        head, *others = data.split(b"\n")
        self._unfinished.append(head)
        self._size += len(head)
        if self._size > self._longest or any(len(line) > self._longest for line in others):
            raise LineTooLongError(f"a line of more than {self._longest} bytes")
        if not others:
            return []
        *whole, rest = others
        lines = [b"".join(self._unfinished), *whole]
        self._unfinished, self._size = [rest], len(rest)
        return lines
