"""Read access to Synapse's PostgreSQL database: one exported PostgreSQL snapshot, only the catalogue's columns."""
