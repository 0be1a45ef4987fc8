"""``make generate``: the columns of Synapse's schema that the catalogue does not list, by the sample's dump.

A column that neither the catalogue nor this list has is new in Synapse's schema. A contract test compares the list with
a live database.
"""

import gzip
import re

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER

EXCLUDED = PROJECT_FOLDER / "src" / "synapse_lakehouse" / "postgres" / "excluded_columns.txt"
_TABLE = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (?:public\.)?(\w+) \(\n(.*?)^\);", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^    (?!CONSTRAINT )"?(\w+)"? ', re.MULTILINE)


def excluded_columns() -> str:
    """Content of the list: one line for each table with columns that are not copied."""
    listed = {
        table.name: {name for column in table.columns for name in column.source_columns}
        for table in load_catalogue().tables
    }
    dump = gzip.decompress((PROJECT_FOLDER / "sample" / "synapse.sql.gz").read_bytes()).decode()
    lines = []
    for table, definition in sorted(_TABLE.findall(dump)):
        if rest := sorted(column for column in _COLUMN.findall(definition) if column not in listed.get(table, ())):
            lines.append(f"{table}: {' '.join(rest)}\n")
    return "".join(lines)


if __name__ == "__main__":
    EXCLUDED.write_text(excluded_columns(), encoding="utf-8")
