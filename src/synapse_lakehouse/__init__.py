"""The lakehouse of a Synapse homeserver: code of the Spark apps, the DAGs and the ``lakehouse`` command."""

import os
from pathlib import Path

# When PyIceberg is imported, it reads .pyiceberg.yaml, and fails if this file is damaged. The file in the user's home
# folder describes the operator's own catalogs, so PyIceberg reads the file of this package instead.
os.environ["PYICEBERG_HOME"] = str(Path(__file__).parent / "iceberg" / "catalog")
