"""Rows of each stream as the wire carries them, read from the tables behind it.

Shapes are Synapse's own. A field that the catalogue does not list is withheld: null stands in its place.
"""

from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.source.projection import expression


@dataclass(frozen=True)
class Constant:
    """The same in every row."""

    value: str | bool | None


@dataclass(frozen=True)
class IsSet:
    """Whether a column is not NULL."""

    column: str


@dataclass(frozen=True)
class Json:
    """A column of JSON text, parsed."""

    column: str


Field = str | Constant | IsSet | Json
"""A column's name, with its table's where that is joined by ``event_id``; or something made from one."""

WITHHELD: Final = Constant(None)


@dataclass(frozen=True)
class Shape:
    """How each row of ``table`` is sent: its fields, in a list after their ``tag`` if there is one."""

    table: str
    fields: tuple[Field, ...]
    tag: str | None = None


_EVENT: Final[tuple[Field, ...]] = (
    "event_id", "events.room_id", "events.type", "state_events.state_key", "redactions.redacts",
    "event_relations.relates_to_id",
)  # fmt: skip
_NEW_EVENT: Final = (*_EVENT, "room_memberships.membership", IsSet("rejections.reason"), "events.outlier")
_NO, _YES = Constant(value=False), Constant(value=True)

SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "events": (
        Shape("events", _NEW_EVENT, tag="ev"),
        Shape("current_state_delta_stream", ("room_id", "type", "state_key", "event_id"), tag="state"),
        Shape("ex_outlier_stream", _NEW_EVENT, tag="ev"),
    ),
    "backfill": (Shape("events", _EVENT), Shape("ex_outlier_stream", _EVENT)),
    "presence": (
        Shape(
            "presence_stream",
            (
                "user_id", "state", "last_active_ts", "last_federation_update_ts", "last_user_sync_ts", WITHHELD,
                "currently_active",
            ),
        ),
    ),
    "receipts": (
        Shape("receipts_linearized", ("room_id", "receipt_type", "user_id", "event_id", "thread_id", Json("data"))),
    ),
    "push_rules": (Shape("push_rules_stream", ("user_id",)),),
    "pushers": (
        Shape("pushers", ("user_name", "app_id", WITHHELD, _NO)),
        Shape("deleted_pushers", ("user_id", "app_id", WITHHELD, _YES)),
    ),
    "caches": (Shape("cache_invalidation_stream_by_instance", (WITHHELD, WITHHELD, WITHHELD)),),
    "device_lists": (
        Shape("device_lists_stream", ("user_id", _NO, _NO)),
        Shape("device_lists_changes_in_room", ("user_id", _NO, _NO)),
        Shape("user_signature_stream", (WITHHELD, _YES, _NO)),
        Shape("device_lists_outbound_pokes", (WITHHELD, _NO, _YES)),
    ),
    "to_device": (Shape("device_inbox", (WITHHELD,)), Shape("device_federation_outbox", (WITHHELD,))),
    "account_data": (
        Shape("account_data", ("user_id", WITHHELD, "account_data_type")),
        Shape("room_account_data", ("user_id", "room_id", "account_data_type")),
        Shape("room_tags_revisions", ("user_id", "room_id", Constant("m.tag"))),
    ),
    "thread_subscriptions": (Shape("thread_subscriptions", ("user_id", "room_id", "event_id")),),
    "sticky_events": (Shape("sticky_events", ("room_id", "event_id")),),
    "profile_updates": (Shape("profile_updates", ("user_id", "action")),),
    "quarantined_media": (Shape("quarantined_media_changes", ("origin", "media_id", "quarantined")),),
    "un_partial_stated_room": (Shape("un_partial_stated_room_stream", ("room_id",)),),
    "un_partial_stated_event": (Shape("un_partial_stated_event_stream", ("event_id", "rejection_status_changed")),),
}  # fmt: skip


