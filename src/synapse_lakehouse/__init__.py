"""The lakehouse of a Synapse homeserver: code of the Spark apps, the DAGs and the ``lakehouse`` command."""

import os
from pathlib import Path

# PyIceberg reads a file when it is imported, and fails if the file is damaged. The file in the home folder describes
# the operator's own catalogs, so PyIceberg gets another one.
os.environ["PYICEBERG_HOME"] = str(Path(__file__).parent / "iceberg" / "catalog")
