"""``make generate``: list the columns of the sample's dump that the catalogue does not list.

A column in neither the catalogue nor this list is new in Synapse's schema. A contract test compares the list with a
live database.
"""

import gzip
import re

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER

EXCLUDED = PROJECT_FOLDER / "src" / "synapse_lakehouse" / "postgres" / "excluded_columns.txt"
_TABLE = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (?:public\.)?(\w+) \(\n(.*?)^\);", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^    (?!CONSTRAINT )"?(\w+)"? ', re.MULTILINE)


def excluded_columns() -> str:
    """Return the list: a line for each table with columns that are not copied."""
    copied = {
        table.name: {name for column in table.columns for name in column.source_columns}
        for table in load_catalogue().tables
    }
    dump = gzip.decompress((PROJECT_FOLDER / "sample" / "synapse.sql.gz").read_bytes()).decode()
    lines = []
    for table, definition in sorted(_TABLE.findall(dump)):
        if excluded := sorted(column for column in _COLUMN.findall(definition) if column not in copied.get(table, ())):
            lines.append(f"{table}: {' '.join(excluded)}\n")
    return "".join(lines)


if __name__ == "__main__":
    EXCLUDED.write_text(excluded_columns(), encoding="utf-8")
