"""``lakehouse replicate tap``: commands received over TCP or Redis, written to Iceberg."""
