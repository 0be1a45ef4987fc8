"""Rows of Synapse's tables: SELECT statements, page ranges, key ranges, counts, hashes."""
