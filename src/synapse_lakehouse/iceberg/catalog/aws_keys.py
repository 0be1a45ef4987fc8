"""Pass S3 keys to a driver and, on one machine, to its Python workers.

Spark copies ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY`` of a driver's environment into the configuration that
it broadcasts. Therefore the keys have other names in a driver's environment. The driver's JVM also has the keys as
system properties, which the AWS SDK reads first.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple


class AwsKeyNames(NamedTuple):
    """The names of a key: for the AWS tools, in a driver's environment, and as a system property of Java."""

    aws: str
    hidden: str
    java: str


AWS_KEYS: Final = {
    "s3.access-key-id": AwsKeyNames("AWS_ACCESS_KEY_ID", "ICEBERG_S3_ACCESS_KEY_ID", "aws.accessKeyId"),
    "s3.secret-access-key": AwsKeyNames("AWS_SECRET_ACCESS_KEY", "ICEBERG_S3_SECRET_ACCESS_KEY", "aws.secretAccessKey"),
    "s3.session-token": AwsKeyNames("AWS_SESSION_TOKEN", "ICEBERG_S3_SESSION_TOKEN", "aws.sessionToken"),
}
"""Names of each key, by the key's property in an Iceberg catalog."""


def hide_aws_keys(properties: Mapping[str, str]) -> None:
    """Rename the keys in this process's environment, which a driver inherits. Keys in ``properties`` replace them."""
    restore_aws_keys()
    variables = {names.aws: os.environ.pop(names.aws) for names in AWS_KEYS.values() if names.aws in os.environ}
    own_keys = {names.aws: properties[name] for name, names in AWS_KEYS.items() if name in properties}
    for names in AWS_KEYS.values():
        # A session token that belongs to other keys would make these keys invalid.
        os.environ.pop(names.hidden, None)
        if value := (own_keys or variables).get(names.aws):
            os.environ[names.hidden] = value


def restore_aws_keys() -> None:
    """Set the environment variables of the AWS tools to the keys, for this process and its child processes."""
    for names in AWS_KEYS.values():
        if value := os.environ.get(names.hidden):
            os.environ[names.aws] = value


def get_java_properties() -> dict[str, str]:
    """Return the keys as system properties for a driver's JVM."""
    return {names.java: os.environ[names.hidden] for names in AWS_KEYS.values() if os.environ.get(names.hidden)}
