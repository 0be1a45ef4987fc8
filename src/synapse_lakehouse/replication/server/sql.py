"""SQL that reads a stream's rows, tokens and writers from the tables behind it."""

from collections.abc import Collection
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.postgres.rows.select_sql import build_column_sql, build_null_column_sql
from synapse_lakehouse.replication.protocol.row_schemas import Constant, Field, IsNotNull, Json, RowSchema

PAGE_ROWS: Final = 1000
"""Maximum number of rows of one table that are read at a time, unless one token alone has more rows."""

Unreadable = Collection[tuple[str, str]]
"""Tables and columns that the role may not read."""


def build_parameters(after: int, upto: int, writer: str | None, unnamed: str) -> dict[str, Any]:
    """Return the parameters with which this module's queries read the tokens in (``after``, ``upto``] of ``writer``.

    If ``writer`` is None, the queries read the tokens of all writers.

    :param unnamed: the writer of rows that do not name their writer.
    """
    return {"after": after, "upto": upto, "writer": writer, "unnamed": unnamed, "rows": PAGE_ROWS}


def build_row_query(catalogue: Catalogue, stream: str, schema: RowSchema, unreadable: Unreadable = ()) -> sql.Composed:
    """Return the query of the rows.

    Columns: token (positive, also if IDs are negative), fields (a JSON list as text). A column of JSON text is a string
    in that list: if PostgreSQL parsed it, one invalid text would fail the query of all rows.

    :param unreadable: columns of the schema's table that are withheld.
    :raises KeyError: if the schema names a column that the catalogue does not list.
    """
    table = catalogue.table(schema.table)
    names = [name.rpartition(".") for name in _column_names(schema)]
    joined = sorted({owner for owner, _, _ in names} - {"", table.name})
    own = {name for owner, _, name in names if owner in ("", table.name)} | ({"event_id"} if joined else set())
    fields = sql.SQL(", ").join(_field_sql(catalogue, table, field) for field in schema.fields)
    row = sql.SQL("json_build_array({})").format(fields)
    return sql.SQL(
        "select {distinct} token, {row}::text"
        " from (select {token} as token{columns} from {table} where {range}) own {joins}"
    ).format(
        distinct=sql.SQL("distinct" if schema.is_distinct else ""),
        row=row,
        token=_token_sql(catalogue, stream, table),
        columns=sql.SQL("").join(sql.SQL(", ") + _column_sql(table, schema, name, unreadable) for name in sorted(own)),
        table=sql.Identifier(table.name),
        range=_range_sql(catalogue, stream, table),
        joins=sql.SQL(" ").join(
            # The inner join drops rows of purged events, because Synapse does not announce them.
            sql.SQL("{kind} join {other} on {other}.event_id = own.event_id").format(
                kind=sql.SQL("inner" if other == "events" else "left"), other=sql.Identifier(other)
            )
            for other in joined
        ),
    )


def build_page_end_query(catalogue: Catalogue, stream: str, schema: RowSchema) -> sql.Composed:
    """Return the query of the token of row number ``%(rows)s``. It has no result if there are fewer rows."""
    table = catalogue.table(schema.table)
    token = _token_sql(catalogue, stream, table)
    return sql.SQL("select {token} from {table} where {range} order by {order} limit 1 offset %(rows)s - 1").format(
        token=token,
        table=sql.Identifier(table.name),
        range=_range_sql(catalogue, stream, table),
        order=_order_sql(catalogue, stream, table),
    )


def build_token_query(catalogue: Catalogue, stream: str, schema: RowSchema) -> sql.Composed:
    """Return the query of the tokens of the rows, lowest first."""
    table = catalogue.table(schema.table)
    return sql.SQL("select distinct {token} as token from {table} where {range} order by token").format(
        token=_token_sql(catalogue, stream, table),
        table=sql.Identifier(table.name),
        range=_range_sql(catalogue, stream, table),
    )


