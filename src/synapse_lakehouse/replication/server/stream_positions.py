"""The positions of all streams at one moment: the tokens up to which the streams are complete."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from synapse_lakehouse.replication.protocol.stream_tokens import Source
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID


@dataclass(frozen=True)
class StreamPositions:
    """Tokens up to which streams are complete: ``by_stream`` for all writers together, ``by_instance`` for each writer.

    ``last_allocated``: the highest token that a writer may have allocated, by stream.
    ``without_positions``: streams for which Synapse stores no positions.
    ``unbounded``: streams without a safe bound, because a writer has no position yet. The value is the last token that
    had a row when the reader first noticed the missing position.
    ``is_standby``: the database may lack rows that were announced, because it has not replayed them yet.
    """

    by_stream: Mapping[str, int]
    by_instance: Mapping[Source, int]
    last_allocated: Mapping[str, int]
    without_positions: Collection[str]
    is_standby: bool = False
    unbounded: Mapping[str, int] = field(default_factory=dict)

    def position_of(self, source: Source) -> int:
        """Return the position of a stream, or of one instance in it; FIRST_ID if the database lacks the stream."""
        stream, instance = source
        position = self.by_stream.get(stream, FIRST_ID)
        return position if instance is None else self.by_instance.get(source, position)

    def latest(self, source: Source) -> int:
        """Return the token after which new rows follow, even if earlier rows are not complete."""
        stream, _ = source
        return self.last_allocated[stream] if stream in self.without_positions else self.position_of(source)

    def start_for_subscriber(self, source: Source) -> int:
        """Return the token after which a subscriber that wants only new rows starts.

        In a stream without positions, the subscriber may receive the last rows again, because one of these rows may
        belong to a transaction that was open. In a stream without a safe bound, the subscriber starts after the newest
        row, to skip the history.
        """
        stream, instance = source
        position = self.position_of(source)
        if position > FIRST_ID:
            return position
        if instance is not None and stream not in self.without_positions:
            return self.unbounded.get(stream, position)
        is_unknown = stream in self.without_positions or stream in self.unbounded
        return self.last_allocated[stream] if is_unknown else position

    def start_for_new_source(self, source: Source) -> int | None:
        """Return :meth:`latest` for a source that the caller did not follow before.

        Return None if the stream has rows, but the writer has no position.
        """
        latest = self.latest(source)
        return None if latest == FIRST_ID < self.last_allocated[source[0]] else latest

    def is_never_allocated(self, source: Source, token: int) -> bool:
        """Return whether this database never allocated ``token``, because it was restored or failed over."""
        return not self.is_standby and self.last_allocated.get(source[0], token) < token
