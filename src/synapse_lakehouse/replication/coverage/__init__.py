"""Replication coverage: received rows compared with bronze."""
