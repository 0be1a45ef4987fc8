"""Asks an installed Synapse what it knows about its streams and metadata. Run by Synapse's own Python; prints JSON.

The arguments of its id generators are read from the syntax tree, because generators exist only inside a running server.
"""

import ast
import json
from pathlib import Path
from types import GetSetDescriptorType
from typing import Any

from synapse.replication.tcp import streams
from synapse.storage import databases
from synapse.storage.admin_client_config import AdminClientConfig
from synapse.storage.schema import SCHEMA_VERSION
from synapse.synapse_rust.events import EventInternalMetadata


def generators() -> list[dict[str, Any]]:
    """One object per stream id generator: stream_name, sequence_name, tables, writers (source text), positive."""
    calls = (
        node
        for path in Path(databases.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "MultiWriterIdGenerator"
    )
    found = []
    for call in calls:
        arguments = {keyword.arg: keyword.value for keyword in call.keywords}
        name = arguments["stream_name"]
        found.append(
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
    return found


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "streams": sorted(streams.STREAMS_MAP),
                "generators": generators(),
                "internal_metadata": sorted(
                    name
                    for name, member in vars(EventInternalMetadata).items()
                    if isinstance(member, GetSetDescriptorType)
                ),
                "admin_client_config": sorted(vars(AdminClientConfig(None))),
            }
        )
    )
