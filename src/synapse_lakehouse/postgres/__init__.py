"""Synapse's PostgreSQL database: read-only, from one exported snapshot, only the catalogue's columns."""
