"""Settings, homeserver.yaml, connection strings and the run."""
