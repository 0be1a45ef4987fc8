"""Synapse's replication protocol: commands, framing, encoding and decoding in each dialect, row schemas."""
