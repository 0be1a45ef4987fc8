"""The catalogue: all streams and tables of Synapse that the lakehouse copies, as dbt's sources file declares them.

The declaration is ``dbt/models/bronze/_synapse__sources.yml``. It lists every column that may be read from Synapse's
database; all other columns are never read.
"""

from synapse_lakehouse.catalogue.catalogue import Catalogue, effective_contiguity
from synapse_lakehouse.catalogue.column_declaration import (
    POSTGRES_TYPES,
    AbsentProjection,
    Column,
    DayProjection,
    DigestProjection,
    JsonKeysForTypeProjection,
    JsonKeysProjection,
    ListForTypeProjection,
)
from synapse_lakehouse.catalogue.load_catalogue import (
    find_sources_file,
    load_catalogue,
    load_state_tables,
    parse_catalogue,
)
from synapse_lakehouse.catalogue.references import LegalCase, Reference
from synapse_lakehouse.catalogue.stream_declaration import Contiguity, StartupSequence, Stream
from synapse_lakehouse.catalogue.synapse_schema_change import Evolving, SchemaChange
from synapse_lakehouse.catalogue.table_declaration import Database, LoadMode, Table

__all__ = [
    "POSTGRES_TYPES",
    "AbsentProjection",
    "Catalogue",
    "Column",
    "Contiguity",
    "Database",
    "DayProjection",
    "DigestProjection",
    "Evolving",
    "JsonKeysForTypeProjection",
    "JsonKeysProjection",
    "LegalCase",
    "ListForTypeProjection",
    "LoadMode",
    "Reference",
    "SchemaChange",
    "StartupSequence",
    "Stream",
    "Table",
    "effective_contiguity",
    "find_sources_file",
    "load_catalogue",
    "load_state_tables",
    "parse_catalogue",
]