def select(catalogue: Catalogue, stream: str, shape: Shape) -> sql.Composed:
    """Statement that reads rows with tokens in (``%(after)s``, ``%(upto)s``], of ``%(writer)s`` unless that is NULL.

    Rows that name no writer are those of ``%(unnamed)s``.

    Columns: token (positive, also where ids are negative), row (JSON text).

    :raises KeyError: when the shape names a column that the catalogue does not list.
    """
    table = catalogue.table(shape.table)
    named = [name.rpartition(".") for name in _columns(shape)]
    joined = sorted({owner for owner, _, _ in named} - {"", table.name})
    own = {name for owner, _, name in named if owner in ("", table.name)} | ({"event_id"} if joined else set())
    fields = sql.SQL(", ").join(_field(catalogue, table, field) for field in shape.fields)
    row = sql.SQL("json_build_array({})").format(fields)
    if shape.tag:
        row = sql.SQL("json_build_array({}, {})").format(sql.Literal(shape.tag), row)
    return sql.SQL(
        "select token, {row}::text from (select {token} as token{wanted} from {table} where {range}) own {joins}"
    ).format(
        row=row,
        token=_token(catalogue, stream, table),
        wanted=sql.SQL("").join(sql.SQL(", ") + expression(table.column(name)) for name in sorted(own)),
        table=sql.Identifier(table.name),
        range=_range(catalogue, stream, table),
        joins=sql.SQL(" ").join(
            sql.SQL("left join {other} on {other}.event_id = own.event_id").format(other=sql.Identifier(other))
            for other in joined
        ),
    )


def page_end(catalogue: Catalogue, stream: str, shape: Shape) -> sql.Composed:
    """Statement that gives the token of row number ``%(rows)s`` of those that :func:`select` reads, if there are."""
    table = catalogue.table(shape.table)
    token = _token(catalogue, stream, table)
    return sql.SQL("select {token} from {table} where {range} order by 1 limit 1 offset %(rows)s - 1").format(
        token=token, table=sql.Identifier(table.name), range=_range(catalogue, stream, table)
    )


def ids(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Statement that gives tokens in (``%(after)s``, ``%(upto)s``] that have rows: the lowest ``%(rows)s`` of each
    table, unsorted."""
    return sql.SQL(" union ").join(
        sql.SQL("(select distinct {token} from {table} where {range} order by 1 limit %(rows)s)").format(
            token=_token(catalogue, stream, table),
            table=sql.Identifier(table.name),
            range=_range(catalogue, stream, table),
        )
        for table, _ in catalogue.backing(stream)
    )


def is_negative(catalogue: Catalogue, stream: str) -> bool:
    """Whether ids in the tables are the negated tokens."""
    return catalogue.stream(stream).sign == "negative"


def _columns(shape: Shape) -> list[str]:
    named = [field if isinstance(field, str) else getattr(field, "column", None) for field in shape.fields]
    return [name for name in named if name is not None]


def _field(catalogue: Catalogue, table: Table, field: Field) -> sql.Composable:
    match field:
        case Constant(value):
            return sql.Literal(value) if not isinstance(value, str) else sql.SQL("{}::text").format(sql.Literal(value))
        case IsSet(name):
            return sql.SQL("{} is not null").format(_field(catalogue, table, name))
        case Json(name):
            return sql.SQL("{}::json").format(_field(catalogue, table, name))
        case str(name):
            owner, _, column = name.rpartition(".")
            if owner in ("", table.name):
                return sql.Identifier("own", column)
            catalogue.table(owner).column(column)
            return sql.Identifier(owner, column)


def _token(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    column = sql.Identifier(table.streams[stream])
    return sql.SQL("-{}" if is_negative(catalogue, stream) else "{}").format(column)


def _range(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    # An index on the ids helps only if they stand alone on their side.
    column = sql.Identifier(table.streams[stream])
    between = "{id} < -%(after)s::bigint and {id} >= -%(upto)s::bigint"
    if not is_negative(catalogue, stream):
        between = "{id} > %(after)s::bigint and {id} <= %(upto)s::bigint"
    writer = sql.Identifier(table.writer_column) if table.writer_column else sql.NULL
    return sql.SQL(
        "(" + between + ") and (%(writer)s::text is null or coalesce({writer}, %(unnamed)s) = %(writer)s)"
    ).format(id=column, writer=writer)
