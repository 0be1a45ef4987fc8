"""A warehouse in an object store that speaks S3: what Spark, PyIceberg and DuckDB have to be told, from one setting.

``LAKEHOUSE_CATALOG_PROPERTIES`` has Iceberg's names (``s3.endpoint``, ``s3.access-key-id``, ``s3.secret-access-key``,
``s3.session-token``, ``s3.region`` or ``client.region``, ``s3.path-style-access``). Keys and region that it leaves out
are those of the environment, as everywhere with S3.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.aws_keys import AWS_KEYS

_REGIONS: Final = ("client.region", "s3.region")
"""What Iceberg's library for Java and the one for Python call it."""
_FROM_ENVIRONMENT: Final = {name: names.aws for name, names in AWS_KEYS.items()} | {"s3.region": "AWS_REGION"}
_DUCKDB: Final = {
    "s3.access-key-id": "key_id",
    "s3.secret-access-key": "secret",
    "s3.session-token": "session_token",
    "s3.region": "region",
}


def uses_s3(settings: Settings) -> bool:
    """Whether the warehouse is in an object store that speaks S3."""
    return settings.warehouse.startswith("s3://")


def get_catalog_properties(settings: Settings) -> dict[str, str]:
    """Properties of the Iceberg catalog: those that were set, and what a warehouse on S3 needs beside them."""
    given = settings.lakehouse_catalog_properties
    if not uses_s3(settings):
        return given
    region = next((given[name] for name in _REGIONS if name in given), None)
    needed = dict.fromkeys(_REGIONS, region) if region else {}
    return {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} | needed | given


def remove_s3_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """``properties`` without the keys of S3."""
    return {name: value for name, value in properties.items() if name not in AWS_KEYS}


def get_duckdb_secret_options(settings: Settings, *, with_keys: bool) -> dict[str, str]:
    """Options of the secret by which DuckDB reads the warehouse, and no other bucket.

    :param with_keys: else it holds no keys, may be shown, and takes those that AWS's tools would find.
    """
    given = get_catalog_properties(settings)
    names = _DUCKDB if with_keys else {"s3.region": "region"}
    found = {ours: given.get(name, os.environ.get(_FROM_ENVIRONMENT[name])) for name, ours in names.items()}
    options = {} if with_keys else {"provider": "credential_chain"}
    options |= {name: value for name, value in found.items() if value} | {"scope": settings.warehouse + "/"}
    if endpoint := given.get("s3.endpoint"):
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        where = parts.netloc.rpartition("@")[2]
        options |= {"endpoint": where, "use_ssl": str(parts.scheme != "http").lower()}
    if given.get("s3.path-style-access", "").lower() == "true":
        options["url_style"] = "path"
    return options
