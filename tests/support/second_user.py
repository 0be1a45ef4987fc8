"""A program of another user of the same machine. It tries to use the ports, files and processes of the lakehouse.

Root starts this program. It changes to the user with the ID of its first argument. Then it executes one request a line,
as JSON: ``["spark", host, port]``, ``["read", path]``, ``["walk", folder]``, ``["signal", pid]``. It imports modules as
root, because the user may have no access to the environment's folder. The JVM starts as the user.
"""

import json
import os
import secrets
import sys
from functools import cache
from pathlib import Path
from typing import Any

ENDPOINTS = (
    "BlockManagerMaster", "BlockManagerEndpoint1", "HeartbeatReceiver", "LocalSchedulerBackendEndpoint",
    "CoarseGrainedScheduler", "MapOutputTracker", "OutputCommitCoordinator", "Master", "Worker",
)  # fmt: skip
"""Names of the RPC endpoints of Spark's drivers, executors, masters and workers."""
_BLOCKS = [f"broadcast_{number}_piece0" for number in range(20)]
_MAX_BYTES = 200_000_000


def become(uid: int) -> None:
    """Change to the user ``uid`` permanently."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.environ |= {"HOME": "/nonexistent", "SPARK_LOCAL_IP": "127.0.0.1"}


@cache
def _jvm() -> Any:
    from pyspark.java_gateway import launch_gateway

    return launch_gateway().jvm  # type: ignore[no-untyped-call]


def _module(name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(_jvm(), name + "$"), "MODULE$")


@cache
def _rpc() -> Any:
    jvm = _jvm()
    # Without a secret, a client can use only services without authentication.
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.rpc.askTimeout", "5s").set("spark.rpc.lookupTimeout", "5s")
    secret_file = _module("org.apache.spark.internal.config.package").AUTH_SECRET_FILE()
    security = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), secret_file)
    return jvm.org.apache.spark.rpc.RpcEnv.create("stranger", "127.0.0.1", "127.0.0.1", -1, conf, security, 0, True)


def spark(host: str, port: int) -> list[str]:
    """Return the names of the RPC endpoints that respond, and ``blocks`` if the port serves blocks."""
    jvm = _jvm()
    services = []
    address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
    for name in ENDPOINTS:
        try:
            _rpc().setupEndpointRef(address, name)
            services.append(name)
        except Exception as error:  # noqa: BLE001 - py4j wraps all Java errors
            if "RpcEndpointNotFoundException" not in str(error):
                break  # no RPC environment, or authentication failed
    try:
        _open_blocks(host, port)
        services.append("blocks")
    except Exception:  # noqa: BLE001 - the port serves no blocks, or authentication failed
        pass
    return services


def _open_blocks(host: str, port: int) -> Any:
    jvm, network = _jvm(), _jvm().org.apache.spark.network
    conf = network.util.TransportConf("shuffle", network.util.MapConfigProvider(jvm.java.util.HashMap()))
    context = network.TransportContext(conf, network.server.NoOpRpcHandler())
    names = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.String"), 1)
    errors = []
    for block in _BLOCKS:
        names[0] = block
        message = network.shuffle.protocol.OpenBlocks("stranger", "driver", names).toByteBuffer()
        client = context.createClientFactory().createClient(host, port)
        try:
            return client.sendRpcSync(message, 5000)
        except Exception as error:  # noqa: BLE001 - the next block may exist
            errors.append(str(error))
        finally:
            client.close()
    # A server that reports a missing block serves blocks.
    if any("BlockNotFound" in error or "not found" in error.lower() for error in errors):
        return errors
    raise RuntimeError(errors[0])


def read(path: str) -> str | None:
    """Return the content of the file; None if this user cannot read it."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES).decode("latin-1")
    except OSError:
        return None


def walk(folder: str) -> list[str]:
    """Return the files below ``folder`` that this user can read."""
    return [
        str(file)
        for parent, _, names in os.walk(folder)
        for file in (Path(parent) / name for name in names)
        if os.access(file, os.R_OK) and file.is_file()
    ]


def signal(pid: int) -> bool:
    """Return whether this user may send signals to the process."""
    try:
        os.kill(pid, 0)
    except (PermissionError, ProcessLookupError):
        return False
    return True


def main() -> None:
    """Execute requests until the input ends."""
    # PySpark imports these modules late. The user may then have no access to them.
    import pyspark.testing.utils  # noqa: F401
    from pyspark.java_gateway import launch_gateway  # noqa: F401

    become(int(sys.argv[1]))
    secrets.token_hex()
    actions = {"spark": spark, "read": read, "walk": walk, "signal": signal}
    for line in sys.stdin:
        action, *arguments = json.loads(line)
        print(json.dumps(actions[action](*arguments)), flush=True)  # type: ignore[operator]


if __name__ == "__main__":
    main()
