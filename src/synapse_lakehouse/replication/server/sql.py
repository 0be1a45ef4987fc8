"""SQL that reads the rows of a stream as the wire carries them, from the tables behind it."""

from collections.abc import Collection

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.postgres.rows.select_sql import build_column_sql, build_null_column_sql
from synapse_lakehouse.replication.protocol.row_schemas import Constant, Field, IsSet, Json, Shape

Unreadable = Collection[tuple[str, str]]
"""Tables and columns that the role has no right to read."""


def select(catalogue: Catalogue, stream: str, shape: Shape, unreadable: Unreadable = ()) -> sql.Composed:
    """Statement that reads rows with tokens in (``%(after)s``, ``%(upto)s``], of ``%(writer)s`` unless that is NULL.

    Rows that name no writer are those of ``%(unnamed)s``.

    Columns: token (positive, also where ids are negative), fields (text of a JSON list, in which a column of JSON text
    is a string: PostgreSQL would refuse all rows for one that it cannot parse).

    :param unreadable: columns of the shape's table that are withheld.
    :raises KeyError: when the shape names a column that the catalogue does not list.
    """
    table = catalogue.table(shape.table)
    named = [name.rpartition(".") for name in _columns(shape)]
    joined = sorted({owner for owner, _, _ in named} - {"", table.name})
    own = {name for owner, _, name in named if owner in ("", table.name)} | ({"event_id"} if joined else set())
    fields = sql.SQL(", ").join(_field(catalogue, table, field) for field in shape.fields)
    row = sql.SQL("json_build_array({})").format(fields)
    return sql.SQL(
        "select {distinct} token, {row}::text"
        " from (select {token} as token{wanted} from {table} where {range}) own {joins}"
    ).format(
        distinct=sql.SQL("distinct" if shape.is_distinct else ""),
        row=row,
        token=_token(catalogue, stream, table),
        wanted=sql.SQL("").join(sql.SQL(", ") + _wanted(table, shape, name, unreadable) for name in sorted(own)),
        table=sql.Identifier(table.name),
        range=_range(catalogue, stream, table),
        joins=sql.SQL(" ").join(
            # Synapse does not announce a row whose event was purged.
            sql.SQL("{kind} join {other} on {other}.event_id = own.event_id").format(
                kind=sql.SQL("inner" if other == "events" else "left"), other=sql.Identifier(other)
            )
            for other in joined
        ),
    )


def page_end(catalogue: Catalogue, stream: str, shape: Shape) -> sql.Composed:
    """Statement that gives the token of row number ``%(rows)s`` of those that :func:`select` reads, if there are."""
    table = catalogue.table(shape.table)
    token = _token(catalogue, stream, table)
    return sql.SQL("select {token} from {table} where {range} order by {order} limit 1 offset %(rows)s - 1").format(
        token=token,
        table=sql.Identifier(table.name),
        range=_range(catalogue, stream, table),
        order=_order(catalogue, stream, table),
    )


def tokens(catalogue: Catalogue, stream: str, shape: Shape) -> sql.Composed:
    """Statement that gives the tokens of the rows that :func:`select` reads, lowest first."""
    table = catalogue.table(shape.table)
    return sql.SQL("select distinct {token} as token from {table} where {range} order by token").format(
        token=_token(catalogue, stream, table),
        table=sql.Identifier(table.name),
        range=_range(catalogue, stream, table),
    )


def ids(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Statement that gives tokens in (``%(after)s``, ``%(upto)s``] that have rows: the lowest ``%(rows)s`` of each
    table, unsorted."""
    return sql.SQL(" union ").join(
        sql.SQL(
            "select {token} from (select distinct {id} from {table} where {range} order by {order} limit %(rows)s) _"
        ).format(
            token=_token(catalogue, stream, table),
            id=sql.Identifier(table.streams[stream]),
            table=sql.Identifier(table.name),
            range=_range(catalogue, stream, table),
            order=_order(catalogue, stream, table),
        )
        for table, _ in catalogue.backing_tables(stream)
    )


def writers(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Statement that gives who wrote rows with tokens in (``%(after)s``, ``%(upto)s``]."""
    return sql.SQL(" union ").join(
        sql.SQL("(select distinct coalesce({writer}, %(unnamed)s) from {table} where {range})").format(
            writer=_writer(table), table=sql.Identifier(table.name), range=_range(catalogue, stream, table)
        )
        for table, _ in catalogue.backing_tables(stream)
    )


def last(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Statement that gives the highest token that has a row; NULL, or none that a token can be, if none has."""
    # Of an id with its sign turned, no index knows the highest.
    end = sql.SQL("-min({})" if is_negative(catalogue, stream) else "max({})")
    highest = sql.SQL(", ").join(
        sql.SQL("(select {end} from {table})").format(
            end=end.format(sql.Identifier(table.streams[stream])), table=sql.Identifier(table.name)
        )
        for table, _ in catalogue.backing_tables(stream)
    )
    return sql.SQL("select greatest({})").format(highest)


def is_negative(catalogue: Catalogue, stream: str) -> bool:
    """Whether ids in the tables are the negated tokens."""
    return catalogue.stream(stream).sign == "negative"


def _wanted(table: Table, shape: Shape, name: str, unreadable: Unreadable) -> sql.Composable:
    """SQL of one column; a column of JSON text as it is, because its projection would parse it."""
    column = table.column(name)
    if any((table.name, source) in unreadable for source in column.source_columns):
        return build_null_column_sql(column)
    if Json(name) in shape.fields:
        return sql.SQL("{} as {}").format(sql.Identifier(column.source_columns[0]), sql.Identifier(name))
    return build_column_sql(column)


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
            return _field(catalogue, table, name)
        case str(name):
            owner, _, column = name.rpartition(".")
            if owner in ("", table.name):
                return sql.Identifier("own", column)
            catalogue.table(owner).column(column)
            return sql.Identifier(owner, column)


def _token(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    column = sql.Identifier(table.streams[stream])
    return sql.SQL("-{}" if is_negative(catalogue, stream) else "{}").format(column)


def _order(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    """Lowest tokens first, as an index on the ids has them."""
    order = sql.SQL("{} desc" if is_negative(catalogue, stream) else "{}")
    return order.format(sql.Identifier(table.streams[stream]))


def _range(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    # An index on the ids helps only if they stand alone on their side.
    column = sql.Identifier(table.streams[stream])
    between = "{id} < -%(after)s::bigint and {id} >= -%(upto)s::bigint"
    if not is_negative(catalogue, stream):
        between = "{id} > %(after)s::bigint and {id} <= %(upto)s::bigint"
    return sql.SQL(
        "(" + between + ") and (%(writer)s::text is null or coalesce({writer}, %(unnamed)s) = %(writer)s)"
    ).format(id=column, writer=_writer(table))


def _writer(table: Table) -> sql.Composable:
    return sql.Identifier(table.writer_column) if table.writer_column else sql.NULL
