"""Synapse's replication protocol: its commands in all dialects, a server and clients that speak them."""
