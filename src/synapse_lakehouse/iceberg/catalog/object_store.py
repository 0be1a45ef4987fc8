"""Options of an S3 warehouse for Spark, PyIceberg and DuckDB, from one setting.

``LAKEHOUSE_CATALOG_PROPERTIES`` uses Iceberg's names (``s3.endpoint``, ``s3.access-key-id``, ``s3.secret-access-key``,
``s3.session-token``, ``s3.region`` or ``client.region``, ``s3.path-style-access``). If keys or region are absent there,
the environment variables of AWS apply.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.aws_keys import AWS_KEYS

_REGIONS: Final = ("client.region", "s3.region")
"""Names of the region property in Iceberg's libraries for Java and for Python."""
_FROM_ENVIRONMENT: Final = {name: names.aws for name, names in AWS_KEYS.items()} | {"s3.region": "AWS_REGION"}
_DUCKDB: Final = {
    "s3.access-key-id": "key_id",
    "s3.secret-access-key": "secret",
    "s3.session-token": "session_token",
    "s3.region": "region",
}


def uses_s3(settings: Settings) -> bool:
    """Return whether the warehouse is in an S3 object store."""
    return settings.warehouse.startswith("s3://")


def get_catalog_properties(settings: Settings) -> dict[str, str]:
    """Return the Iceberg catalog's properties from the setting, with the additional properties of a warehouse on S3."""
    properties = settings.lakehouse_catalog_properties
    if not uses_s3(settings):
        return properties
    region = next((properties[name] for name in _REGIONS if name in properties), None)
    regions = dict.fromkeys(_REGIONS, region) if region else {}
    return {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} | regions | properties


def remove_s3_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` without the AWS credentials (``AWS_KEYS``)."""
    return {name: value for name, value in properties.items() if name not in AWS_KEYS}


def get_duckdb_secret_options(settings: Settings, *, with_keys: bool) -> dict[str, str]:
    """Return the options of the DuckDB secret for the warehouse. The secret is valid only for the warehouse's bucket.

    :param with_keys: whether the options contain the keys. If not, DuckDB finds keys as the AWS tools do.
    """
    properties = get_catalog_properties(settings)
    names = _DUCKDB if with_keys else {"s3.region": "region"}
    values = {option: properties.get(name, os.environ.get(_FROM_ENVIRONMENT[name])) for name, option in names.items()}
    options = {} if with_keys else {"provider": "credential_chain"}
    options |= {name: value for name, value in values.items() if value} | {"scope": settings.warehouse + "/"}
    if endpoint := properties.get("s3.endpoint"):
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint": parts.netloc.rpartition("@")[2], "use_ssl": str(parts.scheme != "http").lower()}
    if properties.get("s3.path-style-access", "").lower() == "true":
        options["url_style"] = "path"
    return options
