"""Collect the writers of each stream: configured writers, writers with a position, and writers that rows name."""

from collections.abc import Iterable, Mapping
from typing import Final

from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.streams.positions.configured_writers import MASTER, default_writer
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID, BoundRule, SafeBound

log = get_printable_logger(__name__)

_WITHOUT_WRITER: Final = frozenset({"account_data"})
"""Streams whose rows do not name their writer."""


class StreamWriters:
    """Collects the writers of each stream, and logs problems with them.

    :ivar with_position: writers that have a position, by stream; ``named_by_rows``: writers that rows name.
    """

    def __init__(self, configured: Mapping[str, frozenset[str]]) -> None:
        """:param configured: configured writers by stream."""
        self.configured = configured
        self.with_position: dict[str, frozenset[str]] = {}
        self.named_by_rows: dict[str, set[str]] = {}
        self._logged_bounds: dict[str, object] = {}
        self._provisional: frozenset[str] = frozenset()

    def all_of(self, stream: Stream) -> set[str]:
        """Return all writers of a stream; the main process if there is no other."""
        if stream.stream_positions:
            return set(self.configured.get(stream.name, ())) | self.with_position[stream.name] or {MASTER}
        configured = {writer for writers in self.configured.values() for writer in writers}
        return {MASTER} | configured | self.named_by_rows[stream.name]

    def unnamed_writer(self, stream: str) -> str:
        """Return the writer of rows that do not name their writer."""
        return default_writer(self.configured.get(stream) or self.with_position.get(stream, frozenset()))

    def may_be_unnamed(self, stream: Stream, writer: str) -> bool:
        """Return whether rows that are served as rows of ``writer`` may come from another writer."""
        is_shared = stream.name in _WITHOUT_WRITER and len(self.all_of(stream)) > 1
        return is_shared and writer == self.unnamed_writer(stream.name)

    def warn_of_provisional(self, streams: Iterable[Stream]) -> None:
        """Log once which of ``streams`` have no configured writers."""
        with_positions = {stream.name for stream in streams if stream.stream_positions}
        provisional = with_positions - self.configured.keys()
        if new := sorted(provisional - self._provisional):
            log.warning(
                "The writers of %s are not configured, so only writers with a position are known. Rows of other "
                "workers may be skipped. Set SYNAPSE_CONFIG or LAKEHOUSE_STREAM_WRITERS.",
                ", ".join(new),
            )
        self._provisional |= provisional

    def warn_of_bound(self, stream: str, bound: SafeBound, last_value: int) -> None:
        """Log which writers limit the stream's position, when the reason changes."""
        if last_value <= FIRST_ID:
            return
        reason = (bound.rule, bound.missing, bound.unknown)
        if self._logged_bounds.get(stream) == reason:
            return
        self._logged_bounds[stream] = reason
        if bound.rule in (BoundRule.MISSING_WRITER, BoundRule.MISSING_LEARNED_WRITER):
            names = ", ".join(bound.missing) or "any writer"
            log.warning("Stream %s does not advance, because %s has no position yet", stream, names)
        if bound.rule is BoundRule.UNCONFIGURED_WRITER:
            log.warning(
                "Stream %s is served only up to the lowest position of its writers. The writers %s are not configured."
                " If they still run, add them to LAKEHOUSE_STREAM_WRITERS or SYNAPSE_CONFIG. If you removed them,"
                " Synapse deletes their positions when one of the stream's writers starts with the new configuration.",
                stream, ", ".join(bound.unknown),
            )  # fmt: skip
