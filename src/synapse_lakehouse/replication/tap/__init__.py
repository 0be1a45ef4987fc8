"""``lakehouse replicate tap``: write commands received over TCP or Redis to Iceberg."""
