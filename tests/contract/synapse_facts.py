"""Print facts about the streams and metadata of an installed Synapse as JSON. Synapse's own Python runs this program.

The syntax tree contains the arguments of the ID generators; the generators exist only inside a running server.
"""

import ast
import json
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from types import GetSetDescriptorType
from typing import Any

from synapse.replication.tcp import streams
from synapse.storage import databases
from synapse.storage.admin_client_config import AdminClientConfig
from synapse.storage.schema import SCHEMA_VERSION
from synapse.storage.util.id_generators import MultiWriterIdGenerator
from synapse.storage.util.sequence import build_sequence_generator
from synapse.synapse_rust.events import EventInternalMetadata


def arguments_of(function: Callable[..., Any]) -> Iterator[dict[str, ast.expr]]:
    """Yield the arguments, by name, of every call of the function or class in Synapse's storage."""
    names = list(signature(function).parameters)
    for path in Path(databases.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function.__name__:
                yield dict(zip(names, node.args, strict=False)) | {
                    keyword.arg: keyword.value for keyword in node.keywords if keyword.arg
                }


def sequences() -> dict[str, list[str | None]]:
    """Return the table and column with which Synapse compares each sequence without a stream; None without one."""
    return {
        ast.literal_eval(arguments["sequence_name"]): [
            ast.literal_eval(arguments[name]) for name in ("table", "id_column")
        ]
        for arguments in arguments_of(build_sequence_generator)
    }


def generators() -> list[dict[str, Any]]:
    """Return for each ID generator: stream_name, sequence_name, tables, writers (as source text), positive."""
    results = []
    for arguments in arguments_of(MultiWriterIdGenerator):
        name = arguments["stream_name"]
        results.append(
            {
                "stream_name": getattr(streams, name.value.id).NAME
                if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name)
                else ast.literal_eval(name),
                "sequence_name": ast.literal_eval(arguments["sequence_name"]),
                "tables": ast.literal_eval(arguments["tables"]),
                "writers": ast.unparse(arguments["writers"]),
                "positive": ast.literal_eval(arguments["positive"]) if "positive" in arguments else True,
            }
        )
    return results


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "streams": sorted(streams.STREAMS_MAP),
                "generators": generators(),
                "sequences": sequences(),
                "internal_metadata": sorted(
                    name
                    for name, member in vars(EventInternalMetadata).items()
                    if isinstance(member, GetSetDescriptorType)
                ),
                "admin_client_config": sorted(vars(AdminClientConfig(None))),
            }
        )
    )
