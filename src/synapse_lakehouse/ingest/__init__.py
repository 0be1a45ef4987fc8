"""Bring bronze up to one snapshot of the source: what to read of each table, how it is merged, what is written down."""
