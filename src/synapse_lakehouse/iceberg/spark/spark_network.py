"""Configure the network between Spark's processes: authenticated and, on one machine, only through 127.0.0.1.

https://spark.apache.org/docs/latest/security.html
"""

import stat
from typing import Final

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

LOOPBACK: Final = "127.0.0.1"

_AUTHENTICATED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Otherwise a client may choose the older, weaker handshake.
    "spark.network.crypto.saslFallback": "false",
    # Other users could connect to a TCP port first and make the job fail. They cannot open a socket file.
    "spark.python.unix.domain.socket.enabled": "true",
}
SECRET_PROPERTY: Final = "spark.authenticate.secret"  # noqa: S105 - the name of a property
"""Property with the secret of a standalone cluster."""
_LOCAL: Final = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}


class SparkSecretError(LakehouseError):
    """The secret of a Spark cluster is missing, or other users can read it."""


def get_network_properties(master: str, settings: Settings) -> dict[str, str]:
    """Return the Spark configuration of a driver on ``master``; for a standalone cluster it contains the secret.

    On one machine Spark generates a secret for each driver. YARN and Kubernetes generate a secret for each application.

    :raises SparkSecretError: when a standalone cluster has no secret, or other users can read it.
    """
    if is_local(master):
        return _AUTHENTICATED | _LOCAL
    encrypted = _AUTHENTICATED | {"spark.io.encryption.enabled": "true"}
    if not master.startswith(("spark://", "local-cluster")):
        return encrypted
    # Spark reads `spark.authenticate.secret.file` on Kubernetes only.
    return encrypted | {SECRET_PROPERTY: _secret(settings)}


def is_local(master: str) -> bool:
    """Return whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def check_secret_file(settings: Settings) -> None:
    """Raise :class:`SparkSecretError` if LAKEHOUSE_SPARK_SECRET_FILE is set, but contains no secret for this user."""
    if settings.lakehouse_spark_secret_file:
        _secret(settings)


def _secret(settings: Settings) -> str:
    """Return the value of ``spark.authenticate.secret`` in the file LAKEHOUSE_SPARK_SECRET_FILE."""
    file = settings.lakehouse_spark_secret_file
    if file is None:
        raise SparkSecretError(
            "Spark's master is a cluster, but LAKEHOUSE_SPARK_SECRET_FILE is not set. Without a secret, every program "
            "that reaches a port of Spark could read and change the lake. Write a secret with `(umask 077; "
            "docker/spark-secret.sh > spark.secret)`, start masters and workers with `--properties-file` and this "
            "file, and set LAKEHOUSE_SPARK_SECRET_FILE to its path."
        )
    try:
        mode, content = file.stat().st_mode, file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SparkSecretError(
            f"LAKEHOUSE_SPARK_SECRET_FILE={file} cannot be read ({reason}). It contains the secret of the Spark "
            "cluster. Give this user the right to read it."
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SparkSecretError(
            f"LAKEHOUSE_SPARK_SECRET_FILE={file} is open to other users (mode {stat.S_IMODE(mode):o}). They may have "
            f"read the secret. Write a new secret to a file that only its owner can read (`chmod 600 {file}`)."
        )
    properties = dict(line.split(maxsplit=1) for line in content.splitlines() if len(line.split(maxsplit=1)) == 2)
    if secret := properties.get(SECRET_PROPERTY, "").strip():
        return secret
    raise SparkSecretError(
        f"LAKEHOUSE_SPARK_SECRET_FILE={file} has no line `{SECRET_PROPERTY} …`. Set it to the properties file with "
        "which the masters and workers of the cluster were started. `docker/spark-secret.sh` writes such a file."
    )
