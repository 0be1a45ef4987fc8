"""Rows of Synapse's tables: SELECT lists, page ranges, key ranges, hashes."""
