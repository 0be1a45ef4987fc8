"""The rows that replication sends consist of columns of the catalogue."""

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, Constant


def test_every_stream_has_row_schemas() -> None:
    assert ROW_SCHEMAS.keys() == {stream.name for stream in load_catalogue().streams}


def test_each_field_is_a_column_of_the_catalogue() -> None:
    catalogue = load_catalogue()
    for stream, schemas in ROW_SCHEMAS.items():
        backing_tables = {table.name for table, _ in catalogue.backing_tables(stream)}
        assert {schema.table for schema in schemas} <= backing_tables, stream
        for schema in schemas:
            for field in schema.fields:
                if not isinstance(field, Constant):
                    table_name, _, column = (field if isinstance(field, str) else field.column).rpartition(".")
                    assert catalogue.table(table_name or schema.table).column(column), f"{stream}: {field}"
