"""The rows that replication sends consist of columns of the catalogue."""

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, Constant


def test_every_stream_has_row_schemas() -> None:
    assert ROW_SCHEMAS.keys() == {stream.name for stream in load_catalogue().streams}


def test_each_field_is_a_column_of_the_catalogue() -> None:
    catalogue = load_catalogue()
    for stream, shapes in ROW_SCHEMAS.items():
        backing = {table.name for table, _ in catalogue.backing_tables(stream)}
        assert {shape.table for shape in shapes} <= backing, stream
        for shape in shapes:
            for field in shape.fields:
                if not isinstance(field, Constant):
                    owner, _, column = (field if isinstance(field, str) else field.column).rpartition(".")
                    assert catalogue.table(owner or shape.table).column(column), f"{stream}: {field}"