def build_token_page_query(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Return the query of the tokens with rows in any table: the lowest ``%(rows)s`` of each table, unsorted."""
    return sql.SQL(" union ").join(
        sql.SQL(
            "select {token} from (select distinct {id} from {table} where {range} order by {order} limit %(rows)s) _"
        ).format(
            token=_token_sql(catalogue, stream, table),
            id=sql.Identifier(table.streams[stream]),
            table=sql.Identifier(table.name),
            range=_range_sql(catalogue, stream, table),
            order=_order_sql(catalogue, stream, table),
        )
        for table, _ in catalogue.backing_tables(stream)
    )


def build_writer_query(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Return the query of the names of all writers that have a row in the range of tokens."""
    return sql.SQL(" union ").join(
        sql.SQL("(select distinct coalesce({writer}, %(unnamed)s) from {table} where {range})").format(
            writer=_writer_sql(table), table=sql.Identifier(table.name), range=_range_sql(catalogue, stream, table)
        )
        for table, _ in catalogue.backing_tables(stream)
    )


def build_last_token_query(catalogue: Catalogue, stream: str) -> sql.Composed:
    """Return the query of the highest token with a row. Without rows, its result is NULL or an impossible token."""
    # The minimum is negated outside the aggregate, so that PostgreSQL can use the index.
    end = sql.SQL("-min({})" if is_negative(catalogue, stream) else "max({})")
    highest = sql.SQL(", ").join(
        sql.SQL("(select {end} from {table})").format(
            end=end.format(sql.Identifier(table.streams[stream])), table=sql.Identifier(table.name)
        )
        for table, _ in catalogue.backing_tables(stream)
    )
    return sql.SQL("select greatest({})").format(highest)


def is_negative(catalogue: Catalogue, stream: str) -> bool:
    """Return whether the IDs in the tables are negated tokens."""
    return catalogue.stream(stream).sign == "negative"


def _column_sql(table: Table, schema: RowSchema, name: str, unreadable: Unreadable) -> sql.Composable:
    """Return the SQL of one column. JSON text is read without its projection, because the projection would parse it."""
    column = table.column(name)
    if any((table.name, source) in unreadable for source in column.source_columns):
        return build_null_column_sql(column)
    if Json(name) in schema.fields:
        return sql.SQL("{} as {}").format(sql.Identifier(column.source_columns[0]), sql.Identifier(name))
    return build_column_sql(column)


def _column_names(schema: RowSchema) -> list[str]:
    names = [field if isinstance(field, str) else getattr(field, "column", None) for field in schema.fields]
    return [name for name in names if name is not None]


def _field_sql(catalogue: Catalogue, table: Table, field: Field) -> sql.Composable:
    match field:
        case Constant(value):
            return sql.Literal(value) if not isinstance(value, str) else sql.SQL("{}::text").format(sql.Literal(value))
        case IsNotNull(name):
            return sql.SQL("{} is not null").format(_field_sql(catalogue, table, name))
        case Json(name):
            return _field_sql(catalogue, table, name)
        case str(name):
            owner, _, column = name.rpartition(".")
            if owner in ("", table.name):
                return sql.Identifier("own", column)
            catalogue.table(owner).column(column)
            return sql.Identifier(owner, column)


def _token_sql(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    column = sql.Identifier(table.streams[stream])
    return sql.SQL("-{}" if is_negative(catalogue, stream) else "{}").format(column)


def _order_sql(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    """Lowest tokens first, in the order of the index on the IDs."""
    order = sql.SQL("{} desc" if is_negative(catalogue, stream) else "{}")
    return order.format(sql.Identifier(table.streams[stream]))


def _range_sql(catalogue: Catalogue, stream: str, table: Table) -> sql.Composed:
    # PostgreSQL uses the index only for a comparison with the bare ID column.
    column = sql.Identifier(table.streams[stream])
    between = "{id} < -%(after)s::bigint and {id} >= -%(upto)s::bigint"
    if not is_negative(catalogue, stream):
        between = "{id} > %(after)s::bigint and {id} <= %(upto)s::bigint"
    return sql.SQL(
        "(" + between + ") and (%(writer)s::text is null or coalesce({writer}, %(unnamed)s) = %(writer)s)"
    ).format(id=column, writer=_writer_sql(table))


def _writer_sql(table: Table) -> sql.Composable:
    return sql.Identifier(table.writer_column) if table.writer_column else sql.NULL
