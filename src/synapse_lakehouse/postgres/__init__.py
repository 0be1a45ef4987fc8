"""Read access to Synapse's PostgreSQL database: one exported snapshot, only the catalogue's columns."""
