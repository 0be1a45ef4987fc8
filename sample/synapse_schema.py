"""Create the database of a Synapse release with the release's own code, and print its streams as JSON.

The release's Python runs this program: ``synapse_schema.py DSN FOLDER``. Synapse's script ``update_synapse_database``
applies the schema and all background updates, which create more indexes, without a running homeserver.
"""

import contextlib
import json
import sys
from pathlib import Path

import yaml
from synapse._scripts import update_synapse_database
from synapse.replication.tcp.streams import STREAMS_MAP


def create_schema(dsn: str, folder: Path) -> None:
    """Create Synapse's schema in the empty database ``dsn``. ``folder``: for configuration and key."""
    signing_key, path = folder / "signing.key", folder / "homeserver.yaml"
    signing_key.write_text(f"ed25519 a_test {'A' * 43}\n")
    configuration = {
        "server_name": "synapse.example",
        "report_stats": False,
        "trusted_key_servers": [],
        "signing_key_path": str(signing_key),
        "media_store_path": str(folder / "media"),
        "macaroon_secret_key": "unused",
        "form_secret": "unused",
        "database": {"name": "psycopg2", "args": {"dsn": dsn, "cp_min": 1, "cp_max": 2}},
    }
    path.write_text(yaml.safe_dump(configuration))
    sys.argv = ["update_synapse_database", "--database-config", str(path), "--run-background-updates"]
    update_synapse_database.main()


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        create_schema(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps(sorted(STREAMS_MAP)))
