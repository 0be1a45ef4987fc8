"""Synapse's streams: their writers, positions and safe bounds, and the gaps in their stream IDs."""
