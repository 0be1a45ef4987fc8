"""Synapse's replication protocol: its commands in all dialects, and a server and clients for them."""
