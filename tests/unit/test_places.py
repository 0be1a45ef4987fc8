"""Places of rows in data files, across row groups and files."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse.iceberg.write import places as looking
from synapse_lakehouse.iceberg.write.places import count, places, rows_at

ROW = st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([1, 2, None]))
SCHEMA = pa.schema([("kind", pa.string()), ("number", pa.int64())])


def rows(of: Sequence[tuple[str | None, int | None]]) -> pa.Table:
    return pa.Table.from_pylist([{"kind": kind, "number": number} for kind, number in of], schema=SCHEMA)


@settings(max_examples=25)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=9), min_size=1, max_size=3),
    wanted=st.lists(ROW, max_size=4),
    group=st.integers(1, 9),
    together=st.integers(1, 9),
    key=st.sampled_from([("kind",), ("kind", "number")]),
)
def test_exactly_the_rows_with_the_keys_are_found(
    files: list[list[tuple[str | None, int | None]]],
    wanted: list[tuple[str | None, int | None]],
    group: int,
    together: int,
    key: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lake = InMemoryCatalog("lake", warehouse=tmp_path_factory.mktemp("lake").as_uri())
    lake.create_namespace("bronze")
    properties = {"write.parquet.row-group-limit": str(group)}
    table = lake.create_table("bronze.rows", schema=SCHEMA, properties=properties)
    for file in files:
        table.append(rows(file))
    snapshot = table.current_snapshot()
    assert snapshot
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "_ROWS_READ", together)
        found = places(table, snapshot.snapshot_id, key, rows(wanted).select(key))
    keys = {one[: len(key)] for one in wanted}
    expected = sorted(str(row) for file in files for row in file if row[: len(key)] in keys)
    read = rows_at(table.io, found, SCHEMA.names).to_pylist() if found else []
    assert sorted(str((row["kind"], row["number"])) for row in read) == expected
    assert count(found) == len(expected)
