"""Types of settings with checked values."""

import json
import re
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from synapse_lakehouse.config.acknowledged_rooms import check_rooms
from synapse_lakehouse.config.check_paths import resolve_path
from synapse_lakehouse.config.limits import is_heap_size
from synapse_lakehouse.config.schedule import check_expression

_TEXT: Final = re.compile(r"[^\0\ud800-\udfff]*")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_text(value: object) -> object:
    """Return ``value`` unless it is a text with characters that neither PostgreSQL nor a file name can contain."""
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise ValueError("is not UTF-8, or has a NUL")
    return value


def _check_heap(memory: str) -> str:
    if not is_heap_size(memory):
        raise ValueError("should be a whole number with the unit m or g, from 512m to 1024g, such as 2g")
    return memory


def _check_java_options(options: str) -> str:
    if "-Xmx" in options or "-XX:MaxHeapSize" in options:
        raise ValueError("must not set the heap; set LAKEHOUSE_DRIVER_MEMORY instead, for example to 2g")
    return options


def _check_hosts(hosts: str) -> str:
    if invalid := [host for host in hosts.split() if not _HOST.fullmatch(host)]:
        raise ValueError(f"{invalid[0]!r} is not a host name such as airflow.example.org; leave out http and port")
    return hosts


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is not a time zone of the IANA database, such as Europe/Berlin") from None
    return name


def _decode_json(properties: object) -> object:
    if not isinstance(properties, str):
        return properties
    try:
        return json.loads(properties)
    except ValueError:
        raise ValueError('should be a JSON object, such as {"name": "value"}') from None


HeapSize = Annotated[str, AfterValidator(_check_heap)]
JavaOptions = Annotated[str, AfterValidator(_check_java_options)]
HostNames = Annotated[str, AfterValidator(_check_hosts)]
AcknowledgedRooms = Annotated[str, AfterValidator(check_rooms)]
CronExpression = Annotated[str, AfterValidator(check_expression)]
TimeZone = Annotated[str, AfterValidator(_check_time_zone)]
AbsolutePath = Annotated[Path, AfterValidator(resolve_path)]
JsonObject = Annotated[dict[str, str], NoDecode, BeforeValidator(_decode_json)]
